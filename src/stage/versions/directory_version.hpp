#pragma once
// What the PFS had of a directory's attributes, to be told from what somebody has made of them
// since.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

struct DirectoryAttributes {
  mode_t mode = 0;  // permission bits
  uid_t uid = 0;
  gid_t gid = 0;
  std::map<std::string, std::string> xattrs{};  // ACLs among them
};

/// Of the open directory `fd`, as it is now.
Result<DirectoryAttributes> attributes_of(PfsIo& pfs, int fd);

/// Differs where one of them does, trusted.* left out (but for one chance in 2^64); never 0.
/// XXH3-64 of them, in the machine's byte order.
std::uint64_t directory_version(const DirectoryAttributes& attributes);

/// What can be told of each by itself.
struct DirectoryShape {
  mode_t mode = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::uint64_t xattrs = 0;  // their version
};

DirectoryShape shape_of(const DirectoryAttributes& attributes);

/// Can `theirs` be what is left of a change from `was` to `ours` that was cut off? `was` (none): it
/// was being made. Else somebody has changed it since, or had it been changed in several extended
/// attributes at once. Pure.
bool is_between(const std::optional<DirectoryShape>& was, const DirectoryAttributes& ours,
                const DirectoryAttributes& theirs);

/// Of what the job has, what the PFS has now, and `known`, what is the job's to replace: what came
/// in, or what its stage-outs have put there since. Where nothing is known (none), what is there
/// stays. Pure.
enum class DirectoryMerge : std::uint8_t { same, take_ours, keep_theirs, conflict };
DirectoryMerge merge_directory(std::optional<std::uint64_t> known, std::uint64_t ours,
                               std::uint64_t theirs);

}  // namespace efs::stage
