/* SPDX-License-Identifier: BSD-3-Clause */
/* Phoenix's vocabulary on libefs-objects (C and C++): objects in DRAM, and commits of all of them.
 *
 * The store is the directory $PHOENIX_STORE, else that of the job ($EFS_MOUNT/objects). Each commit
 * is one version of the series "phoenix", and each object one array of bytes in it. With
 * PHOENIX_MPI defined, init, checkpoint_commit, phoenix_restore and finalize are collective over
 * MPI_COMM_WORLD, and each rank has a series of its own. Not thread-safe.
 *
 * Functions that return int return 0 or an errno; eo_error() has the text. Names that begin with
 * phoenix_ are additions. */
#ifndef EFS_PHOENIX_H
#define EFS_PHOENIX_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "efs_objects.h"
#ifdef PHOENIX_MPI
#include "efs_objects_mpi.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct properties {
  int checkpoint;  /* not 0: checkpoint_commit() writes the object */
  int persistence; /* not 0: commits are durable when they return (EO_SYNC) */
  int versioning;  /* how many commits stay, at least 1; the largest of all objects counts */
};

struct phoenix_object {
  struct phoenix_object* next;
  struct properties properties;
  void* allocated;
  char* key; /* behind this structure */
};

struct phoenix_state {
  struct eo_storage* store;
  struct phoenix_object* objects;
  uint64_t next; /* version; 0 before the first commit */
  int committed; /* not 0: the last commit succeeded; its background work may go on */
};

/* One for the program, whatever number of its files include this header. */
__attribute__((weak)) struct phoenix_state phoenix;

#define PHOENIX_SERIES "phoenix"
#define PHOENIX_ALIGNMENT 4096 /* an object shares no page: strategies may protect pages */

/* Opens the store. */
static inline int init(void) {
  int error;
  if (phoenix.store != NULL) {
    return eo_fail(EBUSY, "cannot initialise Phoenix: it is initialised. Call finalize() first");
  }
  error = eo_open(getenv("PHOENIX_STORE"), &phoenix.store);
#ifdef PHOENIX_MPI
  error = eo_mpi_agree(MPI_COMM_WORLD, error);
  if (error != 0) {
    eo_close(phoenix.store);
    phoenix.store = NULL;
  }
#endif
  phoenix.next = 0;
  phoenix.committed = 0;
  return error;
}

/* The store, for eo_configure and eo_persisted_hint; NULL before init(). */
static inline struct eo_storage* phoenix_store(void) {
  return phoenix.store;
}

static inline struct phoenix_object** phoenix_find(const char* key) {
  struct phoenix_object** found = &phoenix.objects;
  while (*found != NULL && strcmp((*found)->key, key) != 0) {
    found = &(*found)->next;
  }
  return found;
}

static inline void* phoenix_memory(const struct phoenix_object* object) {
  return (void*)(((uintptr_t)object->allocated + PHOENIX_ALIGNMENT - 1) / PHOENIX_ALIGNMENT *
                 PHOENIX_ALIGNMENT);
}

static inline struct phoenix_object* phoenix_allocate(const char* key, size_t size) {
  const size_t length = strlen(key) + 1;
  struct phoenix_object* object =
      (struct phoenix_object*)malloc(sizeof(struct phoenix_object) + length);
  if (object == NULL) {
    return NULL;
  }
  object->allocated =
      size < SIZE_MAX - 2 * PHOENIX_ALIGNMENT ? calloc(1, size + 2 * PHOENIX_ALIGNMENT) : NULL;
  if (object->allocated == NULL) {
    free(object);
    return NULL;
  }
  object->key = (char*)(object + 1);
  memcpy(object->key, key, length);
  object->next = NULL;
  return object;
}

static inline void phoenix_free(struct phoenix_object* object) {
  free(object->allocated);
  free(object);
}

/* size counts bytes. The array in the file has size / unit_size rows of unit_size bytes. */
static inline void* phoenix_create(const char* key, size_t size, size_t unit_size,
                                   struct properties properties) {
  struct phoenix_object** end;
  struct phoenix_object* object;
  struct eo_array array;
  if (phoenix.store == NULL || key == NULL || unit_size == 0 || size % unit_size != 0) {
    (void)eo_fail(EINVAL,
                  "cannot create the object: init() was not called, the key is NULL, or the "
                  "size is not a multiple of the unit");
    return NULL;
  }
  end = phoenix_find(key);
  if (*end != NULL) {
    (void)eo_fail(EEXIST, "cannot create the object: its key is used. Call destroy_obj() first");
    return NULL;
  }
  object = phoenix_allocate(key, size);
  if (object == NULL) {
    (void)eo_fail(ENOMEM, "cannot create the object: there is not enough memory");
    return NULL;
  }
  object->properties = properties;
  memset(&array, 0, sizeof array);
  memcpy(array.dtype, "|u1", 4);
  array.ndim = 2;
  array.shape[0] = size / unit_size;
  array.shape[1] = unit_size;
  array.data = phoenix_memory(object);
  if (properties.checkpoint != 0 && eo_protect(phoenix.store, key, &array) != 0) {
    phoenix_free(object);
    return NULL;
  }
  *end = object;
  return array.data;
}

static inline void* phoenix_create_bytes(const char* key, size_t size,
                                         struct properties properties) {
  return phoenix_create(key, size, 1, properties);
}

/* create_obj(key, size, unit_size, properties) or create_obj(key, size, properties): memory in
 * DRAM, filled with 0; NULL after a failure. In C the properties are a variable, not a compound
 * literal. */
