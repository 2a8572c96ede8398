// SPDX-License-Identifier: BSD-3-Clause
// Versions: directories of objects that appear by one rename.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "objects/checksum.hpp"
#include "objects/manifest.hpp"
#include "objects/name.hpp"
#include "objects/series.hpp"
#include "objects/store.hpp"

namespace efs::objects {

namespace {

/// Makes all objects durable.
Status sync_files(const Store& version) {
  const auto all = names(version);
  if (!all) {
    return std::unexpected(all.error());
  }
  for (const std::string& name : *all) {
    const auto object = open_object(version, name);
    if (object) {
      EO_TRY(sync_data(object->fd.get()));
    } else if (object.error().code != ENOENT) {
      return std::unexpected(object.error());
    }
  }
  return {};
}

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
  const auto known = version.written->checksum_of(name, object->fd.get());
  const auto sum = known ? Result<std::uint64_t>(*known) : checksum(*object);
  if (!sum) {
    return std::unexpected(sum.error());
  }
  return Recorded{name, object->header.shape, object->size, *sum, false};
}

/// EIO unless each file that was stored in the version is there.
Status check_all_there(const Store& version, const std::vector<std::string>& files) {
  for (const std::string& name : version.written->names()) {
    if (!std::ranges::binary_search(files, name)) {
      return fail(EIO, printable(name) + " was stored, but its file is not in the version",
                  "Remove objects of a version with eo_remove only, and begin it again");
    }
  }
  return {};
}

/// Finishes small.npz and returns the records of all objects, in byte order.
Result<std::vector<Recorded>> all_recorded(const Store& version, bool sync) {
  const auto files = file_names(version);
  if (!files) {
    return std::unexpected(files.error());
  }
  EO_TRY(check_all_there(version, *files));
  std::vector<Recorded> objects;
  for (const std::string& name : *files) {
    version.bundle->erase(name);  // a process that joined has stored the file
  }
  auto small = version.bundle->recorded();
  if (!small) {
    return small;
  }
  EO_TRY(version.bundle->finish(sync));
  for (const std::string& name : *files) {
    auto object = recorded(version, name, sync);
    if (!object) {
      return std::unexpected(std::move(object.error()));
    }
    objects.push_back(std::move(*object));
  }
  std::vector<Recorded> merged;
  merged.reserve(objects.size() + small->size());
  std::ranges::merge(std::make_move_iterator(objects.begin()),
                     std::make_move_iterator(objects.end()),
                     std::make_move_iterator(small->begin()), std::make_move_iterator(small->end()),
                     std::back_inserter(merged),
                     [](const Recorded& a, const Recorded& b) { return a.name < b.name; });
  return merged;
}

Status write_manifest(const Store& version, bool sync) {
  const auto objects = all_recorded(version, sync);
  if (!objects) {
    return std::unexpected(objects.error());
  }
  const std::string text = manifest_of(*objects);
  if (text.size() > max_manifest) {
    return fail(EFBIG, "the manifest is longer than 256 MiB", "Store fewer objects in a version");
  }
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
  const Fd file(::openat(version.directory.get(), manifest_name, flags, 0666));
  if (!file) {
    return fail(errno);
  }
  EO_TRY(write_all(file.get(), text.data(), text.size(), 0));
  return sync ? sync_data(file.get()) : check_writes(file.get());
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
    const bool joining = is_join_file(entry.name) || is_sums_file(entry.name);
    if (entry.name.ends_with(draft_suffix) && !joining) {
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

/// Passes the checksums of this process to the process that commits. Without them it reads the
/// files, so a failure is none.
void pass_checksums(const Store& version) {
  const std::string text = version.written->text();
  const auto token = new_token();
  if (text.empty() || !token) {
    return;
  }
  const std::string name = sums_name(*token);
  const int directory = version.directory.get();
  constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  const Fd file(::openat(directory, name.c_str(), flags, 0600));
  if (file && !write_all(file.get(), text.data(), text.size(), 0)) {
    ::unlinkat(directory, name.c_str(), 0);
  }
}

/// Calls each(name) for the files of pass_checksums().
template <typename Each>
Status for_sums(int directory, Each each) {
  const auto entries = list(directory);
  if (!entries) {
    return std::unexpected(entries.error());
  }
  for (const Listed& entry : *entries) {
    if (entry.file && is_sums_file(entry.name)) {
      each(entry.name);
    }
  }
  return {};
}

/// Reads the checksums of the processes that have left.
Status add_checksums(const Store& version) {
  return for_sums(version.directory.get(), [&](const std::string& name) {
    const auto file = open_file(version.directory.get(), name);
    struct stat status{};
    if (file && ::fstat(file->get(), &status) == 0 && status.st_uid == ::geteuid() &&
        static_cast<std::uint64_t>(status.st_size) <= max_manifest) {
      const auto text = read_head(file->get(), static_cast<std::size_t>(status.st_size));
      version.written->add(text ? *text : std::string_view());
    }
  });
}

/// Removes the files by which other processes have joined.
Status remove_joins(const Store& version) {
  const int directory = version.directory.get();
  const JoinFile& joins = version.unpublished->joins;
  if (!joins) {
    return {};
  }
  EO_TRY(for_sums(directory,
                  [&](const std::string& name) { ::unlinkat(directory, name.c_str(), 0); }));
  return ::unlinkat(directory, joins.name.c_str(), 0) == 0 ? Status() : fail(errno);
}

/// Gives the directory of a draft the mode that a new directory gets.
Status set_mode(int directory) {
  const auto probe = new_draft_name();
  if (!probe) {
    return std::unexpected(probe.error());
  }
  struct stat status{};
  if (::mkdirat(directory, probe->c_str(), 0777) != 0) {
    return fail(errno);
  }
  const bool known = ::fstatat(directory, probe->c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  const int error = errno;
  ::unlinkat(directory, probe->c_str(), AT_REMOVEDIR);
  if (!known) {
    return fail(error);
  }
  return ::fchmod(directory, status.st_mode & 07777U) == 0 ? Status() : fail(errno);
}

/// Opens the bundle of the small arrays of a committed version, if it has one. A damaged one is a
/// failure of its arrays only.
Status open_small(Store& version) {
  auto file = open_file(version.directory.get(), small_name);
  if (!file && file.error().code == ENOENT) {
    return {};
  }
  auto bundle = file ? Bundle::open(std::move(*file))
                     : Result<std::shared_ptr<Bundle>>(std::unexpected(file.error()));
  if (!bundle) {
    return std::unexpected(std::move(bundle.error()));
  }
  version.bundle = std::move(*bundle);
  return {};
}

std::unexpected<Failure> exists() {
  return fail(EEXIST, "the version exists", "Choose another number; a version never changes");
}

}  // namespace

Result<std::unique_ptr<Store>> begin(const Store& store, std::string_view series, std::uint64_t n) {
  EO_TRY(check_writable(store));
  EO_TRY(check_directory(store));
  if (n == EO_LATEST) {
    return fail(EINVAL, "EO_LATEST is not the number of a new version", "Choose a number");
  }
  if (store.unpublished || store.joined) {
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
  place->draft = version_draft_name(n, node_mark());
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
  auto again = open_directory(version->directory.get(), ".");
  if (!again) {
    remove_tree(directory->get(), place->draft);
    return std::unexpected(std::move(again.error()));
  }
  version->bundle = std::make_shared<Bundle>(std::move(*again), small_name);
  version->written = std::make_shared<WrittenFiles>();
  place->root = std::move(*root);
  place->series = std::move(*directory);
  version->unpublished = std::move(place);
  return version;
}

Status commit(const Store& version, unsigned flags) {
  const bool sync = (flags & EO_SYNC) != 0;
  Unpublished& place = *version.unpublished;
  const std::scoped_lock lock(place.mutex);
  const auto closed = JoinsClosed::of(place.joins);
  if (!closed) {
    return std::unexpected(closed.error());
  }
  const int directory = version.directory.get();
  sweep(directory);
  EO_TRY(check_no_drafts(directory));
  if (place.joins) {
    EO_TRY(add_checksums(version));
  }
  EO_TRY(write_manifest(version, sync));
  EO_TRY(remove_joins(version));
  EO_TRY(set_mode(directory));
  if (sync) {
    EO_TRY(sync_tree(directory));
  }
  const int series = place.series.get();
  if (::renameat(series, place.draft.c_str(), series, place.name.c_str()) != 0) {
    return errno == ENOTEMPTY || errno == EEXIST ? Status(exists()) : fail(errno);
  }
  return sync ? in_place(sync_parents(place.root.get(), place.series_name + "/.")) : Status();
}

void abort(const Store& version) {
  const Unpublished& place = *version.unpublished;
  if (place.process == ::getpid()) {
    remove_tree(place.series.get(), place.draft);
  }
}

Result<std::string> token(Store& version) {
  if (!version.unpublished) {
    return fail(EINVAL, "the store is not a version that was begun", "Use the store of eo_begin");
  }
  Unpublished& place = *version.unpublished;
  const std::scoped_lock lock(place.mutex);
  if (!place.joins) {
    const auto made = new_token();
    if (!made) {
      return std::unexpected(made.error());
    }
    auto joins = create_join_file(version.directory.get(), *made);
    if (!joins) {
      return std::unexpected(std::move(joins.error()));
    }
    place.joins = std::move(*joins);
  }
  return std::string(token_of(place.joins.name));
}

Result<std::unique_ptr<Store>> join(const Store& store, std::string_view series, std::uint64_t n,
                                    std::string_view token) {
  EO_TRY(check_writable(store));
  EO_TRY(check_directory(store));
  if (!is_token(token)) {
    return fail(EINVAL, "the token is not one of a version", "Use the token of eo_token");
  }
  const auto directory = open_series(store, series, false);
  if (!directory) {
    return std::unexpected(directory.error());
  }
  const std::string draft = version_draft_name(n, token);
  auto opened = open_directory(directory->get(), draft);
  if (!opened) {
    return opened.error().code == ENOENT
               ? fail(ENOENT, "no process has begun this version", "Call eo_begin first")
               : std::unexpected(std::move(opened.error()));
  }
  EO_TRY(check_alive(opened->get()));
  auto joined = open_join_file(opened->get(), token);
  if (!joined) {
    return std::unexpected(std::move(joined.error()));
  }
  EO_TRY(enter(*joined));
  auto version = std::make_unique<Store>();
  version->directory = std::move(*opened);
  version->path = store.path + '/' + std::string(series) + '/' + draft;
  version->joined = std::move(*joined);
  version->written = std::make_shared<WrittenFiles>();
  return version;
}

Status leave(const Store& version, unsigned flags) {
  EO_TRY(check_flags(flags));
  if (!version.joined) {
    return fail(EINVAL, "this process has not joined a version by it", "Use the store of eo_join");
  }
  if ((flags & EO_SYNC) != 0) {
    EO_TRY(sync_files(version));
    EO_TRY(sync_tree(version.directory.get()));
  }
  pass_checksums(version);
  return leave(version.joined, version.directory.get());
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
  EO_TRY(open_small(*version));
  return version;
}

}  // namespace efs::objects
