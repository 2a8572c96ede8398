/* SPDX-License-Identifier: BSD-3-Clause */
/* After the job, on every node, as root, once all its steps are over: stages out, unmounts, and
 * removes the job's state. Harmless when called again, or if no efs was started. It always
 * succeeds, because a failing epilog drains the node. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "efs_plugin.h"

#define NOTHING_TO_SAVE 120 /* seconds for a stop without a stage-out */
#define HIDDEN_END 600      /* seconds for the end of an instance that cannot be asked */
#define AFTER_DEADLINE 60   /* seconds that a stop may take beyond the end of its stage-out */

/* The daemons belong to the user, and the user may have stopped them by a signal. A stop would
 * wait for them for ever. */
static void wake_daemons(const struct efs_site* site, const struct efs_job* job) {
  efs_signal_daemons(site, job, SIGCONT);
}

/* If the user has removed the socket, a signal makes the daemons stage out and end, as after efs
 * stop. */
static int end_daemons(const struct efs_site* site, const struct efs_job* job) {
  return efs_signal_daemons(site, job, SIGTERM);
}

static void send_mail(const struct efs_site* site, const struct efs_job* job, const char* text) {
  static struct efs_outcome outcome;
  char id[32], uid[32];
  const char* words[] = {site->mail, id, uid, site->node, text, NULL};
  if (site->mail[0] == '\0') {
    return;
  }
  efs_format(id, sizeof id, "%u", job->id);
  efs_format(uid, sizeof uid, "%u", (unsigned)job->uid);
  efs_run(words, NULL, 60, &outcome);
}

/* Reports missing results in all places. */
static void tell_unsaved(const struct efs_site* site, const struct efs_job* job,
                         const char* result) {
  const char* text = result + strlen("unsaved ");
  int refused;
  slurm_error("efs: job %u: %s", job->id, result);
  efs_write_file(job->directory, "result", result, 0644, 0);
  efs_publish(site, job, "unsaved", text);
  refused = efs_comment(site, job, text) > 0;
  send_mail(site, job, text);
  efs_tell_end(site, job, text, 1);
  if (refused && efs_seconds_left() > 0) {
    efs_comment_in_accounting(site, job, text);
  }
}

/* `verb`: the user's next action on the node: stop again, or salvage. */
static void not_saved(const struct efs_site* site, const struct efs_job* job, const char* text,
                      const char* verb) {
  char result[EFS_TEXT];
  efs_format(result, sizeof result,
             "unsaved results are not exported: %.1500s; still in the buffer of %s; when the cause "
             "is gone, run there: efs %s --job %u",
             text, site->node, verb, job->id);
  efs_one_line(result);
  tell_unsaved(site, job, result);
}

/* Nothing can be recovered: reports this. */
static void lost(const struct efs_site* site, const struct efs_job* job, const char* text) {
  char result[EFS_TEXT];
  efs_format(result, sizeof result,
             "unsaved results are not exported, and nothing is left of them on %s: %.1500s",
             site->node, text);
  efs_one_line(result);
  tell_unsaved(site, job, result);
  efs_remove_job(site, job);
}

/* Returns the errno in the output of `efs --json`; 0 if there is none. Keys are sorted, so it
 * comes first. */
static long code_of(const struct efs_outcome* outcome) {
  const char* document = strstr(outcome->text, "{\"code\":");
  return outcome->code != 0 && document != NULL ? strtol(document + strlen("{\"code\":"), NULL, 10)
                                                : 0;
}

/* Returns whether a retry may help. Busy: the processes that use the mount are killed first.
 * Worker died: its successor has the worker's state. The command itself may also have been
 * killed. */
static int is_passing(long code) {
  static const int codes[] = {EBUSY, ECONNRESET, EPIPE, ECONNREFUSED, ENOENT, EAGAIN};
  size_t i;
  for (i = 0; i < sizeof codes / sizeof codes[0]; ++i) {
    if (code == codes[i]) {
      return 1;
    }
  }
  return 0;
}

