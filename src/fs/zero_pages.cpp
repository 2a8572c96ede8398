// SPDX-License-Identifier: BSD-3-Clause
#include "fs/zero_pages.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace efs::fs {
namespace {

bool is_zero(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes.front() == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

bool reads_zero(Container& container, std::span<std::byte> buffer, std::uint64_t offset) {
  const auto n = container.read(buffer, offset);
  return n && *n == buffer.size() && is_zero(buffer);
}

}  // namespace

std::optional<std::uint64_t> ZeroPages::next_extent(Container& container, std::uint64_t offset,
                                                    std::uint64_t size) {
  const auto data = container.seek(offset, SEEK_DATA);
  const std::uint64_t at = data ? *data / extent * extent : size;
  return at + extent <= size ? std::optional(at) : std::nullopt;
}

/// The samples include pages of every remainder modulo 8, so that data stored at regular distances
/// do not hide the zeros.
bool ZeroPages::has_sample_in(Container& container, std::uint64_t at) {
  constexpr std::uint64_t samples = 8, step = 197, first = 61, pages = extent / page;
  std::array<std::byte, page> buffer;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const std::uint64_t offset = at + (i * step + first) % pages * page;
    // A few bytes decide most pages.
    if (reads_zero(container, std::span(buffer).first(64), offset + page / 2) &&
        reads_zero(container, buffer, offset) && container.seek(offset, SEEK_DATA) == offset) {
      return true;
    }
  }
  return false;
}

bool ZeroPages::has_sample(Container& container, std::uint64_t size) {
  for (auto at = next_extent(container, 0, size); at;
       at = next_extent(container, *at + extent, size)) {
    if (has_sample_in(container, *at)) {
      return true;
    }
  }
  return false;
}

std::span<const Run> ZeroPages::find(std::uint64_t at) {
  runs_.clear();
  for (std::uint64_t begin = at; begin < at + extent;) {
    const auto data = container_.seek(begin, SEEK_DATA);
    if (!data || *data >= at + extent) {
      break;
    }
    const auto hole = container_.seek(*data, SEEK_HOLE);
    begin = hole ? std::min(*hole, at + extent) : at + extent;
    look({*data, begin - *data});
  }
  std::uint64_t sum = 0;
  for (const Run& run : runs_) {
    sum += run.length;
  }
  return sum < worthwhile ? std::span<const Run>() : runs_;
}

void ZeroPages::look(Run data) {
  const std::uint64_t end = data.offset + data.length;
  for (std::uint64_t at = data.offset; at < end;) {
    const auto want = std::min<std::uint64_t>(piece, end - at);
    const auto n = container_.read(std::span(buffer_).first(want), at);
    if (!n || *n < page) {
      return;
    }
    for (std::uint64_t i = 0; i + page <= *n; i += page) {
      if (is_zero(std::span(buffer_).subspan(i, page))) {
        add(at + i);
      }
    }
    at += *n / page * page;
  }
}

void ZeroPages::add(std::uint64_t offset) {
  if (!runs_.empty() && runs_.back().offset + runs_.back().length == offset) {
    runs_.back().length += page;
  } else {
    runs_.push_back({offset, page});
  }
}

}  // namespace efs::fs
