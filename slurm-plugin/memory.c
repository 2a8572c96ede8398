/* SPDX-License-Identifier: BSD-3-Clause */
/* The limit of a store in memory, which counts as the job's memory. At submission: the memory
 * that Slurm will certainly give the job on a node. On the node: the memory that Slurm has given
 * it. Slurm does not pass --mem to a plugin at submission, so this reads the option table of
 * sbatch, salloc and srun, which they and Slurm's library export. Without that table, the limit
 * is unknown. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "efs_plugin.h"

typedef unsigned long long mebibytes;

#define ANSWER_TIME 20 /* seconds */

/* The options of the submitting program. */
struct options {
  void* table;
  char* (*get)(void*, const char*);
  _Bool (*is_set)(void*, const char*);
};

/* The memory that the job requests, or its partition's default. 0: unknown, or no limit. */
struct request {
  mebibytes per_node, per_cpu;
  unsigned long long cpus; /* maximum on a node */
};

/* Parses "4G", Slurm's form of 4 GiB; a number without a unit is in MiB. 0: all memory, or not a
 * number. */
static mebibytes in_mebibytes(const char* text) {
  static const char units[] = "MGTP";
  char* end;
  const char* unit;
  double number = strtod(text, &end);
  if (end == text || !(number > 0) || number > 1e15) {
    return 0;
  }
  if (*end == 'K') {
    return (mebibytes)(number / 1024);
  }
  unit = *end == '\0' || strchr(units, *end) == NULL ? units : strchr(units, *end);
  for (; unit > units; --unit) {
    number *= 1024;
  }
  return number < 1e15 ? (mebibytes)number : 0;
}

/* Reads the value of KEY=VALUE among the words of a line, or of "KEY = VALUE" in the output of
 * `scontrol show config`. */
static int find_value(const char* line, const char* key, char* value, size_t size) {
  const size_t length = strlen(key);
  const char *p = line, *rest;
  for (; (p = strstr(p, key)) != NULL; p += length) {
    if (p != line && p[-1] != ' ' && p[-1] != '\n') {
      continue;
    }
    rest = p + length + strspn(p + length, " ");
    if (*rest != '=') {
      continue;
    }
    rest += 1 + strspn(rest + 1, " ");
    return efs_format(value, size, "%.*s", (int)strcspn(rest, " \n"), rest);
  }
  value[0] = '\0';
  return -1;
}

static int find_options(struct options* options) {
  options->table = dlsym(RTLD_DEFAULT, "opt");
  *(void**)&options->get = dlsym(RTLD_DEFAULT, "slurm_option_get");
  *(void**)&options->is_set = dlsym(RTLD_DEFAULT, "slurm_option_isset");
  return options->table != NULL && options->get != NULL && options->is_set != NULL ? 0 : -1;
}

static int has_one_of(const struct options* options, const char* const* names) {
  for (; *names != NULL; ++names) {
    if (options->is_set(options->table, *names)) {
      return 1;
    }
  }
  return 0;
}

static const char* value_of(const struct options* options, const char* name) {
  const char* value =
      options->is_set(options->table, name) ? options->get(options->table, name) : NULL;
  return value != NULL ? value : "";
}

static unsigned long long number_of(const struct options* options, const char* name) {
  return strtoull(value_of(options, name), NULL, 10);
}

static int ask_scontrol(const struct efs_site* site, const char* what,
                        struct efs_outcome* outcome) {
  const char* words[] = {site->scontrol, "--oneliner", "--all", "show", what, NULL};
  efs_run(words, NULL, ANSWER_TIME, outcome);
  return outcome->code == 0 ? 0 : -1;
}

/* Returns whether Slurm manages memory, rather than only knows each node's size. */
static int counts_memory(const char* config) {
  char value[256];
  return find_value(config, "SelectTypeParameters", value, sizeof value) == 0 &&
         strcasestr(value, "MEMORY") != NULL;
}

int efs_memory_is_counted(const struct efs_site* site) {
  static struct efs_outcome config;
  return ask_scontrol(site, "config", &config) == 0 && counts_memory(config.text);
}

/* Returns the most tasks of the job that may run on one node. */
static unsigned long long most_tasks(const struct options* options) {
  const unsigned long long per_node = number_of(options, "ntasks-per-node"),
                           tasks = number_of(options, "ntasks");
  if (tasks == 0 || (per_node > 0 && per_node < tasks)) {
    return per_node > 0 ? per_node : 1;
  }
  return tasks;
}

/* Returns the most CPUs that a node can give the job: all its tasks may run on one node, and
 * each has whole cores. 0: unknown. */
