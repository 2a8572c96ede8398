/* SPDX-License-Identifier: BSD-3-Clause */
/* ADIOS2 with its engine BP5, without MPI as in its wheel of PyPI: each rank has a file of its own,
 * which is no more work than a part of one file. */
#include <adios2_c.h>

#include "peer.h"

struct open_file {
  adios2_adios* adios;
  adios2_io* io;
  adios2_engine* engine;
};

static void begin(struct open_file* open) {
  open->adios = adios2_init_serial();
  open->io = adios2_declare_io(open->adios, "array");
  adios2_set_engine(open->io, "BP5");
}

static void open_engine(const struct job* job, struct open_file* open, adios2_mode mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/array.%d.bp", job->directory, job->rank);
  open->engine = adios2_open(open->io, path, mode);
}

static int close_engine(struct open_file* open, adios2_error error) {
  if (open->engine != NULL && error == adios2_error_none) {
    error = adios2_close(open->engine);
  }
  adios2_finalize(open->adios);
  return error == adios2_error_none ? 0 : failed("ADIOS2", "a call failed");
}

static int put(struct job* job) {
  const size_t start[DIMENSIONS] = {0};
  struct open_file open;
  begin(&open);
  adios2_variable* variable =
      adios2_define_variable(open.io, "array", adios2_type_double, DIMENSIONS, job->count, start,
                             job->count, adios2_constant_dims_true);
  open_engine(job, &open, adios2_mode_write);
  adios2_step_status status;
  adios2_error error = adios2_begin_step(open.engine, adios2_step_mode_append, -1, &status);
  if (error == adios2_error_none) {
    error = adios2_put(open.engine, variable, job->part, adios2_mode_deferred);
  }
  if (error == adios2_error_none) {
    error = adios2_end_step(open.engine);
  }
  return close_engine(&open, error);
}

static int get(struct job* job) {
  struct open_file open;
  begin(&open);
  open_engine(job, &open, adios2_mode_readRandomAccess);
  adios2_variable* variable = adios2_inquire_variable(open.io, "array");
  adios2_error error = variable != NULL ? adios2_error_none : adios2_error_runtime_error;
  for (size_t first = 0; first < job->count[0] && error == adios2_error_none; first += job->rows) {
    const size_t rows = rows_in(job, first);
    const size_t start[] = {first, 0, 0};
    const size_t count[] = {rows, job->count[1], job->count[2]};
    error = adios2_set_selection(variable, DIMENSIONS, start, count);
    if (error == adios2_error_none) {
      error = adios2_get(open.engine, variable, job->piece, adios2_mode_sync);
    }
    add(job, job->piece, rows * row_values(job));
  }
  return close_engine(&open, error);
}

const struct peer peers[] = {{"ADIOS2", put, get, 1}, {NULL, NULL, NULL, 0}};
