#pragma once
// Several backends as one. A container lies in one of them, its place, from its creation to its
// end.
//
// Which one is kept in memory, a byte per container, and found by looking when the device is made
// (R4 of src/store/README.md): nothing about it is stored. A container is made in one place after
// another until one takes it, and never in two at once, so that a death between any two steps
// leaves one or none.

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
  unsigned new_containers = 0;  // the place of those that no caller places
  // what a place has no room for goes to the next one that has (the first follows the last)
  bool spill = false;
};

/// Bytes that must be free in a place for a container whose size nobody knows to go there, if it
/// may go elsewhere.
std::uint64_t room_for_unknown(const Space& space);

/// * Capacity and use are the sums; what is available is what a new container can use: with `spill`
/// that of all places,
///   else that of `new_containers`. One container never uses more than one place.
/// * The durability class is that of place 0, where the journal lies: the file system's ordering
/// rules follow it. What is in
///   another place survives no more than that place does (weakest_durability()).
/// * offers_descriptor(): whether any place does; ask at(place_of(id)) for a container.
/// EUCLEAN where a container is in two places: nothing tells which counts. EINVAL for members that
/// cannot be.
Result<std::unique_ptr<Backend>> make_virtual_device(VirtualDeviceOptions options);

/// The least that all of what a store holds survives.
Durability weakest_durability(Backend& store);

/// "memory", "page cache", "persistent memory".
const char* name_of(Durability durability);

}  // namespace efs
