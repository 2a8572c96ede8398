// SPDX-License-Identifier: BSD-3-Clause
// The events of the ledger in the journal, and what becomes of those that it does not take.
#include "fs/ledger_log.hpp"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "base/log.hpp"
#include "fs/filesystem.hpp"
#include "fs/placed_file.hpp"

namespace efs::fs {
namespace {

// bytes of the journal that events leave to the records of the next start
constexpr std::uint64_t room_of_start = 16u << 10;

Record record_of(const ledger::Event& event) {
  return std::visit([](const auto& one) -> Record { return one; }, event);
}

std::int64_t size_of(const Record& record) {
  std::vector<std::byte> bytes;
  encode(record, bytes);
  return static_cast<std::int64_t>(store::Journal::record_size(bytes.size()));
}

bool is_full(const Status& done) {
  return !done && (done.error().code == ENOSPC || done.error().code == EDQUOT);
}

}  // namespace

void LedgerLog::reserve_room() {
  constexpr std::uint64_t least = 256u << 10, most = 16u << 20, share = 4096;
  const WriteLock lock(filesystem_.mutex_);
  if (!filesystem_.journal_ || filesystem_.broken_) {
    return;
  }
  const std::uint64_t capacity = filesystem_.backend_.space().capacity;
  const auto wanted = std::clamp<std::uint64_t>(capacity / share, least, most);
  filesystem_.wanted_for_events_ = wanted + room_of_start;
  filesystem_.reserve_for_events(wanted);
}

void LedgerLog::read(const std::function<void(const ledger::Ledger&)>& look) const {
  const ReadLock lock(filesystem_.mutex_);
  look(filesystem_.names_.ledger());
}

Status LedgerLog::append(
    const std::function<std::vector<ledger::Event>(const ledger::Ledger&)>& make,
    std::optional<Nanoseconds> since) {
  const WriteLock lock(filesystem_.mutex_);
  Status all;
  for (const auto& event : make(filesystem_.names_.ledger())) {
    const Status one = filesystem_.commit_event(event);
    all = all ? one : all;
  }
  if (!all && since) {
    filesystem_.record_missed_events(*since);
  }
  return all;
}

Status LedgerLog::sync() {
  {
    const WriteLock lock(filesystem_.mutex_);
    filesystem_.record_missing_events();
  }
  return filesystem_.sync_journal();
}

/// Reserves less if there is less. A reserve that the journal does not have would make it refuse
/// all other records.
void Filesystem::reserve_for_events(std::uint64_t wanted) {
  const std::uint64_t removals = reserve_for_removals();
  while (wanted >= room_of_start && !journal_->set_reserve(removals + 2 * room_of_start + wanted)) {
    wanted /= 2;
  }
  room_for_events_ = wanted >= room_of_start ? wanted + room_of_start : 0;
  (void)journal_->set_reserve(removals + room_for_events_);
}

void Filesystem::restore_room_for_events() {
  if (room_for_events_ >= wanted_for_events_) {
    return;
  }
  const std::uint64_t removals = reserve_for_removals();
  if (journal_->set_reserve(removals + wanted_for_events_)) {
    room_for_events_ = wanted_for_events_;
  } else {
    (void)journal_->set_reserve(removals + room_for_events_);
  }
}

/// On a full store it uses the room that was reserved for events.
Status Filesystem::commit_event(const ledger::Event& event) {
  const Record record = record_of(event);
  Status done = commit(0, record);
  if (const auto size = is_full(done) ? size_of(record) : 0;
      size > 0 && room_for_events_ >= static_cast<std::uint64_t>(size) + room_of_start) {
    done = commit(0, record, -size);
    room_for_events_ -= done ? static_cast<std::uint64_t>(size) : 0;
  }
  if (done) {
    return done;
  }
  // This process goes on, and knows what it did.
  try {
    (void)names_.apply(record);
  } catch (const std::bad_alloc&) {
    (void)names_.apply(ledger::Missed{});
  }
  return done;
}

void Filesystem::record_missed_events(Nanoseconds since) {
  if (missed_since_ && *missed_since_ <= since && has_recorded_missed_) {
    return;
  }
  if (refused_for_room_ != 0 && shortened_for_room()) {
    return;  // the snapshot has the event
  }
  missed_since_ = std::min(missed_since_.value_or(since), since);
  has_recorded_missed_ = false;
  // This process misses nothing, so it does not apply the record. The journal has space for it as
  // for a removal.
  scratch_.clear();
  encode(ledger::Missed{*missed_since_}, scratch_);
  const auto size = static_cast<std::int64_t>(store::Journal::record_size(scratch_.size()));
  const Status done = journal_ && !broken_ ? append(0, -size) : fail(EROFS);
  has_recorded_missed_ = !is_full(done);
  if (done || is_full(done)) {
    return;
  }
  if (done.error().code == EIO) {
    record_failed_append(done.error());
  } else {
    record_failed_sync();  // see doubt_events()
  }
}

void Filesystem::record_missing_events() {
  if (!missed_since_ || !journal_ || broken_ || !compact()) {
    return;
  }
  compact_at_ = std::max(options_.smallest_compaction, 2 * journal_->size());
}

/// Other records fail until this room is there again: set_reserve() need not find it now.
Status Filesystem::commit_at_any_room(const Record& record) {
  Status done = commit(0, record);
  if (!is_full(done)) {
    return done;
  }
  const std::uint64_t size = store::Journal::record_size(scratch_.size());  // of this record
  done = commit(0, record, -static_cast<std::int64_t>(size));
  if (done) {
    (void)journal_->set_reserve(journal_->reserve() + size);
  }
  return done;
}

/// After a failed sync or append of an earlier process, its later exports have no record. Power
/// loss on a page cache took the events behind the last sync: those of files that are newer than
/// the newest event that is left.
Status Filesystem::doubt_events() {
  if (recovery_.sync_failed) {
    EFS_TRY(names_.apply(ledger::Missed{}));
  }
  const auto newest = names_.ledger().newest_export();
  if (!options_.after_power_loss || backend_.durability() != Durability::page || !newest) {
    return {};
  }
  const ledger::Missed lost{*newest};
  return journal_ ? commit_at_any_room(lost) : names_.apply(lost);
}

/// They are events of a salvage, or of an efs whose journal had none, and older than all that this
/// life of the store will do. A process that dies before the file is removed leaves a journal with
/// some of them; the next one appends all of them again. A takeover finds none: the start that it
/// follows has moved them.
Status Filesystem::convert_placed() {
  std::vector<ledger::Event> events;
  EFS_TRY(PlacedFile::events(*medium_, [&](const ledger::Event& one) { events.push_back(one); }));
  if (events.empty()) {
    return {};
  }
  {
    const WriteLock lock(mutex_);
    if (const Status done = commit_placed(events); !done) {
      return with_context(done.error(), "the exports in meta/placed cannot be put in the journal");
    }
  }
  EFS_TRY(sync_journal());
  EFS_TRY(medium_->remove(placed_name));
  EFS_TRY(medium_->sync_names());
  log::info("event=exports_converted events={}", events.size());
  return {};
}

Status Filesystem::commit_placed(std::span<const ledger::Event> events) {
  for (const auto& event : events) {
    EFS_TRY(commit_at_any_room(record_of(event)));
  }
  rebuild_reserve();
  return {};
}

}  // namespace efs::fs
