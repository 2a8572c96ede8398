/* SPDX-License-Identifier: BSD-3-Clause */
/* Reviews runs whose results were missing. Since then a user may have stopped the file system
 * again, salvaged its store, or discarded it. The plugin is not notified of this, so it checks
 * at the end of each job of efs on the node, and when slurmd starts. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "efs_plugin.h"

#define ANSWER_TIME                                                                              \
  5 /* seconds to wait for results-dir and for the instance: users can make either hang, and the \
       node waits */
#define UNANSWERED 2 /* unanswered queries per review */
#define TO_WRITE 40  /* seconds to write to the accounting */
#define HEAD 8192    /* bytes at the begin of a receipt, which contain its verdict */

struct question {
  const struct efs_job* job;
  const char* receipt;
  time_t since; /* an older receipt belongs to another job */
};

/* Returns 1: all results are exported; 0: not all are, or there is no such receipt; 2: unknown.
 * In JSON, such quotes cannot occur inside a string. */
static int verdict_of(const char* receipt, time_t since) {
  static char head[HEAD + 1];
  struct stat st;
  ssize_t n;
  const int fd = open(receipt, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    return errno == ENOENT ? 0 : 2;
  }
  n = fstat(fd, &st) == 0 ? read(fd, head, HEAD) : -1;
  close(fd);
  if (n < 0) {
    return 2;
  }
  head[n] = '\0';
  return st.st_mtime >= since && strstr(head, ", \"verdict\": \"complete\"") != NULL;
}

/* Runs as the user, because the file belongs to the user. A salvage writes its own receipt
 * beside that of the stop. */
static int read_verdict(void* what, int out) {
  const struct question* question = what;
  const struct passwd* user = getpwuid(question->job->uid);
  static const char stop[] = "/efs-receipt-", salvage[] = "/efs-salvage-";
  static char other[2 * EFS_PATH];
  char* leaf;
  int verdict;
  (void)out;
  if (user == NULL || initgroups(user->pw_name, user->pw_gid) != 0 ||
      setresgid(user->pw_gid, user->pw_gid, user->pw_gid) != 0 ||
      setresuid(question->job->uid, question->job->uid, question->job->uid) != 0) {
    return 2;
  }
  verdict = verdict_of(question->receipt, question->since);
  if (verdict != 0 || efs_copy(other, sizeof other, question->receipt) != 0) {
    return verdict;
  }
  leaf = strrchr(other, '/');
  if (leaf == NULL || strncmp(leaf, stop, sizeof stop - 1) != 0) {
    return verdict;
  }
  memcpy(leaf, salvage, sizeof salvage - 1);
  return verdict_of(other, question->since);
}

static time_t when_it_ended(const struct efs_job* job) {
  char path[2 * EFS_PATH];
  struct stat st;
  return efs_format(path, sizeof path, "%s/result", job->directory) == 0 && stat(path, &st) == 0
             ? st.st_mtime
             : 0;
}

/* Returns 1: yes; 0: no; -1: unknown now. */
static int is_back(const struct efs_job* job) {
  char receipt[2 * EFS_PATH];
  struct question question = {job, receipt, when_it_ended(job)};
  const int is_known = efs_read_file(job->directory, "receipt", receipt, sizeof receipt) == 0;
  const int back = is_known ? efs_in_child(read_verdict, &question, ANSWER_TIME, NULL, 0) : -1;
  return back == 0 || back == 1 ? back : -1;
}

static void settle(const struct efs_site* site, const struct efs_job* job, const char* state,
                   const char* text) {
  slurm_info("efs: job %u: %s", job->id, text);
  efs_publish(site, job, state, text);
  if (efs_seconds_left() > TO_WRITE) {
    efs_comment_in_accounting(site, job, text); /* it still says that results are missing */
  }
  efs_remove_run(job); /* a newer run uses the mount point too */
}

/* Checks the present state of the file system. While it has data that exists nowhere else,
 * nothing changes. Returns 0 if the state is unknown because a PFS hangs. */
static int review(const struct efs_site* site, const struct efs_job* job) {
  static struct efs_outcome outcome;
  char runtime[EFS_PATH + 24], left[32] = "", text[EFS_TEXT];
  const char* environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               runtime, NULL};
  const char* words[] = {site->efs, "status", "--json", job->name, NULL};
  int back;
  efs_format(runtime, sizeof runtime, "EFS_RUNTIME_DIR=%s", site->run);
  if (efs_is_there(site, job)) {
    efs_run(words, environment, ANSWER_TIME, &outcome);
    efs_json_text(outcome.text, "left", left, sizeof left);
    if (strcmp(left, "salvaged") != 0 && strcmp(left, "kept") != 0) {
      return outcome.code != -1;
    }
    settle(site, job, "done",
           left[0] == 's' ? "all results are exported, by a later efs salvage"
                          : "all results are exported, by a later efs stop");
    return 1;
  }
  if (efs_node_was_restarted(job)) {
    return 1; /* it may have a store on a disk */
  }
  back = is_back(job);
  if (back == 1) {
    settle(site, job, "done", "all results are exported, by a later efs stop");
  }
  if (back != 0) {
    return back == 1;
  }
  efs_format(text, sizeof text,
             "results that were not exported were discarded on %s: its buffer was removed",
             site->node);
  settle(site, job, "given-up", text);
  return 1;
}

static int review_locked(const struct efs_site* site, uint32_t id, uint32_t restart) {
  struct efs_job job;
  char result[EFS_TEXT];
  struct stat st;
  int at, has_owner, known = 1;
  memset(&job, 0, sizeof job);
  job.id = id;
  job.restart = restart;
  efs_name_job(site, &job);
  at = open(job.directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (at < 0) {
    return 1;
  }
  has_owner = fstatat(at, "job.yaml", &st, AT_SYMLINK_NOFOLLOW) == 0;
  if (has_owner) {
    job.uid = st.st_uid;
  }
  if (has_owner && flock(at, LOCK_EX | LOCK_NB) == 0 &&
      efs_read_file(job.directory, "result", result, sizeof result) == 0 &&
      strncmp(result, "unsaved ", strlen("unsaved ")) == 0) {
    known = review(site, &job);
  }
  close(at);
  return known;
}

void efs_review_unsaved(const struct efs_site* site, uint32_t but) {
  DIR* state = site->run[0] == '\0' ? NULL : opendir(site->state);
  const struct dirent* entry;
  int unanswered = 0;
  while (unanswered < UNANSWERED && efs_seconds_left() > 4 * ANSWER_TIME && state != NULL &&
         (entry = readdir(state)) != NULL) {
    unsigned id, restart;
    char more;
    if (sscanf(entry->d_name, "%u.%u%c", &id, &restart, &more) != 2 || id == but) {
      continue;
    }
    if (!review_locked(site, id, restart)) {
      ++unanswered;
    }
  }
  if (state != NULL) {
    closedir(state);
  }
}
