/* SPDX-License-Identifier: BSD-3-Clause */
/* A job file from the options of sbatch alone. */
#include <slurm/slurm.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "efs_plugin.h"

static void append(struct efs_text* text, const char* words) {
  const size_t length = strlen(words);
  if (text->length + length + 1 > text->size) {
    text->full = 1;
    return;
  }
  memcpy(text->bytes + text->length, words, length + 1);
  text->length += length;
}

static void append_quoted(struct efs_text* text, const char* words) {
  char quoted[20 * EFS_PATH];
  efs_json_quote(words, quoted, sizeof quoted); /* a JSON string is valid YAML */
  append(text, quoted);
}

/* Escapes efs' patterns by doubling their first character. */
static void escape(const char* words, char* escaped, size_t size) {
  size_t n = 0;
  for (; *words != '\0' && n + 3 < size; ++words) {
    if (*words == '%' || *words == '$') {
      escaped[n++] = *words;
    }
    escaped[n++] = *words;
  }
  escaped[n] = '\0';
}

static void append_escaped(struct efs_text* text, const char* words) {
  char escaped[2 * EFS_PATH];
  escape(words, escaped, sizeof escaped);
  append_quoted(text, escaped);
}

/* Splits SRC[:DST]; SRC cannot contain a colon. */
static const char* split(const char* word, char* path) {
  const char* colon = strchr(word, ':');
  if (colon == NULL) {
    return efs_copy(path, EFS_PATH, word) == 0 ? "" : NULL;
  }
  if ((size_t)(colon - word) >= EFS_PATH) {
    return NULL;
  }
  memcpy(path, word, (size_t)(colon - word));
  path[colon - word] = '\0';
  return colon + 1;
}

static int is_renamed(const char* word) {
  char path[EFS_PATH];
  const char* to = split(word, path);
  return to != NULL && *to != '\0' && strcmp(to, path) != 0;
}

static int is_below(const char* path, const char* top) {
  const size_t length = strlen(top);
  return strncmp(path, top, length) == 0 && path[length] == '/';
}

/* Removes the last component from the absolute path of `n` bytes; returns the rest's length. */
static size_t length_of_parent(const char* path, size_t n) {
  while (n > 0 && path[--n] != '/') {
  }
  return n;
}

/* Makes a path absolute, without "." and ".."; "" is the root. */
static int make_absolute(const char* here, const char* path, char* to) {
  char whole[2 * EFS_PATH];
  const char* p;
  size_t n = 0, length;
  if (efs_format(whole, sizeof whole, "%s/%s", path[0] == '/' ? "" : here, path) != 0) {
    return -1;
  }
  for (p = whole + strspn(whole, "/"); *p != '\0'; p += length, p += strspn(p, "/")) {
    length = strcspn(p, "/");
    if (length == 1 && p[0] == '.') {
      continue;
    }
    if (length == 2 && p[0] == '.' && p[1] == '.') {
      n = length_of_parent(to, n);
      continue;
    }
    if (n + length + 2 > EFS_PATH) {
      return -1;
    }
    to[n++] = '/';
    memcpy(to + n, p, length);
    n += length;
  }
  to[n] = '\0';
  return 0;
}

/* Only efs can resolve such a path. */
static int is_variable(const char* path) {
  return path[0] == '$' || path[0] == '~';
}

/* Finds the path of an input; "" if it is not known here. */
static void find_input(const char* word, const char* here, char* path) {
  char source[EFS_PATH];
  if (split(word, source) == NULL || is_variable(source) ||
      make_absolute(here, source, path) != 0) {
    path[0] = '\0';
  }
}

static int is_elsewhere(const char* path, const char* here) {
  return path[0] != '\0' && strcmp(path, here) != 0 && !is_below(path, here);
}

/* Returns whether an input is known to be outside of the directory of the submission. */
static int has_input_elsewhere(const struct efs_options* given, const char* here) {
  char path[EFS_PATH];
  int i;
  for (i = 0; i < given->ins; ++i) {
    find_input(given->in[i], here, path);
    if (is_elsewhere(path, here)) {
      return 1;
    }
  }
  return 0;
}

/* root-dir is the directory of the submission; or, if inputs are elsewhere, their deepest common
 * directory. */
static int find_root(const struct efs_options* given, const char* here, char* root) {
  char path[EFS_PATH];
  int i;
  efs_copy(root, EFS_PATH, here);
  if (!has_input_elsewhere(given, here)) {
    return 0;
  }
  for (i = 0; i < given->ins; ++i) {
    find_input(given->in[i], here, path);
    if (path[0] == '\0') {
      continue;
    }
    if (!is_renamed(given->in[i]) && !is_below(path, here)) {
      slurm_error(
          "efs: --efs-stage-in=%s is not below the directory of the submission, %s; name its place "
          "on the mount: --efs-stage-in=%s:DST",
          given->in[i], here, given->in[i]);
      return -1;
    }
    if (i == 0) {
      efs_copy(root, EFS_PATH, path);
    }
    while (root[0] != '\0' && !is_below(path, root)) {
      *strrchr(root, '/') = '\0';
    }
  }
  if (root[0] != '\0') {
    return 0;
  }
  slurm_error("efs: --efs-stage-in: the inputs have no directory above them all but /");
  return -1;
}

