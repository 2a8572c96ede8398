/* libefs: load files into the job's buffer, and unload them, while the program runs.
 *
 * The calls of echofs' API, finished; programs written for it include efs-api.h and compile
 * unchanged. See efs-api(3).
 *
 * Thread-safe, except that two threads must not use one control block at a time. No call keeps a
 * connection, a descriptor or a thread. Every function that returns int gives EFS_API_SUCCESS or
 * one of the negative codes below.
 */
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

/* What a call is about. Zeroed or made by EFS_IOCB_INIT. The strings stay the caller's and are read
 * by efs_load and efs_unload only. */
struct efs_iocb {
  char* efs_backend;  /* of a load: id of a backend in the job file; NULL or "": any. An unknown one
                         is EFS_API_EINVAL. */
  char* efs_path;     /* on the mount, of the PFS below root-dir, or relative to root-dir; file,
                         directory, pattern */
  off_t efs_offset;   /* of the part of one file, bytes */
  size_t efs_size;    /* of the part; 0: to the end. Both 0: all of it. */
  int efs_tid;        /* set by efs_load and efs_unload: the number of the task */
  unsigned efs_flags; /* EFS_LOAD_..., EFS_UNLOAD_... */
  uint64_t efs_reserved[4]; /* zero */
};

#define EFS_IOCB_INIT(backend, path, offset, size) \
  {(backend), (path), (offset), (size), 0, 0, {0, 0, 0, 0}}

#define EFS_LOAD_REPLACE 0x1u /* take the place of another version that is clean */
#define EFS_LOAD_FORCE 0x2u   /* with REPLACE: of a changed one too; its changes are lost */
#define EFS_UNLOAD_AS_IS \
  0x4u /* also what may be written to meanwhile: such a copy is not verified */
#define EFS_UNLOAD_REMOVE 0x8u /* then remove it from the buffer */

/* Begin a load, an unload. They return at once; efs_tid names the task. */
EFS_API int efs_load(struct efs_iocb* cb);
EFS_API int efs_unload(struct efs_iocb* cb);

/* How the task stands: EFS_API_ETASKPENDING, EFS_API_ETASKINPROGRESS, EFS_API_SUCCESS, or why it
 * failed. */
EFS_API int efs_status(struct efs_iocb* cb);

/* Waits for the task's end, at most timeout_ms milliseconds (negative: without end), and returns as
 * efs_status. */
EFS_API int efs_wait(struct efs_iocb* cb, int timeout_ms);

/* Asks the task to end. A cancelled load leaves nothing behind, a cancelled unload only whole
 * files. The task's status is EFS_API_ECANCELED when it has ended so. EFS_API_SUCCESS also where it
 * had ended before. */
EFS_API int efs_cancel(struct efs_iocb* cb);

/* What a code means. Never NULL; not to be changed or freed. (Not const, as programs for echofs
 * have it so.) */
EFS_API char* efs_strerror(int code);

/* What this thread's last call that failed has to say: which file, and the way out. Never NULL;
 * valid until the thread's next call. */
EFS_API const char* efs_last_error(void);

/* The values of echofs. */
#define EFS_API_SUCCESS 0
#define EFS_API_ESNAFU -1 /* anything else */
#define EFS_API_EINVAL -2
#define EFS_API_EBADREQUEST -3
#define EFS_API_EBADRESPONSE -4
#define EFS_API_ENOMEM -5
#define EFS_API_ECONNFAILED -6 /* no instance, or several and none is named */
#define EFS_API_ERPCSENDFAILED -7
#define EFS_API_ERPCRECVFAILED -8
#define EFS_API_EPACKFAILED -9
#define EFS_API_EUNPACKFAILED -10
#define EFS_API_ETASKPENDING -11
#define EFS_API_ENOSUCHTASK -12
#define EFS_API_ETASKINPROGRESS -13
#define EFS_API_ENOSUCHPATH -14
#define EFS_API_EPATHEXISTS -15
/* Ours. */
#define EFS_API_ECANCELED -16
#define EFS_API_EBUSY -17 /* changed or open for writing in the buffer */
#define EFS_API_EACCES -18
#define EFS_API_ENOSPC -19
#define EFS_API_ESTALE -20 /* the PFS has another version than was loaded */
#define EFS_API_EIO -21
#define EFS_API_EAGAIN -22 /* too many tasks, or the instance is being stopped */
#define EFS_API_ELOST \
  -23 /* the task was lost with a worker that died and was replaced: ask for it again */

#define EFS_API_ERRMAX 512
#define EFS_API_UNKNOWN (-(EFS_API_ERRMAX)) /* of echofs; does not occur */

#ifdef __cplusplus
}
#endif

#endif /* EFS_H */
