// SPDX-License-Identifier: BSD-3-Clause
// A start on the buffer of an earlier instance: decides which files stay, which are imported again,
// and when to refuse the start.
#include <fcntl.h>

#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "daemon/transfer_service.hpp"
#include "fs/staging.hpp"
#include "stage/buffer.hpp"
#include "stage/plan/placement.hpp"
#include "stage/plan/planner.hpp"
#include "stage/plan/results_dir.hpp"
#include "stage/resume/resume.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::daemon {
namespace {

Status stuck(const std::string& name, const std::vector<stage::PlanProblem>& problems) {
  std::string text = "the job cannot continue with the buffer of an earlier instance:";
  for (const auto& problem : problems) {
    text += "\n  " + escaped(problem.path) + ": " + printable(problem.reason);
  }
  return fail_lines(EEXIST, text +
                                "\nRestore them on the PFS; or export the results (efs salvage " +
                                escaped(name) + " --to DIRECTORY), remove the buffer (efs clean " +
                                escaped(name) + ") and start again");
}

// Returns an error for a path that cannot be accessed, because the path may exist.
Result<bool> is_there(stage::PfsIo& pfs, const std::string& path) {
  const auto there = pfs.lstat(stage::no_directory, path);
  if (there) {
    return true;
  }
  if (there.error().code == ENOENT || there.error().code == ENOTDIR) {
    return false;
  }
  return fail(there.error().code,
              escaped(path) + " cannot be compared with the buffer of an earlier instance: " +
                  describe(there.error()));
}

// Adds the content of the directories that are in the way of inputs.
Status add_displaced(const stage::Plan& plan, fs::Staging& staging,
                     std::vector<fs::WalkItem>& items) {
  for (const auto& directory : stage::displaced_directories(plan.entries, items)) {
    auto inside = staging.walk(directory);
    if (!inside) {
      return std::unexpected(inside.error());
    }
    for (auto& item : *inside) {
      if (item.path != directory) {
        items.push_back(std::move(item));
      }
    }
  }
  return {};
}

// Chooses the backends of the inputs that are still in the plan. Fails if there is no room.
Status place_what_is_missing(const config::JobConfig& config, stage::Plan& plan,
                             fs::Staging& staging) {
  stage::leave_out_holes(plan, stage::posix_pfs());
  const auto rooms = staging.available_by_place();
  stage::place_entries(config, plan, stage::Rooms(rooms.begin(), rooms.end()));
  if (!plan.problems.empty()) {
    return fail(ENOSPC, "besides the data of an earlier instance, " + plan.problems.front().reason);
  }
  if (const auto available = staging.available_bytes();
      rooms.size() == 1 && available && plan.needed > *available) {
    return fail(ENOSPC, "the missing inputs need " + format_bytes(plan.needed) +
                            " and the buffer, with the data of an earlier instance, has room for " +
                            format_bytes(*available));
  }
  return {};
}

}  // namespace

// A salvage or a killed stop may have removed inputs that still exist in the buffer under other
// names. Revokes their registration under the names that are gone from the PFS.
Status TransferService::disown_removed(fs::Staging& staging) {
  if (!its_.config.in_place && its_.config.results_dir != its_.config.root_dir) {
    return {};
  }
  std::vector<fs::PfsName> names;
  for (auto& item : staging.gone()) {
    if (item.ino == 0) {
      continue;
    }
    const auto there = is_there(stage::posix_pfs(), its_.config.root_dir + "/" + item.path);
    if (!there) {
      return std::unexpected(there.error());
    }
    if (!*there) {
      names.push_back({.path = std::move(item.path)});
    }
  }
  return stage::all_disowned(staging.revoke(names, fs::Side::inputs));
}

// Ignores problems of two kinds of inputs. The buffer has the current version of files that the job
// changed, or exported with an unreadable mode. Files that the job removed and an export then
// deleted from the PFS must stay deleted.
void TransferService::forgive_what_is_the_jobs(stage::Plan& plan, fs::Staging& staging) const {
  const bool in_place = its_.store.placed() != nullptr && config::has_results_in_place(its_.config);
  std::erase_if(plan.problems, [&](const stage::PlanProblem& problem) {
    if (in_place && !problem.not_there.empty() &&
        its_.store.placed()->has_removed(problem.not_there)) {
      return true;
    }
    const auto item = problem.unreadable.empty() ? fail(ENOENT) : staging.find(problem.unreadable);
    return item && (item->due_for_export() || item->pfs.saved);
  });
}

// Refuses the start if a container was changed from outside. The plan imports its files again, so
// they are safe. Files that a program renamed, or that efs load imported, would be read with the
// foreign contents.
Status TransferService::refuse_foreign(const stage::Plan& plan, fs::Staging& staging) {
  std::unordered_set<std::string_view> planned;
  for (const auto& entry : plan.entries) {
    planned.insert(entry.path);
  }
  const auto items = staging.unchanged(
      [&](const std::string& path, bool renamed) { return renamed || !planned.contains(path); });
  if (!items) {
    return std::unexpected(items.error());
  }
  for (const auto& item : *items) {
    if (!stage::is_foreign(item)) {
      continue;
    }
    return fail(EUCLEAN, escaped(item.path) +
                             ": its container is not what was staged in, and no program changed "
                             "it: it was replaced or cut short. List such files: efs check-image " +
                             its_.config.name + "; export the others: efs salvage " +
                             its_.config.name + "; then remove the buffer: efs clean " +
                             its_.config.name);
  }
  return {};
}

// Removes from the plan the inputs that an earlier instance imported, and perhaps changed. Returns
// the number of inputs that stay absent because the job removed them.
Result<std::uint64_t> TransferService::subtract_what_is_there(stage::Plan& plan,
                                                              fs::Staging& staging) {
  EFS_TRY(stage::disown_others(its_.config, plan, staging));
  EFS_TRY(disown_removed(staging));
  EFS_TRY(refuse_foreign(plan, staging));
  auto items = stage::StagingBuffer(staging).look(plan);
  if (!items) {
    return std::unexpected(items.error());
  }
  EFS_TRY(add_displaced(plan, staging, *items));
  const auto is_out = [this](const std::string& path) {
    const auto& config = its_.config;
    return config.results_dir.empty()
               ? Result<bool>(false)
               : is_there(stage::posix_pfs(),
                          config.results_dir + "/" + config::result_path(config, path));
  };
  const auto away = stage::stays_away(its_.config, plan, staging,
                                      its_.store.left_as() == image::ShutdownState::kept, is_out);
  if (!away) {
    return std::unexpected(away.error());
  }
  const auto subtracted = stage::subtract(plan, *items, *away);
  if (!subtracted.problems.empty()) {
    return std::unexpected(stuck(its_.config.name, subtracted.problems).error());
  }
  for (const auto& path : subtracted.outdated) {
    EFS_TRY(staging.remove(path));
  }
  EFS_TRY(place_what_is_missing(its_.config, plan, staging));
  log::info(
      "event=resume_plan missing_files={} missing_bytes={} kept_files={} kept_bytes={} "
      "changed_by_job={} away_files={} outdated={}",
      plan.files, plan.bytes, subtracted.kept_files, subtracted.kept_bytes, subtracted.job_files,
      subtracted.away_files, subtracted.outdated.size());
  return subtracted.away_files;
}

}  // namespace efs::daemon
