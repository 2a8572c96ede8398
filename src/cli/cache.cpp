// SPDX-License-Identifier: BSD-3-Clause
// efs cache: lists and removes the cached inputs. Root accesses another user's cache with the
// rights of that user, because the user owns the directory and its contents.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>

#include "base/text.hpp"
#include "base/user.hpp"
#include "cli/cli.hpp"
#include "config/cache_place.hpp"
#include "stage/import/cache.hpp"

namespace efs::cli {
namespace {

std::string local_time(const FileTime& time) {
  const std::time_t seconds = time.seconds;
  std::tm parts{};
  std::array<char, 32> text{};
  return ::localtime_r(&seconds, &parts) != nullptr &&
                 std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts) > 0
             ? text.data()
             : "?";
}

int list(World& world, stage::Cache& cache) {
  const auto files = cache.list();
  if (!files) {
    return report(world, files.error());
  }
  std::uint64_t used = 0;
  Json items = Json::array();
  for (const auto& file : *files) {
    used += file.bytes;
    const auto& [path, version] = file.key;
    if (world.json) {
      items.push_back({{"path", path},
                       {"size", version.size},
                       {"bytes", file.bytes},
                       {"last_used", static_cast<double>(to_ns(to_timespec(file.used))) / 1e9},
                       {"in_use", file.in_use},
                       {"device", version.device},
                       {"inode", version.inode},
                       {"mtime_ns", version.mtime},
                       {"ctime_ns", version.ctime}});
    } else {
      world.out << local_time(file.used) << (file.in_use ? "  in use  " : "  -       ")
                << std::right << std::setw(11) << format_bytes(version.size) << "  "
                << escaped(path) << "\n";
    }
  }
  if (world.json) {
    print_document(world, {{"ok", true},
                           {"cache", cache.path()},
                           {"capacity", cache.capacity()},
                           {"used", used},
                           {"files", items}});
  } else {
    world.out << escaped(cache.path()) << ": " << files->size() << " files, " << format_bytes(used)
              << " of " << format_bytes(cache.capacity()) << "\n";
  }
  return exit_good;
}

// Removes these PFS paths and all paths below them.
int remove(World& world, stage::Cache& cache, const CacheArguments& a) {
  std::vector<std::string> chosen;
  for (const auto& path : a.paths) {
    std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
    if (absolute.size() > 1 && absolute.ends_with('/')) {
      absolute.pop_back();
    }
    chosen.push_back(std::move(absolute));
  }
  const auto removed = cache.remove([&](const stage::CachedFile& file) {
    const std::string& path = file.key.path;
    return a.all || std::ranges::any_of(chosen, [&](const std::string& c) {
             return path == c || path.starts_with(c == "/" ? c : c + "/");
           });
  });
  if (!removed) {
    return report(world, removed.error());
  }
  if (world.json) {
    print_document(world, {{"ok", true},
                           {"cache", cache.path()},
                           {"files", removed->files},
                           {"bytes", removed->bytes}});
  } else {
    world.out << escaped(cache.path()) << ": removed " << removed->files << " files, "
              << format_bytes(removed->bytes) << "\n";
  }
  return exit_good;
}

// Runs with the rights of the cache's owner.
int work(World& world, const CacheArguments& a, const User& user) {
  const auto place = config::cache_place(user, a.directory);
  if (!place) {
    return report(world, {EINVAL, to_string(place.error().front(), "")}, exit_usage);
  }
  if (place->directory.empty()) {
    return report(
        world,
        {EINVAL,
         "no cache is configured: name its directory with --cache, EFS_CACHE, or in the site file"},
        exit_usage);
  }
  auto cache = stage::Cache::open(place->directory, place->capacity, false);
  if (!cache) {
    return report(world,
                  cache.error().code == ENOENT
                      ? Error{ENOENT, "no cache of " + user.name + " below " + place->directory}
                      : cache.error());
  }
  return a.action == "ls" ? list(world, **cache) : remove(world, **cache, a);
}

// Refuses options and paths that do not go with the action.
Status refuse_words(const CacheArguments& a) {
  if (a.action == "clean" && a.all != a.paths.empty()) {
    return fail(EINVAL, a.all ? "--all and paths do not go together" : "say which files, or --all");
  }
  if (a.action == "ls" && (a.all || !a.paths.empty())) {
    return fail(EINVAL, "efs cache ls takes neither --all nor paths");
  }
  return {};
}

}  // namespace

int cache(World& world, const CacheArguments& a) {
  if (const Status allowed = refuse_words(a); !allowed) {
    return report(world, allowed.error(), exit_usage);
  }
  const auto user = find_user(a.user.empty() ? std::to_string(::geteuid()) : a.user);
  if (!user) {
    return report(world, user.error());
  }
  if (user->uid == ::geteuid()) {
    return work(world, a, *user);
  }
  if (::geteuid() != 0) {
    return report(world, {EPERM, "only root can look at the cache of another user"});
  }
  return as_user(world, *user, [&] { return work(world, a, *user); });
}

}  // namespace efs::cli
