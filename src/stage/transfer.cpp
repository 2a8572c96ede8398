#include "stage/transfer.hpp"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/mutex.hpp"

namespace efs::stage {
namespace {

constexpr std::uint64_t writeback_step = 32U << 20U;

std::unexpected<Error> told(const Error& error, const char* what) {
  return fail(error.code, std::string(what) + ": " + describe(error));
}

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The ranges of a file that hold data, in order.
class DataRanges {
 public:
  explicit DataRanges(const CopyJob& job) : job_(job), seeking_(job.allocated < job.size) {}

  /// The first one at or after `from`; one of no length at the file's end says that no data is left.
  Result<Range> next(std::uint64_t from) {
    if (!seeking_) return Range{from, job_.size};
    auto begin = job_.source.io.seek(job_.source.fd, from, SEEK_DATA);
    if (!begin && begin.error().code == ENXIO) return Range{job_.size, job_.size};
    if (!begin && (begin.error().code == EINVAL || begin.error().code == EOPNOTSUPP)) {
      seeking_ = false;  // a file system that cannot tell: all is data
      return Range{from, job_.size};
    }
    auto end = begin ? job_.source.io.seek(job_.source.fd, *begin, SEEK_HOLE) : begin;
    if (!end) return told(end.error(), "finding holes");
    return Range{std::min(*begin, job_.size), std::min(std::max(*end, *begin), job_.size)};
  }

 private:
  const CopyJob& job_;
  bool seeking_;
};

/// A piece of the file in a scratch buffer.
struct Chunk {
  std::uint64_t offset = 0;
  std::span<const std::byte> data;
};

/// Reads `data.size()` bytes at `offset`, or fails.
Status read_fully(const End& source, std::span<std::byte> data, std::uint64_t offset) {
  std::size_t got = 0;
  while (got < data.size()) {
    auto part = source.io.read(source.fd, data.subspan(got), offset + got);
    if (!part) return told(part.error(), "reading");
    if (*part == 0) return fail(ESTALE, "changed while it was being read: it ends at byte " + std::to_string(offset + got));
    got += *part;
  }
  return {};
}

/// The reading half: data chunks in order, everything hashed, holes skipped.
class Reader {
 public:
  Reader(const CopyJob& job, Checksum& sum, Progress& progress) : job_(job), sum_(sum), progress_(progress), ranges_(job) {}

  /// The next chunk, in `buffer`; an empty one at the end.
  Result<Chunk> next(std::span<std::byte> buffer) {
    if (progress_.cancel) return fail(ECANCELED, "cancelled");
    if (at_ == range_end_ && at_ < job_.size) EFS_TRY(skip_hole());
    if (at_ == job_.size) return Chunk{at_, {}};
    const auto wanted = std::min<std::uint64_t>(buffer.size(), range_end_ - at_);
    EFS_TRY(read_fully(job_.source, buffer.first(wanted), at_));
    const Chunk chunk{at_, buffer.first(wanted)};
    sum_.update(chunk.data);
    at_ += wanted;
    return chunk;
  }

 private:
  Status skip_hole() {
    auto range = ranges_.next(at_);
    if (!range) return std::unexpected(range.error());
    // 64 MiB at a time: a hole of a terabyte takes minutes to hash, and must stay cancellable.
    while (at_ < range->begin) {
      if (progress_.cancel) return fail(ECANCELED, "cancelled");
      const auto part = std::min<std::uint64_t>(range->begin - at_, 64U << 20U);
      sum_.update_zeros(part);
      progress_.bytes_done += part;
      at_ += part;
    }
    range_end_ = range->end;
    return {};
  }

  const CopyJob& job_;
  Checksum& sum_;
  Progress& progress_;
  DataRanges ranges_;
  std::uint64_t at_ = 0;
  std::uint64_t range_end_ = 0;
};

/// The writing half.
class Writer {
 public:
  Writer(const CopyJob& job, Progress& progress) : job_(job), progress_(progress) {}

  Status put(const Chunk& chunk) {
    std::size_t done = 0;
    while (done < chunk.data.size()) {
      if (progress_.cancel) return fail(ECANCELED, "cancelled");
      auto part = job_.destination.io.write(job_.destination.fd, chunk.data.subspan(done), chunk.offset + done);
      if (!part) return told(part.error(), "writing");
      if (*part == 0) return fail(EIO, "writing: the file system took nothing");
      done += *part;
    }
    end_ = chunk.offset + done;
    progress_.bytes_done += done;
    if (job_.early_writeback && end_ - flushed_ >= writeback_step) {
      job_.destination.io.start_writeback(job_.destination.fd, flushed_, end_ - flushed_);
      flushed_ = end_;
    }
    return {};
  }

