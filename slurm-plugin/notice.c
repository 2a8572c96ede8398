/* Telling people and other nodes: the AdminComment of the job, and a record per node in the site's shared directory,
 *   SHARED/jobs/JOB.RESTART/NODE    one line of JSON: node, job, state, text, time
 * which belongs to the account that owns SHARED. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "efs_plugin.h"

void efs_comment(const struct efs_site *site, const struct efs_job *job, const char *text) {
  static struct efs_outcome outcome;
  char id[48], comment[EFS_TEXT], flags[160];
  int marked;
  const char *words[] = {site->scontrol, "update", id, comment, NULL};
  efs_format(id, sizeof id, "JobId=%u", job->id);
  marked = efs_read_file(job->directory, "flags", flags, sizeof flags) == 0 && efs_has_word(flags, "directives"); /* the mark stays for other nodes and runs */
  efs_format(comment, sizeof comment, "AdminComment=%sefs on %s: %.1500s", marked ? EFS_DIRECTIVES "; " : "", site->node, text);
  efs_one_line(comment);
  efs_run(words, NULL, 30, NULL, NULL, &outcome);
  if (outcome.code != 0) slurm_info("efs: job %u: no admin comment: %.200s", job->id, outcome.text);
}

static int job_directory(const struct efs_site *site, const struct efs_job *job, char *path) {
  return efs_format(path, EFS_PATH, "%.400s/jobs/%u.%u", site->shared, job->id, job->restart);
}

/* In a child that has become the owner of the shared directory: root may be nobody on the PFS. */
static void publish_as_owner(const struct efs_site *site, const struct efs_job *job, const char *line) {
  char jobs[EFS_PATH], directory[EFS_PATH];
  struct stat st;
  if (stat(site->shared, &st) != 0 || (st.st_mode & 022) != 0 || (job->uid != 0 && st.st_uid == job->uid)) _exit(1);
  if (setgroups(0, NULL) != 0 || setresgid(st.st_gid, st.st_gid, st.st_gid) != 0 || setresuid(st.st_uid, st.st_uid, st.st_uid) != 0) _exit(1);
  if (efs_format(jobs, EFS_PATH, "%.400s/jobs", site->shared) != 0 || job_directory(site, job, directory) != 0) _exit(1);
  if ((mkdir(jobs, 0755) != 0 && errno != EEXIST) || (mkdir(directory, 0755) != 0 && errno != EEXIST)) _exit(1);
  _exit(efs_write_file(directory, site->node, line, 0644, geteuid()) == 0 ? 0 : 1);
}

void efs_publish(const struct efs_site *site, const struct efs_job *job, const char *state, const char *text) {
  char quoted[EFS_TEXT], line[2 * EFS_TEXT];
  int status = 0;
  pid_t child;
  if (site->shared[0] == '\0') return;
  efs_json_quote(text, quoted, sizeof quoted);
  if (efs_format(line, sizeof line, "{\"node\":\"%s\",\"job\":%u,\"restart\":%u,\"uid\":%u,\"state\":\"%s\",\"text\":%s,\"time\":%lld}\n", site->node, job->id, job->restart, (unsigned)job->uid, state, quoted, (long long)time(NULL)) != 0) return;
  child = fork();
  if (child == 0) publish_as_owner(site, job, line);
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    slurm_error("efs: job %u: %s cannot take the state of this node: it must belong to root or an account of the site's and be closed to others", job->id, site->shared);
}

int efs_find_failure(const struct efs_site *site, const struct efs_job *job, char *text, size_t size) {
  char path[EFS_PATH], line[2 * EFS_TEXT], state[32];
  const struct dirent *entry;
  DIR *directory;
  int found = 0;
  if (site->shared[0] == '\0' || job_directory(site, job, path) != 0) return 0;
  directory = opendir(path);
  while (!found && directory != NULL && (entry = readdir(directory)) != NULL) {
    char said[EFS_TEXT];
    if (entry->d_name[0] == '.' || efs_read_file(path, entry->d_name, line, sizeof line) != 0) continue;
    if (efs_json_text(line, "state", state, sizeof state) != 0 || strcmp(state, "failed") != 0) continue;
    if (efs_json_text(line, "text", said, sizeof said) != 0) said[0] = '\0';
    efs_one_line(said);
    efs_format(text, size, "%.255s: %s", entry->d_name, said);
    found = 1;
  }
  if (directory != NULL) closedir(directory);
  return found;
}

/* scontrol shows all tasks of an array to whom asks for the one that has the array's number: one line each. */
static char *record_of(char *text, uint32_t id) {
  char begin[32], *line = text;
  efs_format(begin, sizeof begin, "JobId=%u ", id);
  while (line != NULL && strncmp(line, begin, strlen(begin)) != 0) {
    line = strchr(line, '\n');
    if (line != NULL) ++line;
  }
  if (line != NULL) line[strcspn(line, "\n")] = '\0';
  return line;
}

int efs_job_is_over(const struct efs_site *site, uint32_t id) {
  static struct efs_outcome outcome;
  static const char *const alive[] = {"JobState=RUNNING", "JobState=CONFIGURING", "JobState=SUSPENDED", "JobState=STOPPED", "JobState=RESIZING", "JobState=SIGNALING"};
  char number[32];
  const char *words[] = {site->scontrol, "-o", "show", "job", number, NULL};
  const char *record;
  size_t i;
  efs_format(number, sizeof number, "%u", id);
  efs_run(words, NULL, 60, NULL, NULL, &outcome);
  if (strstr(outcome.text, "Invalid job id") != NULL) return 1;
  record = outcome.code == 0 ? record_of(outcome.text, id) : NULL;
  if (record == NULL || strstr(record, "JobState=") == NULL) return 0; /* nobody can say: then it runs */
  for (i = 0; i < sizeof alive / sizeof alive[0]; ++i)
    if (strstr(record, alive[i]) != NULL) return 0;
  return 1;
}
