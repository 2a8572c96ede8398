/* SPDX-License-Identifier: BSD-3-Clause */
/* libefs-objects for MPI programs. Header only: the library itself needs no MPI. See
 * docs/objects.md.
 *
 * Every call is collective over its communicator, and every rank passes the same arguments except
 * the store, the memory and the array's data. The ranks run on one node or on several. For one
 * object or version that they fill together, their stores are one directory that all of them see,
 * on a file system whose flock works across these nodes (ESTALE otherwise). For eo_mpi_checkpoint
 * each node can have a directory of its own.
 *
 * Every rank returns the same error: that of the lowest rank that failed. eo_error() names this
 * rank and its reason on every rank. MPI's own errors go to the error handler of the communicator.
 * The calls use MPI-2 and only one thread: MPI_THREAD_FUNNELED is enough. */
#ifndef EFS_OBJECTS_MPI_H
#define EFS_OBJECTS_MPI_H

#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "efs_objects.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns one error on all ranks: 0 if every rank passes 0, else that of the lowest rank that
 * failed. This rank's text is taken from eo_error(), so call it before another eo_ call. */
static inline int eo_mpi_agree(MPI_Comm comm, int error) {
  int rank, size, first, failed;
  char text[2048] = "";
  char named[sizeof text + 32];
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  first = error != 0 ? rank : size;
  MPI_Allreduce(&first, &failed, 1, MPI_INT, MPI_MIN, comm);
  if (failed == size) {
    return 0;
  }
  if (rank == failed) {
    snprintf(text, sizeof text, "%s", eo_error());
  }
  MPI_Bcast(&error, 1, MPI_INT, failed, comm);
  MPI_Bcast(text, (int)sizeof text, MPI_CHAR, failed, comm);
  snprintf(named, sizeof named, "rank %d: %s", failed, text);
  return eo_fail(error, named);
}

/* Discards on this rank: rank 0 made it, the others leave it. Keeps the text of eo_error(). */
static inline void eo_mpi_drop(MPI_Comm comm, struct eo_draft* draft, struct eo_storage* version) {
  int rank;
  char text[2100];
  MPI_Comm_rank(comm, &rank);
  if (rank == 0) {
    eo_discard(draft);
    eo_abort(version);
    return;
  }
  snprintf(text, sizeof text, "%s", eo_error());
  if (draft != NULL) {
    (void)eo_leave_draft(draft, 0);
  }
  if (version != NULL) {
    (void)eo_leave(version, 0);
  }
  (void)eo_fail(0, text);
}

/* Creates one draft that all ranks fill with eo_put or eo_data, each its own part. End it with
 * eo_mpi_publish or eo_mpi_discard. */
static inline int eo_mpi_create(MPI_Comm comm, struct eo_storage* store, const char* name,
                                const struct eo_array* array, struct eo_draft** draft) {
  int rank, error = 0;
  char token[EO_MAX_TOKEN] = "";
  struct eo_draft* made = NULL;
  MPI_Comm_rank(comm, &rank);
  if (rank == 0) {
    error = eo_create(store, name, array, &made);
    if (error == 0) {
      error = eo_draft_token(made, token);
    }
  }
  error = eo_mpi_agree(comm, error);
  if (error == 0) {
    MPI_Bcast(token, (int)sizeof token, MPI_CHAR, 0, comm);
    error = eo_mpi_agree(comm, rank == 0 ? 0 : eo_join_draft(store, name, token, &made));
  }
  if (error == 0) {
    *draft = made;
  } else {
    eo_mpi_drop(comm, made, NULL);
  }
  return error;
}

/* Gives the draft its name when every rank has arrived. Frees the draft on all ranks, also on
 * failure; the name then keeps its old object. */
static inline int eo_mpi_publish(MPI_Comm comm, struct eo_draft* draft, unsigned flags) {
  int rank, error;
  MPI_Comm_rank(comm, &rank);
  error = eo_mpi_agree(comm, rank == 0 ? 0 : eo_leave_draft(draft, flags));
  if (error == 0) {
    error = eo_mpi_agree(comm, rank == 0 ? eo_publish(draft, flags) : 0);
    if (error == EBUSY && rank == 0) {
      eo_discard(draft);
    }
  } else if (rank == 0) {
    eo_discard(draft);
  }
  return error;
}

