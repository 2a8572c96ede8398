/* SPDX-License-Identifier: BSD-3-Clause */
/* libefs-objects: arrays by name, each a plain .npy file in a directory. See efs-objects(3).
 *
 * Three nouns: a store is a directory, an object is an immutable file in it, a draft is an object
 * that has no name yet. A version is a directory of objects that appears by one rename.
 *
 * Every function that returns int returns 0 or an errno; eo_error() has the text. Calls on one
 * store are thread-safe. Calls on one draft are not, except eo_put on parts that do not overlap.
 * No call needs the daemon of efs: any directory is a store. In a child of fork() eo_close,
 * eo_abort and eo_discard free what the parent has begun, and leave it to the parent. */
#ifndef EFS_OBJECTS_H
#define EFS_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define EO_API __attribute__((visibility("default")))
#else
#define EO_API
#endif

#define EO_MAX_NDIM 32

/* The longest token of eo_token and eo_draft_token, with its NUL. */
#define EO_MAX_TOKEN 64

/* Values of eo_array.order: the last (C) or the first (Fortran) index is contiguous. */
#define EO_C_ORDER 0
#define EO_FORTRAN_ORDER 1

/* Flags. Without EO_SYNC durability is that of the file system; see efs-consistency(7). */
#define EO_SYNC 0x1u /* durable when the call returns */
/* If only the last sync fails, after the rename, the call returns its error, and the new object or
 * version is in its place: eo_error() then says "it is in its place". */

/* For eo_version: the newest version of the series. */
#define EO_LATEST UINT64_MAX

/* Describes an array. Initialise it with zeros. The library converts nothing: not the type, not the
 * byte order and not the order of the indices. */
struct eo_array {
  char dtype[8]; /* as NumPy writes it: "<f8", "<i4", "|u1", "|b1", "<c16"; kinds b i u f c */
  int ndim;      /* 0 (one value) to EO_MAX_NDIM */
  int order;     /* EO_C_ORDER or EO_FORTRAN_ORDER */
  uint64_t shape[EO_MAX_NDIM];
  void* data;     /* contiguous; the caller owns it, except after eo_view */
  void* mapping;  /* set by eo_view for eo_release; otherwise unused */
  size_t mapped;  /* likewise */
  void* reserved; /* zero */
};

struct eo_storage;
struct eo_draft;

/* Opens the directory as a store and creates it if it is missing, with its parents. NULL means
 * $EFS_MOUNT/objects. Removes drafts that dead processes left in it; those of another node or of
 * an earlier boot after seven days without a change. */
EO_API int eo_open(const char* directory, struct eo_storage** store);

/* Closes a store. Closing a version that was not committed aborts it. NULL is ignored. Views and
 * drafts stay valid. */
EO_API void eo_close(struct eo_storage* store);

/* Stores a whole array under a name. The name leads to the old object or to the new one, at any
 * moment and after any failure. A name is UTF-8; its slashes are directories. */
EO_API int eo_store(struct eo_storage* store, const char* name, const struct eo_array* array,
                    unsigned flags);

/* Reads the part of an object that begins at start and has count elements in each dimension into
 * the contiguous memory into->data. A start of NULL is the first element; a count of NULL reaches
 * to the end. dtype, ndim and order of `into` must be the object's; its shape must be the part's.
 */
EO_API int eo_load(struct eo_storage* store, const char* name, const uint64_t* start,
                   const uint64_t* count, const struct eo_array* into);

/* Maps an object read-only and fills *view. The view keeps its version of the object when the name
 * is replaced or removed, and when the store is closed. End it with eo_release. */
EO_API int eo_view(struct eo_storage* store, const char* name, struct eo_array* view);
EO_API void eo_release(struct eo_array* view);

/* Fills *array with dtype, shape and order of an object; data is NULL. */
EO_API int eo_info(struct eo_storage* store, const char* name, struct eo_array* array);

/* Calls each() for every object's name in byte order. A value other than 0 ends the list and is
 * returned. Objects inside versions and bundles of the store are not listed. each() may call the
 * library. */
EO_API int eo_list(struct eo_storage* store, int (*each)(const char* name, void* context),
                   void* context);

/* Removes an object. Its directories stay. */
EO_API int eo_remove(struct eo_storage* store, const char* name);

/* Creates a draft of an array and reserves its space, so that a full file system is ENOSPC here and
 * not a signal later. array->data is unused; the draft's elements are 0. */
EO_API int eo_create(struct eo_storage* store, const char* name, const struct eo_array* array,
                     struct eo_draft** draft);

/* Copies count elements in each dimension from the contiguous memory `from` to the draft at start.
 * The memory has the order of the draft. NULL as in eo_load. */
EO_API int eo_put(struct eo_draft* draft, const uint64_t* start, const uint64_t* count,
                  const void* from);

/* Returns the draft's memory, to compute in place. Valid until eo_publish or eo_discard. */
EO_API void* eo_data(struct eo_draft* draft);

