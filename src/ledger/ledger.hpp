// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The files that a store knows under the names of results-dir, and by whose doing. It is needed if
// other users' files may be there too. An inode records only one copy of itself and loses that
// record when it is linked, renamed, replaced or removed, so it cannot tell the owner of a file on
// the PFS. Pure: only apply() changes it, and nothing here reads the PFS or the store.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "ledger/event.hpp"

namespace efs::ledger {

/// The origin of the file that has a name. unknown: no event concerns the name. ours,
/// of_another_path: this store has exported it for this path or for another one. theirs: not
/// exported by this store. unsure: it appeared while events may have been missed.
enum class WhoseCopy : std::uint8_t { unknown, ours, of_another_path, theirs, unsure };

/// Not thread-safe.
class Ledger {
 public:
  /// If it throws (std::bad_alloc), the event can be applied again.
  void apply(const Event& event);
  /// After this call apply() needs no larger table. If it throws, nothing has changed.
  void make_room();

  /// The origin of `now`, the file that has the name.
  WhoseCopy whose(const Name& at, const File& now, Ctime ctime) const;

  /// True if events about a file concern the name.
  bool knows(NameKey name) const;

  /// True if this store has removed the file of that name, or was about to.
  bool has_removed(NameKey name) const;

  /// True if whose() may return `unsure`.
  bool is_incomplete() const { return unsure_since_.has_value(); }

  /// Files since then may be of unknown origin (Missed); nullopt: none.
  std::optional<Nanoseconds> unsure_since() const { return unsure_since_; }

  /// The newest ctime of the exported files, by the PFS's clock; nullopt: no file has one.
  std::optional<Nanoseconds> newest_export() const;

  /// The event that an announced version has got its name, if `now` is that version. It must be
  /// recorded before the next announcement, which may come to nothing.
  std::optional<Exported> arrived(NameKey name, const File& now) const;

  /// The state of a directory. Empty for another path.
  DirectoryState directory(const Name& at) const;

  /// All versions that got their names, the oldest first.
  std::vector<FileVersion> copies() const;

  /// Emits the events that rebuild this ledger from an empty one.
  void snapshot(const std::function<void(const Event&)>& emit) const;

  /// The number of names.
  std::size_t size() const { return entries_.size(); }

 private:
  // what the store did to the name last
  struct Deed {
    NameKey own = 0;
    std::uint64_t number = 0;  // a sequence number
    std::optional<File> file;  // nullopt: removed
  };

  // The rare parts are apart: a stage-out has very many names.
  struct Entry {
    std::optional<Deed> last;
    std::unique_ptr<Announced> announced;
    std::unique_ptr<DirectoryGiven> directory;
  };

  void on(const Announced& event);
  void on(const Exported& event);
  void on(const Removed& event);
  void on(const Imported& event);
  void on(const DirectoryGiven& event);
  void on(const Missed& event);
  void set_last(const Name& at, const std::optional<File>& file);
  const Entry* find(NameKey name) const;
  std::vector<std::pair<NameKey, const Deed*>> in_order() const;

  std::unordered_map<NameKey, Entry> entries_;
  std::uint64_t deeds_ = 0;
  std::optional<Nanoseconds> unsure_since_;  // nullopt: no event is missing
};

}  // namespace efs::ledger
