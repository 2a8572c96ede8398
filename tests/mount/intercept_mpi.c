/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes and reads a file by MPI-IO: single, with gaps between the ranks, and collectively.
 *   intercept_mpi FILE */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { RECORDS = 400, LENGTH = 300 };

static void require(int good, const char* what) {
  if (!good) {
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

int main(int argc, char** argv) {
  static char record[LENGTH], all[RECORDS][LENGTH];
  int rank, ranks, i, k;
  MPI_File file;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  require(argc == 2 && MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR,
                                     MPI_INFO_NULL, &file) == MPI_SUCCESS,
          "open");
  for (i = rank; i < RECORDS; i += ranks) {
    for (k = 0; k < LENGTH; ++k) {
      record[k] = (char)(i * 31 + k);
    }
    require(MPI_File_write_at(file, (MPI_Offset)i * LENGTH, record, LENGTH, MPI_CHAR,
                              MPI_STATUS_IGNORE) == MPI_SUCCESS,
            "write");
  }
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  for (i = 0; i < RECORDS; ++i) {
    require(MPI_File_read_at(file, (MPI_Offset)i * LENGTH, record, LENGTH, MPI_CHAR,
                             MPI_STATUS_IGNORE) == MPI_SUCCESS,
            "read");
    for (k = 0; k < LENGTH; ++k) {
      require(record[k] == (char)(i * 31 + k), "a record is wrong");
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  require(
      MPI_File_read_at_all(file, 0, all, sizeof all, MPI_CHAR, MPI_STATUS_IGNORE) == MPI_SUCCESS,
      "collective read");
  for (i = 0; i < RECORDS; ++i) {
    all[i][0] = (char)rank;
  }
  require(MPI_File_write_at_all(file, (MPI_Offset)(1 + rank) * sizeof all, all, sizeof all,
                                MPI_CHAR, MPI_STATUS_IGNORE) == MPI_SUCCESS,
          "collective write");
  MPI_File_close(&file);
  MPI_Finalize();
  return 0;
}
