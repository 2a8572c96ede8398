// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The results that a stage-out, an unload or a salvage exports. An interface in front of
// fs::Staging, so that tests can use a plain directory instead.

#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fs/staging.hpp"

namespace efs::stage {

/// The members have the effects, durability and errors of the members of fs::Staging. Thread-safe:
/// any thread may call any member. Every member is pure, so that no implementation omits one
/// unnoticed. A source that wraps another source derives from ForwardingSource
/// (forwarding_source.hpp), a source at rest from RestingSource.
class ExportSource {
 public:
  virtual ~ExportSource() = default;
  virtual Result<fs::OpenContainer> open_container(std::uint64_t ino) = 0;
  virtual Result<std::vector<fs::WalkItem>> walk() = 0;
  /// Inputs whose names the job removed. Empty if the buffer does not track removals.
  virtual std::vector<fs::WalkItem> gone() = 0;
  /// All imported names, present or removed, and all other names of the buffer.
  virtual Result<std::vector<fs::WalkItem>> inputs() = 0;
  /// As fs::Staging::revoke(). Call it before results-dir gets `names`.
  virtual std::map<std::string, Error> revoke(std::span<const fs::PfsName> names, fs::Side side,
                                              const fs::ResultName& called) = 0;
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

/// confirm() for a file without a proof: accepts a copy during which nothing changed.
inline Status confirm_unchanged(bool same) {
  if (same) {
    return {};
  }
  return fail(EBUSY, "was written to while it was staged out");
}

/// The answers of a source that no program uses: no removed inputs, no other names, nothing to
/// persist.
class RestingSource : public ExportSource {
 public:
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

  Status confirm(std::uint64_t, bool same) override { return confirm_unchanged(same); }

  Status secure(std::span<const std::uint64_t>) override { return {}; }

  Status named(const fs::WalkItem&, const std::function<Result<fs::Origin>()>&) override {
    return {};
  }
};

}  // namespace efs::stage
