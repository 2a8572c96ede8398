#include "base/checksum.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>

namespace efs {

std::uint64_t checksum(std::span<const std::byte> data) { return XXH3_64bits(data.data(), data.size()); }

struct Checksum::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(std::span<const std::byte> data) { XXH3_64bits_update(state_->xxh, data.data(), data.size()); }

void Checksum::update_zeros(std::uint64_t length) {
  static constexpr std::array<std::byte, 65536> zeros{};
  while (length > 0) {
    const auto part = std::min<std::uint64_t>(length, zeros.size());
    update(std::span(zeros).first(part));
    length -= part;
  }
}

std::uint64_t Checksum::digest() const { return XXH3_64bits_digest(state_->xxh); }

std::string name_digest(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return to_hex(hash.high64) + to_hex(hash.low64);
}

std::string to_hex(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

}  // namespace efs
