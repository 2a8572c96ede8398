#pragma once
// The one place that includes libfuse, so that the API version is chosen once.

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 12)
#include <fuse_lowlevel.h>

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define EFS_HAVE_PASSTHROUGH 1
#else
#define EFS_HAVE_PASSTHROUGH 0
#endif
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
#define EFS_HAVE_STATX 1
#else
#define EFS_HAVE_STATX 0
#endif

#include "fuse/reply.hpp"  // last: its names stand for libfuse's
