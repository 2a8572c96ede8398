// SPDX-License-Identifier: BSD-3-Clause
// The end of an instance: export, and the parts that stay on the node.
#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/memory.hpp"
#include "base/text.hpp"
#include "daemon/instance.hpp"
#include "image/manifest.hpp"
#include "stage/export/unmatched.hpp"

namespace efs::daemon {

using control::replies::StopFailed;

namespace {

StopFailed failure(const Error& error) {
  return {.failure = control::replies::failure_of(error), .summary = {}};
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
  tasks_.get().reopen();
  enter(stops_.is_unmounted() ? Event::export_gave_up : Event::stop_gave_up);
  StopAnswer outcome = NoMemory();
  try {
    outcome = failure({ENOMEM, std::string("the stop failed: ") + reason});
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
    std::string unloaded;
    if (const Status unmounted = unmount_or_unload(request, unloaded); !unmounted) {
      refuse_stop(request, unmounted.error(), std::move(unloaded));
      return false;
    }
    note(Moment::unmounted);
  } else {
    end_transfers(request);  // a stop that found no memory may have left some
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
  if (const Status merging = request.merge ? store_.begin_merging(mount_.made_point()) : Status();
      !merging) {
    enter(Event::results_left);
    finish_stop(request, failure(merging.error()));
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
  store_.keep(request.keep);
  Status left;
  if (store_.is_kept()) {
    left = store_.leave(image::ShutdownState::unsaved, request.times.gone_by);
  } else {
    left = give_store_up();
  }
  log::info("event=stopped stage_out=no store={}", request.keep || !left ? "kept" : "dropped");
  if (left) {
    Stopped outcome;
    outcome.staged_out = false;
    finish_stop(request, std::move(outcome));
  } else {
    finish_stop(request, failure(left.error()));
  }
}

Status Instance::give_store_up() {
  deadline_.claim_end();
  return store_.give_up();
}

// With a deadline, a wait for a turn may use the first quarter of the time.
SlotLimits Instance::turn_limits(const StopRequest& request) {
  if (!request.times.until) {
    return {};
  }
  return {.latest = request.times.quarter(Clock::now()), .end = request.times.until};
}

bool Instance::stage_out(const StopRequest& request) {
  stops_.begin_export(request);
  std::unique_ptr<Alarm> alarm;
  if (request.times.until) {
    alarm = deadline_.end_export_at(*request.times.until);
  }
  std::optional<SlotClient::Held> turn;  // at the PFS, until the receipt is written
  stage::Receipt receipt = transfers_.export_results(turn_limits(request), turn);
  alarm.reset();
  const bool keep = stops_.is_to_be_kept(request);
  if (keep || request.times.until || deadline_.is_hurried() || stage::exit_code(receipt) != 0) {
    transfers_.book(receipt);
  }
  transfers_.add_earlier(receipt, stops_.receipt().get());
  if (options_.config.report) {
    recorder_->add_record(receipt, request);
  }
  return end_export(request, std::move(receipt), keep);
}

bool Instance::end_export(const StopRequest& request, stage::Receipt receipt, bool keep) {
  int code = stage::exit_code(receipt);
  const bool is_all_back = code == 0;  // true even if the receipt cannot be written below
  if (code != 0) {
    transfers_.note_failure();
  }
  const ReservedMemory reserved_memory;
  // Another client's stop has cancelled the export to drop the rest. That client may have sent a
  // different request since.
  const bool was_cut_off = progress_.cancel && !progress_.time_is_up;
  const bool ends_anyway = request.times.until && !was_cut_off;
  if (ends_anyway) {
    receipt.way_out = way_out_of_image;
  }
  Stopped outcome = tell_receipt(receipt, keep, code);
  deadline_.claim_end();  // the receipt is there; the report has a time of its own
  recorder_->write_report(receipt, request, outcome);
  log::info("event=staged_out verdict={} files={} bytes={} failed={}",
            stage::name_of(receipt.verdict), receipt.totals.staged_out,
            receipt.totals.bytes_staged_out,
            receipt.totals.failed + receipt.totals.conflict + receipt.totals.not_saved);
  stops_.set_receipt(std::make_shared<const stage::Receipt>(std::move(receipt)));
  const std::string overruled = code == 0 ? "" : stops_.told_overruled();
  const bool over = code == 0 || ends_anyway;
  store_.keep(keep || code != 0);
  if (over && !part_with_store(request, is_all_back, outcome) && code == 0) {
    code = 1;
  }
  outcome.exit = code;
  outcome.kept = !over;
  if (over && code != 0) {
    outcome.image = store_.path();
    outcome.all_back = is_all_back;
  }
  if (!overruled.empty()) {
    finish_stop(request, failure({ECANCELED, overruled}));
  } else {
    finish_stop(request, std::move(outcome));
  }
  return over;
}

Instance::Stopped Instance::tell_receipt(const stage::Receipt& receipt, bool keep, int& code) {
  Stopped outcome;
  outcome.staged_out = true;
  outcome.time_was_up = code != 0 && progress_.time_is_up;
  outcome.conflicts = receipt.totals.conflict;
  outcome.replaced = receipt.totals.replaced;
  outcome.unreadable = stage::count_unreadable(receipt);
  if (!recorder_->write_receipt(receipt, outcome) && code == 0) {
    code = 1;
  }
  outcome.unmatched = stage::unmatched_in(receipt, keep || code != 0);
  return outcome;
}

bool Instance::part_with_store(const StopRequest& request, bool is_all_back, Stopped& outcome) {
  if (!store_.is_kept()) {
    if (const Status given_up = give_store_up(); !given_up) {
      outcome.summary =
          outcome.summary.value_or("") + "\n" + printable(describe(given_up.error())) + "\n";
    }
    return true;
  }
  const Status left =
      store_.leave(is_all_back ? image::ShutdownState::kept : image::ShutdownState::unsaved,
                   request.times.gone_by);
  if (!left) {
    outcome.summary = outcome.summary.value_or("") + "\n" + printable(describe(left.error()));
  }
  return left.has_value();
}

StopRequest Instance::begin_to_end(const StopRequest& request) {
  const auto [last, step] = stops_.begin_to_end(request);
  if (step) {
    act_on(*step, Event::export_begun);
  }
  return last;
}

// The stop executes the last of several requests. Its outcome is the answer to all of them.
void Instance::finish_stop(const StopRequest& request, StopAnswer outcome) {
  stops_.finish(request, std::move(outcome));
  watchers_.poke();
}

}  // namespace efs::daemon
