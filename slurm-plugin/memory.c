/* Memory at submission. Slurm tells a plugin there nothing of --mem; the table of options of sbatch, salloc and srun is
 * asked, which they and Slurm's library export. Where they do not, nothing is known. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "efs_plugin.h"

/* "4G", Slurm's way to write 4 GiB. */
static int in_binary_units(const char *slurm, char *text, size_t size) {
  char *end;
  const unsigned long long number = strtoull(slurm, &end, 10);
  const char unit = *end == '\0' ? 'M' : *end;
  if (end == slurm || number == 0 || (*end != '\0' && end[1] != '\0') || strchr("KMGTP", unit) == NULL) return -1; /* 0: all there is */
  return efs_format(text, size, "%llu%ciB", number, unit);
}

int efs_job_memory(char *text, size_t size) {
  char *(*get)(void *, const char *);
  void *options = dlsym(RTLD_DEFAULT, "opt");
  const char *memory;
  *(void **)&get = dlsym(RTLD_DEFAULT, "slurm_option_get");
  if (options == NULL || get == NULL) return -1;
  memory = get(options, "mem");
  return memory == NULL ? -1 : in_binary_units(memory, text, size);
}

int efs_largest_node(const struct efs_site *site, char *text, size_t size) {
  static struct efs_outcome outcome;
  char sinfo[EFS_PATH];
  const char *words[] = {sinfo, "--noheader", "--all", "--exact", "--format=%m", NULL};
  unsigned long long most = 0;
  char *line, *rest;
  efs_slurm_program(site, "sinfo", sinfo);
  efs_run(words, NULL, 20, NULL, NULL, &outcome);
  if (outcome.code != 0) return -1;
  for (line = strtok_r(outcome.text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    const unsigned long long one = strtoull(line, NULL, 10);
    if (one > most) most = one;
  }
  return most <= 1 ? -1 : efs_format(text, size, "%lluMiB", most); /* 1: the site has not said */
}
