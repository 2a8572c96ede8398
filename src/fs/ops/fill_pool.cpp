// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <iterator>

#include "base/log.hpp"
#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"

namespace efs::fs {
namespace {

// Leaves the times of the container to the record of the file that will take it. Returns the
// attributes that the container then has, or nullopt if it cannot have such times.
std::optional<struct stat> leave_times_to_record(Container& container, FileTime now) {
  const FileTime mark = timespec{.tv_sec = now.seconds - 1, .tv_nsec = record_has_time};
  if (!container.set_times(mark, mark)) {
    return std::nullopt;
  }
  const auto left = container.attributes();
  const bool has_them = left && FileTime(left->st_mtim) == mark && FileTime(left->st_atim) == mark;
  return has_them ? std::optional(*left) : std::nullopt;
}

}  // namespace

void Filesystem::fill_pool(
    const std::function<void(std::span<const ContainerPool::Ready>)>& prepare) {
  const std::size_t wanted = pool_.begin_fill();
  if (wanted == 0) {
    return;
  }
  std::vector<ContainerPool::Ready> made;
  try {
    slow_work_begins();  // some dozens of files
    made.reserve(wanted);
    Status status = backend_.admit_writer();
    auto number = [&]() -> Result<std::uint64_t> {
      EFS_TRY(status);
      WriteLock lock(mutex_);
      return reserve_numbers(wanted);
    }();
    if (!number) {
      status = std::unexpected(number.error());
    }
    while (status && made.size() < wanted) {
      auto container = backend_.create(*number);
      if (container) {
        auto unused = leave_times_to_record(**container, clock_.now());
        made.push_back({.ino = (*number)++,
                        .container = std::move(*container),
                        .ahead = false,
                        .unused = unused});
      } else {
        status = std::unexpected(container.error());
      }
    }
    if (!status) {
      log::debug("event=pool_not_filled made={} of={} reason=\"{}\"", made.size(), wanted,
                 describe(status.error()));
    }
    // only containers that permit passthrough
    std::vector<ContainerPool::Ready> registered;
    std::ranges::copy_if(made, std::back_inserter(registered), [this](const auto& one) {
      return holder_of(one.ino).offers_descriptor();
    });
    if (!registered.empty()) {
      prepare(registered);
    }
    // the reply to the create was already sent, so no caller can receive the error
  } catch (const std::exception& problem) {
    log::warn("event=pool_not_filled reason=\"{}\"", problem.what());
  }
  pool_.end_fill(std::move(made));
}

// Reserves by a record, so that no number is used twice, even after a crash.
Result<std::uint64_t> Filesystem::reserve_numbers(std::size_t count) {
  const std::uint64_t first = names_.next_ino();
  EFS_TRY(commit(0, UsedInodes{first + count}));
  return first;
}

Result<InodeNumbers> Filesystem::new_numbers(std::uint64_t most) {
  constexpr std::size_t ahead = 256;
  if (!options_.rules.reserve_numbers) {
    return InodeNumbers{names_.next_ino(), names_.next_ino() + 1};
  }
  if (numbers_.empty()) {
    const auto first = reserve_numbers(ahead);
    if (!first) {
      return std::unexpected(first.error());
    }
    numbers_ = {*first, *first + ahead};
  }
  InodeNumbers taken{numbers_.next, std::min(numbers_.end, numbers_.next + most)};
  numbers_.next = taken.end;
  return taken;
}

}  // namespace efs::fs
