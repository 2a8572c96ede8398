/* SPDX-License-Identifier: BSD-3-Clause */
/* Running a program: no shell, a small environment, bounded output, and a way to stop it. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "efs_plugin.h"

#define UNKILLABLE 5 /* seconds after SIGKILL */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char* const* small_environment(void) {
  static char conf[EFS_PATH + 16], node[EFS_PATH + 24];
  static const char* words[4];
  int n = 0;
  words[n++] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  if (getenv("SLURM_CONF") != NULL &&
      efs_format(conf, sizeof conf, "SLURM_CONF=%s", getenv("SLURM_CONF")) == 0) {
    words[n++] = conf;
  }
  if (getenv("SLURMD_NODENAME") != NULL &&
      efs_format(node, sizeof node, "SLURMD_NODENAME=%s", getenv("SLURMD_NODENAME")) == 0) {
    words[n++] = node;
  }
  words[n] = NULL;
  return words;
}

static void close_from(int first) {
  int fd;
#ifdef SYS_close_range
  if (syscall(SYS_close_range, (unsigned)first, ~0U, 0U) == 0) {
    return;
  }
#endif
  for (fd = first; fd < 4096; ++fd) {
    close(fd);
  }
}

/* Slurm's daemons are exempt from the OOM killer; programs that run for a job are not. */
static void be_spared_no_more(void) {
  static const char path[] = "/proc/self/oom_score_adj";
  char sign = '0';
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || read(fd, &sign, 1) != 1) {
    sign = '0';
  }
  if (fd >= 0) {
    close(fd);
  }
  if (sign != '-') {
    return;
  }
  fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd >= 0 && write(fd, "0", 1) < 0) {
    sign = '0';
  }
  if (fd >= 0) {
    close(fd);
  }
}

enum { NO_GROUP = 65534 };

/* Slurm may not report the group, and -1 would keep root's. */
static gid_t group_of(const struct efs_job* job) {
  const struct passwd* user = job->gid == (gid_t)-1 ? getpwuid(job->uid) : NULL;
  return job->gid != (gid_t)-1 ? job->gid : user != NULL ? user->pw_gid : NO_GROUP;
}

static int become_user(const struct efs_job* job, gid_t group) {
  return setgroups(0, NULL) == 0 && setresgid(group, group, group) == 0 &&
         setresuid(job->uid, job->uid, job->uid) == 0;
}

/* Between fork and exec: calls only functions that are safe in the child of a threaded process.
 * The PATH is that of `environment`: Slurm's prologs have none. */
static void become_program(const char* const* words, const char* const* environment,
                           const struct efs_job* as, gid_t group, int out) {
  sigset_t none;
  const int null = open("/dev/null", O_RDONLY);
  int fd;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  for (fd = 1; fd < 32; ++fd) {
    signal(fd, SIG_DFL);
  }
  if (null >= 0) {
    dup2(null, 0);
  }
  dup2(out, 1);
  dup2(out, 2);
  close_from(3);
  be_spared_no_more();
  if (as != NULL && geteuid() == 0 && !become_user(as, group)) {
    _exit(126);
  }
  environ = (char**)environment;
  execvp(words[0], (char* const*)words);
  {
    static const char text[] = "cannot run it: ";
    const char* why = errno == ENOENT ? "no such program" : "not permitted, or not a program";
    if (write(2, text, sizeof text - 1) > 0 && write(2, why, strlen(why)) > 0) {
      _exit(127);
    }
  }
  _exit(127);
}

/* Keeps only the whole lines with this begin; returns the number of bytes left. */
static size_t keep_lines(char* text, size_t length, const char* begin) {
  size_t from = 0, kept = 0;
  while (from < length) {
    const char* end = memchr(text + from, '\n', length - from);
    const size_t size = end == NULL ? length - from : (size_t)(end + 1 - (text + from));
    const int stays = end == NULL || strncmp(text + from, begin, strlen(begin)) == 0;
    if (stays) {
      memmove(text + kept, text + from, size);
    }
    if (stays) {
      kept += size;
    }
    from += size;
  }
  return kept;
}

/* A program that runs, and its output. */
struct running {
  pid_t child;
  int status;
  int fd;       /* of the pipe */
  int open_end; /* the pipe may have more */
  size_t length;
  struct efs_outcome* outcome;
};

static void keep_text(struct running* running) {
  char buffer[4096];
  const ssize_t n = read(running->fd, buffer, sizeof buffer);
  struct efs_outcome* outcome = running->outcome;
  const size_t most = sizeof outcome->text - 1;
  size_t room;
  if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
    running->open_end = 0;
  }
  if (n <= 0) {
    return;
  }
  if ((size_t)n > most - running->length && outcome->wanted != NULL) {
    running->length = keep_lines(outcome->text, running->length, outcome->wanted);
  }
  room = most - running->length;
  if ((size_t)n > room) {
    outcome->cut = 1;
  } else {
    room = (size_t)n; /* further output is read and dropped */
  }
  memcpy(outcome->text + running->length, buffer, room);
  running->length += room;
  outcome->text[running->length] = '\0';
}

