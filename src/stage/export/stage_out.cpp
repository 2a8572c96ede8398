// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/stage_out.hpp"

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/log.hpp"
#include "stage/copy/worker_pool.hpp"
#include "stage/export/deletions.hpp"
#include "stage/export/export_context.hpp"
#include "stage/export/export_failures.hpp"
#include "stage/export/export_plan.hpp"
#include "stage/export/leftovers.hpp"
#include "stage/export/outgoing.hpp"
#include "stage/export/removed_inputs.hpp"
#include "stage/export/renaming.hpp"
#include "stage/export/result_attributes.hpp"
#include "stage/export/result_batches.hpp"
#include "stage/export/result_directories.hpp"
#include "stage/export/result_names.hpp"
#include "stage/export/result_publisher.hpp"
#include "stage/export/result_writer.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/export/selection.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/patience.hpp"
#include "stage/pfs/spelling.hpp"
#include "stage/plan/results_dir.hpp"
#include "stage/versions/placed_names.hpp"
#include "stage/versions/version_check.hpp"

// result_batches.hpp has the order for results. Directories are made, durably, before all batches.
// They get their modes and times after the batches, since every rename changes their times and a
// read-only directory accepts no files. A symbolic link cannot be synced by itself: with journalled
// metadata the fsync of its directory covers it. Inputs that the job removed go after all results
// are exported (deletions.hpp), because a renamed input is a result first. Names that another node
// or job has claimed are tried again after all others (finish_held_names()). If the PFS is full,
// the results that did not fit are tried once more after all batches, one at a time:
// use_what_is_left().

namespace efs::stage {
namespace {

constexpr std::size_t looks_in_a_row = 64;  // consecutive names that one thread checks

class StageOut {
 public:
  StageOut(const config::JobConfig& config, ExportSource& buffer, PfsIo& pfs,
           const Options& options, Progress& progress)
      : config_(config),
        buffer_(buffer),
        pfs_(pfs),
        options_(options),
        progress_(progress),
        in_place_(config::has_results_in_place(config)),
        hides_(!in_place_ && options.placed == nullptr && !options.partial_tag.empty()),
        tree_(pfs, options.opened),
        plan_(config, buffer, options_),
        failures_(progress),
        pool_(options.workers, options.processors()),
        context_{.config = config,
                 .buffer = buffer,
                 .pfs = pfs,
                 .tree = tree_,
                 .options = options_,
                 .pool = pool_,
                 .progress = progress,
                 .failures = failures_},
        names_(context_),
        writer_(context_, names_),
        publisher_(context_, names_),
        directories_(context_),
        batches_(context_, writer_, publisher_, directories_),
        deletions_(context_),
        patience_(progress.cancel, *options.pauses) {}

  Receipt run() {
    receipt_.job = config_.name;
    receipt_.results_dir = config_.results_dir;
    receipt_.read_back = config_.verify == config::Verify::read_back;
    receipt_.started = wall_clock();
    progress_.listing = true;
    if (auto items = buffer_.walk()) {
      if (const auto doubt = choose_attributes(config_, *items); !doubt.empty()) {
        tell(doubt);
      }
      if (buffer_.is_at_rest()) {
        look_for_copies(*items);
      }
      auto gone = config_.deletions == config::Deletions::propagate ? buffer_.gone()
                                                                    : std::vector<fs::WalkItem>();
      if (in_place_) {
        record_siblings(*items, gone);
      }
      stage(*items, std::move(gone));
    } else if (progress_.cancel && items.error().code == ECANCELED) {
      receipt_.reason = not_listed();
    } else {
      receipt_.reason = "the buffer cannot be read: " + describe(items.error());
    }
    progress_.listing = true;
    receipt_.ended = wall_clock();
    settle(receipt_);
    return std::move(receipt_);
  }

 private:
  /// A result that did not fit. `first`: the first name of its file; null: it is that.
  struct Retry {
    Outgoing* out = nullptr;
    const Outgoing* first = nullptr;
  };

  std::string not_listed() const {
    return std::string(progress_.time_is_up ? "the deadline passed" : "it was cancelled") +
           " while the files were listed: none was exported, and all are in the buffer";
  }

  /// True if time is up before the first of many files. Naming them all would take as long as
  /// listing them.
  bool gives_up(const std::vector<fs::WalkItem>& items) {
    if (!progress_.cancel || items.size() < fs::many_names) {
      return false;
    }
    receipt_.entries.clear();
    receipt_.reason = not_listed();
    return true;
  }

