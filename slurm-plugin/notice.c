/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports to people and to other nodes: the job's AdminComment, and a record per node in the
 * site's shared directory, written by the account that owns SHARED.
 *   SHARED/jobs/JOB.RESTART/NODE    one line of JSON: node, job, restart, uid, state, text, time,
 *                                   instance, queue; after the start also receipt, and the last
 *                                   used, capacity, takeovers,
 *                                   changed_files, changed_bytes
 *   SHARED/jobs/.arrays/ARRAY/TASK  the number of the job that is this task
 *   SHARED/jobs/JOB.RESTART/.failed/NODE    the same record, for a node that cannot run the job;
 *                                           the other nodes look for these */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "efs_plugin.h"

#define ANSWER_TIME 30 /* seconds to wait for the shared directory */

static void write_comment(const struct efs_site* site, const struct efs_job* job, const char* text,
                          char* comment, size_t size) {
  char flags[160];
  const int marked =
      efs_read_file(job->directory, "flags", flags, sizeof flags) == 0 &&
      efs_has_word(flags, "directives"); /* the mark stays for other nodes and runs */
  efs_format(comment, size, "AdminComment=%sefs on %s: %.1500s", marked ? EFS_DIRECTIVES "; " : "",
             site->node, text);
  efs_one_line(comment);
}

int efs_comment(const struct efs_site* site, const struct efs_job* job, const char* text) {
  static struct efs_outcome outcome;
  char id[48], comment[EFS_TEXT];
  const char* words[] = {site->scontrol, "update", id, comment, NULL};
  efs_format(id, sizeof id, "JobId=%u", job->id);
  write_comment(site, job, text, comment, sizeof comment);
  efs_run(words, NULL, 30, &outcome);
  if (outcome.code != 0) {
    slurm_info("efs: job %u: no admin comment: %.200s", job->id, outcome.text);
  }
  return outcome.code;
}

void efs_comment_in_accounting(const struct efs_site* site, const struct efs_job* job,
                               const char* text) {
  static struct efs_outcome outcome;
  char sacctmgr[EFS_PATH], id[48], comment[EFS_TEXT];
  const char* words[] = {sacctmgr, "--immediate", "--quiet", "modify", "job", "where",
                         id,       "set",         comment,   NULL};
  efs_slurm_program(site, "sacctmgr", sacctmgr);
  efs_format(id, sizeof id, "jobid=%u", job->id);
  write_comment(site, job, text, comment, sizeof comment);
  efs_run(words, NULL, ANSWER_TIME, &outcome);
  if (outcome.code != 0) {
    slurm_info("efs: job %u: no admin comment in the accounting, either: %.200s", job->id,
               outcome.text);
  }
}

static int job_directory(const struct efs_site* site, const struct efs_job* job, char* path) {
  return efs_format(path, EFS_PATH, "%.400s/jobs/%u.%u", site->shared, job->id, job->restart);
}

struct news {
  const struct efs_site* site;
  const struct efs_job* job;
  const char *state, *line;
};

/* Returns whether the state of one node ends the job on all nodes. 2: the job is not at fault. */
static int is_failure(const char* state) {
  return strcmp(state, "failed") == 0                                       ? 1
         : strcmp(state, "put-off") == 0 || strcmp(state, "cancelled") == 0 ? 2
                                                                            : 0;
}

static int failures_directory(const struct efs_site* site, const struct efs_job* job, char* path) {
  char directory[EFS_PATH];
  return job_directory(site, job, directory) != 0
             ? -1
             : efs_format(path, EFS_PATH, "%s/.failed", directory);
}

/* On the PFS, root may have no rights. */
static int become_owner(const struct efs_site* site, const struct efs_job* job) {
  struct stat st;
  if (stat(site->shared, &st) != 0 || (st.st_mode & 022) != 0 ||
      (job->uid != 0 && st.st_uid == job->uid)) {
    return -1;
  }
  return setgroups(0, NULL) == 0 && setresgid(st.st_gid, st.st_gid, st.st_gid) == 0 &&
                 setresuid(st.st_uid, st.st_uid, st.st_uid) == 0
             ? 0
             : -1;
}

static int make_directory(const char* path) {
  return mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : -1;
}

static int make_job_directory(const struct efs_site* site, const struct efs_job* job, char* path) {
  char jobs[EFS_PATH];
  if (efs_format(jobs, EFS_PATH, "%.400s/jobs", site->shared) != 0 ||
      job_directory(site, job, path) != 0 || make_directory(jobs) != 0) {
    return -1;
  }
  return make_directory(path);
}

/* Runs in a child as the owner of the shared directory, because that directory may hang. */
static int publish_as_owner(void* what, int out) {
  const struct news* news = what;
  const struct efs_site* site = news->site;
  const struct efs_job* job = news->job;
  char directory[EFS_PATH], failures[EFS_PATH];
  (void)out;
  if (become_owner(site, job) != 0) {
    return 1;
  }
  if (failures_directory(site, job, failures) != 0 ||
      make_job_directory(site, job, directory) != 0) {
    return 1;
  }
  if (efs_write_file(directory, site->node, news->line, 0644, geteuid()) != 0) {
    return 1;
  }
  if (is_failure(news->state) == 0) {
    return 0;
  }
  if (make_directory(failures) != 0) {
    return 1;
  }
  return efs_write_file(failures, site->node, news->line, 0644, geteuid()) == 0 ? 0 : 1;
}

