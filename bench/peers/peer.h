/* SPDX-License-Identifier: BSD-3-Clause */
/* The peers of libefs-objects in bench/objects.py: each is a shared library of its own, because
 * they bring different builds of the same libraries. All ranks write one array of doubles, and
 * read it back. */
#ifndef EFS_BENCH_PEER_H
#define EFS_BENCH_PEER_H

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>

#define DIMENSIONS 3

/* The array, and the part of this rank. The part is written and read in pieces of some rows. */
struct job {
  int rank, ranks;
  char directory[3900]; /* of this measurement: empty before it is written */
  size_t shape[DIMENSIONS];
  size_t start[DIMENSIONS], count[DIMENSIONS];
  size_t rows;    /* of a piece */
  double* part;   /* of this rank, in memory */
  double* piece;  /* room for a piece that is read */
  int contiguous; /* the part is one run of the file */
  int add;        /* read() adds all values; without it, it only reads them */
  double sum;     /* of this rank's part, by read() */
};

/* Collective. 0, or another value after a message on stderr. */
struct peer {
  const char* name;
  int (*write)(struct job*);
  int (*read)(struct job*);
  int contiguous_only; /* it is not measured in short runs */
};

/* What a peer's library exports; the end has no name. */
extern const struct peer peers[];

static inline size_t rows_in(const struct job* job, size_t first) {
  const size_t left = job->count[0] - first;
  return left < job->rows ? left : job->rows;
}

/* Values in a row of the part. */
static inline size_t row_values(const struct job* job) {
  return job->count[1] * job->count[2];
}

static inline int failed(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

/* Adds values that were read. */
static inline void add(struct job* job, const double* values, size_t count) {
  enum { LANES = 16 }; /* additions that do not wait for one another */

  double sums[LANES] = {0};
  if (!job->add) {
    return;
  }
  size_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    for (size_t k = 0; k < LANES; ++k) {
      sums[k] += values[i + k];
    }
  }
  for (; i < count; ++i) {
    sums[0] += values[i];
  }
  for (size_t k = 0; k < LANES; ++k) {
    job->sum += sums[k];
  }
}

/* Computes the values of a run of the array: small integers, so that each sum is exact. */
static inline void compute(double* values, size_t first, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    values[i] = (double)((unsigned)(first + i) & 1023U);
  }
}

#endif
