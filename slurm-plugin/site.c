/* SPDX-License-Identifier: BSD-3-Clause */
/* The site's settings, from plugstack.conf. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "efs_plugin.h"

struct key {
  const char* name;
  char* value;
};

/* Replaces %n by the node's name, for several slurmd on one host. */
static int expand(const char* from, const char* node, char* to) {
  size_t length = 0;
  const size_t node_length = strlen(node);
  for (; *from != '\0'; ++from) {
    if (from[0] == '%' && from[1] == 'n') {
      if (length + node_length >= EFS_PATH) {
        return -1;
      }
      memcpy(to + length, node, node_length);
      length += node_length;
      ++from;
    } else {
      if (length + 1 >= EFS_PATH) {
        return -1;
      }
      to[length++] = *from;
    }
  }
  to[length] = '\0';
  return 0;
}

static void read_node(char* node) {
  const char* given = getenv("SLURMD_NODENAME");
  if (given != NULL && strchr(given, '/') == NULL && efs_copy(node, EFS_PATH, given) == 0 &&
      node[0] != '\0' && node[0] != '.') {
    return;
  }
  if (gethostname(node, 256) != 0) {
    node[0] = '\0';
  }
  node[255] = '\0';
  node[strcspn(node, ".")] = '\0'; /* as slurmd does */
}

/* Reads seconds or hours: a number above 0 without a suffix. */
static int read_number(const char* text, int* number) {
  char* end;
  const long value = strtol(text, &end, 10);
  if (end == text || *end != '\0' || value <= 0 || value > 1000000000) {
    return -1;
  }
  *number = (int)value;
  return 0;
}

static int read_choice(const char* text, int* choice) {
  const int yes = strcmp(text, "yes") == 0;
  if (!yes && strcmp(text, "no") != 0) {
    return -1;
  }
  *choice = yes;
  return 0;
}

/* Reads a time, or "no". */
static int read_keep(const char* text, int* time) {
  if (strcmp(text, "no") != 0) {
    return read_number(text, time);
  }
  *time = 0;
  return 0;
}

static int read_path(const struct efs_site* site, const char* text, char* path) {
  const int done = expand(text, site->node, path);
  if (done != 0) {
    path[0] = '\0'; /* no default: it would name another directory */
  }
  return done;
}

static int read_word(struct efs_site* site, const char* word) {
  const struct key paths[] = {{"efs", site->efs},       {"state", site->state},
                              {"run", site->run},       {"mount", site->mount},
                              {"shared", site->shared}, {"queue", site->queue},
                              {"view", site->view},     {"scontrol", site->scontrol},
                              {"mail", site->mail},     {"licence", site->licence}};

  const struct {
    const char* name;
    int* value;
    int (*read)(const char*, int*);
  } others[] = {{"poll", &site->poll, read_number}, {"stage-out", &site->stage_out, read_number},
                {"plan", &site->plan, read_choice}, {"directives", &site->directives, read_choice},
                {"keep", &site->keep, read_keep},   {"output", &site->output, read_choice},
                {"watch", &site->watch, read_keep}};

  const char* equals = strchr(word, '=');
  const size_t length = equals == NULL ? 0 : (size_t)(equals - word);
  size_t i;
  int done;
  for (i = 0; i < sizeof paths / sizeof paths[0]; ++i) {
    if (strlen(paths[i].name) == length && strncmp(word, paths[i].name, length) == 0) {
      return read_path(site, equals + 1, paths[i].value) == 0 ? 0 : EFS_SITE_BAD;
    }
  }
  for (i = 0; i < sizeof others / sizeof others[0]; ++i) {
    if (strlen(others[i].name) != length || strncmp(word, others[i].name, length) != 0) {
      continue;
    }
    done = others[i].read(equals + 1, others[i].value);
    return done == 0 ? 0 : EFS_SITE_BAD;
  }
  return EFS_SITE_UNKNOWN;
}

/* Every task reads the settings, so the errors go only to the node's log, and not into a job's
 * output. */
static void tell(const char* word, int problem) {
  const spank_context_t context = spank_context();
  const char* what = problem == EFS_SITE_BAD ? "bad value in" : "unknown argument";
  if (context == S_CTX_REMOTE) {
    slurm_verbose("efs: plugstack.conf: %s \"%s\"; see spank_efs(8)", what, word);
  } else {
    slurm_error("efs: plugstack.conf: %s \"%s\"; see spank_efs(8)", what, word);
  }
}

int efs_read_site(struct efs_site* site, int count, char** words) {
  int i, worst = 0;
  memset(site, 0, sizeof *site);
  read_node(site->node);
  efs_copy(site->efs, EFS_PATH, "efs");
  efs_copy(site->state, EFS_PATH, "/run/efs-slurm");
  efs_copy(site->run, EFS_PATH, EFS_USUAL_RUN);
  efs_copy(site->mount, EFS_PATH, "/run/efs-jobs");
  efs_copy(site->scontrol, EFS_PATH, "scontrol");
  site->poll = 5;
  site->plan = 1;
  site->keep = 24;
  site->output = 1;
  site->watch = 60;
  for (i = 0; i < count; ++i) {
    const int problem = read_word(site, words[i]);
    if (problem != 0) {
      tell(words[i], problem);
    }
    if (problem > worst) {
      worst = problem;
    }
  }
  return worst;
}

void efs_slurm_program(const struct efs_site* site, const char* name, char* path) {
  const char* slash = strrchr(site->scontrol, '/');
  const int is_beside = slash != NULL &&
                        efs_format(path, EFS_PATH, "%.*s/%s", (int)(slash - site->scontrol),
                                   site->scontrol, name) == 0 &&
                        access(path, X_OK) == 0;
  if (!is_beside) {
    efs_copy(path, EFS_PATH, name);
  }
}
