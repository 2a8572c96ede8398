// SPDX-License-Identifier: BSD-3-Clause
#include "objects/checksum.hpp"

#include <xxhash.h>

#include <algorithm>
#include <vector>

namespace efs::objects {

namespace {

constexpr std::size_t block = 1U << 20U;

}  // namespace

Result<std::uint64_t> checksum(const Object& object) {
  if (object.mapping) {
    return ::XXH3_64bits(object.bytes(), object.size);
  }
  auto sum = Checksum::begin();
  if (!sum) {
    return std::unexpected(std::move(sum.error()));
  }
  std::vector<char> buffer(std::min<std::uint64_t>(object.size, block));
  for (std::uint64_t done = 0; done < object.size;) {
    const std::uint64_t length = std::min<std::uint64_t>(object.size - done, block);
    EO_TRY(read_all(object.fd.get(), buffer.data(), length, done));
    sum->add(buffer.data(), length);
    done += length;
  }
  return sum->value();
}

Result<Checksum> Checksum::begin() {
  Checksum sum;
  sum.state_.reset(::XXH3_createState());
  if (!sum.state_) {
    return fail(ENOMEM);
  }
  ::XXH3_64bits_reset(sum.state_.get());
  return sum;
}

void Checksum::add(const char* bytes, std::size_t size) {
  ::XXH3_64bits_update(state_.get(), bytes, size);
}

std::uint64_t Checksum::value() const {
  return ::XXH3_64bits_digest(state_.get());
}

void Checksum::FreeState::operator()(XXH3_state_s* state) const {
  ::XXH3_freeState(state);
}

}  // namespace efs::objects
