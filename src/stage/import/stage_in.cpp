// SPDX-License-Identifier: BSD-3-Clause
#include "stage/import/stage_in.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/copy/worker_pool.hpp"
#include "stage/import/reuse.hpp"
#include "stage/pfs/coarse_mtime.hpp"
#include "stage/pfs/deep_paths.hpp"
#include "stage/pfs/directory_cursor.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/plan/follow.hpp"
#include "stage/versions/directory_version.hpp"

namespace efs::stage {
namespace {

constexpr std::uint64_t huge_page = 2U << 20U;
constexpr std::uint64_t small_file = 1U << 20U;
// reads of a file that others replace
constexpr int most_versions = 5;
// the same for a small file: one that comes and goes is gone at one of so many looks
constexpr int most_small_versions = 24;
constexpr std::size_t task_files = 32;  // published by one call: one lock instead of so many
constexpr std::uint64_t task_bytes = 8U << 20U;

using Entries = std::vector<const PlanEntry*>;
using Task = Entries;

/// The entries of a plan by kind, in the plan's order.
struct Kinds {
  explicit Kinds(const Plan& plan) {
    for (const auto& entry : plan.entries) {
      Entries& kind = entry.type == EntryType::directory ? directories
                      : entry.type == EntryType::symlink ? symlinks
                      : entry.link_to.empty()            ? files
                                                         : links;
      kind.push_back(&entry);
    }
  }

