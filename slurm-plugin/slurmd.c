/* When slurmd starts: after a crash or a reboot nobody calls the epilog of the jobs that were here. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "efs_plugin.h"

static void sweep_job(const struct efs_site *site, uint32_t id, uint32_t restart, uid_t uid) {
  struct efs_job job;
  char result[EFS_TEXT];
  memset(&job, 0, sizeof job);
  job.id = id;
  job.restart = restart;
  job.uid = uid;
  efs_name_job(site, &job);
  if (efs_read_file(job.directory, "result", result, sizeof result) == 0 && strncmp(result, "unsaved ", 8) == 0) return; /* somebody has been told */
  if (!efs_job_is_over(site, id)) return;
  slurm_info("efs: job %u left its file system here; it is stopped now", id);
  efs_stop_job(site, &job);
}

static void sweep_all(const struct efs_site *site) {
  DIR *state = opendir(site->state);
  const struct dirent *entry;
  while (state != NULL && (entry = readdir(state)) != NULL) {
    unsigned id, restart;
    char more, path[2 * EFS_PATH];
    struct stat st;
    if (sscanf(entry->d_name, "%u.%u%c", &id, &restart, &more) != 2) continue;
    efs_format(path, sizeof path, "%s/%s/job.yaml", site->state, entry->d_name);
    if (lstat(path, &st) != 0) st.st_uid = 0;
    sweep_job(site, id, restart, st.st_uid);
  }
  if (state != NULL) closedir(state);
}

/* In the background: slurmd must not wait for a stage-out, nor for slurmctld. */
void efs_sweep(const struct efs_site *site) {
  struct stat st;
  pid_t child;
  if (geteuid() != 0 || stat(site->state, &st) != 0 || st.st_uid != 0) return;
  child = fork();
  if (child == 0) {
    if (setsid() < 0 || fork() != 0) _exit(0);
    sleep(2); /* slurmd registers first */
    sweep_all(site);
    efs_sweep_kept(site);
    _exit(0);
  }
  if (child > 0) waitpid(child, NULL, 0);
}
