/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call of libefs-objects from C, on the store of the job ($EFS_MOUNT/objects) or in a
 * directory.
 *   objects_check [DIRECTORY]                  stores temperature, forces, flags, made, the bundle
 *                                              few and version 3 of run
 *   objects_check DIRECTORY bad NAME           views this object; prints the message of a failure
 *   objects_check DIRECTORY bundle NAME ARRAY  loads an array of a bundle, likewise */
#include <efs_objects.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 400
#define COLUMNS 300
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

static void fill(double bias) {
  for (int row = 0; row < ROWS; ++row) {
    for (int column = 0; column < COLUMNS; ++column) {
      grid[row][column] = row * 1000 + column + bias;
    }
  }
}

static int print_name(const char* name, void* context) {
  ++*(int*)context;
  printf("%s\n", name);
  return 0;
}

static void store_and_view(struct eo_storage* store) {
  struct eo_array array = {"<f8", 2, EO_C_ORDER, {ROWS, COLUMNS}, grid, NULL, 0, NULL};
  fill(0.5);
  CALL(eo_store(store, "temperature", &array, EO_SYNC));
  struct eo_array view;
  CALL(eo_view(store, "temperature", &view));
  HOLDS(memcmp(view.data, grid, sizeof grid) == 0);
  fill(0.25);
  CALL(eo_store(store, "temperature", &array, 0));
  HOLDS(((double*)view.data)[0] == 0.5);
  eo_release(&view);

  float forces[6] = {1, 2, 3, 4, 5, 6};
  struct eo_array column_major = {"<f4", 2, EO_FORTRAN_ORDER, {2, 3}, forces, NULL, 0, NULL};
  CALL(eo_store(store, "atoms/forces", &column_major, 0));
  unsigned char flags[3] = {1, 0, 1};
  struct eo_array booleans = {"|b1", 1, EO_C_ORDER, {3}, flags, NULL, 0, NULL};
  CALL(eo_store(store, "atoms/flags", &booleans, 0));
  HOLDS(eo_store(store, "../escape", &booleans, 0) != 0);
}

static void load_part(struct eo_storage* store) {
  double part[2][3];
  const uint64_t start[2] = {10, 20};
  const uint64_t count[2] = {2, 3};
  struct eo_array into = {"<f8", 2, EO_C_ORDER, {2, 3}, part, NULL, 0, NULL};
  CALL(eo_load(store, "temperature", start, count, &into));
  HOLDS(part[0][0] == 10020.25 && part[1][2] == 11022.25);
  struct eo_array info;
  CALL(eo_info(store, "atoms/forces", &info));
  HOLDS(strcmp(info.dtype, "<f4") == 0 && info.order == EO_FORTRAN_ORDER && info.shape[1] == 3);
}

/* Rows by eo_put (long and short runs), the rest in place. */
static void fill_draft(struct eo_storage* store) {
  struct eo_array array = {"<f8", 2, EO_C_ORDER, {ROWS, COLUMNS}, NULL, NULL, 0, NULL};
  struct eo_draft* draft;
  CALL(eo_create(store, "made", &array, &draft));
  fill(0.75);
  const uint64_t first[2] = {0, 0};
  const uint64_t rows[2] = {100, COLUMNS};
  CALL(eo_put(draft, first, rows, grid));
  double strip[100][10];
  for (int row = 0; row < 100; ++row) {
    memcpy(strip[row], &grid[100 + row][5], sizeof strip[row]);
  }
  memcpy((double*)eo_data(draft) + 100 * COLUMNS, grid[100], sizeof(double) * 300 * COLUMNS);
  const uint64_t second[2] = {100, 5};
  const uint64_t columns[2] = {100, 10};
  CALL(eo_put(draft, second, columns, strip));
  const uint64_t last[2] = {300, 0};
  CALL(eo_put(draft, last, rows, grid[300]));
  CALL(eo_publish(draft, EO_SYNC));
  struct eo_array view;
  CALL(eo_view(store, "made", &view));
  HOLDS(memcmp(view.data, grid, sizeof grid) == 0);
  eo_release(&view);
  CALL(eo_create(store, "left", &array, &draft));
  eo_discard(draft);
}

static void write_versions(struct eo_storage* store) {
  struct eo_array array = {"<f8", 2, EO_C_ORDER, {ROWS, COLUMNS}, grid, NULL, 0, NULL};
  struct eo_storage* version;
  for (uint64_t n = 1; n <= 3; ++n) {
    CALL(eo_begin(store, "run", n, &version));
    CALL(eo_store(version, "u", &array, EO_SYNC));
    CALL(eo_commit(version, EO_SYNC));
  }
  CALL(eo_keep(store, "run", 2));
  CALL(eo_version(store, "run", EO_LATEST, &version));
  struct eo_array view;
  CALL(eo_view(version, "u", &view));
  HOLDS(memcmp(view.data, grid, sizeof grid) == 0);
  eo_release(&view);
  eo_close(version);
  HOLDS(eo_version(store, "run", 1, &version) != 0);
}

