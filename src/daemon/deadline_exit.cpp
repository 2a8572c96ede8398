// SPDX-License-Identifier: BSD-3-Clause
// The end of an instance whose PFS does not answer when the deadline of a stop has passed: a call
// to the PFS may hang forever.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>

#include "base/log.hpp"
#include "base/memory.hpp"
#include "base/text.hpp"
#include "daemon/instance.hpp"
#include "fs/staging.hpp"
#include "stage/export/selection.hpp"

namespace efs::daemon {

namespace {

// The time for answers to reach the clients that requested the stop.
constexpr auto farewell = std::chrono::milliseconds(500);
constexpr auto longest_farewell = std::chrono::seconds(30);
// The time to list the unsaved files after the deadline.
constexpr auto time_to_list = std::chrono::milliseconds(500);

}  // namespace

// The PFS is not the cause if the daemon itself computed too long.
std::string Instance::why_late() const {
  return progress_.listing ? "the deadline passed while the files were listed"
                           : "the PFS did not answer in time";
}

// The state of the files on the PFS is unknown, because the PFS has not answered.
stage::Receipt Instance::receipt_of_what_is_left() {
  stage::Receipt receipt = stage::failed_receipt(options_.config, "");
  const std::string why = why_late();
  const auto is_over = [end = Clock::now() + time_to_list] {
    return Clock::now() >= end;
  };
  const auto items = fs::Staging(store_.files()).walk({}, is_over);
  if (!items && items.error().code == ECANCELED) {
    receipt.reason = why + ", and there are too many files to list them: all are in the buffer";
  } else if (!items) {
    receipt.reason = why + ", and the buffer cannot be read: " + describe(items.error());
  } else {
    auto [directories, outgoing, settled] = stage::select_outgoing(options_.config, *items);
    if (outgoing.empty()) {
      receipt.reason = why;  // if all results are recorded as exported
    }
    std::size_t not_tried = 0;
    for (const auto* item : outgoing) {
      stage::ReceiptEntry entry;
      entry.path = item->path;
      entry.action = stage::Action::not_saved;
      entry.bytes = S_ISREG(item->attributes.st_mode)
                        ? static_cast<std::uint64_t>(item->attributes.st_size)
                        : 0;
      entry.reason = why + ": its export is not confirmed";
      stage::add_or_count(receipt, std::move(entry), not_tried, stage::Options().most_not_tried);
    }
    std::ranges::move(settled, std::back_inserter(receipt.entries));
    transfers_.add_earlier(receipt, nullptr);
  }
  receipt.way_out = way_out_of_image;
  stage::settle(receipt);
  return receipt;
}

Instance::Stopped Instance::leave_what_is_left() {
  store_.keep_in_any_case(true);
  auto receipt = std::make_shared<const stage::Receipt>(receipt_of_what_is_left());
  Stopped outcome;
  outcome.staged_out = true;
  outcome.exit = std::max(1, stage::exit_code(*receipt));
  outcome.image = store_.path();
  outcome.lingers = true;
  outcome.conflicts = receipt->totals.conflict;
  outcome.replaced = receipt->totals.replaced;
  std::string note = progress_.listing ? "The deadline passed while the files were listed.\n"
                                       : "The PFS did not answer in time.\n";
  if (const std::string file = options_.directory + "/receipt.json";
      stage::write_receipt(*receipt, file, stage::posix_pfs())) {
    outcome.receipt_file = file;
  }
  if (const Status left = store_.leave(image::ShutdownState::unsaved, Clock::now()); !left) {
    note += printable(describe(left.error())) + "\n";
  }
  outcome.summary = stage::describe(*receipt) + note;
  stops_.set_receipt(std::move(receipt));
  return outcome;
}

Instance::Stopped Instance::drop_what_is_left(const StopRequest& request) {
  store_.keep_in_any_case(request.keep);
  if (request.keep) {
    (void)store_.leave(image::ShutdownState::unsaved, Clock::now());
  } else {
    (void)store_.give_up();
    store_.remove();
  }
  Stopped outcome;
  outcome.staged_out = false;
  outcome.lingers = true;
  return outcome;
}

// Threads that wait for the PFS end with the process. The supervisor then cleans up as after a
// death of the worker, but this function records how the instance ended. Files that may be on the
// PFS, such as a log or a status file, come last.
void Instance::leave_without_pfs() noexcept try {
  if (!stops_.must_leave()) {
    return;
  }
  const auto in_any_case = TimerThread::start(Clock::now() + longest_farewell, [] { ::_exit(0); });
  const ReservedMemory reserved_memory;
  const StopRequest last = stops_.latest().value_or(StopRequest{});
  mount_.remove_point();
  Stopped outcome = last.stage_out ? leave_what_is_left() : drop_what_is_left(last);
  stops_.finish_all(last, std::move(outcome));
  std::this_thread::sleep_for(farewell);
  close_socket();
  log::error("event=left_without_pfs store={} reason=\"{}\"", store_.path(), why_late());
  enter(Event::over);
  watchers_.close(0);
  ::_exit(0);
} catch (const std::exception&) {  // no memory: the store is as after a death

  ::_exit(0);
}

// The thread that waits uses the buffer until the process ends.
void Instance::end_with_fetches() noexcept try {
  const auto in_any_case = TimerThread::start(Clock::now() + longest_farewell, [] { ::_exit(0); });
  const ReservedMemory reserved_memory;
  log::error("event=left_with_fetch store={} reason=\"the PFS does not answer\"", store_.path());
  store_.close_in_use();
  std::this_thread::sleep_for(farewell);
  close_socket();
  enter(Event::over);
  watchers_.close(0);
  ::_exit(0);
} catch (const std::exception&) {  // no memory: as after a death

  ::_exit(0);
}

void Instance::give_back_or_remove() {
  if (store_.is_kept()) {
    give_back_what_was_kept(true);
  } else {
    store_.remove();
  }
}

void Instance::end_start() {
  deadline_.claim_end();
  (void)deadline_.end_start();
}

// Removes everything that the start has created, as after any other failed start. Keeps a store
// that existed before.
void Instance::give_up_without_pfs() noexcept try {
  if (!stops_.must_give_up()) {
    return;
  }
  const auto in_any_case = TimerThread::start(Clock::now() + longest_farewell, [] { ::_exit(1); });
  const ReservedMemory reserved_memory;
  log::error(
      "event=start_given_up_without_pfs reason=\"the start was stopped, and a call to the PFS "
      "hangs\"");
  if (store_.has_files()) {
    mount_.remove_point();
    give_back_or_remove();
  }
  start_outcome_.fail(
      {ETIMEDOUT, "stopped before all inputs were imported: the PFS does not answer"});
  enter(Event::start_failed);
  close_socket();
  std::this_thread::sleep_for(farewell);
  watchers_.close(1);
  ::_exit(1);
} catch (const std::exception&) {  // no memory: as after a death

  ::_exit(1);
}

}  // namespace efs::daemon
