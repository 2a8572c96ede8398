// SPDX-License-Identifier: BSD-3-Clause
#include "base/door_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

using namespace efs;

TEST_CASE("door: a mapping sees each new epoch, and nobody else can write", "[base][door]") {
  auto door = DoorMemory::make();
  REQUIRE(door);
  void* memory = ::mmap(nullptr, sizeof(DoorTable), PROT_READ, MAP_SHARED, door->descriptor(), 0);
  REQUIRE(memory != MAP_FAILED);
  const auto& table = *static_cast<const DoorTable*>(memory);
  CHECK(table.magic == door_magic);
  CHECK(table.slots == door_slots);
  door->changed(7);
  CHECK(table.epochs[door_slot(7)] == 1);
  CHECK(table.epochs[door_slot(8)] == 0);
  door->all_changed();
  CHECK(table.epochs[door_slot(7)] == 2);
  CHECK(table.epochs[door_slot(8)] == 1);
  ::munmap(memory, sizeof(DoorTable));
  const char byte = 1;
  CHECK(::pwrite(door->descriptor(), &byte, 1, 0) < 0);
  CHECK(::ftruncate(door->descriptor(), 0) != 0);
  CHECK(::mmap(nullptr, sizeof(DoorTable), PROT_READ | PROT_WRITE, MAP_SHARED, door->descriptor(),
               0) == MAP_FAILED);
}