/* Discards the draft on this rank. Every rank calls it; it does not communicate. */
static inline void eo_mpi_discard(MPI_Comm comm, struct eo_draft* draft) {
  eo_mpi_drop(comm, draft, NULL);
}

/* Begins one version that all ranks fill: each rank stores objects of its own with eo_store, all
 * ranks together make an object with eo_mpi_create. End it with eo_mpi_commit or eo_mpi_abort. */
static inline int eo_mpi_begin(MPI_Comm comm, struct eo_storage* store, const char* series,
                               uint64_t n, struct eo_storage** version) {
  int rank, error = 0;
  char token[EO_MAX_TOKEN] = "";
  struct eo_storage* begun = NULL;
  MPI_Comm_rank(comm, &rank);
  if (rank == 0) {
    error = eo_begin(store, series, n, &begun);
    if (error == 0) {
      error = eo_token(begun, token);
    }
  }
  error = eo_mpi_agree(comm, error);
  if (error == 0) {
    MPI_Bcast(token, (int)sizeof token, MPI_CHAR, 0, comm);
    error = eo_mpi_agree(comm, rank == 0 ? 0 : eo_join(store, series, n, token, &begun));
  }
  if (error == 0) {
    *version = begun;
  } else {
    eo_mpi_drop(comm, NULL, begun);
  }
  return error;
}

/* Discards the version on this rank. Every rank calls it; it does not communicate. */
static inline void eo_mpi_abort(MPI_Comm comm, struct eo_storage* version) {
  eo_mpi_drop(comm, NULL, version);
}

/* Publishes the version when every rank has arrived. Frees it on all ranks; a version that failed
 * is aborted, also for an unpublished draft (EBUSY). */
static inline int eo_mpi_commit(MPI_Comm comm, struct eo_storage* version, unsigned flags) {
  int rank, error;
  MPI_Comm_rank(comm, &rank);
  error = eo_mpi_agree(comm, rank == 0 ? 0 : eo_leave(version, flags));
  if (rank != 0) {
    return error != 0 ? error : eo_mpi_agree(comm, 0);
  }
  if (error != 0) {
    eo_abort(version);
    return error;
  }
  error = eo_mpi_agree(comm, eo_commit(version, flags));
  if (error == EBUSY) {
    eo_abort(version);
  }
  return error;
}

/* The largest version of eo_versions up to a bound, plus 1; 0: none. */
struct eo_mpi_newest {
  uint64_t bound;
  unsigned long long found;
};

static inline int eo_mpi_each(uint64_t n, void* context) {
  struct eo_mpi_newest* newest = (struct eo_mpi_newest*)context;
  if (n <= newest->bound && n + 1 > newest->found) {
    newest->found = n + 1;
  }
  return 0;
}

/* Sets *n to the newest version up to `bound` that the series of every rank has. The series of the
 * ranks may differ. ENOENT: there is none. */
static inline int eo_mpi_latest_to(MPI_Comm comm, struct eo_storage* store, const char* series,
                                   uint64_t bound, uint64_t* n) {
  struct eo_mpi_newest newest;
  unsigned long long mine[2], all[2];
  newest.bound = bound;
  do {
    newest.found = 0;
    int error = eo_mpi_agree(comm, eo_versions(store, series, eo_mpi_each, &newest));
    if (error != 0) {
      return error;
    }
    mine[0] = newest.found;
    mine[1] = ~newest.found;
    MPI_Allreduce(mine, all, 2, MPI_UNSIGNED_LONG_LONG, MPI_MIN, comm);
    newest.bound = all[0] - 1; /* of the rank whose newest is the oldest */
  } while (all[0] != 0 && all[0] != ~all[1]);
  if (all[0] == 0) {
    char text[1024];
    snprintf(text, sizeof text, "cannot find a version of %.900s that all ranks have", series);
    return eo_fail(ENOENT, text);
  }
  *n = all[0] - 1;
  return 0;
}

