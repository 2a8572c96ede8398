// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Inputs listed in a text file, one a line (efs-job(5), LISTS).

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

struct ListedInput {
  std::string path;  // relative to root-dir; "" is root-dir itself
  std::string as;    // its path on the mount, relative to mount-dir; "": as `path`
  int line = 0;
};

struct ListProblem {
  std::string reason;
  int line = 0;
};

struct InputList {
  std::vector<ListedInput> inputs;
  std::vector<ListProblem> problems;  // the first few, and the number of others
};

/// Parses the paths in `text`, which are relative to root-dir or absolute below it. A line may add
/// a destination, relative to mount-dir or absolute below it. In place the destination must equal
/// the path. Pure.
InputList parse_list(std::string_view text, const std::string& root_dir,
                     const std::string& mount_dir = {}, bool in_place = false);

/// The file's text. EINVAL if it is not a regular file (never waits for a FIFO); EFBIG if it is
/// longer than 64 MiB.
Result<std::string> read_list(PfsIo& pfs, const std::string& path);

}  // namespace efs::stage
