// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Several backends as one. Each container is in one member backend, its place, until the content
// moves: a copy in another place, under a number of its own, then changes its number with it
// (exchange()). The namespace records that, so each number in a member is used once.
//
// The index of places is kept in memory, one byte a container, and is rebuilt by listing the
// members at set-up (R4 of src/store/README.md); it is never stored. A creation tries one place
// after another until one accepts, and never two at once. So a crash between any two steps leaves
// one container or none.

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.hpp"

namespace efs {

struct VirtualDeviceOptions {
  static constexpr std::size_t most_places = 8;

  struct Member {
    std::string id;  // for people
    std::unique_ptr<Backend> backend;
  };

  std::vector<Member> members;  // 1 to most_places, in the order of their numbers
  unsigned new_containers = 0;  // the place of containers without a wanted place
  // if a place lacks space, use the next place with space (the first follows the last)
  bool spill = false;
};

/// Returns the bytes that must be free in a place for a container of unknown size, if another place
/// could take it.
std::uint64_t room_for_unknown(const Space& space);

/// * Capacity and use are sums. The available space is that of a new container: with `spill` of all
///   places, else of `new_containers`. One container never uses more than one place.
/// * The durability class is that of place 0, which has the journal: the file system's ordering
///   rules follow it. Data in another place survives only the failures that that place survives
///   (weakest_durability()).
/// * offers_descriptor() is true if any place does. For a container, ask at(place_of(id)).
/// EUCLEAN if a container is in two places: efs cannot tell which counts. EINVAL for invalid
/// members.
Result<std::unique_ptr<Backend>> make_virtual_device(VirtualDeviceOptions options);

/// Returns the durability that all data of a store has at least.
Durability weakest_durability(Backend& store);

/// True if no place keeps anything beyond a restart of the machine: no sync has work to do.
bool is_volatile(Backend& store);

}  // namespace efs