/* The parameters of a stop. */
struct stopping {
  int stages_out;
  int keeps;
  int seconds;  /* limit of the stage-out; 0: none */
  int merges;   /* another run of the job, or another job, may have exported results meanwhile */
  int after;    /* seconds for the stop beyond that limit */
  time_t until; /* the end of all tries; 0: none */
};

/* Limits the times to what slurmd allows. */
static void bound(struct stopping* how) {
  const int left = efs_seconds_left(), half = left / 2;
  how->after = !how->stages_out ? 0 : AFTER_DEADLINE;
  if (!how->stages_out) {
    how->seconds = NOTHING_TO_SAVE;
  }
  if (left == EFS_NO_END || (how->seconds > 0 && how->seconds + how->after <= left)) {
    return;
  }
  if (how->after > half) {
    how->after = half;
  }
  how->seconds = left - how->after > 0 ? left - how->after : 1;
}

/* Sends one stop request. */
static void ask_once(const struct efs_site* site, const struct efs_job* job,
                     const struct stopping* how, const char* const* environment,
                     struct efs_outcome* outcome) {
  char deadline[32];
  const char* words[12];
  const long left = how->until == 0 ? 0 : (long)(how->until - time(NULL));
  int n = 0;
  words[n++] = site->efs;
  words[n++] = "stop";
  words[n++] = "--json";
  words[n++] = "--brief";
  words[n++] = "--cut-off"; /* the job is over; another process's copy of the mount must not block
                               the node */
  if (how->merges) {
    words[n++] = "--merge";
  }
  if (!how->stages_out) {
    words[n++] = "--no-stage-out";
  }
  if (how->keeps) {
    words[n++] = "--keep";
  }
  if (how->stages_out && how->seconds > 0) {
    efs_format(deadline, sizeof deadline, "--deadline=%ld",
               left > how->after + 1 ? left - how->after : 1L);
    words[n++] = deadline;
  }
  words[n++] = job->name;
  words[n] = NULL;
  efs_run(words, environment, how->until == 0 ? 0 : left > 0 ? (int)left : 1, outcome);
}

static void ask_to_stop(const struct efs_site* site, const struct efs_job* job,
                        struct stopping* how, const char* const* environment,
                        struct efs_outcome* outcome) {
  int tries;
  bound(how);
  how->until = how->seconds > 0 ? time(NULL) + how->seconds + how->after : 0;
  for (tries = 0; tries < 10; ++tries) {
    wake_daemons(site, job);
    if (tries > 0) {
      efs_kill_holders(job);
    }
    ask_once(site, job, how, environment, outcome);
    if (code_of(outcome) == ENOENT) {
      end_daemons(site, job);
    }
    if ((!is_passing(code_of(outcome)) && outcome->code < 128) || !efs_is_there(site, job) ||
        (how->until != 0 && time(NULL) >= how->until)) {
      return;
    }
    sleep(1);
  }
}

/* Returns whether the instance has stopped, complete, and is kept for another job of the user. A
 * record limits how long. */
static int is_kept(const struct efs_site* site, const struct efs_job* job,
                   const struct efs_outcome* stop, const char* const* environment) {
  char text[EFS_TEXT];
  if (!(stop->code == 0 ? efs_will_be_kept(site, job, environment)
                        : efs_is_kept_now(site, job, environment))) {
    return 0;
  }
  efs_note_kept(site, job);
  efs_format(text, sizeof text, "results are exported, and the files stay on %s as %s", site->node,
             job->name);
  efs_publish(site, job, "kept", text);
  efs_tell_end(site, job, text, 0);
  return 1;
}

/* The result of removing a dead instance. */
enum cleaned { CANNOT_BE_CLEANED, IS_CLEANED, HAD_LOST };

/* Removes a dead instance if its store is not needed: the user has stopped it with --keep, or
 * all results are exported. Also removes an instance that has lost its content, and stores the
 * loss in `text`. An instance that is already gone had nothing left to do. While another process
 * salvages or removes it, the result is unknown. */
