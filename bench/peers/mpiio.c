/* SPDX-License-Identifier: BSD-3-Clause */
/* One file by collective calls of MPI-IO. */
#include "peer.h"

static int move(struct job* job, int out) {
  char path[4096];
  int shape[DIMENSIONS], count[DIMENSIONS], start[DIMENSIONS];
  MPI_Datatype part;
  MPI_File file;
  snprintf(path, sizeof path, "%s/array", job->directory);
  for (int i = 0; i < DIMENSIONS; ++i) {
    shape[i] = (int)job->shape[i];
    count[i] = (int)job->count[i];
    start[i] = (int)job->start[i];
  }
  MPI_Type_create_subarray(DIMENSIONS, shape, count, start, MPI_ORDER_C, MPI_DOUBLE, &part);
  MPI_Type_commit(&part);
  const int mode = out ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY;
  int error = MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file);
  if (error == MPI_SUCCESS) {
    error = MPI_File_set_view(file, 0, MPI_DOUBLE, part, "native", MPI_INFO_NULL);
  }
  for (size_t first = 0; first < job->count[0] && error == MPI_SUCCESS; first += job->rows) {
    const int values = (int)(rows_in(job, first) * row_values(job));
    if (out) {
      error = MPI_File_write_all(file, job->part + first * row_values(job), values, MPI_DOUBLE,
                                 MPI_STATUS_IGNORE);
    } else {
      error = MPI_File_read_all(file, job->piece, values, MPI_DOUBLE, MPI_STATUS_IGNORE);
      add(job, job->piece, (size_t)values);
    }
  }
  if (error == MPI_SUCCESS) {
    error = MPI_File_close(&file);
  }
  MPI_Type_free(&part);
  return error == MPI_SUCCESS ? 0 : failed("MPI-IO", "a call failed");
}

static int put(struct job* job) {
  return move(job, 1);
}

static int get(struct job* job) {
  return move(job, 0);
}

const struct peer peers[] = {{"MPI-IO", put, get, 0}, {NULL, NULL, NULL, 0}};
