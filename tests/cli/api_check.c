/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call of efs.h against a running instance: ./api_check ROOT MOUNT RESULTS. Prints what is
 * wrong. */
#include <efs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int bad = 0;

static void is(const char* what, long got, long wanted) {
  if (got == wanted) {
    return;
  }
  printf("%s: %ld, not %ld (%s)\n", what, got, wanted, efs_last_error());
  bad = 1;
}

static char* path(const char* directory, const char* name) {
  static char text[4][4096];
  static int turn = 0;
  char* mine = text[turn++ % 4];
  snprintf(mine, 4096, "%s/%s", directory, name);
  return mine;
}

static long size_of(const char* name) {
  struct stat st;
  return stat(name, &st) == 0 ? (long)st.st_size : -1;
}

static void put(const char* name, const char* text) {
  FILE* file = fopen(name, "w");
  if (!file || fputs(text, file) < 0 || fclose(file) != 0) {
    is(name, -1, 0);
  }
}

static void put_megabytes(const char* name, int megabytes) {
  static char data[1000000];
  memset(data, 'x', sizeof data);
  FILE* file = fopen(name, "w");
  for (int i = 0; file && i < megabytes; ++i) {
    if (fwrite(data, sizeof data, 1, file) != 1) {
      is(name, -1, 0);
    }
  }
  if (!file || fclose(file) != 0) {
    is(name, -1, 0);
  }
}

