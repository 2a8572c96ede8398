// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The configuration of an instance, for workers that take over: the texts of the job file and the
// site file as the first worker read them. Later these files may have changed or vanished, or their
// file system may hang.

#include <optional>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "config/load.hpp"

namespace efs::daemon {

/// Two files in memory that every worker inherits through fork(). The process that creates them may
/// differ from those that write and read them.
class ConfigMemfds {
 public:
  /// Fails with ENOMEM, EMFILE, ENOSYS and the like if the kernel cannot create the files.
  static Result<ConfigMemfds> make();

  /// Writes the texts. Fails with ENOTSUP on an object that make() did not create. After any other
  /// error read() returns nullopt.
  Status keep(const config::ReadFiles& files) const;
  /// Returns the texts that keep() wrote, or nullopt if there are none.
  std::optional<config::ReadFiles> read() const;

 private:
  UniqueFd job_, site_;
};

}  // namespace efs::daemon
