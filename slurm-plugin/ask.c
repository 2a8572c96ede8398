/* SPDX-License-Identifier: BSD-3-Clause */
/* Queries to slurmctld about a job. slurmctld may be away or hang, so every query has a time
 * limit, and "unknown" is an answer. The queries ask only for fields that no user can write,
 * because a job's name may be "JobState=RUNNING"; a separate query asks for the name. */
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "efs_plugin.h"

#define ANSWER_TIME 20 /* seconds for one answer */
#define PATIENCE 60    /* seconds for an answer that the job cannot run without */

/* Finds the line of the job's own number: a query for an array returns all its tasks. */
static char* line_of(char* text, const char* begin) {
  char* line = text;
  while (line != NULL && strncmp(line, begin, strlen(begin)) != 0) {
    line = strchr(line, '\n');
    if (line != NULL) {
      ++line;
    }
  }
  if (line == NULL) {
    return NULL;
  }
  line[strcspn(line, "\n")] = '\0';
  return line + strlen(begin);
}

static int keep_field(char** rest, char* to, size_t size) {
  char* field = strsep(rest, "|");
  return field == NULL ? -1 : efs_copy(to, size, field);
}

/* Sends one query; `line` points after the job's number, which is first in each `format`:
 * "--format=%A|..." or "--Format=JobID:24,...". */
static int ask(const struct efs_site* site, uint32_t id, const char* format,
               struct efs_outcome* outcome, char** line) {
  char begin[32], squeue[EFS_PATH], jobs[48];
  const char* words[] = {squeue, "--noheader", "--all", "--states=all", jobs, format, NULL};
  efs_slurm_program(site, "squeue", squeue);
  efs_format(jobs, sizeof jobs, "--jobs=%u", id);
  if (strncmp(format, "--Format=", 9) == 0) {
    efs_format(begin, sizeof begin, "%-24u", id);
  } else {
    efs_format(begin, sizeof begin, "%u|", id);
  }
  outcome->wanted = begin;
  efs_run(words, NULL, ANSWER_TIME, outcome);
  if (outcome->code > 0 && strstr(outcome->text, "Invalid job id") != NULL) {
    return 0;
  }
  if (outcome->code == 0 && outcome->cut) {
    return EFS_TOO_LONG;
  }
  *line = outcome->code == 0 ? line_of(outcome->text, begin) : NULL;
  return *line != NULL ? 1 : -1;
}

int efs_ask_job(const struct efs_site* site, uint32_t id, struct efs_record* record) {
  static struct efs_outcome outcome;
  char* line = NULL;
  int known;
  known = ask(site, id, "--format=%A|%T|%l|%B", &outcome, &line);
  if (known != 1) {
    return known;
  }
  if (keep_field(&line, record->state, sizeof record->state) != 0 ||
      keep_field(&line, record->limit, sizeof record->limit) != 0) {
    return -1;
  }
  return keep_field(&line, record->host, sizeof record->host) == 0 ? 1 : -1;
}

static int is_alive(const char* state) {
  static const char* const alive[] = {"RUNNING", "CONFIGURING", "SUSPENDED",
                                      "STOPPED", "RESIZING",    "SIGNALING"};
  size_t i;
  for (i = 0; i < sizeof alive / sizeof alive[0]; ++i) {
    if (strcmp(state, alive[i]) == 0) {
      return 1;
    }
  }
  return 0;
}

int efs_job_is_over(const struct efs_site* site, uint32_t id) {
  struct efs_record record;
  const int known = efs_ask_job(site, id, &record);
  if (known != 1) {
    return known == 0 ? 1 : -1;
  }
  return !is_alive(record.state);
}

int efs_job_is_completing(const struct efs_site* site, uint32_t id) {
  struct efs_record record;
  return efs_ask_job(site, id, &record) == 1 && strcmp(record.state, "COMPLETING") == 0;
}

static int begins_again(time_t until) {
  if (time(NULL) >= until) {
    return 0;
  }
  sleep(2);
  return 1;
}

/* Repeats a query that the job cannot run without. */
static int ask_patiently(const struct efs_site* site, uint32_t id, const char* format,
                         struct efs_outcome* outcome, char** line) {
  const time_t until = time(NULL) + PATIENCE;
  int known;
  do {
    known = ask(site, id, format, outcome, line);
  } while (known == -1 && begins_again(until));
  return known;
}

