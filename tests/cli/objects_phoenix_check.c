/* SPDX-License-Identifier: BSD-3-Clause */
/* Phoenix's calls, in C or C++; with PHOENIX_MPI on each rank. The store is $PHOENIX_STORE.
 *   objects_phoenix_check           commits 3 times
 *   objects_phoenix_check STEP      restores commit STEP, and commits the next */
#include <phoenix.h>
#include <stdio.h>

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
    zion[i] = i + step * 0.5;
    scratch[i] = step;
  }
}

static void expect(int step) {
  HOLDS(*steps == step);
  for (int i = 0; i < zones; ++i) {
    HOLDS(zion[i] == i + step * 0.5);
  }
}

int main(int argc, char** argv) {
  int rank = 0;
#ifdef PHOENIX_MPI
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
  create();
  if (argc == 1) {
    HOLDS(phoenix_restore() == ENOENT);
    for (int step = 1; step <= 3; ++step) {
      fill(step);
      HOLDS(checkpoint_commit() == 0);
    }
    fill(99);
  } else {
    HOLDS(phoenix_restore() == 0);
    expect(atoi(argv[1]));
    HOLDS(scratch[0] == 0);
    fill(atoi(argv[1]) + 1);
    HOLDS(checkpoint_commit() == 0);
  }
  HOLDS(destroy_obj("scratch") == 0 && destroy_obj("scratch") == ENOENT);
  HOLDS(finalize() == 0 && finalize() == 0);
#ifdef PHOENIX_MPI
  MPI_Finalize();
#endif
  if (rank == 0) {
    puts("done");
  }
  return 0;
}
