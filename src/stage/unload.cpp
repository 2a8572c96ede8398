#include "stage/unload.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <thread>

#include "base/text.hpp"
#include "fs/acl.hpp"
#include "stage/input_guard.hpp"
#include "stage/merge.hpp"
#include "stage/name_claim.hpp"
#include "stage/names.hpp"
#include "stage/partial.hpp"
#include "stage/patience.hpp"
#include "stage/placed_names.hpp"
#include "stage/resume.hpp"
#include "stage/results_tree.hpp"
#include "stage/selection.hpp"
#include "stage/stage_out.hpp"
#include "stage/unload_buffer.hpp"

namespace efs::stage {
namespace {

constexpr const char* changed_meanwhile = "somebody changed it in results-dir while the part was laid over it; the job's version is kept in the buffer only";

// How long a close may take to be told to us: the kernel sends it behind the program's back.
constexpr auto closing_time = std::chrono::milliseconds(500);
constexpr auto closing_step = std::chrono::milliseconds(10);
constexpr const char* busy_text = "a program has it open for writing; close it, or unload it as it is with --as-is";
constexpr const char* from_before_text = "a program may have it open for writing since before the daemon was replaced; unload it as it is with --as-is";
constexpr const char* unproved_text = "nothing proves that no program has it mapped for writing while others have it open; unload it as it is with --as-is";

/// At results-dir, or known to be on the PFS.
bool is_there(Action action) { return action == Action::staged_out || action == Action::kept || action == Action::unchanged; }

class Unload {
 public:
  Unload(const config::JobConfig& config, const UnloadRequest& request, fs::Staging& staging, PfsIo& pfs, const Options& options, Progress& progress)
      : config_(config), request_(request), staging_(staging), pfs_(pfs), options_(options), progress_(progress),
        in_place_(config::has_results_in_place(config)), buffer_(staging, request.as_is, in_place_) {}