int efs_admin_comment(const struct efs_site* site, uint32_t id, char* comment, size_t size) {
  static struct efs_outcome outcome;
  char* line = NULL;
  const int known = ask_patiently(site, id, "--Format=JobID:24,admin_comment:128", &outcome, &line);
  return known != 1 ? known : efs_copy(comment, size, line) == 0 ? 1 : -1;
}

int efs_ask_array(const struct efs_site* site, uint32_t id, char array[EFS_NUMBER],
                  char task[EFS_NUMBER]) {
  static struct efs_outcome outcome;
  char* line = NULL;
  unsigned number, index;
  const int known =
      ask_patiently(site, id, "--Format=JobID:24,ArrayJobID:24,ArrayTaskID:24", &outcome, &line);
  array[0] = task[0] = '\0';
  if (known == 1 && sscanf(line, "%u %u", &number, &index) ==
                        2) { /* for a job in no array, the second field is not a number */
    efs_format(array, EFS_NUMBER, "%u", number);
    efs_format(task, EFS_NUMBER, "%u", index);
  }
  return known;
}

/* Reads a column without its trailing blanks; "" if the column is full, because it may be
 * truncated. Returns the rest of the line. */
static char* keep_column(char* line, size_t width, char* to) {
  size_t length = strnlen(line, width), used = length;
  if (used == width && line[width - 1] != ' ') {
    used = 0;
  }
  while (used > 0 && line[used - 1] == ' ') {
    --used;
  }
  memcpy(to, line, used);
  to[used] = '\0';
  return line + length;
}

int efs_ask_end(const struct efs_site* site, uint32_t id, struct efs_end* end) {
  enum { BEFORE_FLAG = 48, BEFORE = 56 };
  static struct efs_outcome outcome;
  char* line = NULL;
  unsigned number, index;
  int known;
  memset(end, 0, sizeof *end);
  known = ask(
      site, id,
      "--Format=JobID:24,ArrayJobID:24,ArrayTaskID:24,BatchFlag:8,Name:256,WorkDir:512,STDOUT:1000",
      &outcome, &line);
  if (known != 1) {
    return known;
  }
  /* For a job in no array, the second field is not a number. A name with a line break can
   * imitate a line, so a query without names decides. */
  if (sscanf(line, "%u %u", &number, &index) == 2 &&
      efs_ask_array(site, id, end->array, end->task) != 1) {
    end->array[0] = end->task[0] = '\0';
  }
  if (strlen(line) <= BEFORE || strtoul(line + BEFORE_FLAG, NULL, 10) == 0) {
    return 1;
  }
  line = keep_column(line + BEFORE, 256, end->name);
  line = keep_column(line, 512, end->directory);
  keep_column(line, 1000, end->output);
  return 1;
}

int efs_ask_name(const struct efs_site* site, uint32_t id, char* name, size_t size) {
  static struct efs_outcome outcome;
  char* line = NULL;
  size_t length;
  const int known = ask_patiently(site, id, "--Format=JobID:24,Name:1024", &outcome, &line);
  if (known != 1) {
    return known;
  }
  for (length = strlen(line); length > 0 && line[length - 1] == ' ';) {
    line[--length] = '\0';
  }
  return efs_copy(name, size, line) == 0 ? 1 : 0;
}

/* A list that fills its field may be truncated. */
int efs_ask_licences(const struct efs_site* site, uint32_t id, char* licences, size_t size) {
  static struct efs_outcome outcome;
  char* line = NULL;
  size_t length;
  if (ask(site, id, "--Format=JobID:24,Licenses:512", &outcome, &line) != 1) {
    return -1;
  }
  length = strcspn(line, " ");
  if (length >= 512) {
    return -1;
  }
  line[length] = '\0';
  return efs_copy(licences, size,
                  strcmp(line, "(null)") == 0 || strcmp(line, "N/A") == 0 ? "" : line);
}

int efs_ask_restarts(const struct efs_site* site, uint32_t id) {
  static struct efs_outcome outcome;
  char* line = NULL;
  return ask(site, id, "--Format=JobID:24,RestartCnt:12", &outcome, &line) == 1
             ? (int)strtoul(line, NULL, 10)
             : -1;
}

