#include "stage/stage_out.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <numeric>
#include <span>
#include <unordered_set>

#include "base/thread_pool.hpp"
#include "stage/partial.hpp"
#include "stage/results_tree.hpp"
#include "stage/selection.hpp"

// The order, and why. For every batch:
//   1. write all partials                  real names still show the old version, or nothing
//   2. make them durable                   a name must never lead to data that a crash can take away
//   3. check and rename them               the step that anyone can see; atomic for each file
//   4. make the names durable              fsync of each directory, once
//   5. report them as staged-out           only now, for nothing that may happen later undoes them
// A failure or kill before 3 leaves partials only; between 3 and 5 whole files which the receipt does not claim.
// Directories are made, durably, before all batches and are given their modes and times after them, since every
// rename moves their times and a read-only directory takes no files. A symbolic link cannot be synced by itself:
// with journalled metadata the fsync of its directory in 4 covers it.
// Where the PFS is full, what did not fit is tried once more after all batches, alone: use_what_is_left().

namespace efs::stage {
namespace {

constexpr std::size_t batch_files = 32768;  // few batches: each costs two commits of the PFS' journal
constexpr std::uint64_t batch_bytes = 1U << 30U;
constexpr std::uint64_t fsync_from = 8U << 20U;  // such files are synced by their own thread as soon as they are written
constexpr std::size_t syncfs_from = 16;          // other files of a batch: one syncfs for all, since it waits for strangers too
constexpr std::size_t task_files = 64;
constexpr std::uint64_t task_bytes = 8U << 20U;

using Clock = std::chrono::steady_clock;

Nanoseconds wall_clock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return to_ns(now);
}

/// One result on its way. Touched by one thread at a time.
struct Outgoing {
  enum class State : std::uint8_t { waiting, written, named, settled };
  const fs::WalkItem* item = nullptr;
  std::string partial;
  bool fsync = false;
  State state = State::waiting;
  bool partial_left = false;  // settled, but its partial still has to go
  bool no_room = false;       // settled, for want of space only
  PartialFile file;
  ReceiptEntry entry;

  void settle(Action action, std::string reason = {}) {
    state = State::settled;
    entry.action = action;
    entry.reason = std::move(reason);
  }
};

/// The directory of the item at hand, kept open for the next one: results are sorted by directory.
class DirectoryCursor {
 public:
  explicit DirectoryCursor(ResultsTree& tree) : tree_(tree) {}
  Result<int> of(const Outgoing& out) {
    std::string path = parent_of(out.item->path);
    if (!fd_ || path != path_) {
      auto opened = tree_.directory(path);
      if (!opened) return fail(opened.error().code, "opening its directory: " + describe(opened.error()));
      fd_ = std::move(*opened);
      path_ = std::move(path);
    }
    return fd_.get();
  }

 private:
  ResultsTree& tree_;
  std::string path_;
  UniqueFd fd_;
};

class StageOut {
 public:
  StageOut(const config::JobConfig& config, Buffer& buffer, PfsIo& pfs, const Options& options, Progress& progress)
      : config_(config), buffer_(buffer), pfs_(pfs), options_(options), progress_(progress), tree_(pfs),
        in_place_(config.in_place || config.results_dir == config.root_dir), pool_(std::max(1U, options.workers)) {}

  Receipt run() {
    receipt_.job = config_.name;
    receipt_.results_dir = config_.results_dir;
    receipt_.started = wall_clock();
    if (auto items = buffer_.walk()) {
      stage(*items);
    } else {
      receipt_.reason = "the buffer cannot be read: " + describe(items.error());
    }
    receipt_.ended = wall_clock();
    settle(receipt_);
    return std::move(receipt_);
  }

 private:
  void stage(const std::vector<fs::WalkItem>& items) {
    Selection selection = select_outgoing(config_, items, options_.by_rank);
    receipt_.entries = std::move(selection.settled);
    list_outgoing(selection.outgoing, items);
    if (!outgoing_.empty() || !selection.directories.empty()) {
      if (open_tree()) {
        make_directories(selection.directories);
        for (std::span<Outgoing> rest = outgoing_; !rest.empty();) run_batch(take_batch(rest));
        if (full_ && !progress_.cancel) use_what_is_left();
        finish_directories(selection.directories);
      } else {
        for (auto& out : outgoing_) out.settle(Action::not_saved, receipt_.reason);
      }
    }
    for (auto& out : outgoing_) receipt_.entries.push_back(std::move(out.entry));
  }

