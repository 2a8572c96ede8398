/* Writes the last line of a batch job's output, about its stage-out. Slurm opened that file as
 * the user, and so does this file: in a child that runs as the user, only for an existing
 * regular file, and with a time limit, because the file system may hang. */
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "efs_plugin.h"

#define ANSWER_TIME 20 /* seconds to wait for the output's file system */
#define LONGEST \
  900 /* bytes of a line; a longer line loses its middle, because its end says what to do */
#define END 300
#define EACH_TELLS \
  16 /* nodes: in a larger job, only the first node and nodes with trouble report */

/* Replaces a pattern as Slurm does, with zeros before a number up to `width`. Returns -1 for an
 * unknown pattern. */
static int replace(const struct efs_job* job, const struct efs_end* end, unsigned node,
                   char pattern, int width, char* value, size_t size) {
  const struct passwd* user;
  switch (pattern) {
    case 'A':
      return efs_format(value, size, "%0*u", width,
                        end->array[0] != '\0' ? (unsigned)strtoul(end->array, NULL, 10) : job->id);
    case 'a':
      return end->task[0] == '\0'
                 ? -1
                 : efs_format(value, size, "%0*u", width, (unsigned)strtoul(end->task, NULL, 10));
    case 'J':
    case 'j': return efs_format(value, size, "%0*u", width, job->id);
    case 'n': return efs_format(value, size, "%0*u", width, node);
    case 't': return efs_format(value, size, "%0*u", width, 0U);
    case 'x': return efs_copy(value, size, end->name);
    case '%': return efs_copy(value, size, "%");
    case 'u':
      user = getpwuid(job->uid);
      return user == NULL ? -1 : efs_copy(value, size, user->pw_name);
    case 'N':
      if (gethostname(value, size) != 0) {
        return -1;
      }
      value[size - 1] = '\0';
      value[strcspn(value, ".")] = '\0';
      return 0;
    default: return -1;
  }
}

/* Finds the path of the output, as the job's step opened it. Returns -1 if it cannot be known. */
static int expand(const struct efs_job* job, const struct efs_end* end, unsigned node, char* path,
                  size_t size) {
  const char* from = end->output;
  size_t n = 0;
  if (from[0] == '\0' || strchr(from, '\\') != NULL) {
    return -1;
  }
  if (from[0] != '/' &&
      (end->directory[0] != '/' || efs_format(path, size, "%s/", end->directory) != 0)) {
    return -1;
  }
  if (from[0] != '/') {
    n = strlen(path);
  }
  for (; *from != '\0'; ++from) {
    char value[EFS_PATH] = {*from, '\0'}, *word = NULL;
    const long width = *from == '%' ? strtol(from + 1, &word, 10) : 0;
    if (*from == '%') {
      if (width < 0 || width > 10 ||
          replace(job, end, node, *word, (int)width, value, sizeof value) != 0) {
        return -1;
      }
      from = word;
    }
    if (n + strlen(value) >= size) {
      return -1;
    }
    memcpy(path + n, value, strlen(value) + 1);
    n += strlen(value);
  }
  return 0;
}

struct ending {
  const struct efs_job* job;
  const struct efs_end* end;
  unsigned node;
  const char* line;
};

/* Groups of the user may have access to the file too. */
static int become_user(const struct efs_job* job) {
  const struct passwd* user = getpwuid(job->uid);
  if (user == NULL || initgroups(user->pw_name, user->pw_gid) != 0) {
    return -1;
  }
  return setresgid(user->pw_gid, user->pw_gid, user->pw_gid) == 0 &&
                 setresuid(job->uid, job->uid, job->uid) == 0
             ? 0
             : -1;
}

static int append_as_user(void* what, int out) {
  const struct ending* ending = what;
  char path[2 * EFS_TEXT];
  struct stat st;
  const size_t length = strlen(ending->line);
  int fd;
  (void)out;
  if (expand(ending->job, ending->end, ending->node, path, sizeof path) != 0 ||
      become_user(ending->job) != 0) {
    return 1;
  }
  fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    return 1;
  }
  return write(fd, ending->line, length) == (ssize_t)length ? 0 : 1;
}

static void append(const struct efs_site* site, const struct efs_job* job, unsigned node,
                   const struct efs_end* end, const char* text) {
  char line[EFS_TEXT];
  struct ending ending = {job, end, node, line};
  if (end->output[0] == '\0') {
    return;
  }
  if (strlen(text) <= LONGEST) {
    efs_format(line, sizeof line - 1, "efs on %s: %s", site->node, text);
  } else {
    efs_format(line, sizeof line - 1, "efs on %s: %.*s ... %s", site->node, LONGEST - END, text,
               text + strlen(text) - END);
  }
  efs_one_line(line);
  strcat(line, "\n");
  if (efs_in_child(append_as_user, &ending, ANSWER_TIME, NULL, 0) != 0) {
    slurm_verbose("efs: job %u: its output %s takes no line of how it ended", job->id, end->output);
  }
}

void efs_tell_end(const struct efs_site* site, const struct efs_job* job, const char* text,
                  int is_trouble) {
  static struct efs_end end;
  unsigned node = 0, nodes = 1;
  const int is_told = text != NULL && site->output;
  efs_read_place(job, &node, &nodes);
  if (efs_seconds_left() <= ANSWER_TIME || (!is_told && site->shared[0] == '\0')) {
    return;
  }
  if ((!is_trouble && node != 0 && nodes > EACH_TELLS) || efs_ask_end(site, job->id, &end) != 1) {
    return;
  }
  if (end.array[0] != '\0') {
    efs_publish_task(site, job, end.array, end.task);
  }
  if (is_told) {
    append(site, job, node, &end, text);
  }
}
