// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The only file that includes libfuse, so that the API version is chosen once.

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 12)
#include <fuse_lowlevel.h>

#include <string>

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

namespace efs::fuse {

/// Makes the kernel look up a name again at its next use. The kernel keeps the entry until then.
/// (Before 3.16 the call took a flag.)
inline int expire_entry(fuse_session* session, fuse_ino_t parent, const std::string& name) {
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 16)
  return fuse_lowlevel_notify_expire_entry(session, parent, name.c_str(), name.size());
#else
  return fuse_lowlevel_notify_expire_entry(session, parent, name.c_str(), name.size(),
                                           FUSE_LL_EXPIRE_ONLY);
#endif
}

}  // namespace efs::fuse
