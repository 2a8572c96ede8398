// SPDX-License-Identifier: BSD-3-Clause
#include "stage/resume/booking.hpp"

#include <filesystem>
#include <unordered_map>

#include "base/log.hpp"
#include "stage/export/selection.hpp"
#include "stage/pfs/existing_names.hpp"
#include "stage/versions/copy_version.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::stage {

namespace {

void tell(const std::string& path, const Error& error) {
  log::warn("event=not_booked path=\"{}\" reason=\"{}\"", path, describe(error));
}

}  // namespace

Booking::Booking(const config::JobConfig& config, fs::Staging& staging, PfsIo& pfs,
                 Publisher& publisher, const PlacedNames* placed)
    : config_(config),
      staging_(staging),
      pfs_(pfs),
      publisher_(publisher),
      placed_(placed),
      in_place_(config::has_results_in_place(config)) {}

std::string Booking::result(const std::string& path) const {
  return config_.results_dir + "/" + config::result_path(config_, path);
}

void Booking::saved(const Receipt& receipt) {
  std::vector<std::string> back, removed;
  for (const auto& entry : receipt.entries) {
    if (entry.action == Action::removed) {
      removed.push_back(entry.path);
    }
    if (is_back_by_name(entry)) {
      back.push_back(entry.path);
    }
  }
  const auto items = staging_.look(back);
  if (!items) {
    return tell("", items.error());
  }
  book(back, *items, &fs::Staging::mark_saved);
  if (removed.empty()) {
    return;
  }
  // In place the input no longer exists on the PFS. Otherwise it still exists and must not be
  // imported again.
  if (const Status booked =
          in_place_ ? staging_.forget_gone(removed) : staging_.forget_copies(removed);
      !booked) {
    tell("", booked.error());
  }
}

/// True if the result was exported under the name that the job file gives it.
bool Booking::is_back_by_name(const ReceiptEntry& entry) const {
  const bool is_back = entry.action == Action::staged_out || entry.action == Action::kept;
  return is_back &&
         (entry.placed_as.empty() || entry.placed_as == config::result_path(config_, entry.path));
}

// The copies in results-dir may have the size and the time, as the PFS keeps it, of the file in the
// buffer. That does not prove that the file was not written since: programs set times, and stores
// through a mapping may leave them unchanged. So the file stays dirty, and the copy is recorded as
// this job's, to be compared or replaced.
void Booking::salvaged() {
  if (!has_results()) {
    return;
  }
  const auto items = staging_.look(names_in_results(staging_.names()));
  if (!items) {
    return tell("", items.error());
  }
  std::vector<fs::PfsName> there;
  std::vector<std::string> files;
  for (const auto& item : *items) {
    if (!item.pfs.dirty) {
      continue;
    }
    const std::string name = config::result_path(config_, item.path);
    const auto st = brought_out(result(item.path));
    if (!st || (placed_ &&
                placed_->look({.name = name, .own = item.path}, *st, false) != WhoseCopy::ours)) {
      continue;
    }
    there.push_back({.path = name, .version = version_of(result(item.path), *st)});
    if (S_ISREG(item.attributes.st_mode) && S_ISREG(st->st_mode)) {
      files.push_back(item.path);
    }
  }
  // Revokes these names from files that were exported under them and have other names by now.
  for (const auto& [path, error] : staging_.revoke(there, fs::Side::both, result_names(config_))) {
    tell(path, error);
  }
  book(files, *items, &fs::Staging::record_copy);
}

/// False too if results-dir cannot be read.
bool Booking::has_results() const {
  std::error_code problem;
  return !config_.results_dir.empty() && !std::filesystem::is_empty(config_.results_dir, problem) &&
         !problem;
}

Status Booking::forget_renamed(const config::JobConfig* before) {
  return staging_.forget_saved([&](const std::string& path) {
    return !before || config::result_path(*before, path) != config::result_path(config_, path);
  });
}

// A failed look-up counts as no copy.
std::optional<struct stat> Booking::brought_out(const std::string& result) {
  const auto there = pfs_.lstat(no_directory, result);
  if (there) {
    return *there;
  }
  if (there.error().code != ENOENT && there.error().code != ENOTDIR) {
    tell(result, there.error());
  }
  return {};
}

fs::Origin Booking::version_of(const std::string& result, const struct stat& there) {
  return copy_version(pfs_, publisher_, no_directory, result, there);
}

// In place, the PFS's file is also the source of the import. If that file has already changed
// again, the file in the buffer stays dirty.
void Booking::book(const std::vector<std::string>& paths, std::span<const fs::WalkItem> items,
                   Note note) {
  std::unordered_map<std::string_view, const fs::WalkItem*> in_buffer;
  for (const auto& item : items) {
    in_buffer.emplace(item.path, &item);
  }
  for (const auto& path : paths) {
    const auto ours = in_buffer.find(path);
    if (ours == in_buffer.end()) {
      continue;
    }
    const std::string there = result(path);
    const auto st = brought_out(there);
    if (!st) {
      continue;
    }
    const struct stat& in = ours->second->attributes;
    if (S_ISREG(st->st_mode) &&
        (st->st_size != in.st_size || !same_or_coarser(st->st_mtim, in.st_mtim))) {
      continue;
    }
    const bool is_the_input = in_place_ && config::result_path(config_, path) == path;
    if (const Status booked = (staging_.*note)(path, version_of(there, *st), is_the_input,
                                               ours->second->pfs.replaced.get());
        !booked) {
      tell(path, booked.error());
    }
  }
}

// Those names that may exist in results-dir; the list may have a million.
std::vector<std::string> Booking::names_in_results(std::vector<std::string> names) const {
  ExistingNames present(config_.results_dir);
  for (const auto& name : names) {
    present.expect(config::result_path(config_, name));
  }
  std::erase_if(names, [&](const std::string& name) {
    return !present.may_be_there(config::result_path(config_, name));
  });
  return names;
}

}  // namespace efs::stage