  /// Marks clean results dirty if results-dir no longer has them, because the buffer has the only
  /// copy. The same applies if the look-up fails, or if another node may have replaced the result.
  void look_for_copies(std::vector<fs::WalkItem>& items) {
    std::vector<fs::WalkItem*> saved;
    for (auto& item : items) {
      if (item.pfs.is_exported()) {
        saved.push_back(&item);
      }
    }
    if (saved.empty() || config_.results_dir.empty()) {
      return;
    }
    progress_.listing = false;
    const auto top = pfs_.open(no_directory, config_.results_dir, directory_flags);
    pool_.run(saved.size(), looks_in_a_row, [&](std::size_t begin, std::size_t end) {
      DirectoryCursor directories([&](const std::string& path) {
        return top ? pfs_.open_beneath(*top, path, passage_flags) : std::unexpected(top.error());
      });
      for (auto* item : std::span(saved).subspan(begin, end - begin)) {
        item->pfs.dirty = !has_copy(*item, directories);
      }
    });
    progress_.listing = true;
  }

  /// False too if that cannot be found out.
  bool has_copy(const fs::WalkItem& item, DirectoryCursor& directories) const {
    try {
      const std::string name = leaf_of(item.path);
      const auto directory = directories.at(parent_of(item.path));
      const auto there =
          directory ? pfs_.lstat(*directory, name) : std::unexpected(directory.error());
      return there && !is_of_another_node(*directory, name, *there, *item.pfs.saved);
    } catch (const std::exception&) {
      return false;
    }
  }

  /// A node that was started after this node's export takes this result for one of an earlier run
  /// and may replace it. (A shared result belongs to no single node; any node's copy is right.)
  bool is_of_another_node(PfsRef directory, const std::string& name, const struct stat& there,
                          const fs::Origin& copy) const {
    return config_.nodes > 1 && copy.ctime != 0 &&
           (!is_copy(there, copy) || options_.publisher->is_shared(pfs_, directory, name, there));
  }

  /// Several names of one file on the PFS that were imported one after the other (by a load) are
  /// separate files in the buffer. Replacing or removing one name on the PFS changes the ctime of
  /// the others, so their ctime must not count.
  static void record_siblings(std::vector<fs::WalkItem>& items, std::vector<fs::WalkItem>& gone) {
    std::map<std::pair<dev_t, ino_t>, std::vector<fs::WalkItem*>> by_origin;
    for (auto* list : {&items, &gone}) {
      for (auto& item : *list) {
        if (item.pfs.origin && S_ISREG(item.attributes.st_mode)) {
          by_origin[{item.pfs.origin->device, item.pfs.origin->inode}].push_back(&item);
        }
      }
    }
    for (const auto& [origin, siblings] : by_origin) {
      for (auto* item : siblings) {
        item->pfs.linked = item->pfs.linked || siblings.size() > 1;
      }
    }
  }

  void stage(const std::vector<fs::WalkItem>& items, std::vector<fs::WalkItem> gone) {
    if (gives_up(items)) {
      return;
    }
    Selection selection = select_outgoing(config_, items, options_.by_rank);
    if (gives_up(items)) {
      return;
    }
    receipt_.entries = std::move(selection.settled);
    refuse_overwritten(items);
    list_outgoing(std::move(selection.outgoing), items);
    if (gives_up(items)) {
      return;
    }
    progress_.listing = false;
    auto removed = deletions_.due(removed_inputs(config_, std::move(gone)));
    add(deletions_.leave(take_dropped(config_, items, removed)));
    reserve(removed);
    // Even if nothing is exported, because the receipt is written there.
    if (config_.results_dir.empty() && !plan_.has_firsts() && selection.directories.empty() &&
        removed.empty()) {
      return;
    }
    if (open_tree(selection.directories, removed)) {
      make_directories(selection.directories, items, removed);
      export_results();
      remove_inputs(removed);
      add(directories_.finish(selection.directories, patience_));
      close_tree();
    } else {
      leave_all(selection.directories, removed);
    }
    list_outcomes();
  }

  void make_directories(const std::vector<DirectoryToMake>& directories,
                        const std::vector<fs::WalkItem>& items,
                        const std::vector<fs::WalkItem>& removed) {
    revoke(directories);
    if (options_.has_a_past) {
      clear_leftovers(items, removed);
    }
    tree_.make_only_hidden(options_.sets);
    if (hides_) {
      hide(directories, items);
    }
    add(directories_.make(directories));
    refuse_sets();
    // if an earlier attempt failed
    if (options_.has_a_past && tree_.has_let_in()) {
      clear_leftovers(items, removed);
    }
  }

