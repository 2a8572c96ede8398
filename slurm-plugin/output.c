/* SPDX-License-Identifier: BSD-3-Clause */
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

struct ending {
  const struct efs_job* job;
  const struct efs_end* end;
  unsigned node;
  const char* line;
};

/* Finds the number that a pattern means. Returns -1 if the pattern means none. */
static int number_of(const struct ending* ending, char pattern, unsigned* number) {
  const struct efs_end* end = ending->end;
  *number = ending->job->id;
  switch (pattern) {
    case 'A':
      if (end->array[0] != '\0') {
        *number = (unsigned)strtoul(end->array, NULL, 10);
      }
      return 0;
    case 'a':
      *number = (unsigned)strtoul(end->task, NULL, 10);
      return end->task[0] == '\0' ? -1 : 0;
    case 'J':
    case 'j': return 0;
    case 'n': *number = ending->node; return 0;
    case 't': *number = 0; return 0;
    default: return -1;
  }
}

/* Replaces a pattern as Slurm does, with zeros before a number up to `width`. Returns -1 for an
 * unknown pattern. */
static int replace(const struct ending* ending, char pattern, int width, char* value, size_t size) {
  const struct passwd* user;
  unsigned number;
  if (number_of(ending, pattern, &number) == 0) {
    return efs_format(value, size, "%0*u", width, number);
  }
  switch (pattern) {
    case 'x': return efs_copy(value, size, ending->end->name);
    case '%': return efs_copy(value, size, "%");
    case 'u':
      user = getpwuid(ending->job->uid);
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

/* Writes the directory, with a slash, of a relative path of the output; "" for an absolute one.
 * Returns -1 if it is not known. */
static int begin_path(const struct efs_end* end, char* path, size_t size) {
  path[0] = '\0';
  if (end->output[0] == '/') {
    return 0;
  }
  return end->directory[0] == '/' ? efs_format(path, size, "%s/", end->directory) : -1;
}

/* Replaces the pattern at `*from`, which is a percent sign, and on return the pattern's end. */
static int replace_at(const struct ending* ending, const char** from, char* value, size_t size) {
  char* word = NULL;
  const long width = strtol(*from + 1, &word, 10);
  *from = word;
  return width < 0 || width > 10 ? -1 : replace(ending, *word, (int)width, value, size);
}

/* Finds the path of the output, as the job's step opened it. Returns -1 if it cannot be known. */
static int expand(const struct ending* ending, char* path, size_t size) {
  const char* from = ending->end->output;
  size_t n;
  if (from[0] == '\0' || strchr(from, '\\') != NULL || begin_path(ending->end, path, size) != 0) {
    return -1;
  }
  n = strlen(path);
  for (; *from != '\0'; ++from) {
    char value[EFS_PATH] = {*from, '\0'};
    if (*from == '%' && replace_at(ending, &from, value, sizeof value) != 0) {
      return -1;
    }
    if (n + strlen(value) >= size) {
      return -1;
    }
    memcpy(path + n, value, strlen(value) + 1);
    n += strlen(value);
  }
  return 0;
}

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
  if (expand(ending, path, sizeof path) != 0 || become_user(ending->job) != 0) {
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
    slurm_verbose("efs: job %u: no line about its end could be written to its output %s", job->id,
                  end->output);
  }
}

/* In a large job, only the first node and nodes with trouble report. */
static int is_of_interest(unsigned node, unsigned nodes, int is_trouble) {
  return is_trouble || node == 0 || nodes <= EACH_TELLS;
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
  if (!is_of_interest(node, nodes, is_trouble) || efs_ask_end(site, job->id, &end) != 1) {
    return;
  }
  if (end.array[0] != '\0') {
    efs_publish_task(site, job, end.array, end.task);
  }
  if (is_told) {
    append(site, job, node, &end, text);
  }
}
