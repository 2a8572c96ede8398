// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A store changes a name on the PFS: each event records one step of that. All values are absolute,
// so that a series of events applied twice gives the same ledger.

#include <cstdint>
#include <optional>
#include <variant>

#include "base/clock.hpp"
#include "ledger/version.hpp"

namespace efs::ledger {

/// The XXH3-64 of results-dir and a name below it. Two names with the same key count as another
/// user's, which causes a conflict and no loss.
using NameKey = std::uint64_t;

/// A name on the PFS, and the path in the buffer of the result that has or will get it. The two
/// differ with `as` of output rules.
struct Name {
  NameKey name = 0, own = 0;
  bool operator==(const Name&) const = default;

  template <typename F>
  void fields(F&& f) {
    f(name, own);
  }
};

/// The name is about to change. An announced version has any ctime.
struct Announced {
  Name at;
  std::optional<File> version{};  // nullopt: the name is about to be removed
  std::optional<File> before{};   // what has the name; nullopt: nothing

  template <typename F>
  void fields(F&& f) {
    f(at, version, before);
  }
};

/// The file got the name.
struct Exported {
  Name at;
  File file;

  template <typename F>
  void fields(F&& f) {
    f(at, file);
  }
};

/// The store has removed the name.
struct Removed {
  Name at;

  template <typename F>
  void fields(F&& f) {
    f(at);
  }
};

/// The file of that name was imported: its inode has the record.
struct Imported {
  NameKey name = 0;

  template <typename F>
  void fields(F&& f) {
    f(name);
  }
};

/// The state of a directory.
struct DirectoryGiven {
  Name at;
  DirectoryState state;

  template <typename F>
  void fields(F&& f) {
    f(at, state);
  }
};

/// Events since then may be missing. By the PFS's clock; 0: of any time.
struct Missed {
  Nanoseconds since = 0;

  template <typename F>
  void fields(F&& f) {
    f(since);
  }
};

using Event = std::variant<Announced, Exported, Removed, Imported, DirectoryGiven, Missed>;

}  // namespace efs::ledger
