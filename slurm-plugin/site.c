/* The site's settings, from plugstack.conf. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "efs_plugin.h"

struct key {
  const char *name;
  char *value;
};

/* %n, which several slurmd on one host need, becomes the node's name. */
static int expand(const char *from, const char *node, char *to) {
  size_t length = 0;
  const size_t node_length = strlen(node);
  for (; *from != '\0'; ++from) {
    if (from[0] == '%' && from[1] == 'n') {
      if (length + node_length >= EFS_PATH) return -1;
      memcpy(to + length, node, node_length);
      length += node_length;
      ++from;
    } else {
      if (length + 1 >= EFS_PATH) return -1;
      to[length++] = *from;
    }
  }
  to[length] = '\0';
  return 0;
}

static void read_node(char *node) {
  const char *given = getenv("SLURMD_NODENAME");
  if (given != NULL && strchr(given, '/') == NULL && efs_copy(node, EFS_PATH, given) == 0 && node[0] != '\0' && node[0] != '.') return;
  if (gethostname(node, 256) != 0) node[0] = '\0';
  node[255] = '\0';
  node[strcspn(node, ".")] = '\0'; /* as slurmd does */
}

int efs_read_site(struct efs_site *site, int count, char **words) {
  const struct key keys[] = {{"efs", site->efs},       {"state", site->state}, {"run", site->run}, {"mount", site->mount}, {"shared", site->shared},
                             {"queue", site->queue},   {"view", site->view},   {"scontrol", site->scontrol}, {"mail", site->mail}};
  int i;
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
  for (i = 0; i < count; ++i) {
    const char *equals = strchr(words[i], '=');
    const size_t length = equals == NULL ? 0 : (size_t)(equals - words[i]);
    size_t k;
    int known = 0;
    for (k = 0; equals != NULL && k < sizeof keys / sizeof keys[0]; ++k) {
      if (strlen(keys[k].name) != length || strncmp(words[i], keys[k].name, length) != 0) continue;
      known = expand(equals + 1, site->node, keys[k].value) == 0;
    }
    if (strncmp(words[i], "poll=", 5) == 0) known = (site->poll = atoi(words[i] + 5)) > 0;
    if (strncmp(words[i], "plan=", 5) == 0) known = (site->plan = strcmp(words[i] + 5, "no") != 0) || 1;
    if (strncmp(words[i], "directives=", 11) == 0) known = (site->directives = strcmp(words[i] + 11, "yes") == 0) || strcmp(words[i] + 11, "no") == 0;
    if (strncmp(words[i], "keep=", 5) == 0) known = (site->keep = atoi(words[i] + 5)) > 0 || strcmp(words[i] + 5, "no") == 0;
    if (known) continue;
    slurm_error("efs: plugstack.conf: bad argument \"%s\"; see spank_efs(8)", words[i]);
    return -1;
  }
  return 0;
}

void efs_slurm_program(const struct efs_site *site, const char *name, char *path) {
  const char *slash = strrchr(site->scontrol, '/');
  const int is_beside = slash != NULL && efs_format(path, EFS_PATH, "%.*s/%s", (int)(slash - site->scontrol), site->scontrol, name) == 0 && access(path, X_OK) == 0;
  if (!is_beside) efs_copy(path, EFS_PATH, name);
}
