/* SPDX-License-Identifier: BSD-3-Clause */
/* The dispatcher: selects the function for each hook and context. The plugin exports only the
 * symbols that Slurm looks for. */
#include <stdlib.h>

#include "efs_plugin.h"

#define EXPORT __attribute__((visibility("default")))

/* The declarations of the macro SPANK_PLUGIN, with visibility. */
EXPORT const char plugin_name[] = "efs";
EXPORT const char plugin_type[] = "spank";
EXPORT const unsigned int plugin_version = SLURM_VERSION_NUMBER;
EXPORT const unsigned int spank_plugin_version = 1;

/* For `efs doctor`: the release of Slurm that this plugin was built for. */
#define TEXT_OF(number) #number
#define TEXT_OF_NUMBER(number) TEXT_OF(number)
static const char built_for[] __attribute__((used)) =
    "efs-built-for-slurm=" TEXT_OF_NUMBER(SLURM_VERSION_NUMBER);

EXPORT int slurm_spank_init(spank_t spank, int count, char** words) {
  struct efs_site site;
  const spank_context_t context = spank_context();
  if (context == S_CTX_SLURMD) {
    efs_read_site(&site, count, words);
    efs_sweep(&site);
    return 0;
  }
  efs_note_inherited();
  efs_register_options(spank);
  return 0;
}

EXPORT int slurm_spank_init_post_opt(spank_t spank, int count, char** words) {
  struct efs_site site;
  const spank_context_t context = spank_context();
  const int is_step = context == S_CTX_LOCAL && getenv("SLURM_JOB_ID") != NULL;
  if (is_step) {
    return efs_check_step();
  }
  if (context != S_CTX_ALLOCATOR && context != S_CTX_LOCAL) {
    return 0;
  }
  if (efs_read_site(&site, count, words) != 0) {
    return efs_is_wanted() ? -1 : 0;
  }
  return efs_allocator_check(spank, &site);
}

/* Never fails, because a failing prolog drains the node. Errors are recorded, and the tasks
 * fail. If a setting of the site is invalid, efs is not started and the tasks fail too. */
EXPORT int slurm_spank_job_prolog(spank_t spank, int count, char** words) {
  struct efs_site site;
  efs_begin_hook();
  if (efs_read_site(&site, count, words) != EFS_SITE_BAD) {
    efs_prolog(spank, &site);
  }
  return 0;
}

/* Runs in any case: a started instance must end. */
EXPORT int slurm_spank_job_epilog(spank_t spank, int count, char** words) {
  struct efs_site site;
  efs_begin_hook();
  efs_read_site(&site, count, words);
  efs_epilog(spank, &site);
  return 0;
}

EXPORT int slurm_spank_user_init(spank_t spank, int count, char** words) {
  struct efs_site site;
  efs_read_site(&site, count, words);
  return efs_user_init(spank, &site);
}

EXPORT int slurm_spank_task_init(spank_t spank, int count, char** words) {
  struct efs_site site;
  efs_read_site(&site, count, words);
  return efs_task_init(spank, &site);
}

EXPORT int slurm_spank_task_init_privileged(spank_t spank, int count, char** words) {
  struct efs_site site;
  return efs_task_init_privileged(spank, &site, efs_read_site(&site, count, words) == EFS_SITE_BAD);
}
