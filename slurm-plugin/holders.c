/* Who holds a job's mount, and who serves it, as /proc has it. */
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

/* A line of /proc that has it, and not another path that only begins like it. */
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

/* A line of mountinfo: "ID PARENT DEVICE ROOT POINT OPTIONS [master:N ...] - TYPE SOURCE ...". */
static int read_mount(const char* line, char* device, char* point) {
  return sscanf(line, "%*s %*s %63s %*s %511s", device, point) == 2;
}

/* "" where the mount is not before us (any more). */
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

/* Is it the job's mount, and not a copy in its place, which goes when that goes? Other jobs' views
 * have such of all mounts. */
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

/* In a private view the mount has a second place, which an unmount of the first does not see. */
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

/* Its arguments, each with its end; 0: there are none. */
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
  return memmem(line, n, job->name, strlen(job->name) + 1) != NULL; /* an argument that ends so */
}

/* The instances of another cluster on this machine are in a directory of its own, and may have the
 * same names: user, node and number of job. */
static int is_called_with(const char* process, const char* run) {
  static const char option[] = "\0--runtime-dir";
  char line[8192], words[sizeof option + EFS_PATH];
  const size_t n = read_arguments(process, line, sizeof line), length = strlen(run) + 1;
  memcpy(words, option, sizeof option);
  memcpy(words + sizeof option, run, length);
  return memmem(line, n, words, sizeof option + length) != NULL;
}

/* One of efs's own, of this job or another one: it has stores and mounts before it. */
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

/* What a job left behind and Slurm did not find. */
static int is_holder(const char* process, const struct efs_job* job) {
  return job->uid != 0 && !is_daemon(process) && !is_called_for(process, job) &&
         (holds(process, job->mount) || views(process, job));
}

/* Not who merely looks at it, or saves it. */
static int is_own_daemon(const char* process, const struct efs_job* job, const char* run) {
  return is_called_for(process, job) && is_called_with(process, run) && is_daemon(process);
}

static int is_meant(const char* process, const struct efs_job* job, const char* run) {
  struct stat st;
  return stat(process, &st) == 0 && st.st_uid == job->uid &&
         (run != NULL ? is_own_daemon(process, job, run) : is_holder(process, job));
}

/* The job's daemons in this runtime directory or, where it is NULL, who holds the mount. Only the
 * user's own processes; how many there are. A number may go to another process between a look and a
 * signal: what is open does not. */
static int signal_those(const struct efs_job* job, const char* run, int number, const char* told) {
  int count = 0;
  DIR* processes = opendir("/proc");
  const struct dirent* entry;
  char path[EFS_PATH];
  while (processes != NULL && (entry = readdir(processes)) != NULL) {
    const long pid = strtol(entry->d_name, NULL, 10);
    int fd;
    if (pid <= 1) {
      continue;
    }
    efs_format(path, sizeof path, "/proc/%ld", pid);
    if (!is_meant(path, job, run)) {
      continue;
    }
    fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (fd < 0 && errno != ENOSYS && errno != EPERM) {
      continue; /* before Linux 5.3, and where a container forbids it, the number has to do */
    }
    if (fd < 0 || is_meant(path, job, run)) {
      if (told != NULL) {
        slurm_info("efs: job %u: process %ld still holds %s: %s", job->id, pid, job->mount, told);
      }
      if (fd >= 0) {
        syscall(SYS_pidfd_send_signal, fd, number, NULL, 0U);
      } else {
        kill((pid_t)pid, number);
      }
      ++count;
    }
    if (fd >= 0) {
      close(fd);
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
