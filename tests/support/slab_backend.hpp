// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A backend whose containers are no files, as on device DAX: all are in one regular file that is
// mapped whole, with an allocator and a table of its own. No container has a descriptor.
//
// The death of the process loses nothing: every change is a store to the mapping, and a change of
// the table is one aligned word, stored last. The next process finds the table in the file. Power
// loss is not simulated (SimWorld does that).

#include <cstdint>
#include <memory>
#include <string>

#include "backends/backend.hpp"

namespace efs::test {

struct SlabOptions {
  std::string path;                // of the file; it is made if it is missing
  std::uint64_t size = 256 << 20;  // bytes that containers can take; of a new file
  std::string owner;               // of the containers: the label
};

/// One process at a time uses the file.
Result<std::unique_ptr<Backend>> make_slab(const SlabOptions& options);

}  // namespace efs::test
