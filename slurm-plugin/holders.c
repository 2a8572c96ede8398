/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds in /proc the processes that use a job's mount, and the daemons that serve it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "efs_plugin.h"

static int leads_below(const char* link, const char* mount) {
  char target[EFS_PATH];
  const size_t length = strlen(mount);
  const ssize_t n = readlink(link, target, sizeof target - 1);
  if (n <= 0) {
    return 0;
  }
  target[n] = '\0';
  return strncmp(target, mount, length) == 0 && (target[length] == '\0' || target[length] == '/');
}

/* Returns whether a line of /proc names the mount, and not a longer path. */
static int names(const char* line, const char* mount) {
  const size_t length = strlen(mount);
  const char* p;
  for (p = strstr(line, mount); p != NULL; p = strstr(p + 1, mount)) {
    if (p[length] == '/' || p[length] == '\n' || p[length] == '\0' || p[length] == ' ') {
      return 1;
    }
  }
  return 0;
}

static int maps_below(const char* process, const char* mount) {
  char path[EFS_PATH], line[1024];
  int found = 0;
  FILE* maps;
  efs_format(path, sizeof path, "%s/maps", process);
  maps = fopen(path, "re");
  while (!found && maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    found = names(line, mount);
  }
  if (maps != NULL) {
    fclose(maps);
  }
  return found;
}

static int holds(const char* process, const char* mount) {
  static const char* const links[] = {"cwd", "root", "exe"};
  char path[EFS_PATH];
  const struct dirent* entry;
  DIR* fds;
  size_t i;
  int found = 0;
  for (i = 0; i < 3; ++i) {
    efs_format(path, sizeof path, "%s/%s", process, links[i]);
    if (leads_below(path, mount)) {
      return 1;
    }
  }
  efs_format(path, sizeof path, "%s/fd", process);
  fds = opendir(path);
  while (!found && fds != NULL && (entry = readdir(fds)) != NULL) {
    efs_format(path, sizeof path, "%s/fd/%s", process, entry->d_name);
    found = leads_below(path, mount);
  }
  if (fds != NULL) {
    closedir(fds);
  }
  return found || maps_below(process, mount);
}

/* Parses a line of mountinfo: "ID PARENT DEVICE ROOT POINT OPTIONS [master:N ...] - TYPE SOURCE
 * ...". */
static int read_mount(const char* line, char* device, char* point) {
  return sscanf(line, "%*s %*s %63s %*s %511s", device, point) == 2;
}

/* Finds the mount's device; "" if this process does not see the mount (any more). */
static void find_device(const struct efs_job* job, char* device) {
  char line[4096], one[64], point[EFS_PATH];
  FILE* mounts = fopen("/proc/self/mountinfo", "re");
  device[0] = '\0';
  while (mounts != NULL && fgets(line, sizeof line, mounts) != NULL) {
    if (read_mount(line, one, point) && strcmp(point, job->mount) == 0) {
      efs_copy(device, 64, one);
    }
  }
  if (mounts != NULL) {
    fclose(mounts);
  }
}

/* Returns whether this is another mount of the job's file system, and not a propagated copy of
 * the mount, which goes away with it. The views of other jobs contain copies of all mounts. */
static int is_second_place(const char* line, const struct efs_job* job, const char* ours) {
  char device[64], point[EFS_PATH], source[EFS_PATH + 8];
  const char* type = strstr(line, " - fuse");
  if (type == NULL || !read_mount(line, device, point)) {
    return 0;
  }
  efs_format(source, sizeof source, "%s ", job->name);
  if (strcmp(device, ours) != 0 && strstr(type, source) == NULL) {
    return 0;
  }
  return strcmp(point, job->mount) != 0 || strstr(line, " master:") == NULL;
}

/* In a private view the file system is mounted a second time, and an unmount of the first place
 * does not affect that. */
static int views(const char* process, const struct efs_job* job) {
  char path[EFS_PATH], line[4096], ours[64], theirs[64], device[64];
  ssize_t n, m;
  int found = 0;
  FILE* mounts;
  efs_format(path, sizeof path, "%s/ns/mnt", process);
  n = readlink("/proc/self/ns/mnt", ours, sizeof ours);
  m = readlink(path, theirs, sizeof theirs);
  if (m <= 0 || (n == m && memcmp(ours, theirs, (size_t)n) == 0)) {
    return 0;
  }
  find_device(job, device);
  efs_format(path, sizeof path, "%s/mountinfo", process);
  mounts = fopen(path, "re");
  while (!found && mounts != NULL && fgets(line, sizeof line, mounts) != NULL) {
    found = is_second_place(line, job, device);
  }
  if (mounts != NULL) {
    fclose(mounts);
  }
  return found;
}

