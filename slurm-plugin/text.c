/* SPDX-License-Identifier: BSD-3-Clause */
/* Strings of bounded length, and the subset of JSON that a line of `efs --json` needs. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "efs_plugin.h"

int efs_copy(char* to, size_t size, const char* from) {
  const size_t length = strlen(from);
  to[0] = '\0';
  if (length >= size) {
    return -1;
  }
  memcpy(to, from, length + 1);
  return 0;
}

int efs_format(char* to, size_t size, const char* format, ...) {
  va_list arguments;
  int length;
  va_start(arguments, format);
  length = vsnprintf(to, size, format, arguments);
  va_end(arguments);
  return length >= 0 && (size_t)length < size ? 0 : -1;
}

/* Returns the character that an escape sequence means. `*p` is behind the backslash, and on
 * return at the last character of the sequence. */
static char unescaped(const char** p) {
  const char c = **p;
  if (c == 'u' && strlen(*p) > 4) {
    *p += 4;
  }
  return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'u' ? '?' : c;
}

/* Returns the end of the JSON string that begins before `p`. Stores its unescaped text in
 * `value` (may be NULL). */
static const char* skip_string(const char* p, char* value, size_t size) {
  size_t length = 0;
  for (++p; *p != '\0' && *p != '"'; ++p) {
    char c = *p;
    if (c == '\\') {
      ++p;
      if (*p == '\0') {
        break;
      }
      c = unescaped(&p);
    }
    if (value != NULL && length + 1 < size) {
      value[length++] = c;
    }
  }
  if (value != NULL && size > 0) {
    value[length] = '\0';
  }
  return *p == '"' ? p + 1 : p;
}

/* Returns the change of the depth at this character of JSON. */
static int depth_change(char c) {
  return c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
}

/* Finds the value of a member of the outermost object; NULL if there is none. */
static const char* find_member(const char* json, const char* key) {
  char name[64];
  int depth = 0;
  const char* p = strchr(json, '{');
  if (p == NULL) {
    return NULL;
  }
  while (*p != '\0') {
    depth += depth_change(*p);
    if (depth == 0) {
      return NULL;
    }
    if (*p != '"') {
      ++p;
      continue;
    }
    p = skip_string(p, name, sizeof name);
    p += strspn(p, " \t\n");
    if (*p != ':') {
      continue;
    }
    p += 1 + strspn(p + 1, " \t\n");
    if (depth == 1 && strcmp(name, key) == 0) {
      return p;
    }
    if (*p == '"') {
      p = skip_string(p, NULL, 0);
    }
  }
  return NULL;
}

/* Returns the end of the value at `p`; NULL if it is truncated. */
static const char* skip_value(const char* p) {
  int depth = 0;
  for (; *p != '\0'; ++p) {
    const int change = depth_change(*p);
    if (depth == 0 && (change < 0 || *p == ',' || isspace((unsigned char)*p))) {
      return p;
    }
    depth += change;
    if (*p == '"') {
      p = skip_string(p, NULL, 0);
      if (p[-1] != '"') {
        return NULL;
      }
      --p;
    }
  }
  return NULL;
}

static int copy_value(const char* p, char* value, size_t size, const char** end) {
  *end = skip_value(p);
  if (*end == NULL || *end == p || (size_t)(*end - p) >= size) {
    return -1;
  }
  memcpy(value, p, (size_t)(*end - p));
  value[*end - p] = '\0';
  return 0;
}

int efs_json_text(const char* json, const char* key, char* value, size_t size) {
  const char* p = find_member(json, key);
  if (p == NULL || *p != '"') {
    return -1;
  }
  skip_string(p, value, size);
  return 0;
}

int efs_json_value(const char* json, const char* key, char* value, size_t size) {
  const char *p = find_member(json, key), *end;
  return p == NULL ? -1 : copy_value(p, value, size, &end);
}