  Receipt run() {
    const Nanoseconds started = wall_clock();
    if (config_.results_dir.empty()) {
      receipt_.reason = "the job file names no results-dir";
    } else if (has_turn()) {
      choose();
      prove();
      receipt_.read_back = config_.verify == config::Verify::read_back;
      if (request_.part.whole()) copy_all();
      else copy_part_of_one();
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

  /// Before anything is looked at that the wait would make old.
  bool has_turn() {
    if (!options_.wait_for_turn) return true;
    std::uint64_t bytes = 0;
    for (const auto& name : request_.names)
      if (const auto items = items_of(staging_, name))
        for (const auto& item : *items)
          if (needs_proof(item) && S_ISREG(item.attributes.st_mode)) bytes += static_cast<std::uint64_t>(item.attributes.st_size);
    if (bytes == 0) return true;
    const Status turn = options_.wait_for_turn(bytes);
    if (!turn) receipt_.reason = describe(turn.error());
    return static_cast<bool>(turn);
  }

  /// The items that were asked for, each once.
  void choose() {
    for (const auto& name : request_.names) {
      auto items = items_of(staging_, name);
      if (!items) {
        refuse(name.empty() ? "." : name, items.error().code, describe(items.error()));
        continue;
      }
      for (auto& item : *items) chosen_.try_emplace(item.path, std::move(item));
    }
  }

  static bool is_booked(const fs::WalkItem& item) { return S_ISREG(item.attributes.st_mode) || S_ISLNK(item.attributes.st_mode); }
  static bool needs_proof(const fs::WalkItem& item) { return is_booked(item) && is_dirty(item); }

  /// Before the attributes are read that the copy will get: a file that is quiet from here on is what they say.
  void prove() {
    std::vector<fs::WalkItem*> waiting;
    for (auto& [path, item] : chosen_)
      if (needs_proof(item)) waiting.push_back(&item);
    const auto deadline = std::chrono::steady_clock::now() + closing_time;
    while (!waiting.empty()) {
      std::erase_if(waiting, [&](fs::WalkItem* item) { return quiet(*item); });
      if (waiting.empty() || progress_.cancel || std::chrono::steady_clock::now() >= deadline) break;
      std::this_thread::sleep_for(closing_step);
    }
    for (auto* item : waiting) {
      const Proof* proof = buffer_.proof_of(item->ino);
      if (!request_.as_is) {
        refuse(item->path, EBUSY, proof == nullptr ? "vanished" : proof->doubt, static_cast<std::uint64_t>(item->attributes.st_size));
        chosen_.erase(std::string(item->path));
      }
    }
    for (auto& [path, item] : chosen_) {
      if (!needs_proof(item)) continue;
      auto now = staging_.find(path);
      if (!now || now->ino != item.ino) continue;
      // What a walk alone can tell stays.
      now->keep = item.keep;
      now->keep_path = item.keep_path;
      now->replaced = std::move(item.replaced);
      item = std::move(*now);
    }
  }

  bool quiet(const fs::WalkItem& item) {
    if (S_ISLNK(item.attributes.st_mode)) return quiet_link(item);
    const auto writers = staging_.writers(item.ino);
    if (!writers) return false;
    buffer_.expect(item.ino, {.path = item.path, .edits = writers->edits, .quiet = !writers->possible,
                              .doubt = !writers->possible ? "" : writers->from_before ? from_before_text : writers->open > 0 ? busy_text : unproved_text});
    return !writers->possible;
  }

  /// Nobody writes to a symbolic link: what can change yet are its attributes and its names.
  bool quiet_link(const fs::WalkItem& item) {
    const auto edits = staging_.edits(item.ino);
    if (edits) buffer_.expect(item.ino, {.path = item.path, .edits = *edits, .quiet = true, .doubt = ""});
    return edits.has_value();
  }

  /// stage_out() over the chosen items, with the directories above them.
  void copy_all() {
    std::map<std::string, fs::WalkItem> items = chosen_;
    for (auto& [path, item] : items) item.keep = fs::Keep::persistent;
    for (const auto& [path, item] : chosen_)
      for (std::string above = parent_of(path); !above.empty() && !items.contains(above); above = parent_of(above)) {
        auto directory = staging_.find(above);
        if (!directory) break;
        directory->keep = fs::Keep::temporary;  // on the way only: no result itself
        items.emplace(above, std::move(*directory));
      }
    for (auto& [path, item] : items) buffer_.items.push_back(std::move(item));
    Receipt done = stage_out(config_, buffer_, pfs_, options_, progress_);
    receipt_.reason = done.reason;
    disown_late(done);
    for (auto& entry : done.entries) {
      if (!chosen_.contains(entry.path) && entry.action == Action::dropped) continue;
      finish(entry);
      receipt_.entries.push_back(std::move(entry));
    }
  }

  /// What got such a name while it was copied, renamed back or loaded, is not what results-dir has there.
  void disown_late(Receipt& done) {
    std::vector<fs::PfsName> names;
    for (const auto& entry : done.entries) {
      const std::string name = config::result_path(config_, entry.path);
      const auto item = chosen_.find(entry.path);
      if (item == chosen_.end() || entry.action != Action::staged_out || (!entry.placed_as.empty() && entry.placed_as != name)) continue;
      if (auto version = version_below(config_.results_dir, name)) names.push_back({.path = name, .version = *version, .by = item->second.ino});
    }
    const auto still = staging_.disown(names, fs::Side::both, result_names(config_));
    for (auto& entry : done.entries)
      if (const auto why = still.find(config::result_path(config_, entry.path)); why != still.end()) append(entry.reason, "what else has had this name may be taken for it: " + describe(why->second));
  }

  /// Clean, unverified or removed: what an entry's file is from now on.
  void finish(ReceiptEntry& entry) {
    const auto chosen = chosen_.find(entry.path);
    if (chosen == chosen_.end() || !is_there(entry.action)) return;
    const fs::WalkItem& item = chosen->second;
    if (entry.action != Action::unchanged && is_booked(item)) mark(entry, item);
    if (!request_.remove || !S_ISREG(item.attributes.st_mode)) return;
    const Status there = entry.action == Action::unchanged ? still_there(item) : Status();
    const Status removed = there ? staging_.remove_clean(entry.path) : there;
    append(entry.reason, removed ? "removed from the buffer" : "kept in the buffer: " + describe(removed.error()));
  }

  static void append(std::string& reason, const std::string& more) { reason += (reason.empty() ? "" : "; ") + more; }

  void mark(ReceiptEntry& entry, const fs::WalkItem& item) {
    if (!is_dirty(item)) return;  // an output rule calls it otherwise, and so it was brought out: what it is here is known
    const Proof* proof = buffer_.proof_of(item.ino);
    if (proof == nullptr || !proof->doubt.empty()) {
      entry.unverified = true;
      return append(entry.reason, "copied as it was, unverified" + (proof == nullptr ? std::string() : ": " + doubt_of(*proof)));
    }
    const std::string name = config::result_path(config_, item.path);
    const bool is_renamed = name != item.path;
    // Its place on the PFS is another version's: a stop has to see to it again.
    if (!entry.placed_as.empty() && entry.placed_as != name) return append(entry.reason, "still marked as changed");
    const auto copy = is_renamed ? version_of_renamed(item, name) : version_of_copy(item);
    const auto clean = copy ? staging_.set_saved(item.ino, item.path, proof->edits, *copy, in_place_ && !is_renamed, item.replaced.get()) : std::unexpected(copy.error());
    // The copy is good all the same: it was whole when it was made.
    if (!clean) append(entry.reason, "still marked as changed: " + describe(clean.error()));
    else if (!*clean) append(entry.reason, "still marked as changed: it was opened for writing or renamed after it was copied");
  }

  static std::string doubt_of(const Proof& proof) {
    return proof.doubt == busy_text ? "a program has it open for writing" : proof.doubt == from_before_text ? "a program may have it open for writing since before the daemon was replaced" : proof.doubt == unproved_text ? "it may be mapped for writing" : proof.doubt;
  }

  /// A clean file goes only while the PFS has what it is a copy of.
  Status still_there(const fs::WalkItem& item) {
    const auto& known = item.saved ? item.saved : item.origin;
    if (!known) return fail(EBUSY, "the buffer may have the only copy");
    auto now = item.saved ? version_below(config_.results_dir, config::result_path(config_, item.path)) : version_below(config_.root_dir, config::source_of(config_, item.path));
    const bool same = now && now->inode == known->inode && now->device == known->device && now->size == known->size && now->mtime == known->mtime;
    return same ? Status() : fail(ESTALE, "the PFS does not have this version any more");
  }

  /// What results-dir has under the item's name now: what got it, or somebody has put another one there since.
  Result<fs::Origin> version_of_copy(const fs::WalkItem& item) {
    const auto named = buffer_.version_of(item.path);
    auto now = version_below(config_.results_dir, item.path);
    if (now && !named) return fail(ESTALE, "nothing says what its copy was when it got its name");
    if (now && !fs::is_same_file(*named, *now)) return fail(ESTALE, "somebody has changed it in results-dir");
    return now;
  }

  /// The same of one that an output rule calls otherwise there, of which nothing was noted when it got its name.
  Result<fs::Origin> version_of_renamed(const fs::WalkItem& item, const std::string& name) {
    auto now = version_below(config_.results_dir, name);
    const auto& ours = item.attributes;
    const bool same = !now || !S_ISREG(ours.st_mode) || (now->size == static_cast<std::uint64_t>(ours.st_size) && same_or_coarser(to_timespec(now->mtime), ours.st_mtim));
    return same ? now : fail(ESTALE, "somebody has changed it in results-dir");
  }

  Result<fs::Origin> version_below(const std::string& top_path, const std::string& path) {
    auto top = pfs_.open(AT_FDCWD, top_path, directory_flags);
    auto directory = top ? pfs_.open_beneath(top->get(), parent_of(path), passage_flags) : std::move(top);
    if (!directory) return std::unexpected(directory.error());
    auto now = pfs_.lstat(directory->get(), leaf_of(path));
    if (!now) return std::unexpected(now.error());
    return copy_version(pfs_, directory->get(), leaf_of(path), *now);
  }

  void copy_part_of_one() {
    if (chosen_.size() != 1 || !S_ISREG(chosen_.begin()->second.attributes.st_mode)) {
      if (!receipt_.entries.empty()) return;
      return refuse(request_.names.empty() ? "" : request_.names.front(), EINVAL, "a part can be unloaded of one regular file only");
    }
    const fs::WalkItem& item = chosen_.begin()->second;
    if (const auto name = config::result_path(config_, item.path); name != item.path) return refuse(item.path, EINVAL, "in results-dir it is called " + name + ": unload all of it");
    ReceiptEntry entry;
    entry.path = item.path;
    entry.mtime = to_ns(item.attributes.st_mtim);
    const auto written = write_part(item, entry);
    if (written) {
      entry.action = Action::staged_out;
      entry.bytes = written->length;
      entry.reason = "bytes " + std::to_string(written->offset) + " to " + std::to_string(written->offset + written->length) + entry.reason;
      if (const Proof* proof = buffer_.proof_of(item.ino); proof != nullptr && !proof->doubt.empty()) {
        entry.unverified = true;
        append(entry.reason, "copied as it was, unverified: " + doubt_of(*proof));
      }
    } else {
      entry.code = written.error().code;
      entry.reason = describe(written.error());
    }
    receipt_.entries.push_back(std::move(entry));
  }

  std::unexpected<Error> conflict(ReceiptEntry& entry, std::string reason) {
    entry.action = Action::conflict;
    return fail(ESTALE, std::move(reason));
  }

  /// Of a new file of the job's, that takes the place of what is there?
  bool is_unknown_name(const fs::WalkItem& item) const {
    const bool is_known = options_.placed != nullptr && (options_.placed->knows(item.path) || options_.placed->is_incomplete());
    return !item.origin && !item.replaced && !is_known;
  }

  /// As ResultWriter does, of a whole file: what somebody else wrote is not ours to change unless the job file says so.
  Status may_lay_over(const fs::WalkItem& item, const struct stat& before, bool ours, ReceiptEntry& entry) {
    if (in_place_) {
      if (ours || is_unknown_name(item)) return {};
      if (config_.on_conflict == config::OnConflict::overwrite) {
        entry.reason = "; laid over a version that changed on the PFS since it was staged in";
        return {};
      }
      const bool both = config_.on_conflict == config::OnConflict::keep_both;
      return conflict(entry, std::string("it changed on the PFS since it was staged in; the job's version is kept in the buffer only") + (both ? "; unload all of it to have both" : ""));
    }
    const auto input = inputs_.is_input(before);
    if (!input) return std::unexpected(input.error());
    if (*input) return conflict(entry, "results-dir has an input of this job under its name; the job's version is kept in the buffer only");
    return {};
  }

  /// Not the version of another file that had the name before.
  static bool is_its_own(const struct stat& there, fs::WalkItem item) {
    item.replaced = nullptr;
    return is_origin(there, item);
  }

  /// As late as can be: laying the part over it may have taken minutes.
  Status is_still(const fs::WalkItem& item, int directory, const struct stat& before, ReceiptEntry& entry) {
    const auto now = pfs_.lstat(directory, leaf_of(item.path));
    if (!now && now.error().code != ENOENT) return std::unexpected(now.error());
    const bool same = now && now->st_dev == before.st_dev && now->st_ino == before.st_ino && now->st_size == before.st_size && to_ns(now->st_mtim) == to_ns(before.st_mtim) && to_ns(now->st_ctim) == to_ns(before.st_ctim);
    if (same) return {};
    return conflict(entry, changed_meanwhile);
  }

  /// The file of results-dir with the part laid over it, in its place. `entry` gets its checksum, or what keeps it from there.
  Result<Part> write_part(const fs::WalkItem& item, ReceiptEntry& entry) {
    auto part = clipped(request_.part, static_cast<std::uint64_t>(item.attributes.st_size));
    if (!part) return part;
    if (!item.parts.empty() && united(parts_of(item.parts), *part) != parts_of(item.parts)) return fail(EINVAL, "only the parts " + item.parts + " of it were loaded");
    auto top = pfs_.open(AT_FDCWD, config_.results_dir, directory_flags);
    auto directory = top ? pfs_.open_beneath(top->get(), parent_of(item.path), directory_flags) : std::move(top);
    auto old = directory ? pfs_.open_beneath(directory->get(), leaf_of(item.path), O_RDONLY | O_NONBLOCK) : std::unexpected(directory.error());
    if (!old && old.error().code == ENOENT) return fail(ENOENT, "results-dir has no version of it that the part could go into; unload all of it first");
    if (!old) return std::unexpected(old.error());
    auto before = pfs_.fstat(old->get());
    if (!before) return std::unexpected(before.error());
    const bool ours = is_ours(in_place_ ? options_.placed : nullptr, {.name = item.path, .own = item.path}, item, *before);
    if (!is_dirty(item) && is_its_own(*before, item)) return part;  // it has the part: another version of it would be taken for somebody else's
    const bool is_new = in_place_ && !ours && is_unknown_name(item);
    EFS_TRY(may_lay_over(item, *before, ours, entry));
    const PartialJob job{.item = item, .directory = directory->get(), .partial = partial_name(leaf_of(item.path), options_.partial_tag, buffer_.has(item.path + options_.partial_tag + partial_suffix)), .fsync = true};
    const auto made = place_part(job, *part, old->get(), *before, ours, entry);
    if (!made) return std::unexpected(made.error());
    // What it took the place of was another's: so is what it has besides the part. Else it is ours from here on, whether its name
    // survives a crash or not; of a new file's name it is known who changed it last.
    if (!made->lost.empty()) entry.reason += "; without " + made->lost;
    const Status noted = ours ? note_part(item, *made) : is_new ? note_placed(item, *made) : Status();
    if (!noted) entry.reason += "; the next unload will take it for somebody else's version: " + describe(noted.error());
    EFS_TRY(pfs_.fsync(job.directory));
    if (options_.placed != nullptr) (void)options_.placed->sync();
    entry.checksum = made->checksum;
    return part;
  }

  Status note_part(const fs::WalkItem& item, const PartialFile& made) try {
    const auto version = version_below(config_.results_dir, item.path);
    if (!version) return std::unexpected(version.error());
    if (version->inode != made.inode) return {};  // somebody else's by now
    const Status noted = staging_.note_copy(item.path, *version, in_place_, item.replaced.get());
    const bool is_gone = !noted && noted.error().code == ENOENT;  // removed meanwhile: what has the name next takes its place
    if (options_.placed == nullptr || (!noted && !is_gone)) return noted;
    return note_placed(item, made);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }

  Status note_placed(const fs::WalkItem& item, const PartialFile& made) {
    const auto top = pfs_.open(AT_FDCWD, config_.results_dir, directory_flags);
    const auto directory = top ? pfs_.open_beneath(top->get(), parent_of(item.path), directory_flags) : fail(top.error().code);
    const auto now = directory ? pfs_.lstat(directory->get(), leaf_of(item.path)) : fail(directory.error().code);
    if (!now) return std::unexpected(now.error());
    if (options_.placed == nullptr || now->st_ino != made.inode) return {};
    return options_.placed->placed({.name = item.path, .own = item.path}, &*now, pfs_.is_shared(directory->get(), leaf_of(item.path), *now));
  }

  /// Under its partial name first, and then under its own. After an error there is no partial.
  Result<PartialFile> place_part(const PartialJob& job, Part part, int old, const struct stat& before, bool ours, ReceiptEntry& entry) {
    (void)pfs_.unlink(job.directory, job.partial);  // of one that was killed; unloads of an instance run one after the other
    auto fd = pfs_.open(job.directory, job.partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (!fd) return fail(fd.error().code, "creating " + job.partial + ": " + describe(fd.error()));
    return with_partial(pfs_, job.directory, job.partial, [&]() -> Result<PartialFile> {
      Scratch scratch(options_.transfer_size);
      auto made = lay_over(job.item, part, old, before, fd->get(), scratch);
      Status good = made ? Status() : std::unexpected(made.error());
      if (good && receipt_.read_back) good = read_back(job, *made, pfs_, scratch, progress_.cancel);
      if (good) good = disown(job.item.path);
      if (good) good = is_still(job.item, job.directory, before, entry);
      // What it is laid over is another's, and so is the rest of what results-dir has then.
      if (good && !is_dirty(job.item) && job.item.parts.empty()) good = staging_.mark_changed(job.item.ino, job.item.path);
      if (!good) {
        (void)pfs_.unlink(job.directory, job.partial);
        return std::unexpected(good.error());
      }
      const auto about_to = [&](const struct stat& partial, bool is_shared) {
        if (!ours) return;
        (void)buffer_.named(job.item, [&] { return coming_version(partial, is_shared); });
        if (options_.placed != nullptr) (void)options_.placed->coming({.name = job.item.path, .own = job.item.path}, &partial, &before);
      };
      EFS_TRY(buffer_.secure({&job.item.ino, 1}));
      // Nor in the moment in which it gets its name. (Of several nodes, the PFS's rename sees to it.)
      PartialJob last = job;
      if (config_.nodes <= 1 && !config_.merges) last.over = &before;
      const Status named = publish_patiently(last, *made, about_to);
      if (!named && named.error().code == EEXIST && last.over != nullptr) {
        (void)pfs_.unlink(job.directory, job.partial);
        return conflict(entry, changed_meanwhile);
      }
      if (!named) return std::unexpected(named.error());
      return made;
    });
  }

  /// Another may be about to give or to take the name.
  Status publish_patiently(const PartialJob& job, const PartialFile& made, const AboutToPublish& about_to) {
    Patience patience(progress_.cancel, *options_.pauses);
    for (;;) {
      const Status named = publish_partial(job, made, pfs_, about_to);
      if (named || !is_held(named.error())) return named;
      if (patience.wait({named.error().what})) continue;
      (void)pfs_.unlink(job.directory, job.partial);
      return std::unexpected(given_up(named.error()));
    }
  }

  Status disown(const std::string& path) {
    const fs::PfsName name{.path = path};
    return all_disowned(staging_.disown({&name, 1}, fs::Side::both, result_names(config_)));
  }

  Result<PartialFile> lay_over(const fs::WalkItem& item, Part part, int old, const struct stat& before, int fd, Scratch& scratch) {
    const auto old_size = static_cast<std::uint64_t>(before.st_size), end = part.offset + part.length, size = std::max(old_size, end);
    progress_.begin(1, size);
    auto container = buffer_.hold(item.ino);
    if (!container) return std::unexpected(container.error());
    if (part.offset > old_size) return fail(EINVAL, "the version in results-dir ends before the part begins: a hole would stand for data");
    Checksum sum;
    EFS_TRY(copy_part({pfs_, old}, {pfs_, fd}, {0, part.offset}, scratch, progress_, &sum));
    EFS_TRY(copy_part({posix_pfs(), container->fd}, {pfs_, fd}, part, scratch, progress_, &sum));
    EFS_TRY(copy_part({pfs_, old}, {pfs_, fd}, {end, size - end}, scratch, progress_, &sum));
    const auto after = staging_.attributes(item.ino);
    EFS_TRY(buffer_.confirm(item.ino, after && after->st_mtim.tv_sec == item.attributes.st_mtim.tv_sec && after->st_mtim.tv_nsec == item.attributes.st_mtim.tv_nsec));
    auto lost = take_attributes(old, before, fd);
    if (!lost) return std::unexpected(lost.error());
    EFS_TRY(pfs_.fsync(fd));
    auto made = pfs_.fstat(fd);
    if (!made) return std::unexpected(made.error());
    ++progress_.files_done;
    return PartialFile{.inode = made->st_ino, .size = size, .checksum = sum.digest(), .lost = std::move(*lost)};
  }

  /// Owner, extended attributes and mode of the version that it takes the place of. Returns what the PFS does not take, as set_xattrs().
  Result<std::string> take_attributes(int old, const struct stat& before, int fd) {
    auto made = pfs_.fstat(fd);
    if (!made) return std::unexpected(made.error());
    bool owned = made->st_uid == before.st_uid && made->st_gid == before.st_gid;
    if (!owned) owned = pfs_.chown(fd, before.st_uid, before.st_gid).has_value();
    auto attributes = pfs_.xattrs(old);
    if (!attributes) return std::unexpected(attributes.error());
    if (!attributes->contains(fs::access_acl_name)) (void)pfs_.remove_xattr(fd, fs::access_acl_name);  // the directory's default
    auto lost = set_xattrs(fd, fs::WalkItem{.path = {}, .xattrs = std::move(*attributes)}, pfs_);
    if (!lost) return lost;
    EFS_TRY(pfs_.chmod(fd, safe_mode(before.st_mode & 07777U, owned)));
    return lost;
  }

  const config::JobConfig& config_;
  const UnloadRequest& request_;
  fs::Staging& staging_;
  PfsIo& pfs_;
  const Options& options_;
  Progress& progress_;
  const bool in_place_;
  UnloadBuffer buffer_;
  InputGuard inputs_{config_, buffer_, pfs_};
  std::map<std::string, fs::WalkItem> chosen_;
  Receipt receipt_;
};

}  // namespace

std::string describe_unload(const Receipt& receipt) {
  std::uint64_t unverified = 0;
  std::string names;
  std::size_t named = 0;
  for (const auto& entry : receipt.entries) {
    unverified += entry.unverified ? 1 : 0;
    const bool good = is_there(entry.action);
    if ((good && !entry.unverified && entry.reason.find("kept in the buffer") == std::string::npos && entry.reason.find("still marked") == std::string::npos) || ++named > 20) continue;
    names += "  " + std::string(name_of(entry.action)) + ": " + escaped(entry.path) + (entry.reason.empty() ? "" : ": " + printable(entry.reason)) + "\n";
  }
  if (named > 20) names += "  ... and " + std::to_string(named - 20) + " more\n";
  const auto& totals = receipt.totals;
  std::string text = std::to_string(totals.staged_out) + " unloaded (" + format_bytes(totals.bytes_staged_out) + ") to " + escaped(receipt.results_dir) + ", " + std::to_string(totals.unchanged) + " unchanged";
  if (totals.kept > 0) text += ", " + std::to_string(totals.kept) + " kept";
  if (unverified > 0) text += ", " + std::to_string(unverified) + " of them unverified";
  if (const auto lost = totals.failed + totals.conflict + totals.not_saved; lost > 0) text += ", " + std::to_string(lost) + " failed";
  return text + "\n" + (receipt.reason.empty() ? "" : "  " + printable(receipt.reason) + "\n") + names;
}

int error_code(const Receipt& receipt) {
  for (const auto& entry : receipt.entries) {
    if (entry.action == Action::failed) return entry.code != 0 ? entry.code : EIO;
    if (entry.action == Action::conflict) return ESTALE;
    if (entry.action == Action::not_saved) return ENOSPC;
  }
  return receipt.reason.empty() ? 0 : EIO;
}

Receipt unload(const config::JobConfig& config, const UnloadRequest& request, fs::Staging& staging, PfsIo& pfs, const Options& options, Progress& progress) {
  try {
    return Unload(config, request, staging, pfs, options, progress).run();
  } catch (const std::exception& exception) {
    return failed_receipt(config, std::string("unload: ") + exception.what());
  }
}

}  // namespace efs::stage
