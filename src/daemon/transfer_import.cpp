// SPDX-License-Identifier: BSD-3-Clause
// The import of a job's inputs.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>
#include <utility>

#include "base/json_text.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "daemon/status_file.hpp"
#include "daemon/transfer_service.hpp"
#include "image/image.hpp"
#include "stage/buffer.hpp"
#include "stage/import/stage_in.hpp"
#include "stage/plan/distribute.hpp"

namespace efs::daemon {
namespace {

Status refuse_problems(const stage::Plan& plan) {
  if (plan.problems.empty()) {
    return {};
  }
  std::string text = "the job cannot start:";
  for (const auto& problem : plan.problems) {
    text += "\n  " + escaped(problem.path) + ": " + printable(problem.reason);
  }
  return fail_lines(EINVAL, text);
}

std::unexpected<Error> stage_in_failed(const stage::StageFailure& failure,
                                       const std::string& root_dir) {
  return fail(
      failure.error.code,
      "stage-in failed: " + (failure.path.empty() ? "" : root_dir + "/" + failure.path + ": ") +
          describe(failure.error));
}

void log_staged_in(const stage::StageReport& report, std::span<const stage::PlanSkip> skipped,
                   std::uint64_t retries) {
  log::info(
      "event=staged_in files={} directories={} bytes={} reused_files={} reused_bytes={} "
      "seconds={:.3f} retries={}",
      report.files, report.directories, report.bytes, report.reused_files, report.reused_bytes,
      report.seconds, retries);
  for (const auto& skip : skipped) {
    log::info("event=input_skipped path=\"{}\" reason=\"{}\"", skip.path, skip.reason);
  }
  if (report.not_kept > 0) {
    log::warn("event=cache_not_kept files={} first=\"{}\"", report.not_kept,
              report.not_kept_reason);
  }
}

}  // namespace

// Plans the import. Takes space of the cache if the inputs need it. Fails if the job cannot start.
Result<stage::Plan> TransferService::plan_inputs(stage::PfsIo& pfs, fs::Staging& staging) {
  const auto by_place = staging.available_by_place();
  stage::Rooms rooms;
  if (!its_.store.is_left()) {
    rooms.assign(by_place.begin(), by_place.end());
  }
  if (rooms.size() == 1 && rooms.front()) {
    *rooms.front() += its_.store.spare_in_cache();
  }
  const auto available = staging.available_bytes();
  auto plan = stage::make_plan(its_.config, pfs, rooms);
  if (!plan) {
    return plan;
  }
  if (available && plan->needed > *available && its_.store.cache() != nullptr) {
    its_.store.cache()->free_space(plan->needed - *available);
  }
  if (its_.store.is_left()) {
    forgive_what_is_the_jobs(*plan, staging);
  }
  EFS_TRY(refuse_problems(*plan));
  return plan;
}

// For results that replace their inputs: notes the imported versions.
void TransferService::record_inputs_in_place(const stage::Plan& plan, stage::PfsIo& pfs,
                                             fs::Staging& staging) {
  if (its_.store.placed() == nullptr || !config::has_results_in_place(its_.config)) {
    return;
  }
  stage::forget_staged(plan, pfs, staging, *its_.store.placed());
  for (const auto& entry : plan.entries) {
    if (entry.type == stage::EntryType::directory) {
      stage::record_came_in(entry, staging, *its_.store.placed());
    }
  }
}

// A successor does not read the lists again: they may have changed, and the PFS may hang.
Status TransferService::record_plan(stage::Plan& plan) {
  auto& listed = its_.config.listed;
  listed = std::move(plan.listed);
  EFS_TRY(image::write_listed(its_.store.metadata(), listed));
  if (!listed.empty()) {
    EFS_TRY(replace_file(its_.directory + "/listed", json_to_text(listed), 0600));
  }
  return plan.parts.empty()
             ? Status()
             : replace_file(its_.directory + "/parts", stage::lines_of(plan.parts), 0600);
}

Status TransferService::import_inputs(const std::function<void()>& planned) {
  stage::PacedPfs pfs = paced_pfs(its_.progress.cancel);
  fs::Staging staging(its_.store.files());
  stage::StagingBuffer buffer(staging);
  auto plan = plan_inputs(pfs, staging);
  if (!plan) {
    return std::unexpected(plan.error());
  }
  EFS_TRY(record_plan(*plan));
  const auto away =
      its_.store.is_left() ? subtract_what_is_there(*plan, staging) : Result<std::uint64_t>(0);
  if (!away) {
    return std::unexpected(away.error());
  }
  planned();
  note(Moment::asked_in);
  // contents that come later wait for their own turn
  const bool needs_turn = stage::data_of(*plan) > 0 || plan->remote_files == 0;
  const auto turn =
      needs_turn ? its_.turns.take(queue::Direction::in, stage::data_of(*plan), its_.progress)
                 : Result<SlotClient::Held>(SlotClient::Held());
  if (!turn) {
    return std::unexpected(turn.error());
  }
  note(Moment::in_begun);
  const stage::StageReport report = stage::stage_in(*plan, buffer, pfs, options(), its_.progress);
  record_inputs_in_place(*plan, pfs, staging);
  if (!report.ok()) {
    return stage_in_failed(*report.failure, its_.config.root_dir);
  }
  std::vector<stage::PlanSkip> skipped = std::move(plan->skipped);
  std::ranges::copy(report.skipped, std::back_inserter(skipped));
  log_staged_in(report, skipped, pfs.retried());
  note(Moment::in_ended);
  record_staged_in({.files = report.files,
                    .bytes = report.bytes,
                    .files_reused = report.reused_files,
                    .bytes_reused = report.reused_bytes,
                    .files_away = *away,
                    .skipped = std::move(skipped)},
                   report.slowest);
  return {};
}

void TransferService::note(Moment moment) {
  if (its_.figures != nullptr) {
    its_.figures->history.note(moment);
  }
}

void TransferService::record_staged_in(const stage::StagedIn& staged_in,
                                       std::vector<stage::TimedFile> slowest) {
  if (its_.figures != nullptr) {
    its_.figures->staged_in = {.files = staged_in.files,
                               .bytes = staged_in.bytes,
                               .files_reused = staged_in.files_reused,
                               .bytes_reused = staged_in.bytes_reused,
                               .files_away = staged_in.files_away};
    its_.figures->has_staged_in = true;
  }
  MutexLock lock(mutex_);
  staged_in_ = staged_in;
  slowest_inputs_ = std::move(slowest);
}

void TransferService::inherit(bool successor) {
  unloaded_.inherit(successor);
  if (successor) {
    inherit_listed();
    inherit_staged_in();
  }
}

// The receipt of a successor's stop needs these figures.
void TransferService::inherit_staged_in() {
  if (its_.figures == nullptr || !its_.figures->has_staged_in) {
    return;
  }
  MutexLock lock(mutex_);
  const KeptStagedIn& kept = its_.figures->staged_in;
  staged_in_ = {.files = kept.files,
                .bytes = kept.bytes,
                .files_reused = kept.files_reused,
                .bytes_reused = kept.bytes_reused,
                .files_away = kept.files_away,
                .skipped = {}};
}

void TransferService::inherit_listed() {
  std::ifstream file(its_.directory + "/listed", std::ios::binary);
  if (!file) {
    return;
  }
  const auto json = json_from_text(
      std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()));
  for (const auto& [place, source] : json.items()) {
    if (source.is_string()) {
      its_.config.listed[place] = source.get<std::string>();
    }
  }
}

}  // namespace efs::daemon
