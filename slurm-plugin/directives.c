/* Directives in batch scripts (conf/slurm/job_submit.lua), where the site has set directives=yes:
 * slurmctld has read them, marked the job with an AdminComment, and put the job file that comes of
 * them at the end of the script, as comments. The script is the user's, and so is what he may have
 * put there himself. */
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

/* A line that is longer than all that the directives can make is none of ours, and its rest is no
 * line. */
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
      return -1; /* never half a line */
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
  before = umask(077); /* a script may hold what is nobody else's business */
  efs_run(words, NULL, 60, NULL, NULL, &outcome);
  umask(before);
  script = outcome.code == 0 ? fopen(path, "re") : NULL;
  good = script == NULL ? 1 : read_marked_lines(script, text, size);
  if (script != NULL) {
    fclose(script);
  }
  unlink(path);
  return good;
}
