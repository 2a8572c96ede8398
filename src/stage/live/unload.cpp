// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/unload.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <set>
#include <thread>

#include "base/text.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/export/selection.hpp"
#include "stage/export/stage_out.hpp"
#include "stage/live/live_transfer.hpp"
#include "stage/live/names.hpp"
#include "stage/live/part_writer.hpp"
#include "stage/live/unload_buffer.hpp"
#include "stage/resume/resume.hpp"
#include "stage/versions/copy_version.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::stage {
namespace {

// How long the kernel may delay the RELEASE after a program's close.
constexpr auto closing_time = std::chrono::milliseconds(500);
constexpr auto closing_step = std::chrono::milliseconds(10);
constexpr const char* busy_text =
    "a program has it open for writing; close it, or unload it as it is with --as-is";
constexpr const char* unproved_text =
    "nothing proves that no program has it mapped for writing while others have it open; unload it "
    "as it is with --as-is";

/// True if the file is in results-dir, or known to be on the PFS.
bool is_there(Action action) {
  return action == Action::staged_out || action == Action::kept || action == Action::unchanged;
}

class Unload : LiveTransfer {
 public:
  Unload(const LiveArguments& with, const UnloadRequest& request)
      : LiveTransfer(with),
        publisher_(*options_.publisher),
        request_(request),
        in_place_(config::has_results_in_place(config_)),
        buffer_(staging_, request.as_is, in_place_) {}

  Receipt run() {
    const Nanoseconds started = wall_clock();
    if (config_.results_dir.empty()) {
      receipt_.reason = "the job file names no results-dir";
    } else if (has_turn()) {
      choose();
      prove();
      refuse_parts_of_sets();
      receipt_.read_back = config_.verify == config::Verify::read_back;
      if (request_.part.whole()) {
        copy_all();
      } else {
        copy_part_of_one();
      }
    }
    receipt_.job = config_.name;
    receipt_.results_dir = config_.results_dir;
    receipt_.started = started;
    receipt_.ended = wall_clock();
    settle(receipt_);
    return std::move(receipt_);
  }

 private:
  void refuse(const std::string& path, int code, std::string reason, std::uint64_t bytes = 0) {
    ReceiptEntry entry;
    entry.path = path;
    entry.code = code;
    entry.bytes = bytes;
    entry.reason = std::move(reason);
    receipt_.entries.push_back(std::move(entry));
  }

  /// Waits before it reads any state that the wait would make stale.
  bool has_turn() {
    if (!options_.wait_for_turn) {
      return true;
    }
    std::uint64_t bytes = 0;
    for (const auto& name : request_.names) {
      bytes += request_.are_paths ? bytes_of_path(name) : bytes_meant(name);
    }
    const Status turn = wait_for_turn(bytes);
    if (!turn) {
      receipt_.reason = describe(turn.error());
    }
    return turn.has_value();
  }

  static std::uint64_t bytes_to_copy(const fs::WalkItem& item) {
    return needs_proof(item) && S_ISREG(item.attributes.st_mode) ? data_of(item.attributes) : 0;
  }

  std::uint64_t bytes_of_path(const std::string& path) {
    const auto item = staging_.find(path);
    return item ? bytes_to_copy(*item) : 0;
  }

  std::uint64_t bytes_meant(const std::string& name) {
    std::uint64_t bytes = 0;
    if (const auto items = items_meant(name)) {
      for (const auto& item : *items) {
        bytes += bytes_to_copy(item);
      }
    }
    return bytes;
  }

  /// Collects the requested items, each once.
  void choose() {
    if (request_.are_paths) {
      return choose_paths();
    }
    for (const auto& name : request_.names) {
      auto items = items_meant(name);
      if (!items) {
        refuse(name.empty() ? "." : name, items.error().code, describe(items.error()));
        continue;
      }
      for (auto& item : *items) {
        chosen_.try_emplace(item.path, std::move(item));
      }
    }
  }

  /// All at once: a look at a new file compares it with all inodes.
  void choose_paths() {
    auto items = staging_.look(request_.names);
    if (!items) {
      return refuse(".", items.error().code, describe(items.error()));
    }
    auto meant = request_.results_only ? results_of(std::move(*items)) : std::move(*items);
    for (auto& item : meant) {
      chosen_.try_emplace(item.path, std::move(item));
    }
  }

