/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of jobs on this node. Each job and restart has a directory that only root can
 * change:
 *   STATE/JOB.RESTART/   job.yaml  the user's job file, readable by the user alone
 *                        result    "running MOUNT", "failed TEXT", "unsaved TEXT",
 *                                  "put-off TEXT", "unasked TEXT"
 *                        flags     words: no-stage-out, in-job, keep=NAME, attach=NAME, directives
 *                        instance  its name, if the instance outlives the job
 *                        node      "0 2": the number of this node, and the job's number of nodes
 *                        checked   all nodes are good
 *                        began     when its prolog began, and the minutes of the time limit
 *                                  that were given back
 *                        receipt   the path of its stage-out's receipt, also before it exists
 *                        boot      the boot id of the machine (/proc/sys/kernel/random/boot_id)
 *   STATE/.lock.UID      the lock for a user's kept instances (keep.c)
 * A file is durable when efs_write_file() returns: a run keeps its state over a power loss. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "efs_plugin.h"

void efs_name_job(const struct efs_site* site, struct efs_job* job) {
  char kept[EFS_PATH];
  efs_format(job->name, EFS_PATH, "slurm-%u.%u-%.32s", job->id, job->restart, site->node);
  efs_format(job->directory, EFS_PATH, "%.400s/%u.%u", site->state, job->id, job->restart);
  efs_format(job->mount, EFS_PATH, "%.400s/%u", site->mount, job->id);
  if (efs_read_file(job->directory, "instance", kept, sizeof kept) == 0 && kept[0] != '\0') {
    efs_copy(job->name, EFS_PATH, kept);
  }
}

int efs_describe_job(spank_t spank, const struct efs_site* site, struct efs_job* job) {
  const char* restart = getenv("SLURM_JOB_RESTART_COUNT"); /* in prolog and epilog */
  uint32_t count = 0;
  memset(job, 0, sizeof *job);
  if (spank_get_item(spank, S_JOB_ID, &job->id) != ESPANK_SUCCESS || job->id == 0) {
    return -1;
  }
  if (spank_get_item(spank, S_JOB_UID, &job->uid) != ESPANK_SUCCESS) {
    return -1;
  }
  if (spank_get_item(spank, S_JOB_GID, &job->gid) != ESPANK_SUCCESS) {
    job->gid = (gid_t)-1;
  }
  if (restart == NULL) {
    restart = getenv("SLURM_RESTART_COUNT");
  }
  if (restart != NULL) {
    job->restart = (uint32_t)strtoul(restart, NULL, 10);
  } else if (spank_get_item(spank, S_SLURM_RESTART_COUNT, &count) == ESPANK_SUCCESS) {
    job->restart = count;
  }
  efs_name_job(site, job);
  return 0;
}

/* Makes a root-owned directory that no other user can write. */
static int make_own(const char* path, mode_t mode) {
  struct stat st;
  if (mkdir(path, mode) != 0 && errno != EEXIST) {
    return -1;
  }
  if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != 0 || (st.st_mode & 022) != 0) {
    return -1;
  }
  return 0;
}

/* All runs of a job share the mount point. A run whose efs was killed leaves a dead mount on it;
 * its buffer is elsewhere, and efs salvage can export it. */
static int make_mount_point(const struct efs_job* job) {
  int tries;
  for (tries = 0; tries < 8; ++tries) {
    if (mkdir(job->mount, 0700) != 0 && errno != EEXIST) {
      return -1;
    }
    if (lchown(job->mount, job->uid, job->gid) == 0) {
      return 0;
    }
    if (errno != ENOTCONN) {
      return -1;
    }
    slurm_info("efs: job %u: the dead mount at %s is removed", job->id, job->mount);
    if (umount2(job->mount, MNT_DETACH | UMOUNT_NOFOLLOW) != 0) {
      return -1; /* below a root-owned directory, so no user can replace it */
    }
  }
  return -1;
}

/* Some file systems cannot sync a directory, and need not. */
static int sync_directory(int at) {
  return fsync(at) == 0 || errno == EINVAL || errno == ENOTSUP || errno == ENOSYS ? 0 : -1;
}

