/* SPDX-License-Identifier: BSD-3-Clause */
/* libefs-objects: a store by one rank, a draft that several ranks fill; sums by a view. Beside
 * them, values that are computed in place in a draft, and values that are computed in memory and
 * then stored. */
#include <efs_objects_mpi.h>
#include <stdint.h>

#include "peer.h"

static const char name[] = "array";

static int complain(int error) {
  return error != 0 ? failed("libefs-objects", eo_error()) : 0;
}

static struct eo_array array_of(const size_t* shape, double* data) {
  struct eo_array array = {"<f8", DIMENSIONS, EO_C_ORDER, {shape[0], shape[1], shape[2]},
                           data,  NULL,       0,          NULL};
  return array;
}

/* Fills the part of this rank: from the memory, or in place. */
static int fill(const struct job* job, struct eo_draft* draft, int in_place) {
  const uint64_t start[] = {job->start[0], job->start[1], job->start[2]};
  const uint64_t count[] = {job->count[0], job->count[1], job->count[2]};
  if (!in_place) {
    return eo_put(draft, start, count, job->part);
  }
  const size_t first = job->start[0] * job->shape[1] * job->shape[2];
  compute((double*)eo_data(draft) + first, first, job->count[0] * row_values(job));
  return 0;
}

static int by_draft(const struct job* job, struct eo_storage* store, int in_place) {
  const struct eo_array array = array_of(job->shape, NULL);
  struct eo_draft* draft = NULL;
  if (job->ranks == 1) {
    int error = eo_create(store, name, &array, &draft);
    error = error != 0 ? error : fill(job, draft, in_place);
    return error != 0 ? error : eo_publish(draft, 0);
  }
  int error = eo_mpi_create(MPI_COMM_WORLD, store, name, &array, &draft);
  if (error == 0) {
    error = eo_mpi_agree(MPI_COMM_WORLD, fill(job, draft, in_place));
  }
  return error != 0 ? error : eo_mpi_publish(MPI_COMM_WORLD, draft, 0);
}

static int write_array(const struct job* job, int in_place) {
  struct eo_storage* store = NULL;
  int error = eo_open(job->directory, &store);
  if (error == 0 && job->ranks == 1 && !in_place) {
    const struct eo_array array = array_of(job->shape, job->part);
    error = eo_store(store, name, &array, 0);
  } else if (error == 0) {
    error = by_draft(job, store, in_place);
  }
  complain(error);
  eo_close(store);
  return error;
}

static int put(struct job* job) {
  return write_array(job, 0);
}

static int put_in_place(struct job* job) {
  return write_array(job, 1);
}

static int compute_and_put(struct job* job) {
  const size_t first = job->start[0] * job->shape[1] * job->shape[2];
  compute(job->part, first, job->count[0] * row_values(job));
  return put(job);
}

/* The sum of a view; parts with short runs are loaded. */
static int get_from(struct job* job, struct eo_storage* store) {
  if (job->contiguous) {
    struct eo_array view;
    const int error = eo_view(store, name, &view);
    if (error == 0) {
      const size_t first = job->start[0] * job->shape[1] * job->shape[2];
      add(job, (const double*)view.data + first, job->count[0] * row_values(job));
      eo_release(&view);
    }
    return error;
  }
  int error = 0;
  for (size_t first = 0; first < job->count[0] && error == 0; first += job->rows) {
    const size_t rows = rows_in(job, first);
    const size_t shape[] = {rows, job->count[1], job->count[2]};
    const uint64_t start[] = {job->start[0] + first, job->start[1], job->start[2]};
    const uint64_t count[] = {rows, job->count[1], job->count[2]};
    const struct eo_array into = array_of(shape, job->piece);
    error = eo_load(store, name, start, count, &into);
    add(job, job->piece, rows * row_values(job));
  }
  return error;
}

static int get(struct job* job) {
  struct eo_storage* store = NULL;
  int error = eo_open(job->directory, &store);
  error = error != 0 ? error : get_from(job, store);
  complain(error);
  eo_close(store);
  return error;
}

const struct peer peers[] = {{"libefs-objects", put, get, 0},
                             {"computed in place", put_in_place, get, 1},
                             {"computed, then stored", compute_and_put, get, 1},
                             {NULL, NULL, NULL, 0}};
