#pragma once
// Containers as files of a directory: on a DAX file system, on tmpfs (`dram`), or on any other that
// maps.

#include <memory>

#include "backends/backend.hpp"
#include "backends/container_cache.hpp"
#include "backends/container_marks.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// A symbolic link to nowhere in the directory: its target is the id of the store whose containers
/// these are. Made by who makes the store, before the first container.
inline constexpr const char* owner_link = "instance";

struct FsdaxOptions {
  UniqueFd directory;                     // an empty or former store, writable by this process
  std::string kind = "fsdax";             // as description() names it
  std::optional<std::uint64_t> capacity;  // bytes; absent: what the file system has
  // the file system itself ends at `capacity` (a tmpfs with size=)
  bool kernel_holds_capacity = false;
  // else advisory; ignored where the kernel holds the capacity
  bool strict = false;
  std::size_t open_containers = containers_to_keep_open();
  // nothing is made or changed: for a look at the store of a dead instance
  bool read_only = false;
};

/// Whose the containers are (owner_link, label_name) is read here, and believed for good. EEXIST
/// never; ENOTDIR, EACCES, ENOSPC as the file system says.
Result<std::unique_ptr<Backend>> make_fsdax(FsdaxOptions options);

}  // namespace efs