  Entries directories, symlinks, files, links;  // links: further names of files
};

/// Orders the files by priority. Within a priority large files come one by one, the largest first,
/// so that no large file runs alone at the end. Small files follow, in tasks of neighbours.
std::vector<Task> make_tasks(const Entries& files,
                             const std::unordered_set<const PlanEntry*>& present) {
  Task large;
  std::vector<Task> small;
  std::uint64_t bytes = 0;
  // Where files are few, each can have a thread.
  const std::size_t most = std::clamp<std::size_t>(
      files.size() / (std::size_t{4} * WorkerPool::automatic_most), 1, task_files);
  for (const auto* entry : files) {
    if (present.contains(entry)) {
      continue;
    }
    if (data_of(*entry) >= small_file) {
      large.push_back(entry);
      continue;
    }
    if (small.empty() || small.back().front()->priority != entry->priority ||
        small.back().size() >= most || bytes + data_of(*entry) > task_bytes) {
      small.emplace_back();
      bytes = 0;
    }
    small.back().push_back(entry);
    bytes += data_of(*entry);
  }
  std::ranges::stable_sort(large, std::greater{},
                           [](const PlanEntry* entry) { return data_of(*entry); });
  std::vector<Task> tasks;
  for (const auto* entry : large) {
    tasks.push_back({entry});
  }
  std::ranges::move(small, std::back_inserter(tasks));
  std::ranges::stable_sort(tasks, std::greater{},
                           [](const Task& task) { return task.front()->priority; });
  return tasks;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Filled files without a name; frees those that never get one.
class PendingFiles {
 public:
  /// Room for them is made at once: a file that there is no memory to note could not be freed.
  PendingFiles(ImportSink& buffer, std::size_t most) : buffer_(buffer) { files_.reserve(most); }

  PendingFiles(const PendingFiles&) = delete;
  PendingFiles& operator=(const PendingFiles&) = delete;

  ~PendingFiles() {
    for (const auto& file : std::span(files_).subspan(published_)) {
      buffer_.abandon(file.ino);
    }
  }

  void add(std::uint64_t ino) {
    files_.push_back({.ino = ino, .path = {}, .attributes = {}, .origin = {}});
  }

  fs::StagedFile& last() { return files_.back(); }

  /// Frees those behind the first `count`.
  void keep_first(std::size_t count) {
    for (; files_.size() > count; files_.pop_back()) {
      buffer_.abandon(files_.back().ino);
    }
  }

  /// The number of files that have their name now; `failed` as ImportSink::publish_files says.
  std::size_t size() const { return files_.size(); }

  std::uint64_t size_of(std::size_t number) const {
    return files_[number].remote ? 0 : files_[number].origin.size;
  }

  std::size_t publish(Status& failed) { return published_ = buffer_.publish_files(files_, failed); }

 private:
  ImportSink& buffer_;
  std::vector<fs::StagedFile> files_;
  std::size_t published_ = 0;
};

class StageIn {
 public:
  StageIn(const Plan& plan, ImportSink& buffer, PfsIo& pfs, const Options& options,
          Progress& progress)
      : plan_(plan),
        kinds_(plan),
        buffer_(buffer),
        pfs_(pfs),
        progress_(progress),
        pool_(options.workers, options.processors()),
        scratches_(options.transfer_size, options.processors()),
        reuse_(options.cache, buffer, plan.root_dir) {}

  StageReport run() {
    const auto started = std::chrono::steady_clock::now();
    progress_.begin(plan_.files, data_of(plan_));
    if (plan_.problems.empty()) {
      stage_all();
    } else {
      failed(plan_.problems.front().path,
             {EINVAL, "the plan has problems: " + plan_.problems.front().reason});
    }
    report_.files = files_;
    report_.bytes = bytes_;
    const Reuse::Report reused = reuse_.report();
    report_.reused_files = reused.files;
    report_.reused_bytes = reused.bytes;
    report_.not_kept = reused.not_kept;
    report_.not_kept_reason = reused.reason;
    report_.slowest = slowest_.take();
    report_.seconds = seconds_since(started);
    MutexLock lock(mutex_);
    report_.failure = std::move(failure_);
    report_.skipped = std::move(skipped_);
    std::ranges::sort(report_.skipped, {}, &PlanSkip::path);
    return std::move(report_);
  }

 private:
  void stage_all() {
    auto root = pfs_.open(no_directory, plan_.root_dir, passage_flags);
    if (!root) {
      return failed("", {root.error().code, plan_.root_dir + ": " + describe(root.error())});
    }
    root_ = std::move(*root);
    paths_.emplace(pfs_, root_);
    if (auto known = find_present(); !known) {
      return failed("", std::move(known.error()));
    }
    if (make_directories()) {
      report_.directories = kinds_.directories.size();
    }
    if (!stopped()) {
      report_.symlinks = make_symlinks();
    }
    if (!stopped()) {
      const auto tasks = make_tasks(kinds_.files, present_);
      pool_.run(tasks.size(), 1, [&](std::size_t begin, std::size_t end) {
        for (const auto& task : std::span(tasks).subspan(begin, end - begin)) {
          run_task(task);
        }
      });
    }
    if (!stopped()) {
      link_names();
    }
    if (!stopped()) {
      set_directory_xattrs();
    }
    // Once more: every name made inside a directory has moved its mtime.
    if (!stopped()) {
      make_directories();
    }
    if (progress_.cancel) {
      failed("", {ECANCELED, "cancelled"});
    }
  }

  /// Finds the files that an earlier, interrupted stage-in has imported. They are clean and still
  /// have the version that the plan saw.
  Status find_present() {
    auto items = buffer_.look(plan_);
    if (!items) {
      return with_context(items.error(), "reading what is in the buffer");
    }
    std::unordered_map<std::string_view, const fs::WalkItem*> by_path;
    for (const auto& item : *items) {
      by_path.emplace(item.path, &item);
    }
    if (by_path.empty()) {
      return {};
    }
    for (const auto& entry : plan_.entries) {
      const auto there = by_path.find(entry.path);
      if (there != by_path.end() && is_entry(*there->second, entry)) {
        present_.insert(&entry);
      }
    }
    count_kept();
    return {};
  }

  /// True if the item is clean and has the version of the entry.
  static bool is_entry(const fs::WalkItem& item, const PlanEntry& entry) {
    return entry.type == EntryType::symlink ? item.target == entry.target
                                            : !item.pfs.dirty && item.pfs.origin == entry.origin;
  }

  void count_kept() {
    for (const auto* entry : present_) {
      if (entry->type != EntryType::file) {
        continue;
      }
      ++report_.kept;
      ++progress_.files_done;
      if (entry->link_to.empty()) {
        progress_.bytes_done += data_of(*entry);
      }
    }
  }

  /// Further names of files, when the first ones are there.
  void link_names() {
    std::map<std::string_view, std::vector<std::string>> further;
    for (const auto* entry : kinds_.links) {
      if (!present_.contains(entry)) {
        further[entry->link_to].push_back(entry->path);
      }
    }
    for (const auto& [existing, names] : further) {
      if (stopped()) {
        return;
      }
      if (auto linked = buffer_.link_files(std::string(existing), names); !linked) {
        return failed(names.front(),
                      with_context(linked.error(), "linking it in the buffer").error());
      }
      files_ += names.size();
      progress_.files_done += names.size();
    }
  }

  bool stopped() const { return progress_.cancel; }

  /// Records the first failure and stops the others, in the middle of a file too.
  void failed(const std::string& path, Error error) {
    MutexLock lock(mutex_);
    if (!failure_) {
      failure_ = StageFailure{path, std::move(error)};
    }
    progress_.cancel = true;  // last, so that no stopped thread records its error first
  }

  bool make_directories() {
    for (const auto* entry : kinds_.directories) {
      if (stopped()) {
        return false;
      }
      if (!made(*entry, buffer_.make_directory(entry->path, entry->attributes))) {
        return false;
      }
    }
    return true;
  }

  /// How many of them are new.
  std::uint64_t make_symlinks() {
    std::uint64_t count = 0;
    for (const auto* entry : kinds_.symlinks) {
      if (present_.contains(entry)) {
        continue;
      }
      if (stopped() ||
          !made(*entry, buffer_.make_symlink(entry->path, entry->target, entry->attributes))) {
        break;
      }
      ++count;
    }
    return count;
  }

  bool made(const PlanEntry& entry, const Status& status) {
    if (!status) {
      failed(entry.path, with_context(status.error(), "making it in the buffer").error());
    }
    return status.has_value();
  }

  /// Before the last round of times, which leaves them alone.
  void set_directory_xattrs() {
    pool_.run(kinds_.directories.size(), task_files, [&](std::size_t begin, std::size_t end) {
      for (const auto* entry : std::span(kinds_.directories).subspan(begin, end - begin)) {
        if (stopped()) {
          return;
        }
        if (auto done = copy_xattrs(*entry); !done) {
          failed(source_of(*entry), std::move(done.error()));
        }
      }
    });
  }

  Result<PfsHandle> open_directory(const std::string& path, int flags) {
    return path.starts_with('/') ? open_source(pfs_, root_, path, flags)
                                 : paths_->open(path, flags);
  }

  Status copy_xattrs(const PlanEntry& entry) {
    auto directory = open_directory(source_of(entry), directory_flags);
    // One that may be passed but not read is no input itself, only on the way to one.
    if (!directory && directory.error().code == EACCES) {
      return {};
    }
    if (!directory && entry.may_vanish && is_gone(directory.error())) {
      return leave_out(entry, "vanished while it was staged in: the mount has what was read of it");
    }
    if (!directory) {
      return with_context(directory.error(), "opening the directory");
    }
    auto xattrs = pfs_.xattrs(*directory);
    if (!xattrs) {
      return with_context(xattrs.error(), "reading its extended attributes");
    }
    if (auto done = buffer_.set_xattrs(entry.path, *xattrs); !done) {
      return with_context(done.error(), "setting its extended attributes in the buffer");
    }
    const DirectoryAttributes came_in{.mode = entry.attributes.mode,
                                      .uid = entry.attributes.uid,
                                      .gid = entry.attributes.gid,
                                      .xattrs = std::move(*xattrs)};
    if (auto done = buffer_.record_directory(entry.path, directory_version(came_in)); !done) {
      return with_context(done.error(), "recording its version in the buffer");
    }
    return {};
  }

  void run_task(const Task& task) {
    if (stopped()) {
      return;
    }
    try {
      ScratchPool::Loan scratch(scratches_);
      DirectoryCursor directory(
          [this](const std::string& path) { return open_directory(path, passage_flags); });
      PendingFiles pending(buffer_, task.size());
      Task read;
      for (const auto* entry : task) {
        if (stopped()) {
          return;
        }
        const auto began = std::chrono::steady_clock::now();
        const auto is_there = read_file(*entry, directory, *scratch, pending);
        if (!is_there) {
          return failed(source_of(*entry), is_there.error());
        }
        if (*is_there) {
          read.push_back(entry);
          slowest_.add(entry->path, entry->size, seconds_since(began));
        } else {
          pending.keep_first(read.size());
          (void)leave_out(*entry, "vanished since it was planned");
        }
      }
      if (stopped()) {
        return;
      }
      publish(read, pending);
    } catch (const std::exception& exception) {
      failed(source_of(*task.front()), {ENOMEM, exception.what()});
    }
  }

  Status leave_out(const PlanEntry& entry, const char* reason) {
    const MutexLock lock(mutex_);
    skipped_.push_back({.path = entry.path, .reason = reason, .vanished = true});
    if (entry.type != EntryType::file) {
      return {};
    }
    --progress_.files_total;
    progress_.bytes_total -= data_of(entry);
    return {};
  }

  void publish(const Task& task, PendingFiles& pending) {
    Status status;
    const std::size_t published = pending.publish(status);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < published; ++i) {
      bytes += pending.size_of(i);
    }
    files_ += published;
    bytes_ += bytes;
    progress_.files_done += published;
    if (!status) {
      failed(task[published]->path,
             with_context(status.error(), "publishing it in the buffer").error());
    }
  }

  /// Returns false if the file has vanished and is allowed to vanish. If such a file has a new
  /// version by now, reads the new version.
  Result<bool> read_file(const PlanEntry& entry, DirectoryCursor& directory, Scratch& scratch,
                         PendingFiles& pending) {
    const std::size_t whole = pending.size();
    Status done = read_version(entry, directory, scratch, pending);
    if (done) {
      return true;
    }
    if (!entry.may_vanish) {
      return std::unexpected(done.error());
    }
    PlanEntry now = entry;
    const auto is_another = [&] {
      return is_gone(done.error()) || done.error().code == EISDIR;
    };
    const int most = entry.size <= small_file ? most_small_versions : most_versions;
    for (int tries = 1; tries < most && is_another(); ++tries) {
      pending.keep_first(whole);
      const auto is_there = look_again(now, directory);
      if (!is_there || !*is_there) {
        return is_there;
      }
      done = read_version(now, directory, scratch, pending);
      if (done) {
        return true;
      }
    }
    return std::unexpected(done.error());
  }

  /// Asks the PFS for the version of now. False where there is no file of this name.
  Result<bool> look_again(PlanEntry& entry, DirectoryCursor& directory) {
    const auto at = directory.at(directory_of_source(entry));
    const auto there =
        at ? pfs_.lstat(*at, leaf_of(source_of(entry))) : std::unexpected(at.error());
    if (!there && is_gone(there.error())) {
      return false;
    }
    if (!there) {
      return with_context(there.error(), "reading its attributes");
    }
    if (!S_ISREG(there->st_mode)) {
      return false;
    }
    take_version(entry, *there);
    let_tick_pass(entry.origin, progress_.cancel);
    return true;
  }

  Result<PfsHandle> open_planned(const PlanEntry& entry, DirectoryCursor& directory) {
    auto at = directory.at(directory_of_source(entry));
    // O_NONBLOCK: should a FIFO have taken the file's place, opening it must not wait for a writer.
    auto source =
        at ? pfs_.open_beneath(*at, leaf_of(source_of(entry)), O_RDONLY | O_NONBLOCK | O_NOCTTY)
           : std::unexpected(at.error());
    if (source) {
      return source;
    }
    if (source.error().code == ENOENT) {
      return fail(ENOENT, hinted(entry, "vanished since it was planned"));
    }
    return with_context(source.error(), "opening");
  }

  Status read_version(const PlanEntry& entry, DirectoryCursor& directory, Scratch& scratch,
                      PendingFiles& pending) {
    if (!is_remote(entry)) {
      let_second_pass(entry.origin, progress_.cancel);
    }
    auto source = open_planned(entry, directory);
    if (!source) {
      return std::unexpected(source.error());
    }
    if (is_remote(entry)) {
      return make_remote(entry, *source, pending);
    }
    Reuse::File known = reuse_.look_at(entry, entry.reusable ? pfs_.fstat(*source) : fail(ENOENT));
    const auto from_cache = reuse_.take(known, entry.place, scratch, progress_);
    auto file = from_cache ? Result<fs::OpenContainer>(*from_cache)
                           : buffer_.begin_open_file_at(entry.place);
    if (!file) {
      return with_context(file.error(), "making it in the buffer");
    }
    pending.add(file->ino);
    if (entry.size > 0 && !from_cache) {
      EFS_TRY(fill(*file->container, entry, *source, scratch));
    }
    auto origin = unchanged_origin(entry, *source);
    if (!origin) {
      return std::unexpected(origin.error());
    }
    EFS_TRY(complete(entry, *origin, *file->container, *source, pending.last()));
    reuse_.keep(known, *origin, *file->container);
    return {};
  }

  /// Makes a hole of the size of the file: its content comes later (fetch.hpp).
  Status make_remote(const PlanEntry& entry, PfsRef source, PendingFiles& pending) {
    const auto file = buffer_.begin_open_file_at(entry.place);
    if (!file) {
      return with_context(file.error(), "making it in the buffer");
    }
    pending.add(file->ino);
    if (auto done = file->container->truncate(entry.size); !done) {
      return with_context(done.error(), "setting its size in the buffer");
    }
    const auto origin = unchanged_origin(entry, source);
    if (!origin) {
      return std::unexpected(origin.error());
    }
    fs::StagedFile& staged = pending.last();
    staged.remote = fs::Remote{.version = *origin,
                               .source = source_of(entry),
                               .background = entry.stage == config::StageWhen::background,
                               .priority = entry.priority,
                               .accepts = entry.accepts_change,
                               .room = is_evictable(entry) ? 0 : entry.needed,
                               .evictable = entry.evictable};
    return complete(entry, *origin, *file->container, source, staged);
  }

  /// Gives the container its times, and `staged` what the file needs to get its name.
  Status complete(const PlanEntry& entry, const fs::Origin& origin, Container& container,
                  PfsRef source, fs::StagedFile& staged) {
    if (auto done = container.set_times(entry.attributes.atime, entry.attributes.mtime); !done) {
      return with_context(done.error(), "setting its times in the buffer");
    }
    auto xattrs = pfs_.xattrs(source);
    if (!xattrs) {
      return with_context(xattrs.error(), "reading its extended attributes");
    }
    staged.xattrs = std::move(*xattrs);
    staged.path = entry.path;
    staged.attributes = entry.attributes;
    staged.origin = origin;
    return {};
  }

  Status fill(Container& container, const PlanEntry& entry, PfsRef source, Scratch& scratch) {
    // A memory file whose size is known is filled with huge pages from the start (tmpfs
    // huge=within_size): twice the speed of first touch. A sparse one would lose its holes to them.
    if (entry.size >= huge_page && entry.allocated >= entry.size) {
      EFS_TRY(container.truncate(entry.size));
    }
    const PfsContent from(pfs_, source);
    const ContainerContent to(container);
    const CopyJob job{
        .source = from, .destination = to, .size = entry.size, .allocated = entry.allocated};
    return copy_data(job, scratch, nullptr, progress_);
  }

  static std::string hinted(const PlanEntry& entry, const char* what) {
    return entry.found && !entry.may_vanish ? std::string(what) + "; " + vanished_hint : what;
  }

  /// The version that was read. ctime is taken as it is now: a chmod or link elsewhere is no change
  /// of the content, and stage-out compares with what was there when the copy was whole.
  Result<fs::Origin> unchanged_origin(const PlanEntry& entry, PfsRef source) {
    auto now = pfs_.fstat(source);
    if (!now) {
      return with_context(now.error(), "reading its attributes");
    }
    fs::Origin origin{.device = now->st_dev,
                      .inode = now->st_ino,
                      .size = static_cast<std::uint64_t>(now->st_size),
                      .mtime = to_ns(now->st_mtim),
                      .ctime = entry.origin.ctime};
    if (!S_ISREG(now->st_mode) || origin != entry.origin) {
      return fail(ESTALE, hinted(entry, "changed while it was being read"));
    }
    origin.ctime = to_ns(now->st_ctim);
    return origin;
  }

  const Plan& plan_;
  const Kinds kinds_;
  ImportSink& buffer_;
  PfsIo& pfs_;
  Progress& progress_;
  WorkerPool pool_;
  ScratchPool scratches_;
  Reuse reuse_;
  PfsHandle root_;
  std::optional<DeepPaths> paths_;                // there when root_ is
  std::unordered_set<const PlanEntry*> present_;  // in the buffer already
  std::atomic<std::uint64_t> files_{0};
  std::atomic<std::uint64_t> bytes_{0};
  SlowestFiles slowest_{10};
  Mutex mutex_;  // rank 90 (leaf)
  std::vector<PlanSkip> skipped_ EFS_GUARDED_BY(mutex_);
  std::optional<StageFailure> failure_ EFS_GUARDED_BY(mutex_);
  StageReport report_;
};

}  // namespace

StageReport stage_in(const Plan& plan, ImportSink& buffer, PfsIo& pfs, const Options& options,
                     Progress& progress) {
  try {
    return StageIn(plan, buffer, pfs, options, progress).run();
  } catch (const std::exception& exception) {
    StageReport report;
    report.failure = StageFailure{"", {ENOMEM, std::string("stage-in: ") + exception.what()}};
    return report;
  }
}

}  // namespace efs::stage
