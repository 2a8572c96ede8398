/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of sbatch, salloc and srun. Slurm keeps only the last value of a repeated option,
 * so the callback collects the values. */
#include <stdlib.h>
#include <string.h>

#include "efs_plugin.h"

enum {
  OPT_JOB,
  OPT_IN,
  OPT_OUT,
  OPT_CAPACITY,
  OPT_NO_STAGE_OUT,
  OPT_KEEP,
  OPT_ATTACH,
  OPT_INTERCEPT
};

static struct efs_options given;

const struct efs_options* efs_given_options(void) {
  return &given;
}

static int refuse(const char* option, const char* why) {
  slurm_error("efs: --%s: %s", option, why);
  given.bad = 1;
  return -1;
}

static int add(char** list, int* count, const char* option, const char* value) {
  int i;
  if (strlen(value) >= EFS_PATH) {
    return refuse(option, "the value is too long");
  }
  for (i = 0; i < *count; ++i) {
    if (strcmp(list[i], value) == 0) {
      return 0; /* Slurm calls back twice for an option in the script */
    }
  }
  if (*count == 64) {
    return refuse(option, "more than 64 of them; name directories or globs, or use a job file");
  }
  list[*count] = strdup(value);
  if (list[*count] == NULL) {
    return refuse(option, "out of memory");
  }
  ++*count;
  return 0;
}

static int keep_word(char* to, const char* option, const char* value) {
  return efs_copy(to, EFS_PATH, value) == 0 ? 0 : refuse(option, "the value is too long");
}

static int keep_name(char* to, const char* option, const char* value) {
  if (!efs_is_kept_name(value)) {
    return refuse(
        option,
        "a name has letters, digits, dots, - and _, at most 32, and begins with a letter or digit");
  }
  return keep_word(to, option, value);
}

/* `in-job` is not a pattern; a file of that name is written ./in-job. */
static int on_stage_out(const char* value) {
  if (strcmp(value, "in-job") != 0) {
    return add(given.out, &given.outs, "efs-stage-out", value);
  }
  given.in_job = 1;
  return 0;
}

static int on_option(int which, const char* value, int remote) {
  (void)remote;
  if (value == NULL) {
    value = "";
  }
  switch (which) {
    case OPT_JOB: return keep_word(given.job, "efs", value);
    case OPT_IN: return add(given.in, &given.ins, "efs-stage-in", value);
    case OPT_OUT: return on_stage_out(value);
    case OPT_CAPACITY: return keep_word(given.capacity, "efs-capacity", value);
    case OPT_NO_STAGE_OUT: given.no_stage_out = 1; return 0;
    case OPT_KEEP:
      given.keeps = 1;
      return value[0] == '\0' ? 0 : keep_name(given.keep, "efs-keep", value);
    case OPT_ATTACH: return keep_name(given.attach, "efs-attach", value);
    case OPT_INTERCEPT: given.intercepts = 1; return 0;
    default: return 0;
  }
}

int efs_is_wanted(void) {
  return given.job[0] != '\0' || given.ins > 0 || given.outs > 0;
}

void efs_register_options(spank_t spank) {
  static struct spank_option options[] = {
      {"efs", "JOB.yaml",
       "efs: file system of the job's own, as the job file says (see efs-job(5))", 1, OPT_JOB,
       on_option},
      {"efs-stage-in", "SRC[:DST]",
       "efs: import SRC before the job starts, to DST on its mount; may be repeated", 1, OPT_IN,
       on_option},
      {"efs-stage-out", "SRC[:DST]|in-job",
       "efs: export SRC when the job ends, to DST, or into the directory DST; may be repeated; "
       "in-job: export results before the job ends",
       1, OPT_OUT, on_option},
      {"efs-capacity", "SIZE", "efs: how much the job may store on a node", 1, OPT_CAPACITY,
       on_option},
      {"efs-keep", "[NAME]", "efs: leave the files on the node, for a later job of yours", 2,
       OPT_KEEP, on_option},
      {"efs-attach", "NAME",
       "efs: continue with the files that an earlier job of yours kept on the node", 1, OPT_ATTACH,
       on_option},
      {"efs-no-stage-out", NULL, "efs: export nothing", 0, OPT_NO_STAGE_OUT, on_option},
      {"efs-intercept", NULL,
       "efs: serve small reads and writes of the tasks by memory (see efs-intercept(7))", 0,
       OPT_INTERCEPT, on_option},
  };
  size_t i;
  for (i = 0; i < sizeof options / sizeof options[0]; ++i) {
    spank_option_register(spank, &options[i]);
  }
}
