// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/planner.hpp"

#include <algorithm>
#include <exception>
#include <optional>

#include "base/text.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/plan/distribute.hpp"
#include "stage/plan/expansion.hpp"
#include "stage/plan/follow.hpp"
#include "stage/plan/hard_links.hpp"
#include "stage/plan/placement.hpp"
#include "stage/plan/results_dir.hpp"

namespace efs::stage {
namespace {

class Planner {
 public:
  Planner(const config::JobConfig& config, PfsIo& pfs) : config_(config), pfs_(pfs) {}

  Plan run(const Rooms& rooms) {
    plan_.name = config_.name;
    plan_.root_dir = config_.root_dir;
    plan_.results_dir = config_.results_dir;
    plan_.cache = config_.cache;
    plan_.deletions = config_.deletions == config::Deletions::propagate;
    // The total capacity is known only if the capacity of each backend is known.
    if (std::ranges::all_of(rooms, [](const auto& room) { return room.has_value(); })) {
      for (const auto& room : rooms) {
        plan_.capacity = plan_.capacity.value_or(0) + *room;
      }
    }
    auto root =
        pfs_.open(no_directory, known_part(config_.root_dir, config_.root_open), passage_flags);
    if (root && config_.root_open) {
      plan_.skipped.push_back({.path = config_.root_dir, .reason = for_the_nodes});
    } else if (root) {
      root_ = std::move(*root);
      expansion_.emplace(config_, pfs_, root_, plan_);
      for (const auto& resource : config_.resources) {
        expansion_->add(resource);
      }
    } else {
      problem(config_.root_dir, "root-dir cannot be opened: " + describe(root.error()));
    }
    check_results();
    total();
    if (rooms.size() > 1) {
      place(rooms);
    } else if (plan_.capacity) {
      check_capacity(*plan_.capacity);
    }
    return std::move(plan_);
  }

 private:
  void problem(const std::string& path, std::string reason) {
    plan_.problems.push_back({.path = path, .reason = std::move(reason)});
  }

  void check_results() {
    for (auto& found :
         check_results_dir(config_, pfs_, root_,
                           expansion_ ? expansion_->input_directories() : InputDirectories{})) {
      problem(found.path, std::move(found.reason));
    }
  }

  void total() {
    if (expansion_) {
      expansion_->finish();
    }
    plan_.parts = deal_out(config_, plan_.entries);
    group_links(plan_.entries);
    for (const auto& entry : plan_.entries) {
      keep_first_name(entry);
    }
    plan_.links = links_that_lead_out(config_, plan_.entries);
    sum_up(plan_);
  }

  /// Its further names are links to it: it is read, or nothing is.
  void keep_first_name(const PlanEntry& entry) {
    if (entry.link_to.empty()) {
      return;
    }
    const auto first = std::ranges::lower_bound(plan_.entries, entry.link_to, {}, &PlanEntry::path);
    if (first != plan_.entries.end() && first->path == entry.link_to) {
      first->may_vanish = false;
    }
  }

  void place(const Rooms& rooms) {
    const auto others = static_cast<std::ptrdiff_t>(plan_.problems.size());
    place_entries(config_, plan_, rooms);
    if (std::ssize(plan_.problems) == others) {
      return;
    }
    plan_.problems.erase(plan_.problems.begin() + others, plan_.problems.end());
    leave_out_holes(plan_, pfs_);
    place_entries(config_, plan_, rooms);
  }

  void check_capacity(std::uint64_t capacity) {
    // Where all fits even with its holes there is nothing to find out.
    if (plan_.needed > capacity) {
      leave_out_holes(plan_, pfs_);
    }
    if (plan_.needed <= capacity) {
      return;
    }
    problem(config_.root_dir, "the inputs need " + format_bytes(plan_.needed) +
                                  " and the buffer takes " + format_bytes(capacity) +
                                  ": raise its capacity or stage in less");
  }

  const config::JobConfig& config_;
  PfsIo& pfs_;
  PfsHandle root_;
  Plan plan_;
  std::optional<Expansion> expansion_;  // there when root_ is
};

}  // namespace

void take_version(PlanEntry& entry, const struct stat& attributes) {
  const auto size = static_cast<std::uint64_t>(attributes.st_size);
  if (entry.type == EntryType::file) {
    entry.size = size;
    entry.allocated = static_cast<std::uint64_t>(attributes.st_blocks) * 512;
    entry.linked = attributes.st_nlink > 1;
  }
  const Nanoseconds mtime = to_ns(attributes.st_mtim);
  entry.attributes = {.mode = attributes.st_mode & 07777U,
                      .uid = attributes.st_uid,
                      .gid = attributes.st_gid,
                      .atime = to_ns(attributes.st_atim),
                      .mtime = mtime};
  entry.origin = {.device = attributes.st_dev,
                  .inode = attributes.st_ino,
                  .size = size,
                  .mtime = mtime,
                  .ctime = to_ns(attributes.st_ctim)};
}

Result<Plan> make_plan(const config::JobConfig& config, PfsIo& pfs,
                       std::optional<std::uint64_t> capacity) {
  return make_plan(config, pfs, Rooms{capacity});
}

Result<Plan> make_plan(const config::JobConfig& config, PfsIo& pfs, const Rooms& rooms) {
  try {
    return Planner(config, pfs).run(rooms);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM, "planning the stage-in: out of memory");
  } catch (const std::exception& exception) {
    return fail(EIO, std::string("planning the stage-in: ") + exception.what());
  }
}

}  // namespace efs::stage