  void hide(const std::vector<DirectoryToMake>& directories,
            const std::vector<fs::WalkItem>& items) {
    auto hidden = plan_.well_filled(directories);
    for (const auto& set : options_.sets) {
      std::erase_if(hidden, [&](const auto& path) { return path.starts_with(set + "/"); });
      if (plan_.can_hide(set)) {
        clear_set(set, items);
        hidden.insert(set);
      }
    }
    tree_.hide(std::move(hidden), options_.partial_tag);
  }

  /// Removes what an earlier attempt has left of it.
  void clear_set(const std::string& set, const std::vector<fs::WalkItem>& items) {
    const std::string above = parent_of(set);
    const auto directory = tree_.directory(above);
    if (directory && pfs_.lstat(*directory, partial_name(leaf_of(set), options_.partial_tag))) {
      (void)remove_leftovers({above}, items, context_);
    }
  }

  /// Settles the results of sets that could not be hidden.
  void refuse_sets() {
    for (const auto& set : options_.sets) {
      if (tree_.is_hidden(set)) {
        continue;
      }
      plan_.for_each([&](Outgoing& out) {
        if (out.item->path.starts_with(set + "/") && out.is<outgoing::Waiting>()) {
          out.settle(
              Action::conflict,
              "its directory goes whole or not at all, and results-dir has the directory, or "
              "it cannot be hidden: the stop exports it");
        }
      });
    }
  }

  void export_results() {
    batches_.run(plan_.apart_from_twins());
    directories_.show_hidden();
    run_twins();
    link_names();
    finish_held_names();
    if (failures_.full() && !progress_.cancel) {
      use_what_is_left();
    }
  }

  /// Restores what was opened, and reports what could not be restored.
  void close_tree() {
    for (const auto& path : tree_.left()) {
      tell("left in results-dir, for it could not be removed: " + path);
    }
    if (const Status shut = tree_.restore_access(); !shut) {
      receipt_.reason = describe(shut.error());
    }
    if (tree_.was_moved(config_.results_dir)) {
      receipt_.reason = "results-dir " + config_.results_dir +
                        " was moved away or replaced meanwhile: the listed results are in the "
                        "directory that had its name";
    }
  }

  /// If results-dir cannot be opened.
  void leave_all(const std::vector<DirectoryToMake>& directories,
                 const std::vector<fs::WalkItem>& removed) {
    add(deletions_.refuse(removed, receipt_.reason));
    plan_.for_each([&](Outgoing& out) { out.settle(Action::not_saved, receipt_.reason); });
    add(ResultDirectories::leave(directories, receipt_.reason));
  }

  void list_outcomes() {
    std::size_t not_tried = 0;
    plan_.for_each([&](Outgoing& out) {
      const std::size_t most = progress_.time_is_up ? options_.most_not_tried : SIZE_MAX;
      add_or_count(receipt_, std::move(out.entry), not_tried, most);
    });
  }

  void tell(const std::string& note) {
    receipt_.note += (receipt_.note.empty() ? "" : "; ") + note;
  }

  void add(std::vector<ReceiptEntry> entries) {
    for (auto& entry : entries) {
      receipt_.entries.push_back(std::move(entry));
    }
  }

  /// Last: a renamed file is a result under its new name, and must be exported before the old name
  /// is removed.
  void remove_inputs(const std::vector<fs::WalkItem>& removed) {
    const auto is_back = [](Action action) {
      return action != Action::failed && action != Action::conflict && action != Action::not_saved;
    };
    bool all = std::ranges::all_of(receipt_.entries, is_back, &ReceiptEntry::action);
    plan_.for_each([&](const Outgoing& out) { all = all && is_back(out.entry.action); });
    add(all ? deletions_.carry_out(removed, patience_)
            : deletions_.refuse(removed, "not all results are exported", ECANCELED));
  }

  void list_outgoing(std::vector<const fs::WalkItem*> items, const std::vector<fs::WalkItem>& all) {
    reserve(all);
    plan_.list(std::move(items), all);
    progress_.begin(plan_.size(), plan_.bytes());
  }