int main(int argc, char** argv) {
  if (argc != 4) {
    return 2;
  }
  const char *root = argv[1], *mount = argv[2], *results = argv[3];

  /* the way of echofs: load, poll, read */
  put(path(root, "api1"), "0123456789");
  struct efs_iocb cb = EFS_IOCB_INIT(NULL, "api1", 0, 0);
  is("load", efs_load(&cb), EFS_API_SUCCESS);
  is("a task", cb.efs_tid > 0, 1);
  int code;
  while ((code = efs_status(&cb)) == EFS_API_ETASKPENDING || code == EFS_API_ETASKINPROGRESS) {
    usleep(1000);
  }
  is("status", code, EFS_API_SUCCESS);
  is("loaded", size_of(path(mount, "api1")), 10);
  is("status again", efs_status(&cb), EFS_API_SUCCESS);
  is("cancel of what has ended", efs_cancel(&cb), EFS_API_SUCCESS);
  is("still a success", efs_wait(&cb, 0), EFS_API_SUCCESS);

  /* conflict, flags, paths of the PFS and of the mount */
  put(path(root, "api1"), "another version");
  is("load of another version", efs_load(&cb), EFS_API_SUCCESS);
  is("is refused", efs_wait(&cb, -1), EFS_API_EPATHEXISTS);
  is("with a text", strstr(efs_last_error(), "api1") != NULL, 1);
  cb.efs_flags = EFS_LOAD_REPLACE;
  cb.efs_path = path(root, "api1");
  is("load with REPLACE", efs_load(&cb), EFS_API_SUCCESS);
  is("is done", efs_wait(&cb, -1), EFS_API_SUCCESS);
  is("loaded", size_of(path(mount, "api1")), 15);
  put(path(mount, "api1"), "changed by the job");
  is("load over a change", efs_load(&cb), EFS_API_SUCCESS);
  is("is refused", efs_wait(&cb, -1), EFS_API_EBUSY);
  cb.efs_flags |= EFS_LOAD_FORCE;
  is("load with FORCE", efs_load(&cb), EFS_API_SUCCESS);
  is("is done", efs_wait(&cb, -1), EFS_API_SUCCESS);

  /* offset and size */
  put(path(root, "api2"), "abcdefghij");
  struct efs_iocb part = EFS_IOCB_INIT("", "api2", 2, 3);
  is("load of a part", efs_load(&part), EFS_API_SUCCESS);
  is("is done", efs_wait(&part, -1), EFS_API_SUCCESS);
  FILE* file = fopen(path(mount, "api2"), "r");
  char text[16] = {0};
  is("size of the part's file", file ? (long)fread(text, 1, sizeof text, file) : -1, 10);
  if (file) {
    fclose(file);
  }
  is("bytes of the part", memcmp(text, "\0\0cde\0\0\0\0\0", 10), 0);
  part.efs_offset = 10;
  is("load behind the end", efs_load(&part), EFS_API_SUCCESS);
  is("is refused", efs_wait(&part, -1), EFS_API_EINVAL);
  part.efs_offset = -1;
  is("a negative offset", efs_load(&part), EFS_API_EINVAL);

  /* unload */
  put(path(mount, "out"), "result");
  struct efs_iocb out = EFS_IOCB_INIT(NULL, "out", 0, 0);
  is("unload", efs_unload(&out), EFS_API_SUCCESS);
  is("is done", efs_wait(&out, -1), EFS_API_SUCCESS);
  is("is there", size_of(path(results, "out")), 6);
  FILE* open = fopen(path(mount, "out"), "a");
  if (!open || fputs(" more", open) < 0 || fflush(open) != 0) {
    is("append", -1, 0);
  }
  is("unload of an open file", efs_unload(&out), EFS_API_SUCCESS);
  is("is refused", efs_wait(&out, -1), EFS_API_EBUSY);
  is("the old one is there", size_of(path(results, "out")), 6);
  out.efs_flags = EFS_UNLOAD_AS_IS;
  is("unload as it is", efs_unload(&out), EFS_API_SUCCESS);
  is("is done", efs_wait(&out, -1), EFS_API_SUCCESS);
  is("the new one is there", size_of(path(results, "out")), 11);
  if (open) {
    fclose(open);
  }
  out.efs_flags = 0;
  out.efs_offset = 2;
  out.efs_size = 4;
  is("unload of a part", efs_unload(&out), EFS_API_SUCCESS);
  is("is done", efs_wait(&out, -1), EFS_API_SUCCESS);
  out.efs_offset = 0;
  out.efs_size = 0;
  out.efs_flags = EFS_UNLOAD_REMOVE;
  is("unload with REMOVE", efs_unload(&out), EFS_API_SUCCESS);
  is("is done", efs_wait(&out, -1), EFS_API_SUCCESS);
  is("is gone", size_of(path(mount, "out")), -1);
  struct efs_iocb none = EFS_IOCB_INIT(NULL, "nosuch", 0, 0);
  is("unload of nothing", efs_unload(&none), EFS_API_SUCCESS);
  is("is refused", efs_wait(&none, -1), EFS_API_ENOSUCHPATH);
  is("load of nothing", efs_load(&none), EFS_API_SUCCESS);
  is("is refused", efs_wait(&none, -1), EFS_API_ENOSUCHPATH);

  /* cancel: the job file lets 4 MB/s through */
  put_megabytes(path(root, "slow"), 60);
  struct efs_iocb slow = EFS_IOCB_INIT(NULL, "slow", 0, 0),
                  next = EFS_IOCB_INIT(NULL, "api1", 0, 0);
  is("slow load", efs_load(&slow), EFS_API_SUCCESS);
  while ((code = efs_status(&slow)) == EFS_API_ETASKPENDING) {
    usleep(1000);
  }
  is("runs", code, EFS_API_ETASKINPROGRESS);
  is("a wait that ends before", efs_wait(&slow, 1), EFS_API_ETASKINPROGRESS);
  is("the next one", efs_load(&next), EFS_API_SUCCESS);
  is("waits", efs_status(&next), EFS_API_ETASKPENDING);
  is("cancel", efs_cancel(&slow), EFS_API_SUCCESS);
  is("is cancelled", efs_wait(&slow, -1), EFS_API_ECANCELED);
  is("nothing is there", size_of(path(mount, "slow")), -1);
  is("the next one ends", efs_wait(&next, -1), EFS_API_SUCCESS);
  unlink(path(root, "slow"));

  /* bad arguments */
  struct efs_iocb empty = EFS_IOCB_INIT(NULL, NULL, 0, 0);
  is("no path", efs_load(&empty), EFS_API_EINVAL);
  is("no block", efs_load(NULL), EFS_API_EINVAL);
  is("no block", efs_unload(NULL), EFS_API_EINVAL);
  is("no block", efs_status(NULL), EFS_API_ENOSUCHTASK);
  is("no task", efs_wait(&empty, 0), EFS_API_ENOSUCHTASK);
  is("no task", efs_cancel(&empty), EFS_API_ENOSUCHTASK);
  empty.efs_tid = 1 << 30;
  is("an unknown task", efs_status(&empty), EFS_API_ENOSUCHTASK);
  is("an unknown task", efs_cancel(&empty), EFS_API_ENOSUCHTASK);
  struct efs_iocb unknown = EFS_IOCB_INIT("nosuch:/", "api1", 0, 0);
  is("an unknown backend", efs_load(&unknown), EFS_API_EINVAL);
  is("an unknown backend of an unload", efs_unload(&unknown), EFS_API_EINVAL);
  is("no backend for a move", efs_move(&empty), EFS_API_EINVAL);
  is("a move in one backend", efs_move(&unknown), EFS_API_EINVAL);
  unknown.efs_size = 1;
  is("a move of a part", efs_move(&unknown), EFS_API_EINVAL);
  struct efs_iocb flagged = EFS_IOCB_INIT(NULL, "api1", 0, 0);
  flagged.efs_flags = 1u << 30;
  is("an unknown flag", efs_load(&flagged), EFS_API_EINVAL);
  is("an unknown flag", efs_unload(&flagged), EFS_API_EINVAL);
  flagged.efs_flags = EFS_UNLOAD_AS_IS;
  is("a flag of unload", efs_load(&flagged), EFS_API_EINVAL);
  flagged.efs_flags = EFS_LOAD_REPLACE;
  is("a flag of load", efs_unload(&flagged), EFS_API_EINVAL);
  flagged.efs_flags = EFS_LOAD_FORCE;
  is("FORCE without REPLACE", efs_load(&flagged), EFS_API_EINVAL);
  flagged.efs_flags = 0;
  flagged.efs_reserved[3] = 1;
  is("a reserved word", efs_load(&flagged), EFS_API_EINVAL);
  is("a reserved word", efs_unload(&flagged), EFS_API_EINVAL);
  static char longest[3 << 20];
  memset(longest, 'x', sizeof longest - 1);
  struct efs_iocb too_long = EFS_IOCB_INIT(NULL, longest, 0, 0);
  is("a path too long", efs_load(&too_long), EFS_API_EINVAL);
  is("is what is told", strstr(efs_last_error(), "path is too long") != NULL, 1);
  struct efs_iocb long_backend = EFS_IOCB_INIT(longest, "api1", 0, 0);
  is("a backend too long", efs_load(&long_backend), EFS_API_EINVAL);
  struct efs_iocb elsewhere = EFS_IOCB_INIT(NULL, "/etc/passwd", 0, 0);
  is("a path elsewhere", efs_load(&elsewhere), EFS_API_EINVAL);
  for (code = 0; code > -EFS_API_ERRMAX; --code) {
    is("a text", efs_strerror(code) != NULL && *efs_strerror(code) != '\0', 1);
  }
  is("an unknown code", strcmp(efs_strerror(-400), efs_strerror(7)), 0);

  /* no instance */
  setenv("EFS_INSTANCE", "nosuch", 1);
  is("no instance", efs_load(&cb), EFS_API_ECONNFAILED);
  is("its name", strstr(efs_last_error(), "nosuch") != NULL, 1);
  return bad;
}
