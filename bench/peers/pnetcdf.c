/* SPDX-License-Identifier: BSD-3-Clause */
/* PnetCDF: one variable in the format CDF-5, which stores the bytes of a value in reverse order. */
#include <pnetcdf.h>

#include "peer.h"

#define TRY(call)                                       \
  do {                                                  \
    const int error_ = (call);                          \
    if (error_ != NC_NOERR) {                           \
      return failed("PnetCDF", ncmpi_strerror(error_)); \
    }                                                   \
  } while (0)

static int define(const struct job* job, int file, int* variable) {
  static const char* const names[DIMENSIONS] = {"x", "y", "z"};
  int dimensions[DIMENSIONS];
  for (int i = 0; i < DIMENSIONS; ++i) {
    TRY(ncmpi_def_dim(file, names[i], (MPI_Offset)job->shape[i], &dimensions[i]));
  }
  TRY(ncmpi_def_var(file, "array", NC_DOUBLE, DIMENSIONS, dimensions, variable));
  TRY(ncmpi_enddef(file));
  return 0;
}

static int move(struct job* job, int out) {
  char path[4096];
  int file, variable;
  snprintf(path, sizeof path, "%s/array.nc", job->directory);
  if (out) {
    TRY(ncmpi_create(MPI_COMM_WORLD, path, NC_64BIT_DATA, MPI_INFO_NULL, &file));
    if (define(job, file, &variable) != 0) {
      return 1;
    }
  } else {
    TRY(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &file));
    TRY(ncmpi_inq_varid(file, "array", &variable));
  }
  for (size_t first = 0; first < job->count[0]; first += job->rows) {
    const size_t rows = rows_in(job, first);
    const MPI_Offset start[] = {(MPI_Offset)(job->start[0] + first), (MPI_Offset)job->start[1],
                                (MPI_Offset)job->start[2]};
    const MPI_Offset count[] = {(MPI_Offset)rows, (MPI_Offset)job->count[1],
                                (MPI_Offset)job->count[2]};
    if (out) {
      TRY(ncmpi_put_vara_double_all(file, variable, start, count,
                                    job->part + first * row_values(job)));
    } else {
      TRY(ncmpi_get_vara_double_all(file, variable, start, count, job->piece));
      add(job, job->piece, rows * row_values(job));
    }
  }
  TRY(ncmpi_close(file));
  return 0;
}

static int put(struct job* job) {
  return move(job, 1);
}

static int get(struct job* job) {
  return move(job, 0);
}

const struct peer peers[] = {{"PnetCDF", put, get, 0}, {NULL, NULL, NULL, 0}};