static enum cleaned clean(const struct efs_site* site, const struct efs_job* job,
                          const char* const* environment, char* text, size_t size) {
  static struct efs_outcome outcome;
  const char* words[] = {site->efs, "clean", "--json", job->name, NULL};
  char item[2 * EFS_TEXT];
  const time_t until = time(NULL) + NOTHING_TO_SAVE;
  do {
    efs_run(words, environment, NOTHING_TO_SAVE, &outcome);
    if (outcome.code == 0) {
      return efs_json_item(outcome.text, "instances", 0, item, sizeof item) == 0 &&
                     efs_json_text(item, "lost", text, size) == 0
                 ? HAD_LOST
                 : IS_CLEANED;
    }
    if (!efs_is_there(site, job)) {
      return IS_CLEANED;
    }
    if (code_of(&outcome) == EBUSY) {
      sleep(1);
    }
  } while (code_of(&outcome) == EBUSY && time(NULL) < until && efs_seconds_left() != 0);
  return CANNOT_BE_CLEANED;
}

static void say_why(const struct efs_outcome* outcome, char* error, size_t size) {
  if (outcome->code == -1) {
    efs_format(error, size, "efs stop did not end within the site's limit (%s)",
               efs_hook_limit() > 0 ? "stage-out=, or Slurm's PrologEpilogTimeout" : "stage-out=");
  } else if (efs_json_text(outcome->text, "error", error, size) != 0 &&
             efs_json_text(outcome->text, "summary", error, size) != 0) {
    efs_format(error, size, "efs stop failed with %d: %.1500s", outcome->code, outcome->text);
  }
}

/* The state of a job whose records were lost, by power loss or on a full disk: it may or may not
 * have run. */
enum unknown { HOLDS_NOTHING, IS_ALIVE, MAY_HOLD_RESULTS };

/* An interrupted start has no results. An instance that is dead or does not answer may have
 * results. */
static enum unknown look_at_unknown(const struct efs_site* site, const struct efs_job* job,
                                    const char* const* environment) {
  char state[64];
  if (!efs_is_there(site, job)) {
    return HOLDS_NOTHING;
  }
  efs_state_of(site, job, environment, state, sizeof state);
  if (strcmp(state, "planning") == 0 || strcmp(state, "staging-in") == 0 ||
      strcmp(state, "failed") == 0) {
    return HOLDS_NOTHING;
  }
  return strcmp(state, "dead") == 0 || strncmp(state, "in a state", strlen("in a state")) == 0
             ? MAY_HOLD_RESULTS
             : IS_ALIVE;
}

static void leave_unknown(const struct efs_site* site, const struct efs_job* job,
                          const char* const* environment) {
  char text[EFS_TEXT];
  const enum cleaned cleaned = clean(site, job, environment, text, sizeof text);
  if (cleaned == HAD_LOST) {
    lost(site, job, text);
  } else if (cleaned == IS_CLEANED) {
    efs_remove_job(site, job);
  } else {
    not_saved(site, job, "it is not known whether the job ran, and its file system is dead",
              "salvage");
  }
}

/* Returns whether the instance ended before or during the stop. */
static int has_ended(const struct efs_site* site, const struct efs_job* job,
                     const struct efs_outcome* stop) {
  const long code = code_of(stop);
  return (code == ENOENT || code == ESRCH) && !efs_is_there(site, job);
}

static void tell_back(const struct efs_site* site, const struct efs_job* job, const char* text) {
  efs_publish(site, job, "done", text);
  efs_tell_end(site, job, NULL, 0);
  efs_remove_job(site, job);
}

/* Lists new files that match no output rule, as `efs stop` reports them; "" if there are none. */
static void read_unmatched(const struct efs_outcome* stop, char* text, size_t size) {
  char member[2 * EFS_TEXT];
  text[0] = '\0';
  if (efs_json_value(stop->text, "unmatched", member, sizeof member) == 0 &&
      efs_json_text(member, "text", text, size) != 0) {
    text[0] = '\0';
  }
}

/* All results that the rules select are exported: reports the exported and the unmatched files,
 * and the receipt's path. */
