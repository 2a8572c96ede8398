/* SPDX-License-Identifier: BSD-3-Clause */
/* One file by pwrite and pread: no reservation, no header, a rename at the end. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"

static int transfer(int fd, char* memory, size_t left, size_t offset, int out) {
  while (left > 0) {
    const ssize_t done =
        out ? pwrite(fd, memory, left, (off_t)offset) : pread(fd, memory, left, (off_t)offset);
    if (done <= 0) {
      return failed("plain", strerror(errno));
    }
    memory += done;
    offset += (size_t)done;
    left -= (size_t)done;
  }
  return 0;
}

/* One piece, in one call or in one for each line. */
static int move_piece(const struct job* job, int fd, double* memory, size_t first, int out) {
  const size_t rows = rows_in(job, first);
  const size_t row = (job->start[0] + first) * job->shape[1] * job->shape[2];
  if (job->contiguous) {
    return transfer(fd, (char*)memory, rows * row_values(job) * sizeof(double),
                    row * sizeof(double), out);
  }
  int error = 0;
  for (size_t line = 0; line < rows * job->shape[1] && error == 0; ++line) {
    error = transfer(fd, (char*)(memory + line * job->count[2]), job->count[2] * sizeof(double),
                     (row + line * job->shape[2] + job->start[2]) * sizeof(double), out);
  }
  return error;
}

static int put(struct job* job) {
  char part[4096], path[4096];
  int error = 0;
  snprintf(part, sizeof part, "%s/array.part", job->directory);
  snprintf(path, sizeof path, "%s/array", job->directory);
  const int fd = open(part, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) {
    return failed("plain", strerror(errno));
  }
  for (size_t first = 0; first < job->count[0] && error == 0; first += job->rows) {
    error = move_piece(job, fd, job->part + first * row_values(job), first, 1);
  }
  close(fd);
  MPI_Barrier(MPI_COMM_WORLD);
  return error != 0 || (job->rank == 0 && rename(part, path) != 0);
}

static int get(struct job* job) {
  char path[4096];
  int error = 0;
  snprintf(path, sizeof path, "%s/array", job->directory);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return failed("plain", strerror(errno));
  }
  for (size_t first = 0; first < job->count[0] && error == 0; first += job->rows) {
    error = move_piece(job, fd, job->piece, first, 0);
    add(job, job->piece, rows_in(job, first) * row_values(job));
  }
  close(fd);
  return error;
}

const struct peer peers[] = {{"plain", put, get, 0}, {NULL, NULL, NULL, 0}};
