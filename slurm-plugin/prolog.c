/* SPDX-License-Identifier: BSD-3-Clause */
/* Before the job, on every node, as root: starts efs and waits until the inputs are imported. It
 * always succeeds, because a failing prolog drains the node. Errors are recorded, and fail the
 * tasks (task.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "efs_plugin.h"

/* The arguments of efs on this node. They come from root's knowledge of the job, for the
 * patterns of its job file, and never from the job itself. */
struct world {
  unsigned node, nodes;
  char runtime[EFS_PATH + 24], id[32], name_of_node[EFS_PATH + 24], index[32],
      array[EFS_NUMBER + 24], task[EFS_NUMBER + 24], name[EFS_PATH + 24];
  char memory[96]; /* "--memory=500MiB", the job's memory on this node; "": unknown or unlimited */
  const char* words[10];
};

/* The phases until the inputs are imported. */
enum standing { BEGINS, WAITS, MOVES };

/* The last report, in one of the places for reports. */
struct told {
  time_t when;
  enum standing standing;
  char line[256];
};

struct wait {
  const struct efs_site* site;
  const struct efs_job* job;
  const struct world* world;
  time_t asks; /* time of the next query to slurmctld */
  int cancelled, late;
  struct told record, comment;
};

enum { FLAGS_SIZE = 160, BAD_JOB_FILE = 2 }; /* exit code of efs check */

#define BETWEEN_RECORDS 60    /* seconds: each record is a file on the PFS, for each node */
#define RECORDS_PER_SECOND 10 /* of all nodes of a large job together */
#define BETWEEN_COMMENTS 30   /* seconds: each comment is a request to slurmctld, of one node */
#define LONGEST_CHECK 10      /* seconds for the check of the memory, which may be left out */
#define AFTER_CHECK 20        /* seconds that the start keeps behind the check */
#define LONGEST_TELLING 60    /* seconds: a hook with less time left does not report */

/* The number comes from a daemon of the user. */
static long whole(const char* number, long most) {
  const double value = strtod(number, NULL);
  return !(value > 0) ? 0 : value < (double)most ? (long)value : most;
}

static void say_seconds(const char* number, char* text, size_t size) {
  const long seconds = whole(number, 1000000000);
  if (seconds < 60) {
    efs_format(text, size, "about %ld s", seconds);
  } else if (seconds < 3600) {
    efs_format(text, size, "about %ldm%02lds", seconds / 60, seconds % 60);
  } else {
    efs_format(text, size, "about %ldh%02ldm", seconds / 3600, seconds / 60 % 60);
  }
}

/* Describes the queue from `efs status --json`. Returns 1 if the instance waits for its turn. */
static int describe_turn(const char* status, char* line, size_t size) {
  char turn[1024], standing[32], ahead[32] = "some", seconds[32], left[64];
  if (efs_json_value(status, "turn", turn, sizeof turn) != 0 ||
      efs_json_text(turn, "standing", standing, sizeof standing) != 0 ||
      strcmp(standing, "waiting") != 0) {
    return 0;
  }
  efs_json_value(turn, "ahead", ahead, sizeof ahead);
  if (efs_json_value(turn, "wait_seconds", seconds, sizeof seconds) != 0) {
    return efs_format(line, size, "waits to stage in, %s ahead", ahead) == 0;
  }
  say_seconds(seconds, left, sizeof left);
  return efs_format(line, size, "waits to stage in, %s ahead, %s", ahead, left) == 0;
}

/* Describes the transfer. Returns 1 if bytes are moving and the remaining time is known. */
static int describe_bytes(const char* status, char* line, size_t size) {
  const long most = 1000000000000000000 / 100;
  char done[32], total[32], seconds[32], left[64];
  if (efs_json_value(status, "bytes_done", done, sizeof done) != 0 ||
      efs_json_value(status, "bytes_total", total, sizeof total) != 0) {
    return 0;
  }
  if (efs_json_value(status, "eta_seconds", seconds, sizeof seconds) != 0 ||
      whole(total, most) == 0) {
    return 0;
  }
  say_seconds(seconds, left, sizeof left);
  return efs_format(line, size, "staging in, %ld%% moved, %s left",
                    100 * whole(done, most) / whole(total, most), left) == 0;
}

