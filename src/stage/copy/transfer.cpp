// SPDX-License-Identifier: BSD-3-Clause
#include "stage/copy/transfer.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <thread>

#include "base/mutex.hpp"
#include "base/thread.hpp"
#include "stage/copy/data_ranges.hpp"

namespace efs::stage {
namespace {

constexpr std::uint64_t writeback_step = 32U << 20U;
// The kernel reads ahead for one sequential reader. Several threads in one file look like random
// access to it.
constexpr std::uint64_t read_ahead = 16U << 20U;

/// Reads `data.size()` bytes at `offset`, or fails.
Status read_fully(const ContentSource& source, std::span<std::byte> data, std::uint64_t offset) {
  std::size_t got = 0;
  while (got < data.size()) {
    auto part = source.read(data.subspan(got), offset + got);
    if (!part) {
      return with_context(part.error(), "reading");
    }
    if (*part == 0) {
      return fail(ESTALE, "changed while it was being read: it ends at byte " +
                              std::to_string(offset + got));
    }
    got += *part;
  }
  return {};
}

/// The data of one step of a copy, and the hole before them.
struct Step {
  std::uint64_t hole_begin = 0;
  std::uint64_t begin = 0;  // == end: only the hole
  std::uint64_t end = 0;
  std::uint64_t turn = 0;
};

/// Cuts the file into steps, in order. Not thread-safe.
class Steps {
 public:
  Steps(const CopyJob& job, std::uint64_t chunk)
      : job_(job), chunk_(chunk), ranges_(job.source, job.size, job.allocated < job.size) {}

  /// The next step; nullopt at the file's end.
  Result<std::optional<Step>> next() {
    if (at_ == job_.size) {
      return std::nullopt;
    }
    Step step{.hole_begin = at_, .begin = at_, .end = at_, .turn = turn_++};
    if (at_ == range_end_) {
      auto range = ranges_.next(at_);
      if (!range) {
        return std::unexpected(range.error());
      }
      step.begin = range->begin;
      range_end_ = range->end;
    }
    // Ends of steps are multiples of the chunk, so that no page of any size is written in two
    // parts.
    step.end = std::min(range_end_, (step.begin / chunk_ + 1) * chunk_);
    at_ = step.end;
    return step;
  }

 private:
  const CopyJob& job_;
  const std::uint64_t chunk_;
  DataRanges ranges_;
  std::uint64_t at_ = 0;
  std::uint64_t range_end_ = 0;
  std::uint64_t turn_ = 0;
};

/// The copy of one file by one or several threads. Each thread reads, hashes and writes whole
/// steps, so that a step stays in one CPU's cache. Reads and writes run in parallel; hashing runs
/// in the order of the file.
class Copy {
 public:
  Copy(const CopyJob& job, std::uint64_t chunk, bool shared, FileChecksum* sum, Progress& progress)
      : job_(job), shared_(shared), sum_(sum), progress_(progress), steps_(job, chunk) {}

  /// Does steps until none is left or one fails. Each thread passes its own buffer.
  void take_part(std::span<std::byte> buffer) noexcept {
    try {
      while (const auto step = take()) {
        if (Status done = carry_out(*step, buffer); !done) {
          return broken(std::move(done.error()));
        }
      }
    } catch (const std::exception&) {  // out of memory for the text of an error
      broken({.code = ENOMEM, .what = {}});
    }
  }

  /// Call it after all threads have ended. Sets the file's size if the file ends in a hole.
  Status finish() {
    const MutexLock lock(mutex_);
    EFS_TRY(std::move(status_));
    // The announced total, even if the copied blocks add up to another number.
    progress_.bytes_done += data_of(job_.size, job_.allocated) - moved_;
    if (data_end_ == job_.size) {
      return {};
    }
    if (auto done = job_.destination.truncate(job_.size); !done) {
      return with_context(done.error(), "extending");
    }
    return {};
  }

