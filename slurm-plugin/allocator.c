/* SPDX-License-Identifier: BSD-3-Clause */
/* At submission, as the user: reports every error that is already known. The job file's text
 * goes into the job control environment, so that the nodes use the checked text:
 *   EFS_JOB      the job file, or one made from the options, resolved in the directory and the
 *                environment of the submission
 *   EFS_FLAGS    words: no-stage-out, in-job, keep=NAME (without NAME: the job's number, which is
 *                not known yet), attach=NAME */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "efs_plugin.h"

extern char** environ;

/* Reads the file at `path`; messages call it `name`. */
static int read_job_file(const char* path, const char* name, struct efs_text* text) {
  struct stat st;
  ssize_t n;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    slurm_error("efs: cannot read the job file %s", name);
    if (fd >= 0) {
      close(fd);
    }
    return -1;
  }
  n = read(fd, text->bytes, text->size);
  close(fd);
  if (n < 0 || (size_t)n >= text->size || memchr(text->bytes, 0, (size_t)n) != NULL) {
    slurm_error(
        "efs: %s is larger than %d KiB, or not text; name directories or globs instead of single "
        "files",
        name, EFS_LARGEST_JOB / 1024);
    return -1;
  }
  text->bytes[n] = '\0';
  text->length = (size_t)n;
  return 0;
}

/* Writes a temporary file of the user; stores its path in `path`. Returns -1 on failure. */
static int write_temporary(const struct efs_text* text, char* path, size_t size) {
  const char* directory = getenv("TMPDIR");
  int fd;
  ssize_t n;
  if (efs_format(path, size, "%.400s/efs-submit.XXXXXX",
                 directory != NULL && directory[0] == '/' ? directory : "/tmp") != 0) {
    return -1;
  }
  fd = mkstemp(path);
  n = fd < 0 ? -1 : write(fd, text->bytes, text->length);
  if (fd >= 0) {
    close(fd);
  }
  if (fd >= 0 && n != (ssize_t)text->length) {
    unlink(path);
  }
  if (n == (ssize_t)text->length) {
    return 0;
  }
  slurm_error("efs: cannot write %s", path);
  return -1;
}

static void say(const char* text, int error) {
  static char line[65536];
  char *next, *p = line;
  if (efs_copy(line, sizeof line, text) != 0) {
    return;
  }
  for (; *p != '\0'; p = next) {
    next = p + strcspn(p, "\n");
    if (*next != '\0') {
      *next++ = '\0';
    }
    if (*p == '\0') {
      continue;
    }
    if (error) {
      slurm_error("efs: %s", strncmp(p, "efs: ", 5) == 0 ? p + 5 : p);
    } else {
      slurm_spank_log("efs: %s", p);
    }
  }
}

/* Reports the findings of `efs plan --json`: inputs that are only missing yet are warnings,
 * problems are errors. */
static void say_found(const char* plan, const char* what) {
  static char item[16384]; /* a path in JSON may take six times its bytes */
  char path[EFS_TEXT], reason[EFS_TEXT], awaited[8], line[16];
  unsigned i;
  const int problems = strcmp(what, "problems") == 0;
  for (i = 0; efs_json_item(plan, what, i, item, sizeof item) == 0; ++i) {
    if (efs_json_text(item, "path", path, sizeof path) != 0 ||
        efs_json_text(item, "reason", reason, sizeof reason) != 0) {
      continue;
    }
    if (!problems && efs_json_value(item, "awaited", awaited, sizeof awaited) == 0 &&
        strcmp(awaited, "true") == 0) {
      slurm_spank_log("efs: warning: %s: %s", path, reason);
    }
    if (!problems) {
      continue;
    }
    if (efs_json_value(item, "line", line, sizeof line) == 0 && strcmp(line, "0") != 0) {
      slurm_error("efs: %s: %s (line %s of the job file)", path, reason, line);
    } else {
      slurm_error("efs: %s: %s", path, reason);
    }
  }
}

