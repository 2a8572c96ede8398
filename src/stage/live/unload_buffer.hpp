// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The view of the buffer that an unload gives to stage_out(), and proofs that files have no writer.

#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.hpp"
#include "fs/staging.hpp"
#include "stage/export_source.hpp"

namespace efs::stage {

/// The state of a file's writers before its copy began.
struct Proof {
  std::string path;
  std::uint64_t edits = 0;
  bool quiet = false;
  std::string doubt;  // why the copy is unverified; "" if it is verified
};

/// The buffer as stage_out() sees it during an unload: the chosen items only, all of them results.
class UnloadBuffer final : public ExportSource {
 public:
  UnloadBuffer(fs::Staging& staging, bool as_is, bool in_place)
      : staging_(staging), as_is_(as_is), in_place_(in_place) {}

  std::vector<fs::WalkItem> items;

  void expect(std::uint64_t ino, Proof proof) { proofs_[ino] = std::move(proof); }

  const Proof* proof_of(std::uint64_t ino) const {
    const auto it = proofs_.find(ino);
    return it == proofs_.end() ? nullptr : &it->second;
  }

  Result<fs::OpenContainer> open_container(std::uint64_t ino) override {
    return staging_.open_container(ino);
  }

  Result<std::vector<fs::WalkItem>> walk() override { return items; }

  /// An unload leaves the removed inputs on the PFS.
  std::vector<fs::WalkItem> gone() override { return {}; }

  Result<std::vector<fs::WalkItem>> inputs() override {
    auto all = staging_.walk();
    if (all) {
      for (auto& item : staging_.gone()) {
        all->push_back(std::move(item));
      }
    }
    return all;
  }

  std::map<std::string, Error> revoke(std::span<const fs::PfsName> names, fs::Side side,
                                      const fs::ResultName& called) override {
    return staging_.revoke(names, side, called);
  }

  Status secure(std::span<const std::uint64_t> inos) override { return staging_.secure(inos); }

  bool has(const std::string& path) override { return staging_.find(path).has_value(); }

  std::string own_path(const std::string& path) override { return path; }

  std::string refusal(const std::string&) override { return {}; }

  bool is_at_rest() const override { return false; }

  Status confirm(std::uint64_t ino, bool same) override {
    const auto it = proofs_.find(ino);
    if (it == proofs_.end()) {
      return confirm_unchanged(same);
    }
    const auto now = staging_.edits(ino);
    const bool untouched = same && it->second.quiet && now && *now == it->second.edits;
    if (untouched) {
      return {};
    }
    if (!as_is_) {
      return fail(EBUSY, "was opened for writing, or changed, while it was copied");
    }
    const MutexLock lock(mutex_);
    if (it->second.doubt.empty()) {
      it->second.doubt = "it was opened for writing, or changed, while it was copied";
    }
    return {};
  }

  Status named(const fs::WalkItem& item,
               const std::function<Result<fs::Origin>()>& version) override try {
    const auto there = version();
    if (!there) {
      return std::unexpected(there.error());
    }
    if (!take_version(item.path, *there)) {
      return fail(ESTALE, "it has changed on the PFS since");
    }
    return staging_.record_named(item.ino, item.path, *there, in_place_, item.pfs.replaced.get());
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }

  /// The version of the result when it got this name on the PFS.
  std::optional<fs::Origin> version_of(const std::string& path) {
    const MutexLock lock(mutex_);
    const auto known = versions_.find(path);
    return known == versions_.end() ? std::nullopt : std::optional(known->second);
  }

 private:
  /// False if it is not the file that was about to get the name.
  bool take_version(const std::string& path, const fs::Origin& version) {
    const MutexLock lock(mutex_);
    auto& known = versions_.try_emplace(path, version).first->second;
    const bool is_known = version.ctime != fs::Origin::any_ctime && version.ctime != 0;
    if (is_known && !fs::is_same_file(known, version)) {
      return false;
    }
    known = version;
    return true;
  }

  fs::Staging& staging_;
  const bool as_is_, in_place_;
  Mutex mutex_;  // rank 90 (leaf): guards the doubts and the versions during a transfer
  std::unordered_map<std::string, fs::Origin> versions_ EFS_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Proof> proofs_;
};

}  // namespace efs::stage
