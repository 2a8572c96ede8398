/* SPDX-License-Identifier: BSD-3-Clause */
/* NetCDF-4: one contiguous variable without fill values. One rank uses POSIX calls, several use
 * MPI-IO with collective transfers. */
#include <netcdf.h>
#include <netcdf_par.h>

#include "peer.h"

#define TRY(call)                                     \
  do {                                                \
    const int error_ = (call);                        \
    if (error_ != NC_NOERR) {                         \
      return failed("NetCDF-4", nc_strerror(error_)); \
    }                                                 \
  } while (0)

static int create(const struct job* job, const char* path, int* file, int* variable) {
  static const char* const names[DIMENSIONS] = {"x", "y", "z"};
  int dimensions[DIMENSIONS];
  TRY(job->ranks > 1 ? nc_create_par(path, NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, file)
                     : nc_create(path, NC_NETCDF4, file));
  for (int i = 0; i < DIMENSIONS; ++i) {
    TRY(nc_def_dim(*file, names[i], job->shape[i], &dimensions[i]));
  }
  TRY(nc_def_var(*file, "array", NC_DOUBLE, DIMENSIONS, dimensions, variable));
  TRY(nc_def_var_fill(*file, *variable, NC_NOFILL, NULL));
  TRY(nc_enddef(*file));
  return 0;
}

static int open_existing(const struct job* job, const char* path, int* file, int* variable) {
  TRY(job->ranks > 1 ? nc_open_par(path, NC_NOWRITE, MPI_COMM_WORLD, MPI_INFO_NULL, file)
                     : nc_open(path, NC_NOWRITE, file));
  TRY(nc_inq_varid(*file, "array", variable));
  return 0;
}

static int move(struct job* job, int out) {
  char path[4096];
  int file, variable;
  snprintf(path, sizeof path, "%s/array.nc", job->directory);
  if ((out ? create : open_existing)(job, path, &file, &variable) != 0) {
    return 1;
  }
  if (job->ranks > 1) {
    TRY(nc_var_par_access(file, variable, NC_COLLECTIVE));
  }
  for (size_t first = 0; first < job->count[0]; first += job->rows) {
    const size_t rows = rows_in(job, first);
    const size_t start[] = {job->start[0] + first, job->start[1], job->start[2]};
    const size_t count[] = {rows, job->count[1], job->count[2]};
    if (out) {
      TRY(nc_put_vara_double(file, variable, start, count, job->part + first * row_values(job)));
    } else {
      TRY(nc_get_vara_double(file, variable, start, count, job->piece));
      add(job, job->piece, rows * row_values(job));
    }
  }
  TRY(nc_close(file));
  return 0;
}

static int put(struct job* job) {
  return move(job, 1);
}

static int get(struct job* job) {
  return move(job, 0);
}

const struct peer peers[] = {{"NetCDF-4", put, get, 0}, {NULL, NULL, NULL, 0}};
