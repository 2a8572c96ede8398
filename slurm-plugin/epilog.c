/* After the job, on every node, as root, once all its steps are over: unmount, stage out, tear
 * down. Harmless when called again, or where nothing was started. It succeeds in any case, for an
 * epilog that fails drains the node. */
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
#define HIDDEN_END 600      /* seconds for the end of one that cannot be asked */
#define AFTER_DEADLINE 60   /* seconds that a stop may take beyond the end of its stage-out */

/* They are the user's, who may have stopped them; a stop would wait for them for ever. */
static void wake_daemons(const struct efs_site* site, const struct efs_job* job) {
  efs_signal_daemons(site, job, SIGCONT);
}

/* Where the user has taken the socket away: they stage out and end, as after an efs stop. */
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
  efs_run(words, NULL, 60, NULL, NULL, &outcome);
}

/* That results are not back, to all who may want to know. */
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

/* `verb`: what the user can do on the node: stop it again, or salvage what it left. */
static void not_saved(const struct efs_site* site, const struct efs_job* job, const char* text,
                      const char* verb) {
  char result[EFS_TEXT];
  efs_format(result, sizeof result,
             "unsaved results are not back: %.1500s; still in the buffer of %s; when the cause is "
             "gone, run there: efs %s --job %u",
             text, site->node, verb, job->id);
  efs_one_line(result);
  tell_unsaved(site, job, result);
}

/* There is nothing to go on with: it is told, and that was all. */
static void lost(const struct efs_site* site, const struct efs_job* job, const char* text) {
  char result[EFS_TEXT];
  efs_format(result, sizeof result,
             "unsaved results are not back, and nothing is left of them on %s: %.1500s", site->node,
             text);
  efs_one_line(result);
  tell_unsaved(site, job, result);
  efs_remove_job(site, job);
}

/* The errno in what `efs --json` printed; 0 where there is none. Keys are sorted: it comes first.
 */
static long code_of(const struct efs_outcome* outcome) {
  const char* document = strstr(outcome->text, "{\"code\":");
  return outcome->code != 0 && document != NULL ? strtol(document + strlen("{\"code\":"), NULL, 10)
                                                : 0;
}

/* In use: its holders are killed. The worker died: its successor has what it had. Either way it is
 * worth asking again; and so it is where who asked was killed. */
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

/* How an instance is to be stopped. */
struct stopping {
  int stages_out;
  int keeps;
  int seconds; /* of a stage-out; 0: it takes what it takes */
  int merges;  /* another run of the job, or another job, may have brought out results meanwhile */
  int after;   /* seconds that the stop may take beyond them */
};

/* No more than slurmd leaves. */
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

/* Once. `until`: when all tries have to be over; 0: never. */
static void ask_once(const struct efs_site* site, const struct efs_job* job,
                     const struct stopping* how, time_t until, const char* const* environment,
                     struct efs_outcome* outcome) {
  char deadline[32];
  const char* words[12];
  const long left = until == 0 ? 0 : (long)(until - time(NULL));
  int n = 0;
  words[n++] = site->efs;
  words[n++] = "stop";
  words[n++] = "--json";
  words[n++] = "--brief";
  words[n++] =
      "--cut-off"; /* the job is over; a stranger's copy of the mount must not hold the node */
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
  efs_run(words, environment, until == 0 ? 0 : left > 0 ? (int)left : 1, NULL, NULL, outcome);
}

static void ask_to_stop(const struct efs_site* site, const struct efs_job* job,
                        struct stopping* how, const char* const* environment,
                        struct efs_outcome* outcome) {
  time_t until;
  int tries;
  bound(how);
  until = how->seconds > 0 ? time(NULL) + how->seconds + how->after : 0;
  for (tries = 0; tries < 10; ++tries) {
    wake_daemons(site, job);
    if (tries > 0) {
      efs_kill_holders(job);
    }
    ask_once(site, job, how, until, environment, outcome);
    if (code_of(outcome) == ENOENT) {
      end_daemons(site, job);
    }
    if ((!is_passing(code_of(outcome)) && outcome->code < 128) || !efs_is_there(site, job) ||
        (until != 0 && time(NULL) >= until)) {
      return;
    }
    sleep(1);
  }
}

/* It has stopped, whole, and stays for another job of the user's; for how long, a record says. */
static int is_kept(const struct efs_site* site, const struct efs_job* job,
                   const struct efs_outcome* stop, const char* const* environment) {
  char text[EFS_TEXT];
  if (!(stop->code == 0 ? efs_will_be_kept(site, job, environment)
                        : efs_is_kept_now(site, job, environment))) {
    return 0;
  }
  efs_note_kept(site, job);
  efs_format(text, sizeof text, "results are back, and the files stay on %s as %s", site->node,
             job->name);
  efs_publish(site, job, "kept", text);
  efs_tell_end(site, job, text, 0);
  return 1;
}