static void say_plan(const struct efs_outcome* outcome) {
  static char error[65536];
  if (efs_json_text(outcome->text, "error", error, sizeof error) == 0) {
    say(error, 1);
  } else if (efs_json_value(outcome->text, "ok", error, sizeof error) != 0) {
    say(outcome->text, 1); /* the program did not get that far */
  }
  say_found(outcome->text, "problems");
  say_found(outcome->text, "skipped");
}

/* Runs `efs check` for its messages; it writes the job file for the nodes to `snapshot`. Then
 * runs `efs plan` for the inputs. */
static int check(const struct efs_site* site, const char* file, const char* snapshot) {
  static struct efs_outcome outcome;
  struct efs_memory memory;
  char mount[EFS_PATH + 32], nodes[EFS_PATH + 32], of_job[96], whence[EFS_WHENCE + 24], of_node[96];
  const char* people[10] = {site->efs, "check", "--at-submission", mount, nodes, file};
  const char* plan[10] = {site->efs, "plan", "--json", "--brief", "--at-submission", mount, file};
  int n = 6, m = 7;
  efs_format(mount, sizeof mount, "--mount-dir=%s/job", site->mount);
  efs_format(nodes, sizeof nodes, "--snapshot=%s", snapshot);
  efs_memory_at_submission(site, &memory);
  if (memory.job[0] != '\0' && efs_format(of_job, sizeof of_job, "--memory=%s", memory.job) == 0 &&
      efs_format(whence, sizeof whence, "--memory-source=%s", memory.whence) == 0) {
    people[n++] = plan[m++] = of_job;
    people[n++] = whence;
  }
  if (memory.node[0] != '\0' &&
      efs_format(of_node, sizeof of_node, "--node-memory=%s", memory.node) == 0) {
    people[n++] = plan[m++] = of_node;
  }
  efs_run(people, (const char* const*)environ, 0, &outcome);
  if (outcome.code == 127) {
    slurm_error("efs: %s: %s; tell the administrators (plugstack.conf, efs=)", site->efs,
                outcome.text);
    return -1;
  }
  if (outcome.code != 0) {
    say(outcome.text, 1);
    return -1;
  }
  if (!site->plan) {
    return 0;
  }
  efs_run(plan, (const char* const*)environ, 0, &outcome);
  say_plan(&outcome);
  return outcome.code == 0 ? 0 : -1;
}

/* Replaces `text` by the job file for the nodes; messages call the file `name`. */
static int resolve(const struct efs_site* site, const char* file, const char* name,
                   struct efs_text* text) {
  static const struct efs_text nothing = {"", 0, 0, 0};
  char snapshot[EFS_PATH];
  int good;
  if (write_temporary(&nothing, snapshot, sizeof snapshot) != 0) {
    return -1;
  }
  good = check(site, file, snapshot) == 0 && read_job_file(snapshot, name, text) == 0;
  unlink(snapshot);
  return good ? 0 : -1;
}

static int hand_over(spank_t spank, const struct efs_text* text, const struct efs_options* given) {
  char flags[160];
  const char* kept = given->keep[0] != '\0' ? given->keep : given->attach;
  efs_format(flags, sizeof flags, "%s%s%s%s%s%s", given->no_stage_out ? "no-stage-out " : "",
             given->in_job ? "in-job " : "", given->keeps ? "keep=" : "", given->keeps ? kept : "",
             given->attach[0] != '\0' ? " attach=" : "", given->attach);
  if (spank_job_control_setenv(spank, "EFS_JOB", text->bytes, 1) != ESPANK_SUCCESS ||
      spank_job_control_setenv(spank, "EFS_FLAGS", flags, 1) != ESPANK_SUCCESS) {
    slurm_error("efs: the job file cannot be handed to the nodes");
    return -1;
  }
  return 0;
}

/* Returns whether an option is given that has a meaning only together with a file system. */
static int has_dependent_option(const struct efs_options* given) {
  return given->no_stage_out || given->in_job || given->keeps || given->attach[0] != '\0' ||
         given->capacity[0] != '\0';
}

