/* At submission, as the user: what can be known now is said now. The job file's text travels in the job control
 * environment, so that what was checked is what runs:
 *   EFS_JOB      the text of the job file, or of one made from the options
 *   EFS_ROOT EFS_RESULTS   as resolved in the directory of the submission
 *   EFS_FLAGS    words: no-stage-out, in-job, keep=NAME (without one: the job's number, which nobody knows yet), attach=NAME */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "efs_plugin.h"

extern char **environ;

struct text {
  char *bytes;
  size_t length, size;
  int full;
};

static void append(struct text *text, const char *words) {
  const size_t length = strlen(words);
  if (text->length + length + 1 > text->size) {
    text->full = 1;
    return;
  }
  memcpy(text->bytes + text->length, words, length + 1);
  text->length += length;
}

static void append_quoted(struct text *text, const char *words) {
  char quoted[6 * EFS_PATH];
  efs_json_quote(words, quoted, sizeof quoted); /* JSON's strings are YAML's */
  append(text, quoted);
}

static int read_job_file(const char *path, struct text *text) {
  struct stat st;
  ssize_t n;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    slurm_error("efs: cannot read the job file %s", path);
    if (fd >= 0) close(fd);
    return -1;
  }
  n = read(fd, text->bytes, text->size);
  close(fd);
  if (n < 0 || (size_t)n >= text->size || memchr(text->bytes, 0, (size_t)n) != NULL) {
    slurm_error("efs: %s is larger than %d KiB, or not text; name directories or globs instead of single files", path, EFS_LARGEST_JOB / 1024);
    return -1;
  }
  text->bytes[n] = '\0';
  text->length = (size_t)n;
  return 0;
}

/* PATH[:DIR]; a colon within PATH cannot be said. */
static const char *split(const char *word, char *path) {
  const char *colon = strchr(word, ':');
  if (colon == NULL) return efs_copy(path, EFS_PATH, word) == 0 ? "" : NULL;
  if ((size_t)(colon - word) >= EFS_PATH) return NULL;
  memcpy(path, word, (size_t)(colon - word));
  path[colon - word] = '\0';
  return colon + 1;
}

/* A job file from options alone: root-dir is the directory of the submission. */
static int make_job_file(const struct efs_options *given, struct text *text) {
  char here[EFS_PATH], path[EFS_PATH];
  const char *results = NULL, *to;
  int i;
  if (getcwd(here, sizeof here) == NULL) {
    slurm_error("efs: the directory of the submission cannot be told, or its path is longer than %d bytes; use a job file", EFS_PATH - 1);
    return -1;
  }
  for (i = 0; i < given->outs; ++i) {
    to = split(given->out[i], path);
    if (to == NULL) return -1;
    if (*to == '\0') continue;
    if (results != NULL && strcmp(results, to) != 0) {
      slurm_error("efs: --efs-stage-out: %s and %s: results of one job go into one directory; use a job file for more", results, to);
      return -1;
    }
    results = to;
  }
  append(text, "global-settings:\n  mount-dir: /efs\n  root-dir: ");
  append_quoted(text, here);
  append(text, results == NULL ? "\n  in-place: true\n" : "\n  results-dir: ");
  if (results != NULL) append_quoted(text, results);
  append(text, "\nresources:\n");
  for (i = 0; i < given->ins; ++i) {
    to = split(given->in[i], path);
    if (to == NULL || (*to != '\0' && strcmp(to, path) != 0)) {
      slurm_error("efs: --efs-stage-in=%s: an input keeps its name below %s; leave out what is behind the colon", given->in[i], here);
      return -1;
    }
    append(text, "  - path: ");
    append_quoted(text, path);
    append(text, "\n");
  }
  append(text, "outputs:\n");
  for (i = 0; i < given->outs; ++i) {
    split(given->out[i], path);
    append(text, "  - path: ");
    append_quoted(text, path);
    append(text, "\n");
  }
  if (given->outs == 0) append(text, "  - path: \"**\"\n    flags: temporary\n");
  if (given->capacity[0] != '\0') {
    append(text, "backends:\n  - id: memory\n    capacity: ");
    append_quoted(text, given->capacity);
    append(text, "\n");
  }
  return 0;
}