/* What could be removed of a dead one. */
enum cleaned { CANNOT_BE_CLEANED, IS_CLEANED, HAD_LOST };

/* It is dead, and what is left of it is of no use: the user has stopped it with --keep, or
 * everything is back; or what it had is gone, in which case `text` says what. What is gone
 * meanwhile had nothing left to do; while somebody brings it out, or removes it, nobody can say. */
static enum cleaned clean(const struct efs_site* site, const struct efs_job* job,
                          const char* const* environment, char* text, size_t size) {
  static struct efs_outcome outcome;
  const char* words[] = {site->efs, "clean", "--json", job->name, NULL};
  char item[2 * EFS_TEXT];
  const time_t until = time(NULL) + NOTHING_TO_SAVE;
  do {
    efs_run(words, environment, NOTHING_TO_SAVE, NULL, NULL, &outcome);
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
    efs_format(error, size, "efs stop did not end within the time that the site gives it (%s)",
               efs_hook_limit() > 0 ? "stage-out=, or Slurm's PrologEpilogTimeout" : "stage-out=");
  } else if (efs_json_text(outcome->text, "error", error, size) != 0 &&
             efs_json_text(outcome->text, "summary", error, size) != 0) {
    efs_format(error, size, "efs stop gave %d: %.1500s", outcome->code, outcome->text);
  }
}

/* Nobody knows whether the job ran: what says so is lost, with the power or on a full disk. */
enum unknown { HOLDS_NOTHING, IS_ALIVE, MAY_HOLD_RESULTS };

/* A start that was cut short has nothing to save; what is dead, or does not say, may have. */
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
    not_saved(site, job,
              "it is not known whether the job ran, and the file system that it had is dead",
              "salvage");
  }
}

/* It ended before the stop, or while that asked. */
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

/* New files that no output rule matches, as `efs stop` names them; "": there are none. */
static void read_unmatched(const struct efs_outcome* stop, char* text, size_t size) {
  char member[2 * EFS_TEXT];
  text[0] = '\0';
  if (efs_json_value(stop->text, "unmatched", member, sizeof member) == 0 &&
      efs_json_text(member, "text", text, size) != 0) {
    text[0] = '\0';
  }
}

/* All that the rules name is back: what there is of it, what there is not, and where that can be
 * read. */
static void tell_staged_out(const struct efs_site* site, const struct efs_job* job,
                            const struct efs_outcome* stop) {
  char summary[EFS_TEXT / 4], receipt[EFS_PATH] = "", unmatched[EFS_TEXT / 2], text[EFS_TEXT],
                              line[EFS_TEXT];
  const char* did = efs_json_text(stop->text, "summary", summary, sizeof summary) == 0
                        ? strstr(summary, "stage-out ")
                        : NULL;
  read_unmatched(stop, unmatched, sizeof unmatched);
  efs_json_text(stop->text, "receipt_file", receipt, sizeof receipt);
  efs_format(text, sizeof text, "all results are back%s%s", unmatched[0] != '\0' ? "; " : "",
             unmatched);
  if (did != NULL) {
    summary[strcspn(summary, "\n")] = '\0';
  }
  efs_format(line, sizeof line, "%s%s%s%s%s", did != NULL ? did : "all results are back",
             unmatched[0] != '\0' ? "; " : "", unmatched, receipt[0] != '\0' ? "; receipt: " : "",
             receipt);
  efs_publish(site, job, "done", text);
  if (unmatched[0] != '\0') {
    send_mail(site, job, text);
  }
  efs_tell_end(site, job, line, unmatched[0] != '\0');
  efs_remove_job(site, job);
}

/* efs stop found nobody to ask. */
static void end_dead(const struct efs_site* site, const struct efs_job* job,
                     const struct stopping* how, const struct efs_outcome* stop,
                     const char* const* environment) {
  char text[EFS_TEXT];
  const enum cleaned cleaned = clean(site, job, environment, text, sizeof text);
  if (cleaned == HAD_LOST && how->stages_out) {
    lost(site, job, text);
  } else if (cleaned != CANNOT_BE_CLEANED) {
    tell_back(site, job,
              how->stages_out ? "all results are back" : "nothing was staged out, as asked for");
  } else {
    say_why(stop, text, sizeof text);
    not_saved(site, job, text, "salvage");
  }
}

/* What a job that has begun ends with. */
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
              "it was stopped in another way; its receipt says what is back"); /* end_daemons() */
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