struct task_news {
  const struct efs_site* site;
  const struct efs_job* job;
  const char *array, *task;
};

static int publish_task_as_owner(void* what, int out) {
  const struct task_news* news = what;
  char jobs[EFS_PATH], arrays[EFS_PATH], directory[EFS_PATH], id[32];
  (void)out;
  if (become_owner(news->site, news->job) != 0) {
    return 1;
  }
  if (efs_format(jobs, EFS_PATH, "%.400s/jobs", news->site->shared) != 0 ||
      efs_format(arrays, EFS_PATH, "%.420s/.arrays", jobs) != 0 ||
      efs_format(directory, EFS_PATH, "%.440s/%s", arrays, news->array) != 0) {
    return 1;
  }
  if (make_directory(jobs) != 0 || make_directory(arrays) != 0 || make_directory(directory) != 0) {
    return 1;
  }
  efs_format(id, sizeof id, "%u\n", news->job->id);
  return efs_write_file(directory, news->task, id, 0644, geteuid()) == 0 ? 0 : 1;
}

void efs_publish_task(const struct efs_site* site, const struct efs_job* job, const char* array,
                      const char* task) {
  struct task_news news = {site, job, array, task};
  if (site->shared[0] != '\0') {
    efs_in_child(publish_task_as_owner, &news, ANSWER_TIME, NULL, 0);
  }
}

void efs_publish(const struct efs_site* site, const struct efs_job* job, const char* state,
                 const char* text) {
  efs_publish_more(site, job, state, text, "");
}

void efs_publish_more(const struct efs_site* site, const struct efs_job* job, const char* state,
                      const char* text, const char* more) {
  char quoted[EFS_TEXT], queue[2 * EFS_PATH], receipt[2 * EFS_PATH], member[3 * EFS_PATH] = "",
                                                                                line[5 * EFS_TEXT];
  struct news news = {site, job, state, line};
  if (site->shared[0] == '\0') {
    return;
  }
  efs_json_quote(text, quoted, sizeof quoted);
  if (efs_read_file(job->directory, "receipt", receipt, sizeof receipt) == 0 &&
      receipt[0] != '\0') {
    efs_json_quote(receipt, queue, sizeof queue);
    efs_format(member, sizeof member, ",\"receipt\":%s", queue);
  }
  efs_json_quote(site->queue, queue, sizeof queue);
  if (efs_format(line, sizeof line,
                 "{\"node\":\"%s\",\"job\":%u,\"restart\":%u,\"uid\":%u,\"state\":\"%s\",\"text\":%"
                 "s,\"time\":%lld,\"instance\":\"%s\",\"queue\":%s%s%s}\n",
                 site->node, job->id, job->restart, (unsigned)job->uid, state, quoted,
                 (long long)time(NULL), job->name, queue, member, more) != 0) {
    return;
  }
  if (efs_in_child(publish_as_owner, &news, ANSWER_TIME, NULL, 0) != 0) {
    slurm_error(
        "efs: job %u: the state of this node cannot be written to %s: it must belong to root or an "
        "account of the site's, be closed to others, and answer",
        job->id, site->shared);
  }
}

/* Returns is_failure() of a record. 0 also if another user's job had this number before: slurmctld
 * can lose its counter. */
static int failure_in(const char* record, uid_t user) {
  char state[32], uid[32];
  if (efs_json_text(record, "state", state, sizeof state) != 0) {
    return 0;
  }
  if (efs_json_value(record, "uid", uid, sizeof uid) == 0 &&
      strtoul(uid, NULL, 10) != (unsigned long)user) {
    return 0;
  }
  return is_failure(state);
}

/* Prints NODE: TEXT. */
static int print_record(int out, const char* node, const char* record) {
  char said[EFS_TEXT], text[EFS_TEXT];
  if (efs_json_text(record, "text", said, sizeof said) != 0) {
    said[0] = '\0';
  }
  efs_one_line(said);
  efs_format(text, sizeof text, "%.255s: %s", node, said);
  return write(out, text, strlen(text)) < 0 ? -1 : 0;
}

/* Runs in a child for the same reason. Prints NODE: TEXT of a failed node. Each node of the job
 * calls this, so it reads only that one record. */
static int look_for_failure(void* what, int out) {
  const struct news* news = what;
  char path[EFS_PATH], line[5 * EFS_TEXT];
  const struct dirent* entry;
  DIR* directory = failures_directory(news->site, news->job, path) == 0 ? opendir(path) : NULL;
  int found = 0;
  while (found == 0 && directory != NULL && (entry = readdir(directory)) != NULL) {
    if (entry->d_name[0] == '.' || efs_read_file(path, entry->d_name, line, sizeof line) != 0) {
      continue;
    }
    found = failure_in(line, news->job->uid);
    if (found != 0 && print_record(out, entry->d_name, line) != 0) {
      found = -1;
    }
  }
  if (directory != NULL) {
    closedir(directory);
  }
  return found;
}

int efs_find_failure(const struct efs_site* site, const struct efs_job* job, char* text,
                     size_t size) {
  struct news news = {site, job, "", NULL};
  const int found =
      site->shared[0] == '\0' ? 0 : efs_in_child(look_for_failure, &news, ANSWER_TIME, text, size);
  if (found < 0) {
    slurm_info("efs: job %u: %s does not give the state of the other nodes", job->id, site->shared);
  }
  return found < 0 ? 0 : found;
}
