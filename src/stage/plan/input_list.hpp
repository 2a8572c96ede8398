#pragma once
// Inputs that a text file names, a line each (efs-job(5), LISTS).

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

struct ListedInput {
  std::string path;  // relative to root-dir; "" is root-dir itself
  std::string as;    // its place on the mount, relative to mount-dir; "": as `path`
  int line = 0;
};

struct ListProblem {
  std::string reason;
  int line = 0;
};

struct InputList {
  std::vector<ListedInput> inputs;
  std::vector<ListProblem> problems;  // the first few, and how many more there are
};

/// The paths in `text`, relative to root-dir or absolute below it, and the destinations of those
/// that have one, relative to mount-dir or absolute below it; in place there is none but the own
/// place. Pure.
InputList parse_list(std::string_view text, const std::string& root_dir,
                     const std::string& mount_dir = {}, bool in_place = false);

/// The file's text. EINVAL for what is no regular file (without waiting for a FIFO), EFBIG beyond
/// 64 MiB.
Result<std::string> read_list(PfsIo& pfs, const std::string& path);

}  // namespace efs::stage
