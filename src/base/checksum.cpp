// SPDX-License-Identifier: BSD-3-Clause
#include "base/checksum.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <new>

namespace efs {

std::uint64_t checksum(std::span<const std::byte> data) {
  return XXH3_64bits(data.data(), data.size());
}

struct Checksum::State {
  XXH3_state_t* xxh = XXH3_createState();

  State() {
    if (xxh == nullptr) {
      throw std::bad_alloc();
    }
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

void Checksum::update(std::span<const std::byte> data) {
  XXH3_64bits_update(state_->xxh, data.data(), data.size());
}

void Checksum::update_zeros(std::uint64_t length) {
  static constexpr std::array<std::byte, 65536> zeros{};
  while (length > 0) {
    const auto part = std::min<std::uint64_t>(length, zeros.size());
    update(std::span(zeros).first(part));
    length -= part;
  }
}

std::uint64_t Checksum::digest() const {
  return XXH3_64bits_digest(state_->xxh);
}

void Checksum::reset() {
  XXH3_64bits_reset(state_->xxh);
}

SumKind sum_kind_for(std::uint64_t size, std::uint64_t allocated) {
  const bool saves = allocated < size && size >= FileChecksum::block_size;
  return saves ? SumKind::xxh3_sparse : SumKind::xxh3;
}

namespace {

constexpr std::string_view plain_begins = "xxh3:", sparse_begins = "xxh3-sparse:";

bool is_zero(std::span<const std::byte> data) {
  if (data.empty()) {
    return true;
  }
  return data.front() == std::byte{} &&
         std::memcmp(data.data(), data.data() + 1, data.size() - 1) == 0;
}

}  // namespace

std::string to_text(const FileSum& sum) {
  return std::string(sum.kind == SumKind::xxh3 ? plain_begins : sparse_begins) + to_hex(sum.value);
}

std::optional<FileSum> file_sum_of(std::string_view text) {
  const SumKind kind = text.starts_with(sparse_begins) ? SumKind::xxh3_sparse : SumKind::xxh3;
  const std::string_view begins = kind == SumKind::xxh3 ? plain_begins : sparse_begins;
  if (!text.starts_with(begins)) {
    return std::nullopt;
  }
  text.remove_prefix(begins.size());
  std::uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (problem != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return FileSum(value, kind);
}

void FileChecksum::update(std::span<const std::byte> data) {
  if (kind_ == SumKind::xxh3) {
    sum_.update(data);
    hashed_ += data.size();
    at_ += data.size();
    return;
  }
  while (!data.empty()) {
    const std::uint64_t room = block_size - at_ % block_size;
    const auto piece = data.first(std::min<std::uint64_t>(data.size(), room));
    if (!has_data_ && is_zero(piece)) {
      zeros_ += piece.size();
    } else {
      block_->update_zeros(zeros_);
      block_->update(piece);
      hashed_ += zeros_ + piece.size();
      zeros_ = 0;
      has_data_ = true;
    }
    at_ += piece.size();
    data = data.subspan(piece.size());
    if (at_ % block_size == 0) {
      end_block();
    }
  }
}

void FileChecksum::skip(std::uint64_t length) {
  if (kind_ == SumKind::xxh3) {
    sum_.update_zeros(length);
    hashed_ += length;
    at_ += length;
    return;
  }
  const std::uint64_t in_block = at_ % block_size;
  const std::uint64_t begun = in_block == 0 ? 0 : std::min(length, block_size - in_block);
  zeros_ += begun;
  at_ += begun;
  if (begun > 0 && at_ % block_size == 0) {
    end_block();
  }
  const std::uint64_t rest = (length - begun) % block_size;
  at_ += length - begun;  // skip whole blocks of zeros
  zeros_ += rest;
}

void FileChecksum::end_block() {
  if (has_data_) {
    const std::uint64_t offset = (at_ - 1) / block_size * block_size;
    block_->update_zeros(zeros_);
    hashed_ += zeros_;
    add(offset, at_ - offset, block_->digest());
    block_->reset();
  }
  has_data_ = false;
  zeros_ = 0;
}

void FileChecksum::add(std::uint64_t offset, std::uint64_t length, std::uint64_t digest) {
  std::array<std::byte, 24> bytes{};
  std::size_t at = 0;
  for (const auto number : {offset, length, digest}) {
    for (unsigned shift = 0; shift < 64; shift += 8) {
      bytes.at(at++) = static_cast<std::byte>(number >> shift);
    }
  }
  sum_.update(bytes);
}

FileSum FileChecksum::finish() {
  if (kind_ == SumKind::xxh3) {
    return {sum_.digest(), kind_};
  }
  if (at_ % block_size != 0) {
    end_block();
  }
  add(at_, 0, 0);
  return {sum_.digest(), kind_};
}

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