/* Returns whether a new line is due: at once after a change of the phase, else at the earliest
 * `seconds` after the last report. */
static int is_due(struct told* told, enum standing standing, const char* line, unsigned seconds) {
  if (strcmp(line, told->line) == 0 || (told->line[0] != '\0' && told->standing == standing &&
                                        time(NULL) - told->when < (time_t)seconds)) {
    return 0;
  }
  efs_copy(told->line, sizeof told->line, line);
  told->standing = standing;
  told->when = time(NULL);
  return 1;
}

/* A job has only one comment. On several nodes the first node writes it, until a node fails. */
static void comment_progress(const struct wait* wait, const char* line) {
  char comment[320], text[EFS_TEXT];
  if (wait->world->nodes > 1 && efs_find_failure(wait->site, wait->job, text, sizeof text) != 0) {
    return;
  }
  if (wait->world->nodes > 1) {
    efs_format(comment, sizeof comment, "%s (the first of %u nodes; see efs status --job %u)", line,
               wait->world->nodes, wait->job->id);
  }
  efs_comment(wait->site, wait->job, wait->world->nodes > 1 ? comment : line);
}

static void tell_progress(struct wait* wait) {
  static struct efs_outcome outcome;
  const char* words[] = {wait->site->efs, "status", "--json", wait->job->name, NULL};
  char line[256] = "staging in";
  enum standing standing = BEGINS;
  efs_run(words, wait->world->words, 60, &outcome);
  if (describe_turn(outcome.text, line, sizeof line)) {
    standing = WAITS;
  } else if (describe_bytes(outcome.text, line, sizeof line)) {
    standing = MOVES;
  }
  if (is_due(&wait->record, standing, line,
             BETWEEN_RECORDS + wait->world->nodes / RECORDS_PER_SECOND)) {
    efs_publish(wait->site, wait->job, "staging-in", line);
  }
  if (wait->world->node == 0 && is_due(&wait->comment, standing, line, BETWEEN_COMMENTS)) {
    comment_progress(wait, line);
  }
}

/* Runs each second. */
static int tick(void* what) {
  struct wait* wait = what;
  wait->late = efs_seconds_left() == 0;
  if (wait->late) {
    return 1;
  }
  if (time(NULL) < wait->asks) {
    return 0;
  }
  /* Slurm does not notify a prolog of the job's cancellation. */
  wait->cancelled = efs_job_is_over(wait->site, wait->job->id) == 1;
  if (!wait->cancelled && efs_seconds_left() > LONGEST_TELLING) {
    tell_progress(wait);
  }
  wait->asks = time(NULL) + wait->site->poll;
  return wait->cancelled;
}

static void end_as(const struct efs_site* site, const struct efs_job* job, const char* kind,
                   const char* state, const char* text) {
  char result[EFS_TEXT];
  efs_format(result, sizeof result, "%s %.1900s", kind, text);
  efs_one_line(result);
  slurm_error("efs: job %u: %s", job->id, result);
  efs_write_file(job->directory, "result", result, 0644, 0);
  efs_publish(site, job, state, result + strlen(kind) + 1);
  efs_comment(site, job, result);
}

static void fail_job(const struct efs_site* site, const struct efs_job* job, const char* text) {
  end_as(site, job, "failed", "failed", text);
}

/* For failures that are not the job's fault: the job is requeued (task.c). */
static void put_off(const struct efs_site* site, const struct efs_job* job, const char* text) {
  end_as(site, job, "put-off", "put-off", text);
}

/* "SECONDS MINUTES": the begin, since the epoch, and the minutes of the time limit that were
 * given back. */