  /// Reserves the names of the job's files and removed inputs, so that keep-both does not choose
  /// them.
  void reserve(const std::vector<fs::WalkItem>& items) {
    for (const auto& item : items) {
      if (leaf_of(item.path).contains(".efs-" + config_.name)) {
        names_.reserve(item);
      }
    }
  }

  /// Revokes these names from files that were exported under them and have other names now: such a
  /// file may get the name back.
  void revoke(const std::vector<DirectoryToMake>& directories) {
    const auto still =
        buffer_.revoke(plan_.names_to_give(directories), fs::Side::both, result_names(config_));
    if (still.empty()) {
      return;
    }
    plan_.for_each([&](Outgoing& out) {
      if (const auto why = still.find(out.item->path);
          why != still.end() && out.is<outgoing::Waiting>() && why->second.code != EROFS) {
        out.settle(Action::failed, "recording what it replaces: " + describe(why->second));
      }
    });
  }

  /// Refuses items whose copy already has such a name.
  void refuse_overwritten(const std::vector<fs::WalkItem>& items) {
    for (const auto& item : items) {
      const std::string file = item.pfs.is_exported() ? plan_.own_file(item.path) : "";
      const auto entry = file.empty()
                             ? receipt_.entries.end()
                             : std::ranges::find(receipt_.entries, item.path, &ReceiptEntry::path);
      if (entry == receipt_.entries.end()) {
        continue;
      }
      entry->action = Action::failed;
      entry->reason = file +
                      " has this name, and replaces the exported file: give the "
                      "result another one, or export it elsewhere with efs salvage --to";
    }
  }

  bool open_tree(const std::vector<DirectoryToMake>& directories,
                 const std::vector<fs::WalkItem>& removed) {
    const auto is_used = [&](const std::string& mount) {
      return plan_.uses(mount, directories, removed);
    };
    if (config_.results_dir.empty()) {
      receipt_.reason = "the job file names no results-dir";
    } else if (const Status mounted = check_mounted(config_, pfs_); !mounted) {
      receipt_.reason = describe(mounted.error());
    } else if (const Status below = check_mounted_below(config_, pfs_, is_used); !below) {
      receipt_.reason = describe(below.error());
    } else if (auto opened = tree_.open(config_.results_dir); !opened) {
      failures_.record_full(opened.error());
      receipt_.reason = describe(opened.error());
    }
    return receipt_.reason.empty();
  }

  /// Runs first, because leftovers take space. Covers all present and removed directories of the
  /// buffer, exported or not.
  void clear_leftovers(const std::vector<fs::WalkItem>& items,
                       const std::vector<fs::WalkItem>& removed) {
    std::set<std::string, std::less<>> directories{""};
    for (const auto* list : {&items, &removed}) {
      for (const auto& item : *list) {
        if (const auto parent = parent_view(item.path); !directories.contains(parent)) {
          directories.emplace(parent);
        }
      }
      for (const auto& item : *list) {
        if (S_ISDIR(item.attributes.st_mode)) {
          directories.insert(item.path);
        }
      }
    }
    auto cleared = remove_leftovers(directories, items, context_);
    if (cleared.removed > 0) {
      log::info(
          "event=leftovers_removed partials={} results_dir=\"{}\" reason=\"of a transfer that was "
          "killed\"",
          cleared.removed, config_.results_dir);
    }
    for (const auto& path : cleared.left) {
      if (told_.insert(path).second) {
        tell("left in results-dir, for another process has put a file in it: " + path);
      }
    }
  }

  void run_twins() {
    const auto twins = plan_.twins();
    if (!twins.empty()) {
      finish_held_results();
    }
    for (auto& out : twins) {
      batches_.run({&out, 1});
      finish_held_results();
    }
  }

  /// Exports the further names of files after all first names are settled. If the PFS cannot link,
  /// each becomes a separate file.
  void link_names() {
    const auto all = plan_.further_names();
    std::size_t single = 0;  // results to write are moved to the front
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (publisher_.link(all[i], plan_.first_of(i))) {
        continue;
      }
      plan_.swap_further_names(single++, i);
    }
    batches_.sync_names(all.subspan(single));
    progress_.files_done += all.size() - single;
    batches_.run(all.first(single));
  }