static int sync_state(const struct efs_site* site) {
  const int at = open(site->state, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const int good = at >= 0 && sync_directory(at) == 0;
  if (at >= 0) {
    close(at);
  }
  return good ? 0 : -1;
}

int efs_make_job(const struct efs_site* site, const struct efs_job* job) {
  /* Create the directory for failure reports to the tasks first. */
  if (make_own(site->state, 0755) != 0 || make_own(job->directory, 0711) != 0 ||
      make_own(site->run, 0755) != 0 || make_own(site->mount, 0711) != 0) {
    slurm_error(
        "efs: %s, %s or %s cannot be used: they must be directories that only root can write",
        site->state, site->run, site->mount);
    return -1;
  }
  if (sync_state(site) != 0) {
    slurm_error("efs: %s: cannot be made durable: %s", site->state, strerror(errno));
  }
  return make_mount_point(job);
}

/* Writes a new file in the directory `at`. On failure, the file may be there. */
static int write_new(int at, const char* name, const char* text, mode_t mode, uid_t owner) {
  const size_t length = strlen(text);
  const int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  int good;
  if (fd < 0) {
    return -1;
  }
  good = write(fd, text, length) == (ssize_t)length &&
         (owner == geteuid() || fchown(fd, owner, (gid_t)-1) == 0) && fchmod(fd, mode) == 0 &&
         fsync(fd) == 0;
  close(fd);
  return good ? 0 : -1;
}

int efs_write_file(const char* directory, const char* name, const char* text, mode_t mode,
                   uid_t owner) {
  const int at = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int good;
  char temporary[EFS_PATH];
  if (at < 0) {
    return -1;
  }
  efs_format(temporary, EFS_PATH, ".%s.%d", name, (int)getpid());
  unlinkat(at, temporary, 0);
  good = write_new(at, temporary, text, mode, owner) == 0 && renameat(at, temporary, at, name) == 0;
  if (!good) {
    unlinkat(at, temporary, 0);
  }
  good = good && sync_directory(at) == 0;
  close(at);
  return good ? 0 : -1;
}

int efs_read_file(const char* directory, const char* name, char* text, size_t size) {
  char path[2 * EFS_PATH];
  ssize_t n;
  int fd;
  text[0] = '\0';
  if (efs_format(path, sizeof path, "%s/%s", directory, name) != 0) {
    return -1;
  }
  fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    return -1;
  }
  n = read(fd, text, size - 1);
  close(fd);
  text[n > 0 ? n : 0] = '\0';
  return n >= 0 ? 0 : -1;
}

/* Removes all entries: a plugin of another release, or one that was killed during a write, may
 * have left other names. */
static void remove_entries(const char* path) {
  DIR* directory;
  const struct dirent* entry;
  const int at = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (at < 0) {
    return;
  }
  directory = fdopendir(at);
  if (directory == NULL) {
    close(at);
    return;
  }
  while ((entry = readdir(directory)) != NULL) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
      unlinkat(at, entry->d_name, 0);
    }
  }
  closedir(directory);
}

void efs_remove_run(const struct efs_job* job) {
  remove_entries(job->directory);
  if (rmdir(job->directory) != 0 && errno != ENOENT) {
    slurm_error("efs: job %u: %s cannot be removed: %s", job->id, job->directory, strerror(errno));
  }
}

void efs_remove_job(const struct efs_site* site, const struct efs_job* job) {
  (void)site;
  efs_remove_run(job);
  rmdir(job->mount);
}

int efs_is_there(const struct efs_site* site, const struct efs_job* job) {
  char path[2 * EFS_PATH];
  struct stat st;
  return efs_format(path, sizeof path, "%s/%s", site->run, job->name) == 0 && lstat(path, &st) == 0;
}

void efs_note_boot(const struct efs_job* job) {
  char boot[64];
  if (efs_read_file("/proc/sys/kernel/random", "boot_id", boot, sizeof boot) == 0) {
    efs_write_file(job->directory, "boot", boot, 0644, 0);
  }
}

int efs_node_was_restarted(const struct efs_job* job) {
  char boot[64], then[64];
  return efs_read_file("/proc/sys/kernel/random", "boot_id", boot, sizeof boot) == 0 &&
         efs_read_file(job->directory, "boot", then, sizeof then) == 0 && strcmp(boot, then) != 0;
}

int efs_read_place(const struct efs_job* job, unsigned* node, unsigned* nodes) {
  char text[64];
  return efs_read_file(job->directory, "node", text, sizeof text) == 0 &&
                 sscanf(text, "%u %u", node, nodes) == 2
             ? 0
             : -1;
}

int efs_find_job(const struct efs_site* site, struct efs_job* job) {
  DIR* state = opendir(site->state);
  const struct dirent* entry;
  int found = 0;
  while (state != NULL && (entry = readdir(state)) != NULL) {
    unsigned id, restart;
    char more;
    if (sscanf(entry->d_name, "%u.%u%c", &id, &restart, &more) != 2 || id != job->id) {
      continue;
    }
    if (found && restart < job->restart) {
      continue;
    }
    job->restart = restart;
    found = 1;
  }
  if (state != NULL) {
    closedir(state);
  }
  if (found) {
    efs_name_job(site, job);
  }
  return found;
}
