// SPDX-License-Identifier: BSD-3-Clause
// The end of an instance: export, and the parts that stay on the node.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/log.hpp"
#include "base/memory.hpp"
#include "base/text.hpp"
#include "daemon/instance.hpp"
#include "fs/staging.hpp"
#include "image/contents.hpp"
#include "image/image.hpp"
#include "image/removal.hpp"
#include "stage/export/stage_out.hpp"
#include "stage/export/unmatched.hpp"
#include "stage/options.hpp"
#include "stage/pfs/merge.hpp"
#include "stage/pfs/merging_pfs.hpp"
#include "stage/plan/results_dir.hpp"
#include "stage/resume/booking.hpp"

namespace efs::daemon {

using control::Json;

namespace {

// The times at which record_contents() stops to wait for writers.
struct Patience {
  std::chrono::steady_clock::time_point patient_until;  // for a file that is written
  std::chrono::steady_clock::time_point tired_at;       // for all files together
};

// True if a program may still change the file. Waits some time for its writers.
bool may_still_change(fs::Staging& staging, const fs::WalkItem& item, const Patience& limits) {
  if (!S_ISREG(item.attributes.st_mode)) {
    return false;
  }
  // with hundreds of thousands of files the last ones stay unchecked
  if (std::chrono::steady_clock::now() >= limits.tired_at) {
    return !staging.is_counted_quiet(item.ino);
  }
  while (!staging.is_counted_quiet(item.ino) && staging.is_written(item.ino)) {
    if (std::chrono::steady_clock::now() >= limits.patient_until) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace

// Waits for a reason to stop. `was_unsaved`: the instance is unmounted already. Returns the
// request; the usual one if no client has asked.
StopRequest Instance::await_stop(bool& was_unsaved) {
  const StopCoordinator::Reason reason = stops_.await_stop();
  was_unsaved = reason.was_unsaved;
  if (reason.alone) {
    log::warn(
        "event=stage_out_resumed reason=\"the worker died in it, and no client waits for it\"");
  }
  return reason.request;
}

// Waits for a reason to stop and stops. Returns true when the life is over.
bool Instance::serve_until_stopped() {
  bool was_unsaved = false;
  StopRequest request = await_stop(was_unsaved);
  try {
    return stop(request, was_unsaved);
  } catch (const std::exception& problem) {
    return give_stop_up(request, problem.what());
  }
}

// Handles a shortage of memory during a stop: nothing is lost, and the next stop tries again.
bool Instance::give_stop_up(const StopRequest& request, const char* reason) {
  const ReservedMemory reserved_memory;
  log::error("event=stop_failed reason=\"{}\"", reason);
  tasks_->reopen();
  enter(stops_.is_unmounted() ? Event::export_gave_up : Event::stop_gave_up);
  Json outcome = false;  // allocates no memory; see handle_stop()
  try {
    outcome = control::error_line({ENOMEM, std::string("the stop failed: ") + reason});
  } catch (const std::bad_alloc&) {
  }
  finish_stop(request, std::move(outcome));
  return false;
}

// Returns true when the life is over.
bool Instance::stop(StopRequest& request, bool was_unsaved) {
  if (request.ticket == 0) {
    stops_.begin_deadline(request);
  }
  if (!was_unsaved) {
    note(Moment::unmounting);
    enter(Event::stop_begun);
    std::string drained;
    if (const Status unmounted = unmount_or_drain(request, drained); !unmounted) {
      refuse_stop(request, unmounted.error(), std::move(drained));
      return false;
    }
    note(Moment::unmounted);
  }
  note(Moment::asked_out);
  request = begin_to_end(request);
  // The mount is already unmounted. This call reports whether the current request is unusual: it
  // may be a later one, or one after a death.
  (void)supervisor_.unmount(request.is_unusual());
  if (!request.stage_out) {
    end_without_export(request);
    return true;
  }
  if (const Status merging = request.merge ? merge_from_now_on() : Status(); !merging) {
    enter(Event::results_left);
    finish_stop(request, control::error_line(merging.error()));
    return false;
  }
  if (stage_out(request)) {
    return true;
  }
  enter(Event::results_left);
  return false;
}

void Instance::end_without_export(const StopRequest& request) {
  stops_.set_receipt(nullptr);
  keep_image_ = request.keep;
  Status left;
  if (keep_image_) {
    left = leave_image(image::ShutdownState::unsaved, request.times.gone_by);
  } else {
    left = give_store_up();
  }
  log::info("event=stopped stage_out=no store={}", keep_image_ || !left ? "kept" : "dropped");
  finish_stop(request, left ? control::result_line({{"staged_out", false}})
                            : control::error_line(left.error()));
}

Status Instance::leave_image(image::ShutdownState left, std::optional<Clock::time_point> end) {
  if (const Status done = filesystem_->settle(); !done) {
    log::warn("event=not_settled reason=\"{}\"", describe(done.error()));
  }
  const Status synced = filesystem_->fsync_metadata();
  if (!synced) {
    log::error("event=journal_not_synced reason=\"{}\"", describe(synced.error()));
  }
  Standing standing{.left = left, .journal_to = synced ? filesystem_->durable_records() : 0};
  if (!end || Clock::now() < *end) {
    // A successor may find this manifest: it must not name a list that is being replaced.
    if (!store_.manifest.contents.empty()) {
      EFS_TRY(write_manifests(store_, options_.config, options_.directory, standing));
    }
    standing.contents = record_contents(end);
  }
  const Status written = write_manifests(store_, options_.config, options_.directory, standing);
  if (!written) {
    log::error("event=manifest_not_written reason=\"{}\"", describe(written.error()));
  }
  if (!synced) {
    return fail(synced.error().code,
                "the buffer stays in " + store_.path +
                    ", but its journal could not be synced: " + describe(synced.error()));
  }
  if (!written) {
    return fail(written.error().code,
                "the buffer stays in " + store_.path +
                    ", but its end could not be recorded: " + describe(written.error()));
  }
  return {};
}

// Without this list the store is equally usable, but fewer changes from outside are detected.
std::string Instance::record_contents(std::optional<Clock::time_point> end) try {
  fs::Staging staging(*filesystem_);
  const auto is_over = [&] {
    return end && Clock::now() >= *end;
  };
  auto items = staging.walk({}, is_over);
  // A program that was cut off, by efs, by root or by the death of an earlier instance, may still
  // write. After an unmount the kernel needs a moment to close files.
  const auto begin = Clock::now();
  const Patience limits{.patient_until = begin + std::chrono::seconds(1),
                        .tired_at = std::min(begin + std::chrono::seconds(3),
                                             end.value_or(Clock::time_point::max()))};
  if (items) {
    std::erase_if(
        *items, [&](const fs::WalkItem& item) { return may_still_change(staging, item, limits); });
  }
  const bool is_late = items && is_over() && items->size() >= fs::many_names;
  if (is_late) {
    items = fail(ECANCELED, "there was no time for it");
  }
  const auto noted =
      items ? image::write_contents(store_.metadata.get(), *items) : std::unexpected(items.error());
  if (noted) {
    return *noted;
  }
  log::warn("event=contents_not_noted reason=\"{}\"", describe(noted.error()));
  return "";
} catch (const std::bad_alloc&) {
  return "";
}

// With `over`, the store is removed from here on. If the worker dies meanwhile, its successor only
// completes this.
void Instance::record_left(image::ShutdownState left) {
  const UniqueFd directory(
      ::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (const Status noted = image::write_left(directory.get(), left); !noted) {
    log::warn("event=manifest_not_written reason=\"{}\"", describe(noted.error()));
  }
}

// Removes the store, which is no longer needed. If the removal cannot even begin with the journal,
// the next start would continue with the store. The manifest with `over` then stays, too.
Status Instance::give_store_up() {
  deadline_.claim_end();
  record_left(image::ShutdownState::over);
  const Status begun = image::begin_removal(store_.metadata.get());
  store_stays_ = !begun;
  if (begun) {
    return {};
  }
  log::error("event=store_not_removed directory={} reason=\"{}\"", store_.path,
             describe(begun.error()));
  return fail(begun.error().code,
              "the buffer cannot be removed from " + store_.path + ": " + describe(begun.error()) +
                  ". Before the next start under this name, remove it: efs clean " +
                  options_.config.name);
}

// After a failed stop, the next stop finds the files clean that the failed stop exported. This
// function adds them, because the new receipt replaces the first one.
void Instance::add_brought_before(stage::Receipt& receipt) {
  const auto last = stops_.receipt();
  if (!last) {
    return;
  }
  std::unordered_map<std::string_view, const stage::ReceiptEntry*> before;
  for (const auto& entry : last->entries) {
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

// With a deadline, a wait for a turn may use the first quarter of the time.
SlotLimits Instance::turn_limits(const StopRequest& request) {
  if (!request.times.until) {
    return {};
  }
  return {.latest = request.times.quarter(Clock::now()), .end = request.times.until};
}

// From here on the export merges. It may replace only files that this instance itself exported. The
// manifest records this for a salvage or a later start.
Status Instance::merge_from_now_on() {
  if (merging_ || options_.config.results_dir.empty()) {
    return {};
  }
  const auto items = fs::Staging(*filesystem_).walk();
  if (!items) {
    return std::unexpected(items.error());
  }
  options_.config.merges = true;
  EFS_TRY(write_manifests(
      store_, options_.config, options_.directory,
      {.made_mount_dir = made_mount_point_, .journal_to = filesystem_->durable_records()}));
  EFS_TRY(open_placed());
  merging_ = stage::merging_pfs(options_.config.merge_since, stage::saved_copies(*items));
  return {};
}

bool Instance::stage_out(const StopRequest& request) {
  stage::PacedPfs pfs = paced_pfs(progress_.cancel, results_pfs());
  fs::Staging staging(*filesystem_);
  const auto is_over = [this] {
    return progress_.cancel.load();
  };
  stage::StagingBuffer buffer(staging, stage::Writers::refused, is_over);
  stops_.begin_export(request);
  stage::Options how = stage_options();
  how.by_rank = request.times.until.has_value();
  std::unique_ptr<Alarm> alarm;
  if (request.times.until) {
    alarm = deadline_.end_export_at(*request.times.until);
  }
  const auto turn = turns_.take(queue::Direction::out, store_.backend->space().used, progress_,
                                turn_limits(request));
  note(Moment::out_begun);
  stage::Receipt receipt = stage::stage_out(options_.config, buffer, pfs, how, progress_);
  progress_.listing = false;
  note(Moment::out_ended);
  receipt.retries = pfs.retried();
  {
    MutexLock lock(mutex_);
    receipt.staged_in = staged_in_;
  }
  alarm.reset();
  const bool keep = stops_.is_to_be_kept(request);
  if (keep || request.times.until || deadline_.is_hurried() || stage::exit_code(receipt) != 0) {
    stage::Booking(options_.config, staging, results_pfs(), placed_.get()).saved(receipt);
  }
  add_brought_before(receipt);
  unloaded_.add_to(receipt,
                   [&](const std::string& path) { return staging.find(path).has_value(); });
  if (options_.config.report) {
    add_record(receipt, request);
  }
  return end_export(request, std::move(receipt), keep);
}

bool Instance::end_export(const StopRequest& request, stage::Receipt receipt, bool keep) {
  int code = stage::exit_code(receipt);
  const bool is_all_back = code == 0;  // true even if the receipt cannot be written below
  if (code != 0) {
    may_have_left_partials_ = true;
  }
  const ReservedMemory reserved_memory;
  // Another client's stop has cancelled the export to drop the rest. That client may have sent a
  // different request since.
  const bool was_cut_off = progress_.cancel && !progress_.time_is_up;
  const bool ends_anyway = request.times.until && !was_cut_off;
  if (ends_anyway) {
    receipt.way_out = way_out_of_image;
  }
  Json outcome = tell_receipt(receipt, keep, code);
  deadline_.claim_end();  // the receipt is there; the report has a time of its own
  leave_report(receipt, request, outcome);
  log::info("event=staged_out verdict={} files={} bytes={} failed={}",
            stage::name_of(receipt.verdict), receipt.totals.staged_out,
            receipt.totals.bytes_staged_out,
            receipt.totals.failed + receipt.totals.conflict + receipt.totals.not_saved);
  stops_.set_receipt(std::make_shared<const stage::Receipt>(std::move(receipt)));
  const std::string overruled = code == 0 ? "" : stops_.told_overruled();
  const bool over = code == 0 || ends_anyway;
  keep_image_ = keep || code != 0;
  if (over && !part_with_store(request, is_all_back, outcome) && code == 0) {
    code = 1;
  }
  outcome["exit"] = code;
  if (!overruled.empty()) {
    outcome = control::error_line({ECANCELED, overruled});
  } else if (!over) {
    outcome["kept"] = true;
  } else if (code != 0) {
    outcome["image"] = store_.path, outcome["all_back"] = is_all_back;
  }
  finish_stop(request, std::move(outcome));
  return over;
}

Json Instance::tell_receipt(const stage::Receipt& receipt, bool keep, int& code) {
  Json outcome = control::result_line({{"staged_out", true},
                                       {"time_was_up", code != 0 && progress_.time_is_up},
                                       {"conflicts", receipt.totals.conflict},
                                       {"replaced", receipt.totals.replaced},
                                       {"unreadable", stage::count_unreadable(receipt)}});
  if (!leave_receipt(receipt, outcome) && code == 0) {
    code = 1;
  }
  if (Json unmatched = stage::unmatched_in(receipt, keep || code != 0); !unmatched.is_null()) {
    outcome["unmatched"] = std::move(unmatched);
  }
  return outcome;
}

bool Instance::part_with_store(const StopRequest& request, bool is_all_back, Json& outcome) {
  if (!keep_image_) {
    if (const Status given_up = give_store_up(); !given_up) {
      outcome["summary"] = outcome["summary"].get<std::string>() + "\n" +
                           printable(describe(given_up.error())) + "\n";
    }
    return true;
  }
  const Status left =
      leave_image(is_all_back ? image::ShutdownState::kept : image::ShutdownState::unsaved,
                  request.times.gone_by);
  if (!left) {
    outcome["summary"] =
        outcome["summary"].get<std::string>() + "\n" + printable(describe(left.error()));
  }
  return left.has_value();
}

// Writes the receipt to results-dir. If that fails, writes it to the instance's directory, which
// stays until the results are exported.
bool Instance::leave_receipt(const stage::Receipt& receipt, Json& outcome) {
  std::string note = receipt.note.empty() ? "" : receipt.note + "\n";
  std::size_t names = stage::names_shown;
  bool written = true;
  if (options_.config.results_dir.empty()) {
    names = stage::names_shown_without_receipt;
  } else {
    const std::string path =
        options_.config.results_dir + "/" + stage::receipt_name(options_.config.name);
    // each node has its own receipt: no merge
    stage::PacedPfs plain = paced_pfs(progress_.cancel);
    Status there = stage::check_mounted(options_.config, plain);
    if (there) {
      there = stage::write_receipt(receipt, path, plain, stage_options().partial_tag);
    }
    written = there.has_value();
    if (written) {
      outcome["receipt_file"] = path;
      // remove the receipt of an earlier stop, which would contradict this one
      ::unlink((options_.directory + "/receipt.json").c_str());
    } else {
      note += "The receipt could not be written: " + escaped(path) + ": " +
              printable(describe(there.error())) + "\n";
      const std::string second = options_.directory + "/receipt.json";
      if (stage::write_receipt(receipt, second, stage::posix_pfs())) {
        outcome["receipt_file"] = second;
        note += "Meanwhile it is here: " + escaped(second) + "\n";
      } else {
        names = stage::names_shown_without_receipt;
      }
    }
  }
  outcome["summary"] = stage::describe(receipt, names) + note;
  return written;
}

StopRequest Instance::begin_to_end(const StopRequest& request) {
  const auto [last, step] = stops_.begin_to_end(request);
  if (step) {
    act_on(*step, Event::export_begun);
  }
  return last;
}

// The stop executes the last of several requests. Its outcome is the answer to all of them.
void Instance::finish_stop(const StopRequest& request, Json outcome) {
  stops_.finish(request, std::move(outcome));
  MutexLock lock(mutex_);
  if (watchers_) {
    watchers_->poke();
  }
}

}  // namespace efs::daemon
