/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts in memory, for checkpoints of whole processes.
 *   checkpoint_images_check PROGRESS [KEPT]
 * Each step changes 8 MiB of memory and replaces PROGRESS by its number; the program ends with 1 if
 * the memory is not that of the step before. With KEPT it also keeps this file open, and first
 * appends a line in each step. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WORDS (1L << 20)

static long memory[WORDS];

/* Replaces the file at once. Keeps no descriptor. */
static int report(const char* path, const char* text) {
  char draft[4096];
  snprintf(draft, sizeof draft, "%s.new", path);
  const int file = open(draft, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int good = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
  return close(file) == 0 && good && rename(draft, path) == 0;
}

int main(int argc, char** argv) {
  const int kept = argc > 2 ? open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
  if (argc < 2 || (argc > 2 && kept < 0)) {
    return 2;
  }
  for (long step = 1;; ++step) {
    for (long i = 0; i < WORDS; ++i) {
      if (memory[i] != (step - 1) * i) {
        return 1;
      }
      memory[i] += i;
    }
    char text[32];
    snprintf(text, sizeof text, "%ld\n", step);
    if (kept >= 0 && write(kept, text, strlen(text)) < 0) {
      return 4;
    }
    if (!report(argv[1], text)) {
      return 3;
    }
    nanosleep(&(struct timespec){0, 5000000}, NULL);
  }
}
