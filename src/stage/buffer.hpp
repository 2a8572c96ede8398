#pragma once
// The job's buffer as staging sees it: fs::Staging behind an interface, so that tests can put a
// plain directory there.

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

/// Members, durability and errors as fs::Staging promises them. Thread-safe: any member from any
/// thread. Every member is pure, so that no implementation can leave one out unnoticed. A buffer in
/// front of another one derives from ForwardingBuffer (forwarding_buffer.hpp), one that stands for
/// itself from PlainBuffer.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual Result<fs::HeldFile> begin_open_file() = 0;
  /// In this place of the backend, where the buffer knows of several.
  virtual Result<fs::HeldFile> begin_open_file_at(unsigned place) = 0;
  virtual Result<fs::HeldFile> adopt_file(int fd) = 0;
  virtual Result<fs::HeldFile> hold(std::uint64_t ino) = 0;
  virtual void abandon(std::uint64_t ino) = 0;
  virtual std::size_t publish_files(std::span<const fs::StagedFile> files, Status& failed) = 0;
  /// Further names of a file that was published.
  virtual Status link_files(const std::string& existing, std::span<const std::string> names) = 0;
  virtual Status make_directory(const std::string& path,
                                const fs::StagedAttributes& attributes) = 0;
  virtual Status make_symlink(const std::string& path, const std::string& target,
                              const fs::StagedAttributes& attributes) = 0;
  virtual Result<std::vector<fs::WalkItem>> walk() = 0;
  /// What walk() says of the plan's names, at least; where it can, at their cost alone: the job may
  /// have made a million others.
  virtual Result<std::vector<fs::WalkItem>> look(const Plan& plan) = 0;
  /// All extended attributes of a directory that was made.
  virtual Status set_xattrs(const std::string& path,
                            const std::map<std::string, std::string>& xattrs) = 0;
  /// What the PFS has of the attributes of a directory that came in (directory_version()).
  virtual Status note_directory(const std::string& path, std::uint64_t version) = 0;
  /// Inputs whose names the job took away. None, where that is not the buffer's to know.
  virtual std::vector<fs::WalkItem> gone() = 0;
  /// All that was staged in, whether it is there yet or not (and whatever else is there).
  virtual Result<std::vector<fs::WalkItem>> inputs() = 0;
  /// As fs::Staging::revoke(): names that results-dir is about to get, with nothing of what was
  /// known of them.
  virtual std::map<std::string, Error> revoke(std::span<const fs::PfsName> names, fs::Side side,
                                              const fs::ResultName& called) = 0;
  virtual Result<std::uint64_t> available_bytes() = 0;
  /// Whether there is such a name, where walk() shows only some.
  virtual bool has(const std::string& path) = 0;
  /// The path in the buffer of what walk() calls so.
  virtual std::string own_path(const std::string& path) = 0;
  /// Why what walk() calls so cannot be a result; "": it can.
  virtual std::string refusal(const std::string& path) = 0;
  /// False while programs run: what walk() calls clean has been looked at already.
  virtual bool is_at_rest() const = 0;

  /// Asked when a file has been copied out, before it gets its name: may the copy be taken for the
  /// file? `same`: its size and mtime did not change meanwhile.
  virtual Status confirm(std::uint64_t ino, bool same) = 0;
  /// Called before results get their names: returns when what was copied out of these files would
  /// survive power loss as the buffer does. Else the buffer could be left with less than the PFS
  /// has, and bring that out again in its place.
  virtual Status secure(std::span<const std::uint64_t> inos) = 0;
  /// Told just before a result gets its name on the PFS, and again when it has it; `version` asks
  /// what it is there. Who finds that later is to know it for ours, whatever the job does to the
  /// file meanwhile, and should this process die. Nothing fails because of it.
  virtual Status named(const fs::WalkItem& item,
                       const std::function<Result<fs::Origin>()>& version) = 0;
};

/// The plain answers of a buffer that stands for itself: one place, no cache of inputs, nothing
/// removed, nothing to make durable.
class PlainBuffer : public Buffer {
 public:
  Result<fs::HeldFile> begin_open_file_at(unsigned) override { return begin_open_file(); }

  Result<fs::HeldFile> adopt_file(int) override { return fail(EXDEV); }

  Result<std::vector<fs::WalkItem>> look(const Plan&) override { return walk(); }

  Status note_directory(const std::string&, std::uint64_t) override { return {}; }

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

/// A buffer that is only brought out of: nothing comes into it.
class OutgoingBuffer : public PlainBuffer {
 public:
  Result<fs::HeldFile> begin_open_file() final { return fail(EROFS); }

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

/// Programs that write past the mount, in files that they have open with passthrough since before
/// its end. refused: the mount has ended, and what one of them writes to is not held (EBUSY); who
/// is not there when it is looked for comes no more.
enum class Writers : std::uint8_t { possible, refused };

/// The real buffer. Does not own the Staging, which must outlive it.
class StagingBuffer final : public PlainBuffer {
 public:
  /// `is_over`: when walk() ends without having listed all, see fs::Staging.
  explicit StagingBuffer(fs::Staging& staging, Writers writers = Writers::possible,
                         fs::IsOver is_over = {})
      : staging_(staging), writers_(writers), is_over_(std::move(is_over)) {}

  Result<fs::HeldFile> begin_open_file() override { return staging_.begin_open_file(); }

  Result<fs::HeldFile> begin_open_file_at(unsigned place) override {
    return staging_.begin_open_file_at(place);
  }

  Result<fs::HeldFile> adopt_file(int fd) override { return staging_.adopt_file(fd); }

  Result<fs::HeldFile> hold(std::uint64_t ino) override;

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
    // a directory, with a slash behind it: parents come first, and nothing below it is there
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

  Status note_directory(const std::string& path, std::uint64_t version) override {
    return staging_.note_directory(path, version);
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
  // rank 6; what we hold ourselves would look like a writer: one look at a time, and none at what
  // is held
  Mutex mutex_;
  std::unordered_set<std::uint64_t> quiet_ EFS_GUARDED_BY(mutex_);  // nobody writes to them
};

}  // namespace efs::stage