static int check_names(const struct efs_options* given) {
  if (given->keep[0] != '\0' && given->attach[0] != '\0' &&
      strcmp(given->keep, given->attach) != 0) {
    slurm_error(
        "efs: --efs-attach=%s continues under that name; to keep it again, write --efs-keep alone",
        given->attach);
    return -1;
  }
  return 0;
}

/* Returns whether an option is given that a job file would contradict. */
static int describes_job(const struct efs_options* given) {
  return given->ins > 0 || given->outs > 0 || given->capacity[0] != '\0';
}

/* Checks the combinations of options. */
static int check_options(const struct efs_site* site, const struct efs_options* given) {
  if (!efs_is_wanted()) {
    /* Only slurmctld knows whether the script has directives. */
    if (!has_dependent_option(given) && (!given->intercepts || site->directives)) {
      return 0;
    }
    slurm_error(
        "efs: --efs-capacity, --efs-no-stage-out, --efs-stage-out=in-job, --efs-keep, "
        "--efs-attach and --efs-intercept need --efs=JOB.yaml or --efs-stage-in");
    return -1;
  }
  if (given->job[0] != '\0' && describes_job(given)) {
    slurm_error(
        "efs: --efs=%s says what to stage and how much to store; leave out --efs-stage-in, "
        "--efs-stage-out and --efs-capacity",
        given->job);
    return -1;
  }
  if (given->no_stage_out && (given->in_job || given->keeps)) {
    slurm_error("efs: --efs-no-stage-out excludes --efs-stage-out=in-job and --efs-keep");
    return -1;
  }
  return check_names(given);
}

static int inherited; /* by a step, from its job */

/* Slurm passes the options of the allocation, and the variables of its prologs, on in the
 * environment. */
void efs_note_inherited(void) {
  static const char* const begins[] = {"_SLURM_SPANK_OPTION_efs_",
                                       "SLURM_SPANK_EFS_JOB=", "SPANK_EFS_JOB=", "EFS_INSTANCE="};
  char** word;
  size_t i;
  for (word = environ; *word != NULL; ++word) {
    for (i = 0; i < sizeof begins / sizeof begins[0]; ++i) {
      if (strncmp(*word, begins[i], strlen(begins[i])) == 0) {
        inherited = 1;
      }
    }
  }
}

/* The allocation was checked. A step cannot ask for efs: the prologs of the allocation are over. */
int efs_check_step(void) {
  if (!efs_is_wanted() || inherited) {
    return 0;
  }
  slurm_error(
      "efs: this job was submitted without a file system; give --efs to sbatch or salloc, not to a "
      "step");
  return -1;
}

/* Checks the job file that the options make. */
static int check_made_file(const struct efs_site* site, const struct efs_options* given,
                           struct efs_text* text) {
  char file[EFS_PATH];
  int good;
  if (given->outs == 0 && !given->no_stage_out) {
    slurm_spank_log(
        "efs: warning: efs exports nothing that the job writes to its file system: --efs-stage-out "
        "is missing");
  }
  if (write_temporary(text, file, sizeof file) != 0) {
    return -1;
  }
  good = resolve(site, file, "what the options say", text) == 0;
  unlink(file);
  return good ? 0 : -1;
}

int efs_allocator_check(spank_t spank, const struct efs_site* site) {
  const struct efs_options* given = efs_given_options();
  static char bytes[EFS_LARGEST_JOB];
  struct efs_text text = {bytes, 0, sizeof bytes, 0};
  int has_file, is_good;
  if (given->bad || check_options(site, given) != 0) {
    return -1;
  }
  if (!efs_is_wanted()) {
    return 0;
  }
  has_file = given->job[0] != '\0';
  if ((has_file ? read_job_file(given->job, given->job, &text) : efs_make_job_file(given, &text)) !=
      0) {
    return -1;
  }
  if (text.full) {
    slurm_error("efs: too many options; use a job file");
    return -1;
  }
  is_good = (has_file ? resolve(site, given->job, given->job, &text)
                      : check_made_file(site, given, &text)) == 0;
  return is_good ? hand_over(spank, &text, given) : -1;
}