 private:
  std::optional<Step> take() {
    const MutexLock lock(mutex_);
    if (!status_) {
      return std::nullopt;
    }
    auto step = progress_.cancel ? Result<std::optional<Step>>(fail(ECANCELED, "cancelled"))
                                 : steps_.next();
    if (!step) {
      status_ = std::unexpected(std::move(step.error()));
      changed_.notify_all();
      return std::nullopt;
    }
    if (*step && (*step)->end > (*step)->begin) {
      data_end_ = (*step)->end;
    }
    return *step;
  }

  void broken(Error error) {
    const MutexLock lock(mutex_);
    if (status_) {
      status_ = std::unexpected(std::move(error));
    }
    changed_.notify_all();
  }

  Status carry_out(const Step& step, std::span<std::byte> buffer) {
    const auto data = buffer.first(step.end - step.begin);
    if (shared_) {
      announce(step);
    }
    EFS_TRY(read_fully(job_.source, data, step.begin));
    EFS_TRY(hash(step, data));
    EFS_TRY(put(data, step.begin));
    if (job_.early_writeback) {
      start_writeback(step);
    }
    return {};
  }

  /// Announces the range `read_ahead` after this step; with the first step, everything up to there.
  void announce(const Step& step) {
    const std::uint64_t begin =
        step.turn == 0 ? step.end : std::min(job_.size, step.begin + read_ahead);
    const std::uint64_t end = std::min(job_.size, step.end + read_ahead);
    if (begin < end) {
      job_.source.will_need(begin, end - begin);
    }
  }

  Status hash(const Step& step, std::span<const std::byte> data) {
    if (sum_ == nullptr) {
      return {};
    }
    {
      const MutexLock lock(mutex_);
      while (turn_ != step.turn && status_) {
        changed_.wait(mutex_);
      }
      if (!status_) {
        return fail(ECANCELED, "cancelled");  // the error of another thread counts
      }
    }
    sum_->skip(step.begin - step.hole_begin);
    sum_->update(data);
    const MutexLock lock(mutex_);
    ++turn_;
    changed_.notify_all();
    return {};
  }

  Status put(std::span<const std::byte> data, std::uint64_t offset) {
    for (std::size_t done = 0; done < data.size();) {
      if (progress_.cancel) {
        return fail(ECANCELED, "cancelled");
      }
      auto part = job_.destination.write(data.subspan(done), offset + done);
      if (!part) {
        return with_context(part.error(), "writing");
      }
      if (*part == 0) {
        return fail(EIO, "writing: the file system took nothing");
      }
      done += *part;
      progress_.bytes_done += *part;
      moved_ += *part;
    }
    return {};
  }

  void start_writeback(const Step& step) {
    DataRange range;
    {
      const MutexLock lock(mutex_);
      written_ += step.end - step.begin;
      if (written_ - flushed_ < writeback_step) {
        return;
      }
      // About the range written since the last call: a hint may be inexact if several threads
      // write.
      range = {step.end - std::min(step.end, written_ - flushed_), step.end};
      flushed_ = written_;
    }
    job_.destination.start_writeback(range.begin, range.end - range.begin);
  }

