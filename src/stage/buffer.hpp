// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The job's buffer: what a stage-in fills and a stage-out exports.

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/mutex.hpp"
#include "fs/staging.hpp"
#include "stage/export_source.hpp"
#include "stage/import_sink.hpp"

namespace efs::stage {

/// Programs can still write to files that they opened with passthrough before the unmount. refused:
/// the mount has ended, and open_container() fails with EBUSY for a file that such a program can
/// write to. No new writer can appear after the unmount, so one check per file is enough.
enum class Writers : std::uint8_t { possible, refused };

/// The buffer of an instance. The Staging is borrowed and must outlive this object.
class StagingBuffer final : public ImportSink, public RestingSource {
 public:
  /// `is_over`: ends walk() early, see fs::Staging::walk().
  explicit StagingBuffer(fs::Staging& staging, Writers writers = Writers::possible,
                         fs::IsOver is_over = {})
      : staging_(staging), writers_(writers), is_over_(std::move(is_over)) {}

  Result<fs::OpenContainer> begin_open_file_at(unsigned place) override {
    return staging_.begin_open_file_at(place);
  }

  Result<fs::OpenContainer> adopt_file(Container& other) override {
    return staging_.adopt_file(other);
  }

  Result<fs::OpenContainer> open_container(std::uint64_t ino) override;

  void abandon(std::uint64_t ino) override { staging_.abandon(ino); }

  std::size_t publish_files(std::span<const fs::StagedFile> files, Status& failed) override {
    return staging_.publish_files(files, failed);
  }

  Status link_files(const std::string& existing, std::span<const std::string> names) override {
    return staging_.link_files(existing, names, fs::Over::nothing);
  }

  Status make_directory(const std::string& path, const fs::StagedAttributes& attributes) override {
    return staging_.make_directory(path, attributes);
  }

  Status make_symlink(const std::string& path, const std::string& target,
                      const fs::StagedAttributes& attributes) override {
    return staging_.make_symlink(path, target, attributes);
  }

  Result<std::vector<fs::WalkItem>> walk() override { return staging_.walk({}, is_over_); }

  Result<std::vector<fs::WalkItem>> look(const Plan& plan) override {
    std::vector<fs::WalkItem> items;
    // the path of a missing directory with a slash at the end; parents come first in the plan, and
    // nothing exists below a missing directory
    std::string missing;
    for (const auto& entry : plan.entries) {
      if (!missing.empty() && entry.path.starts_with(missing)) {
        continue;
      }
      auto item = staging_.find(entry.path);
      if (item) {
        items.push_back(std::move(*item));
      } else if (item.error().code != ENOENT && item.error().code != ENOTDIR) {
        return std::unexpected(item.error());
      } else if (entry.type == EntryType::directory) {
        missing = entry.path + "/";
      }
    }
    return items;
  }

  Status set_xattrs(const std::string& path,
                    const std::map<std::string, std::string>& xattrs) override {
    return staging_.set_xattrs(path, xattrs);
  }

  Status record_directory(const std::string& path, std::uint64_t version) override {
    return staging_.record_directory(path, version);
  }

  std::vector<fs::WalkItem> gone() override { return staging_.gone(); }

  std::map<std::string, Error> revoke(std::span<const fs::PfsName> names, fs::Side side,
                                      const fs::ResultName& called) override {
    return staging_.revoke(names, side, called);
  }

  Status secure(std::span<const std::uint64_t> inos) override { return staging_.secure(inos); }

 private:
  Status refuse_writers(std::uint64_t ino);

  fs::Staging& staging_;
  const Writers writers_;
  const fs::IsOver is_over_;
  const std::chrono::steady_clock::time_point let_go_by_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(1);
  // rank 6. A container that this process holds would look like one with a writer: the check runs
  // one at a time, and never on a held container
  Mutex mutex_;
  std::unordered_set<std::uint64_t> quiet_ EFS_GUARDED_BY(mutex_);  // checked: no writer
};

}  // namespace efs::stage
