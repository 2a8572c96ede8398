/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads an input while the program computes, and unloads a result before the job ends.
 *
 *   cc stage.c -o stage $(pkg-config --cflags --libs efs)
 *   efs run job.yaml -- ./stage input/next.dat result.dat
 *
 * Exit code 0 if both succeed.
 */
#include <efs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const char* what, const char* path, int code) {
  const char* more = efs_last_error();
  fprintf(stderr, "%s %s: %s%s%s\n", what, path, efs_strerror(code), *more ? ": " : "", more);
  return 1;
}

static FILE* on_the_mount(const char* path, const char* mode) {
  const char* mount = getenv("EFS_MOUNT");
  char name[4096];
  snprintf(name, sizeof name, "%s/%s", mount ? mount : ".", path);
  return fopen(name, mode);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s INPUT RESULT (relative to root-dir)\n", argv[0]);
    return 2;
  }
  struct efs_iocb input = EFS_IOCB_INIT(NULL, argv[1], 0, 0);
  struct efs_iocb result = EFS_IOCB_INIT(NULL, argv[2], 0, 0);

  int code = efs_load(&input);
  if (code != EFS_API_SUCCESS) {
    return failed("load", argv[1], code);
  }
  /* ... compute with the inputs that are loaded ... */
  while ((code = efs_wait(&input, 1000)) == EFS_API_ETASKPENDING ||
         code == EFS_API_ETASKINPROGRESS) {
    printf("still loading %s\n", argv[1]);
  }
  if (code != EFS_API_SUCCESS) {
    return failed("load", argv[1], code);
  }

  long bytes = 0;
  int c;
  FILE* in = on_the_mount(argv[1], "r");
  if (!in) {
    return perror(argv[1]), 1;
  }
  while ((c = getc(in)) != EOF) {
    ++bytes;
  }
  fclose(in);

  FILE* out = on_the_mount(argv[2], "w");
  if (!out || fprintf(out, "%ld bytes\n", bytes) < 0 || fclose(out) != 0) {
    return perror(argv[2]), 1;
  }

  /* The file is closed, so the unload exports the whole result. It is in results-dir when
   * efs_wait returns. */
  if ((code = efs_unload(&result)) != EFS_API_SUCCESS) {
    return failed("unload", argv[2], code);
  }
  if ((code = efs_wait(&result, -1)) != EFS_API_SUCCESS) {
    return failed("unload", argv[2], code);
  }
  printf("%s: %ld bytes counted, %s is back\n", argv[1], bytes, argv[2]);
  return 0;
}