/* Somebody has taken the instance's directory away: it can be asked nothing, but ends as after an
 * efs stop, as far as it can. 0: there was no such thing, and the job has stopped it itself. */
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
  efs_format(text, sizeof text,
             "unsaved the directory of %.300s in %.300s on %s was removed while it ran: %s",
             job->name, site->run, site->node,
             lives ? "it was ended as by efs stop, and its receipt in results-dir says what is back"
                   : "it is dead, and what was in its buffer may be lost; efs ls --instances shows "
                     "a store that is on a disk");
  efs_one_line(text);
  tell_unsaved(site, job, text);
  efs_remove_job(site, job);
  return 1;
}

/* What a start left that failed, or was cut short: there is nothing to save, and what was kept
 * before stays. */
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

/* Others may have brought out results since: the job has begun again, on this node or elsewhere; or
 * it has ended without this node, as when its slurmd was away, and another job of the user's has
 * come after it; or slurmctld cannot say. */
static int is_late(const struct efs_site* site, const struct efs_job* job) {
  return efs_ask_run(site, job->id, job->restart) != EFS_RUN_ENDS;
}

/* Whether it ran is not known, or it did not; and whether what has its name is its own or another
 * job's nobody can say now. */
static void leave_doubtful(const struct efs_site* site, const struct efs_job* job,
                           int may_have_run) {
  if (may_have_run) {
    not_saved(
        site, job,
        "it is not known whether the job ran, and another job of the user's looks at what is kept",
        "stop");
  } else {
    slurm_error(
        "efs: job %u: another job of the user's looks at what is kept, so %s cannot be ended; "
        "slurmd's next start tries again",
        job->id, job->name);
  }
}

static void stop_locked(const struct efs_site* site, const struct efs_job* job) {
  char runtime[EFS_PATH + 24], result[EFS_TEXT], flags[160], name[EFS_KEPT_NAME + 1];
  const char* environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               runtime, NULL};
  struct stopping how = {.stages_out = 1, .seconds = site->stage_out};
  enum unknown unknown = HOLDS_NOTHING;
  enum efs_life life = EFS_OWN;
  int started, attaches;
  if (efs_read_file(job->directory, "result", result, sizeof result) != 0) {
    result[0] = '\0';
  }
  if (efs_read_file(job->directory, "flags", flags, sizeof flags) != 0) {
    flags[0] = '\0';
  }
  efs_format(runtime, sizeof runtime, "EFS_RUNTIME_DIR=%s", site->run);
  how.stages_out = !efs_has_word(flags, "no-stage-out");
  how.keeps = efs_flag(flags, "keep=", name, sizeof name);
  attaches = efs_flag(flags, "attach=", name, sizeof name);
  started = strncmp(result, "running ", 8) == 0 || strncmp(result, "unsaved ", 8) == 0;
  if (result[0] == '\0') {
    unknown = look_at_unknown(site, job, environment);
  }
  how.merges = (started || unknown == IS_ALIVE) && is_late(site, job);
  if (strncmp(result, "unasked ", 8) == 0) {
    efs_remove_job(site, job);
  } else if (started && !efs_is_there(site, job) && efs_node_was_restarted(job)) {
    /* What it left on a disk is a store that no instance leads to any more. Told once. */
    if (strncmp(result, "running ", 8) == 0) {
      not_saved(site, job,
                "the node was restarted: what was in memory is lost, what is on its disks efs ls "
                "--instances shows",
                "salvage");
    } else {
      efs_remove_job(site, job);
    }
  } else if (started && !efs_is_there(site, job)) {
    if (!end_hidden(site, job)) {
      tell_back(site, job, "the job has stopped it itself");
    }
  } else if (unknown == MAY_HOLD_RESULTS) {
    leave_unknown(site, job, environment);
  } else if (!started && (how.keeps || attaches) &&
             (life = efs_whose_life(site, job, environment)) != EFS_OWN) {
    if (life == EFS_NOT_OWN) {
      efs_remove_job(site, job); /* what may be there is another job's, or was there before */
    } else {
      leave_doubtful(site, job, unknown == IS_ALIVE);
    }
  } else {
    if (site->view[0] != '\0') {
      efs_kill_holders(job);
    }
    /* If its job ran, there are results; if not, nothing is moved, and nothing is to be kept that
     * was not before. */
    if (unknown == IS_ALIVE) {
      how.keeps = attaches || efs_has_kept(site, job);
    }
    if (started || unknown == IS_ALIVE) {
      end_started(site, job, &how, environment);
    } else {
      end_unstarted(site, job, attaches, environment);
    }
  }
}

/* 0, or -1 and there is no time to wait for who has it. */
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

/* One at a time: the sweep of a slurmd that has just come back may meet the epilog. */
void efs_stop_job(const struct efs_site* site, const struct efs_job* job) {
  struct stat locked, named;
  int at;
  if (site->run[0] == '\0' || site->mount[0] == '\0') {
    return; /* plugstack.conf is wrong: nobody knows where it is */
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