int efs_json_item(const char* json, const char* key, unsigned number, char* value, size_t size) {
  const char *p = find_member(json, key), *end;
  if (p == NULL || *p != '[') {
    return -1;
  }
  for (++p;; p = end + (*end == ',')) {
    p += strspn(p, " \t\n");
    end = skip_value(p);
    if (end == NULL || end == p) {
      return -1;
    }
    if (number-- == 0) {
      return copy_value(p, value, size, &end);
    }
    end += strspn(end, " \t\n");
  }
}

/* Returns the bytes of the UTF-8 character at `p`; 0 if it is invalid. */
static size_t utf8_length(const unsigned char* p) {
  /* The second byte excludes overlong forms, surrogates, and code points beyond U+10FFFF. */
  static const struct {
    unsigned char first, last, second_first, second_last;
    size_t length;
  } leads[] = {
      {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
      {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
      {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
  };

  const size_t count = sizeof leads / sizeof leads[0];
  size_t i, lead = 0;
  while (lead < count && (*p < leads[lead].first || *p > leads[lead].last)) {
    ++lead;
  }
  if (lead == count || p[1] < leads[lead].second_first || p[1] > leads[lead].second_last) {
    return 0;
  }
  for (i = 2; i < leads[lead].length; ++i) {
    if ((p[i] & 0xc0) != 0x80) {
      return 0;
    }
  }
  return leads[lead].length;
}

void efs_json_quote(const char* text, char* quoted, size_t size) {
  size_t n = 0;
  const unsigned char* p = (const unsigned char*)text;
  if (size < 16) {
    return;
  }
  quoted[n++] = '"';
  for (; *p != '\0' && n + 9 < size; ++p) {
    if (*p == '"' || *p == '\\') {
      quoted[n++] = '\\';
      quoted[n++] = (char)*p;
    } else if (*p < 0x20) {
      n += (size_t)snprintf(quoted + n, 7, "\\u%04x", *p);
    } else if (*p < 0x80) {
      quoted[n++] = (char)*p;
    } else {
      const size_t length = utf8_length(p);
      if (length == 0) {
        quoted[n++] = '?'; /* a file name may contain any bytes, but JSON may not */
      } else {
        memcpy(quoted + n, p, length);
        n += length;
        p += length - 1;
      }
    }
  }
  quoted[n++] = '"';
  quoted[n] = '\0';
}

void efs_one_line(char* text) {
  char* p;
  size_t length = strlen(text);
  while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' ')) {
    text[--length] = '\0';
  }
  for (p = text; *p != '\0'; ++p) {
    if (*p == '\n') {
      *p = ';';
    } else if ((unsigned char)*p < 0x20 || *p == 0x7f) {
      *p = '?';
    }
  }
}

int efs_is_kept_name(const char* name) {
  size_t i;
  if (!isalnum((unsigned char)name[0])) {
    return 0;
  }
  for (i = 0; name[i] != '\0'; ++i) {
    if (!isalnum((unsigned char)name[i]) && strchr("._-", name[i]) == NULL) {
      return 0;
    }
  }
  return i <= EFS_KEPT_NAME;
}

int efs_has_word(const char* flags, const char* word) {
  const size_t length = strlen(word);
  const char* p = flags + strspn(flags, " ");
  for (; *p != '\0'; p += strcspn(p, " "), p += strspn(p, " ")) {
    if (strcspn(p, " ") == length && strncmp(p, word, length) == 0) {
      return 1;
    }
  }
  return 0;
}

int efs_flag(const char* flags, const char* key, char* value, size_t size) {
  const size_t length = strlen(key);
  const char* p = flags + strspn(flags, " ");
  for (; *p != '\0'; p += strcspn(p, " "), p += strspn(p, " ")) {
    if (strncmp(p, key, length) != 0) {
      continue;
    }
    return efs_format(value, size, "%.*s", (int)strcspn(p + length, " "), p + length) == 0;
  }
  return 0;
}