  Result<std::vector<fs::WalkItem>> items_meant(const std::string& name) {
    auto items = items_of(staging_, name);
    return items && request_.results_only ? results_of(std::move(*items)) : items;
  }

  std::vector<fs::WalkItem> results_of(std::vector<fs::WalkItem> items) const {
    const Selection selection = select_outgoing(config_, items);
    std::set<const fs::WalkItem*> results(selection.outgoing.begin(), selection.outgoing.end());
    for (const auto& directory : selection.directories) {
      if (directory.reported) {
        results.insert(directory.item);
      }
    }
    std::set<std::string_view> unreadable;  // listed, although no export can succeed
    for (const auto& entry : selection.settled) {
      if (entry.unreadable && entry.action == Action::failed) {
        unreadable.insert(entry.path);
      }
    }
    std::vector<fs::WalkItem> kept;
    for (auto& item : items) {
      if (results.contains(&item) || unreadable.contains(item.path)) {
        kept.push_back(std::move(item));
      }
    }
    return kept;
  }

  static bool is_booked(const fs::WalkItem& item) {
    return S_ISREG(item.attributes.st_mode) || S_ISLNK(item.attributes.st_mode);
  }

  static bool needs_proof(const fs::WalkItem& item) {
    return is_booked(item) && item.due_for_export() && item.content.unreadable.empty();
  }

  /// Proves before it reads the attributes for the copy: a file without writers from here on has
  /// these attributes.
  void prove() {
    refuse_unproved(unproved_items());
    renew_attributes();
  }

  /// Waits for the writers of the chosen items to close them. Returns the items that have no proof
  /// in the end.
  std::vector<fs::WalkItem*> unproved_items() {
    std::vector<fs::WalkItem*> waiting;
    for (auto& [path, item] : chosen_) {
      if (needs_proof(item)) {
        waiting.push_back(&item);
      }
    }
    const auto deadline = std::chrono::steady_clock::now() + closing_time;
    while (!waiting.empty()) {
      std::erase_if(waiting, [&](fs::WalkItem* item) { return quiet(*item); });
      if (waiting.empty() || progress_.cancel || std::chrono::steady_clock::now() >= deadline) {
        break;
      }
      std::this_thread::sleep_for(closing_step);
    }
    return waiting;
  }

  /// Drops these items from the chosen ones, unless the request takes them as they are.
  void refuse_unproved(const std::vector<fs::WalkItem*>& unproved) {
    for (auto* item : unproved) {
      const Proof* proof = buffer_.proof_of(item->ino);
      if (request_.as_is) {
        staging_.write_back(item->ino);
      } else {
        refuse(item->path, EBUSY, proof == nullptr ? "vanished" : proof->doubt,
               static_cast<std::uint64_t>(item->attributes.st_size));
        chosen_.erase(std::string(item->path));
      }
    }
  }

  /// True if a program has added a result to the set since the request, as during a long wait for
  /// the turn.
  bool has_grown(const std::string& set) {
    auto items = staging_.walk(set);
    return items && std::ranges::any_of(results_of(std::move(*items)), [&](const auto& item) {
             return !S_ISDIR(item.attributes.st_mode) && !chosen_.contains(item.path);
           });
  }

  /// Drops the files of a set if any of them does not go.
  void refuse_parts_of_sets() {
    for (const auto& set : request_.sets) {
      const auto is_missing = [&](const std::string& name) {
        return name.starts_with(set + "/") && !chosen_.contains(name) && staging_.find(name);
      };
      if (std::ranges::none_of(request_.names, is_missing) && !has_grown(set)) {
        continue;
      }
      for (auto it = chosen_.lower_bound(set + "/");
           it != chosen_.end() && it->first.starts_with(set + "/"); it = chosen_.erase(it)) {
        refuse(it->first, EBUSY, "its directory goes whole or not at all, and a file of it cannot",
               static_cast<std::uint64_t>(it->second.attributes.st_size));
      }
    }
  }

