/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call of efs_objects_mpi.h, with any number of ranks from 2.
 *   objects_mpi_check DIRECTORY           all calls; leaves the series "run" and the object "made"
 *   objects_mpi_check DIRECTORY restart   with another number of ranks: what can be restored */
#include <efs_objects_mpi.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define COLUMNS 5
#define ROWS 12

static int rank, ranks;

#define HOLDS(condition)                                                                     \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      fprintf(stderr, "rank %d, %d: not %s (%s)\n", rank, __LINE__, #condition, eo_error()); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
    }                                                                                        \
  } while (0)

/* The call returns this error on every rank. */
#define GIVES(expected, call)                                             \
  do {                                                                    \
    int given = (call), lowest, highest;                                  \
    MPI_Allreduce(&given, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);  \
    MPI_Allreduce(&given, &highest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD); \
    HOLDS(given == (expected) && lowest == highest);                      \
  } while (0)

#define DONE(call) GIVES(0, call)

static struct eo_array doubles(double* data, uint64_t rows) {
  struct eo_array array;
  memset(&array, 0, sizeof array);
  memcpy(array.dtype, "<f8", 4);
  array.ndim = 2;
  array.shape[0] = rows;
  array.shape[1] = COLUMNS;
  array.data = data;
  return array;
}

static void fill(double* data, int first, int rows, double bias) {
  for (int i = 0; i < rows * COLUMNS; ++i) {
    data[i] = first * COLUMNS + i + bias;
  }
}

static int my_first(void) {
  return ROWS * rank / ranks;
}

static int my_rows(void) {
  return ROWS * (rank + 1) / ranks - my_first();
}

static void put_mine(struct eo_draft* draft, double bias) {
  double data[ROWS * COLUMNS];
  const uint64_t start[2] = {(uint64_t)my_first(), 0};
  const uint64_t count[2] = {(uint64_t)my_rows(), COLUMNS};
  fill(data, my_first(), my_rows(), bias);
  HOLDS(eo_put(draft, start, count, data) == 0);
}

static int is_whole(struct eo_storage* store, const char* name, double bias) {
  double data[ROWS * COLUMNS], wanted[ROWS * COLUMNS];
  struct eo_array array = doubles(data, ROWS);
  fill(wanted, 0, ROWS, bias);
  return eo_load(store, name, NULL, NULL, &array) == 0 && memcmp(data, wanted, sizeof data) == 0;
}

/* A store that only the last rank has elsewhere: it fails there alone. */
static struct eo_storage* other_store(struct eo_storage* store, const char* directory) {
  char path[4096];
  struct eo_storage* other;
  if (rank != ranks - 1) {
    return store;
  }
  snprintf(path, sizeof path, "%s/elsewhere", directory);
  HOLDS(eo_open(path, &other) == 0);
  return other;
}

static void drafts(struct eo_storage* store, const char* directory) {
  struct eo_array array = doubles(NULL, ROWS);
  struct eo_draft* draft;
  char named[32];
  DONE(eo_mpi_create(MPI_COMM_WORLD, store, "made", &array, &draft));
  put_mine(draft, 0.5);
  DONE(eo_mpi_publish(MPI_COMM_WORLD, draft, EO_SYNC));
  HOLDS(is_whole(store, "made", 0.5));
  DONE(eo_mpi_create(MPI_COMM_WORLD, store, "made", &array, &draft));
  put_mine(draft, 0.75);
  eo_mpi_discard(MPI_COMM_WORLD, draft);
  HOLDS(is_whole(store, "made", 0.5));
  DONE(eo_mpi_create(MPI_COMM_WORLD, store, "in_place", &array, &draft));
  fill((double*)eo_data(draft) + my_first() * COLUMNS, my_first(), my_rows(), 0.25);
  DONE(eo_mpi_publish(MPI_COMM_WORLD, draft, 0));
  HOLDS(is_whole(store, "in_place", 0.25));

  GIVES(EINVAL, eo_mpi_create(MPI_COMM_WORLD, store, "../bad", &array, &draft));
  HOLDS(strncmp(eo_error(), "rank 0: ", 8) == 0 && strstr(eo_error(), "../bad") != NULL);
  struct eo_storage* other = other_store(store, directory);
  int error = eo_mpi_create(MPI_COMM_WORLD, other, "apart", &array, &draft);
  HOLDS(error != 0);
  GIVES(error, error);
  snprintf(named, sizeof named, "rank %d: ", ranks - 1);
  HOLDS(strncmp(eo_error(), named, strlen(named)) == 0 && strstr(eo_error(), "apart") != NULL);
  struct eo_storage* version;
  error = eo_mpi_begin(MPI_COMM_WORLD, other, "apart", 1, &version);
  HOLDS(error != 0);
  GIVES(error, error);
  HOLDS(strncmp(eo_error(), named, strlen(named)) == 0);
  if (other != store) {
    eo_close(other);
  }
}

