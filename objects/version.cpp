// SPDX-License-Identifier: BSD-3-Clause
// Versions: directories of objects that appear by one rename.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "objects/name.hpp"
#include "objects/series.hpp"
#include "objects/store.hpp"

namespace efs::objects {

namespace {

constexpr std::size_t block = 1U << 20U;

struct FreeState {
  void operator()(XXH3_state_t* state) const { ::XXH3_freeState(state); }
};

/// Returns XXH3-64 of a file from its first byte to `size`, as `xxhsum -H3` prints it.
Result<std::string> checksum(int fd, std::uint64_t size) {
  const std::unique_ptr<XXH3_state_t, FreeState> state(::XXH3_createState());
  if (!state) {
    return fail(ENOMEM);
  }
  ::XXH3_64bits_reset(state.get());
  std::vector<char> buffer(std::min<std::uint64_t>(size, block));
  for (std::uint64_t done = 0; done < size;) {
    const std::uint64_t length = std::min<std::uint64_t>(size - done, block);
    EO_TRY(read_all(fd, buffer.data(), length, done));
    ::XXH3_64bits_update(state.get(), buffer.data(), length);
    done += length;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(::XXH3_64bits_digest(state.get())));
  return text;
}

/// Returns a valid name as a JSON string: such a name is UTF-8 without control characters.
std::string json_string(std::string_view name) {
  std::string text = "\"";
  for (const char byte : name) {
    if (byte == '"' || byte == '\\') {
      text += '\\';
    }
    text += byte;
  }
  return text + '"';
}

/// Returns the object of the manifest, and makes its file durable if `sync` is set.
Result<std::string> manifest_line(const Store& version, const std::string& name, bool sync) {
  const auto object = open_object(version, name);
  if (!object) {
    const Failure& failure = object.error();
    const std::string& reason = failure.reason;
    return fail(failure.code, name + ": " + (reason.empty() ? std::strerror(failure.code) : reason),
                failure.remedy);
  }
  const Shape& shape = object->header.shape;
  if (sync) {
    EO_TRY(sync_data(object->fd.get()));
  }
  struct stat status{};
  if (::fstat(object->fd.get(), &status) != 0) {
    return fail(errno);
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const auto sum = checksum(object->fd.get(), size);
  if (!sum) {
    return std::unexpected(sum.error());
  }
  std::string dims;
  for (int i = 0; i < shape.ndim; ++i) {
    dims += (i > 0 ? ", " : "") + std::to_string(shape.dims[i]);
  }
  return "    {\"name\": " + json_string(name) + ", \"dtype\": \"" + shape.dtype +
         "\", \"fortran_order\": " + (shape.fortran ? "true" : "false") + ", \"shape\": [" + dims +
         "], \"size\": " + std::to_string(size) + ", \"checksum\": \"xxh3:" + *sum + "\"}";
}

Status write_manifest(const Store& version, bool sync) {
  const auto all = names(version);
  if (!all) {
    return std::unexpected(all.error());
  }
  std::string text = "{\n  \"format\": \"efs-objects-1\",\n  \"objects\": [";
  for (std::size_t i = 0; i < all->size(); ++i) {
    const auto line = manifest_line(version, (*all)[i], sync);
    if (!line) {
      return std::unexpected(line.error());
    }
    text += (i > 0 ? ",\n" : "\n") + *line;
  }
  text += all->empty() ? "]\n}\n" : "\n  ]\n}\n";
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
