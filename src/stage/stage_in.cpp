#include "stage/stage_in.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <vector>

#include "base/mutex.hpp"
#include "base/thread_pool.hpp"
#include "stage/transfer.hpp"

namespace efs::stage {
namespace {

constexpr std::uint64_t huge_page = 2U << 20U;
constexpr std::uint64_t small_file = 1U << 20U;
constexpr std::size_t task_files = 64;
constexpr std::uint64_t task_bytes = 8U << 20U;

using Task = std::vector<const PlanEntry*>;

/// Large files one by one, the largest first, so that none is left to run alone at the end; then the small ones
/// in tasks of neighbours.
std::vector<Task> make_tasks(const Plan& plan) {
  Task large;
  std::vector<Task> small;
  std::uint64_t bytes = 0;
  for (const auto& entry : plan.entries) {
    if (entry.type != EntryType::file) continue;
    if (entry.size >= small_file) {
      large.push_back(&entry);
      continue;
    }
    if (small.empty() || small.back().size() >= task_files || bytes + entry.size > task_bytes) {
      small.emplace_back();
      bytes = 0;
    }
    small.back().push_back(&entry);
    bytes += entry.size;
  }
  std::ranges::stable_sort(large, std::greater{}, [](const PlanEntry* entry) { return entry->size; });
  std::vector<Task> tasks;
  for (const auto* entry : large) tasks.push_back({entry});
  std::ranges::move(small, std::back_inserter(tasks));
  return tasks;
}

/// Frees an unpublished file unless told that it was published.
class PendingFile {
 public:
  PendingFile(Buffer& buffer, std::uint64_t ino) : buffer_(buffer), ino_(ino) {}
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile() {
    if (!published_) buffer_.abandon(ino_);
  }
  void published() { published_ = true; }

 private:
  Buffer& buffer_;
  std::uint64_t ino_;
  bool published_ = false;
};

std::unexpected<Error> told(const Error& error, const char* what) {
  return fail(error.code, std::string(what) + ": " + describe(error));
}

class StageIn {
 public:
  StageIn(const Plan& plan, Buffer& buffer, PfsIo& pfs, const Options& options, Progress& progress)
      : plan_(plan), buffer_(buffer), pfs_(pfs), options_(options), progress_(progress) {}

  StageReport run() {
    const auto started = std::chrono::steady_clock::now();
    progress_.begin(plan_.files, plan_.bytes);
    if (plan_.problems.empty()) {
      stage_all();
    } else {
      failed(plan_.problems.front().path, {EINVAL, "the plan has problems: " + plan_.problems.front().reason});
    }
    report_.files = files_;
    report_.bytes = bytes_;
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    MutexLock lock(mutex_);
    report_.failure = std::move(failure_);
    return std::move(report_);
  }

 private:
  void stage_all() {
    auto root = pfs_.open(AT_FDCWD, plan_.root_dir, O_RDONLY | O_DIRECTORY);
    if (!root) return failed("", {root.error().code, plan_.root_dir + ": " + describe(root.error())});
    root_ = std::move(*root);
    if (make_names(EntryType::directory)) report_.directories = names_;
    if (!stopped() && make_names(EntryType::symlink)) report_.symlinks = names_;
    if (!stopped()) {
      ThreadPool pool(std::max(1U, options_.workers));
      for (auto& task : make_tasks(plan_)) pool.submit([this, task = std::move(task)] { run_task(task); });
      pool.drain();
    }
    // Once more: every name made inside a directory has moved its mtime.
    if (!stopped()) make_names(EntryType::directory);
    if (progress_.cancel) failed("", {ECANCELED, "cancelled"});
  }

  bool stopped() const { return progress_.cancel; }

  /// Records the first failure and stops the others, in the middle of a file too.
  void failed(const std::string& path, Error error) {
    MutexLock lock(mutex_);
    if (!failure_) failure_ = StageFailure{path, std::move(error)};
    progress_.cancel = true;  // after the failure is there: those whom it stops must not be first
  }