  void list_outgoing(const std::vector<const fs::WalkItem*>& items, const std::vector<fs::WalkItem>& all) {
    // A result may itself be called "x.efs-partial": then that is no name for the partial of x.
    std::unordered_set<std::string_view> reserved;
    for (const auto& item : all) {
      if (item.path.ends_with(partial_suffix)) reserved.insert(item.path);
    }
    std::uint64_t bytes = 0;
    outgoing_.reserve(items.size());
    for (const auto* item : items) {
      Outgoing& out = outgoing_.emplace_back();
      out.item = item;
      out.partial = partial_name(leaf_of(item->path), reserved.contains(item->path + partial_suffix));
      out.entry.path = item->path;
      out.entry.bytes = S_ISREG(item->attributes.st_mode) ? static_cast<std::uint64_t>(item->attributes.st_size) : 0;
      out.entry.mtime = to_ns(item->attributes.st_mtim);
      bytes += out.entry.bytes;
    }
    progress_.begin(outgoing_.size(), bytes);
  }

  bool open_tree() {
    if (config_.results_dir.empty()) {
      receipt_.reason = "the job file names no results-dir";
    } else if (auto opened = tree_.open(config_.results_dir); !opened) {
      note_full(opened.error());
      receipt_.reason = describe(opened.error());
    }
    return receipt_.reason.empty();
  }

  static bool is_full(const Error& error) { return error.code == ENOSPC || error.code == EDQUOT; }

  /// After a full PFS nothing new is begun in parallel: partials would take the last space from one another, and
  /// possibly none would be whole. See use_what_is_left().
  void note_full(const Error& error) {
    if (is_full(error)) full_ = true;
  }

  void directory_failed(const fs::WalkItem& item, const Error& error) {
    note_full(error);
    ReceiptEntry entry;
    entry.path = item.path;
    entry.action = Action::failed;
    entry.mtime = to_ns(item.attributes.st_mtim);
    entry.reason = describe(error);
    receipt_.entries.push_back(std::move(entry));
    failed_directories_.insert(item.path);
  }

  void make_directories(const std::vector<DirectoryToMake>& directories) {
    for (const auto& directory : directories) {
      if (auto made = tree_.make(*directory.item, directory.apply_attributes); !made) directory_failed(*directory.item, made.error());
    }
    if (auto synced = tree_.sync_made(); !synced) names_not_durable_ = describe(synced.error());
  }

  /// Children first: a parent's final mode may close the way to them.
  void finish_directories(const std::vector<DirectoryToMake>& directories) {
    const bool at_once = tree_.sync_all_at_once(directories.size());
    std::vector<const DirectoryToMake*> done;
    for (auto it = directories.rbegin(); it != directories.rend(); ++it) {
      if (failed_directories_.contains(it->item->path)) continue;
      const Status finished = it->apply_attributes ? tree_.finish(*it->item, !at_once) : Status();
      if (finished) done.push_back(&*it);
      else directory_failed(*it->item, finished.error());
    }
    const Status synced = at_once ? tree_.sync_all() : Status();
    for (const auto* directory : done) report_directory(*directory, synced);
  }

  void report_directory(const DirectoryToMake& directory, const Status& synced) {
    if (!synced || !names_not_durable_.empty()) {
      return directory_failed(*directory.item, {EIO, synced ? names_not_durable_ : describe(synced.error())});
    }
    if (!directory.reported) return;
    ReceiptEntry entry;
    entry.path = directory.item->path;
    entry.action = Action::staged_out;
    entry.mtime = to_ns(directory.item->attributes.st_mtim);
    receipt_.entries.push_back(std::move(entry));
  }

  std::span<Outgoing> take_batch(std::span<Outgoing>& rest) const {
    // Where time may run out, what goes first must be whole before the next begins.
    const std::uint64_t most = options_.by_rank ? batch_bytes / 8 : batch_bytes;
    std::size_t count = 0;
    for (std::uint64_t bytes = 0; count < rest.size() && count < batch_files && bytes < most; ++count) bytes += rest[count].entry.bytes;
    const auto batch = rest.first(count);
    rest = rest.subspan(count);
    return batch;
  }

  /// The five steps at the top of this file.
  void run_batch(std::span<Outgoing> batch) {
    choose_durability(batch);
    in_tasks(batch, &StageOut::write_task);
    sync_partials(batch);
    in_tasks(batch, &StageOut::publish_task);
    remove_partials(batch);
    sync_names(batch);
    progress_.files_done += batch.size();
  }

