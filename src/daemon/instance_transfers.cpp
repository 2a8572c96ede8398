// SPDX-License-Identifier: BSD-3-Clause
// Loads and unloads while programs run.
#include "daemon/instance.hpp"
#include "fs/staging.hpp"
#include "stage/options.hpp"

namespace efs::daemon {
namespace {

using control::Json;

Json outcome_of(const stage::LoadReport& report) {
  if (report.ok()) {
    return control::result_line({{"files", report.files},
                                 {"already", report.already},
                                 {"bytes", report.bytes},
                                 {"seconds", report.seconds}});
  }
  Error error = report.failure->error;
  error.what = describe(error);
  if (!report.failure->path.empty()) {
    error.what = report.failure->path + ": " + error.what;
  }
  return control::error_line(error);
}

Json outcome_of(const stage::Receipt& receipt, bool cancelled) {
  const int exit = stage::exit_code(receipt);
  Json line = exit == 0 ? control::result_line()
                        : control::error_line({cancelled ? ECANCELED : stage::error_code(receipt),
                                               stage::describe_unload(receipt), true},
                                              exit);
  line["summary"] = stage::describe_unload(receipt);
  line["receipt"] = stage::to_json(receipt);
  return line;
}

}  // namespace

Json Instance::load(const stage::LoadRequest& what, stage::Progress& progress) {
  fs::Staging staging(*filesystem_);
  stage::PacedPfs pfs = paced_pfs(progress.cancel);
  std::optional<SlotClient::Held> turn;
  stage::Options how = stage_options();
  how.beside_programs = true;
  how.wait_for_turn = turn_for(queue::Direction::in, progress, turn, {});
  return outcome_of(stage::load({.config = options_.config,
                                 .staging = staging,
                                 .pfs = pfs,
                                 .options = how,
                                 .progress = progress},
                                what));
}

Json Instance::unload(const stage::UnloadRequest& what, stage::Progress& progress) {
  return unload_now(what, progress, {});
}

// With a deadline, exports in the order of the job file.
Json Instance::unload_now(const stage::UnloadRequest& what, stage::Progress& progress,
                          const SlotLimits& limits) {
  fs::Staging staging(*filesystem_);
  stage::PacedPfs pfs = paced_pfs(progress.cancel, results_pfs());
  std::optional<SlotClient::Held> turn;
  stage::Options how = stage_options();
  how.beside_programs = !limits.end;
  how.by_rank = limits.end.has_value();
  how.wait_for_turn = turn_for(queue::Direction::out, progress, turn, limits);
  stage::Receipt receipt = stage::unload({.config = options_.config,
                                          .staging = staging,
                                          .pfs = pfs,
                                          .options = how,
                                          .progress = progress},
                                         what);
  receipt.retries = pfs.retried();
  if (stage::exit_code(receipt) != 0) {
    may_have_left_partials_ = true;
  }
  unloaded_.remember(receipt);
  return outcome_of(receipt, progress.cancel);
}

// For a task, which holds its turn until it ends.
std::function<Status(std::uint64_t)> Instance::turn_for(queue::Direction direction,
                                                        const stage::Progress& progress,
                                                        std::optional<SlotClient::Held>& turn,
                                                        SlotLimits limits) {
  return [this, direction, &progress, &turn, limits](std::uint64_t bytes) -> Status {
    auto taken = turns_.take(direction, bytes, progress, limits);
    if (!taken) {
      return std::unexpected(taken.error());
    }
    turn.emplace(std::move(*taken));
    return {};
  };
}

}  // namespace efs::daemon