static void tell_staged_out(const struct efs_site* site, const struct efs_job* job,
                            const struct efs_outcome* stop) {
  char summary[EFS_TEXT / 4], receipt[EFS_PATH] = "", unmatched[EFS_TEXT / 2], text[EFS_TEXT],
                              line[EFS_TEXT];
  const char* did = efs_json_text(stop->text, "summary", summary, sizeof summary) == 0
                        ? strstr(summary, "stage-out ")
                        : NULL;
  read_unmatched(stop, unmatched, sizeof unmatched);
  efs_json_text(stop->text, "receipt_file", receipt, sizeof receipt);
  efs_format(text, sizeof text, "all results are exported%s%s", unmatched[0] != '\0' ? "; " : "",
             unmatched);
  if (did != NULL) {
    summary[strcspn(summary, "\n")] = '\0';
  }
  efs_format(line, sizeof line, "%s%s%s%s%s", did != NULL ? did : "all results are exported",
             unmatched[0] != '\0' ? "; " : "", unmatched, receipt[0] != '\0' ? "; receipt: " : "",
             receipt);
  efs_publish(site, job, "done", text);
  if (unmatched[0] != '\0') {
    send_mail(site, job, text);
  }
  efs_tell_end(site, job, line, unmatched[0] != '\0');
  efs_remove_job(site, job);
}

/* efs stop found no daemon. */
static void end_dead(const struct efs_site* site, const struct efs_job* job,
                     const struct stopping* how, const struct efs_outcome* stop,
                     const char* const* environment) {
  char text[EFS_TEXT];
  const enum cleaned cleaned = clean(site, job, environment, text, sizeof text);
  if (cleaned == HAD_LOST && how->stages_out) {
    lost(site, job, text);
  } else if (cleaned != CANNOT_BE_CLEANED) {
    tell_back(
        site, job,
        how->stages_out ? "all results are exported" : "nothing was staged out, as asked for");
  } else {
    say_why(stop, text, sizeof text);
    not_saved(site, job, text, "salvage");
  }
}

/* Ends a job that has started. */
static void end_started(const struct efs_site* site, const struct efs_job* job,
                        struct stopping* how, const char* const* environment) {
  static struct efs_outcome outcome;
  char error[EFS_TEXT], image[8];
  efs_publish(site, job, "staging-out", "");
  ask_to_stop(site, job, how, environment, &outcome);
  if (how->keeps && is_kept(site, job, &outcome, environment)) {
    efs_remove_job(site, job);
  } else if (has_ended(site, job, &outcome)) {
    tell_back(site, job,
              "it was stopped in another way; see its receipt"); /* after end_daemons() */
  } else if (outcome.code == 0 && how->stages_out) {
    tell_staged_out(site, job, &outcome);
  } else if (outcome.code == 0) {
    tell_back(site, job, "nothing was staged out, as asked for");
  } else if (code_of(&outcome) == ESRCH) {
    end_dead(site, job, how, &outcome, environment);
  } else {
    say_why(&outcome, error, sizeof error);
    not_saved(site, job, error,
              efs_json_text(outcome.text, "image", image, sizeof image) == 0 ? "salvage" : "stop");
  }
}

/* The instance's directory was removed, so the instance cannot be asked. Makes it end as after
 * efs stop, as far as possible. Returns 0 if there was no such instance: the job has stopped it
 * itself. */
static int end_hidden(const struct efs_site* site, const struct efs_job* job) {
  const time_t until =
      time(NULL) + (site->stage_out > 0 ? site->stage_out + AFTER_DEADLINE : HIDDEN_END);
  const int lives = end_daemons(site, job) > 0;
  char text[EFS_TEXT];
  if (!lives && !efs_is_mounted(job)) {
    return 0;
  }
  while (efs_signal_daemons(site, job, 0) > 0 && time(NULL) < until && efs_seconds_left() != 0) {
    sleep(1);
  }
  if (efs_is_mounted(job)) {
    umount2(job->mount, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW);
  }
  efs_format(
      text, sizeof text,
      "unsaved the directory of %.300s in %.300s on %s was removed while it ran: %s", job->name,
      site->run, site->node,
      lives ? "it was stopped; see its receipt in results-dir"
            : "it is dead, and its buffer may be lost; see stores on disks: efs ls --instances");
  efs_one_line(text);
  tell_unsaved(site, job, text);
  efs_remove_job(site, job);
  return 1;
}

