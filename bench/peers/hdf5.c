/* SPDX-License-Identifier: BSD-3-Clause */
/* HDF5: one contiguous dataset without fill values. One rank uses POSIX calls, several use MPI-IO
 * with collective transfers. */
#include <hdf5.h>

#include "peer.h"

struct open_file {
  hid_t access, transfer, file, space, set;
};

static void set_properties(const struct job* job, struct open_file* open) {
  open->access = H5Pcreate(H5P_FILE_ACCESS);
  open->transfer = H5Pcreate(H5P_DATASET_XFER);
  if (job->ranks > 1) {
    H5Pset_fapl_mpio(open->access, MPI_COMM_WORLD, MPI_INFO_NULL);
    H5Pset_dxpl_mpio(open->transfer, H5FD_MPIO_COLLECTIVE);
  }
}

static void create(const struct job* job, const char* path, struct open_file* open) {
  const hsize_t shape[] = {job->shape[0], job->shape[1], job->shape[2]};
  const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER);
  open->file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, open->access);
  open->space = H5Screate_simple(DIMENSIONS, shape, NULL);
  open->set = H5Dcreate2(open->file, "array", H5T_NATIVE_DOUBLE, open->space, H5P_DEFAULT,
                         properties, H5P_DEFAULT);
  H5Pclose(properties);
}

static int move_piece(struct job* job, const struct open_file* open, size_t first, int out) {
  const size_t rows = rows_in(job, first);
  const hsize_t start[] = {job->start[0] + first, job->start[1], job->start[2]};
  const hsize_t count[] = {rows, job->count[1], job->count[2]};
  const hid_t memory = H5Screate_simple(DIMENSIONS, count, NULL);
  H5Sselect_hyperslab(open->space, H5S_SELECT_SET, start, NULL, count, NULL);
  herr_t error = 0;
  if (out) {
    error = H5Dwrite(open->set, H5T_NATIVE_DOUBLE, memory, open->space, open->transfer,
                     job->part + first * row_values(job));
  } else {
    error = H5Dread(open->set, H5T_NATIVE_DOUBLE, memory, open->space, open->transfer, job->piece);
    add(job, job->piece, rows * row_values(job));
  }
  H5Sclose(memory);
  return error < 0;
}

static int move(struct job* job, int out) {
  char path[4096];
  struct open_file open;
  snprintf(path, sizeof path, "%s/array.h5", job->directory);
  set_properties(job, &open);
  if (out) {
    create(job, path, &open);
  } else {
    open.file = H5Fopen(path, H5F_ACC_RDONLY, open.access);
    open.set = H5Dopen2(open.file, "array", H5P_DEFAULT);
    open.space = H5Dget_space(open.set);
  }
  int error = open.set < 0;
  for (size_t first = 0; first < job->count[0] && !error; first += job->rows) {
    error = move_piece(job, &open, first, out);
  }
  error |= H5Dclose(open.set) < 0;
  H5Sclose(open.space);
  error |= H5Fclose(open.file) < 0;
  H5Pclose(open.transfer);
  H5Pclose(open.access);
  return error ? failed("HDF5", "a call failed") : 0;
}

static int put(struct job* job) {
  return move(job, 1);
}

static int get(struct job* job) {
  return move(job, 0);
}

const struct peer peers[] = {{"HDF5", put, get, 0}, {NULL, NULL, NULL, 0}};
