/* SPDX-License-Identifier: BSD-3-Clause */
/* libefs: loads files into the job's buffer, and unloads them, while the program runs.
 *
 * A complete implementation of the API of echofs. Programs written for echofs include efs-api.h
 * and compile unchanged. See efs-api(3).
 *
 * Thread-safe, except that two threads must not use one control block at the same time. No call
 * keeps a connection, a descriptor or a thread. Every function that returns int returns
 * EFS_API_SUCCESS or one of the negative codes below. */
#ifndef EFS_H
#define EFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define EFS_API __attribute__((visibility("default")))
#else
#define EFS_API
#endif

#define EFS_API_VERSION 1

/* The arguments of a call. Initialise it with zeros or EFS_IOCB_INIT. The caller owns the
 * strings; only the calls that start a task read them. */
struct efs_iocb {
  char* efs_backend; /* for a load: id of a backend in the job file; NULL or "": any. For a move:
                        the backend to move to. An unknown id is EFS_API_EINVAL. */
  char* efs_path;    /* a path on the mount, a path on the PFS below root-dir, or a path relative to
                        root-dir; a file, directory or pattern */
  off_t efs_offset;  /* offset of a part of one file, bytes */
  size_t efs_size;   /* size of the part; 0: to the end. Both 0: the whole file. */
  int efs_tid;       /* set by the calls that start a task: its number */
  unsigned efs_flags;       /* EFS_LOAD_..., EFS_UNLOAD_... */
  uint64_t efs_reserved[4]; /* zero */
};

#define EFS_IOCB_INIT(backend, path, offset, size) \
  {(backend), (path), (offset), (size), 0, 0, {0, 0, 0, 0}}

#define EFS_LOAD_REPLACE 0x1u /* replaces another version that is unchanged */
#define EFS_LOAD_FORCE \
  0x2u /* with REPLACE: also replaces a changed version, whose changes are lost */
#define EFS_UNLOAD_AS_IS \
  0x4u /* also files that a program may be writing to: such a copy is not verified */
#define EFS_UNLOAD_REMOVE 0x8u /* then remove it from the buffer */

/* Start a load or an unload. They return at once; efs_tid is the number of the task. */
EFS_API int efs_load(struct efs_iocb* cb);
EFS_API int efs_unload(struct efs_iocb* cb);

/* Fetches inputs whose contents are not in the buffer yet (stage: on-access or background), before
 * those that no program waits for: a file, directory or pattern, whole. Returns at once, as the
 * calls above. efs_flags is 0. What is in the buffer already is no error. */
EFS_API int efs_fetch(struct efs_iocb* cb);

/* Moves the contents of files to the backend efs_backend: a file, directory or pattern, whole.
 * Returns at once, as the calls above. efs_flags is 0. A file that a program has open stays:
 * EFS_API_EBUSY. A file that is in that backend already is no error. */
EFS_API int efs_move(struct efs_iocb* cb);

/* Waits until the contents of all inputs with stage: background are in the buffer, at most
 * timeout_ms milliseconds (negative: no limit). EFS_API_ETASKINPROGRESS: some are not yet.
 * EFS_API_EIO: some could not be fetched; their next open tries again. */
EFS_API int efs_wait_inputs(int timeout_ms);

/* Returns the state of the task: EFS_API_ETASKPENDING, EFS_API_ETASKINPROGRESS, EFS_API_SUCCESS,
 * or the code of its failure. */
EFS_API int efs_status(struct efs_iocb* cb);

/* Waits for the end of the task, at most timeout_ms milliseconds (negative: no limit). Returns
 * the same codes as efs_status. */
EFS_API int efs_wait(struct efs_iocb* cb, int timeout_ms);

/* Asks the task to end. A cancelled load leaves no file, a cancelled unload only whole files.
 * The status of a task that ended so is EFS_API_ECANCELED. Returns EFS_API_SUCCESS also if the
 * task had already ended. */
EFS_API int efs_cancel(struct efs_iocb* cb);

/* Returns the meaning of a code. Never NULL; must not be changed or freed. (Not const, for
 * programs written for echofs.) */
EFS_API char* efs_strerror(int code);

/* Returns the message of this thread's last failed call: the file, and the remedy. Never NULL;
 * valid until the thread's next call. */
EFS_API const char* efs_last_error(void);

/* Values of echofs. */
#define EFS_API_SUCCESS 0
#define EFS_API_ESNAFU -1 /* any other error */
#define EFS_API_EINVAL -2
#define EFS_API_EBADREQUEST -3
#define EFS_API_EBADRESPONSE -4
#define EFS_API_ENOMEM -5
#define EFS_API_ECONNFAILED -6 /* no instance, or several instances and no name */
#define EFS_API_ERPCSENDFAILED -7
#define EFS_API_ERPCRECVFAILED -8
#define EFS_API_EPACKFAILED -9
#define EFS_API_EUNPACKFAILED -10
#define EFS_API_ETASKPENDING -11
#define EFS_API_ENOSUCHTASK -12
#define EFS_API_ETASKINPROGRESS -13
#define EFS_API_ENOSUCHPATH -14
#define EFS_API_EPATHEXISTS -15
/* Values that echofs does not have. */
#define EFS_API_ECANCELED -16
#define EFS_API_EBUSY -17 /* changed or open for writing in the buffer */
#define EFS_API_EACCES -18
#define EFS_API_ENOSPC -19
#define EFS_API_ESTALE -20 /* the PFS has another version than was loaded */
#define EFS_API_EIO -21
#define EFS_API_EAGAIN -22 /* too many tasks, or the instance is being stopped */
#define EFS_API_ELOST \
  -23 /* the task was lost when its worker died and was replaced: request it again */

#define EFS_API_ERRMAX 512
#define EFS_API_UNKNOWN (-(EFS_API_ERRMAX)) /* from echofs; never returned */

#ifdef __cplusplus
}
#endif

#endif /* EFS_H */
