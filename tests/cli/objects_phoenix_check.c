/* SPDX-License-Identifier: BSD-3-Clause */
/* Phoenix's calls, in C or C++; with PHOENIX_MPI on each rank. The store is $PHOENIX_STORE.
 *   objects_phoenix_check           commits 3 times
 *   objects_phoenix_check STEP      restores commit STEP, and commits the next
 *   objects_phoenix_check damaged   a restart whose newest commit is damaged
 *   objects_phoenix_check locked    as root: old commits that cannot be removed for a time */
#include <fcntl.h>
#include <phoenix.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOLDS(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%d: not %s (%s)\n", __LINE__, #condition, eo_error()); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

enum { zones = 10000 };

static double *zion, *scratch;
static int* steps;

static void create(void) {
  struct properties kept = {1, 1, 2};
  struct properties volatile_only = {0, 0, 0};
  HOLDS(create_obj("before", 8, kept) == NULL);
  HOLDS(init() == 0 && init() == EBUSY);
  zion = (double*)create_obj("zion", zones * sizeof(double), sizeof(double), kept);
  steps = (int*)create_obj("steps", sizeof(int), kept);
  scratch = (double*)create_obj("scratch", zones * sizeof(double), volatile_only);
  HOLDS(zion != NULL && steps != NULL && scratch != NULL);
  HOLDS((uintptr_t)zion % 4096 == 0 && zion[zones - 1] == 0);
  HOLDS(create_obj("zion", 8, kept) == NULL && strstr(eo_error(), "key is used") != NULL);
  HOLDS(create_obj("odd", 10, 4, kept) == NULL);
}

static void fill(int step) {
  *steps = step;
  for (int i = 0; i < zones; ++i) {
    scratch[i] = step;
    zion[i] = i + step * 0.5;
  }
}

static void expect(int step) {
  HOLDS(*steps == step);
  for (int i = 0; i < zones; ++i) {
    HOLDS(zion[i] == i + step * 0.5);
  }
}

static char series[1024] = "phoenix"; /* of this rank */

static int has(uint64_t n) {
  struct eo_storage* version = NULL;
  const int error = eo_version(phoenix_store(), series, n, &version);
  if (error == 0) {
    eo_close(version);
  }
  return error == 0;
}

static void begin(int persistence, int versioning) {
  const struct properties properties = {1, persistence, versioning};
  HOLDS(init() == 0 && eo_configure(phoenix_store(), "strategy", "stage") == 0);
  zion = (double*)create_obj("zion", zones * sizeof(double), properties);
  steps = (int*)create_obj("steps", sizeof(int), properties);
  scratch = zion;
  HOLDS(zion != NULL && steps != NULL);
}

static void commit(int step) {
  fill(step);
  HOLDS(checkpoint_commit() == 0);
}

static void damage(uint64_t n) {
  char path[4096];
  int file;
  snprintf(path, sizeof path, "%s/%s/%08d/zion.npy", getenv("PHOENIX_STORE"), series, (int)n);
  file = open(path, O_WRONLY);
  HOLDS(file >= 0 && pwrite(file, "x", 1, 200) == 1 && close(file) == 0);
}

/* The only good commit stays until one of this program is in its place. Without MPI the restore
 * puts the damaged one aside, so its number is used again. */
static void damaged(void) {
#ifdef PHOENIX_MPI
  const uint64_t last = 5;
#else
  const uint64_t last = 4;
#endif
  begin(0, 2);
  commit(1);
  commit(2);
  HOLDS(finalize() == 0);
  begin(0, 1);
  HOLDS(has(1) && has(2));
  damage(2);
  HOLDS(phoenix_restore() == 0);
  expect(1);
  HOLDS(eo_configure(phoenix_store(), "pace", "1") == 0);
  commit(3);
  HOLDS(has(1));
  commit(4);
  HOLDS(!has(1) && finalize() == 0);
  begin(1, 1);
  HOLDS(eo_configure(phoenix_store(), "pace", "1") == 0);
  commit(5);
  HOLDS(has(last) && !has(last - 1));
  HOLDS(finalize() == 0);
}

/* Another user adds commits and cannot remove those of root. The numbers go on. */
static void locked(void) {
  char path[4096];
  begin(1, 1);
  commit(1);
  snprintf(path, sizeof path, "%s/phoenix", getenv("PHOENIX_STORE"));
  HOLDS(chmod(path, 01777) == 0 && seteuid(65534) == 0);
  fill(2);
  HOLDS(checkpoint_commit() == EPERM && has(1) && has(2));
  HOLDS(seteuid(0) == 0);
  commit(3);
  HOLDS(has(3) && !has(2) && !has(1));
  HOLDS(finalize() == 0);
}

static void usual(int argc, char** argv) {
  create();
  if (argc == 1) {
    HOLDS(phoenix_restore() == ENOENT);
    for (int step = 1; step <= 3; ++step) {
      commit(step);
    }
    fill(99);
  } else {
    HOLDS(phoenix_restore() == 0);
    expect(atoi(argv[1]));
    HOLDS(scratch[0] == 0);
    commit(atoi(argv[1]) + 1);
  }
  HOLDS(destroy_obj("scratch") == 0 && destroy_obj("scratch") == ENOENT);
  HOLDS(finalize() == 0 && finalize() == 0);
}

int main(int argc, char** argv) {
  int rank = 0;
#ifdef PHOENIX_MPI
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  HOLDS(eo_mpi_own_series(MPI_COMM_WORLD, PHOENIX_SERIES, series) == 0);
#endif
  if (argc > 1 && strcmp(argv[1], "damaged") == 0) {
    damaged();
  } else if (argc > 1 && strcmp(argv[1], "locked") == 0) {
    locked();
  } else {
    usual(argc, argv);
  }
#ifdef PHOENIX_MPI
  MPI_Finalize();
#endif
  if (rank == 0) {
    puts("done");
  }
  return 0;
}