  /// Gives the file its size where it ends in a hole.
  Status finish() {
    if (end_ == job_.size) return {};
    if (auto done = job_.destination.io.truncate(job_.destination.fd, job_.size); !done) return told(done.error(), "extending");
    return {};
  }

 private:
  const CopyJob& job_;
  Progress& progress_;
  std::uint64_t end_ = 0;
  std::uint64_t flushed_ = 0;
};

/// Hands chunks from the reading thread to the writing one through the scratch buffers, in order.
class Pipe {
 public:
  /// Reader: the index of a buffer that may be filled; none once the writer has failed.
  std::optional<std::size_t> free_slot() {
    MutexLock lock(mutex_);
    while (filled_ - emptied_ >= Scratch::count && !broken_) changed_.wait(mutex_);
    if (broken_) return std::nullopt;
    return filled_ % Scratch::count;
  }
  void push(const Chunk& chunk) {
    MutexLock lock(mutex_);
    chunks_[filled_++ % Scratch::count] = chunk;
    changed_.notify_one();
  }
  /// Reader: no more will come, for good or ill.
  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
    changed_.notify_one();
  }
  /// Writer: the next chunk; none after the last.
  std::optional<Chunk> front() {
    MutexLock lock(mutex_);
    while (emptied_ == filled_ && !closed_) changed_.wait(mutex_);
    if (emptied_ == filled_) return std::nullopt;
    return chunks_[emptied_ % Scratch::count];
  }
  void pop() {
    MutexLock lock(mutex_);
    ++emptied_;
    changed_.notify_one();
  }
  void break_off() {
    MutexLock lock(mutex_);
    broken_ = true;
    changed_.notify_one();
  }

 private:
  Mutex mutex_;  // rank 90 (leaf): nothing is taken under it
  Condition changed_;
  std::array<Chunk, Scratch::count> chunks_ EFS_GUARDED_BY(mutex_);
  std::size_t filled_ EFS_GUARDED_BY(mutex_) = 0;
  std::size_t emptied_ EFS_GUARDED_BY(mutex_) = 0;
  bool closed_ EFS_GUARDED_BY(mutex_) = false;
  bool broken_ EFS_GUARDED_BY(mutex_) = false;
};

Status copy_serial(Reader& reader, Writer& writer, Scratch& scratch) {
  while (true) {
    auto chunk = reader.next(scratch.buffer(0));
    if (!chunk) return std::unexpected(chunk.error());
    if (chunk->data.empty()) return writer.finish();
    EFS_TRY(writer.put(*chunk));
  }
}

Status fill(Reader& reader, Scratch& scratch, Pipe& pipe) {
  while (const auto slot = pipe.free_slot()) {
    auto chunk = reader.next(scratch.buffer(*slot));
    if (!chunk) return std::unexpected(chunk.error());
    if (chunk->data.empty()) break;
    pipe.push(*chunk);
  }
  return {};
}

Status copy_pipelined(Reader& reader, Writer& writer, Scratch& scratch) {
  Pipe pipe;
  Status written;
  std::jthread writing([&] {
    while (const auto chunk = pipe.front()) {
      written = writer.put(*chunk);
      if (!written) return pipe.break_off();
      pipe.pop();
    }
  });
  Status read = fill(reader, scratch, pipe);
  pipe.close();
  writing.join();
  EFS_TRY(std::move(written));
  EFS_TRY(std::move(read));
  return writer.finish();
}

}  // namespace

Scratch::Scratch(std::uint64_t chunk) : chunk_(std::clamp<std::uint64_t>(chunk, 4096, 64U << 20U)) {}

std::span<std::byte> Scratch::buffer(std::size_t index) {
  auto& memory = buffers_.at(index);
  if (!memory) memory = std::make_unique_for_overwrite<std::byte[]>(chunk_);
  return {memory.get(), chunk_};
}

Status copy_data(const CopyJob& job, Scratch& scratch, Checksum& sum, Progress& progress) {
  Reader reader(job, sum, progress);
  Writer writer(job, progress);
  const bool large = std::min(job.size, job.allocated) >= pipelined_from;
  return large ? copy_pipelined(reader, writer, scratch) : copy_serial(reader, writer, scratch);
}

Result<std::uint64_t> hash_data(const End& source, std::uint64_t size, Scratch& scratch, const std::atomic<bool>& cancel) {
  Checksum sum;
  const auto buffer = scratch.buffer(0);
  for (std::uint64_t at = 0; at < size;) {
    if (cancel) return fail(ECANCELED, "cancelled");
    const auto part = buffer.first(std::min<std::uint64_t>(buffer.size(), size - at));
    EFS_TRY(read_fully(source, part, at));
    sum.update(part);
    at += part.size();
  }
  return sum.digest();
}

}  // namespace efs::stage