static void record_began(const struct efs_job* job, long long began, long minutes) {
  char text[64];
  efs_format(text, sizeof text, "%lld %ld", began, minutes);
  efs_write_file(job->directory, "began", text, 0644, 0);
}

/* Only one node gives back minutes. A job without a script has another host: that of its srun or
 * salloc. */
static int is_giver(const struct efs_site* site, const struct efs_job* job, const char* host) {
  unsigned node, nodes;
  const int is_first = efs_read_place(job, &node, &nodes) == 0 && node == 0,
            is_host = strcmp(host, site->node) == 0;
  if (!is_first && !is_host) {
    return 0;
  }
  return efs_has_script(site, job->id) == 0 ? is_first : is_host;
}

void efs_give_back(const struct efs_site* site, const struct efs_job* job) {
  static struct efs_outcome outcome;
  char text[64], id[48], more[64];
  const char* update[] = {site->scontrol, "update", id, more, NULL};
  struct efs_record record;
  long long began, owed;
  long given;
  if (efs_read_file(job->directory, "began", text, sizeof text) != 0 ||
      sscanf(text, "%lld %ld", &began, &given) != 2) {
    return;
  }
  owed = (long long)time(NULL) - began - 60LL * given;
  if (owed < 10) {
    return;
  }
  if (efs_ask_job(site, job->id, &record) != 1 || strcmp(record.limit, "UNLIMITED") == 0 ||
      !is_giver(site, job, record.host)) {
    efs_write_file(job->directory, "began", "", 0644,
                   0); /* the script must not wait for such an answer again */
    return;
  }
  efs_format(id, sizeof id, "JobId=%u", job->id);
  efs_format(more, sizeof more, "TimeLimit=+%lld", (owed + 59) / 60);
  efs_run(update, NULL, 20, &outcome);
  if (outcome.code == 0) {
    record_began(job, began, given + (long)((owed + 59) / 60));
  }
}

static void fail_late(const struct efs_site* site, const struct efs_job* job) {
  char text[EFS_TEXT];
  efs_format(text, sizeof text,
             "the inputs were not imported within the time limit of a prolog (PrologEpilogTimeout, "
             "%u s); tell the administrators",
             efs_hook_limit());
  fail_job(site, job, text);
}

/* Records the path of the receipt, for a later check that all results are exported. */
static void record_receipt(const struct efs_job* job, const char* status) {
  char results[EFS_PATH], receipt[2 * EFS_PATH];
  if (efs_json_text(status, "results_dir", results, sizeof results) != 0 || results[0] != '/' ||
      strlen(results) + 1 == sizeof results) {
    return;
  }
  if (efs_format(receipt, sizeof receipt, "%s/efs-receipt-%s.json", results, job->name) == 0) {
    efs_write_file(job->directory, "receipt", receipt, 0644, 0);
  }
}

/* Records and publishes that the file system of the job runs. `status`: from efs start. */
static void record_running(const struct wait* wait, const char* status) {
  const struct efs_site* site = wait->site;
  const struct efs_job* job = wait->job;
  char result[EFS_TEXT], figures[EFS_FIGURES];
  efs_format(result, sizeof result, "running %s", job->mount);
  efs_write_file(job->directory, "result", result, 0644, 0);
  record_receipt(job, status);
  efs_read_figures(status, figures, sizeof figures);
  efs_publish_more(site, job, "running", job->mount, figures);
  efs_watch(site, job, status);
  efs_give_back(site, job);
  if (wait->comment.line[0] != '\0') {
    comment_progress(wait, "staged in");
  }
  if (wait->world->nodes <= 1) {
    efs_give_back_licence(site, job);
  }
}

