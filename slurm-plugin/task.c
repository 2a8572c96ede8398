/* SPDX-License-Identifier: BSD-3-Clause */
/* In slurmstepd: gives the tasks the paths of their files, or fails them with the reason. A
 * failure in another hook than task_init_privileged would drain the node and let the job
 * succeed. */
#include <sched.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "efs_plugin.h"

enum { MOST_TRIES = 3 };

static int read_result(spank_t spank, const struct efs_site* site, struct efs_job* job,
                       char* result, size_t size) {
  if (efs_describe_job(spank, site, job) != 0 || !efs_find_job(site, job)) {
    return -1;
  }
  return efs_read_file(job->directory, "result", result, size);
}

static void tell_place(spank_t spank, const struct efs_site* site, const struct efs_job* job) {
  char text[2 * EFS_PATH];
  unsigned node, nodes;
  if (efs_read_place(job, &node, &nodes) != 0) {
    return;
  }
  efs_format(text, sizeof text, "%u", node);
  spank_setenv(spank, "EFS_NODE", text, 1);
  efs_format(text, sizeof text, "%u", nodes);
  spank_setenv(spank, "EFS_NODES", text, 1);
  /* efs wrote this file if inputs were partitioned. A job that this job submits must not inherit
   * the variable. */
  if (efs_format(text, sizeof text, "%s/%s/parts", site->run, job->name) == 0 &&
      access(text, R_OK) == 0) {
    spank_setenv(spank, "EFS_PARTS", text, 1);
  } else {
    spank_unsetenv(spank, "EFS_PARTS");
  }
}

/* The batch script's task sets this (in_job.c). */
static int stages_out(spank_t spank, const struct efs_job* job) {
  char value[32], own[32];
  efs_format(own, sizeof own, "%u", job->id);
  return spank_getenv(spank, EFS_STAGING_OUT, value, sizeof value) == ESPANK_SUCCESS &&
         strcmp(value, own) == 0;
}

int efs_user_init(spank_t spank, const struct efs_site* site) {
  struct efs_job job;
  char result[EFS_TEXT], own[32], before[EFS_PATH], private[EFS_PATH];
  const char* mount;
  int is_ours;
  if (read_result(spank, site, &job, result, sizeof result) != 0 ||
      strncmp(result, "running ", 8) != 0) {
    return 0;
  }
  mount = site->view[0] != '\0' ? site->view : result + 8;
  /* Jobs that this job submits inherit the variable: it must not refer to them. */
  if (spank_getenv(spank, "EFS_DIRECTIVES", own, sizeof own) == ESPANK_SUCCESS) {
    efs_format(own, sizeof own, "%u", job.id);
    spank_setenv(spank, "EFS_DIRECTIVES", own, 1);
  }
  /* A value inherited from the script on another node, or from the submitting job, is ours; any
   * other is the user's. */
  is_ours = spank_getenv(spank, "EFS_MOUNT", before, sizeof before) == ESPANK_SUCCESS &&
            spank_getenv(spank, "DW_JOB_PRIVATE", private, sizeof private) == ESPANK_SUCCESS &&
            strcmp(before, private) == 0;
  spank_setenv(spank, "EFS_MOUNT", mount, 1);
  spank_setenv(spank, "DW_JOB_PRIVATE", mount, is_ours);
  spank_setenv(spank, "EFS_INSTANCE", job.name, 1);
  tell_place(spank, site, &job);
  if (!stages_out(spank, &job)) {
    efs_preload(spank, site);
  }
  if (strcmp(site->run, EFS_USUAL_RUN) != 0) {
    spank_setenv(spank, "EFS_RUNTIME_DIR", site->run,
                 1); /* otherwise efs finds the directory by itself */
  }
  return 0;
}

/* Returns whether the path is in `directory` and its name begins with `with`. */
static int is_below(const char* path, const char* directory, const char* with) {
  const size_t length = strlen(directory);
  return length > 0 && strncmp(path, directory, length) == 0 && path[length] == '/' &&
         strncmp(path + length + 1, with, strlen(with)) == 0;
}

/* Drops copies of other jobs' mounts. Without propagation from the host, they would remain after
 * the end of those jobs and block them. */
