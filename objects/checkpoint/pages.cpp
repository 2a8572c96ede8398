// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints by write protection: the pages of large arrays are protected, their first and last
// bytes and small arrays are copied.
#include <unistd.h>

#include <utility>

#include "objects/checkpoint/checkpoints.hpp"

namespace efs::objects {

namespace {

/// Bytes of an array before its first whole page, and up to the end of its last one.
struct Pages {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
};

Pages pages_of(const Item& item) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t bytes = item.array.shape.bytes;
  if (item.small()) {
    return {bytes, bytes};
  }
  const auto address = reinterpret_cast<std::uint64_t>(item.array.data);
  const std::uint64_t first = (page - address % page) % page;
  return {first, bytes - (address + bytes) % page};
}

}  // namespace

Status Checkpoints::prepare_snapshot(Job& job) {
  EO_TRY(fast_.reserve(job.place(0, true), false));
  job.stage_at(fast_.data());
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < job.items().size(); ++i) {
    const Item& item = job.items()[i];
    const auto [first, end] = pages_of(item);
    if (first < end) {
      ranges.push_back({item.array.data + first, end - first, item.offset + first, i, first});
    }
  }
  EO_TRY(copy_edges(job));
  auto snapshot = Snapshot::of(ranges, fast_);
  if (!snapshot) {
    return std::unexpected(std::move(snapshot.error()));
  }
  snapshot_ = std::move(*snapshot);
  used_ = Strategy::snapshot;
  return {};
}

Status Checkpoints::copy_edges(Job& job) {
  for (const Item& item : job.items()) {
    const auto [first, end] = pages_of(item);
    const char* const data = item.array.data;
    EO_TRY(fast_.write(data, first, item.offset));
    EO_TRY(fast_.write(data + end, item.array.shape.bytes - end, item.offset + end));
  }
  return {};
}

Status Checkpoints::write_snapshot(Job& job) {
  const std::unique_ptr<Snapshot> snapshot = std::move(snapshot_);
  if (!snapshot) {
    return {};
  }
  // In the order of the file, for its checksum.
  for (Item& item : job.items()) {
    if (!item.small()) {
      EO_TRY(job.write(item, medium_, item.staged, pages_of(item).first, 0));
    }
  }
  EO_TRY(snapshot->for_each([&](const Range& range, const char* content) {
    return job.write(job.items()[range.item], medium_, content, range.size, range.at);
  }));
  for (Item& item : job.items()) {
    if (!item.small()) {
      const std::uint64_t end = pages_of(item).end;
      EO_TRY(job.write(item, medium_, item.staged + end, item.array.shape.bytes - end, end));
      item.direct = item.array.shape.bytes;  // nothing of it is left for write_staged()
    }
  }
  return {};
}

}  // namespace efs::objects