  /// After a full PFS, when all other partials are gone or have their names: one result at a time, the smallest first,
  /// until one does not fit any more. So as many as can be are saved, and one attempt at most is in vain.
  void use_what_is_left() {
    std::vector<Outgoing*> waiting;
    for (auto& out : outgoing_) {
      if (out.state == Outgoing::State::settled && out.no_room) waiting.push_back(&out);
    }
    // By blocks, since holes take no space; then by path, as all else is.
    std::ranges::stable_sort(waiting, {}, [](const Outgoing* out) { return out->item->attributes.st_blocks; });
    full_ = false;
    progress_.begin(waiting.size(), std::transform_reduce(waiting.begin(), waiting.end(), std::uint64_t{0}, std::plus{}, [](const Outgoing* out) { return out->entry.bytes; }));
    Scratch scratch(options_.transfer_size);
    for (auto* out : waiting) {
      if (full_ || progress_.cancel) break;
      out->state = Outgoing::State::waiting;
      out->no_room = out->partial_left = false;
      out->fsync = true;
      out->entry.reason.clear();
      run_alone({out, 1}, scratch);
    }
  }

  /// The five steps for one result, in this thread.
  void run_alone(std::span<Outgoing> one, Scratch& scratch) {
    guarded(one, [&] {
      write_task(one, scratch);
      publish_task(one, scratch);
    });
    remove_partials(one);
    sync_names(one);
    ++progress_.files_done;
  }

  void choose_durability(std::span<Outgoing> batch) {
    const auto is_small = [](const Outgoing& out) { return out.entry.bytes < fsync_from; };
    const auto small = static_cast<std::size_t>(std::ranges::count_if(batch, is_small));
    const bool each = small < syncfs_from || !pfs_.syncfs_reports_errors();
    for (auto& out : batch) out.fsync = each || !is_small(out);
  }

  /// What `work` throws fails the results of the task.
  static void guarded(std::span<Outgoing> task, const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& exception) {
      for (auto& out : task) {
        if (out.state != Outgoing::State::settled) out.settle(Action::failed, exception.what());
      }
    }
  }

  /// Runs `work` over the batch in pieces of neighbours, in parallel.
  void in_tasks(std::span<Outgoing> batch, void (StageOut::*work)(std::span<Outgoing>, Scratch&)) {
    while (!batch.empty()) {
      std::size_t count = 0;
      for (std::uint64_t bytes = 0; count < batch.size() && count < task_files && bytes < task_bytes; ++count) bytes += batch[count].entry.bytes;
      pool_.submit([this, work, task = batch.first(count)] {
        guarded(task, [&] {
          Scratch scratch(options_.transfer_size);
          (this->*work)(task, scratch);
        });
      });
      batch = batch.subspan(count);
    }
    pool_.drain();
  }

  void write_task(std::span<Outgoing> task, Scratch& scratch) {
    DirectoryCursor cursor(tree_);
    for (auto& out : task) {
      if (full_) {
        out.settle(Action::not_saved, "not tried: no space left in results-dir");
        out.no_room = true;
      } else if (progress_.cancel) {
        out.settle(Action::not_saved, "not tried: cancelled");
      } else {
        const auto started = Clock::now();
        write_one(out, cursor, scratch);
        out.entry.seconds = std::chrono::duration<double>(Clock::now() - started).count();
      }
    }
  }

  void write_one(Outgoing& out, DirectoryCursor& cursor, Scratch& scratch) {
    auto directory = cursor.of(out);
    if (!directory) return give_up(out, directory.error());
    if (replaces_origin(out) && !may_replace(out, *directory, scratch)) return;
    auto written = write_partial(job_of(out, *directory), buffer_, pfs_, scratch, progress_);
    if (!written) return give_up(out, written.error());
    out.file = *written;
    out.entry.checksum = written->checksum;
    if (written->checksum) out.entry.bytes = written->size;
    out.state = Outgoing::State::written;
  }

  static PartialJob job_of(const Outgoing& out, int directory) {
    return {.item = *out.item, .directory = directory, .partial = out.partial, .fsync = out.fsync};
  }

  void give_up(Outgoing& out, const Error& error) {
    note_full(error);
    out.no_room = is_full(error);
    if (error.code == ECANCELED) return out.settle(Action::not_saved, "cancelled");
    out.settle(Action::failed, describe(error));
  }

  bool replaces_origin(const Outgoing& out) const { return in_place_ && out.item->origin.has_value(); }