/* Removes the rest of a failed or interrupted start. There are no results to save, and an
 * instance that was kept before stays. */
static void end_unstarted(const struct efs_site* site, const struct efs_job* job, int attaches,
                          const char* const* environment) {
  static struct efs_outcome outcome;
  struct stopping how = {.stages_out = 0}, to_keep = {.stages_out = 1,
                                                      .keeps = 1,
                                                      .seconds = NOTHING_TO_SAVE - AFTER_DEADLINE,
                                                      .merges = 1};
  ask_to_stop(site, job, attaches ? &to_keep : &how, environment, &outcome);
  efs_tell_end(site, job, NULL, 0);
  if (outcome.code == -1) {
    slurm_error("efs: job %u: %s does not stop; slurmd's next start tries again", job->id,
                job->name);
  } else {
    efs_remove_job(site, job);
  }
}

/* Returns whether other jobs may have exported results since. Either the job has started again,
 * on this node or another; or it has ended without this node (its slurmd was away), and another
 * job of the user may have run after it; or slurmctld cannot tell. */
static int is_late(const struct efs_site* site, const struct efs_job* job) {
  return efs_ask_run(site, job->id, job->restart) != EFS_RUN_ENDS;
}

/* Leaves an instance alone if the job did not run or may not have run, and if efs cannot tell
 * whether the instance of its name belongs to this job or to another. */
static void leave_doubtful(const struct efs_site* site, const struct efs_job* job,
                           int may_have_run) {
  if (may_have_run) {
    not_saved(
        site, job,
        "it is not known whether the job ran, and another job of the user locks the kept files",
        "stop");
  } else {
    slurm_error(
        "efs: job %u: another job of the user locks the kept files, so %s cannot be ended; "
        "slurmd's next start tries again",
        job->id, job->name);
  }
}

/* The job's state on this node, as its prolog recorded it. */
struct record {
  char result[EFS_TEXT]; /* "": the prolog did not come to its end */
  int started;
  int attaches;
  enum unknown unknown; /* of a job without a result */
};

/* Reads a file of the job; "" if it is missing. */
static void read_or_nothing(const struct efs_job* job, const char* file, char* text, size_t size) {
  if (efs_read_file(job->directory, file, text, size) != 0) {
    text[0] = '\0';
  }
}

static void read_record(const struct efs_site* site, const struct efs_job* job,
                        const char* const* environment, struct record* record,
                        struct stopping* how) {
  char flags[160], name[EFS_KEPT_NAME + 1];
  read_or_nothing(job, "result", record->result, sizeof record->result);
  read_or_nothing(job, "flags", flags, sizeof flags);
  how->stages_out = !efs_has_word(flags, "no-stage-out");
  how->keeps = efs_flag(flags, "keep=", name, sizeof name);
  record->attaches = efs_flag(flags, "attach=", name, sizeof name);
  record->started =
      strncmp(record->result, "running ", 8) == 0 || strncmp(record->result, "unsaved ", 8) == 0;
  record->unknown = HOLDS_NOTHING;
  if (record->result[0] == '\0') {
    record->unknown = look_at_unknown(site, job, environment);
  }
  how->merges = (record->started || record->unknown == IS_ALIVE) && is_late(site, job);
}

/* Ends a job whose instance started and is not there any more. */
static void end_gone(const struct efs_site* site, const struct efs_job* job,
                     const struct record* record) {
  if (!efs_node_was_restarted(job)) {
    if (!end_hidden(site, job)) {
      tell_back(site, job, "the job has stopped it itself");
    }
    return;
  }
  /* A store on a disk remains, and no instance leads to it. Report this once. */
  if (strncmp(record->result, "running ", 8) == 0) {
    not_saved(
        site, job,
        "the node was restarted: data in memory is lost; see data on its disks: efs ls --instances",
        "salvage");
  } else {
    efs_remove_job(site, job);
  }
}

