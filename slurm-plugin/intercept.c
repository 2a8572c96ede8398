/* SPDX-License-Identifier: BSD-3-Clause */
/* --efs-intercept: libefs-intercept in LD_PRELOAD of the job's tasks, as `efs intercept` does it.
 * Programs of root, prologs and the plugin itself never get it. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "efs_plugin.h"

#define LARGEST_LIST 8192 /* bytes of LD_PRELOAD */

/* Finds the program as the other hooks do, which have no PATH. Resolves links. */
static int find_program(const struct efs_site* site, char program[PATH_MAX]) {
  static const char* const directories[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                            "/usr/bin",        "/sbin",          "/bin"};
  char path[EFS_PATH];
  size_t i;
  if (strchr(site->efs, '/') != NULL) {
    return realpath(site->efs, program) != NULL ? 0 : -1;
  }
  for (i = 0; i < sizeof directories / sizeof directories[0]; ++i) {
    if (efs_format(path, sizeof path, "%s/%s", directories[i], site->efs) == 0 &&
        access(path, X_OK) == 0) {
      return realpath(path, program) != NULL ? 0 : -1;
    }
  }
  return -1;
}

/* The library of the same installation, or of the same build. The loader separates the words of
 * LD_PRELOAD by colons and blanks. */
static int find_library(const struct efs_site* site, char library[EFS_PATH]) {
  static const char* const places[] = {"lib/efs/libefs-intercept.so", "lib/libefs-intercept.so"};
  char prefix[PATH_MAX];
  char* slash;
  size_t i;
  int up;
  if (find_program(site, prefix) != 0) {
    return -1;
  }
  for (up = 0; up < 2; ++up) {
    slash = strrchr(prefix, '/');
    if (slash == NULL) {
      return -1;
    }
    *slash = '\0';
  }
  for (i = 0; i < sizeof places / sizeof places[0]; ++i) {
    if (efs_format(library, EFS_PATH, "%s/%s", prefix, places[i]) == 0 &&
        access(library, R_OK) == 0) {
      return strpbrk(library, ": ") == NULL ? 0 : -1;
    }
  }
  return -1;
}

static int is_listed(const char* list, const char* library) {
  const size_t length = strlen(library);
  while (*list != '\0') {
    const size_t word = strcspn(list, ": ");
    if (word == length && strncmp(list, library, length) == 0) {
      return 1;
    }
    list += word;
    list += *list != '\0';
  }
  return 0;
}

void efs_preload(spank_t spank, const struct efs_site* site) {
  char library[EFS_PATH], before[LARGEST_LIST], list[LARGEST_LIST];
  spank_err_t known;
  if (!efs_given_options()->intercepts) {
    return;
  }
  if (find_library(site, library) != 0) {
    slurm_error(
        "efs: --efs-intercept has no effect on %s: libefs-intercept.so is not installed beside %s; "
        "tell the administrators",
        site->node, site->efs);
    return;
  }
  known = spank_getenv(spank, "LD_PRELOAD", before, sizeof before);
  if (known == ESPANK_ENV_NOEXIST || (known == ESPANK_SUCCESS && before[0] == '\0')) {
    spank_setenv(spank, "LD_PRELOAD", library, 1);
    return;
  }
  if (known == ESPANK_SUCCESS && is_listed(before, library)) {
    return; /* a step has it from its job */
  }
  if (known != ESPANK_SUCCESS || efs_format(list, sizeof list, "%s:%s", before, library) != 0) {
    slurm_error("efs: --efs-intercept has no effect: LD_PRELOAD of the job is too long");
    return;
  }
  spank_setenv(spank, "LD_PRELOAD", list, 1);
}