static void drop_others(const struct efs_site* site, const struct efs_job* job) {
  static char points[64][EFS_PATH];
  char line[4096];
  FILE* mounts = fopen("/proc/self/mountinfo", "re");
  int count = 0;
  while (mounts != NULL && count < 64 && fgets(line, sizeof line, mounts) != NULL) {
    char* point = points[count];
    if (sscanf(line, "%*s %*s %*s %*s %511s", point) == 1 &&
        (is_below(point, site->mount, "") || is_below(point, site->run, "slurm-")) &&
        strcmp(point, job->mount) != 0) {
      ++count;
    }
  }
  if (mounts != NULL) {
    fclose(mounts);
  }
  while (count-- > 0) {
    umount2(points[count], MNT_DETACH | UMOUNT_NOFOLLOW);
  }
}

/* Every job sees its own mount at the same place, and no other job's. Later mounts and unmounts
 * still propagate (slave). A step that `ends` the file system does not enter the view, because
 * the file system lives as long as it is mounted anywhere. */
static int enter_view(const struct efs_site* site, const struct efs_job* job, int ends) {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
    return -1;
  }
  drop_others(site, job);
  if (ends) {
    umount2(job->mount, MNT_DETACH | UMOUNT_NOFOLLOW);
  } else if (mount(job->mount, site->view, NULL, MS_BIND, NULL) != 0) {
    return -1;
  }
  return mount("efs-hidden", site->mount, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV,
               "size=4k,mode=0711");
}

/* Reads the mark of a job with directives (job_submit.lua): "yes" in the job, its number in its
 * steps. */
static int says_directives(spank_t spank, const struct efs_site* site, const struct efs_job* job,
                           int site_is_bad) {
  char value[32], own[32];
  if ((!site->directives && !site_is_bad) ||
      spank_getenv(spank, "EFS_DIRECTIVES", value, sizeof value) != ESPANK_SUCCESS) {
    return 0;
  }
  efs_format(own, sizeof own, "%u", job->id);
  return strcmp(value, "yes") == 0 || strcmp(value, own) == 0;
}

static int is_first_task(spank_t spank) {
  int task = 0;
  return spank_get_item(spank, S_TASK_ID, &task) != ESPANK_SUCCESS || task == 0;
}

/* Requeues the job. Holds it after several requeues, so that it does not cycle for ever. The
 * first task on a node does this. */
static int put_off(spank_t spank, const struct efs_site* site, const struct efs_job* job,
                   const char* where_and_why) {
  static struct efs_outcome outcome;
  char id[32];
  const int held = job->restart >= MOST_TRIES;
  const char* words[] = {site->scontrol, held ? "requeuehold" : "requeue", id, NULL};
  if (!is_first_task(spank)) {
    return -1;
  }
  slurm_error("efs: nothing was staged on %s", where_and_why);
  efs_format(id, sizeof id, "%u", job->id);
  efs_run(words, NULL, 30, &outcome);
  if (outcome.code != 0) {
    slurm_error("efs: the job fails: it cannot be requeued; submit it again");
  } else {
    slurm_error("efs: the job is requeued%s",
                held ? " and held: this was not the first time; tell the administrators" : "");
  }
  return -1;
}

static int is_script(spank_t spank) {
  uint32_t step = 0;
  return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step == SLURM_BATCH_SCRIPT;
}

/* There is no result. The first task on a node looks for the reason, as far as it can be known
 * now. Returns 1 after it has reported the reason. */
static int has_said_why(const struct efs_site* site, struct efs_job* job) {
  char text[EFS_TEXT];
  int can_be_used;
  if (efs_find_failure(site, job, text, sizeof text) == 1) {
    slurm_error("efs: stage-in failed on %s", text);
    return 1;
  }
  if (efs_find_job(site, job)) {
    return 0;
  }
  can_be_used =
      efs_make_job(site, job) == 0 && efs_write_file(job->directory, "result", "", 0644, 0) == 0;
  efs_remove_job(site, job);
  if (!can_be_used) {
    slurm_error(
        "efs: nothing was staged on %s: %s, %s or %s cannot be used there, or is full; tell the "
        "administrators",
        site->node, site->state, site->run, site->mount);
  }
  return !can_be_used;
}

