// SPDX-License-Identifier: BSD-3-Clause
#include "objects/checksum.hpp"

#include <xxhash.h>

#include <algorithm>

namespace efs::objects {

namespace {

constexpr std::size_t block = 1U << 20U;

struct FreeState {
  void operator()(XXH3_state_t* state) const { ::XXH3_freeState(state); }
};

}  // namespace

Result<std::uint64_t> checksum(const Object& object) {
  if (object.mapping) {
    return ::XXH3_64bits(object.bytes(), object.size);
  }
  const std::unique_ptr<XXH3_state_t, FreeState> state(::XXH3_createState());
  if (!state) {
    return fail(ENOMEM);
  }
  ::XXH3_64bits_reset(state.get());
  std::vector<char> buffer(std::min<std::uint64_t>(object.size, block));
  for (std::uint64_t done = 0; done < object.size;) {
    const std::uint64_t length = std::min<std::uint64_t>(object.size - done, block);
    EO_TRY(read_all(object.fd.get(), buffer.data(), length, done));
    ::XXH3_64bits_update(state.get(), buffer.data(), length);
    done += length;
  }
  return ::XXH3_64bits_digest(state.get());
}

}  // namespace efs::objects
