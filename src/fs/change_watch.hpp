// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Tells another part of the daemon which files programs have changed, so that it need not look for
// them.

#include <cstdint>
#include <string_view>

#include "fs/record.hpp"

namespace efs::fs {

class Namespace;

/// The members are called under the namespace lock, and by threads that serve programs: they
/// neither wait nor throw. A call may come without a change, or twice for one.
class ChangeWatch {
 public:
  virtual ~ChangeWatch() = default;
  /// The last open for writing of this file was released. A mapping may still exist.
  virtual void closed(std::uint64_t ino) noexcept = 0;
  /// The attributes of this inode have changed, or a program has opened it for writing while it was
  /// clean.
  virtual void changed(std::uint64_t ino) noexcept = 0;
  /// `name` in the directory `parent` now leads to this inode, which is no directory.
  virtual void named(std::uint64_t ino, std::uint64_t parent, std::string_view name) noexcept = 0;
  /// A directory has this name now, and had another one before.
  virtual void moved(std::uint64_t parent, std::string_view name) noexcept = 0;
};

/// Calls named() and moved() for the names that a record gave. Call it after the record was
/// applied.
void tell_of_names(ChangeWatch& watch, const Namespace& names, const Record& record);

}  // namespace efs::fs