  /// Reads the attributes for the copy.
  void renew_attributes() {
    for (auto& [path, item] : chosen_) {
      if (!needs_proof(item)) {
        continue;
      }
      auto now = staging_.find(path);
      if (!now || now->ino != item.ino) {
        continue;
      }
      // Only a walk knows this value.
      now->keep = item.keep;
      now->keep_path = item.keep_path;
      now->pfs.replaced = std::move(item.pfs.replaced);
      item = std::move(*now);
    }
  }

  bool quiet(const fs::WalkItem& item) {
    if (S_ISLNK(item.attributes.st_mode)) {
      return quiet_link(item);
    }
    const auto writers = staging_.writers(item.ino);
    if (!writers) {
      return false;
    }
    buffer_.expect(item.ino, {.path = item.path,
                              .edits = writers->edits,
                              .quiet = !writers->possible,
                              .doubt = !writers->possible  ? ""
                                       : writers->open > 0 ? busy_text
                                                           : unproved_text});
    return !writers->possible;
  }

  /// A symbolic link has no content to write: only its attributes and names can change.
  bool quiet_link(const fs::WalkItem& item) {
    const auto edits = staging_.edits(item.ino);
    if (edits) {
      buffer_.expect(item.ino, {.path = item.path, .edits = *edits, .quiet = true, .doubt = ""});
    }
    return edits.has_value();
  }

  /// stage_out() over the chosen items, with the directories above them.
  void copy_all() {
    std::map<std::string, fs::WalkItem> items = chosen_;
    for (auto& [path, item] : items) {
      item.keep = fs::Keep::persistent;
    }
    for (const auto& [path, item] : chosen_) {
      for (std::string above = parent_of(path); !above.empty() && !items.contains(above);
           above = parent_of(above)) {
        auto directory = staging_.find(above);
        if (!directory) {
          break;
        }
        directory->keep = fs::Keep::temporary;  // only a parent, not a result
        items.emplace(above, std::move(*directory));
      }
    }
    for (auto& [path, item] : items) {
      buffer_.items.push_back(std::move(item));
    }
    Options how = options_;
    for (const auto& set : request_.sets) {
      if (const auto first = chosen_.lower_bound(set + "/");
          first != chosen_.end() && first->first.starts_with(set + "/")) {
        how.sets.push_back(set);
        how.batch_bytes = UINT64_MAX;
      }
    }
    Receipt done = stage_out(config_, buffer_, pfs_, how, progress_);
    receipt_.reason = done.reason;
    disown_late(done);
    for (auto& entry : done.entries) {
      if (!chosen_.contains(entry.path) && entry.action == Action::dropped) {
        continue;
      }
      finish(entry);
      receipt_.entries.push_back(std::move(entry));
    }
  }

  /// Revokes the names from files that got them during the copy by a rename or a load: results-dir
  /// has another file there.
  void disown_late(Receipt& done) {
    std::vector<fs::PfsName> names;
    for (const auto& entry : done.entries) {
      const std::string name = config::result_path(config_, entry.path);
      const auto item = chosen_.find(entry.path);
      if (item == chosen_.end() || entry.action != Action::staged_out ||
          (!entry.placed_as.empty() && entry.placed_as != name)) {
        continue;
      }
      if (auto version = version_below(pfs_, publisher_, config_.results_dir, name)) {
        names.push_back({.path = name, .version = *version, .by = item->second.ino});
      }
    }
    const auto still = staging_.revoke(names, fs::Side::both, result_names(config_));
    for (auto& entry : done.entries) {
      if (const auto why = still.find(config::result_path(config_, entry.path));
          why != still.end()) {
        append(entry.reason,
               "another file that had this name may count as exported: " + describe(why->second));
      }
    }
  }

  /// Marks the entry's file as clean, unverified or removed.
  void finish(ReceiptEntry& entry) {
    const auto chosen = chosen_.find(entry.path);
    if (chosen == chosen_.end() || !is_there(entry.action)) {
      return;
    }
    const fs::WalkItem& item = chosen->second;
    if (entry.action != Action::unchanged && is_booked(item)) {
      mark(entry, item);
    }
    if (!request_.remove || !S_ISREG(item.attributes.st_mode)) {
      return;
    }
    const Status there = entry.action == Action::unchanged ? still_there(item) : Status();
    const Status removed = there ? staging_.remove_clean(entry.path) : there;
    append(entry.reason,
           removed ? removed_from_buffer : "kept in the buffer: " + describe(removed.error()));
  }