/* Puts the job off, or fails it, for an efs start that did not succeed. */
static void record_no_start(const struct wait* wait, const struct efs_outcome* outcome) {
  char error[EFS_TEXT];
  if (wait->cancelled) {
    /* If tasks start all the same, the job was requeued, or a restarted slurmctld took it for
     * pending. */
    end_as(wait->site, wait->job, "put-off", "cancelled",
           "the stage-in was cancelled: the job was over or requeued");
    return;
  }
  if (wait->late) {
    fail_late(wait->site, wait->job);
    return;
  }
  if (efs_json_text(outcome->text, "error", error, sizeof error) != 0) {
    efs_format(error, sizeof error, "efs start failed with %d: %.1500s", outcome->code,
               outcome->text);
  }
  fail_job(wait->site, wait->job, error);
}

static void start(const struct efs_site* site, const struct efs_job* job,
                  const struct world* world) {
  static struct efs_outcome outcome;
  char user[64], number[48], name[EFS_PATH + 16], mount[EFS_PATH + 16], queue[EFS_PATH + 24],
      file[EFS_PATH + 16];
  const char* words[16];
  struct wait wait = {.site = site, .job = job, .world = world, .asks = time(NULL) + site->poll};
  const struct efs_tick asking = {.call = tick, .with = &wait};
  int n = 0;
  words[n++] = site->efs;
  words[n++] = "start";
  words[n++] = "--json";
  efs_format(user, sizeof user, "--user=%u", (unsigned)job->uid);
  words[n++] = user;
  efs_format(name, sizeof name, "--name=%s", job->name);
  words[n++] = name;
  efs_format(mount, sizeof mount, "--mount-dir=%s", job->mount);
  words[n++] = mount;
  words[n++] = "--options=mode=0700"; /* below mount= no other permission protects the files */
  efs_format(number, sizeof number, "%u %u", world->node, world->nodes);
  efs_write_file(job->directory, "node", number, 0644, 0);
  efs_format(number, sizeof number, "--node=%u/%u", world->node, world->nodes);
  words[n++] = number;
  if (site->queue[0] != '\0' &&
      efs_format(queue, sizeof queue, "--interleaving=%s", site->queue) == 0) {
    words[n++] = queue;
  }
  if (world->memory[0] != '\0') {
    words[n++] = world->memory;
  }
  efs_format(file, sizeof file, "%s/job.yaml", job->directory);
  words[n++] = file;
  words[n] = NULL;
  efs_run_ticking(words, world->words, 1, &asking, &outcome);
  if (outcome.code == 0) {
    record_running(&wait, outcome.text);
  } else {
    record_no_start(&wait, &outcome);
  }
}

/* Seconds. 0: the start needs the time that is left. A check that hangs is not killed at once. */
static int seconds_for_check(void) {
  const int left = efs_seconds_left() - AFTER_CHECK;
  return left < 0 ? 0 : left < LONGEST_CHECK ? left : LONGEST_CHECK;
}

/* Checks what sbatch could not know or did not check: a store in memory must not exceed the
 * job's memory on this node. efs derives an undeclared capacity from that memory. Returns 0; or
 * -1 after it has failed the job. */
static int check_memory(const struct efs_site* site, const struct efs_job* job,
                        struct world* world) {
  static struct efs_outcome outcome;
  char size[64], mount[EFS_PATH + 16], file[EFS_PATH + 16], error[EFS_TEXT];
  const char* words[] = {site->efs, "check",       "--json",
                         mount,     world->memory, "--memory-source=what Slurm has given the job",
                         file,      NULL};
  const int known = efs_memory_of_job(site, job->id, size, sizeof size);
  int seconds;
  /* If Slurm does not manage memory, the node's memory is not the job's. But the job's own
   * request is still a limit. */
  if (known < 0 || (known == EFS_ALL_OF_NODE && !efs_memory_is_counted(site))) {
    return 0;
  }
  efs_format(mount, sizeof mount, "--mount-dir=%s", job->mount);
  efs_format(world->memory, sizeof world->memory, "--memory=%s", size);
  efs_format(file, sizeof file, "%s/job.yaml", job->directory);
  seconds = seconds_for_check(); /* behind the request to slurmctld, which takes time */
  if (seconds == 0) {
    return 0;
  }
  outcome.as = job; /* root reads nothing that a user wrote */
  efs_run(words, world->words, seconds, &outcome);
  if (outcome.code != BAD_JOB_FILE ||
      efs_json_text(outcome.text, "error", error, sizeof error) != 0 ||
      !efs_memory_is_counted(site)) {
    return 0;
  }
  fail_job(site, job, error);
  return -1;
}