/* Reads output for one time slice. */
static void read_for_a_slice(struct running* running) {
  struct pollfd line = {running->fd, POLLIN, 0};
  const int slice = 50;
  if (running->open_end && poll(&line, 1, slice) > 0) {
    keep_text(running);
  }
  if (!running->open_end) {
    poll(NULL, 0, slice);
  }
}

/* Reads the last output. Does not wait for the end of the pipe: a daemon that the program
 * started may keep it open. */
static void read_rest(struct running* running) {
  while (running->open_end) {
    struct pollfd line = {running->fd, POLLIN, 0};
    if (poll(&line, 1, 0) <= 0) {
      break;
    }
    keep_text(running);
  }
}

/* Returns 0: it runs; 1: it has ended. */
static int has_ended(pid_t child, int* status) {
  const pid_t waited = waitpid(child, status, WNOHANG);
  if (waited < 0 && errno == EINTR) {
    return 0;
  }
  if (waited < 0) {
    *status = 127 << 8; /* another waiter has reaped it: its result is unknown */
  }
  return waited != 0;
}

/* Starts the program. Returns -1 if that is impossible. */
static int start(const char* const* words, const char* const* environment,
                 struct running* running) {
  const struct efs_job* as = running->outcome->as;
  const gid_t group = as == NULL ? NO_GROUP : group_of(as); /* before the fork: it may take locks */
  int ends[2];
  if (environment == NULL) {
    environment = small_environment();
  }
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return -1;
  }
  running->child = fork();
  if (running->child == 0) {
    become_program(words, environment, as, group, ends[1]);
  }
  close(ends[1]);
  if (running->child < 0) {
    close(ends[0]);
    return -1;
  }
  running->fd = ends[0];
  running->open_end = 1;
  return 0;
}

/* The time limit of a program. */
struct limit {
  int seconds; /* between two calls of `tick`; 0: no limit */
  const struct efs_tick* tick;
  double next, kill_at;
  int stopped; /* SIGTERM was sent */
};

/* Stops the program once its time is over. Returns -1 if it hangs in the kernel. */
static int enforce(struct limit* limit, pid_t child) {
  if (limit->seconds > 0 && !limit->stopped && now() >= limit->next) {
    limit->stopped = limit->tick == NULL || limit->tick->call(limit->tick->with) != 0;
    limit->next = now() + limit->seconds;
    if (limit->stopped) {
      kill(child, SIGTERM);
      limit->kill_at = now() + 10;
    }
  }
  if (limit->stopped && now() >= limit->kill_at) {
    kill(child, SIGKILL);
  }
  return limit->stopped && now() >= limit->kill_at + UNKILLABLE ? -1 : 0;
}

static int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void efs_run(const char* const* words, const char* const* environment, int seconds,
             struct efs_outcome* outcome) {
  efs_run_ticking(words, environment, seconds, NULL, outcome);
}

void efs_run_ticking(const char* const* words, const char* const* environment, int seconds,
                     const struct efs_tick* tick, struct efs_outcome* outcome) {
  struct running running = {.outcome = outcome};
  struct limit limit = {.seconds = seconds, .tick = tick, .next = now() + seconds};
  outcome->code = 127;
  outcome->cut = 0;
  outcome->text[0] = '\0';
  if (start(words, environment, &running) != 0) {
    return;
  }
  do {
    read_for_a_slice(&running);
  } while (!has_ended(running.child, &running.status) && enforce(&limit, running.child) == 0);
  read_rest(&running);
  close(running.fd);
  outcome->code = limit.stopped ? -1 : code_of(running.status);
}

void efs_keep_alone(int end) {
  int null, fd;
  if (end != 3) {
    dup2(end, 3);
  }
  null = open("/dev/null", O_RDWR);
  for (fd = 0; fd < 3; ++fd) {
    if (null < 0 || dup2(null, fd) < 0) {
      close(fd);
    }
  }
  close_from(4);
}

/* Waits for the child until then. Kills it if it has not ended, and returns 0. */
static int await(pid_t child, double until, int* status) {
  int gone = 0;
  while (!gone && now() < until) {
    gone = has_ended(child, status);
    if (!gone) {
      poll(NULL, 0, 5);
    }
  }
  if (!gone) {
    kill(child, SIGKILL);
    poll(NULL, 0, 100);
    has_ended(child, status);
  }
  return gone;
}

/* Reads a short text: the pipe has all of it. */
static void read_answer(int fd, char* text, size_t size) {
  const ssize_t n = read(fd, text, size - 1);
  text[n > 0 ? n : 0] = '\0';
}

int efs_in_child(int (*what)(void*, int), void* with, int seconds, char* text, size_t size) {
  const double until = now() + seconds;
  int ends[2], status = 0, gone = 0;
  pid_t child;
  if (size > 0) {
    text[0] = '\0';
  }
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return -1;
  }
  child = fork();
  if (child == 0) {
    efs_keep_alone(
        ends[1]); /* otherwise a hanging child would keep the job's lock and a task's output open */
    _exit(what(with, 3) & 0xff);
  }
  close(ends[1]);
  if (child > 0) {
    gone = await(child, until, &status);
  }
  if (gone && size > 0) {
    read_answer(ends[0], text, size);
  }
  close(ends[0]);
  return gone && WIFEXITED(status) && WEXITSTATUS(status) < 128 ? WEXITSTATUS(status) : -1;
}
