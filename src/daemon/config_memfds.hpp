#pragma once
// What an instance was configured with, for the workers that take over: the texts of the job file
// and the site file as the first worker read them. The files may be others by then, or gone, and a
// file system that they lie on may hang.

#include <optional>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "config/load.hpp"

namespace efs::daemon {

/// Two files in memory, inherited by every worker through fork(). Who makes them need not be who
/// writes and reads them.
class ConfigMemfds {
 public:
  /// ENOMEM, EMFILE, ENOSYS and the like: there are none to be had.
  static Result<ConfigMemfds> make();

  /// Nothing is kept by an object that make() has not made: ENOTSUP. After another error there is
  /// nothing to be read.
  Status keep(const config::ReadFiles& files) const;
  /// What was kept; nothing where nothing was.
  std::optional<config::ReadFiles> read() const;

 private:
  UniqueFd job_, site_;
};

}  // namespace efs::daemon
