/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures the strategies of eo_checkpoint: the time that a program waits in it, and the time of
 * the whole run. The program changes all its memory between two checkpoints. usage:
 * efs-bench-checkpoint DIRECTORY [MIB [PACE [ROUNDS [COMPUTE_MS]]]] DIRECTORY is for the store,
 * PACE its rate in MB/s. The strategies alternate; each has its own store and keeps it, and the
 * first round is not counted. Every version is compared with the memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "objects/efs_objects.h"

#define ARRAYS 4
#define STEPS 3 /* checkpoints in a run */

static const char* const strategies[] = {"none", "copy", "split", "stage", "snapshot"};

enum { COUNT = sizeof strategies / sizeof *strategies, MAX_ROUNDS = 99 };

struct Options {
  const char* directory;
  size_t bytes; /* of an array */
  const char* pace;
  double compute; /* seconds between two checkpoints */
};

struct Run {
  struct eo_storage* store;
  double waited[MAX_ROUNDS];  /* in a checkpoint, mean of the run */
  double backlog[MAX_ROUNDS]; /* before it, for the one before */
  double whole[MAX_ROUNDS];
};

static unsigned long long* memory[ARRAYS];

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void check(int error) {
  if (error != 0) {
    fprintf(stderr, "%s\n", eo_error());
    exit(1);
  }
}

/* Computes on the memory for a time, at least once on all of it. */
static void compute(const struct Options* options, unsigned long long step) {
  const double end = now() + options->compute;
  unsigned long long pass = 0;
  do {
    for (int i = 0; i < ARRAYS; ++i) {
      for (size_t k = 0; k < options->bytes / 8; ++k) {
        memory[i][k] = memory[i][k] * 2862933555777941757ULL + k + step + pass;
      }
    }
    ++pass;
  } while (now() < end);
}

static unsigned long long sum(const struct Options* options) {
  unsigned long long total = 0;
  for (int i = 0; i < ARRAYS; ++i) {
    for (size_t k = 0; k < options->bytes / 8; ++k) {
      total = total * 31 + memory[i][k];
    }
  }
  return total;
}

static struct eo_storage* open_store(const struct Options* options, const char* strategy) {
  char path[4096];
  struct eo_storage* store = NULL;
  snprintf(path, sizeof path, "%s/%s", options->directory, strategy);
  check(eo_open(path, &store));
  check(eo_configure(store, "strategy", strategy));
  check(eo_configure(store, "pace", options->pace));
  for (int i = 0; i < ARRAYS; ++i) {
    char name[8];
    struct eo_array array = {"<u8", 1, EO_C_ORDER, {options->bytes / 8}, memory[i], NULL, 0, NULL};
    snprintf(name, sizeof name, "u%d", i);
    check(eo_protect(store, name, &array));
  }
  return store;
}

/* One run of the program: STEPS times computes and writes a checkpoint. */
static void run(const struct Options* options, struct Run* all, int round) {
  double waited = 0;
  double backlog = 0;
  const double begin = now();
  for (unsigned step = 0; step < STEPS; ++step) {
    compute(options, step);
    double before = now();
    if (all->store != NULL) {
      check(eo_wait(all->store));
      backlog += now() - before;
      before = now();
      check(eo_checkpoint(all->store, "run", (unsigned)round * STEPS + step, 0));
    }
    waited += now() - before;
  }
  compute(options, STEPS);
  if (all->store != NULL) {
    check(eo_wait(all->store));
  }
  all->whole[round] = now() - begin;
  all->waited[round] = waited / STEPS;
  all->backlog[round] = backlog / STEPS;
}

/* A version has the memory of its moment. Closes the store if the system does not permit snapshots.
 */
static void verify(const struct Options* options, struct Run* all) {
  const unsigned n = 1;
  compute(options, n);
  const unsigned long long before = sum(options);
  const int error = eo_checkpoint(all->store, "verify", n, 0);
  if (error == EPERM || error == ENOTSUP) {
    fprintf(stderr, "%s\n", eo_error());
    eo_close(all->store);
    all->store = NULL;
    return;
  }
  check(error);
  compute(options, n + 1);
  check(eo_restore(all->store, "verify", n, NULL));
  if (sum(options) != before) {
    fprintf(stderr, "a restored version differs from the memory\n");
    exit(1);
  }
  check(eo_keep(all->store, "verify", 1));
}

static int ascending(const void* left, const void* right) {
  const double difference = *(const double*)left - *(const double*)right;
  return (difference > 0) - (difference < 0);
}

/* Without the first round. */
static double median(double* values, int rounds) {
  qsort(values + 1, (size_t)rounds - 1, sizeof *values, ascending);
  return values[1 + (rounds - 1) / 2];
}

static void print(struct Run* runs, int rounds) {
  double copy = 0;
  printf("ms, median of %d runs of %d checkpoints\n", rounds - 1, STEPS);
  printf("strategy  waits in each   of copy   for the one before   whole run\n");
  for (int s = 0; s < COUNT; ++s) {
    if (s > 0 && runs[s].store == NULL) {
      continue;
    }
    const double waited = median(runs[s].waited, rounds);
    copy = strcmp(strategies[s], "copy") == 0 ? waited : copy;
    printf("%-9s %13.1f %9.3f %20.1f %11.0f\n", strategies[s], waited * 1e3,
           copy > 0 ? waited / copy : 0, median(runs[s].backlog, rounds) * 1e3,
           median(runs[s].whole, rounds) * 1e3);
  }
}

int main(int argc, char** argv) {
  static struct Run runs[COUNT];
  if (argc < 2) {
    fprintf(stderr, "usage: %s DIRECTORY [MIB [PACE [ROUNDS [COMPUTE_MS]]]]\n", argv[0]);
    return 2;
  }
  const struct Options options = {
      argv[1], (argc > 2 ? strtoul(argv[2], NULL, 10) : 512) * (1U << 20) / ARRAYS,
      argc > 3 ? argv[3] : "1500", argc > 5 ? atof(argv[5]) / 1e3 : 1.2};
  int rounds = 1 + (argc > 4 ? atoi(argv[4]) : 5);
  rounds = rounds < 2 ? 2 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
  for (int i = 0; i < ARRAYS; ++i) {
    memory[i] = malloc(options.bytes);
    if (memory[i] == NULL) {
      return 1;
    }
    memset(memory[i], i + 1, options.bytes);
  }
  for (int s = 1; s < COUNT; ++s) {
    runs[s].store = open_store(&options, strategies[s]);
    verify(&options, &runs[s]);
  }
  for (int round = 0; round < rounds; ++round) {
    for (int s = 0; s < COUNT; ++s) {
      run(&options, &runs[s], round);
      if (runs[s].store != NULL) {
        check(eo_keep(runs[s].store, "run", 1));
      }
    }
  }
  print(runs, rounds);
  for (int s = 1; s < COUNT; ++s) {
    eo_close(runs[s].store);
  }
  return 0;
}