/* Reads the arguments of a process, each with its terminator. Returns 0 if there are none. */
static size_t read_arguments(const char* process, char* line, size_t size) {
  char path[EFS_PATH];
  ssize_t n;
  int fd;
  efs_format(path, sizeof path, "%s/cmdline", process);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  n = fd >= 0 ? read(fd, line, size) : -1;
  if (fd >= 0) {
    close(fd);
  }
  return n > 0 ? (size_t)n : 0;
}

static int is_called_for(const char* process, const struct efs_job* job) {
  char line[8192];
  const size_t n = read_arguments(process, line, sizeof line);
  return memmem(line, n, job->name, strlen(job->name) + 1) != NULL; /* an argument with this end */
}

/* The instances of another cluster on this machine have another directory, and may have the same
 * names: user, node and job number. */
static int is_called_with(const char* process, const char* run) {
  static const char option[] = "\0--runtime-dir";
  char line[8192], words[sizeof option + EFS_PATH];
  const size_t n = read_arguments(process, line, sizeof line), length = strlen(run) + 1;
  memcpy(words, option, sizeof option);
  memcpy(words + sizeof option, run, length);
  return memmem(line, n, words, sizeof option + length) != NULL;
}

/* Returns whether this is a daemon of efs, for this job or another one: it has stores and mounts
 * in view. */
static int is_daemon(const char* process) {
  char path[EFS_PATH], target[EFS_PATH];
  const char* name;
  ssize_t n;
  efs_format(path, sizeof path, "%s/exe", process);
  n = readlink(path, target, sizeof target - 1);
  if (n <= 0) {
    return 0;
  }
  target[n] = '\0';
  name = strrchr(target, '/');
  return name != NULL && (strcmp(name, "/efsd") == 0 || strcmp(name, "/efsd (deleted)") == 0);
}

/* Returns whether this is a process that the job left behind and Slurm did not find. */
static int is_holder(const char* process, const struct efs_job* job) {
  return job->uid != 0 && !is_daemon(process) && !is_called_for(process, job) &&
         (holds(process, job->mount) || views(process, job));
}

/* Excludes processes of efs that only inspect the instance, or salvage it. */
static int is_own_daemon(const char* process, const struct efs_job* job, const char* run) {
  return is_called_for(process, job) && is_called_with(process, run) && is_daemon(process);
}

static int is_meant(const char* process, const struct efs_job* job, const char* run) {
  struct stat st;
  return stat(process, &st) == 0 && st.st_uid == job->uid &&
         (run != NULL ? is_own_daemon(process, job, run) : is_holder(process, job));
}

/* Signals the process if is_meant(). Returns 1 if it did, else 0. A pid may be reused between a
 * check and a signal, but an open pidfd stays valid. */
static int signal_one(const struct efs_job* job, const char* run, long pid, int number,
                      const char* told) {
  char path[EFS_PATH];
  int fd, meant;
  efs_format(path, sizeof path, "/proc/%ld", pid);
  if (!is_meant(path, job, run)) {
    return 0;
  }
  fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
  if (fd < 0 && errno != ENOSYS && errno != EPERM) {
    return 0; /* no pidfd before Linux 5.3, or in some containers: use the pid */
  }
  meant = fd < 0 || is_meant(path, job, run);
  if (meant && told != NULL) {
    slurm_info("efs: job %u: process %ld still holds %s: %s", job->id, pid, job->mount, told);
  }
  if (fd < 0) {
    kill((pid_t)pid, number);
    return 1;
  }
  if (meant) {
    syscall(SYS_pidfd_send_signal, fd, number, NULL, 0U);
  }
  close(fd);
  return meant;
}

/* Signals the job's daemons in this runtime directory; if `run` is NULL, the processes that use
 * the mount. Only the user's own processes. Returns their number. */
static int signal_those(const struct efs_job* job, const char* run, int number, const char* told) {
  int count = 0;
  DIR* processes = opendir("/proc");
  const struct dirent* entry;
  while (processes != NULL && (entry = readdir(processes)) != NULL) {
    const long pid = strtol(entry->d_name, NULL, 10);
    if (pid > 1) {
      count += signal_one(job, run, pid, number, told);
    }
  }
  if (processes != NULL) {
    closedir(processes);
  }
  return count;
}

void efs_kill_holders(const struct efs_job* job) {
  signal_those(job, NULL, SIGKILL, "killed");
}

int efs_signal_daemons(const struct efs_site* site, const struct efs_job* job, int number) {
  return signal_those(job, site->run, number, NULL);
}

int efs_is_mounted(const struct efs_job* job) {
  char device[64];
  find_device(job, device);
  return device[0] != '\0';
}