static void versions(struct eo_storage* store) {
  struct eo_array array = doubles(NULL, ROWS);
  struct eo_draft* draft;
  struct eo_storage* version;
  char own[32];
  double mine[COLUMNS];
  struct eo_array row = doubles(mine, 1);
  snprintf(own, sizeof own, "rank%d", rank);
  fill(mine, rank, 1, 0);
  DONE(eo_mpi_begin(MPI_COMM_WORLD, store, "shared", 7, &version));
  HOLDS(eo_store(version, own, &row, 0) == 0);
  DONE(eo_mpi_create(MPI_COMM_WORLD, version, "u", &array, &draft));
  put_mine(draft, 2);
  DONE(eo_mpi_publish(MPI_COMM_WORLD, draft, 0));
  DONE(eo_mpi_commit(MPI_COMM_WORLD, version, EO_SYNC));
  GIVES(EEXIST, eo_mpi_begin(MPI_COMM_WORLD, store, "shared", 7, &version));
  DONE(eo_mpi_begin(MPI_COMM_WORLD, store, "shared", 8, &version));
  eo_mpi_abort(MPI_COMM_WORLD, version);
  uint64_t n = 0;
  DONE(eo_mpi_latest(MPI_COMM_WORLD, store, "shared", &n));
  HOLDS(n == 7 && eo_version(store, "shared", n, &version) == 0);
  HOLDS(is_whole(version, "u", 2) && eo_check(version, NULL) == 0);
  for (int other = 0; other < ranks; ++other) {
    snprintf(own, sizeof own, "rank%d", other);
    HOLDS(eo_load(version, own, NULL, NULL, &row) == 0 && mine[0] == other * COLUMNS);
  }
  eo_close(version);
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Each rank has a directory of its own, as on nodes of their own. */
static void latest(const char* directory) {
  char path[4096];
  struct eo_storage *own, *version;
  uint64_t n = 0;
  snprintf(path, sizeof path, "%s/node%d", directory, rank);
  HOLDS(eo_open(path, &own) == 0);
  GIVES(ENOENT, eo_mpi_latest(MPI_COMM_WORLD, own, "run", &n));
  HOLDS(strstr(eo_error(), "run") != NULL);
  /* Rank 0 has 0 2 4 6 ..., rank 1 has 0 3 6 ...: 6 is the newest of the first two. */
  for (uint64_t i = 0; i < 12; i += (uint64_t)(rank % 2) + 2) {
    HOLDS(eo_begin(own, "run", i, &version) == 0 && eo_commit(version, 0) == 0);
  }
  DONE(eo_mpi_latest(MPI_COMM_WORLD, own, "run", &n));
  HOLDS(n == 6);
  DONE(rank == 0 ? eo_remove_version(own, "run", 6) : 0);
  DONE(eo_mpi_latest(MPI_COMM_WORLD, own, "run", &n));
  HOLDS(n == 0);
  DONE(rank == 1 ? eo_remove_version(own, "run", 0) : 0);
  GIVES(ENOENT, eo_mpi_latest(MPI_COMM_WORLD, own, "run", &n));
  eo_close(own);
}

static void damage(const char* directory, uint64_t n) {
  char path[4096];
  const char byte = 1;
  snprintf(path, sizeof path, "%s/run/r%dof%d/%08d/u.npy", directory, rank, ranks, (int)n);
  int file = open(path, O_WRONLY);
  HOLDS(file >= 0 && pwrite(file, &byte, 1, 140) == 1 && close(file) == 0);
}

static int has_bias(const double* u, double bias) {
  double wanted[ROWS * COLUMNS];
  fill(wanted, rank, ROWS, bias);
  return memcmp(u, wanted, sizeof wanted) == 0;
}

/* 4096 doubles: larger than what a version keeps in its bundle. */
static double large[4096 * COLUMNS];

static void checkpoints(struct eo_storage* store, const char* directory) {
  double* u = large;
  struct eo_array array = doubles(u, 4096);
  uint64_t found = 0;
  char own[64];
  snprintf(own, sizeof own, "run/r%dof%d", rank, ranks);
  HOLDS(eo_protect(store, "u", &array) == 0);
  GIVES(ENOENT, eo_mpi_restore(MPI_COMM_WORLD, store, "run", EO_LATEST, &found));
  for (uint64_t n = 1; n <= 3; ++n) {
    fill(u, rank, ROWS, (double)n);
    DONE(eo_mpi_checkpoint(MPI_COMM_WORLD, store, "run", n, 0));
  }
  DONE(eo_mpi_wait(MPI_COMM_WORLD, store));
  GIVES(EEXIST, eo_mpi_checkpoint(MPI_COMM_WORLD, store, "run", 3, 0));
  fill(u, rank, ROWS, 9);
  DONE(eo_mpi_restore(MPI_COMM_WORLD, store, "run", EO_LATEST, &found));
  HOLDS(found == 3 && has_bias(u, 3));
  DONE(eo_mpi_restore(MPI_COMM_WORLD, store, "run", 1, &found));
  HOLDS(found == 1 && has_bias(u, 1));

  /* The last rank did not reach version 3: 2 is the newest, and 3 is written again. */
  DONE(rank == ranks - 1 ? eo_remove_version(store, own, 3) : 0);
  DONE(eo_mpi_restore(MPI_COMM_WORLD, store, "run", EO_LATEST, &found));
  HOLDS(found == 2 && has_bias(u, 2));
  GIVES(ENOENT, eo_mpi_restore(MPI_COMM_WORLD, store, "run", 3, &found));
  fill(u, rank, ROWS, 33);
  DONE(eo_mpi_checkpoint(MPI_COMM_WORLD, store, "run", 3, EO_SYNC));
  DONE(eo_mpi_wait(MPI_COMM_WORLD, store));
  /* Version 3 of rank 0 is damaged: all ranks restore 2. */
  if (rank == 0) {
    damage(directory, 3);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  DONE(eo_mpi_restore(MPI_COMM_WORLD, store, "run", EO_LATEST, &found));
  HOLDS(found == 2 && has_bias(u, 2));
  DONE(eo_mpi_keep(MPI_COMM_WORLD, store, "run", 2));
  GIVES(ENOENT, eo_mpi_restore(MPI_COMM_WORLD, store, "run", 1, &found));
  /* A version that the last rank does not have replaces none. */
  DONE(rank == ranks - 1 ? eo_remove_version(store, own, 3) : 0);
  DONE(eo_mpi_keep(MPI_COMM_WORLD, store, "run", 1));
  DONE(eo_mpi_restore(MPI_COMM_WORLD, store, "run", EO_LATEST, &found));
  HOLDS(found == 2 && has_bias(u, 2));
  GIVES(EINVAL, eo_mpi_keep(MPI_COMM_WORLD, store, "run", 0));
  DONE(eo_mpi_keep(MPI_COMM_WORLD, store, "nosuch", 1));
  HOLDS(eo_unprotect(store, "u") == 0);
}

static void limit_files(rlim_t bytes) {
  const struct rlimit limit = {bytes, RLIM_INFINITY};
  HOLDS(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* The last rank fails in the background while rank 0 still writes: no rank goes on. */
static void one_fails_later(struct eo_storage* store) {
  struct eo_array array = doubles(large, 4096);
  const int limited = rank == ranks - 1;
  uint64_t found = 0;
  signal(SIGXFSZ, SIG_IGN);
  HOLDS(eo_protect(store, "u", &array) == 0 && eo_configure(store, "strategy", "stage") == 0);
  HOLDS(rank != 0 || eo_configure(store, "pace", "1") == 0);
  fill(large, rank, ROWS, 1);
  DONE(eo_mpi_checkpoint(MPI_COMM_WORLD, store, "later", 1, 0));
  DONE(eo_mpi_wait(MPI_COMM_WORLD, store));
  limit_files(limited ? 65536 : RLIM_INFINITY);
  DONE(eo_mpi_checkpoint(MPI_COMM_WORLD, store, "later", 2, 0));
  fill(large, rank, ROWS, 3);
  GIVES(EFBIG, eo_mpi_checkpoint(MPI_COMM_WORLD, store, "later", 3, 0));
  limit_files(RLIM_INFINITY);
  fill(large, rank, ROWS, 4);
  DONE(eo_mpi_checkpoint(MPI_COMM_WORLD, store, "later", 3, 0));
  DONE(eo_mpi_wait(MPI_COMM_WORLD, store));
  DONE(eo_mpi_restore(MPI_COMM_WORLD, store, "later", EO_LATEST, &found));
  HOLDS(found == 3 && has_bias(large, 4));
  HOLDS(eo_configure(store, "strategy", "copy") == 0 && eo_configure(store, "pace", "0") == 0);
}

/* Makes the series of rank 0 read-only or not. Root acts as another user while it is. */
static void lock_series(const char* directory, mode_t mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/rest/r0of%d", directory, ranks);
  HOLDS(mode == 0555 || getuid() != 0 || seteuid(0) == 0);
  HOLDS(chmod(path, mode) == 0);
  HOLDS(mode != 0555 || getuid() != 0 || seteuid(65534) == 0);
}

/* Rank 0 has a version of a run before, and cannot remove it: no rank writes that number. */
static void rest_stays(struct eo_storage* store, const char* directory) {
  uint64_t found = 0;
  char own[64];
  snprintf(own, sizeof own, "rest/r%dof%d", rank, ranks);
  fill(large, rank, ROWS, 1);
  DONE(eo_mpi_checkpoint(MPI_COMM_WORLD, store, "rest", 1, 0));
  fill(large, rank, ROWS, 200);
  DONE(rank == 0 ? eo_checkpoint(store, own, 2, 0) : 0);
  if (rank == 0) {
    lock_series(directory, 0555);
  }
  fill(large, rank, ROWS, 2);
  GIVES(EACCES, eo_mpi_checkpoint(MPI_COMM_WORLD, store, "rest", 2, 0));
  DONE(eo_mpi_restore(MPI_COMM_WORLD, store, "rest", EO_LATEST, &found));
  HOLDS(found == 1 && has_bias(large, 1));
  if (rank == 0) {
    lock_series(directory, 0755);
  }
  DONE(eo_mpi_checkpoint(MPI_COMM_WORLD, store, "rest", 2, 0));
  HOLDS(eo_unprotect(store, "u") == 0);
}

/* Another number of ranks: arrays that all made together can be loaded by parts, others not. */
static void restart(struct eo_storage* store) {
  double part[ROWS * COLUMNS], wanted[ROWS * COLUMNS];
  struct eo_array array = doubles(part, (uint64_t)my_rows());
  const uint64_t start[2] = {(uint64_t)my_first(), 0};
  const uint64_t count[2] = {(uint64_t)my_rows(), COLUMNS};
  uint64_t n = 0;
  HOLDS(eo_load(store, "made", start, count, &array) == 0);
  fill(wanted, my_first(), my_rows(), 0.5);
  HOLDS(memcmp(part, wanted, (size_t)my_rows() * COLUMNS * sizeof(double)) == 0);
  struct eo_array memory = doubles(large, 4096);
  HOLDS(eo_protect(store, "u", &memory) == 0);
  GIVES(EINVAL, eo_mpi_restore(MPI_COMM_WORLD, store, "run", EO_LATEST, &n));
  HOLDS(strstr(eo_error(), "ranks wrote it and this program has") != NULL);
  if (rank == 0) {
    printf("%s\n", eo_error());
  }
}

int main(int argc, char** argv) {
  struct eo_storage* store;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  HOLDS(eo_open(argv[1], &store) == 0);
  if (argc > 2) {
    restart(store);
  } else {
    HOLDS(ranks > 1);
    drafts(store, argv[1]);
    versions(store);
    latest(argv[1]);
    checkpoints(store, argv[1]);
    one_fails_later(store);
    rest_stays(store, argv[1]);
  }
  eo_close(store);
  if (rank == 0) {
    puts("done");
  }
  MPI_Finalize();
  return 0;
}