static unsigned long long most_cpus(const struct options* options, const char* config,
                                    unsigned long long threads) {
  static const char* const others[] = {"exclusive",        "core-spec",       "thread-spec",
                                       "mincpus",          "extra-node-info", "sockets-per-node",
                                       "cores-per-socket", "tres-per-task",   NULL};
  const unsigned long long each = number_of(options, "cpus-per-task"), tasks = most_tasks(options);
  char units[256];
  find_value(config, "SelectTypeParameters", units, sizeof units);
  if (has_one_of(options, others) || threads == 0 ||
      (strcasestr(units, "CR_CORE") == NULL && strcasestr(units, "CR_CPU") == NULL)) {
    return 0;
  }
  if (tasks > 100000 || each > 100000 || threads > 100000) {
    return 0;
  }
  return tasks * (each > 0 ? each : 1) * threads;
}

static int has_whole_nodes(const char* partition) {
  char value[256];
  return find_value(partition, "OverSubscribe", value, sizeof value) != 0 ||
         strncmp(value, "EXCLUSIVE", 9) == 0 ||
         (find_value(partition, "SelectTypeParameters", value, sizeof value) == 0 &&
          strcasestr(value, "SOCKET") != NULL);
}

static mebibytes default_in(const char* text, const char* key) {
  char value[64];
  return find_value(text, key, value, sizeof value) == 0 ? in_mebibytes(value) : 0;
}

/* Returns the job's maximum on a node of that partition. */
static mebibytes most_in(const struct request* request, const char* config, const char* partition,
                         char* whence) {
  struct request all = *request;
  const char *name = "--mem-per-cpu", *from;
  if (all.per_cpu == 0) {
    from = default_in(partition, "DefMemPerNode") > 0 || default_in(partition, "DefMemPerCPU") > 0
               ? partition
               : config;
    all.per_node = default_in(from, "DefMemPerNode");
    all.per_cpu = default_in(from, "DefMemPerCPU");
    name = "DefMemPerCPU";
  }
  if (all.per_node > 0) {
    efs_format(whence, EFS_WHENCE, "DefMemPerNode");
    return all.per_node;
  }
  efs_format(whence, EFS_WHENCE, "%s, for at most %llu CPUs", name, all.cpus);
  return has_whole_nodes(partition) ? 0 : all.per_cpu * all.cpus;
}

static int is_named(const char* name, const char* list) {
  const size_t length = strlen(name);
  const char* p;
  for (p = list; *p != '\0'; p += strcspn(p, ","), p += *p == ',') {
    if (strcspn(p, ",") == length && strncmp(p, name, length) == 0) {
      return 1;
    }
  }
  return 0;
}

static int count_of(const char* list) {
  int count = 1;
  for (; *list != '\0'; ++list) {
    count += *list == ',';
  }
  return count;
}

/* Returns whether this partition is among `names`; or the default one, if `names` is "". */
static int is_chosen(const char* partition, const char* names) {
  char value[256];
  if (names[0] == '\0') {
    return find_value(partition, "Default", value, sizeof value) == 0 && strcmp(value, "YES") == 0;
  }
  return find_value(partition, "PartitionName", value, sizeof value) == 0 && is_named(value, names);
}

/* Uses the partition that the job names, the best of several named ones, or the default one. */
static mebibytes most_in_partitions(const struct efs_site* site, const struct options* options,
                                    const struct request* request, const char* config,
                                    char* whence) {
  static struct efs_outcome outcome;
  const char* names = value_of(options, "partition");
  const int has_names = names[0] != '\0';
  int missing = has_names ? count_of(names) : 1;
  mebibytes most = 0;
  char *line, *rest, text[EFS_WHENCE];
  if ((!has_names && options->is_set(options->table, "reservation")) ||
      ask_scontrol(site, "partition", &outcome) != 0) {
    return 0;
  }
  for (line = strtok_r(outcome.text, "\n", &rest); line != NULL;
       line = strtok_r(NULL, "\n", &rest)) {
    mebibytes here;
    if (!is_chosen(line, names)) {
      continue;
    }
    here = most_in(request, config, line, text);
    if (here == 0) {
      return 0;
    }
    if (here > most) {
      efs_copy(whence, EFS_WHENCE, text);
      most = here;
    }
    --missing;
  }
  return missing == 0 ? most : 0;
}