static int write_temporary(const struct text *text, char *path, size_t size) {
  const char *directory = getenv("TMPDIR");
  int fd;
  ssize_t n;
  if (efs_format(path, size, "%.400s/efs-submit.XXXXXX", directory != NULL && directory[0] == '/' ? directory : "/tmp") != 0) return -1;
  fd = mkstemp(path);
  if (fd < 0) return -1;
  n = write(fd, text->bytes, text->length);
  close(fd);
  return n == (ssize_t)text->length ? 0 : -1;
}

static void say(const char *text, int error) {
  static char line[65536];
  char *next, *p = line;
  if (efs_copy(line, sizeof line, text) != 0) return;
  for (; *p != '\0'; p = next) {
    next = p + strcspn(p, "\n");
    if (*next != '\0') *next++ = '\0';
    if (*p == '\0') continue;
    if (error) slurm_error("efs: %s", strncmp(p, "efs: ", 5) == 0 ? p + 5 : p);
    else slurm_spank_log("efs: %s", p);
  }
}

/* Of what `efs plan --json` found: what is only missing yet is a warning, problems are errors. */
static void say_found(const char *plan, const char *what) {
  static char item[16384]; /* a path in JSON may take six times its bytes */
  char path[EFS_TEXT], reason[EFS_TEXT], awaited[8], line[16];
  unsigned i;
  const int problems = strcmp(what, "problems") == 0;
  for (i = 0; efs_json_item(plan, what, i, item, sizeof item) == 0; ++i) {
    if (efs_json_text(item, "path", path, sizeof path) != 0 || efs_json_text(item, "reason", reason, sizeof reason) != 0) continue;
    if (!problems && efs_json_value(item, "awaited", awaited, sizeof awaited) == 0 && strcmp(awaited, "true") == 0) slurm_spank_log("efs: warning: %s: %s", path, reason);
    if (!problems) continue;
    if (efs_json_value(item, "line", line, sizeof line) == 0 && strcmp(line, "0") != 0) slurm_error("efs: %s: %s (line %s of the job file)", path, reason, line);
    else slurm_error("efs: %s: %s", path, reason);
  }
}

static void say_plan(const struct efs_outcome *outcome) {
  static char error[65536];
  if (efs_json_text(outcome->text, "error", error, sizeof error) == 0) say(error, 1);
  else if (efs_json_value(outcome->text, "ok", error, sizeof error) != 0) say(outcome->text, 1); /* it did not come so far */
  say_found(outcome->text, "problems");
  say_found(outcome->text, "skipped");
}

/* `efs check`, for the messages; again with --json for where the directories are. */
static int check(spank_t spank, const struct efs_site *site, const char *file) {
  static struct efs_outcome outcome;
  char mount[EFS_PATH + 32], value[4096], memory[64], node[64];
  const char *people[8] = {site->efs, "check", mount, file};
  const char *programs[] = {site->efs, "check", "--json", mount, file, NULL};
  const char *plan[] = {site->efs, "plan", "--json", "--brief", "--at-submission", mount, file, NULL};
  int n = 4;
  efs_format(mount, sizeof mount, "--mount-dir=%s/job", site->mount);
  if (efs_job_memory(value, sizeof value) == 0 && efs_format(memory, sizeof memory, "--memory=%.32s", value) == 0) people[n++] = memory;
  if (efs_largest_node(site, value, sizeof value) == 0 && efs_format(node, sizeof node, "--node-memory=%.32s", value) == 0) people[n++] = node;
  efs_run(people, (const char *const *)environ, 0, NULL, NULL, &outcome);
  if (outcome.code == 127) {
    slurm_error("efs: %s: %s; tell the administrators (plugstack.conf, efs=)", site->efs, outcome.text);
    return -1;
  }
  if (outcome.code != 0) {
    say(outcome.text, 1);
    return -1;
  }
  efs_run(programs, (const char *const *)environ, 0, NULL, NULL, &outcome);
  if (efs_json_text(outcome.text, "root_dir", value, sizeof value) == 0) spank_job_control_setenv(spank, "EFS_ROOT", value, 1);
  if (efs_json_text(outcome.text, "results_dir", value, sizeof value) == 0) spank_job_control_setenv(spank, "EFS_RESULTS", value, 1);
  if (!site->plan) return 0;
  efs_run(plan, (const char *const *)environ, 0, NULL, NULL, &outcome);
  say_plan(&outcome);
  return outcome.code == 0 ? 0 : -1;
}

