// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/own_files.hpp"

#include <algorithm>
#include <string_view>

#include "base/intercept_door.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

/// True for efs-UID-JOB, the name of a store (daemon/store_setup.cpp), and efs-cache-UID, the name
/// of a cache (stage/import/cache.cpp).
bool is_store_name(std::string_view leaf) {
  if (!leaf.starts_with("efs-")) {
    return false;
  }
  leaf.remove_prefix(std::string_view("efs-").size());
  const auto digits = [](std::string_view text) {
    return std::min(text.find_first_not_of("0123456789"), text.size());
  };
  if (leaf.starts_with("cache-")) {
    return leaf.size() > 6 && digits(leaf.substr(6)) == leaf.size() - 6;
  }
  const auto end = digits(leaf);
  return end > 0 && end + 1 < leaf.size() && leaf[end] == '-';
}

}  // namespace

OwnFiles::OwnFiles(const config::JobConfig& config, PfsIo& pfs, PfsRef root)
    : config_(config), pfs_(pfs), root_(root) {
  add(config.log_file, "this job's log-file");
  add(config.status_file, "this job's status-file");
  add(config.trace, "this job's trace");
  add(config.access_log, "this job's access-log");
  if (!config.access_log.empty()) {
    add(config.access_log + ".1", "this job's access-log");
  }
  // not opened: the daemon would send the request to itself
  add_name(config.mount_dir, "this job's mount-dir");
  add(config.interleaving, "the queue of turns at the PFS");
  for (const auto& backend : config.backends) {
    if (backend.type == config::BackendType::fsdax) {
      add_stores(backend.daxfs, "a store of efs");
    }
  }
  add_stores(config.cache, "a cache of efs");
}

void OwnFiles::add(const std::string& path, const std::string& reason) {
  if (path.empty()) {
    return;
  }
  const auto there = pfs_.open(no_directory, path, O_PATH);
  const auto attributes = there ? pfs_.fstat(*there) : std::unexpected(there.error());
  const bool counts = attributes && (S_ISREG(attributes->st_mode) || S_ISDIR(attributes->st_mode));
  if (counts) {
    known_.try_emplace(identity_of(*attributes), reason);
  }
  add_name(path, reason);
}

void OwnFiles::add_name(const std::string& path, const std::string& reason) {
  if (path.empty()) {
    return;
  }
  const auto above =
      pfs_.open(no_directory, parent_of(path).empty() ? "/" : parent_of(path), passage_flags);
  const auto holder = above ? pfs_.fstat(*above) : std::unexpected(above.error());
  if (holder) {
    by_leaf_[leaf_of(path)].try_emplace(identity_of(*holder), reason);
  }
}

void OwnFiles::add_stores(const std::string& directory, const std::string& reason) {
  if (directory.empty()) {
    return;
  }
  const auto there = pfs_.open(no_directory, directory, passage_flags);
  const auto attributes = there ? pfs_.fstat(*there) : std::unexpected(there.error());
  if (attributes) {
    stores_.try_emplace(identity_of(*attributes), reason);
  }
}

std::optional<Identity> OwnFiles::identity_of_parent(const std::string& path) const {
  const auto directory = pfs_.open_beneath(root_, parent_of(path), passage_flags);
  const auto attributes = directory ? pfs_.fstat(*directory) : std::unexpected(directory.error());
  if (!attributes) {
    return std::nullopt;
  }
  return identity_of(*attributes);
}

std::optional<OwnFile> OwnFiles::by_name(const std::string& path, mode_t mode) const {
  if (leaf_of(path) == door_name) {
    return OwnFile{.reason = "a file with a name that every mount keeps for itself",
                   .refused = true};
  }
  const bool is_partial =
      S_ISDIR(mode) ? is_hidden_directory(path) : path.ends_with(partial_suffix);
  if (is_partial) {
    return OwnFile{.reason = "part of a result: a stage-out is under way, or was interrupted"};
  }
  if (S_ISDIR(mode)) {
    return std::nullopt;
  }
  if (path == receipt_name(config_.name) || path == salvage_receipt_name(config_.name)) {
    return OwnFile{.reason = "this job's receipt"};
  }
  // Only the user of that job can read it: one page would stop the start of another user's job.
  if (is_report_name(leaf_of(path)) && S_ISREG(mode) && (mode & 0077) == 0) {
    return OwnFile{.reason = "the report of a job"};
  }
  // In place, the receipts of all jobs on this directory are at its top.
  if (config_.in_place && !path.contains('/') && is_receipt_name(path)) {
    return OwnFile{.reason = "a job's receipt"};
  }
  return std::nullopt;
}

std::optional<OwnFile> OwnFiles::find(const std::string& path,
                                      const struct stat& attributes) const {
  if (auto own = by_name(path, attributes.st_mode)) {
    return own;
  }
  if (!S_ISREG(attributes.st_mode) && !S_ISDIR(attributes.st_mode)) {
    return std::nullopt;
  }
  if (const auto known = known_.find(identity_of(attributes)); known != known_.end()) {
    return OwnFile{.reason = known->second, .refused = true};
  }
  return in_directory(path, attributes);
}

std::optional<OwnFile> OwnFiles::in_directory(const std::string& path,
                                              const struct stat& attributes) const {
  const std::string leaf = leaf_of(path);
  const bool may_be_store = S_ISDIR(attributes.st_mode) && !stores_.empty() && is_store_name(leaf);
  const auto named = by_leaf_.find(leaf);
  if (!may_be_store && named == by_leaf_.end()) {
    return std::nullopt;
  }
  const auto parent = identity_of_parent(path);
  if (!parent) {
    return std::nullopt;
  }
  const auto& all = may_be_store ? stores_ : named->second;
  const auto found = all.find(*parent);
  if (found == all.end()) {
    return std::nullopt;
  }
  return OwnFile{.reason = found->second, .refused = true};
}

}  // namespace efs::stage
