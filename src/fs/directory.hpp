// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The names of one directory. Every entry has a cookie, its position. A reader gets the entries
// from the newest to the oldest. New entries never appear in a running walk, so every walk ends. A
// name that exists during the whole walk appears exactly once: a name keeps its cookie when it
// leads to another file. A file that is renamed within the directory keeps its position and also
// appears once. The cookie of a removed name is never used again.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/table_room.hpp"

namespace efs::fs {

/// Not thread-safe: guarded by the namespace lock. A member that throws (std::bad_alloc) has
/// changed nothing.
class Directory {
 public:
  struct Entry {
    std::uint64_t ino = 0;
    std::uint64_t cookie = 0;
  };

  static constexpr std::uint64_t first_cookie = 3;  // 1 and 2 are "." and ".."
  // far above any real number
  static constexpr std::uint64_t most_cookie = std::uint64_t{1} << 62;

  /// After this call one more name needs no larger table.
  void make_room() { efs::make_room(names_); }

  const Entry* find(const std::string& name) const {
    const auto it = names_.find(name);
    return it == names_.end() ? nullptr : &it->second;
  }

  /// `cookie`: the former cookie when a directory is rebuilt; 0: the next one. The name must be
  /// new.
  void insert(const std::string& name, std::uint64_t ino, std::uint64_t cookie = 0) {
    if (cookie == 0) {
      cookie = next_cookie_;
    }
    const auto [it, fresh] = names_.insert_or_assign(name, Entry{ino, cookie});
    try {
      by_cookie_.emplace_hint(by_cookie_.end(), cookie, &*it);  // nearly always at the end
    } catch (...) {
      names_.erase(it);
      throw;
    }
    next_cookie_ = std::max(next_cookie_, cookie + 1);
  }

  /// Makes `name` lead to `ino`. The name may exist.
  void put(const std::string& name, std::uint64_t ino) {
    if (const auto it = names_.find(name); it != names_.end()) {
      it->second.ino = ino;
    } else {
      insert(name, ino);
    }
  }

  /// Moves `name` of `from` here as `new_name` and replaces an entry of that name. The cookie is
  /// the replaced entry's. Without one, it is the moved entry's if the directory is the same,
  /// otherwise the next one.
  void take(Directory& from, const std::string& name, std::string new_name) {
    make_room();  // nothing allocates from here on
    auto place = from.by_cookie_.extract(from.names_.find(name)->second.cookie);
    if (&from != this) {
      place.key() = next_cookie_++;
    }
    if (const auto replaced = names_.find(new_name); replaced != names_.end()) {
      place.key() = replaced->second.cookie;
      erase(new_name);
    }
    auto entry = from.names_.extract(name);
    entry.key() = std::move(new_name);
    entry.mapped().cookie = place.key();
    place.mapped() = &*names_.insert(std::move(entry)).position;
    by_cookie_.insert(std::move(place));
  }

  /// True if a new entry may have this cookie: cookies grow one by one.
  bool takes(std::uint64_t cookie) const {
    return cookie == 0 || (cookie >= next_cookie_ && cookie < most_cookie);
  }

  std::uint64_t next_cookie() const { return next_cookie_; }

  void set_next_cookie(std::uint64_t next) { next_cookie_ = std::max(next_cookie_, next); }

  /// Makes an existing name lead to another inode. Keeps its cookie.
  void replace(const std::string& name, std::uint64_t ino) { names_.at(name).ino = ino; }

  void erase(const std::string& name) {
    const auto it = names_.find(name);
    by_cookie_.erase(it->second.cookie);
    names_.erase(it);
  }

  /// The directory's own name in its parent; "" for the root and for a removed directory.
  const std::string& own_name() const { return own_name_; }

  void set_own_name(std::string name) noexcept { own_name_ = std::move(name); }

  bool empty() const { return names_.empty(); }

  std::size_t size() const { return names_.size(); }

  /// Calls visit(name, entry) for each entry before `cookie`, the newest first, until it returns
  /// false. Readers walk in this order.
  template <typename Visit>
  void for_each_before(std::uint64_t cookie, Visit visit) const {
    for (auto it = by_cookie_.lower_bound(cookie); it != by_cookie_.begin();) {
      if (const auto& [name, entry] = *(--it)->second; !visit(name, entry)) {
        return;
      }
    }
  }

  /// Visits the entries after `cookie`, the oldest first, until `visit` returns false.
  template <typename Visit>
  void for_each_after(std::uint64_t cookie, Visit visit) const {
    for (auto it = by_cookie_.upper_bound(cookie); it != by_cookie_.end(); ++it) {
      if (!visit(it->second->first, it->second->second)) {
        return;
      }
    }
  }

  /// The same for all entries, in no order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [name, entry] : names_) {
      visit(name, entry);
    }
  }

 private:
  std::unordered_map<std::string, Entry> names_;
  // points to elements of names_, which never move
  std::map<std::uint64_t, const std::pair<const std::string, Entry>*> by_cookie_;
  std::uint64_t next_cookie_ = first_cookie;
  std::string own_name_;
};

}  // namespace efs::fs