/* The prolog's result is missing. */
static int fail_without_result(spank_t spank, const struct efs_site* site, struct efs_job* job) {
  char text[EFS_TEXT];
  int restarts;
  if (!is_first_task(spank) || has_said_why(site, job)) {
    return -1;
  }
  /* Slurm restarts a job that was requeued during its prolog on the same node without a new
   * prolog, as its first run. */
  restarts = efs_ask_restarts(site, job->id);
  if (restarts > 0) {
    job->restart = (uint32_t)restarts;
    efs_format(text, sizeof text, "%s: Slurm has run no prolog for this run of the job",
               site->node);
    return put_off(spank, site, job, text);
  }
  if (efs_find_job(site, job)) {
    slurm_error(
        "efs: nothing was staged on %s: its prolog did not finish, or could not write below %s; "
        "tell the administrators",
        site->node, site->state);
  } else {
    slurm_error(
        "efs: nothing was staged on %s: its prolog has not run. The site must set "
        "PrologFlags=Alloc,DeferBatch (see spank_efs(8))",
        site->node);
  }
  return -1;
}

/* Fails unless stage-in was successful on the other nodes too. All prologs are over before the
 * first task, so one check is enough. */
static int check_others(spank_t spank, const struct efs_site* site, struct efs_job* job) {
  char text[EFS_TEXT];
  unsigned node, nodes;
  int failure;
  if (efs_read_file(job->directory, "checked", text, sizeof text) == 0) {
    return 0;
  }
  failure = efs_find_failure(site, job, text, sizeof text);
  if (failure == 2) {
    return put_off(spank, site, job, text);
  }
  if (failure == 1) {
    slurm_error("efs: stage-in failed on %s", text);
    return -1;
  }
  efs_write_file(job->directory, "checked", "yes", 0644, 0);
  if (efs_read_place(job, &node, &nodes) == 0 && node == 0 && nodes > 1) {
    efs_give_back_licence(site, job);
  }
  return 0;
}

/* The prolog left no result: either the job has no file system, or the prolog failed. */
static int init_without_result(spank_t spank, const struct efs_site* site, struct efs_job* job,
                               int site_is_bad) {
  if (!efs_is_wanted() && !says_directives(spank, site, job, site_is_bad)) {
    return 0;
  }
  if (site_is_bad) {
    slurm_error(
        "efs: nothing was staged on %s: plugstack.conf there has a bad value; tell the "
        "administrators (see spank_efs(8))",
        site->node);
    return -1;
  }
  return fail_without_result(spank, site, job);
}

/* Stage-in was successful on all nodes. */
static int show(spank_t spank, const struct efs_site* site, const struct efs_job* job) {
  if (is_script(spank)) {
    efs_give_back(site, job);
  }
  if (site->view[0] != '\0' && enter_view(site, job, stages_out(spank, job)) != 0) {
    slurm_error("efs: %s cannot be shown at %s; the directory must be there on every node",
                job->mount, site->view);
    return -1;
  }
  efs_prepare_in_job(spank, site);
  return 0;
}

int efs_task_init_privileged(spank_t spank, const struct efs_site* site, int site_is_bad) {
  struct efs_job job = {0};
  char result[EFS_TEXT], text[EFS_TEXT];
  int failed;
  if (read_result(spank, site, &job, result, sizeof result) != 0) {
    return init_without_result(spank, site, &job, site_is_bad);
  }
  if (strncmp(result, "failed ", 7) == 0) {
    slurm_error("efs: stage-in failed on %s: %s", site->node, result + 7);
    return -1;
  }
  if (strncmp(result, "put-off ", 8) == 0 || strncmp(result, "unasked ", 8) == 0) {
    if (result[0] == 'u' && !says_directives(spank, site, &job, site_is_bad)) {
      return 0;
    }
    efs_format(text, sizeof text, "%s: %s", site->node, result + strcspn(result, " ") + 1);
    return put_off(spank, site, &job, text);
  }
  failed = check_others(spank, site, &job);
  return failed != 0 ? failed : show(spank, site, &job);
}
