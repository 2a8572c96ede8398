// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// XXH3-64 of the .npy bytes of an object, as `xxhsum -H3` prints it for a file.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "objects/object.hpp"
#include "objects/result.hpp"

struct XXH3_state_s;

namespace efs::objects {

Result<std::uint64_t> checksum(const Object& object);

/// The same of bytes that come in parts.
class Checksum {
 public:
  /// ENOMEM.
  static Result<Checksum> begin();
  void add(const char* bytes, std::size_t size);
  std::uint64_t value() const;

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };

  std::unique_ptr<XXH3_state_s, FreeState> state_;
};

}  // namespace efs::objects
