// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The memory behind the door of a mount (base/intercept_door.hpp). The supervisor makes it before
// it forks the first worker; every worker inherits it, so clients' mappings stay valid when a
// worker is replaced.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/intercept_door.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// A DoorTable in a sealed memory file: nobody can change its size, and nobody can write to it
/// except through the mapping of this object and of the processes that inherit it. Thread-safe.
class DoorMemory {
 public:
  /// Fails with ENOMEM, EMFILE, ENOSYS and the like if the kernel cannot make the file.
  static Result<DoorMemory> make();

  /// What a client knows of this inode may be untrue: adds one to its epoch. Call it after the
  /// change and before the reply.
  void changed(std::uint64_t inode) { table_->epochs[door_slot(inode)].fetch_add(1); }

  /// The same for every inode.
  void all_changed();

  const DoorTable& table() const { return *table_; }

  /// For the kernel's passthrough and for reading. Owned by this object.
  int descriptor() const { return file_.get(); }

 private:
  struct Unmap {
    void operator()(DoorTable* table) const;
  };

  DoorMemory() = default;

  UniqueFd file_;
  std::unique_ptr<DoorTable, Unmap> table_;
};

}  // namespace efs