  const CopyJob& job_;
  const bool shared_;        // by several threads
  FileChecksum* const sum_;  // used by the thread whose step is `turn_`
  Progress& progress_;
  std::atomic<std::uint64_t> moved_{0};
  Mutex mutex_;  // rank 90 (leaf): nothing is taken under it, but a seek for holes is made
  Condition changed_;
  Steps steps_ EFS_GUARDED_BY(mutex_);
  Status status_ EFS_GUARDED_BY(mutex_);               // the first error
  std::uint64_t turn_ EFS_GUARDED_BY(mutex_) = 0;      // of the step that is hashed next
  std::uint64_t data_end_ EFS_GUARDED_BY(mutex_) = 0;  // of the data handed out so far
  std::uint64_t written_ EFS_GUARDED_BY(mutex_) = 0;
  std::uint64_t flushed_ EFS_GUARDED_BY(mutex_) = 0;
};

// At most one a CPU: threads that wait for a file's write lock spin, and take CPU time from the
// holder.
std::size_t most_threads() {
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 2, Scratch::most);
}

// False if no memory for a buffer or no thread is available: the running threads do the work.
bool add_helper(std::jthread& helper, Copy& copy, Scratch& scratch, std::size_t index) {
  try {
    auto thread = start_thread([&copy, buffer = scratch.buffer(index)] { copy.take_part(buffer); });
    if (thread) {
      helper = std::move(*thread);
    }
    return thread.has_value();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

Result<DataRange> DataRanges::next(std::uint64_t from) {
  if (!seeking_) {
    return DataRange{from, size_};
  }
  auto begin = source_.seek(from, SEEK_DATA);
  if (!begin && begin.error().code == ENXIO) {
    return DataRange{size_, size_};
  }
  if (!begin && (begin.error().code == EINVAL || begin.error().code == EOPNOTSUPP)) {
    seeking_ = false;  // without SEEK_HOLE all is data
    return DataRange{from, size_};
  }
  auto end = begin ? source_.seek(*begin, SEEK_HOLE) : begin;
  if (!end) {
    return with_context(end.error(), "finding holes");
  }
  return DataRange{std::min(*begin, size_), std::min(std::max(*end, *begin), size_)};
}

Scratch::Scratch(std::uint64_t chunk, std::size_t count)
    : chunk_(std::clamp<std::uint64_t>(chunk, 4096, 64U << 20U)),
      count_(std::clamp<std::size_t>(count, 1, most)) {}

std::span<std::byte> Scratch::buffer(std::size_t index) {
  auto& memory = buffers_.at(index);
  if (!memory) {
    memory = std::make_unique_for_overwrite<std::byte[]>(chunk_);
  }
  return {memory.get(), chunk_};
}

std::unique_ptr<Scratch> ScratchPool::take() {
  const MutexLock lock(mutex_);
  if (free_.empty()) {
    return std::make_unique<Scratch>(chunk_, count_);
  }
  auto scratch = std::move(free_.back());
  free_.pop_back();
  return scratch;
}

void ScratchPool::give_back(std::unique_ptr<Scratch> scratch) {
  const MutexLock lock(mutex_);
  try {
    free_.push_back(std::move(scratch));
  } catch (const std::bad_alloc&) {
  }  // must not throw; the next borrower makes a new one
}

Status copy_data(const CopyJob& job, Scratch& scratch, FileChecksum* sum, Progress& progress) {
  const auto data = std::min(job.size, job.allocated);
  const std::size_t threads =
      std::min(scratch.count(), data < shared_from          ? 1
                                : data < widely_shared_from ? 2
                                                            : most_threads());
  Copy copy(job, scratch.chunk(), threads > 1, sum, progress);
  const auto own = scratch.buffer(0);
  {
    std::array<std::jthread, Scratch::most - 1> helpers;
    for (std::size_t i = 1; i < threads; ++i) {
      if (!add_helper(helpers.at(i - 1), copy, scratch, i)) {
        break;
      }
    }
    copy.take_part(own);
  }
  return copy.finish();
}

Result<FileSum> hash_data(const ContentSource& source, std::uint64_t size, SumKind kind,
                          Scratch& scratch, const std::atomic<bool>& cancel) {
  FileChecksum sum(kind);
  DataRanges ranges(source, size, kind == SumKind::xxh3_sparse);
  const auto buffer = scratch.buffer(0);
  for (std::uint64_t at = 0; at < size;) {
    const auto range = ranges.next(at);
    if (!range) {
      return std::unexpected(range.error());
    }
    sum.skip(range->begin - at);
    for (at = range->begin; at < range->end;) {
      if (cancel) {
        return fail(ECANCELED, "cancelled");
      }
      const auto part = buffer.first(std::min<std::uint64_t>(buffer.size(), range->end - at));
      EFS_TRY(read_fully(source, part, at));
      sum.update(part);
      at += part.size();
    }
  }
  return sum.finish();
}

}  // namespace efs::stage
