// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The job's buffer as staging sees it. Buffer is an interface in front of fs::Staging, so that
// tests can use a plain directory instead.

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
#include "stage/plan/planner.hpp"

namespace efs::stage {

/// The members have the effects, durability and errors of the members of fs::Staging. Thread-safe:
/// any thread may call any member. Every member is pure, so that no implementation omits one
/// unnoticed. A buffer that wraps another buffer derives from ForwardingBuffer
/// (forwarding_buffer.hpp). A buffer that wraps none derives from PlainBuffer.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual Result<fs::OpenContainer> begin_open_file() = 0;
  /// The same on backend number `place`, if the buffer has several backends.
  virtual Result<fs::OpenContainer> begin_open_file_at(unsigned place) = 0;
  virtual Result<fs::OpenContainer> adopt_file(Container& other) = 0;
  virtual Result<fs::OpenContainer> open_container(std::uint64_t ino) = 0;
  virtual void abandon(std::uint64_t ino) = 0;
  virtual std::size_t publish_files(std::span<const fs::StagedFile> files, Status& failed) = 0;
  /// Gives a published file further names.
  virtual Status link_files(const std::string& existing, std::span<const std::string> names) = 0;
  virtual Status make_directory(const std::string& path,
                                const fs::StagedAttributes& attributes) = 0;
  virtual Status make_symlink(const std::string& path, const std::string& target,
                              const fs::StagedAttributes& attributes) = 0;
  virtual Result<std::vector<fs::WalkItem>> walk() = 0;
  /// Returns at least the items of walk() that have a name of the plan. An implementation avoids
  /// the cost of a full walk if it can: the job may have made a million other files.
  virtual Result<std::vector<fs::WalkItem>> look(const Plan& plan) = 0;
  /// Sets all extended attributes of a directory that make_directory() made.
  virtual Status set_xattrs(const std::string& path,
                            const std::map<std::string, std::string>& xattrs) = 0;
  /// Records the version of an imported directory's attributes on the PFS (directory_version()).
  virtual Status record_directory(const std::string& path, std::uint64_t version) = 0;
  /// Inputs whose names the job removed. Empty if the buffer does not track removals.
  virtual std::vector<fs::WalkItem> gone() = 0;
  /// All imported names, present or removed, and all other names of the buffer.
  virtual Result<std::vector<fs::WalkItem>> inputs() = 0;
  /// As fs::Staging::revoke(). Call it before results-dir gets `names`.
  virtual std::map<std::string, Error> revoke(std::span<const fs::PfsName> names, fs::Side side,
                                              const fs::ResultName& called) = 0;
  virtual Result<std::uint64_t> available_bytes() = 0;
  /// True if the name exists. Needed where walk() lists a subset of the names.
  virtual bool has(const std::string& path) = 0;
  /// Maps a path that walk() returned to the path in the buffer.
  virtual std::string own_path(const std::string& path) = 0;
  /// The reason why this item of walk() cannot be a result; "" if it can.
  virtual std::string refusal(const std::string& path) = 0;
  /// False while programs run. The caller has then already checked the items that walk() calls
  /// clean.
  virtual bool is_at_rest() const = 0;

  /// Called after a file was copied out and before the copy gets its name. Success accepts the copy
  /// as the file's content. `same`: size and mtime did not change during the copy.
  virtual Status confirm(std::uint64_t ino, bool same) = 0;
  /// Called before results get their names. Returns when the copied content of these files survives
  /// power loss as the buffer does. Otherwise power loss could leave the buffer with older content
  /// than the PFS, and the next stage-out would export that older content over the newer copy.
  virtual Status secure(std::span<const std::uint64_t> inos) = 0;
  /// Called just before a result gets its name on the PFS, and again afterwards. `version` returns
  /// the version that has the name. The record lets later stage-outs recognise the copy as this
  /// store's, even if the job changes the file or this process dies. An error does not stop the
  /// export.
  virtual Status named(const fs::WalkItem& item,
                       const std::function<Result<fs::Origin>()>& version) = 0;
};

/// Defaults of a buffer that wraps none: one backend, no cache of inputs, no removed inputs,
/// nothing to persist.
class PlainBuffer : public Buffer {
 public:
  Result<fs::OpenContainer> begin_open_file_at(unsigned) override { return begin_open_file(); }

  Result<fs::OpenContainer> adopt_file(Container&) override { return fail(EXDEV); }

  Result<std::vector<fs::WalkItem>> look(const Plan&) override { return walk(); }

  Status record_directory(const std::string&, std::uint64_t) override { return {}; }

  std::vector<fs::WalkItem> gone() override { return {}; }

  Result<std::vector<fs::WalkItem>> inputs() override {
    auto items = walk();
    if (items) {
      for (auto& item : gone()) {
        items->push_back(std::move(item));
      }
    }
    return items;
  }

  std::map<std::string, Error> revoke(std::span<const fs::PfsName>, fs::Side,
                                      const fs::ResultName&) override {
    return {};
  }

  bool has(const std::string&) override { return false; }

  std::string own_path(const std::string& path) override { return path; }

  std::string refusal(const std::string&) override { return {}; }

  bool is_at_rest() const override { return true; }

  Status confirm(std::uint64_t, bool same) override {
    if (same) {
      return {};
    }
    return fail(EBUSY, "was written to while it was staged out");
  }

  Status secure(std::span<const std::uint64_t>) override { return {}; }

  Status named(const fs::WalkItem&, const std::function<Result<fs::Origin>()>&) override {
    return {};
  }
};

/// A buffer for exports alone. Every import fails with EROFS.
class OutgoingBuffer : public PlainBuffer {
 public:
  Result<fs::OpenContainer> begin_open_file() final { return fail(EROFS); }

  void abandon(std::uint64_t) final {}

  std::size_t publish_files(std::span<const fs::StagedFile>, Status& failed) final {
    failed = fail(EROFS);
    return 0;
  }

  Status link_files(const std::string&, std::span<const std::string>) final { return fail(EROFS); }

  Status set_xattrs(const std::string&, const std::map<std::string, std::string>&) final {
    return fail(EROFS);
  }

  Status make_directory(const std::string&, const fs::StagedAttributes&) final {
    return fail(EROFS);
  }

  Status make_symlink(const std::string&, const std::string&, const fs::StagedAttributes&) final {
    return fail(EROFS);
  }
};

/// Programs can still write to files that they opened with passthrough before the unmount. refused:
/// the mount has ended, and open_container() fails with EBUSY for a file that such a program can
/// write to. No new writer can appear after the unmount, so one check per file is enough.
enum class Writers : std::uint8_t { possible, refused };

/// The buffer of an instance. The Staging is borrowed and must outlive this object.
class StagingBuffer final : public PlainBuffer {
 public:
  /// `is_over`: ends walk() early, see fs::Staging::walk().
  explicit StagingBuffer(fs::Staging& staging, Writers writers = Writers::possible,
                         fs::IsOver is_over = {})
      : staging_(staging), writers_(writers), is_over_(std::move(is_over)) {}

  Result<fs::OpenContainer> begin_open_file() override { return staging_.begin_open_file(); }

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

  Result<std::uint64_t> available_bytes() override { return staging_.available_bytes(); }

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
