// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/survey.hpp"

#include <fcntl.h>

#include <chrono>
#include <map>
#include <utility>

#include "base/mutex.hpp"
#include "stage/pfs/directory_cursor.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

constexpr std::size_t names_in_a_row = 64;  // names that one thread asks for in a row
// So few names may be done before another thread has begun: a deep tree has few on each level.
constexpr std::size_t few_names = 8;
constexpr std::chrono::microseconds starts_thread{100};  // about what it takes to start one

/// True if the mode bits suffice to grant read access. If an access control list forbids it,
/// opening the file will fail.
bool surely_readable(const struct stat& attributes, uid_t user) {
  if (attributes.st_uid == user) {
    return (attributes.st_mode & S_IRUSR) != 0;
  }
  return (attributes.st_mode & 0444U) == 0444U;
}

/// Puts the findings of several threads in order. One thread at a time reports them in the order of
/// the items while the others continue and the data are in a CPU's cache.
class InOrder {
 public:
  /// Adds the items from `begin` on. If true, the caller must report the results of next() until it
  /// is empty. If false, another thread does.
  bool put(std::size_t begin, std::vector<Found> found) {
    const MutexLock lock(mutex_);
    waiting_.emplace(begin, std::move(found));
    return !std::exchange(telling_, true);
  }

  std::optional<std::vector<Found>> next() {
    const MutexLock lock(mutex_);
    const auto first = waiting_.begin();
    telling_ = first != waiting_.end() && first->first == told_;
    if (!telling_) {
      return std::nullopt;
    }
    told_ += first->second.size();
    return std::move(waiting_.extract(first).mapped());
  }

 private:
  Mutex mutex_;  // rank 90 (leaf)
  std::map<std::size_t, std::vector<Found>> waiting_ EFS_GUARDED_BY(mutex_);
  std::size_t told_ EFS_GUARDED_BY(mutex_) = 0;  // items
  bool telling_ EFS_GUARDED_BY(mutex_) = false;
};

}  // namespace

void Survey::look_at(Found& found, PfsRef directory) {
  const std::string name = leaf_of(found.path);
  const auto problem = [&](Found::Problem what, Error& error) {
    found.problem = what;
    found.error = std::move(error);
  };
  auto attributes = pfs_.lstat(directory, name);
  if (!attributes) {
    return problem(Found::Problem::attributes, attributes.error());
  }
  found.attributes = *attributes;
  if (S_ISREG(attributes->st_mode) && !surely_readable(*attributes, user_)) {
    if (auto readable = pfs_.access(directory, name, R_OK); !readable) {
      problem(Found::Problem::unreadable, readable.error());
    }
  } else if (S_ISLNK(attributes->st_mode)) {
    auto target = pfs_.readlink(directory, name);
    if (!target) {
      return problem(Found::Problem::target, target.error());
    }
    found.target = std::move(*target);
  }
}

std::vector<Found> Survey::look(std::vector<std::string> paths) {
  std::vector<Found> all;
  all.reserve(paths.size());
  look(std::move(paths), [&](Found&& found) {
    all.push_back(std::move(found));
    return false;
  });
  return all;
}

void Survey::look(std::vector<std::string> paths, const Tell& tell) {
  InOrder in_order;
  const auto some_of_them = [&](std::size_t begin, std::size_t end) {
    DirectoryCursor directory(
        [this](const std::string& path) { return paths_.open(path, passage_flags); });
    std::vector<Found> some(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      Found& found = some[i - begin];
      found.path = std::move(paths[i]);
      if (auto at = directory.at(parent_of(found.path))) {
        look_at(found, *at);
      } else {
        found.problem = Found::Problem::attributes;
        found.error = std::move(at.error());
      }
    }
    if (!in_order.put(begin, std::move(some))) {
      return;
    }
    while (auto next = in_order.next()) {
      for (auto& found : *next) {
        (void)tell(std::move(found));
      }
    }
  };
  const std::size_t done = paths.size() <= few_names ? alone(paths.size(), some_of_them) : 0;
  pool_.run(paths.size() - done, names_in_a_row,
            [&](std::size_t begin, std::size_t end) { some_of_them(done + begin, done + end); });
}

std::size_t Survey::alone(std::size_t count, const WorkerPool::Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::size_t done = 0;
  for (; done < count && Clock::now() - begin < starts_thread; ++done) {
    work(done, done + 1);
  }
  return done;
}

void Survey::below(const std::string& path, const Tell& tell) {
  // Level by level, so that all directories of a level are listed in parallel.
  for (std::vector<std::string> level{path}, next; !level.empty();
       level = std::exchange(next, {})) {
    auto listings = list(level);
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < level.size(); ++i) {
      if (auto& error = listings[i].error) {
        (void)tell({.path = level[i],
                    .target = {},
                    .problem = Found::Problem::listing,
                    .error = std::move(*error)});
      }
      for (const auto& name : listings[i].names) {
        paths.push_back(join(level[i], name));
      }
    }
    listings.clear();
    look(std::move(paths), [&](Found&& found) {
      const bool is_directory =
          found.problem == Found::Problem::none && S_ISDIR(found.attributes.st_mode);
      std::string directory = is_directory ? found.path : std::string();
      const bool enters = tell(std::move(found));
      if (is_directory && enters) {
        next.push_back(std::move(directory));
      }
      return false;
    });
  }
}

std::vector<Survey::Listing> Survey::list(const std::vector<std::string>& directories) {
  std::vector<Listing> listings(directories.size());
  pool_.run(directories.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      auto directory = paths_.open(directories[i], directory_flags);
      auto names = directory ? pfs_.list(*directory) : std::unexpected(directory.error());
      if (names) {
        listings[i].names = std::move(*names);
      } else {
        listings[i].error = std::move(names.error());
      }
    }
  });
  return listings;
}

}  // namespace efs::stage
