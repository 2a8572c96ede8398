/* SPDX-License-Identifier: BSD-3-Clause */
/* While a job runs, no hook of the plugin runs. The job's file system runs as the user and may
 * not write to the shared directory. So a root process sleeps, checks the file system from time
 * to time, and writes its findings to the node's record: the used space, the number of
 * takeovers, and the death of both processes. The process ends when the job's state changes, for
 * example by the epilog. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "efs_plugin.h"

#define WORKER_ENDS 2        /* seconds until a worker without a supervisor ends */
#define LOOKS_FOR_FIGURES 10 /* writes new figures only at every Nth check; other news at once */

static int is_running(const struct efs_job* job) {
  char result[EFS_TEXT];
  return efs_read_file(job->directory, "result", result, sizeof result) == 0 &&
         strncmp(result, "running ", strlen("running ")) == 0;
}

/* Does not publish while the epilog runs: the epilog's record is newer. */
static int publish(const struct efs_site* site, const struct efs_job* job, const char* state,
                   const char* text, const char* more) {
  const int at = open(job->directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const int is_ours = at >= 0 && flock(at, LOCK_EX | LOCK_NB) == 0 && is_running(job);
  if (is_ours) {
    efs_publish_more(site, job, state, text, more);
  }
  if (at >= 0) {
    close(at);
  }
  return is_ours;
}

void efs_read_figures(const char* status, char* more, size_t size) {
  char used[32], capacity[32], takeovers[32], files[32], bytes[32], changed[96] = "";
  more[0] = '\0';
  if (efs_json_value(status, "used", used, sizeof used) != 0 ||
      efs_json_value(status, "capacity", capacity, sizeof capacity) != 0) {
    return;
  }
  if (efs_json_value(status, "takeovers", takeovers, sizeof takeovers) != 0) {
    efs_copy(takeovers, sizeof takeovers, "0");
  }
  /* The figures come from a daemon of the user. */
  if (efs_json_value(status, "changed_files", files, sizeof files) == 0 &&
      efs_json_value(status, "changed_bytes", bytes, sizeof bytes) == 0) {
    efs_format(changed, sizeof changed, ",\"changed_files\":%llu,\"changed_bytes\":%llu",
               strtoull(files, NULL, 10), strtoull(bytes, NULL, 10));
  }
  efs_format(more, size, ",\"used\":%llu,\"capacity\":%llu,\"takeovers\":%llu%s",
             strtoull(used, NULL, 10), strtoull(capacity, NULL, 10), strtoull(takeovers, NULL, 10),
             changed);
}

struct seen {
  char figures[EFS_FIGURES];
  int supervisor; /* readable when the supervisor ends; -1: none to wait for */
  unsigned long long takeovers;
  int looks;
};

/* The pid comes from a daemon of the user, so it is used only for waiting. */
static void wait_for_supervisor(const char* status, struct seen* seen) {
  char number[32];
  if (seen->supervisor >= 0 ||
      efs_json_value(status, "supervisor_pid", number, sizeof number) != 0 || atoi(number) <= 1) {
    return;
  }
  seen->supervisor = (int)syscall(SYS_pidfd_open, (pid_t)atoi(number), 0);
}

/* Returns 0 if there is nothing left to watch. */
static int look(const struct efs_site* site, const struct efs_job* job, struct seen* seen) {
  static struct efs_outcome outcome;
  char runtime[EFS_PATH + 24], state[64], figures[EFS_FIGURES], takeovers[32] = "0", text[EFS_TEXT];
  const char* environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               runtime, NULL};
  const char* words[] = {site->efs, "status", "--json", job->name, NULL};
  int is_new;
  if (!efs_is_there(site, job)) {
    return 0;
  }
  efs_format(runtime, sizeof runtime, "EFS_RUNTIME_DIR=%s", site->run);
  efs_run(words, environment, 60, &outcome);
  if (efs_json_text(outcome.text, "state", state, sizeof state) != 0) {
    return 1;
  }
  if (strcmp(state, "dead") == 0 && efs_is_there(site, job)) {
    efs_format(text, sizeof text,
               "both processes of the file system died; the results are still on %s. Run there: "
               "efs salvage --job %u",
               site->node, job->id);
    publish(site, job, "dead", text, "");
    return 0;
  }
  wait_for_supervisor(outcome.text, seen);
  efs_read_figures(outcome.text, figures, sizeof figures);
  efs_json_value(outcome.text, "takeovers", takeovers, sizeof takeovers);
  is_new = strtoull(takeovers, NULL, 10) != seen->takeovers ||
           (seen->looks++ % LOOKS_FOR_FIGURES == 0 && strcmp(figures, seen->figures) != 0);
  if (!is_new || figures[0] == '\0') {
    return 1;
  }
  seen->takeovers = strtoull(takeovers, NULL, 10);
  efs_copy(seen->figures, sizeof seen->figures, figures);
  return publish(site, job, "running", job->mount, figures);
}

/* Runs until the job's state changes. */
static void watch(const struct efs_site* site, const struct efs_job* job, const char* status,
                  int changes) {
  struct seen seen = {.supervisor = -1};
  char events[4096];
  wait_for_supervisor(status, &seen);
  for (;;) {
    struct pollfd lines[] = {{changes, POLLIN, 0}, {seen.supervisor, POLLIN, 0}};
    const int news = poll(lines, 2, site->watch * 1000);
    if (news < 0 || !is_running(job)) {
      return;
    }
    if (lines[0].revents != 0) { /* other files of the plugin changed */
      if (read(changes, events, sizeof events) <= 0) {
        return;
      }
      if (news == 1) {
        continue;
      }
    }
    if (lines[1].revents != 0) {
      close(seen.supervisor);
      seen.supervisor = -1;
      sleep(WORKER_ENDS);
    }
    if (!look(site, job, &seen)) {
      return;
    }
  }
}

/* Watches in a process of its own, after one byte to `end`. Never returns. */
static void become_watcher(const struct efs_site* site, const struct efs_job* job,
                           const char* status, int end) {
  const char word = 'y';
  int changes;
  if (setsid() < 0 || fork() != 0) {
    _exit(0);
  }
  efs_keep_alone(end);
  prctl(PR_SET_NAME, "efs-watch");
  changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (changes < 0 || chdir("/") != 0 ||
      inotify_add_watch(changes, job->directory, IN_DELETE_SELF | IN_MOVED_TO | IN_DELETE) < 0) {
    _exit(1);
  }
  if (write(3, &word, 1) != 1) {
    _exit(1); /* slurmd may now end the prolog's processes: this is not one of them */
  }
  close(3);
  if (is_running(job)) {
    watch(site, job, status, changes);
  }
  _exit(0);
}

void efs_watch(const struct efs_site* site, const struct efs_job* job, const char* status) {
  int ends[2];
  char word;
  pid_t child;
  if (site->watch == 0 || site->shared[0] == '\0' || pipe2(ends, O_CLOEXEC) != 0) {
    return;
  }
  child = fork();
  if (child == 0) {
    become_watcher(site, job, status, ends[1]);
  }
  close(ends[1]);
  if (child > 0) {
    waitpid(child, NULL, 0);
  }
  if (read(ends[0], &word, 1) != 1) {
    slurm_info("efs: job %u: nothing watches its file system", job->id);
  }
  close(ends[0]);
}
