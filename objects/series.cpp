// SPDX-License-Identifier: BSD-3-Clause
#include "objects/series.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "objects/leftovers.hpp"
#include "objects/name.hpp"

namespace efs::objects {

namespace {

constexpr const char* choose = "Use EO_LATEST or another number";

/// Removes the directory of a version. ENOENT: it does not exist.
Status remove_from(int series, std::uint64_t n) {
  const auto draft = new_draft_name();
  if (!draft) {
    return std::unexpected(draft.error());
  }
  // By one rename: no reader finds a version of which a part is removed.
  if (::renameat(series, version_directory(n).c_str(), series, draft->c_str()) != 0) {
    return errno == ENOENT ? fail(ENOENT, "the version does not exist", choose) : fail(errno);
  }
  remove_tree(series, *draft);
  return {};
}

}  // namespace

Result<Fd> open_series(const Store& store, std::string_view series, bool make) {
  EO_TRY(check_directory(store));
  EO_TRY(check_name(series));
  auto entry = open_parent(store.directory.get(), std::string(series) + "/.", make);
  if (!entry) {
    return std::unexpected(std::move(entry.error()));
  }
  return std::move(entry->directory);
}

bool has_manifest(int series, std::uint64_t n) {
  const std::string manifest = version_directory(n) + '/' + manifest_name;
  return ::faccessat(series, manifest.c_str(), F_OK, 0) == 0;
}

Result<std::vector<std::uint64_t>> versions_in(int series) {
  const auto entries = list(series);
  if (!entries) {
    return std::unexpected(entries.error());
  }
  std::vector<std::uint64_t> found;
  for (const Listed& entry : *entries) {
    const auto n = version_of(entry.name);
    if (entry.directory && n && has_manifest(series, *n)) {
      found.push_back(*n);
    }
  }
  std::ranges::sort(found);
  return found;
}

Result<std::uint64_t> newest_in(int series) {
  const auto all = versions_in(series);
  if (!all) {
    return std::unexpected(all.error());
  }
  if (all->empty()) {
    return fail(ENOENT, "the series has no version", "Commit a version first");
  }
  return all->back();
}

Result<std::uint64_t> newest(const Store& store, std::string_view series) {
  const auto directory = open_series(store, series, false);
  if (!directory) {
    return std::unexpected(directory.error());
  }
  return newest_in(directory->get());
}

Result<std::vector<std::uint64_t>> versions(const Store& store, std::string_view series) {
  const auto directory = open_series(store, series, false);
  if (!directory) {
    const bool none = directory.error().code == ENOENT;
    return none ? std::vector<std::uint64_t>()
                : Result<std::vector<std::uint64_t>>(std::unexpected(directory.error()));
  }
  return versions_in(directory->get());
}

Status remove_version(const Store& store, std::string_view series, std::uint64_t n) {
  EO_TRY(check_writable(store));
  if (n == EO_LATEST) {
    return fail(EINVAL, "EO_LATEST is not the number of a version", "Choose a number");
  }
  const auto directory = open_series(store, series, false);
  return directory ? remove_from(directory->get(), n) : Status(std::unexpected(directory.error()));
}

void put_aside(const Store& store, std::string_view series, std::uint64_t n) {
  const auto directory = open_series(store, series, false);
  const auto token = new_token();
  if (store.writable && directory && token) {
    ::renameat(directory->get(), version_directory(n).c_str(), directory->get(),
               damaged_version_name(n, *token).c_str());
  }
}

Status keep(const Store& store, std::string_view series, unsigned k) {
  EO_TRY(check_writable(store));
  if (k == 0) {
    return fail(EINVAL, "the number of versions to keep is 0", "Keep at least 1");
  }
  const auto directory = open_series(store, series, false);
  if (!directory) {
    return std::unexpected(directory.error());
  }
  const auto all = versions_in(directory->get());
  if (!all) {
    return std::unexpected(all.error());
  }
  std::size_t older = all->size();
  for (unsigned kept = 0; older > 0 && kept < k; --older) {
    // A version that cannot be read is none to go back to.
    const auto version = open_version(store, series, (*all)[older - 1]);
    kept += version && is_readable(**version) ? 1 : 0;
  }
  for (std::size_t i = 0; i < older; ++i) {
    // Another process may have removed it.
    if (auto removed = remove_from(directory->get(), (*all)[i]);
        !removed && removed.error().code != ENOENT) {
      return removed;
    }
  }
  return {};
}

}  // namespace efs::objects
