// SPDX-License-Identifier: BSD-3-Clause
#include "image/removal.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <memory>
#include <set>
#include <string_view>

#include "backends/fsdax.hpp"
#include "base/unique_fd.hpp"

namespace efs::image {
namespace {

constexpr const char* journal_name = "journal";
constexpr const char* mark_name = "removed";
constexpr const char* lock_name = "lock";

UniqueFd open_below(int root, const char* name) {
  return UniqueFd(::openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

Status remove_below(int directory, std::initializer_list<std::string_view> but);

Status remove_name(int at, const char* name) {
  if (::unlinkat(at, name, 0) == 0 || errno == ENOENT) {
    return {};
  }
  if (errno != EISDIR) {
    return fail_errno();
  }
  const UniqueFd directory = open_below(at, name);
  if (!directory) {
    return fail_errno();
  }
  EFS_TRY(remove_below(directory.get(), {}));
  return ::unlinkat(at, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? Status{}
                                                                    : Status(fail_errno());
}

// Calls Status visit(const char* name) for each entry until one fails. Works by descriptors,
// because a path may name another directory by now. The library's function for this would end the
// process when memory is exhausted.
template <typename Visit>
Status for_each_entry(int directory, Visit visit) {
  UniqueFd fd = open_below(directory, ".");
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(fd ? ::fdopendir(fd.get()) : nullptr,
                                                    ::closedir);
  if (!entries) {
    return fail_errno();
  }
  (void)fd.release();  // owned by the stream
  errno = 0;
  for (const dirent* entry = nullptr; (entry = ::readdir(entries.get())) != nullptr; errno = 0) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") {
      EFS_TRY(visit(entry->d_name));
    }
  }
  return errno == 0 ? Status{} : Status(fail_errno());
}

Status remove_below(int directory, std::initializer_list<std::string_view> but) {
  return for_each_entry(directory, [&](const char* name) {
    return std::ranges::find(but, name) == but.end() ? remove_name(directory, name) : Status{};
  });
}

Result<bool> holds_at_most(int directory, std::initializer_list<std::string_view> names) {
  bool all = true;
  EFS_TRY(for_each_entry(directory, [&](const char* name) {
    all = all && std::ranges::find(names, name) != names.end();
    return Status{};
  }));
  return all;
}

// Returns whether `data` contains nothing but empty directories.
bool holds_no_container(int data) {
  const Status looked = for_each_entry(data, [&](const char* name) -> Status {
    const UniqueFd below = open_below(data, name);
    return below && holds_at_most(below.get(), {}).value_or(false) ? Status{} : fail(ENOTEMPTY);
  });
  return looked.has_value();
}

// The rest of a start that died before it created its journal, or of a removal that died before its
// last step: no journal, no manifest, no container.
bool is_remnant(int root, int metadata) {
  const UniqueFd data = open_below(root, "data");
  return holds_at_most(root, {"meta", "data", lock_name}).value_or(false) &&
         holds_at_most(metadata, {lock_name}).value_or(false) &&
         (!data || holds_no_container(data.get()));
}

Status remove_entries(int directory, const std::string& path,
                      std::initializer_list<std::string_view> but) {
  const Status done = remove_below(directory, but);
  return done ? done : fail(done.error().code, path + ": " + describe(done.error()));
}

std::uint64_t contents_in(UniqueFd data) {
  if (!data) {
    return 0;
  }
  FsdaxOptions options;
  options.directory = std::move(data);
  options.read_only = true;
  const auto backend = make_fsdax(std::move(options));
  std::uint64_t contents = 0;
  const auto count = [&](std::uint64_t id) {
    const auto st = (*backend)->attributes(id);
    if (!st || st->st_size > 0) {
      ++contents;
    }
  };
  // A backend that cannot be listed may not be empty.
  if (!backend || !(*backend)->for_each(count)) {
    ++contents;
  }
  return contents;
}

}  // namespace

Status begin_removal(int metadata) {
  if (::renameat(metadata, journal_name, metadata, mark_name) != 0) {
    return errno == ENOENT ? Status{} : fail_errno("the journal");
  }
  return ::fsync(metadata) == 0 ? Status{} : fail_errno("the journal's directory");
}

bool is_being_removed(int metadata) {
  struct stat st{};
  return ::fstatat(metadata, mark_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::fstatat(metadata, journal_name, &st, AT_SYMLINK_NOFOLLOW) != 0;
}

std::uint64_t contents_without_journal(const std::string& path) {
  std::set<std::string> roots{path, path + "/store"};
  for (const std::string& place : {path, path + "/meta"}) {
    const auto manifest = recover_manifest(open_below(AT_FDCWD, place.c_str()).get());
    if (!manifest) {
      continue;
    }
    roots.insert(manifest->store);
    for (const auto& member : manifest->members) {
      roots.insert(member.path);
    }
  }
  std::uint64_t contents = 0;
  for (const auto& place : roots) {
    const UniqueFd root = open_below(AT_FDCWD, place.c_str()),
                   metadata = open_below(root.get(), "meta");
    struct stat st{};
    if (metadata && (is_being_removed(metadata.get()) ||
                     ::fstatat(metadata.get(), journal_name, &st, AT_SYMLINK_NOFOLLOW) == 0)) {
      return 0;
    }
    contents += contents_in(open_below(root.get(), "data"));
  }
  return contents;
}

bool holds_contents(int root) {
  return contents_in(open_below(root, "data")) > 0;
}

Result<Directories> find_removable(const std::string& path) {
  if (auto store = find_store(path)) {
    return store;
  }
  Directories store{
      .path = path,
      .root = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)),
      .metadata = {},
      .data = {},
      .owner = 0};
  if (store.root) {
    store.metadata = open_below(store.root.get(), "meta");
  }
  struct stat st{};
  const bool is_removable = store.metadata && (is_being_removed(store.metadata.get()) ||
                                               is_remnant(store.root.get(), store.metadata.get()));
  if (!is_removable || ::fstat(store.root.get(), &st) != 0) {
    return fail(ENOENT, path + ": no image of efs is there");
  }
  store.owner = st.st_uid;
  return store;
}

Status remove_content(int root, const std::string& path) {
  const UniqueFd metadata = open_below(root, "meta");
  if (metadata) {
    EFS_TRY(begin_removal(metadata.get()));
  }
  // The caller holds the lock. Another process that opened the lock before its removal waits for
  // it, and then finds that it was removed.
  EFS_TRY(remove_entries(root, path, {"meta", lock_name, manifest_name}));
  if (metadata) {
    EFS_TRY(remove_entries(metadata.get(), path + "/meta", {mark_name, lock_name}));
  }
  if (metadata && ::unlinkat(metadata.get(), mark_name, 0) != 0 && errno != ENOENT) {
    return fail_errno(path + "/meta/" + mark_name);
  }
  // the owner of a backend's directory stays recorded until the directory is empty
  EFS_TRY(remove_entries(root, path, {"meta", lock_name}));
  return remove_entries(root, path, {});
}

Result<bool> remove_remnant(int root, const std::string& path) {
  const auto is_all = holds_at_most(root, {lock_name});
  if (!is_all) {
    return fail(is_all.error().code, path + ": " + describe(is_all.error()));
  }
  if (!*is_all) {
    return false;
  }
  EFS_TRY(remove_entries(root, path, {}));
  return ::rmdir(path.c_str()) == 0 || errno == ENOENT ? Result<bool>(true)
                                                       : Result<bool>(fail_errno(path));
}

Status finish_removal(int root, const std::string& path) {
  const UniqueFd data = open_below(root, "data");
  return data ? remove_entries(data.get(), path + "/data", {}) : Status{};
}

Status forget_removal(int metadata, const std::string& path) {
  return ::unlinkat(metadata, mark_name, 0) == 0 || errno == ENOENT
             ? Status{}
             : fail_errno(path + "/meta/" + mark_name);
}

}  // namespace efs::image
