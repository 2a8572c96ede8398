// SPDX-License-Identifier: BSD-3-Clause
// Versions: directories of objects that appear by one rename.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "objects/checksum.hpp"
#include "objects/manifest.hpp"
#include "objects/name.hpp"
#include "objects/series.hpp"
#include "objects/store.hpp"

namespace efs::objects {

namespace {

/// Returns the manifest's record of an object, and makes its file durable if `sync` is set.
Result<Recorded> recorded(const Store& version, const std::string& name, bool sync) {
  const auto object = open_object(version, name);
  if (!object) {
    const Failure& failure = object.error();
    const std::string& reason = failure.reason;
    return fail(failure.code, name + ": " + (reason.empty() ? std::strerror(failure.code) : reason),
                failure.remedy);
  }
  if (sync) {
    EO_TRY(sync_data(object->fd.get()));
  }
  const auto sum = checksum(*object);
  if (!sum) {
    return std::unexpected(sum.error());
  }
  return Recorded{name, object->header.shape, object->size, *sum, false};
}

Status write_manifest(const Store& version, bool sync) {
  const auto all = names(version);
  if (!all) {
    return std::unexpected(all.error());
  }
  std::vector<Recorded> objects;
  objects.reserve(all->size());
  for (const std::string& name : *all) {
    auto object = recorded(version, name, sync);
    if (!object) {
      return std::unexpected(std::move(object.error()));
    }
    objects.push_back(std::move(*object));
  }
  const std::string text = manifest_of(objects);
  if (text.size() > max_manifest) {
    return fail(EFBIG, "the manifest is longer than 256 MiB", "Store fewer objects in a version");
  }
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
  const Fd file(::openat(version.directory.get(), manifest_name, flags, 0666));
  if (!file) {
    return fail(errno);
  }
  EO_TRY(write_all(file.get(), text.data(), text.size(), 0));
  return sync ? sync_data(file.get()) : Status();
}

/// Makes all directories of a version durable.
Status sync_tree(int directory) {
  const auto entries = list(directory);
  if (!entries) {
    return std::unexpected(entries.error());
  }
  for (const Listed& entry : *entries) {
    if (entry.directory) {
      const auto below = open_directory(directory, entry.name);
      if (!below) {
        return std::unexpected(below.error());
      }
      EO_TRY(sync_tree(below->get()));
    }
  }
  return sync_entries(directory);
}

/// EBUSY if a draft is below the directory.
Status check_no_drafts(int directory) {
  const auto entries = list(directory);
  if (!entries) {
    return std::unexpected(entries.error());
  }
  for (const Listed& entry : *entries) {
    if (entry.name.ends_with(draft_suffix)) {
      return fail(EBUSY, "it has drafts that are not published", "Publish or discard them first");
    }
    if (entry.directory) {
      const auto below = open_directory(directory, entry.name);
      if (!below) {
        return std::unexpected(below.error());
      }
      EO_TRY(check_no_drafts(below->get()));
    }
  }
  return {};
}

std::unexpected<Failure> exists() {
  return fail(EEXIST, "the version exists", "Choose another number; a version never changes");
}

}  // namespace

Result<std::unique_ptr<Store>> begin(const Store& store, std::string_view series, std::uint64_t n) {
  EO_TRY(check_writable(store));
  if (n == EO_LATEST) {
    return fail(EINVAL, "EO_LATEST is not the number of a new version", "Choose a number");
  }
  if (store.unpublished) {
    return fail(EINVAL, "a version cannot contain versions", "Begin it in the store itself");
  }
  auto directory = open_series(store, series, true);
  if (!directory) {
    return std::unexpected(std::move(directory.error()));
  }
  auto root = open_directory(store.directory.get(), ".");
  if (!root) {
    return std::unexpected(std::move(root.error()));
  }
  auto place = std::make_unique<Unpublished>();
  place->name = version_directory(n);
  place->draft = place->name + std::string(draft_suffix);
  place->series_name = series;
  if (::faccessat(directory->get(), place->name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
    return exists();
  }
  auto version = std::make_unique<Store>();
  version->path = store.path + '/' + place->series_name + '/' + place->draft;
  auto locked = create_draft_directory(directory->get(), place->draft);
  if (!locked) {
    return std::unexpected(std::move(locked.error()));
  }
  version->directory = std::move(*locked);
  place->root = std::move(*root);
  place->series = std::move(*directory);
  version->unpublished = std::move(place);
  return version;
}

Status commit(const Store& version, unsigned flags) {
  const bool sync = (flags & EO_SYNC) != 0;
  const Unpublished& place = *version.unpublished;
  sweep(version.directory.get());
  EO_TRY(check_no_drafts(version.directory.get()));
  EO_TRY(write_manifest(version, sync));
  if (sync) {
    EO_TRY(sync_tree(version.directory.get()));
  }
  const int series = place.series.get();
  if (::renameat(series, place.draft.c_str(), series, place.name.c_str()) != 0) {
    return errno == ENOTEMPTY || errno == EEXIST ? Status(exists()) : fail(errno);
  }
  return sync ? sync_parents(place.root.get(), place.series_name + "/.") : Status();
}

void abort(const Store& version) {
  const Unpublished& place = *version.unpublished;
  remove_tree(place.series.get(), place.draft);
}

Result<std::unique_ptr<Store>> open_version(const Store& store, std::string_view series,
                                            std::uint64_t n) {
  const auto directory = open_series(store, series, false);
  if (!directory) {
    return std::unexpected(directory.error());
  }
  if (n == EO_LATEST) {
    const auto found = newest_in(directory->get());
    if (!found) {
      return std::unexpected(found.error());
    }
    n = *found;
  } else if (!has_manifest(directory->get(), n)) {
    return fail(ENOENT, "the version does not exist", "Use EO_LATEST or another number");
  }
  auto opened = open_directory(directory->get(), version_directory(n));
  if (!opened) {
    return std::unexpected(std::move(opened.error()));
  }
  auto version = std::make_unique<Store>();
  version->directory = std::move(*opened);
  version->path = store.path + '/' + std::string(series) + '/' + version_directory(n);
  version->writable = false;
  return version;
}

}  // namespace efs::objects
