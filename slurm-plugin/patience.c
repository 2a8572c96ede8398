/* How long slurmd lets a prolog or an epilog take: with PrologEpilogTimeout it kills one that takes longer, and drains the node.
 * Slurm's own processes have the setting at hand in their library; no question to slurmctld. */
#include <dlfcn.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "efs_plugin.h"

#define LONGEST_RESERVE 60 /* seconds, of the limit, for telling how it ended */

static double ends_at; /* seconds since the machine's start; 0: no end */
static unsigned limit;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Since when slurmd waits for this process: other plugins may have had their turn in it. */
static double when_begun(void) {
  char line[1024];
  unsigned long long ticks = 0;
  const char *rest = NULL;
  FILE *stat = fopen("/proc/self/stat", "re");
  if (stat != NULL && fgets(line, sizeof line, stat) != NULL) rest = strrchr(line, ')');
  if (stat != NULL) fclose(stat);
  if (rest == NULL || sscanf(rest + 1, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &ticks) != 1) return now();
  return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

void efs_begin_hook(void) {
  const slurm_conf_t *conf = dlsym(RTLD_DEFAULT, "slurm_conf");
  limit = conf == NULL || conf->prolog_epilog_timeout >= NO_VAL16 ? 0 : conf->prolog_epilog_timeout;
  if (limit == 0) return;
  ends_at = when_begun() + limit - (limit / 3 < LONGEST_RESERVE ? limit / 3 : LONGEST_RESERVE);
}

int efs_seconds_left(void) {
  const double left = ends_at - now();
  if (limit == 0) return EFS_NO_END;
  return left > 0 ? (int)left : 0;
}

unsigned efs_hook_limit(void) { return limit; }