static int hand_over(spank_t spank, const struct text *text, const struct efs_options *given) {
  char flags[160];
  const char *kept = given->keep[0] != '\0' ? given->keep : given->attach;
  efs_format(flags, sizeof flags, "%s%s%s%s%s%s", given->no_stage_out ? "no-stage-out " : "", given->in_job ? "in-job " : "", given->keeps ? "keep=" : "", given->keeps ? kept : "",
             given->attach[0] != '\0' ? " attach=" : "", given->attach);
  if (spank_job_control_setenv(spank, "EFS_JOB", text->bytes, 1) != ESPANK_SUCCESS || spank_job_control_setenv(spank, "EFS_FLAGS", flags, 1) != ESPANK_SUCCESS) {
    slurm_error("efs: the job file cannot be handed to the nodes");
    return -1;
  }
  return 0;
}

/* What goes together, and what means something alone. */
static int check_options(const struct efs_options *given, const struct efs_site *site) {
  if (!efs_is_wanted()) {
    if (!given->no_stage_out && !given->in_job && !given->keeps && given->attach[0] == '\0' && given->capacity[0] == '\0') return 0;
    slurm_error("efs: --efs-capacity, --efs-no-stage-out, --efs-stage-out=in-job, --efs-keep and --efs-attach need --efs=JOB.yaml or --efs-stage-in");
    return -1;
  }
  if (given->job[0] != '\0' && (given->ins > 0 || given->outs > 0 || given->capacity[0] != '\0')) {
    slurm_error("efs: --efs=%s says what to stage and how much to store; leave out --efs-stage-in, --efs-stage-out and --efs-capacity", given->job);
    return -1;
  }
  if (given->no_stage_out && (given->in_job || given->keeps)) {
    slurm_error("efs: --efs-no-stage-out goes neither with --efs-stage-out=in-job nor with --efs-keep, which keeps what is back");
    return -1;
  }
  if (given->in_job && site->view[0] != '\0') { /* the script's own namespace would hold the mount */
    slurm_error("efs: --efs-stage-out=in-job is not possible at this site, which shows each job its files at %s (view=); they are staged out after the job", site->view);
    return -1;
  }
  if (given->keep[0] != '\0' && given->attach[0] != '\0' && strcmp(given->keep, given->attach) != 0) {
    slurm_error("efs: --efs-attach=%s goes on under that name; write --efs-keep alone to keep it once more", given->attach);
    return -1;
  }
  return 0;
}

int efs_allocator_check(spank_t spank, const struct efs_site *site) {
  const struct efs_options *given = efs_given_options();
  static char bytes[EFS_LARGEST_JOB];
  struct text text = {bytes, 0, sizeof bytes, 0};
  char file[EFS_PATH];
  int good;
  if (given->bad || check_options(given, site) != 0) return -1;
  if (!efs_is_wanted()) return 0;
  if ((given->job[0] != '\0' ? read_job_file(given->job, &text) : make_job_file(given, &text)) != 0) return -1;
  if (text.full) {
    slurm_error("efs: too many options; use a job file");
    return -1;
  }
  if (given->job[0] != '\0') return check(spank, site, given->job) == 0 ? hand_over(spank, &text, given) : -1;
  good = write_temporary(&text, file, sizeof file) == 0;
  if (!good) slurm_error("efs: cannot write %s", file);
  good = good && check(spank, site, file) == 0;
  unlink(file);
  return good ? hand_over(spank, &text, given) : -1;
}
