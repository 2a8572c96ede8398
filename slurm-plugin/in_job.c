/* SPDX-License-Identifier: BSD-3-Clause */
/* --efs-stage-out=in-job: the batch step includes the stage-out, so that the job's state and
 * dependent jobs (afterok) reflect its failure. No hook after a task can change the task's exit
 * code. So the task that Slurm waits for forks before the script starts. The child becomes the
 * script; the task waits for the child, stages out as the user, and ends with the code of both.
 * If any of this fails, the epilog stages out as usual. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "efs_plugin.h"

enum { NOT_SAVED = 125 }; /* as of efs run */

#define UNMOUNT_TIME 10 /* seconds */

static int helper = -1; /* connection to the helper; -1: there is none */

static void say(const char* text) {
  const size_t length = strlen(text);
  if (write(2, text, length) != (ssize_t)length) {
    return;
  }
}

/* Signals for the script may reach only the task, so the task forwards all signals that it can. */
static int wait_for(pid_t script, const sigset_t* signals) {
  int status = 0;
  pid_t gone;
  while ((gone = waitpid(script, &status, WNOHANG)) == 0) {
    siginfo_t info;
    const int number = sigwaitinfo(signals, &info);
    if (number > 0 && number != SIGCHLD) {
      kill(script, number);
    }
  }
  return gone == script ? status
                        : NOT_SAVED << 8; /* another waiter has reaped it: its code is unknown */
}

/* Appends the begin of a step's command line. Returns the number of words. */
static int append_step(const char** words, const char* srun) {
  static const char* const step[] = {
      "--quiet",  "--overlap",  "--mem=0",  "--ntasks-per-node=1", "--kill-on-bad-exit=0",
      "--wait=0", "--mpi=none", "--chdir=/"};
  size_t i;
  int n = 0;
  words[n++] = srun;
  for (i = 0; i < sizeof step / sizeof step[0]; ++i) {
    words[n++] = step[i];
  }
  return n;
}

/* Stages out on the other nodes by a step of the job; user_init tells each step its own
 * instance. Skips an instance that the script has already stopped. */
static int stage_out(const struct efs_site* site, const struct efs_job* job, unsigned nodes) {
  static struct efs_outcome outcome;
  static char script[] =
      "d=${EFS_RUNTIME_DIR:-" EFS_USUAL_RUN
      "}; [ ! -e \"$d/$EFS_INSTANCE\" ] || exec \"$0\" stop \"$@\" \"$EFS_INSTANCE\"";
  char flags[160], name[EFS_KEPT_NAME + 1], instance[EFS_PATH + 16], runtime[EFS_PATH + 24],
      stages[48], id[32], count[32], tasks[32], conf[EFS_PATH + 16], srun[EFS_PATH];
  const char* environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               instance,
                               runtime,
                               stages,
                               conf,
                               NULL};
  const char* words[24];
  int n = 0;
  efs_format(instance, sizeof instance, "EFS_INSTANCE=%s", job->name);
  efs_format(runtime, sizeof runtime, "EFS_RUNTIME_DIR=%s", site->run);
  efs_format(stages, sizeof stages, EFS_STAGING_OUT "=%u", job->id);
  if (getenv("SLURM_CONF") == NULL ||
      efs_format(conf, sizeof conf, "SLURM_CONF=%s", getenv("SLURM_CONF")) != 0) {
    environment[4] = NULL;
  }
  efs_format(id, sizeof id, "--jobid=%u", job->id);
  efs_format(count, sizeof count, "--nodes=%u", nodes);
  efs_format(tasks, sizeof tasks, "--ntasks=%u", nodes);
  if (nodes > 1) {
    efs_slurm_program(site, "srun", srun);
    n += append_step(words, srun);
    words[n++] = id;
    words[n++] = count;
    words[n++] = tasks;
  }
  words[n++] = "/bin/sh";
  words[n++] = "-c";
  words[n++] = script;
  words[n++] = site->efs;
  if (efs_read_file(job->directory, "flags", flags, sizeof flags) == 0 &&
      efs_flag(flags, "keep=", name, sizeof name)) {
    words[n++] = "--keep";
  }
  /* The job may have started again elsewhere while this node was away, and may have exported its
   * results. */
  if (efs_ask_run(site, job->id, job->restart) != EFS_RUN_ENDS) {
    words[n++] = "--merge";
  }
  /* Processes with a copy of the mount in their own mount namespace may live as long as the job,
   * and the job waits for this stop. Such are steps in their views (view=) and the namespace of
   * job_container/tmpfs. */
  words[n++] = "--cut-off";
  words[n] = NULL;
  efs_run(words, environment, 0, &outcome);
  say(outcome.text);
  return outcome.code;
}

/* The task's own view is a second mount. It is busy if the script left a process there; then the
 * stop fails, as without a view. */
