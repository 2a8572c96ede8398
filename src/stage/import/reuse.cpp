// SPDX-License-Identifier: BSD-3-Clause
#include "stage/import/reuse.hpp"

#include "fs/inode.hpp"

namespace efs::stage {
namespace {

std::string path_on_pfs(const std::string& root_dir, const std::string& path) {
  return (root_dir == "/" ? "" : root_dir) + "/" + path;
}

}  // namespace

void InputSharer::part(Container& container, const std::string& staged_as) {
  for (const auto& name : ledger::Names(staged_as).list()) {
    cache_.part(container, path_on_pfs(config_.root_dir, config::source_of(config_, name)));
  }
}

Reuse::File Reuse::look_at(const PlanEntry& entry, const Result<struct stat>& source) const {
  File file;
  if (cache_ == nullptr || !entry.reusable || entry.size == 0 || !source ||
      !S_ISREG(source->st_mode)) {
    return file;
  }
  file.data = data_of(entry);
  file.since = wall_clock();
  file.key = CacheKey{.path = path_on_pfs(root_dir_, entry.from()),
                      .version = {.device = source->st_dev,
                                  .inode = source->st_ino,
                                  .size = static_cast<std::uint64_t>(source->st_size),
                                  .mtime = to_ns(source->st_mtim),
                                  .ctime = to_ns(source->st_ctim)}};
  return file;
}

std::optional<fs::OpenContainer> Reuse::take(File& file, unsigned place, Scratch& scratch,
                                             Progress& progress) {
  if (!file.key) {
    return std::nullopt;
  }
  std::optional<fs::OpenContainer> held;
  const auto found = cache_->find(*file.key, [&](Container& cached) {
    auto adopted = buffer_.adopt_file(cached);
    if (adopted) {
      held = std::move(*adopted);
    }
    return adopted.has_value();
  });
  if (!found) {
    return std::nullopt;
  }
  if (held) {
    progress.bytes_done += file.data;
  } else {
    held = copied(*found->container, place, scratch, progress);
  }
  if (!held) {
    return std::nullopt;
  }
  file.reused = true;
  ++files_;
  bytes_ += file.key->version.size;
  return held;
}

// Copies because another job shares the container, or because the store is on another file system.
std::optional<fs::OpenContainer> Reuse::copied(Container& cached, unsigned place, Scratch& scratch,
                                               Progress& progress) {
  auto held = buffer_.begin_open_file_at(place);
  if (!held) {
    return std::nullopt;
  }
  // Checked after the copy: no process writes before the seal is broken.
  if (copy_content(cached, *held->container, scratch, progress) && Cache::still_whole(cached)) {
    return std::move(*held);
  }
  buffer_.abandon(held->ino);
  return std::nullopt;
}

void Reuse::keep(const File& file, const fs::Origin& version, Container& container) {
  if (!file.key || file.reused) {
    return;
  }
  const Status kept = file.key->version == version
                          ? cache_->offer(*file.key, container, file.since)
                          : fail(EAGAIN, "its attributes changed while it was read");
  if (kept) {
    return;
  }
  const MutexLock lock(mutex_);
  if (not_kept_++ == 0) {
    reason_ = file.key->path + ": " + describe(kept.error());
  }
}

Reuse::Report Reuse::report() const {
  const MutexLock lock(mutex_);
  return {.files = files_, .bytes = bytes_, .not_kept = not_kept_, .reason = reason_};
}

}  // namespace efs::stage