/* Appends SRC[:DST] of a job whose root-dir is the directory of the submission. */
static int append_input(struct efs_text* text, const char* word) {
  char path[EFS_PATH];
  const char* to = split(word, path);
  if (to == NULL) {
    return -1;
  }
  append(text, "  - path: ");
  append_quoted(text, path);
  if (is_renamed(word)) {
    append(text, "\n    as: ");
  }
  if (is_renamed(word)) {
    append_quoted(text, to);
  }
  append(text, "\n");
  return 0;
}

/* For another root-dir: without DST, the input keeps its place below the directory of the
 * submission. */
static int append_far_input(struct efs_text* text, const char* word, const char* here) {
  char path[EFS_PATH], place[EFS_PATH], above[2 * EFS_PATH], whole[3 * EFS_PATH];
  const char* to = split(word, path);
  int is_whole;
  if (to == NULL) {
    return -1;
  }
  find_input(word, here, place);
  escape(here, above, sizeof above);
  is_whole = path[0] == '/' || is_variable(path);
  if (efs_format(whole, sizeof whole, "%s%s%s", is_whole ? "" : above, is_whole ? "" : "/", path) !=
      0) {
    return -1;
  }
  if (!is_renamed(word)) {
    to = is_below(place, here) ? place + strlen(here) + 1 : "";
  }
  append(text, "  - path: ");
  append_quoted(text, whole);
  if (*to != '\0') {
    append(text, "\n    as: ");
    append_quoted(text, to);
  }
  append(text, "\n");
  return 0;
}

static const char* leaf_of(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

/* Removes trailing slashes, except the one of "/". */
static void drop_slashes(char* path) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') {
    path[--n] = '\0';
  }
}

/* Removes `name` from the end of `path`. Returns -1 if the path does not end with it. */
static int cut_off(char* path, const char* name) {
  const size_t length = strlen(path), n = strlen(name);
  if (n == 0 || length < n || strcmp(path + length - n, name) != 0 ||
      (length > n && path[length - n - 1] != '/')) {
    return -1;
  }
  path[length - n] = '\0';
  if (length == n) {
    efs_copy(path, EFS_PATH, ".");
  }
  drop_slashes(path);
  return 0;
}

/* Returns whether DST belongs to this SRC alone. */
static int is_own(const struct efs_options* given, const char* word, const char* to) {
  char path[EFS_PATH];
  int i;
  for (i = 0; i < given->outs; ++i) {
    const char* other = split(given->out[i], path);
    if (given->out[i] != word && other != NULL && strcmp(other, to) == 0) {
      return 0;
    }
  }
  return 1;
}