static int count_version(uint64_t n, void* context) {
  ++*(int*)context;
  return n >= 2 && n <= 4 ? 0 : -1;
}

/* Version 4: made by two, with small arrays, checked and removed. */
static void share_version(struct eo_storage* store) {
  struct eo_array array = {"<f8", 2, EO_C_ORDER, {ROWS, COLUMNS}, grid, NULL, 0, NULL};
  struct eo_array row = {"<f8", 1, EO_C_ORDER, {COLUMNS}, grid, NULL, 0, NULL};
  struct eo_storage* version;
  struct eo_storage* joined;
  char token[EO_MAX_TOKEN];
  CALL(eo_begin(store, "run", 4, &version));
  CALL(eo_token(version, token));
  CALL(eo_join(store, "run", 4, token, &joined));
  CALL(eo_store(joined, "u", &array, 0));
  HOLDS(eo_commit(version, 0) != 0);
  CALL(eo_leave(joined, EO_SYNC));
  CALL(eo_store(version, "first/row", &row, 0));
  CALL(eo_commit(version, EO_SYNC));
  uint64_t newest = 0;
  int versions = 0;
  CALL(eo_newest(store, "run", &newest));
  CALL(eo_versions(store, "run", count_version, &versions));
  HOLDS(newest == 4 && versions == 3);
  CALL(eo_version(store, "run", EO_LATEST, &version));
  CALL(eo_check(version, NULL));
  CALL(eo_check(version, "first/row"));
  eo_close(version);
  CALL(eo_remove_version(store, "run", 4));
}

static void share_draft(struct eo_storage* store) {
  struct eo_array array = {"<f8", 2, EO_C_ORDER, {ROWS, COLUMNS}, NULL, NULL, 0, NULL};
  struct eo_draft* draft;
  struct eo_draft* joined;
  char token[EO_MAX_TOKEN];
  CALL(eo_create(store, "shared", &array, &draft));
  CALL(eo_draft_token(draft, token));
  CALL(eo_join_draft(store, "shared", token, &joined));
  CALL(eo_put(joined, NULL, NULL, grid));
  CALL(eo_leave_draft(joined, EO_SYNC));
  CALL(eo_publish(draft, EO_SYNC));
  struct eo_array view;
  CALL(eo_view(store, "shared", &view));
  HOLDS(memcmp(view.data, grid, sizeof grid) == 0);
  eo_release(&view);
  CALL(eo_remove(store, "shared"));
}

static void bundle_rows(struct eo_storage* store) {
  struct eo_storage* bundle;
  CALL(eo_begin_bundle(store, "few", &bundle));
  for (int row = 0; row < ROWS; ++row) {
    char name[32];
    snprintf(name, sizeof name, "rows/%d", row);
    struct eo_array array = {"<f8", 1, EO_C_ORDER, {COLUMNS}, grid[row], NULL, 0, NULL};
    CALL(eo_store(bundle, name, &array, 0));
  }
  CALL(eo_commit(bundle, EO_SYNC));
  CALL(eo_bundle(store, "few", &bundle));
  struct eo_array view;
  CALL(eo_view(bundle, "rows/399", &view));
  eo_close(bundle);
  HOLDS(memcmp(view.data, grid[399], sizeof grid[399]) == 0);
  eo_release(&view);
  CALL(eo_begin_bundle(store, "removed", &bundle));
  CALL(eo_commit(bundle, 0));
  CALL(eo_remove_bundle(store, "removed"));
  HOLDS(eo_fail(7, "seven") == 7 && strcmp(eo_error(), "seven") == 0);
}

/* Loads an array of a bundle: NumPy does not align it, so it has no view. */
static void load_member(struct eo_storage* store, const char* name, const char* member) {
  struct eo_storage* bundle;
  struct eo_array array;
  CALL(eo_bundle(store, name, &bundle));
  CALL(eo_info(bundle, member, &array));
  array.data = grid;
  HOLDS(array.ndim == 1 && array.shape[0] <= COLUMNS);
  CALL(eo_load(bundle, member, NULL, NULL, &array));
  HOLDS(array.dtype[2] != '8' || grid[0][0] == 1);
  eo_close(bundle);
}

int main(int argc, char** argv) {
  struct eo_storage* store;
  CALL(eo_open(argc > 1 ? argv[1] : NULL, &store));
  if (argc > 3) {
    struct eo_array view;
    if (argc > 4) {
      load_member(store, argv[3], argv[4]);
    } else {
      CALL(eo_view(store, argv[3], &view));
    }
    return 0;
  }
  store_and_view(store);
  load_part(store);
  fill_draft(store);
  write_versions(store);
  share_version(store);
  share_draft(store);
  bundle_rows(store);
  int count = 0;
  CALL(eo_list(store, print_name, &count));
  HOLDS(count == 4);
  /* A draft that is not published when the process ends. */
  struct eo_array array = {"<f8", 1, EO_C_ORDER, {10}, NULL, NULL, 0, NULL};
  struct eo_draft* draft;
  CALL(eo_create(store, "unfinished", &array, &draft));
  eo_close(store);
  return 0;
}