#ifdef __cplusplus
extern "C++" {
inline void* create_obj(const char* key, size_t size, size_t unit_size,
                        struct properties properties) {
  return phoenix_create(key, size, unit_size, properties);
}

inline void* create_obj(const char* key, size_t size, struct properties properties) {
  return phoenix_create_bytes(key, size, properties);
}
}
#else
#define create_obj(...) \
  PHOENIX_PICK(__VA_ARGS__, phoenix_create, phoenix_create_bytes, 0, 0, 0)(__VA_ARGS__)
#define PHOENIX_PICK(a, b, c, d, picked, ...) picked
#endif

/* The largest versioning and persistence of all objects. */
static inline struct properties phoenix_all_properties(void) {
  struct properties all = {0, 0, 1};
  const struct phoenix_object* object;
  for (object = phoenix.objects; object != NULL; object = object->next) {
    all.persistence |= object->properties.persistence;
    if (object->properties.versioning > all.versioning) {
      all.versioning = object->properties.versioning;
    }
  }
  return all;
}

static inline int phoenix_newest(uint64_t* n) {
#ifdef PHOENIX_MPI
  char own[EO_MPI_MAX_SERIES];
  const int error = eo_mpi_own_series(MPI_COMM_WORLD, PHOENIX_SERIES, own);
  return error != 0 ? error : eo_mpi_latest(MPI_COMM_WORLD, phoenix.store, own, n);
#else
  return eo_newest(phoenix.store, PHOENIX_SERIES, n);
#endif
}

/* Sets phoenix.next before the first commit. It is one number on all ranks. */
static inline int phoenix_number(void) {
  uint64_t newest = 0;
  int error = 0;
  if (phoenix.next == 0) {
    error = phoenix_newest(&newest);
    error = error == ENOENT ? 0 : error;
    phoenix.next = error == 0 ? newest + 1 : 0;
  }
  return error;
}

/* Writes version n. With EO_SYNC it is in its place on return, else when the next one is written.
 */
static inline int phoenix_write(uint64_t n, unsigned flags) {
#ifdef PHOENIX_MPI
  const int error = eo_mpi_checkpoint(MPI_COMM_WORLD, phoenix.store, PHOENIX_SERIES, n, flags);
  return error != 0 || flags == 0 ? error : eo_mpi_wait(MPI_COMM_WORLD, phoenix.store);
#else
  const int error = eo_checkpoint(phoenix.store, PHOENIX_SERIES, n, flags);
  return error != 0 || flags == 0 ? error : eo_wait(phoenix.store);
#endif
}

static inline int phoenix_keep(unsigned kept) {
#ifdef PHOENIX_MPI
  return eo_mpi_keep(MPI_COMM_WORLD, phoenix.store, PHOENIX_SERIES, kept);
#else
  return eo_keep(phoenix.store, PHOENIX_SERIES, kept);
#endif
}

/* Writes all objects with the property checkpoint as one version, and removes old ones when a
 * commit of this program is in its place. The objects may change when it returns. A commit without
 * persistence that fails later is the error of the next commit, which then writes nothing. */
static inline int checkpoint_commit(void) {
  const struct properties all = phoenix_all_properties();
  const unsigned flags = all.persistence != 0 ? EO_SYNC : 0;
  const int before = phoenix.committed;
  int error;
  if (phoenix.store == NULL) {
    return eo_fail(EINVAL, "cannot commit: init() was not called");
  }
  error = phoenix_number();
  if (error != 0) {
    return error;
  }
  /* A number is used once, also by a commit that fails: some ranks may have written it. */
  error = phoenix_write(phoenix.next++, flags);
  phoenix.committed = error == 0;
  if (error == 0 && (before || flags != 0)) {
    error = phoenix_keep((unsigned)all.versioning);
  }
  return error;
}

/* Fills all objects that exist from the newest good commit. ENOENT: there is none. */
static inline int phoenix_restore(void) {
  uint64_t found;
#ifdef PHOENIX_MPI
  return eo_mpi_restore(MPI_COMM_WORLD, phoenix.store, PHOENIX_SERIES, EO_LATEST, &found);
#else
  return eo_restore(phoenix.store, PHOENIX_SERIES, EO_LATEST, &found);
#endif
}

/* Frees the object's memory. Commits keep their copies. */
static inline int destroy_obj(const char* key) {
  struct phoenix_object** found = phoenix_find(key);
  struct phoenix_object* object = *found;
  int error = 0;
  if (object == NULL) {
    return eo_fail(ENOENT, "cannot destroy the object: create_obj() did not make its key");
  }
  if (object->properties.checkpoint != 0) {
    error = eo_unprotect(phoenix.store, key);
  }
  *found = object->next;
  phoenix_free(object);
  return error;
}

/* Waits for the last commit, frees all objects and closes the store. Returns the error of the
 * commit's background work. */
static inline int finalize(void) {
  int error;
  if (phoenix.store == NULL) {
    return 0;
  }
#ifdef PHOENIX_MPI
  error = eo_mpi_wait(MPI_COMM_WORLD, phoenix.store);
#else
  error = eo_wait(phoenix.store);
#endif
  eo_close(phoenix.store);
  phoenix.store = NULL;
  while (phoenix.objects != NULL) {
    struct phoenix_object* next = phoenix.objects->next;
    phoenix_free(phoenix.objects);
    phoenix.objects = next;
  }
  return error;
}

#ifdef __cplusplus
}
#endif

#endif /* EFS_PHOENIX_H */
