// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Versions of a directory's attributes on the PFS, which show whether another user has changed them
// since.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "ledger/version.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

struct DirectoryAttributes {
  mode_t mode = 0;  // permission bits
  uid_t uid = 0;
  gid_t gid = 0;
  std::map<std::string, std::string> xattrs{};  // ACLs among them
};

/// The present attributes of the open directory `at`.
Result<DirectoryAttributes> attributes_of(PfsIo& pfs, PfsRef at);

/// The XXH3-64 of the attributes without trusted.*, in the machine's byte order. It differs if an
/// attribute differs, except by a chance of 1 in 2^64. Never 0.
std::uint64_t directory_version(const DirectoryAttributes& attributes);

using ledger::DirectoryShape;
DirectoryShape shape_of(const DirectoryAttributes& attributes);

/// True if `theirs` can result from an interrupted change from `was` to `ours`. `was` is nullopt if
/// the directory was being made. If false, another user has changed the directory since, or the
/// interrupted change concerned several extended attributes at once. Pure.
bool is_between(const std::optional<DirectoryShape>& was, const DirectoryAttributes& ours,
                const DirectoryAttributes& theirs);

/// Decides between the job's version `ours` and the PFS's present version `theirs`. `known`: the
/// version that the job may replace: the imported one, or the one that its stage-outs have set
/// since. If nothing is known (nullopt), the PFS's attributes stay. Pure.
enum class DirectoryMerge : std::uint8_t { same, take_ours, keep_theirs, conflict };
DirectoryMerge merge_directory(std::optional<std::uint64_t> known, std::uint64_t ours,
                               std::uint64_t theirs);

}  // namespace efs::stage