  static void append(std::string& reason, const std::string& more) {
    reason += (reason.empty() ? "" : "; ") + more;
  }

  void mark(ReceiptEntry& entry, const fs::WalkItem& item) {
    // exported under another name by an output rule: the records under this name stay valid
    if (!item.due_for_export()) {
      return;
    }
    const Proof* proof = buffer_.proof_of(item.ino);
    if (proof == nullptr || !proof->doubt.empty()) {
      entry.unverified = true;
      return append(entry.reason, "copied as it was, unverified" +
                                      (proof == nullptr ? std::string() : ": " + doubt_of(*proof)));
    }
    const std::string name = config::result_path(config_, item.path);
    // Another version has its name on the PFS: a stop must handle the file again.
    if (!entry.placed_as.empty() && entry.placed_as != name) {
      return append(entry.reason, "still marked as changed");
    }
    const auto clean = mark_clean(item, name, *proof);
    // The copy is valid: it was whole when it was made.
    if (!clean) {
      append(entry.reason, "still marked as changed: " + describe(clean.error()));
    } else if (!*clean) {
      append(entry.reason,
             "still marked as changed: it was opened for writing or renamed after it was copied");
    }
  }

  /// Marks the file as clean, with the version of its copy `name`. False if a program has opened or
  /// renamed it since it was copied.
  Result<bool> mark_clean(const fs::WalkItem& item, const std::string& name, const Proof& proof) {
    const bool is_renamed = name != item.path;
    const auto copy = is_renamed ? version_of_renamed(item, name) : version_of_copy(item);
    if (!copy) {
      return std::unexpected(copy.error());
    }
    return staging_.set_saved(item.ino, item.path, proof.edits,
                              {.version = *copy,
                               .in_place = in_place_ && !is_renamed,
                               .replaced = item.pfs.replaced.get()});
  }

  static std::string doubt_of(const Proof& proof) {
    return proof.doubt == busy_text       ? "a program has it open for writing"
           : proof.doubt == unproved_text ? "it may be mapped for writing"
                                          : proof.doubt;
  }

  /// A clean file is removed only while the PFS has its source or copy.
  Status still_there(const fs::WalkItem& item) {
    const auto& known = item.pfs.on_pfs();
    if (!known) {
      return fail(EBUSY, "the buffer may have the only copy");
    }
    auto now = item.pfs.saved ? version_below(pfs_, publisher_, config_.results_dir,
                                              config::result_path(config_, item.path))
                              : version_below(pfs_, publisher_, config_.root_dir,
                                              config::source_of(config_, item.path));
    const bool same = now && now->inode == known->inode && now->device == known->device &&
                      now->size == known->size && now->mtime == known->mtime;
    return same ? Status() : fail(ESTALE, "the PFS does not have this version any more");
  }

  /// The present version in results-dir under the item's name. ESTALE if another process has
  /// replaced the copy since.
  Result<fs::Origin> version_of_copy(const fs::WalkItem& item) {
    const auto named = buffer_.version_of(item.path);
    auto now = version_below(pfs_, publisher_, config_.results_dir, item.path);
    if (now && !named) {
      return fail(ESTALE, "the version of its copy was not recorded");
    }
    if (now && !fs::is_same_file(*named, *now)) {
      return fail(ESTALE, "it has changed in results-dir");
    }
    return now;
  }

  /// The same for a result that an output rule renames; no version was recorded when it got its
  /// name.
  Result<fs::Origin> version_of_renamed(const fs::WalkItem& item, const std::string& name) {
    auto now = version_below(pfs_, publisher_, config_.results_dir, name);
    const auto& ours = item.attributes;
    const bool same = !now || !S_ISREG(ours.st_mode) ||
                      (now->size == static_cast<std::uint64_t>(ours.st_size) &&
                       same_or_coarser(to_timespec(now->mtime), ours.st_mtim));
    return same ? now : fail(ESTALE, "it has changed in results-dir");
  }

