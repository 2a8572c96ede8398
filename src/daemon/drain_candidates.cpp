// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/drain_candidates.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "stage/copy/transfer.hpp"
#include "stage/export/selection.hpp"

namespace efs::daemon {
namespace {

constexpr std::size_t looks_at_a_time = 4096;  // files that choose() looks at
constexpr auto wait_untried = std::chrono::seconds(1);

bool is_exported_type(mode_t mode) {
  return S_ISREG(mode) || S_ISLNK(mode);
}

bool is_exported(stage::Action action) {
  return action == stage::Action::staged_out || action == stage::Action::kept ||
         action == stage::Action::unchanged;
}

KeptVersions::Reason reason_of(const Error& error) {
  using Reason = KeptVersions::Reason;
  switch (error.code) {
    case EBUSY:
    case ECANCELED: return Reason::program;
    case EMLINK:
    case ESTALE: return Reason::lasting;
    default: return Reason::passing;
  }
}

}  // namespace

// A file that was exported in place counts as imported under its name there, and may be a result of
// the job all the same: see stage::class_of().
std::optional<DrainSchedule::Duration> DrainCandidates::interval_of(
    const fs::WalkItem& item) const {
  const bool is_result =
      !item.pfs.origin || (item.pfs.saved && !config::is_input(config_, item.path));
  return config::drain_of(config_, item.path, !is_result);
}

bool DrainCandidates::is_covered(const std::string& path) const {
  return config::drain_of(config_, path, false) || config::drain_of(config_, path, true);
}

bool DrainCandidates::is_due(const fs::WalkItem& item) const {
  return is_exported_type(item.attributes.st_mode) && item.due_for_export() &&
         item.content.unreadable.empty() && item.pfs.parts.empty() && interval_of(item) &&
         stage::class_of(config_, item) == config::FileClass::persistent;
}

void DrainCandidates::look(Time now, const fs::IsOver& is_over) {
  if (sends_some_ && !std::exchange(has_looked_, true)) {
    kept_.count_dropped(staging_.dropped());
  }
  find_sets();
  look_below("", now, std::nullopt, is_over);
}

// Each file is looked at by itself, because programs cannot change a name during a walk.
void DrainCandidates::look_below(const std::string& directory, Time now,
                                 std::optional<Nanoseconds> named_at, const fs::IsOver& is_over) {
  const std::string start = directory.empty() ? "" : directory + "/";
  for (const auto& path : staging_.names()) {
    if (is_over && is_over()) {
      return;
    }
    if (!path.starts_with(start) || !is_covered(path)) {
      continue;
    }
    if (const auto item = staging_.find(path)) {
      notice(*item, now, named_at);
    }
  }
}

void DrainCandidates::notice(const fs::WalkItem& item, Time now,
                             std::optional<Nanoseconds> named_at) {
  const auto interval =
      is_exported_type(item.attributes.st_mode) ? interval_of(item) : std::nullopt;
  if (!interval) {
    return;
  }
  const auto [first, last] = names_.equal_range(item.ino);
  const bool is_known =
      std::any_of(first, last, [&](const auto& known) { return known.second.path == item.path; });
  notice_version(item, named_at);
  if (!is_known) {
    names_.emplace(item.ino, Known{.path = item.path, .interval = *interval});
  }
  if (item.due_for_export()) {
    schedule_.changed(item.ino, *interval, now);
  }
}

void DrainCandidates::absorb(const ChangeInbox::Content& content, Time now,
                             const fs::IsOver& is_over) {
  for (const auto& change : content.changes) {
    absorb_one(change, now, is_over);
  }
  if (content.lost) {
    look(now, is_over);
  }
  if (names_.size() >= forget_at_) {
    forget_removed();
  }
}

void DrainCandidates::absorb_one(const Change& change, Time now, const fs::IsOver& is_over) {
  if (change.kind == Change::Kind::closed) {
    notice_close(change.ino, change.at);
  }
  if (change.kind == Change::Kind::closed || change.kind == Change::Kind::changed) {
    return notice_change(change.ino, now);
  }
  const auto path = staging_.path_below(change.parent, change.name);
  if (!path) {
    return;  // the directory is gone
  }
  if (change.kind == Change::Kind::moved) {
    notice_set(*path);
    return look_below(*path, now, change.at, is_over);
  }
  if (!is_covered(*path)) {
    return;
  }
  if (const auto item = staging_.find(*path); item && item->ino == change.ino) {
    notice(*item, now, change.at);
  }
}

bool DrainCandidates::is_home(std::uint64_t ino) {
  const auto [first, last] = names_.equal_range(ino);
  return std::none_of(first, last, [&](const auto& known) {
    return !beside_.contains(known.second.path) && is_still_due(known.second.path, ino);
  });
}

// Not each change concerns results-dir: the buffer also records where the content of a clean file
// is.
void DrainCandidates::notice_change(std::uint64_t ino, Time now) {
  const auto [first, last] = names_.equal_range(ino);
  if (first == last || (!schedule_.waits(ino) && is_home(ino))) {
    return;
  }
  const auto soonest = std::min_element(first, last, [](const auto& one, const auto& other) {
    return one.second.interval < other.second.interval;
  });
  schedule_.changed(ino, soonest->second.interval, now);
}

// A file that is new here counts as closed when it got its name, or about when its attributes
// changed. A further name does not make it newer. A look may follow the loss of a close, after
// which mtime is the best that is known. (A program can set it to a later time than ctime.)
void DrainCandidates::notice_version(const fs::WalkItem& item,
                                     std::optional<Nanoseconds> named_at) {
  if (!S_ISREG(item.attributes.st_mode) || !config::keeps_versions(config_)) {
    return;
  }
  std::optional<Nanoseconds> closed;
  const auto [first, last] = names_.equal_range(item.ino);
  for (auto at = first; at != last; ++at) {
    closed = std::max(closed, kept_.closed_at(at->second.path, item.ino));
  }
  const Nanoseconds changed = to_ns(item.attributes.st_ctim);
  if (closed && !named_at) {
    closed = std::max(*closed, std::min(changed, to_ns(item.attributes.st_mtim)));
  }
  kept_.named(item.path, item.ino, closed.value_or(named_at.value_or(changed)));
}

void DrainCandidates::notice_close(std::uint64_t ino, Nanoseconds closed) {
  const auto [first, last] = names_.equal_range(ino);
  for (auto at = first; at != last; ++at) {
    kept_.closed(at->second.path, closed);
  }
}

KeptVersions::FileState DrainCandidates::state_of(const std::string& path, std::uint64_t ino) {
  using FileState = KeptVersions::FileState;
  const auto item = staging_.find(path);
  if (!item || item->ino != ino || !S_ISREG(item->attributes.st_mode) || !interval_of(*item)) {
    return FileState::gone;
  }
  // a user has made it temporary (efs set): it is no version that could stand for another
  if (stage::class_of(config_, *item) == config::FileClass::temporary) {
    return FileState::written;
  }
  if (item->due_for_export()) {
    const auto writers = staging_.writers(ino);
    return !writers || writers->open > 0                     ? FileState::written
           : sends_some_ && staging_.is_only_here(path, ino) ? FileState::only_here
                                                             : FileState::changed;
  }
  const bool is_elsewhere = refused_.contains(path) || beside_.contains(path);
  return item->pfs.saved && !is_elsewhere ? FileState::home : FileState::changed;
}

KeptVersions::Look DrainCandidates::look_at_versions() {
  return [this](const std::string& path, std::uint64_t ino) {
    return state_of(path, ino);
  };
}

std::vector<stage::OldVersion> DrainCandidates::choose_old(Time now) {
  const auto edits = [this](std::uint64_t ino) -> std::optional<std::uint64_t> {
    const auto known = staging_.edits(ino);
    return known ? std::optional(*known) : std::nullopt;
  };
  return kept_.choose(look_at_versions(), edits, now);
}

std::vector<stage::Dropped::Stayed> DrainCandidates::settle_old(
    const std::vector<stage::OldVersion>& old, const stage::Dropped* dropped, Time now) {
  std::vector<stage::Dropped::Stayed> news;
  if (old.empty()) {
    return news;
  }
  if (dropped == nullptr) {
    kept_.look_again();
    return news;
  }
  for (const auto& stayed : dropped->stayed) {
    const auto version = std::ranges::find(old, stayed.version, &stage::OldVersion::path);
    if (version != old.end() && kept_.stayed(*version, reason_of(stayed.why), now)) {
      news.push_back(stayed);
    }
  }
  return news;
}

void DrainCandidates::clear() {
  schedule_.clear();
  refused_.clear();
}

// The time for this is in proportion to the names that were added since the last call.
void DrainCandidates::forget_removed() {
  std::erase_if(names_, [&](const auto& known) {
    const bool is_removed = !staging_.edits(known.first);
    if (is_removed) {
      schedule_.forget(known.first);
    }
    return is_removed;
  });
  kept_.forget_gone(look_at_versions());
  const auto is_gone = [&](const std::string& path) {
    return !staging_.find(path);
  };
  std::erase_if(sets_, [&](const auto& set) { return is_gone(set.first); });
  std::erase_if(refused_, is_gone);
  std::erase_if(beside_, is_gone);
  forget_at_ = std::max<std::size_t>(1024, 2 * names_.size());
}

DrainBatch DrainCandidates::choose(Time now) {
  DrainBatch batch;
  busy_sets_.clear();
  for (std::size_t looks = 0; looks < looks_at_a_time && !batch.is_full(); ++looks) {
    const auto ino = schedule_.take(now);
    if (!ino) {
      break;
    }
    add(*ino, batch, now);
    if (schedule_.is_in_trouble() && !batch.files.empty()) {
      break;
    }
  }
  return batch;
}

void DrainCandidates::add(std::uint64_t ino, DrainBatch& batch, Time now) {
  std::vector<fs::WalkItem> due;
  auto [at, last] = names_.equal_range(ino);
  while (at != last) {
    refused_.erase(at->second.path);
    auto item = staging_.find(at->second.path);
    if (!item || item->ino != ino) {
      at = names_.erase(at);
      continue;
    }
    if (is_due(*item) && !beside_.contains(item->path) && goes(*item)) {
      if (add_set(ino, item->path, batch, now)) {
        return;
      }
      due.push_back(std::move(*item));
    }
    ++at;
  }
  if (due.empty()) {
    return schedule_.home(ino);
  }
  if (S_ISREG(due.front().attributes.st_mode) && is_written(ino)) {
    return schedule_.again(ino, now, DrainSchedule::longest_wait_for_programs);
  }
  batch.bytes += stage::data_of(due.front().attributes);
  for (auto& item : due) {
    batch.files.emplace(std::move(item.path), ino);
  }
}

std::string DrainCandidates::set_of(const std::string& path) {
  for (auto slash = path.find('/'); !sets_.empty() && slash != path.npos;
       slash = path.find('/', slash + 1)) {
    if (auto above = path.substr(0, slash); sets_.contains(above)) {
      return above;
    }
  }
  return {};
}

void DrainCandidates::notice_set(const std::string& directory) {
  const auto item = has_sets_ && is_covered(directory) && set_of(directory).empty()
                        ? staging_.find(directory)
                        : fail(ENOENT);
  if (item) {
    sets_.insert_or_assign(directory, Set{.renamed = to_ns(item->attributes.st_ctim)});
  }
}

// A rename is the last change of a directory that was filled before.
void DrainCandidates::find_sets() {
  for (const auto& path : has_sets_&& config::drains_results(config_)
                              ? staging_.names()
                              : std::vector<std::string>()) {
    const auto item = is_covered(path) ? staging_.find(path) : fail(ENOENT);
    if (item && S_ISDIR(item->attributes.st_mode) && !item->pfs.origin &&
        to_ns(item->attributes.st_ctim) > to_ns(item->attributes.st_mtim)) {
      sets_.try_emplace(path,
                        Set{.renamed = to_ns(item->attributes.st_ctim), .is_known_by_times = true});
    }
  }
}

// From then on the files of a set go one by one.
void DrainCandidates::forget_sent(const DrainBatch& batch) {
  for (const auto& set : batch.sets) {
    const auto first = batch.files.lower_bound(set + "/");
    if (first != batch.files.end() && !is_still_due(first->first, first->second)) {
      sets_.erase(set);
    }
  }
}

// False if the file is home or was an input, if it gets another name at home (`as`), or if another
// rule has it. An export that did not end
// well has left a version, too: then only this process knows that the set is not home.
bool DrainCandidates::may_be_part(const fs::WalkItem& item, const Set& set) const {
  const bool may_be_home = item.pfs.saved && set.is_known_by_times;
  return is_due(item) && !may_be_home && !item.pfs.origin && item.attributes.st_nlink == 1 &&
         config::result_path(config_, item.path) == item.path;
}

DrainCandidates::SetState DrainCandidates::look_at_set(const std::string& set,
                                                       std::vector<fs::WalkItem>& due) {
  auto items = staging_.walk(set);
  if (!items || items->empty() || items->size() > DrainBatch::most_files_of_set) {
    return SetState::none;
  }
  // It has got or lost a name since its rename.
  const Set& known = sets_.at(set);
  if (to_ns(items->front().attributes.st_mtim) > known.renamed) {
    return SetState::none;
  }
  bool is_busy = false;
  for (auto& item : *items) {
    if (S_ISDIR(item.attributes.st_mode) ||
        stage::class_of(config_, item) == config::FileClass::temporary) {
      continue;
    }
    if (!may_be_part(item, known)) {
      return SetState::none;
    }
    is_busy = is_busy || (S_ISREG(item.attributes.st_mode) && is_written(item.ino));
    due.push_back(std::move(item));
  }
  return is_busy ? SetState::busy : SetState::ready;
}

bool DrainCandidates::add_set(std::uint64_t ino, const std::string& path, DrainBatch& batch,
                              Time now) {
  const std::string set = set_of(path);
  if (set.empty()) {
    return false;
  }
  if (std::ranges::find(batch.sets, set) != batch.sets.end()) {
    batch.files.emplace(path, ino);
    return true;
  }
  std::vector<fs::WalkItem> due;
  const SetState state = busy_sets_.contains(set) ? SetState::busy : look_at_set(set, due);
  if (state == SetState::none) {
    sets_.erase(set);
    return false;
  }
  if (state == SetState::busy) {
    busy_sets_.insert(set);
    schedule_.again(ino, now, DrainSchedule::longest_wait_for_programs);
    return true;
  }
  batch.sets.push_back(set);
  for (auto& item : due) {
    batch.bytes += stage::data_of(item.attributes);
    batch.files.emplace(std::move(item.path), item.ino);
  }
  return true;
}

// A file that a user has exported meanwhile goes again: results-dir must not keep the older state.
bool DrainCandidates::goes(const fs::WalkItem& item) {
  return kept_.goes(item.path, look_at_versions()) ||
         (S_ISREG(item.attributes.st_mode) && !staging_.is_only_here(item.path, item.ino));
}

bool DrainCandidates::is_written(std::uint64_t ino) {
  const auto writers = staging_.writers(ino);
  return !writers || writers->possible;
}

bool DrainCandidates::is_still_due(const std::string& path, std::uint64_t ino) {
  const auto item = staging_.find(path);
  return item && item->ino == ino && is_due(*item);
}

// A name that a program has removed or given to another file meanwhile needs no further attempt,
// whatever the error.
DrainCandidates::Fate DrainCandidates::fate_of(const stage::ReceiptEntry& entry, std::uint64_t ino,
                                               bool is_cancelled) {
  if (!is_still_due(entry.path, ino)) {
    return Fate::home;
  }
  if (entry.action == stage::Action::conflict) {
    return Fate::refused;
  }
  if (is_exported(entry.action)) {
    const bool is_beside =
        !entry.placed_as.empty() && entry.placed_as != config::result_path(config_, entry.path);
    return is_beside ? Fate::beside : Fate::busy;
  }
  if (entry.action != stage::Action::failed && entry.action != stage::Action::not_saved) {
    return Fate::home;
  }
  if (is_cancelled) {
    return Fate::not_tried;
  }
  // EBUSY: a program opened it meanwhile
  return entry.code == EBUSY ? Fate::busy : Fate::failed;
}

void DrainCandidates::note_refusal(const std::string& path, Fate fate) {
  if (fate == Fate::refused) {
    refused_.insert(path);
  } else if (fate == Fate::beside) {
    beside_.insert(path);
  }
}

void DrainCandidates::settle_file(std::uint64_t ino, Fate fate, Time now) {
  switch (fate) {
    case Fate::home:
    case Fate::refused:
    case Fate::beside: return is_home(ino) ? schedule_.forget(ino) : schedule_.home(ino);
    case Fate::not_tried: return schedule_.later(ino, now, wait_untried);
    case Fate::busy: return schedule_.again(ino, now, DrainSchedule::longest_wait_for_programs);
    case Fate::failed: return schedule_.again(ino, now, DrainSchedule::longest_wait);
  }
}

DrainCandidates::Fates DrainCandidates::read(const DrainBatch& batch, const stage::Receipt& receipt,
                                             bool is_cancelled, DrainOutcome& outcome) {
  Fates fates;
  for (const auto& entry : receipt.entries) {
    const auto file = batch.files.find(entry.path);
    if (file == batch.files.end()) {
      continue;  // a directory above
    }
    const Fate fate = fate_of(entry, file->second, is_cancelled);
    const auto known = fates.try_emplace(file->second, fate).first;
    known->second = std::max(known->second, fate);
    if (entry.action == stage::Action::staged_out) {
      ++outcome.files;
      outcome.bytes += entry.bytes;
    }
    note_refusal(entry.path, fate);
    if (fate == Fate::failed || fate == Fate::refused || fate == Fate::beside) {
      ++outcome.failed;
      outcome.error = outcome.error.empty() ? entry.path + ": " + entry.reason : outcome.error;
    }
  }
  return fates;
}

// One file that can never go does not delay the others.
void DrainCandidates::note_failures(std::size_t files, bool concern_all, Time now) {
  if (files > 1 || (files > 0 && (concern_all || schedule_.is_in_trouble()))) {
    schedule_.failed(now);
  }
}

DrainOutcome DrainCandidates::settle(const DrainBatch& batch, const stage::Receipt* receipt,
                                     bool is_cancelled, Time now) {
  DrainOutcome outcome;
  Fates fates = receipt == nullptr ? Fates() : read(batch, *receipt, is_cancelled, outcome);
  const bool none_could_go = receipt != nullptr && !is_cancelled && !receipt->reason.empty();
  if (none_could_go) {
    outcome.failed = std::max<std::uint64_t>(outcome.failed, batch.files.size());
    outcome.error = receipt->reason;
  }
  const auto without_entry = [&](const std::string& path, std::uint64_t ino) {
    return none_could_go                        ? Fate::failed
           : receipt == nullptr || is_cancelled ? Fate::not_tried
           : is_still_due(path, ino)            ? Fate::busy
                                                : Fate::home;
  };
  std::size_t failed = 0;
  for (const auto& [path, ino] : batch.files) {
    const Fate fate = fates.try_emplace(ino, without_entry(path, ino)).first->second;
    settle_file(ino, fate, now);
    if (fate == Fate::home) {
      kept_.went_home(path);
    }
    failed += fate == Fate::failed ? 1U : 0U;
  }
  forget_sent(batch);
  kept_.look_again();
  if (outcome.files > 0) {
    schedule_.succeeded();
  } else {
    note_failures(failed, none_could_go, now);
  }
  return outcome;
}

}  // namespace efs::daemon