/* Returns the job's maximum on a node. 0: unknown, or no limit. */
static mebibytes most_of_job(const struct efs_site* site, unsigned long long threads,
                             char* whence) {
  static const char* const by_gpus[] = {"mem-per-gpu",   "cpus-per-gpu",  "ntasks-per-gpu",
                                        "gpus",          "gpus-per-node", "gpus-per-socket",
                                        "gpus-per-task", "gres",          NULL};
  static struct efs_outcome config;
  struct options options;
  struct request request = {0, 0, 0};
  char plugins[256];
  if (find_options(&options) != 0 || options.is_set(options.table, "clusters")) {
    return 0;
  }
  if (ask_scontrol(site, "config", &config) != 0 || !counts_memory(config.text)) {
    return 0;
  }
  if (options.is_set(options.table, "mem")) {
    efs_copy(whence, EFS_WHENCE, "--mem");
    return in_mebibytes(value_of(&options, "mem"));
  }
  if (has_one_of(&options, by_gpus)) {
    return 0;
  }
  request.per_cpu = in_mebibytes(value_of(&options, "mem-per-cpu"));
  /* If the job requests nothing, a plugin of slurmctld may set a value. */
  find_value(config.text, "JobSubmitPlugins", plugins, sizeof plugins);
  if (request.per_cpu == 0 && plugins[0] != '\0' && strcmp(plugins, "(null)") != 0) {
    return 0;
  }
  request.cpus = most_cpus(&options, config.text, threads);
  return most_in_partitions(site, &options, &request, config.text, whence);
}

void efs_memory_at_submission(const struct efs_site* site, struct efs_memory* memory) {
  static struct efs_outcome outcome;
  char sinfo[EFS_PATH];
  const char* words[] = {sinfo, "--noheader", "--all", "--exact", "--format=%m %Z", NULL};
  mebibytes largest = 0, job;
  unsigned long long most_threads = 0;
  char *line, *rest;
  memset(memory, 0, sizeof *memory);
  efs_slurm_program(site, "sinfo", sinfo);
  efs_run(words, NULL, ANSWER_TIME, &outcome);
  for (line = outcome.code == 0 ? strtok_r(outcome.text, "\n", &rest) : NULL; line != NULL;
       line = strtok_r(NULL, "\n", &rest)) {
    char* next;
    const mebibytes one = strtoull(line, &next, 10);
    const unsigned long long threads = strtoull(next + strcspn(next, " "), NULL, 10);
    if (one > largest) {
      largest = one;
    }
    if (threads > most_threads) {
      most_threads = threads;
    }
  }
  if (largest > 1) {
    efs_format(memory->node, sizeof memory->node, "%lluMiB",
               largest); /* 1: the site has no setting */
  }
  job = most_of_job(site, most_threads, memory->whence);
  if (job > 0) {
    efs_format(memory->job, sizeof memory->job, "%lluMiB", job);
  }
}

/* Returns the CPUs of the node at that position: "4(x2),2", as slurmd passes it to its prolog.
 * 0: unknown. */
static unsigned long long cpus_of(const char* list, unsigned place) {
  char* end;
  while (list != NULL && *list != '\0') {
    const unsigned long long cpus = strtoull(list, &end, 10);
    const unsigned long times = strncmp(end, "(x", 2) == 0 ? strtoul(end + 2, NULL, 10) : 1;
    if (end == list) {
      return 0;
    }
    if (place < times) {
      return cpus;
    }
    place -= (unsigned)times;
    list = end + strcspn(end, ",");
    if (*list == ',') {
      ++list;
    }
  }
  return 0;
}

/* Slurm reports the sum over all nodes, and the request, per node or per CPU. */
static mebibytes share_of(const struct efs_site* site, uint32_t id,
                          const struct efs_allocated* allocated) {
  const char* cpus = getenv("SLURM_JOB_CPUS_PER_NODE");
  const mebibytes least = in_mebibytes(allocated->least), sum = in_mebibytes(allocated->sum);
  unsigned node, nodes;
  if (allocated->nodes == 1 || sum == 0) {
    return sum;
  }
  if (least == 0) {
    return 0; /* all memory of each node, which may differ */
  }
  if (least * allocated->nodes == sum) {
    return least;
  }
  if (cpus == NULL || allocated->nodes == 0) {
    return 0;
  }
  if (strchr(cpus, ',') == NULL) {
    return sum / allocated->nodes;
  }
  if (least * allocated->cpus != sum || efs_find_node(site, id, &node, &nodes) != 0) {
    return 0;
  }
  return least * cpus_of(cpus, node);
}

int efs_memory_of_job(const struct efs_site* site, uint32_t id, char* text, size_t size) {
  struct efs_allocated allocated;
  const mebibytes share =
      efs_ask_allocated(site, id, &allocated) == 1 ? share_of(site, id, &allocated) : 0;
  if (share <= 1 || efs_format(text, size, "%lluMiB", share) != 0) {
    return -1; /* 1: the site has no setting */
  }
  return in_mebibytes(allocated.least) > 0 ? 0 : EFS_ALL_OF_NODE;
}