/* Returns 0; or -1 after it has failed the job. */
static int choose_instance(const struct efs_site* site, struct efs_job* job, const char* flags,
                           const char* const* environment) {
  char why[EFS_TEXT];
  if (efs_choose_kept(site, job, flags, environment, why) == 0) {
    return 0;
  }
  fail_job(site, job, why);
  return -1;
}

/* Removes the rest of a run before a requeue whose epilog was lost. Then finds a free name for
 * this run. */
static void clear_the_way(const struct efs_site* site, struct efs_job* job) {
  struct efs_job older = *job;
  while (efs_find_job(site, &older)) {
    const uint32_t restart = older.restart;
    efs_stop_job(site, &older);
    if (!efs_find_job(site, &older) || older.restart == restart) {
      break; /* not saved: it stays */
    }
  }
  if (!efs_find_job(site, &older) || older.restart < job->restart) {
    return;
  }
  job->restart = older.restart + 1;
  efs_name_job(site, job);
}

/* Stores the job file that the options or the directives made, readable by the user alone. Fails
 * the job on error. */
static int keep_job_file(const struct efs_site* site, const struct efs_job* job,
                         const char** text) {
  static char directives[EFS_LARGEST_JOB];
  const int told =
      *text == NULL ? efs_read_directives(site, job, directives, sizeof directives) : 0;
  if (*text == NULL && told == 0) {
    *text = directives;
  }
  if (*text != NULL && strlen(*text) <= EFS_LARGEST_JOB &&
      efs_write_file(job->directory, "job.yaml", *text, 0400, job->uid) == 0) {
    return 0;
  }
  if (told > 0) {
    put_off(site, job, "the directives of the script cannot be read back from slurmctld");
  } else if (told < 0) {
    fail_job(site, job, "the directives of the script cannot be read back");
  } else {
    fail_job(site, job, "the job file cannot be kept on this node");
  }
  return -1;
}

/* Sets the arguments of every job. */
static void begin_world(struct world* world, const struct efs_site* site,
                        const struct efs_job* job) {
  static const char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  int n = 0;
  memset(world, 0, sizeof *world);
  efs_format(world->runtime, sizeof world->runtime, "EFS_RUNTIME_DIR=%s", site->run);
  efs_format(world->id, sizeof world->id, "SLURM_JOB_ID=%u", job->id);
  efs_format(world->name_of_node, sizeof world->name_of_node, "SLURMD_NODENAME=%s", site->node);
  world->words[n++] = path;
  world->words[n++] = world->runtime;
  world->words[n++] = world->id;
  world->words[n++] = world->name_of_node;
}

static void add_word(struct world* world, char* word, size_t size, const char* name,
                     const char* value) {
  int n = 0;
  while (world->words[n] != NULL) {
    ++n;
  }
  if (value[0] != '\0' && efs_format(word, size, "%s=%s", name, value) == 0) {
    world->words[n] = word;
  }
}

/* Finds this node's number in the job. Otherwise puts the job off, or fails it. */
static int find_place(struct world* world, const struct efs_site* site, const struct efs_job* job) {
  char index[EFS_NUMBER];
  const int known = efs_find_node(site, job->id, &world->node, &world->nodes);
  if (known == EFS_TOO_LONG) {
    fail_job(site, job,
             "the list of the job's nodes is longer than 64 KiB, and slurmd does not give it; "
             "request fewer nodes, or a range of nodes");
  } else if (known != 0) {
    put_off(site, job,
            "slurmctld does not say which nodes the job has; it is away, or does not answer");
  }
  efs_format(index, sizeof index, "%u", world->node);
  add_word(world, world->index, sizeof world->index, "SLURM_NODEID", index);
  return known == 0 ? 0 : -1;
}