static int is_directory(const char* here, const char* path) {
  char whole[EFS_PATH];
  struct stat st;
  return make_absolute(here, path, whole) == 0 && stat(whole, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Returns the path without "./" at its begin. */
static const char* without_dots(const char* path) {
  while (path[0] == '.' && path[1] == '/') {
    path += 1 + strspn(path + 1, "/");
  }
  return path;
}

/* Returns whether DST is the directory of several results, or may be one: only efs can resolve a
 * DST with variables. */
static int is_for_several(const struct efs_options* given, const char* word, const char* source,
                          const char* to) {
  return strpbrk(source, "*?[") != NULL || strpbrk(to, "$%~") != NULL || !is_own(given, word, to);
}

/* Splits the destination of SRC[:DST] into a directory and a name; "" if there is no DST. As
 * with cp, DST is a directory if it exists as one, ends in a slash, or is the DST of several
 * results; else it is the result's own path. (Only efs can resolve a DST with variables.) If DST
 * ends in SRC, it is the result's own path. */
static int find_place(const struct efs_options* given, const char* word, const char* here,
                      char* directory, char* name) {
  char path[EFS_PATH];
  const char *to = split(word, path), *source;
  const size_t length = to == NULL ? 0 : strlen(to);
  name[0] = '\0';
  if (to == NULL || efs_copy(directory, EFS_PATH, to) != 0) {
    return -1;
  }
  source = without_dots(path);
  drop_slashes(path);
  drop_slashes(directory);
  if (length == 0 || to[length - 1] == '/' || cut_off(directory, source) == 0) {
    return 0;
  }
  if (is_for_several(given, word, source, to) || is_directory(here, directory)) {
    return 0;
  }
  efs_copy(name, EFS_PATH, leaf_of(directory));
  return cut_off(directory, name);
}

static int is_same_directory(const char* here, const char* one, const char* other) {
  char first[EFS_PATH], second[EFS_PATH];
  if (is_variable(one) || is_variable(other)) {
    return strcmp(one, other) == 0;
  }
  return make_absolute(here, one, first) == 0 && make_absolute(here, other, second) == 0 &&
         strcmp(first, second) == 0;
}

/* Finds the directory of all results; "" if no DST is given. */
static int find_results(const struct efs_options* given, const char* here, char* results) {
  char directory[EFS_PATH], name[EFS_PATH];
  int i;
  results[0] = '\0';
  for (i = 0; i < given->outs; ++i) {
    if (find_place(given, given->out[i], here, directory, name) != 0) {
      return -1;
    }
    if (directory[0] == '\0') {
      continue;
    }
    if (results[0] != '\0' && !is_same_directory(here, results, directory)) {
      slurm_error("efs: --efs-stage-out: %s and %s: results of one job go into one directory",
                  results, directory);
      return -1;
    }
    efs_copy(results, EFS_PATH, directory);
  }
  return 0;
}

static int has_renamed_input(const struct efs_options* given) {
  int i;
  for (i = 0; i < given->ins; ++i) {
    if (is_renamed(given->in[i])) {
      return 1;
    }
  }
  return 0;
}

/* `results`: the directory of the results; "": the results replace the inputs. */
static void append_settings(struct efs_text* text, const char* root, const char* results,
                            int renamed) {
  append(text, "global-settings:\n  mount-dir: /efs\n  root-dir: ");
  append_escaped(text, root);
  if (results[0] != '\0') {
    append(text, "\n  results-dir: ");
    append_quoted(text, results);
  } else if (!renamed) {
    append(text, "\n  in-place: true\n");
  }
}

static int append_resources(struct efs_text* text, const struct efs_options* given,
                            const char* here, const char* root) {
  const int is_near = strcmp(root, here) == 0;
  int i;
  append(text, "\nresources:\n");
  for (i = 0; i < given->ins; ++i) {
    if ((is_near ? append_input(text, given->in[i]) : append_far_input(text, given->in[i], here)) !=
        0) {
      return -1;
    }
  }
  return 0;
}

static void append_output(struct efs_text* text, const struct efs_options* given, const char* word,
                          const char* here) {
  char path[EFS_PATH], place[EFS_PATH], name[EFS_PATH];
  split(word, path);
  append(text, "  - path: ");
  append_quoted(text, path);
  if (find_place(given, word, here, place, name) == 0 && name[0] != '\0') {
    append(text, "\n    as: ");
  }
  if (name[0] != '\0') {
    append_quoted(text, name);
  }
  append(text, "\n    inputs: true\n"); /* all named files are exported, also inputs */
}

static void append_outputs(struct efs_text* text, const struct efs_options* given,
                           const char* here) {
  int i;
  append(text, "outputs:\n");
  for (i = 0; i < given->outs; ++i) {
    append_output(text, given, given->out[i], here);
  }
  if (given->outs == 0) {
    append(text, "  - path: \"**\"\n    flags: temporary\n");
  }
}

static void append_capacity(struct efs_text* text, const char* capacity) {
  append(text, "backends:\n  - id: memory\n    capacity: ");
  append_quoted(text, capacity);
  append(text, "\n");
}

/* Returns whether the results' directory is root-dir. */
static int is_root(const char* here, const char* results, const char* root) {
  char path[EFS_PATH];
  return make_absolute(here, results, path) == 0 && strcmp(path, root) == 0;
}

/* Finds root-dir and the directory of the results; "" if the results replace the inputs. */
static int find_directories(const struct efs_options* given, const char* here, int renamed,
                            char* root, char* results) {
  if (find_results(given, here, results) != 0) {
    return -1;
  }
  if (renamed && results[0] == '\0' && given->outs > 0) {
    slurm_error(
        "efs: --efs-stage-in=SRC:DST: results cannot replace renamed inputs; say where they go: "
        "--efs-stage-out=SRC:DST");
    return -1;
  }
  if (find_root(given, here, root) != 0) {
    return -1;
  }
  if (results[0] != '\0' && !renamed && is_root(here, results, root)) {
    results[0] = '\0';
  }
  return 0;
}

int efs_make_job_file(const struct efs_options* given, struct efs_text* text) {
  char here[EFS_PATH], root[EFS_PATH], results[EFS_PATH];
  const int renamed = has_renamed_input(given);
  if (getcwd(here, sizeof here) == NULL) {
    slurm_error(
        "efs: the directory of the submission is unknown, or its path is longer than %d bytes; use "
        "a job file",
        EFS_PATH - 1);
    return -1;
  }
  if (find_directories(given, here, renamed, root, results) != 0) {
    return -1;
  }
  append_settings(text, root, results, renamed);
  if (append_resources(text, given, here, root) != 0) {
    return -1;
  }
  append_outputs(text, given, here);
  if (given->capacity[0] != '\0') {
    append_capacity(text, given->capacity);
  }
  return 0;
}