/* Returns whether the instance of the job's name may not be ended: the job did not start it. Then
 * the job is done with. */
static int leaves_other(const struct efs_site* site, const struct efs_job* job,
                        const struct record* record, int keeps, const char* const* environment) {
  enum efs_life life;
  if (record->started || (!keeps && !record->attaches)) {
    return 0;
  }
  life = efs_whose_life(site, job, environment);
  if (life == EFS_NOT_OWN) {
    efs_remove_job(site,
                   job); /* an instance of that name belongs to another job, or existed before */
  } else if (life != EFS_OWN) {
    leave_doubtful(site, job, record->unknown == IS_ALIVE);
  }
  return life != EFS_OWN;
}

static void end_own(const struct efs_site* site, const struct efs_job* job,
                    const struct record* record, struct stopping* how,
                    const char* const* environment) {
  if (site->view[0] != '\0') {
    efs_kill_holders(job);
  }
  /* If the job ran, there are results. If not, nothing is exported, and only an instance that
   * was already kept stays kept. */
  if (record->unknown == IS_ALIVE) {
    how->keeps = record->attaches || efs_has_kept(site, job);
  }
  if (record->started || record->unknown == IS_ALIVE) {
    end_started(site, job, how, environment);
  } else {
    end_unstarted(site, job, record->attaches, environment);
  }
}

static void stop_locked(const struct efs_site* site, const struct efs_job* job) {
  char runtime[EFS_PATH + 24];
  const char* environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               runtime, NULL};
  struct stopping how = {.stages_out = 1, .seconds = site->stage_out};
  struct record record;
  efs_format(runtime, sizeof runtime, "EFS_RUNTIME_DIR=%s", site->run);
  read_record(site, job, environment, &record, &how);
  if (strncmp(record.result, "unasked ", 8) == 0) {
    efs_remove_job(site, job);
  } else if (record.started && !efs_is_there(site, job)) {
    end_gone(site, job, &record);
  } else if (record.unknown == MAY_HOLD_RESULTS) {
    leave_unknown(site, job, environment);
  } else if (!leaves_other(site, job, &record, how.keeps, environment)) {
    end_own(site, job, &record, &how, environment);
  }
}

/* Returns 0; or -1 if there is no time to wait for the lock's holder. */
static int lock_patiently(int at) {
  int locked;
  if (efs_seconds_left() == EFS_NO_END) {
    return flock(at, LOCK_EX);
  }
  while ((locked = flock(at, LOCK_EX | LOCK_NB)) != 0 && errno == EWOULDBLOCK &&
         efs_seconds_left() > 0) {
    usleep(200000);
  }
  return locked;
}

/* One at a time: the sweep of a restarted slurmd may coincide with the epilog. */
void efs_stop_job(const struct efs_site* site, const struct efs_job* job) {
  struct stat locked, named;
  int at;
  if (site->run[0] == '\0' || site->mount[0] == '\0') {
    return; /* plugstack.conf is wrong: the run directory is unknown */
  }
  at = open(job->directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (at < 0) {
    return;
  }
  if (lock_patiently(at) != 0) {
    slurm_info("efs: job %u: another process is about to end %s; there is no time to wait for it",
               job->id, job->name);
  } else if (fstat(at, &locked) == 0 && lstat(job->directory, &named) == 0 &&
             locked.st_ino == named.st_ino && locked.st_dev == named.st_dev) {
    stop_locked(site, job);
  }
  close(at);
}

int efs_epilog(spank_t spank, const struct efs_site* site) {
  struct efs_job job;
  if (efs_describe_job(spank, site, &job) == 0 && efs_find_job(site, &job)) {
    efs_stop_job(site, &job);
    efs_review_unsaved(site, job.id);
  }
  return 0;
}
