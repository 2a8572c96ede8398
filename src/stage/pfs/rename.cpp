// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/rename.hpp"

#include <sys/stat.h>

#include <cerrno>

#include "stage/pfs/name_claim.hpp"

namespace efs::stage {
namespace {

/// True if the kernel or the file system does not have the call, or not with these flags.
bool is_unsupported_call(int code) {
  return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP;
}

bool is_without_links(int code) {
  return is_unsupported_call(code) || code == EPERM || code == EMLINK;
}

/// Requires a claim to the name `to`. Makes a link, or renames on a file system without links.
Status rename_by_link(PfsIo& pfs, const Rename& names) {
  const auto& [at, from, to] = names;
  const Status linked = pfs.link(at, from, at, to);
  if (linked) {
    return pfs.unlink(at, from);
  }
  if (!is_without_links(linked.error().code)) {
    return linked;
  }
  const auto there = pfs.lstat(at, to);
  if (there || there.error().code != ENOENT) {
    return there ? fail(EEXIST) : std::unexpected(there.error());
  }
  return pfs.rename(at, from, to);
}

}  // namespace

Status rename_new(PfsIo& pfs, const Rename& names) {
  return pfs.as_one_call("rename_new", names.to, [&](PfsIo& calls) -> Status {
    const auto& [at, from, to] = names;
    const Status renamed = calls.rename_noreplace(at, from, to);
    if (renamed || !is_unsupported_call(renamed.error().code)) {
      return renamed;
    }
    // When an NFS client renames over a file that a program on it has open, the name does not exist
    // for a moment.
    return under_claim(calls, at, to, from, [&] { return rename_by_link(calls, names); });
  });
}

}  // namespace efs::stage