  bool make_names(EntryType type) {
    names_ = 0;
    for (const auto& entry : plan_.entries) {
      if (entry.type != type) continue;
      if (stopped()) return false;
      const Status made = type == EntryType::directory ? buffer_.make_directory(entry.path, entry.attributes)
                                                       : buffer_.make_symlink(entry.path, entry.target, entry.attributes);
      if (!made) return failed(entry.path, told(made.error(), "making it in the buffer").error()), false;
      ++names_;
    }
    return true;
  }

  void run_task(const Task& task) noexcept {
    try {
      Scratch scratch(options_.transfer_size);
      for (const auto* entry : task) {
        if (stopped()) return;
        if (auto done = stage_file(*entry, scratch); !done) return failed(entry->path, std::move(done.error()));
        ++files_;
        bytes_ += entry->size;
        ++progress_.files_done;
      }
    } catch (const std::exception& exception) {  // a task of the pool must not throw
      failed(task.front()->path, {ENOMEM, exception.what()});
    }
  }

  Status stage_file(const PlanEntry& entry, Scratch& scratch) {
    // O_NONBLOCK: should a FIFO have taken the file's place, opening it must not wait for a writer.
    auto source = pfs_.open_beneath(root_.get(), entry.path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (!source) return told(source.error(), source.error().code == ENOENT ? "vanished since it was planned" : "opening");
    auto ino = buffer_.begin_file();
    if (!ino) return told(ino.error(), "making it in the buffer");
    PendingFile pending(buffer_, *ino);
    if (entry.size > 0) EFS_TRY(fill(*ino, entry, source->get(), scratch));
    auto origin = unchanged_origin(entry, source->get());
    if (!origin) return std::unexpected(origin.error());
    if (stopped()) return fail(ECANCELED, "cancelled");
    if (auto done = buffer_.publish_file(*ino, entry.path, entry.attributes, *origin); !done) {
      return told(done.error(), "publishing it in the buffer");
    }
    pending.published();
    return {};
  }

  Status fill(std::uint64_t ino, const PlanEntry& entry, int source, Scratch& scratch) {
    auto container = buffer_.open_container(ino, O_RDWR);
    if (!container) return told(container.error(), "opening its container");
    Checksum sum;
    // A memory file whose size is known is filled with huge pages from the start (tmpfs huge=within_size): twice the
    // speed of first touch. A sparse one would lose its holes to them.
    if (entry.size >= huge_page && entry.allocated >= entry.size) EFS_TRY(posix_pfs().truncate(container->get(), entry.size));
    const CopyJob job{.source = {pfs_, source}, .destination = {posix_pfs(), container->get()}, .size = entry.size,
                      .allocated = entry.allocated};
    return copy_data(job, scratch, sum, progress_);
  }

  /// The version that was read. ctime is taken as it is now: a chmod or link elsewhere is no change of the content,
  /// and stage-out compares with what was there when the copy was whole.
  Result<fs::Origin> unchanged_origin(const PlanEntry& entry, int source) {
    auto now = pfs_.fstat(source);
    if (!now) return told(now.error(), "reading its attributes");
    fs::Origin origin{.device = now->st_dev, .inode = now->st_ino, .size = static_cast<std::uint64_t>(now->st_size),
                      .mtime = to_ns(now->st_mtim), .ctime = entry.origin.ctime};
    if (!S_ISREG(now->st_mode) || origin != entry.origin) return fail(ESTALE, "changed while it was being read");
    origin.ctime = to_ns(now->st_ctim);
    return origin;
  }

  const Plan& plan_;
  Buffer& buffer_;
  PfsIo& pfs_;
  const Options options_;
  Progress& progress_;
  UniqueFd root_;
  std::uint64_t names_ = 0;
  std::atomic<std::uint64_t> files_{0};
  std::atomic<std::uint64_t> bytes_{0};
  Mutex mutex_;  // rank 90 (leaf)
  std::optional<StageFailure> failure_ EFS_GUARDED_BY(mutex_);
  StageReport report_;
};

}  // namespace

StageReport stage_in(const Plan& plan, Buffer& buffer, PfsIo& pfs, const Options& options, Progress& progress) {
  try {
    return StageIn(plan, buffer, pfs, options, progress).run();
  } catch (const std::exception& exception) {
    StageReport report;
    report.failure = StageFailure{"", {ENOMEM, std::string("stage-in: ") + exception.what()}};
    return report;
  }
}

}  // namespace efs::stage
