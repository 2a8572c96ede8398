/* The options of sbatch, salloc and srun. Slurm keeps only the last value of a repeated option, so the callback collects. */
#include <stdlib.h>
#include <string.h>

#include "efs_plugin.h"

enum { OPT_JOB, OPT_IN, OPT_OUT, OPT_CAPACITY, OPT_NO_STAGE_OUT };

static struct efs_options given;

const struct efs_options *efs_given_options(void) { return &given; }

static int refuse(const char *option, const char *why) {
  slurm_error("efs: --%s: %s", option, why);
  given.bad = 1;
  return -1;
}

static int add(char **list, int *count, const char *option, const char *value) {
  int i;
  for (i = 0; i < *count; ++i)
    if (strcmp(list[i], value) == 0) return 0; /* Slurm calls back twice for what stands in the script */
  if (*count == 64) return refuse(option, "more than 64 of them; name directories or globs, or use a job file");
  list[*count] = strdup(value);
  if (list[*count] == NULL) return refuse(option, "out of memory");
  ++*count;
  return 0;
}

static int keep_word(char *to, const char *option, const char *value) {
  return efs_copy(to, EFS_PATH, value) == 0 ? 0 : refuse(option, "the value is too long");
}

static int on_option(int which, const char *value, int remote) {
  (void)remote;
  if (value == NULL) value = "";
  switch (which) {
    case OPT_JOB: return keep_word(given.job, "efs", value);
    case OPT_IN: return add(given.in, &given.ins, "efs-stage-in", value);
    case OPT_OUT: return add(given.out, &given.outs, "efs-stage-out", value);
    case OPT_CAPACITY: return keep_word(given.capacity, "efs-capacity", value);
    case OPT_NO_STAGE_OUT: given.no_stage_out = 1; return 0;
    default: return 0;
  }
}

int efs_is_wanted(void) { return given.job[0] != '\0' || given.ins > 0 || given.outs > 0; }

void efs_register_options(spank_t spank) {
  static struct spank_option options[] = {
      {"efs", "JOB.yaml", "efs: file system of the job's own, as the job file says (see efs-job(5))", 1, OPT_JOB, on_option},
      {"efs-stage-in", "PATH", "efs: bring PATH in before the job starts; may be repeated", 1, OPT_IN, on_option},
      {"efs-stage-out", "PATH[:DIR]", "efs: bring PATH back when the job ends, into DIR; may be repeated", 1, OPT_OUT, on_option},
      {"efs-capacity", "SIZE", "efs: how much the job may store on a node", 1, OPT_CAPACITY, on_option},
      {"efs-no-stage-out", NULL, "efs: bring nothing back", 0, OPT_NO_STAGE_OUT, on_option},
  };
  size_t i;
  for (i = 0; i < sizeof options / sizeof options[0]; ++i) spank_option_register(spank, &options[i]);
}
