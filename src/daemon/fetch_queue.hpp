// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The order in which the contents of remote files are fetched. It knows numbers of files only.

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

namespace efs::daemon {

/// Files that a program waits for come first, in the order of their requests. The files of the
/// background follow, those with a higher priority first. Pure. Not thread-safe.
class FetchQueue {
 public:
  /// A program waits for the file. Without effect while it is being fetched: that fetch counts.
  void want(std::uint64_t ino);
  /// The file is to be fetched some time. Without effect if it is in the queue or being fetched.
  void add_background(std::uint64_t ino, std::int32_t priority);

  /// The next file to fetch; its caller ends the fetch by done(). `background`: may be a file that
  /// no program waits for. nullopt: there is none.
  std::optional<std::uint64_t> take(bool background);
  void done(std::uint64_t ino);

  /// Empties the queue, but for what is being fetched. Returns the files that programs wait for.
  std::list<std::uint64_t> drop();

  bool is_wanted(std::uint64_t ino) const { return wanted_at_.contains(ino); }

  bool is_running(std::uint64_t ino) const { return running_.contains(ino); }

  std::size_t wanted() const { return wanted_.size(); }

  std::size_t background() const { return background_.size(); }

  std::size_t running() const { return running_.size(); }

 private:
  using Rank = std::pair<std::int64_t, std::uint64_t>;  // -priority, number of its arrival

  std::list<std::uint64_t> wanted_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> wanted_at_;
  std::map<Rank, std::uint64_t> background_;
  std::unordered_map<std::uint64_t, Rank> background_at_;
  std::set<std::uint64_t> running_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace efs::daemon
