// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Keeps the directory of the current item open for the next item: neighbours mostly share a
// directory.

#include <functional>
#include <string>

#include "base/result.hpp"
#include "stage/pfs/pfs_handle.hpp"

namespace efs::stage {

/// Not thread-safe: one per thread.
class DirectoryCursor {
 public:
  using Open = std::function<Result<PfsHandle>(const std::string& path)>;

  explicit DirectoryCursor(Open open) : open_(std::move(open)) {}

  /// The open directory `path`; valid until the next call with another path.
  Result<PfsRef> at(const std::string& path) {
    if (!fd_ || path != path_) {
      auto opened = open_(path);
      if (!opened) {
        return fail(opened.error().code, "opening its directory: " + describe(opened.error()));
      }
      fd_ = std::move(*opened);
      path_ = path;
    }
    return fd_;
  }

 private:
  const Open open_;
  std::string path_;
  PfsHandle fd_;
};

}  // namespace efs::stage
