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
#include <vector>

namespace efs::daemon {

/// Files that a program waits for come first, in the order of their requests. Then come those that
/// `efs fetch` names, those that a program will probably open next, and the files of the
/// background, those with a higher priority first. Pure. Not thread-safe.
class FetchQueue {
 public:
  /// A program waits for the file. Without effect while it is being fetched: that fetch counts.
  void want(std::uint64_t ino);

  /// `efs fetch` names the file. Without effect if it is being fetched or comes earlier.
  void ask(std::uint64_t ino) { add(ino, {Level::asked, 0, arrivals_++}); }

  /// A program will probably open the file. Without effect as above.
  void add_ahead(std::uint64_t ino) { add(ino, {Level::ahead, 0, arrivals_++}); }

  /// The file is to be fetched some time. Without effect as above.
  void add_background(std::uint64_t ino, std::int32_t priority) {
    add(ino, {Level::background, -std::int64_t{priority}, arrivals_++});
  }

  enum class Least : std::uint8_t { wanted, expected, background };

  /// The next file to fetch; its caller ends the fetch by done(). wanted: one that a program waits
  /// for; expected: or one of ask() or add_ahead(); background: or any. nullopt: there is none.
  std::optional<std::uint64_t> take(Least least);
  void done(std::uint64_t ino);

  /// Removes those of these files that `efs fetch` named, if nothing else wants them.
  void forget_asked(const std::set<std::uint64_t>& inos);
  /// Removes those of these files that add_ahead() has added, if nothing else wants them.
  void forget_ahead(const std::vector<std::uint64_t>& inos);
  /// Empties the queue, but for what is being fetched. Returns the files that programs wait for.
  std::list<std::uint64_t> drop();

  bool is_wanted(std::uint64_t ino) const { return wanted_at_.contains(ino); }

  bool is_running(std::uint64_t ino) const { return running_.contains(ino); }

  std::size_t wanted() const { return wanted_.size(); }

  /// The files that no program waits for.
  std::size_t others() const { return others_.size(); }

  /// True if the background comes next.
  bool is_background_next() const {
    return wanted_.empty() && !others_.empty() && others_.begin()->first.level == Level::background;
  }

  std::size_t running() const { return running_.size(); }

 private:
  enum class Level : std::uint8_t { asked, ahead, background };

  struct Rank {
    Level level = Level::asked;
    std::int64_t later = 0;     // -priority
    std::uint64_t arrival = 0;  // its number

    auto operator<=>(const Rank&) const = default;
  };

  void add(std::uint64_t ino, const Rank& rank);
  void forget(std::uint64_t ino, Level level);
  void erase(std::uint64_t ino);

  std::list<std::uint64_t> wanted_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> wanted_at_;
  std::map<Rank, std::uint64_t> others_;
  std::unordered_map<std::uint64_t, Rank> others_at_;
  std::set<std::uint64_t> running_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace efs::daemon
