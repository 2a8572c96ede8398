// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Containers as files of a directory: on a DAX file system, on tmpfs (`dram`), or on any other file
// system with mmap.

#include <memory>

#include "backends/backend.hpp"
#include "backends/container_cache.hpp"
#include "backends/container_marks.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// A dangling symbolic link in the directory. Its target is the id of the store that owns the
/// containers. The creator of the store makes it before the first container.
inline constexpr const char* owner_link = "instance";

struct FsdaxOptions {
  UniqueFd directory;                     // an empty or former store, writable by this process
  std::string kind = "fsdax";             // the name in description()
  std::optional<std::uint64_t> capacity;  // bytes; absent: the capacity of the file system
  // the file system itself enforces `capacity` (a tmpfs with size=)
  bool kernel_holds_capacity = false;
  // if false, the capacity is advisory; ignored if the kernel enforces the capacity
  bool strict = false;
  std::size_t open_containers = containers_to_keep_open();
  // creates and changes nothing: for an inspection of a dead instance's store
  bool read_only = false;
};

/// Reads the owner of the containers (owner_link, label_name) here and trusts it from then on.
/// Never returns EEXIST. Returns ENOTDIR, EACCES and ENOSPC from the file system.
Result<std::unique_ptr<Backend>> make_fsdax(FsdaxOptions options);

}  // namespace efs
