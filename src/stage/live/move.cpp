// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/move.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <new>
#include <utility>

#include "stage/copy/content.hpp"
#include "stage/copy/transfer.hpp"

namespace efs::stage {
namespace {

class Mover : LiveTransfer {
 public:
  Mover(const LiveArguments& with, unsigned place, fs::Staging::Pins pins)
      : LiveTransfer(with), place_(place), pins_(pins), scratch_(with.options.transfer_size) {}

  Moves move(std::span<const std::string> names) {
    list(names);
    for (const auto& [path, bytes] : files_) {
      const Status done = progress_.cancel ? fail(ECANCELED) : move_file(path, bytes);
      if (!done) {
        moves_.failed.push_back({path, done.error()});
      }
      ++progress_.files_done;
    }
    return std::move(moves_);
  }

 private:
  struct File {
    std::string path;
    std::uint64_t bytes = 0;
  };

  void list(std::span<const std::string> names) {
    std::uint64_t all = 0;
    for (const auto& name : names) {
      const auto items = staging_.walk(name);
      if (!items) {
        moves_.failed.push_back({name, items.error()});
        continue;
      }
      for (const auto& item : *items) {
        if (!S_ISREG(item.attributes.st_mode) || item.content.remote) {
          continue;
        }
        files_.push_back({.path = item.path, .bytes = data_of(item.attributes)});
        all += files_.back().bytes;
      }
    }
    progress_.begin(files_.size(), all);
  }

  Status move_file(const std::string& path, std::uint64_t bytes) {
    auto begun = staging_.begin_move(path, place_, pins_);
    if (!begun) {
      return std::unexpected(begun.error());
    }
    if (!*begun) {
      ++moves_.unchanged;
      progress_.bytes_done += bytes;
      return {};
    }
    const std::uint64_t taken = static_cast<std::uint64_t>((*begun)->before.st_blocks) * 512;
    if (const Status copied = copy_safely(**begun); !copied) {
      staging_.abandon_move(std::move(**begun));
      return copied;
    }
    EFS_TRY(staging_.end_move(std::move(**begun)));
    ++moves_.files;
    moves_.bytes += taken;
    return {};
  }

  Status copy_safely(fs::Staging::Move& move) try {
    return copy(move);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }

  // As a stage-in: huge pages for a file without holes.
  Status copy(fs::Staging::Move& move) {
    const auto size = static_cast<std::uint64_t>(move.before.st_size);
    const auto allocated = static_cast<std::uint64_t>(move.before.st_blocks) * 512;
    if (size == 0) {
      return {};
    }
    if (size >= smallest_huge && allocated >= size) {
      EFS_TRY(move.target.container->truncate(size));
    }
    const ContainerContent source(*move.source), target(*move.target.container);
    const CopyJob job{
        .source = source, .destination = target, .size = size, .allocated = allocated};
    EFS_TRY(copy_data(job, scratch_, nullptr, progress_));
    return progress_.cancel ? fail(ECANCELED) : Status();
  }

  const unsigned place_;
  const fs::Staging::Pins pins_;
  Scratch scratch_;
  std::vector<File> files_;
  Moves moves_;
};

}  // namespace

Moves move_files(const LiveArguments& with, std::span<const std::string> names, unsigned place,
                 fs::Staging::Pins pins) {
  return Mover(with, place, pins).move(names);
}

}  // namespace efs::stage