  /// False where the item is settled instead: a conflict, already out, or not to be compared.
  bool may_replace(Outgoing& out, int directory, Scratch& scratch) {
    auto check = check_version(*out.item, directory, buffer_, pfs_, scratch, progress_.cancel);
    if (!check) {
      give_up(out, check.error());
    } else if (check->version == PfsVersion::same_content) {
      // Its name may not be durable yet: like one just renamed, it waits for step 4.
      out.entry.checksum = check->checksum;
      out.entry.reason = "brought out by an earlier stage-out";
      out.state = Outgoing::State::named;
    } else if (check->version == PfsVersion::other) {
      out.settle(Action::conflict, "it changed on the PFS since it was staged in; the job's version is kept in the buffer only");
    }
    return out.state == Outgoing::State::waiting;
  }

  /// Step 2, for those that were not synced one by one. The descriptor of results_dir is older than the writes, so
  /// an error of their write-back is seen; it does not tell whose it was, so none of them is believed.
  void sync_partials(std::span<Outgoing> batch) {
    const auto waits = [](const Outgoing& out) { return out.state == Outgoing::State::written && !out.fsync; };
    if (std::ranges::none_of(batch, waits)) return;
    auto synced = tree_.sync_all();
    if (synced) return;
    for (auto& out : batch) {
      if (!waits(out)) continue;
      out.partial_left = true;
      give_up(out, {synced.error().code, "making it durable: " + describe(synced.error())});
    }
  }

  /// Of results that failed after their partial was whole.
  void remove_partials(std::span<Outgoing> batch) {
    DirectoryCursor cursor(tree_);
    for (auto& out : batch) {
      if (!out.partial_left) continue;
      if (auto directory = cursor.of(out)) (void)pfs_.unlink(*directory, out.partial);
    }
  }

  void publish_task(std::span<Outgoing> task, Scratch& scratch) {
    DirectoryCursor cursor(tree_);
    for (auto& out : task) {
      if (out.state == Outgoing::State::written) publish_one(out, cursor, scratch);
    }
  }

  void publish_one(Outgoing& out, DirectoryCursor& cursor, Scratch& scratch) {
    auto directory = cursor.of(out);
    if (!directory) {
      out.partial_left = true;
      return give_up(out, directory.error());
    }
    if (replaces_origin(out)) {
      // Again, as late as can be: writing may have taken minutes.
      auto check = check_version(*out.item, *directory, buffer_, pfs_, scratch, progress_.cancel);
      if (!check || check->version == PfsVersion::other) {
        out.partial_left = true;
        if (!check) return give_up(out, check.error());
        return out.settle(Action::conflict, "it changed on the PFS while it was staged out; the job's version is kept in the buffer only");
      }
    }
    if (auto published = publish_partial(job_of(out, *directory), out.file, pfs_); !published) return give_up(out, published.error());
    out.state = Outgoing::State::named;
  }

  /// Steps 4 and 5.
  void sync_names(std::span<Outgoing> batch) {
    std::set<std::string> directories;
    for (const auto& out : batch) {
      if (out.state == Outgoing::State::named) directories.insert(parent_of(out.item->path));
    }
    const Status synced = tree_.sync(directories);
    const std::string doubt = !synced ? describe(synced.error()) : names_not_durable_;
    for (auto& out : batch) {
      if (out.state != Outgoing::State::named) continue;
      if (doubt.empty()) out.settle(Action::staged_out, std::move(out.entry.reason));
      else out.settle(Action::failed, "it is there and whole, but its name may not survive a crash: " + doubt);
    }
  }

  const config::JobConfig& config_;
  Buffer& buffer_;
  PfsIo& pfs_;
  const Options options_;
  Progress& progress_;
  ResultsTree tree_;
  const bool in_place_;
  std::vector<Outgoing> outgoing_;
  std::unordered_set<std::string> failed_directories_;
  std::string names_not_durable_;  // why directories that we made may not survive a crash; "": they will
  std::atomic<bool> full_{false};
  Receipt receipt_;
  ThreadPool pool_;  // last: its threads end before what they use
};

}  // namespace

Receipt stage_out(const config::JobConfig& config, Buffer& buffer, PfsIo& pfs, const Options& options, Progress& progress) {
  Receipt receipt;
  try {
    return StageOut(config, buffer, pfs, options, progress).run();
  } catch (const std::exception& exception) {
    receipt.job = config.name;
    receipt.results_dir = config.results_dir;
    receipt.reason = std::string("stage-out: ") + exception.what();
    receipt.started = receipt.ended = wall_clock();
    settle(receipt);
    return receipt;
  }
}

}  // namespace efs::stage