enum efs_run_state efs_ask_run(const struct efs_site* site, uint32_t id, uint32_t restart) {
  static struct efs_outcome outcome;
  char state[32], *line = NULL;
  unsigned count;
  if (ask(site, id, "--Format=JobID:24,RestartCnt:12,State:24", &outcome, &line) != 1 ||
      sscanf(line, "%u %31s", &count, state) != 2) {
    return EFS_RUN_UNKNOWN;
  }
  if (count != restart) {
    return EFS_RUN_SUPERSEDED;
  }
  return strcmp(state, "COMPLETING") == 0 || is_alive(state) ? EFS_RUN_ENDS : EFS_RUN_OVER;
}

int efs_has_script(const struct efs_site* site, uint32_t id) {
  static struct efs_outcome outcome;
  char* line = NULL;
  int known;
  known = ask(site, id, "--Format=JobID:24,BatchFlag:8", &outcome, &line);
  return known == 1 ? strtoul(line, NULL, 10) != 0 : -1;
}

/* Reads a value in "cpu=4,mem=600M,node=2,billing=4". */
static int find_resource(const char* resources, const char* key, char* value, size_t size) {
  const size_t length = strlen(key);
  const char* p;
  for (p = resources; *p != '\0'; p += strcspn(p, ","), p += *p == ',') {
    if (strncmp(p, key, length) == 0 && p[length] == '=') {
      return efs_format(value, size, "%.*s", (int)strcspn(p + length + 1, ", "), p + length + 1);
    }
  }
  return -1;
}

int efs_ask_allocated(const struct efs_site* site, uint32_t id, struct efs_allocated* allocated) {
  static struct efs_outcome outcome;
  char cpus[32], nodes[32], *line = NULL;
  int known;
  known = ask(site, id, "--Format=JobID:24,MinMemory:24,tres-alloc:256", &outcome, &line);
  if (known != 1) {
    return known;
  }
  if (strlen(line) <= 24 || sscanf(line, "%31s", allocated->least) != 1) {
    return -1;
  }
  if (find_resource(line + 24, "mem", allocated->sum, sizeof allocated->sum) != 0) {
    return -1;
  }
  if (find_resource(line + 24, "cpu", cpus, sizeof cpus) != 0 ||
      find_resource(line + 24, "node", nodes, sizeof nodes) != 0) {
    return -1;
  }
  allocated->cpus = strtoull(cpus, NULL, 10);
  allocated->nodes = strtoull(nodes, NULL, 10);
  return 1;
}

/* Finds the position of the node in the list; -1 if there is no list, or it lacks this node. */
static int find_in(const char* list, const char* name, unsigned* node, unsigned* nodes) {
  __auto_type hosts = slurm_hostlist_create(list); /* its type depends on the release */
  const int count = hosts == NULL ? 0 : slurm_hostlist_count(hosts),
            at = count > 0 ? slurm_hostlist_find(hosts, name) : -1;
  if (hosts != NULL) {
    slurm_hostlist_destroy(hosts);
  }
  if (at < 0 || at >= count) {
    return -1;
  }
  *node = (unsigned)at;
  *nodes = (unsigned)count;
  return 0;
}

/* slurmd knows the nodes; from some release on it passes them to its prolog. */
int efs_find_node(const struct efs_site* site, uint32_t id, unsigned* node, unsigned* nodes) {
  static const char* const names[] = {"SLURM_JOB_NODELIST", "SLURM_NODELIST"};
  const time_t until = time(NULL) + PATIENCE;
  static struct efs_outcome outcome;
  char* nodes_list = NULL;
  size_t i;
  int known;
  for (i = 0; i < sizeof names / sizeof names[0]; ++i) {
    if (getenv(names[i]) != NULL && find_in(getenv(names[i]), site->node, node, nodes) == 0) {
      return 0;
    }
  }
  do {
    known = ask(site, id, "--format=%A|%N", &outcome, &nodes_list);
  } while (known == -1 && begins_again(until));
  return known == 1              ? find_in(nodes_list, site->node, node, nodes)
         : known == EFS_TOO_LONG ? known
                                 : -1;
}