/* Sets *n to the newest version that the series of every rank has. ENOENT: there is none. */
static inline int eo_mpi_latest(MPI_Comm comm, struct eo_storage* store, const char* series,
                                uint64_t* n) {
  return eo_mpi_latest_to(comm, store, series, EO_LATEST - 1, n);
}

#define EO_MPI_MAX_SERIES 1024

/* The series of this rank's own memory: SERIES/r3of8. */
static inline int eo_mpi_own_series(MPI_Comm comm, const char* series, char* own) {
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  if (snprintf(own, EO_MPI_MAX_SERIES, "%s/r%dof%d", series, rank, size) >= EO_MPI_MAX_SERIES) {
    return eo_fail(EINVAL, "cannot use the series: its name is longer than 1000 bytes");
  }
  return 0;
}

/* Whether a store has version n of a series, also a damaged one. */
static inline int eo_mpi_has(struct eo_storage* store, const char* series, uint64_t n) {
  struct eo_storage* version = NULL;
  const int error = n == EO_LATEST ? ENOENT : eo_version(store, series, n, &version);
  if (error == 0) {
    eo_close(version);
  }
  return error != ENOENT;
}

/* Rank 0 records the number of ranks as the object SERIES/ranks. */
static inline int eo_mpi_record_ranks(MPI_Comm comm, struct eo_storage* store, const char* series) {
  char name[EO_MPI_MAX_SERIES + 8];
  int32_t ranks = 0;
  int rank, size;
  struct eo_array array;
  memset(&array, 0, sizeof array);
  memcpy(array.dtype, "<i4", 4);
  array.data = &ranks;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  snprintf(name, sizeof name, "%s/ranks", series);
  if (rank != 0 || (eo_load(store, name, NULL, NULL, &array) == 0 && ranks == size)) {
    return 0;
  }
  ranks = size;
  return eo_store(store, name, &array, 0);
}

/* Fails with EINVAL if another number of ranks wrote the checkpoints of a series. */
static inline int eo_mpi_check_ranks(MPI_Comm comm, struct eo_storage* store, const char* series) {
  char name[EO_MPI_MAX_SERIES + 8];
  char text[EO_MPI_MAX_SERIES + 256];
  int32_t ranks = 0;
  int size;
  struct eo_array array;
  memset(&array, 0, sizeof array);
  memcpy(array.dtype, "<i4", 4);
  array.data = &ranks;
  MPI_Comm_size(comm, &size);
  snprintf(name, sizeof name, "%s/ranks", series);
  if (eo_load(store, name, NULL, NULL, &array) != 0 || ranks == size) {
    return 0;
  }
  snprintf(text, sizeof text,
           "cannot restore %s: %d ranks wrote it and this program has %d. Start %d ranks, or store "
           "arrays with eo_mpi_create: any number of ranks loads parts of them",
           series, (int)ranks, size, (int)ranks);
  return eo_fail(EINVAL, text);
}

/* Removes a version that only some ranks have: the rest of a checkpoint that failed. An error of
 * one rank is that of all. */
static inline int eo_mpi_remove_rest(MPI_Comm comm, struct eo_storage* store, const char* own,
                                     uint64_t n) {
  const int has = eo_mpi_has(store, own, n);
  int all_have;
  MPI_Allreduce(&has, &all_have, 1, MPI_INT, MPI_MIN, comm);
  return eo_mpi_agree(comm, has && !all_have ? eo_remove_version(store, own, n) : 0);
}

/* Writes the protected memory of every rank as version n of SERIES/r3of8, a series of each rank.
 * The version counts when all ranks have it. When the call returns the memory may change;
 * eo_mpi_wait says when all is in its place. The call first waits for the checkpoint before: if
 * that failed on one rank, every rank returns its error and begins nothing. EEXIST: all ranks have
 * version n. A version n that only some ranks have is the rest of a checkpoint that failed, and is
 * replaced; if a rank cannot remove it, no rank writes. */
static inline int eo_mpi_checkpoint(MPI_Comm comm, struct eo_storage* store, const char* series,
                                    uint64_t n, unsigned flags) {
  char own[EO_MPI_MAX_SERIES];
  int error = eo_mpi_own_series(comm, series, own);
  if (error == 0) {
    error = eo_wait(store);
  }
  if (error == 0) {
    error = eo_mpi_record_ranks(comm, store, series);
  }
  error = eo_mpi_agree(comm, error);
  if (error == 0) {
    error = eo_mpi_remove_rest(comm, store, own, n);
  }
  return error != 0 ? error : eo_mpi_agree(comm, eo_checkpoint(store, own, n, flags));
}

