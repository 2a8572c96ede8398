// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One file of a stage-in, in steps: for tests that need no descriptor of its container.

#include "backends/backend.hpp"
#include "fs/staging.hpp"

namespace efs::test {

/// Begins a file and closes its container.
inline Result<std::uint64_t> begin_file(fs::Staging& staging) {
  const auto file = staging.begin_open_file();
  return file ? Result<std::uint64_t>(file->ino) : std::unexpected(file.error());
}

/// Sets the times of the container, as publish_files() expects, and publishes this file.
inline Status publish_file(fs::Staging& staging, Backend& backend, const fs::StagedFile& file) {
  EFS_TRY(backend.set_times(file.ino, file.attributes.atime, file.attributes.mtime));
  Status failed;
  staging.publish_files(std::span(&file, 1), failed);
  return failed;
}

}  // namespace efs::test