  /// Retries names that other nodes or jobs have claimed, until they are resolved or make no
  /// progress. Then exports the further names of these files.
  void finish_held_names() {
    finish_held_results();
    const auto waits = [](const Outgoing& out) {
      return out.is<outgoing::Waiting>();
    };
    const auto further_names = plan_.further_names();
    while (std::ranges::any_of(further_names, waits)) {
      for (std::size_t i = 0; i < further_names.size(); ++i) {
        if (auto& out = further_names[i]; waits(out) && !publisher_.link(out, plan_.first_of(i))) {
          --progress_.files_done;  // link_names() has counted it
          batches_.run({&out, 1});
        }
      }
      batches_.sync_names(further_names);
      const auto held = held_names<outgoing::Waiting>();
      if (!held.empty() && !patience_.wait(claims_to(held))) {
        batches_.finish(held, false);
      }
    }
    finish_held_results();  // some of them were written after all
  }

  void finish_held_results() {
    for (auto held = held_names<outgoing::Written>(); !held.empty();
         held = held_names<outgoing::Written>()) {
      batches_.finish(held, patience_.wait(claims_to(held)));
    }
  }

  template <typename State>
  std::vector<Outgoing*> held_names() {
    std::vector<Outgoing*> held;
    plan_.for_each([&](Outgoing& out) {
      if (out.is<State>() && !out.held().empty()) {
        held.push_back(&out);
      }
    });
    return held;
  }

  static std::vector<std::string> claims_to(const std::vector<Outgoing*>& held) {
    std::vector<std::string> claims;
    for (const auto* out : held) {
      claims.push_back(out->held());
    }
    return claims;
  }

  /// After a full PFS, when all other partials are removed or named: exports one result at a time,
  /// the smallest first, until one does not fit. That saves as many results as possible with at
  /// most one failed attempt.
  void use_what_is_left() {
    auto retries = results_without_room();
    const auto sum = [](std::uint64_t bytes, const Retry& retry) {
      return bytes + retry.out->data;
    };
    const auto bytes = std::accumulate(retries.begin(), retries.end(), std::uint64_t{0}, sum);
    // with the first name of each: a link takes almost no space
    const auto further_names = plan_.further_names();
    for (std::size_t i = 0; i < further_names.size(); ++i) {
      if (is_without_room(further_names[i])) {
        retries.push_back({.out = &further_names[i], .first = &plan_.first_of(i)});
      }
    }
    failures_.forget_full();
    progress_.begin(retries.size(), bytes);
    for (const auto& retry : retries) {
      if (failures_.full() || progress_.cancel) {
        break;
      }
      batches_.try_again(*retry.out, retry.first);
    }
    finish_held_names();
  }

  static bool is_without_room(const Outgoing& out) {
    const auto* settled = std::get_if<outgoing::Settled>(&out.state);
    return settled != nullptr && settled->no_room;
  }

  /// The first names, in the order of use_what_is_left().
  std::vector<Retry> results_without_room() {
    std::vector<Retry> retries;
    for (auto& out : plan_.firsts()) {
      if (is_without_room(out)) {
        retries.push_back({.out = &out});
      }
    }
    // By blocks, since holes take no space; then by path.
    std::ranges::stable_sort(
        retries, {}, [](const Retry& retry) { return retry.out->item->attributes.st_blocks; });
    return retries;
  }

  const config::JobConfig& config_;
  ExportSource& buffer_;
  PfsIo& pfs_;
  Options options_;
  Progress& progress_;
  const bool in_place_;
  // false if other nodes or jobs may export to the same directories, whose names need a check each,
  // or if hidden directories could not be recognised as this store's
  const bool hides_;
  ResultsTree tree_;
  ExportPlan plan_;
  Receipt receipt_;
  std::set<std::string> told_;  // leftovers that stay
  ExportFailures failures_;
  WorkerPool pool_;
  const ExportContext context_;
  ResultNames names_;
  ResultWriter writer_;
  ResultPublisher publisher_;
  ResultDirectories directories_;
  ResultBatches batches_;
  Deletions deletions_;
  Patience patience_;
};

}  // namespace

Receipt stage_out(const config::JobConfig& config, ExportSource& buffer, PfsIo& pfs,
                  const Options& options, Progress& progress) {
  try {
    if (!config::renames_results(config)) {
      return StageOut(config, buffer, pfs, options, progress).run();
    }
    RenamingBuffer renaming(config, buffer);
    Receipt receipt = StageOut(config, renaming, pfs, options, progress).run();
    renaming.give_names_back(receipt);
    return receipt;
  } catch (const std::exception& exception) {
    return failed_receipt(config, std::string("stage-out: ") + exception.what());
  }
}

}  // namespace efs::stage