  void copy_part_of_one() {
    if (chosen_.size() != 1 || !S_ISREG(chosen_.begin()->second.attributes.st_mode)) {
      if (!receipt_.entries.empty()) {
        return;
      }
      return refuse(request_.names.empty() ? "" : request_.names.front(), EINVAL,
                    "a part can be unloaded of one regular file only");
    }
    const fs::WalkItem& item = chosen_.begin()->second;
    if (const auto name = config::result_path(config_, item.path); name != item.path) {
      return refuse(item.path, EINVAL,
                    "in results-dir it is called " + name + ": unload all of it");
    }
    ReceiptEntry entry;
    entry.path = item.path;
    entry.mtime = to_ns(item.attributes.st_mtim);
    const auto written = PartWriter({.config = config_,
                                     .staging = staging_,
                                     .pfs = pfs_,
                                     .options = options_,
                                     .progress = progress_},
                                    buffer_)
                             .write(item, request_.part, entry);
    if (written) {
      entry.action = Action::staged_out;
      entry.bytes = written->length;
      entry.reason = "bytes " + std::to_string(written->offset) + " to " +
                     std::to_string(written->offset + written->length) + entry.reason;
      if (const Proof* proof = buffer_.proof_of(item.ino);
          proof != nullptr && !proof->doubt.empty()) {
        entry.unverified = true;
        append(entry.reason, "copied as it was, unverified: " + doubt_of(*proof));
      }
    } else {
      entry.code = written.error().code;
      entry.reason = describe(written.error());
    }
    receipt_.entries.push_back(std::move(entry));
  }

  Publisher& publisher_;
  const UnloadRequest& request_;
  const bool in_place_;
  UnloadBuffer buffer_;
  std::map<std::string, fs::WalkItem> chosen_;
  Receipt receipt_;
};

}  // namespace

namespace {

/// True for an entry with which everything went as it was asked for.
bool is_as_asked(const ReceiptEntry& entry) {
  return is_there(entry.action) && !entry.unverified &&
         entry.reason.find("kept in the buffer") == std::string::npos &&
         entry.reason.find("still marked") == std::string::npos;
}

/// A line for each of the first entries that people must know of, and the number of the others.
std::string lines_of_note(const Receipt& receipt) {
  constexpr std::size_t most_lines = 20;
  std::string names;
  std::size_t named = 0;
  for (const auto& entry : receipt.entries) {
    if (is_as_asked(entry) || ++named > most_lines) {
      continue;
    }
    names += "  " + std::string(name_of(entry.action)) + ": " + escaped(entry.path) +
             (entry.reason.empty() ? "" : ": " + printable(entry.reason)) + "\n";
  }
  if (named > most_lines) {
    names += "  ... and " + std::to_string(named - most_lines) + " more\n";
  }
  return names;
}

}  // namespace

std::string describe_unload(const Receipt& receipt) {
  const auto unverified = std::ranges::count_if(receipt.entries, &ReceiptEntry::unverified);
  const auto& totals = receipt.totals;
  std::string text = std::to_string(totals.staged_out) + " unloaded (" +
                     format_bytes(totals.bytes_staged_out) + ") to " +
                     escaped(receipt.results_dir) + ", " + std::to_string(totals.unchanged) +
                     " unchanged";
  if (totals.kept > 0) {
    text += ", " + std::to_string(totals.kept) + " kept";
  }
  if (unverified > 0) {
    text += ", " + std::to_string(unverified) + " of them unverified";
  }
  if (const auto lost = totals.failed + totals.conflict + totals.not_saved; lost > 0) {
    text += ", " + std::to_string(lost) + " failed";
  }
  return text + "\n" + (receipt.reason.empty() ? "" : "  " + printable(receipt.reason) + "\n") +
         lines_of_note(receipt);
}

int error_code(const Receipt& receipt) {
  for (const auto& entry : receipt.entries) {
    if (entry.action == Action::failed) {
      return entry.code != 0 ? entry.code : EIO;
    }
    if (entry.action == Action::conflict) {
      return ESTALE;
    }
    if (entry.action == Action::not_saved) {
      return ENOSPC;
    }
  }
  return receipt.reason.empty() ? 0 : EIO;
}

Receipt unload(const LiveArguments& with, const UnloadRequest& request) {
  try {
    return Unload(with, request).run();
  } catch (const std::exception& exception) {
    return failed_receipt(with.config, std::string("unload: ") + exception.what());
  }
}

}  // namespace efs::stage