/* Gives the draft its name: the old object is replaced at once. Frees the draft, also on failure;
 * the name then keeps its old object. EBUSY: a process that joined has not left; the draft stays
 * open. EOWNERDEAD: a process that joined ended without eo_leave_draft. */
EO_API int eo_publish(struct eo_draft* draft, unsigned flags);

/* Discards a draft. NULL is ignored. */
EO_API void eo_discard(struct eo_draft* draft);

/* Several processes of one user on one node fill one draft: the process that created it passes the
 * token to the others, a string without slashes of at most EO_MAX_TOKEN bytes. They join, fill it
 * with eo_put or eo_data, and leave. The creator publishes or discards it. */
EO_API int eo_draft_token(struct eo_draft* draft, char* token);

/* Joins the draft that another process created. EPERM: the draft belongs to another user. ESTALE:
 * it was published or discarded, or its creator is dead. */
EO_API int eo_join_draft(struct eo_storage* store, const char* name, const char* token,
                         struct eo_draft** draft);

/* Leaves a joined draft and frees it, also on failure; EO_SYNC makes its data durable. A joined
 * draft that ends in another way (eo_discard, or the death of the process) cannot be published. */
EO_API int eo_leave_draft(struct eo_draft* draft, unsigned flags);

/* Begins version n of a series: a store that is invisible until eo_commit. Its arrays of at most 64
 * KiB from eo_store share one file, small.npz; readers of the version see no difference. EEXIST:
 * the version exists. EBUSY: another process of this node writes it. */
EO_API int eo_begin(struct eo_storage* store, const char* series, uint64_t n,
                    struct eo_storage** version);

/* Publishes a version: writes manifest.json, then renames the directory. Frees the store `version`,
 * also on failure; a version that failed is aborted. EBUSY: it has drafts that are not published,
 * or a process that joined has not left; it then stays open. EOWNERDEAD: a process that joined
 * ended without eo_leave. EIO: a file that was stored in it is gone. */
EO_API int eo_commit(struct eo_storage* version, unsigned flags);

/* Discards a version that was not committed, and frees the store. NULL is ignored. */
EO_API void eo_abort(struct eo_storage* version);

/* Several processes of one user on one node fill one version: as for drafts. A joined version is a
 * store; eo_begin and eo_commit refuse it. */
EO_API int eo_token(struct eo_storage* version, char* token);
EO_API int eo_join(struct eo_storage* store, const char* series, uint64_t n, const char* token,
                   struct eo_storage** version);

/* Leaves a joined version and frees it, also on failure; EO_SYNC makes its objects durable. ESTALE:
 * the version was aborted, or the process that began it is dead. A joined version that ends in
 * another way (eo_close, or the death of the process) cannot be committed. */
EO_API int eo_leave(struct eo_storage* version, unsigned flags);

/* Opens a committed version read-only, n or EO_LATEST. Close it with eo_close. */
EO_API int eo_version(struct eo_storage* store, const char* series, uint64_t n,
                      struct eo_storage** version);

/* Removes all versions of a series but the newest k (at least 1). A version whose manifest or
 * small.npz is damaged does not count. Views keep their objects. */
EO_API int eo_keep(struct eo_storage* store, const char* series, unsigned k);

/* Sets *n to the newest committed version of a series. ENOENT: there is none. */
EO_API int eo_newest(struct eo_storage* store, const char* series, uint64_t* n);

/* Calls each() for every committed version of a series, the oldest first. A value other than 0 ends
 * the list and is returned. A series that does not exist has none. each() may call the library. */
EO_API int eo_versions(struct eo_storage* store, const char* series,
                       int (*each)(uint64_t n, void* context), void* context);

/* Removes a version. Views keep their objects. ENOENT: it does not exist. */
EO_API int eo_remove_version(struct eo_storage* store, const char* series, uint64_t n);

/* Begins a bundle: many arrays in one file NAME.npz, which numpy.load reads. The bundle is a store
 * for eo_store, eo_load, eo_view, eo_info, eo_list and eo_remove; eo_create is ENOTSUP. It is
 * invisible until eo_commit, which replaces the old bundle of that name at once; eo_abort discards
 * it. An array has less than 4 GiB (EFBIG). A full file system can be ENOSPC from eo_commit. */
EO_API int eo_begin_bundle(struct eo_storage* store, const char* name, struct eo_storage** bundle);

/* Opens a bundle read-only; eo_close closes it. It keeps its version when the name is replaced or
 * removed. A bundle of numpy.savez is readable, a compressed array in it is ENOTSUP. */
EO_API int eo_bundle(struct eo_storage* store, const char* name, struct eo_storage** bundle);

/* Removes a bundle. Views keep their arrays. */
EO_API int eo_remove_bundle(struct eo_storage* store, const char* name);

