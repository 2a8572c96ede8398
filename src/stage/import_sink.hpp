// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where a stage-in or a load puts its files. An interface in front of fs::Staging, so that tests
// can use a plain directory instead.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "fs/staging.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {

/// The members have the effects, durability and errors of the members of fs::Staging. Thread-safe:
/// any thread may call any member. Every member is pure, so that no implementation omits one
/// unnoticed.
class ImportSink {
 public:
  virtual ~ImportSink() = default;
  /// On backend number `place`.
  virtual Result<fs::OpenContainer> begin_open_file_at(unsigned place) = 0;
  /// EXDEV if the buffer cannot share the container.
  virtual Result<fs::OpenContainer> adopt_file(Container& other) = 0;
  virtual void abandon(std::uint64_t ino) = 0;
  virtual std::size_t publish_files(std::span<const fs::StagedFile> files, Status& failed) = 0;
  /// Gives a published file further names.
  virtual Status link_files(const std::string& existing, std::span<const std::string> names) = 0;
  virtual Status make_directory(const std::string& path,
                                const fs::StagedAttributes& attributes) = 0;
  virtual Status make_symlink(const std::string& path, const std::string& target,
                              const fs::StagedAttributes& attributes) = 0;
  /// Returns at least the present items that have a name of the plan. An implementation avoids the
  /// cost of a full walk if it can: the job may have made a million other files.
  virtual Result<std::vector<fs::WalkItem>> look(const Plan& plan) = 0;
  /// Sets all extended attributes of a directory that make_directory() made.
  virtual Status set_xattrs(const std::string& path,
                            const std::map<std::string, std::string>& xattrs) = 0;
  /// Records the version of an imported directory's attributes on the PFS (directory_version()).
  virtual Status record_directory(const std::string& path, std::uint64_t version) = 0;
};

}  // namespace efs::stage
