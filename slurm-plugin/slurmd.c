/* SPDX-License-Identifier: BSD-3-Clause */
/* At the start of slurmd: after a crash or a reboot, Slurm does not call the epilogs of the jobs
 * on this node. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "efs_plugin.h"

#define BETWEEN_SWEEPS 10 /* seconds, while slurmctld is away */
#define SWEEPS 60

/* Returns 1 if it must be checked again, because slurmctld does not say whether the job is over. */
static int sweep_job(const struct efs_site* site, uint32_t id, uint32_t restart, uid_t uid) {
  struct efs_job job;
  char result[EFS_TEXT];
  int over;
  memset(&job, 0, sizeof job);
  job.id = id;
  job.restart = restart;
  job.uid = uid;
  efs_name_job(site, &job);
  if (efs_read_file(job.directory, "result", result, sizeof result) == 0 &&
      strncmp(result, "unsaved ", 8) == 0) {
    return 0; /* already reported */
  }
  over = efs_job_is_over(site, id);
  if (over == 0) {
    over = efs_ask_restarts(site, id) > (int)restart; /* a later run of the job is alive */
  }
  if (over != 1) {
    return over < 0;
  }
  /* The job's processes may be in Slurm's grace period (KillWait) and write their last
   * checkpoint. The epilog runs after them. */
  if (efs_job_is_completing(site, id)) {
    return 1;
  }
  slurm_info("efs: job %u left its file system here; it is stopped now", id);
  efs_stop_job(site, &job);
  return 0;
}

static int sweep_all(const struct efs_site* site) {
  DIR* state = opendir(site->state);
  const struct dirent* entry;
  int again = 0;
  while (state != NULL && (entry = readdir(state)) != NULL) {
    unsigned id, restart;
    char more, path[2 * EFS_PATH];
    struct stat st;
    if (sscanf(entry->d_name, "%u.%u%c", &id, &restart, &more) != 2) {
      continue;
    }
    efs_format(path, sizeof path, "%s/%s/job.yaml", site->state, entry->d_name);
    if (lstat(path, &st) != 0) {
      st.st_uid = 0;
    }
    again += sweep_job(site, id, restart, st.st_uid);
  }
  if (state != NULL) {
    closedir(state);
  }
  return again;
}

/* A reconfigured slurmd (which executes itself anew from Slurm 23.11 on) is already listening. A
 * process that keeps that socket open would block the port for the next slurmd. The descriptor
 * numbers stay in use, because a library of slurmd may refer to them. */
static void leave_ports(void) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  DIR* fds = opendir("/proc/self/fd");
  const struct dirent* entry;
  while (null >= 0 && fds != NULL && (entry = readdir(fds)) != NULL) {
    const int fd = atoi(entry->d_name);
    int listens = 0;
    socklen_t size = sizeof listens;
    if (fd > 2 && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens) {
      dup3(null, fd, O_CLOEXEC);
    }
  }
  if (fds != NULL) {
    closedir(fds);
  }
  if (null >= 0) {
    close(null);
  }
}

/* Runs in the background: slurmd must wait neither for a stage-out nor for slurmctld. */
void efs_sweep(const struct efs_site* site) {
  struct stat st;
  pid_t child;
  int tries;
  if (geteuid() != 0 || stat(site->state, &st) != 0 || st.st_uid != 0) {
    return;
  }
  child = fork();
  if (child == 0) {
    if (setsid() < 0 || fork() != 0) {
      _exit(0);
    }
    leave_ports();
    sleep(2); /* slurmd registers first */
    efs_sweep_kept(site);
    efs_review_unsaved(site, 0);
    for (tries = 0; sweep_all(site) > 0 && tries < SWEEPS; ++tries) {
      sleep(BETWEEN_SWEEPS);
    }
    _exit(0);
  }
  if (child > 0) {
    waitpid(child, NULL, 0);
  }
}