/* Adds the values that only slurmctld knows, if the job file may need them. Otherwise puts the
 * job off, or fails it. */
static int ask_for_world(struct world* world, const struct efs_site* site,
                         const struct efs_job* job, const char* text) {
  char array[EFS_NUMBER] = "", task[EFS_NUMBER] = "", name[EFS_PATH] = "";
  const int has_array = strstr(text, "%a") != NULL || strstr(text, "%A") != NULL,
            has_name = strstr(text, "%x") != NULL;
  if ((has_array && efs_ask_array(site, job->id, array, task) < 0) ||
      (has_name && efs_ask_name(site, job->id, name, sizeof name) < 0)) {
    put_off(site, job,
            "slurmctld does not say the name of the job; it is away, or does not answer");
    return -1;
  }
  add_word(world, world->array, sizeof world->array, "SLURM_ARRAY_JOB_ID", array);
  add_word(world, world->task, sizeof world->task, "SLURM_ARRAY_TASK_ID", task);
  add_word(world, world->name, sizeof world->name, "SLURM_JOB_NAME", name);
  return 0;
}

/* Most jobs have no directives. Jobs with directives detect them by themselves (task.c), and are
 * put off. */
static int record_unasked(const struct efs_site* site, struct efs_job* job) {
  clear_the_way(site, job);
  if (efs_make_job(site, job) == 0) {
    efs_write_file(job->directory, "result",
                   "unasked slurmctld does not say whether the job has directives; it is away, or "
                   "does not answer",
                   0644, 0);
  }
  return 0;
}

/* Returns the error in the data from the allocator, which the user could forge; NULL if there is
 * none. */
static const char* find_fault(const char* text, const char* flags) {
  if (text != NULL && strlen(text) > EFS_LARGEST_JOB) {
    return "the job file that sbatch handed over is too large";
  }
  if (flags != NULL && strlen(flags) >= FLAGS_SIZE) {
    return "the flags that sbatch handed over are too long";
  }
  return NULL;
}

/* Imports the inputs of the job, or fails it, or puts it off. `text`: the job file; NULL: the
 * directives of the job make it. */
static void stage_in(const struct efs_site* site, struct efs_job* job, struct world* world,
                     const char* text, const char* flags) {
  efs_write_file(job->directory, "flags", flags, 0644, 0);
  if (keep_job_file(site, job, &text) != 0 || find_place(world, site, job) != 0 ||
      ask_for_world(world, site, job, text) != 0) {
    return;
  }
  if (check_memory(site, job, world) != 0) {
    return;
  }
  efs_publish(site, job, "staging-in", "");
  if (choose_instance(site, job, flags, world->words) == 0) {
    start(site, job, world);
  }
}

int efs_prolog(spank_t spank, const struct efs_site* site) {
  struct efs_job job;
  struct world world;
  const char *text = getenv("SPANK_EFS_JOB"), *flags = getenv("SPANK_EFS_FLAGS"),
             *fault = find_fault(text, flags);
  if ((text == NULL && !site->directives) || efs_describe_job(spank, site, &job) != 0) {
    return 0;
  }
  if (text == NULL) {
    const int has = efs_has_directives(site, &job);
    if (has == 0) {
      return 0;
    }
    if (has < 0) {
      return record_unasked(site, &job);
    }
  }
  clear_the_way(site, &job);
  if (efs_make_job(site, &job) != 0) {
    fail_job(site, &job,
             "the directories of efs (state=, run= and mount= in plugstack.conf) cannot be used on "
             "this node; tell the administrators");
    return 0;
  }
  record_began(&job, (long long)time(NULL), 0);
  efs_note_boot(&job);
  begin_world(&world, site, &job);
  if (fault != NULL) {
    fail_job(site, &job, fault);
    return 0;
  }
  if (flags == NULL) {
    flags = text == NULL ? "directives" : "";
  }
  stage_in(site, &job, &world, text, flags);
  return 0;
}