/* Waits until the last checkpoint of every rank is whole and in its place. */
static inline int eo_mpi_wait(MPI_Comm comm, struct eo_storage* store) {
  return eo_mpi_agree(comm, eo_wait(store));
}

/* Whether an older version may not have the failure of a restore: this one is damaged or gone. */
static inline int eo_mpi_is_damage(int error) {
  return error == EBADMSG || error == ENOTSUP || error == EIO || error == ENOENT;
}

/* Restores the protected memory of every rank from version n. EO_LATEST: from the newest version
 * that every rank has and finds good. *found, unless NULL, is its number. EINVAL: another number of
 * ranks wrote the series. After a failure the protected memory is undefined. */
static inline int eo_mpi_restore(MPI_Comm comm, struct eo_storage* store, const char* series,
                                 uint64_t n, uint64_t* found) {
  char own[EO_MPI_MAX_SERIES];
  uint64_t candidate = n, bound = EO_LATEST - 1, restored;
  int error = eo_mpi_own_series(comm, series, own);
  if (error == 0) {
    error = eo_mpi_check_ranks(comm, store, series);
  }
  error = eo_mpi_agree(comm, error);
  if (error != 0) {
    return error;
  }
  do {
    if (n == EO_LATEST) {
      error = eo_mpi_latest_to(comm, store, own, bound, &candidate);
      if (error != 0) {
        return error;
      }
    }
    /* eo_restore verifies the version first. Some ranks can restore one that others find damaged:
     * then all ranks restore an older one. */
    error = eo_mpi_agree(comm, eo_restore(store, own, candidate, &restored));
    bound = candidate - 1;
  } while (n == EO_LATEST && candidate != 0 && eo_mpi_is_damage(error));
  if (error == 0 && found != NULL) {
    *found = candidate;
  }
  return error;
}

/* Versions up to a bound: the oldest `excess` of them are removed. */
struct eo_mpi_old {
  struct eo_storage* store; /* NULL: only counted */
  const char* series;
  uint64_t bound;
  unsigned long long count, excess;
  int error;
};

static inline int eo_mpi_each_old(uint64_t n, void* context) {
  struct eo_mpi_old* old = (struct eo_mpi_old*)context;
  if (n > old->bound) {
    return 0;
  }
  if (old->store != NULL && old->count < old->excess) {
    old->error = eo_remove_version(old->store, old->series, n);
  }
  ++old->count;
  return old->error;
}

/* Removes old versions of each rank's own series. The newest k (at least 1) up to the newest that
 * all ranks have stay, and newer ones: a version that some rank still writes replaces none. Damaged
 * versions count: call eo_mpi_wait first, so that the last checkpoint is one that stays. */
static inline int eo_mpi_keep(MPI_Comm comm, struct eo_storage* store, const char* series,
                              unsigned k) {
  char own[EO_MPI_MAX_SERIES];
  struct eo_mpi_old old;
  int error = eo_mpi_own_series(comm, series, own);
  if (error == 0 && k == 0) {
    error = eo_fail(EINVAL, "cannot remove old versions: the number to keep is 0. Keep at least 1");
  }
  memset(&old, 0, sizeof old);
  error = eo_mpi_agree(comm, error);
  if (error == 0) {
    error = eo_mpi_latest(comm, store, own, &old.bound);
    if (error == ENOENT) {
      return 0;
    }
  }
  if (error != 0) {
    return error;
  }
  old.series = own;
  error = eo_versions(store, own, eo_mpi_each_old, &old);
  if (error == 0 && old.count > k) {
    old.excess = old.count - k;
    old.count = 0;
    old.store = store;
    error = eo_versions(store, own, eo_mpi_each_old, &old);
  }
  return eo_mpi_agree(comm, error);
}

#ifdef __cplusplus
}
#endif

#endif /* EFS_OBJECTS_MPI_H */
