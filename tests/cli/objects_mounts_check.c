/* SPDX-License-Identifier: BSD-3-Clause */
/* A store on a mount whose processes die, and stores with many arrays.
 *   objects_mounts_check fill          stores grid, version 7 of run, the bundle few
 *   objects_mounts_check leave         begins a draft, prints "begun" and waits to be killed
 *   objects_mounts_check hold          views grid and fills the draft made, again and again, until
 *                                      it reads a line; then publishes it
 *   objects_mounts_check read DIR      compares what fill (and hold) stored
 *   objects_mounts_check many N        a bundle and a version of N arrays
 *   objects_mounts_check open DIR N    stores N objects, opens the store again; prints the time
 * Without DIR the store is that of the job. */
#include <efs_objects.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROWS 512
#define COLUMNS 1024
#define CALL(call)                                                  \
  do {                                                              \
    if ((call) != 0) {                                              \
      fprintf(stderr, "%d: %s: %s\n", __LINE__, #call, eo_error()); \
      exit(1);                                                      \
    }                                                               \
  } while (0)
#define HOLDS(condition)                                     \
  do {                                                       \
    if (!(condition)) {                                      \
      fprintf(stderr, "%d: not %s\n", __LINE__, #condition); \
      exit(1);                                               \
    }                                                        \
  } while (0)

static double grid[ROWS][COLUMNS];
static const struct eo_array whole = {"<f8", 2, EO_C_ORDER, {ROWS, COLUMNS}, grid, NULL, 0, NULL};

static double element(long round, long row, long column) {
  return (double)round * 1e6 + (double)row * COLUMNS + (double)column;
}

static void fill_grid(long round) {
  for (int row = 0; row < ROWS; ++row) {
    for (int column = 0; column < COLUMNS; ++column) {
      grid[row][column] = element(round, row, column);
    }
  }
}

static void say(const char* word) {
  puts(word);
  fflush(stdout);
}

/* Fails unless the object is the grid of this round. */
static void compare(struct eo_storage* store, const char* name, long round) {
  struct eo_array view;
  fill_grid(round);
  CALL(eo_view(store, name, &view));
  HOLDS(memcmp(view.data, grid, sizeof grid) == 0);
  eo_release(&view);
}

static void fill(struct eo_storage* store) {
  struct eo_storage* version;
  struct eo_storage* bundle;
  fill_grid(0);
  CALL(eo_store(store, "grid", &whole, 0));
  CALL(eo_begin(store, "run", 7, &version));
  CALL(eo_store(version, "u", &whole, 0));
  struct eo_array row = {"<f8", 1, EO_C_ORDER, {COLUMNS}, grid[3], NULL, 0, NULL};
  CALL(eo_store(version, "small/row", &row, 0));
  CALL(eo_commit(version, EO_SYNC));
  CALL(eo_begin_bundle(store, "few", &bundle));
  CALL(eo_store(bundle, "row", &row, 0));
  CALL(eo_commit(bundle, EO_SYNC));
}

static void leave(struct eo_storage* store) {
  struct eo_draft* draft;
  CALL(eo_create(store, "unfinished", &whole, &draft));
  fill_grid(1);
  const uint64_t half[2] = {ROWS / 2, COLUMNS};
  CALL(eo_put(draft, NULL, half, grid));
  say("begun");
  pause();
}

/* Puts a grid in three ways: rows by system calls, columns by the mapping, and in place. */
static void put_round(struct eo_draft* draft, long round) {
  fill_grid(round);
  const uint64_t rows[2] = {ROWS / 4, COLUMNS};
  for (uint64_t row = 0; row < ROWS / 2; row += ROWS / 4) {
    const uint64_t start[2] = {row, 0};
    CALL(eo_put(draft, start, rows, grid[row]));
  }
  double strip[ROWS / 4][64];
  const uint64_t size[2] = {ROWS / 4, 64};
  for (uint64_t column = 0; column < COLUMNS; column += 64) {
    for (int row = 0; row < ROWS / 4; ++row) {
      memcpy(strip[row], &grid[ROWS / 2 + row][column], sizeof strip[row]);
    }
    const uint64_t start[2] = {ROWS / 2, column};
    CALL(eo_put(draft, start, size, strip));
  }
  double* data = eo_data(draft);
  memcpy(data + 3 * ROWS / 4 * COLUMNS, grid[3 * ROWS / 4], sizeof grid / 4);
}

static void hold(struct eo_storage* store) {
  struct eo_array view;
  struct eo_draft* draft;
  struct pollfd input = {STDIN_FILENO, POLLIN, 0};
  CALL(eo_view(store, "grid", &view));
  CALL(eo_create(store, "made", &whole, &draft));
  say("begun");
  long round = 1;
  for (;; ++round) {
    put_round(draft, round);
    HOLDS(memcmp(eo_data(draft), grid, sizeof grid) == 0);
    fill_grid(0);
    HOLDS(memcmp(view.data, grid, sizeof grid) == 0);
    if (poll(&input, 1, 0) != 0) {
      break;
    }
  }
  put_round(draft, 1);
  CALL(eo_publish(draft, EO_SYNC));
  compare(store, "made", 1);
  fill_grid(0);
  HOLDS(memcmp(view.data, grid, sizeof grid) == 0);
  eo_release(&view);
  printf("%ld rounds\n", round);
}

static int is_made(const char* name, void* context) {
  *(int*)context |= strcmp(name, "made") == 0;
  return 0;
}

static void check_all(struct eo_storage* store) {
  struct eo_storage* version;
  struct eo_array view;
  int made = 0;
  compare(store, "grid", 0);
  CALL(eo_list(store, is_made, &made));
  if (made) {
    compare(store, "made", 1);
  }
  CALL(eo_version(store, "run", EO_LATEST, &version));
  CALL(eo_check(version, NULL));
  compare(version, "u", 0);
  CALL(eo_view(version, "small/row", &view));
  HOLDS(memcmp(view.data, grid[3], sizeof grid[3]) == 0);
  eo_release(&view);
  eo_close(version);
  CALL(eo_bundle(store, "few", &version));
  CALL(eo_view(version, "row", &view));
  HOLDS(memcmp(view.data, grid[3], sizeof grid[3]) == 0);
  eo_release(&view);
  eo_close(version);
  say(made ? "with made" : "without made");
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void name_of(long i, char* name, size_t size) {
  snprintf(name, size, "part/%06ld", i);
}

static void store_many(struct eo_storage* into, long count) {
  char name[32];
  for (long i = 0; i < count; ++i) {
    double values[4] = {(double)i, 1, 2, 3};
    struct eo_array array = {"<f8", 1, EO_C_ORDER, {4}, values, NULL, 0, NULL};
    name_of(i, name, sizeof name);
    CALL(eo_store(into, name, &array, 0));
  }
}

/* Fails unless the names are those of store_many, in order. */
static int next_name(const char* name, void* context) {
  char expected[32];
  name_of(*(long*)context, expected, sizeof expected);
  ++*(long*)context;
  return strcmp(name, expected);
}

static void check_many(struct eo_storage* store, long count) {
  long listed = 0;
  char name[32];
  CALL(eo_list(store, next_name, &listed));
  HOLDS(listed == count);
  for (long i = 0; i < count; i += count / 50) {
    struct eo_array view;
    name_of(i, name, sizeof name);
    CALL(eo_view(store, name, &view));
    HOLDS(view.shape[0] == 4 && *(double*)view.data == (double)i);
    eo_release(&view);
  }
}

static void many(struct eo_storage* store, long count) {
  struct eo_storage* inner;
  const double begin = seconds();
  CALL(eo_begin_bundle(store, "many", &inner));
  store_many(inner, count);
  CALL(eo_commit(inner, 0));
  CALL(eo_bundle(store, "many", &inner));
  check_many(inner, count);
  eo_close(inner);
  const double middle = seconds();
  CALL(eo_begin(store, "many", 1, &inner));
  store_many(inner, count);
  CALL(eo_commit(inner, 0));
  CALL(eo_version(store, "many", 1, &inner));
  check_many(inner, count);
  CALL(eo_check(inner, NULL));
  eo_close(inner);
  printf("%ld arrays: bundle %.2f s, version %.2f s\n", count, middle - begin, seconds() - middle);
}

static void open_many(const char* directory, struct eo_storage* store, long count) {
  store_many(store, count);
  check_many(store, count);
  const double begin = seconds();
  CALL(eo_open(directory, &store));
  printf("eo_open of %ld objects: %.1f ms\n", count, 1e3 * (seconds() - begin));
  eo_close(store);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const int with_directory = strcmp(what, "read") == 0 || strcmp(what, "open") == 0;
  const char* directory = with_directory && argc > 2 ? argv[2] : NULL;
  const long count = argc > 2 ? atol(argv[argc - 1]) : 0;
  struct eo_storage* store;
  CALL(eo_open(directory, &store));
  if (strcmp(what, "fill") == 0) {
    fill(store);
  } else if (strcmp(what, "leave") == 0) {
    leave(store);
  } else if (strcmp(what, "hold") == 0) {
    hold(store);
  } else if (strcmp(what, "read") == 0) {
    check_all(store);
  } else if (strcmp(what, "many") == 0) {
    many(store, count);
  } else if (strcmp(what, "open") == 0) {
    open_many(directory, store, count);
  } else {
    return 2;
  }
  eo_close(store);
  return 0;
}