/* Compares an object of a committed version, or all (NULL), with the manifest: size, type, shape,
 * order and XXH3-64. EBADMSG: an object differs, is missing or is not in the manifest, or the
 * manifest is damaged; eo_error() names the first. */
EO_API int eo_check(struct eo_storage* version, const char* name);

/* Sets the text of eo_error() for this thread and returns the error. For interfaces in other
 * languages. A text of NULL is the text of the errno. */
EO_API int eo_fail(int error, const char* text);

/* Returns the text of this thread's last failed call: object, file, reason and way out. "" if no
 * call failed. Valid until the thread's next failed call. */
EO_API const char* eo_error(void);

/* The program's memory in checkpoints. These calls need the store of eo_open, not a version, in the
 * process that opened it: after fork() the child opens the store itself. */

/* Protects memory of the program under a name: eo_checkpoint writes it and eo_restore fills it. The
 * memory belongs to the caller and must stay until eo_unprotect. The name is replaced. */
EO_API int eo_protect(struct eo_storage* store, const char* name, const struct eo_array* array);

/* Ends the protection. After that the memory may be freed: it waits while a snapshot reads it. */
EO_API int eo_unprotect(struct eo_storage* store, const char* name);

/* Sets an option for the checkpoints that follow.
 *
 * "strategy": how eo_checkpoint writes the version.
 * - "copy", the default: eo_checkpoint writes it itself.
 * - "stage": eo_checkpoint copies the arrays to DRAM. A background thread writes the version.
 * - "split": eo_checkpoint copies a part to DRAM while the thread writes the rest to the store, so
 *   that both end together. The thread then writes the first part. The rates are measured; the
 *   first checkpoint gives half to each medium.
 * - "snapshot": eo_checkpoint write-protects the arrays, and the thread writes them. A write of the
 *   program waits until 2 MiB around it are copied. Needs Linux 6.4, and root or /dev/userfaultfd.
 *   Not for memory that a device writes by DMA, such as RDMA buffers: the version would be torn.
 *   Shared memory (MAP_SHARED) is ENOTSUP.
 * - "auto": the first of stage, split and copy that has the DRAM it needs.
 *
 * "fast": a directory on a file system in DRAM with O_TMPFILE (tmpfs), for the copies. They have no
 * name there, so a process that ends leaves nothing. It must belong to the user and have mode 0700
 * (EPERM); it is created if it is missing. The default is /dev/shm/efs-objects-UID. The store keeps
 * the memory of the copies until eo_close.
 *
 * "pace": MB/s of the writes to the store, for tests and measurements; "0" is no limit. */
EO_API int eo_configure(struct eo_storage* store, const char* option, const char* value);

/* Writes all protected arrays as version n of a series. When it returns, the memory may change. It
 * may be freed, unmapped or moved only after eo_unprotect, which waits for a snapshot. With stage
 * and split the rest follows in the background, and EO_SYNC holds when eo_wait returns. The version
 * is invisible until it is whole, also after a crash; exit() without eo_wait or eo_close loses it.
 * A checkpoint waits for the one before; if that one failed, its error is returned and nothing is
 * begun. EEXIST and EBUSY as eo_begin; ENOSPC also if "fast" has no room.
 */
EO_API int eo_checkpoint(struct eo_storage* store, const char* series, uint64_t n, unsigned flags);

/* Says that a protected array will not change until the next checkpoint. A background thread copies
 * the array to a draft of the next version at once, so that the checkpoint need not; the last
 * version is not touched. A hint is a promise that may be broken: eo_checkpoint compares XXH3-64 of
 * the memory with that of the copy, and writes an array that changed again. The comparison takes
 * about as long as a copy to DRAM: a hint pays with copy and split, with stage it only spares the
 * store later. eo_checkpoint discards a copy that is not complete. A hint has no effect for arrays
 * of at most 64 KiB and with snapshot. ENOENT: the name is not protected. */
EO_API int eo_persisted_hint(struct eo_storage* store, const char* name);

/* Waits until the last checkpoint is whole and in its place. Returns the error of the background
 * work, once; the version is then discarded. eo_close waits, too, and only sets eo_error(). */
EO_API int eo_wait(struct eo_storage* store);

/* Returns the strategy that the last checkpoint used; "" before the first. */
EO_API const char* eo_strategy(struct eo_storage* store);

/* Fills all protected arrays from version n. EO_LATEST is the newest version that eo_check finds
 * good: a damaged one is skipped, and renamed to NUMBER.damaged-TOKEN, which no call finds, so that
 * the next checkpoint can have its number. *found is the number of the version; NULL is allowed.
 * Type, order and shape of each array must be those of the version, and each array must be in it
 * (EINVAL, also if no array is protected). All is verified before the memory changes; only if a
 * read fails after that, the memory is partly restored, and eo_error() says so. */
EO_API int eo_restore(struct eo_storage* store, const char* series, uint64_t n, uint64_t* found);

#ifdef __cplusplus
}
#endif

#endif /* EFS_OBJECTS_H */