static void leave_view(void) {
  struct pollfd line = {helper, POLLIN, 0};
  char word = 'u';
  if (helper < 0 || send(helper, &word, 1, MSG_NOSIGNAL) != 1 ||
      poll(&line, 1, UNMOUNT_TIME * 1000) != 1) {
    return;
  }
  if (recv(helper, &word, 1, 0) < 0) {
    say("efs: the view of the job cannot be left\n");
  }
}

/* Never returns: this process ends as the task. */
static void attend(const struct efs_site* site, const struct efs_job* job, unsigned nodes,
                   pid_t script, const sigset_t* signals) {
  char text[160];
  int status, code;
  signal(SIGCHLD, SIG_DFL);
  prctl(PR_SET_NAME, "efs-in-job");
  if (helper >= 0) {
    helper = dup2(helper, 3);
  }
#ifdef SYS_close_range
  syscall(SYS_close_range, helper < 0 ? 3U : 4U, ~0U, 0U); /* descriptors of slurmstepd */
#endif
  status = wait_for(script, signals);
  leave_view();
  code = stage_out(site, job, nodes);
  efs_format(text, sizeof text,
             "efs: not all results are exported; the rest is in the buffer, and the end of the job "
             "tries again. See: efs status --job %u\n",
             job->id);
  if (code != 0) {
    say(text);
  }
  if (WIFSIGNALED(status)) {
    prctl(PR_SET_DUMPABLE, 0); /* only the script may leave a core file */
    signal(WTERMSIG(status), SIG_DFL);
    sigprocmask(SIG_UNBLOCK, signals, NULL);
    raise(WTERMSIG(status));
    _exit(128 + WTERMSIG(status));
  }
  _exit(WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : code != 0 ? NOT_SAVED : 0);
}

static int is_asked_for(spank_t spank, const struct efs_site* site, struct efs_job* job) {
  char flags[160], result[EFS_TEXT];
  uint32_t step = 0;
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step != SLURM_BATCH_SCRIPT) {
    return 0;
  }
  if (efs_describe_job(spank, site, job) != 0 || !efs_find_job(site, job)) {
    return 0;
  }
  if (efs_read_file(job->directory, "flags", flags, sizeof flags) != 0 ||
      !efs_has_word(flags, "in-job")) {
    return 0;
  }
  return efs_read_file(job->directory, "result", result, sizeof result) == 0 &&
         strncmp(result, "running ", 8) == 0;
}

/* Unmounts the view, and then the mount behind it: without propagation from the host, that copy
 * of the mount would remain. */
static int unmount_view(const struct efs_site* site, const struct efs_job* job) {
  if (umount2(site->view, UMOUNT_NOFOLLOW) != 0) {
    return -1;
  }
  umount2(site->mount, MNT_DETACH | UMOUNT_NOFOLLOW);
  umount2(job->mount, MNT_DETACH | UMOUNT_NOFOLLOW);
  return 0;
}

/* A root process in the task's mount namespace. It unmounts the view on request, and always ends
 * with the task. */
static void help(const struct efs_site* site, const struct efs_job* job, int end) {
  sigset_t all;
  char word;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL); /* signals to the job's processes do not concern it */
  efs_keep_alone(end);
  if (chdir("/") != 0) {
    _exit(1);
  }
  prctl(PR_SET_NAME, "efs-view");
  if (recv(3, &word, 1, 0) != 1) {
    _exit(0);
  }
  word = unmount_view(site, job) == 0 ? 'y' : 'n';
  _exit(send(3, &word, 1, MSG_NOSIGNAL) == 1 ? 0 : 1);
}

void efs_prepare_in_job(spank_t spank, const struct efs_site* site) {
  struct efs_job job;
  int ends[2];
  pid_t child;
  if (site->view[0] == '\0' || !is_asked_for(spank, site, &job) ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return;
  }
  child = fork();
  if (child == 0) {
    help(site, &job, ends[1]);
  }
  close(ends[1]);
  if (child > 0) {
    helper = ends[0];
  } else {
    close(ends[0]);
  }
}

int efs_task_init(spank_t spank, const struct efs_site* site) {
  struct efs_job job;
  uint32_t nodes = 1;
  sigset_t signals, before;
  pid_t script;
  char text[32];
  if (!is_asked_for(spank, site, &job)) {
    return 0;
  }
  /* For a batch step Slurm always says 1; the job's environment has the right number. */
  if (spank_getenv(spank, "SLURM_JOB_NUM_NODES", text, sizeof text) == ESPANK_SUCCESS &&
      atoi(text) > 1) {
    nodes = (uint32_t)atoi(text);
  }
  sigfillset(&signals);
  sigprocmask(SIG_BLOCK, &signals, &before);
  script = fork();
  if (script > 0) {
    attend(site, &job, nodes, script, &signals);
  }
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (script < 0) {
    slurm_error("efs: the stage-out cannot be part of the job (%s); it follows the job",
                strerror(errno));
  }
  return 0;
}
