/* SPDX-License-Identifier: BSD-3-Clause */
/* Directives in batch scripts (conf/slurm/job_submit.lua), if the site has set directives=yes.
 * slurmctld has read the directives and marked the job with an AdminComment. It has appended the
 * resulting job file to the script, as comments. The script belongs to the user, so the user may
 * have written such comments too. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "efs_plugin.h"

#define MARK "#EFS| "

int efs_has_directives(const struct efs_site* site, const struct efs_job* job) {
  char comment[256];
  const int known = efs_admin_comment(site, job->id, comment, sizeof comment);
  return known != 1 ? known : strncmp(comment, EFS_DIRECTIVES, strlen(EFS_DIRECTIVES)) == 0;
}

/* Rejects a line that is longer than any that the directives can make; the rest of that line is
 * not a line. */
static int read_marked_lines(FILE* script, char* text, size_t size) {
  char line[2 * EFS_PATH * 4];
  size_t length = 0;
  int begins = 1;
  while (fgets(line, sizeof line, script) != NULL) {
    const size_t more = strlen(line);
    const int is_marked = begins && strncmp(line, MARK, strlen(MARK)) == 0;
    begins = more > 0 && line[more - 1] == '\n';
    if (!is_marked) {
      continue;
    }
    if (!begins && !feof(script)) {
      return -1; /* never return half a line */
    }
    if (length + more >= size) {
      return -1;
    }
    memcpy(text + length, line + strlen(MARK), more - strlen(MARK) + 1);
    length += more - strlen(MARK);
  }
  return length > 0 ? 0 : -1;
}

int efs_read_directives(const struct efs_site* site, const struct efs_job* job, char* text,
                        size_t size) {
  static struct efs_outcome outcome;
  char id[32], path[2 * EFS_PATH];
  const char* words[] = {site->scontrol, "write", "batch_script", id, path, NULL};
  FILE* script;
  mode_t before;
  int good;
  efs_format(id, sizeof id, "%u", job->id);
  if (efs_format(path, sizeof path, "%s/script", job->directory) != 0) {
    return -1;
  }
  unlink(path);
  before = umask(077); /* a script may contain private data */
  efs_run(words, NULL, 60, &outcome);
  umask(before);
  script = outcome.code == 0 ? fopen(path, "re") : NULL;
  good = script == NULL ? 1 : read_marked_lines(script, text, size);
  if (script != NULL) {
    fclose(script);
  }
  unlink(path);
  return good;
}
