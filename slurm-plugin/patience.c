/* SPDX-License-Identifier: BSD-3-Clause */
/* The time limit of a prolog or an epilog: after PrologEpilogTimeout slurmd kills the hook and
 * drains the node. Slurm's own processes have the setting in their library (22.05). Later
 * releases do not pass it on (24.11); then the node's slurm.conf has it, and slurmd names that
 * file. slurmctld is not asked. */
#include <dlfcn.h>
#include <glob.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "efs_plugin.h"

#define LONGEST_RESERVE 60 /* seconds of the limit reserved for reporting the result */

enum { NOTHING_ENDS, NOT_KNOWN, KNOWN };

static int knowledge = NOTHING_ENDS; /* of the limit: read only for jobs with efs */
static double ends_at;               /* seconds since the boot of the machine */
static unsigned limit;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns the start of this process, for which slurmd waits: other plugins may have run in it
 * before. */
static double when_begun(void) {
  char line[1024];
  unsigned long long ticks = 0;
  const char* rest = NULL;
  FILE* stat = fopen("/proc/self/stat", "re");
  if (stat != NULL && fgets(line, sizeof line, stat) != NULL) {
    rest = strrchr(line, ')');
  }
  if (stat != NULL) {
    fclose(stat);
  }
  if (rest == NULL ||
      sscanf(rest + 1,
             "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
             &ticks) != 1) {
    return now();
  }
  return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* The last setting counts. */
static void read_line(char* line, unsigned* seconds) {
  static const char key[] = "prologepilogtimeout";
  const char* p;
  line[strcspn(line, "#")] = '\0';
  for (p = line; (p = strcasestr(p, key)) != NULL;) {
    const int begins = p == line || strchr(" \t", p[-1]) != NULL;
    p += sizeof key - 1;
    p += strspn(p, " \t");
    if (begins && *p == '=') {
      *seconds = (unsigned)strtoul(p + 1, NULL, 10);
    }
  }
}

static void read_conf(const char* path, int depth, unsigned* seconds);

/* The path is relative to the including file, and may be a pattern. */
static void read_included(const char* from, const char* name, int depth, unsigned* seconds) {
  char path[2 * EFS_PATH];
  const char* slash = strrchr(from, '/');
  glob_t found = {0};
  size_t i;
  if (efs_format(path, sizeof path, "%.*s%s",
                 name[0] == '/' || slash == NULL ? 0 : (int)(slash + 1 - from), from, name) != 0) {
    return;
  }
  if (glob(path, 0, NULL, &found) == 0) {
    for (i = 0; i < found.gl_pathc; ++i) {
      read_conf(found.gl_pathv[i], depth + 1, seconds);
    }
  }
  globfree(&found);
}

static void read_conf(const char* path, int depth, unsigned* seconds) {
  char line[4096], name[EFS_PATH];
  FILE* file = depth > 8 ? NULL : fopen(path, "re");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    const size_t blank = strspn(line, " \t");
    if (strncasecmp(line + blank, "include", strlen("include")) == 0 &&
        sscanf(line + blank, "%*s %511s", name) == 1) {
      read_included(path, name, depth, seconds);
    } else {
      read_line(line, seconds);
    }
  }
  if (file != NULL) {
    fclose(file);
  }
}

static unsigned find_limit(void) {
  const slurm_conf_t* conf = dlsym(RTLD_DEFAULT, "slurm_conf");
  unsigned seconds =
      conf == NULL || conf->prolog_epilog_timeout >= NO_VAL16 ? 0 : conf->prolog_epilog_timeout;
  if (seconds == 0 && getenv("SLURM_CONF") != NULL) {
    read_conf(getenv("SLURM_CONF"), 0, &seconds);
  }
  return seconds >= NO_VAL16 ? 0 : seconds;
}

void efs_begin_hook(void) {
  knowledge = NOT_KNOWN;
}

unsigned efs_hook_limit(void) {
  if (knowledge != NOT_KNOWN) {
    return limit;
  }
  knowledge = KNOWN;
  limit = find_limit();
  ends_at = when_begun() + limit - (limit / 3 < LONGEST_RESERVE ? limit / 3 : LONGEST_RESERVE);
  return limit;
}

int efs_seconds_left(void) {
  const double left = efs_hook_limit() == 0 ? 0 : ends_at - now();
  if (limit == 0) {
    return EFS_NO_END;
  }
  return left > 0 ? (int)left : 0;
}
