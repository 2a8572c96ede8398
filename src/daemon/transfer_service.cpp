// SPDX-License-Identifier: BSD-3-Clause
// Loads, unloads and the export.
#include "daemon/transfer_service.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/text.hpp"
#include "daemon/evictor.hpp"
#include "stage/buffer.hpp"
#include "stage/export/stage_out.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/resume/booking.hpp"

namespace efs::daemon {

namespace replies = control::replies;

namespace {

replies::TaskOutcome outcome_of(const stage::LoadReport& report) {
  if (report.ok()) {
    return {.ok = true,
            .failure = {},
            .loaded = replies::Loaded{.files = report.files,
                                      .already = report.already,
                                      .bytes = report.bytes,
                                      .seconds = report.seconds},
            .unloaded = {}};
  }
  Error error = report.failure->error;
  error.what = describe(error);
  if (!report.failure->path.empty()) {
    error.what = report.failure->path + ": " + error.what;
  }
  return replies::failed_task(error);
}

replies::TaskOutcome outcome_of(const stage::Receipt& receipt, bool cancelled) {
  const int exit = stage::exit_code(receipt);
  const std::string summary = stage::describe_unload(receipt);
  replies::TaskOutcome outcome{
      .ok = exit == 0,
      .failure = {},
      .loaded = {},
      .unloaded = replies::Unloaded{.summary = summary, .receipt = stage::to_json(receipt)}};
  if (exit != 0) {
    outcome.failure = replies::failure_of(
        {cancelled ? ECANCELED : stage::error_code(receipt), summary, true}, exit);
  }
  return outcome;
}

// Names each file that stayed, and why.
std::string text_of(const stage::Moves& moves, std::size_t most_named) {
  std::string text =
      std::to_string(moves.files) + " files (" + format_bytes(moves.bytes) + ") moved, " +
      std::to_string(moves.failed.size()) +
      (moves.failed.size() == 1 ? " stays where it is:\n" : " stay where they are:\n");
  for (const auto& one : moves.failed | std::views::take(most_named)) {
    text += "  " + escaped(one.path) + ": " + describe(one.error) + "\n";
  }
  if (moves.failed.size() > most_named) {
    text += "  and " + std::to_string(moves.failed.size() - most_named) + " more\n";
  }
  return text;
}

replies::TaskOutcome outcome_of(const stage::Moves& moves, bool cancelled) {
  constexpr std::size_t most_named = 1000;
  replies::Moved moved{.moved = moves.files,
                       .moved_bytes = moves.bytes,
                       .unchanged = moves.unchanged,
                       .stayed = moves.failed.size(),
                       .stayed_first = {}};
  for (const auto& one : moves.failed | std::views::take(most_named)) {
    moved.stayed_first.push_back({.path = one.path, .reason = describe(one.error)});
  }
  replies::TaskOutcome outcome{
      .ok = moves.failed.empty(), .failure = {}, .loaded = {}, .unloaded = {}};
  if (!outcome.ok) {
    const int code = cancelled ? ECANCELED : moves.failed.front().error.code;
    outcome.failure =
        replies::failure_of({code, text_of(moves, most_named), true}, cancelled ? 1 : 3);
  }
  outcome.moved = std::move(moved);
  return outcome;
}

// The answer contains only the first ones; the receipt lists all.
std::vector<replies::SkippedInput> first_of(const std::vector<stage::PlanSkip>& skipped) {
  constexpr std::size_t most = 100;
  std::vector<replies::SkippedInput> all;
  for (const auto& skip : skipped | std::views::take(most)) {
    all.push_back({.path = skip.path, .reason = skip.reason, .vanished = skip.vanished});
  }
  return all;
}

void add_exported_before(stage::Receipt& receipt, const stage::Receipt& last) {
  std::unordered_map<std::string_view, const stage::ReceiptEntry*> before;
  for (const auto& entry : last.entries) {
    if (entry.action == stage::Action::staged_out || entry.action == stage::Action::kept) {
      before.emplace(entry.path, &entry);
    }
  }
  for (auto& entry : receipt.entries) {
    const auto found = before.find(entry.path);
    if (found == before.end() || entry.action != stage::Action::unchanged) {
      continue;
    }
    entry = *found->second;
    entry.action = stage::Action::kept;
    if (entry.reason.empty()) {
      entry.reason = "an earlier stage-out exported it";
    }
  }
  stage::settle(receipt);
}

}  // namespace

TransferService::TransferService(Parts parts)
    : its_(std::move(parts)),
      throttle_(stage::pace_of(its_.config)),
      fetch_buffers_(its_.config.transfer_size),
      unloaded_(its_.directory + "/unloaded") {}

stage::Options TransferService::options() {
  return {.workers = its_.config.workers,
          .transfer_size = its_.config.transfer_size,
          .partial_tag = stage::partial_tag_of(store::to_string(its_.store.id())),
          .has_a_past = its_.store.is_left() || may_have_left_partials_,
          .receipt_name = stage::receipt_name(its_.config.name),
          .placed = its_.store.placed(),
          .publisher = &its_.store.publisher(),
          .opened = its_.store.opened(),
          .cache = its_.store.cache()};
}

stage::PacedPfs TransferService::paced_pfs(const std::atomic<bool>& cancel) {
  return {stage::posix_pfs(), stage::pace_of(its_.config), throttle_, cancel};
}

replies::TaskOutcome TransferService::load(const stage::LoadRequest& what,
                                           stage::Progress& progress) {
  fs::Staging staging(its_.store.files());
  stage::PacedPfs pfs = paced_pfs(progress.cancel);

  struct Inside {
    ~Inside() {
      if (gate != nullptr) {
        gate->leave();
      }
    }

    TurnGate* gate = nullptr;
  } inside;

  std::optional<SlotClient::Held> turn;  // it ends before another user is let in
  stage::Options how = options();
  how.beside_programs = true;
  how.wait_for_turn = [&, wait = turn_for(queue::Direction::in, progress, turn, {})](
                          std::uint64_t bytes) -> Status {
    EFS_TRY(in_gate_.enter(progress.cancel));
    inside.gate = &in_gate_;
    return wait(bytes);
  };
  return outcome_of(stage::load(
      {.config = its_.config, .staging = staging, .pfs = pfs, .options = how, .progress = progress},
      what));
}

replies::TaskOutcome TransferService::unload(const stage::UnloadRequest& what,
                                             stage::Progress& progress) {
  return unload_until(what, progress, {});
}

replies::TaskOutcome TransferService::move(const MoveRequest& what, stage::Progress& progress) {
  const stage::Moves moves = move_by(what.names, what.place, fs::Staging::Pins::give_way, progress);
  return outcome_of(moves, progress.cancel);
}

Space TransferService::space_of(unsigned place) {
  return its_.store.buffer().backend.at(place).space();
}

std::vector<fs::Staging::MoveCandidate> TransferService::move_candidates(unsigned place) {
  return fs::Staging(its_.store.files()).move_candidates(place);
}

stage::Moves TransferService::move_files(std::span<const std::string> paths, unsigned place,
                                         stage::Progress& progress) {
  return move_by(paths, place, fs::Staging::Pins::hold, progress);
}

stage::Moves TransferService::move_by(std::span<const std::string> paths, unsigned place,
                                      fs::Staging::Pins pins, stage::Progress& progress) {
  fs::Staging staging(its_.store.files());
  stage::PacedPfs pfs = paced_pfs(progress.cancel);
  const stage::Options how = options();
  return stage::move_files(
      {.config = its_.config, .staging = staging, .pfs = pfs, .options = how, .progress = progress},
      paths, place, pins);
}

replies::TaskOutcome TransferService::unload_until(const stage::UnloadRequest& what,
                                                   stage::Progress& progress,
                                                   const SlotLimits& limits) {
  const stage::Receipt receipt = unload_by(what, progress, limits);
  return outcome_of(receipt, progress.cancel);  // as it is after the unload
}

stage::Receipt TransferService::drain(std::vector<std::string> paths, std::vector<std::string> sets,
                                      stage::Progress& progress) {
  return unload_by(
      {.names = std::move(paths), .results_only = true, .are_paths = true, .sets = std::move(sets)},
      progress, {});
}

// Version by version: if the worker dies, the book lacks the drops of one at most.
stage::Dropped TransferService::drop(const std::vector<stage::OldVersion>& versions,
                                     stage::Progress& progress) {
  fs::Staging staging(its_.store.files());
  stage::PacedPfs pfs = paced_pfs(progress.cancel);
  const stage::Options how = options();
  stage::Dropped all;
  for (const auto& version : versions) {
    if (version.is_unsent && has_failed_sync_) {
      all.stayed.push_back({.version = version.path,
                            .file = version.path,
                            .why = {EIO, "the buffer has failed to store a newer version"}});
      continue;
    }
    stage::Dropped one = stage::drop({.config = its_.config,
                                      .staging = staging,
                                      .pfs = pfs,
                                      .options = how,
                                      .progress = progress},
                                     {version});
    if (!version.is_unsent) {  // fs::Staging::dropped() knows the others
      has_failed_sync_ = has_failed_sync_ || one.has_failed_sync;
      unloaded_.remember_dropped(one.entries);
    }
    std::ranges::move(one.entries, std::back_inserter(all.entries));
    std::ranges::move(one.stayed, std::back_inserter(all.stayed));
  }
  return all;
}

Status TransferService::begin_turn(std::uint64_t bytes, const stage::Progress& progress) {
  EFS_TRY(in_gate_.enter(progress.cancel));
  auto taken = its_.turns.take(queue::Direction::in, bytes, progress);
  if (!taken) {
    in_gate_.leave();
    return std::unexpected(taken.error());
  }
  fetch_turn_.emplace(std::move(*taken));
  return {};
}

void TransferService::end_turn() {
  fetch_turn_.reset();
  in_gate_.leave();
}

// If the buffer is full, removed files give their room first, as for a program.
FetchOutcome TransferService::fetch(std::uint64_t ino, stage::Progress& progress) try {
  fs::Filesystem& files = its_.store.files();
  fs::Staging staging(files);
  stage::PacedPfs pfs = paced_pfs(progress.cancel);
  if (const auto file = staging.attributes(ino);
      file && !make_room_ahead(files, static_cast<std::uint64_t>(file->st_size))) {
    return {
        .kind = progress.cancel ? FetchOutcome::Kind::cancelled : FetchOutcome::Kind::failed,
        .error = {ENOSPC, "the buffer is full of files that programs use, or that only it has"}};
  }
  const stage::ScratchPool::Loan scratch(fetch_buffers_);
  FetchOutcome outcome;
  (void)files.with_room([&]() -> Status {
    outcome = stage::fetch_content(ino, {.staging = staging,
                                         .pfs = pfs,
                                         .root_dir = its_.config.root_dir,
                                         .scratch = *scratch,
                                         .progress = progress});
    return outcome.kind == FetchOutcome::Kind::failed ? Status(std::unexpected(outcome.error))
                                                      : Status();
  });
  return outcome;
} catch (const std::bad_alloc&) {
  return {.kind = FetchOutcome::Kind::failed, .error = {ENOMEM, "out of memory"}};
}

// Else a large file would be copied in vain up to the point where the buffer is full, or programs
// that write meanwhile would find no room.
bool TransferService::make_room_ahead(fs::Filesystem& files, std::uint64_t bytes) {
  const Space space = its_.store.space();
  if (!files.has_room_maker() || space.available >= bytes + reserve_of(space)) {
    return true;
  }
  if (space.available < bytes) {
    return files.make_room(bytes);
  }
  // The reserve is missing. Room that is reserved for other contents counts as taken: for the rest
  // a fetch would wait.
  if (fs::Staging(files).reserved_bytes() == 0) {
    (void)files.make_room(bytes);
  }
  return true;
}

void TransferService::end_evictions() {
  fs::Staging staging(its_.store.files());
  std::vector<std::uint64_t> remote;
  for (const auto& file : staging.remote_files(false)) {
    remote.push_back(file.ino);
  }
  (void)staging.free_evicted(remote);  // what it cannot free, the next fetch frees
}

void TransferService::end_dead_fetches() try {
  fs::Staging staging(its_.store.files());
  if (staging.reserved_bytes() == 0) {
    return;
  }
  Backend& backend = its_.store.buffer().backend;
  for (const auto& file : staging.remote_files(false)) {
    if (const auto now = backend.attributes(file.ino); now && now->st_blocks > 0) {
      (void)staging.begin_fetch(file.ino);  // empties it
    }
  }
} catch (const std::bad_alloc&) {  // the rest counts twice until it is fetched
}

// Evictable contents must not take the room that others have reserved.
Space TransferService::space() {
  Space space = its_.store.space();
  space.available -= std::min(space.available, fs::Staging(its_.store.files()).reserved_bytes());
  return space;
}

stage::Eviction TransferService::evict(std::uint64_t bytes, stage::Progress& progress) {
  fs::Staging staging(its_.store.files());
  stage::PacedPfs pfs = paced_pfs(progress.cancel);
  const stage::Options how = options();
  return stage::evict(
      {.config = its_.config, .staging = staging, .pfs = pfs, .options = how, .progress = progress},
      bytes, refusals_);
}

stage::Receipt TransferService::unload_by(const stage::UnloadRequest& what,
                                          stage::Progress& progress, const SlotLimits& limits) {
  fs::Staging staging(its_.store.files());
  stage::PacedPfs pfs = paced_pfs(progress.cancel);
  std::optional<SlotClient::Held> turn;
  stage::Options how = options();
  // A drain leaves that to the stop: a search for leftovers costs more than a batch.
  how.has_a_past = how.has_a_past && !what.are_paths;
  how.beside_programs = !limits.end;
  how.by_rank = limits.end.has_value();
  how.wait_for_turn = turn_for(queue::Direction::out, progress, turn, limits);
  stage::Receipt receipt = stage::unload(
      {.config = its_.config, .staging = staging, .pfs = pfs, .options = how, .progress = progress},
      what);
  receipt.retries = pfs.retried();
  if (stage::exit_code(receipt) != 0) {
    may_have_left_partials_ = true;
  }
  unloaded_.remember(receipt);
  return receipt;
}

// For a task, which holds its turn until it ends.
std::function<Status(std::uint64_t)> TransferService::turn_for(
    queue::Direction direction, const stage::Progress& progress,
    std::optional<SlotClient::Held>& turn, SlotLimits limits) {
  return [this, direction, &progress, &turn, limits](std::uint64_t bytes) -> Status {
    auto taken = its_.turns.take(direction, bytes, progress, limits);
    if (!taken) {
      return std::unexpected(taken.error());
    }
    turn.emplace(std::move(*taken));
    return {};
  };
}

// Only a stop without a deadline leaves `limits.end` empty.
stage::Receipt TransferService::export_results(const SlotLimits& limits,
                                               std::optional<SlotClient::Held>& turn) {
  stage::PacedPfs pfs = paced_pfs(its_.progress.cancel);
  fs::Staging staging(its_.store.files());
  const auto is_over = [this] {
    return its_.progress.cancel.load();
  };
  stage::StagingBuffer buffer(staging, stage::Writers::refused, is_over);
  stage::Options how = options();
  how.by_rank = limits.end.has_value();
  // a cancelled wait: stage_out() reports it
  if (auto taken =
          its_.turns.take(queue::Direction::out, its_.store.space().used, its_.progress, limits)) {
    turn.emplace(std::move(*taken));
  }
  note(Moment::out_begun);
  stage::Receipt receipt = stage::stage_out(its_.config, buffer, pfs, how, its_.progress);
  its_.progress.listing = false;
  note(Moment::out_ended);
  receipt.retries = pfs.retried();
  MutexLock lock(mutex_);
  receipt.staged_in = staged_in_;
  return receipt;
}

void TransferService::book(const stage::Receipt& receipt) {
  fs::Staging staging(its_.store.files());
  stage::Booking(its_.config, staging, stage::posix_pfs(), its_.store.publisher(),
                 its_.store.placed())
      .saved(receipt);
}

// The next stop finds the files clean that a failed stop exported, and the new receipt replaces the
// first one.
void TransferService::add_earlier(stage::Receipt& receipt, const stage::Receipt* last) const {
  if (last != nullptr) {
    add_exported_before(receipt, *last);
  }
  fs::Staging staging(its_.store.files());
  // those of gone(true) without those that the job removed
  std::set<std::string> dropped;
  for (auto& item : staging.gone(true)) {
    if (item.pfs.saved && item.ino == 0) {
      dropped.insert(std::move(item.path));
    }
  }
  for (const auto& item : staging.gone()) {
    dropped.erase(item.path);
  }
  unloaded_.add_to(
      receipt, [&](const std::string& path) { return staging.find(path).has_value(); }, dropped);
  // The book has the drops of results that were sent, unless both processes have died since.
  const bool has_lost_book =
      its_.store.is_left() && its_.store.left_as() == image::ShutdownState::in_use;
  stage::add_dropped(receipt, staging.dropped(), has_lost_book);
}

void TransferService::add_status(replies::Status& status) {
  MutexLock lock(mutex_);
  if (const auto& in = staged_in_) {
    status.staged_in = {.files = in->files,
                        .bytes = in->bytes,
                        .bytes_read = in->bytes - in->bytes_reused,
                        .files_reused = in->files_reused,
                        .bytes_reused = in->bytes_reused,
                        .files_away = in->files_away,
                        .skipped = in->skipped.size(),
                        .skipped_first = first_of(in->skipped)};
  }
}

std::vector<stage::TimedFile> TransferService::slowest_inputs() const {
  MutexLock lock(mutex_);
  return slowest_inputs_;
}

}  // namespace efs::daemon
