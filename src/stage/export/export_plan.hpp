// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The results of one stage-out, before anything is written: which there are, which are further
// names of another one, and which cannot have their names.

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/export/outgoing.hpp"
#include "stage/export/selection.hpp"
#include "stage/export_source.hpp"
#include "stage/options.hpp"

namespace efs::stage {

/// Makes no call to the PFS. Not thread-safe. All arguments are borrowed and must outlive the plan.
class ExportPlan {
 public:
  ExportPlan(const config::JobConfig& config, ExportSource& buffer, const Options& options)
      : config_(config), buffer_(buffer), options_(options) {}

  /// Call once. `items`: the selected ones of `all`; the plan borrows them. Settles the results
  /// that cannot have their names.
  void list(std::vector<const fs::WalkItem*> items, const std::vector<fs::WalkItem>& all);

  /// All results that are not a further name of another one.
  std::span<Outgoing> firsts() { return firsts_; }

  bool has_firsts() const { return !firsts_.empty(); }

  /// The firsts without case-insensitive collisions. The colliding ones, twins(), are exported one
  /// at a time afterwards: each then finds the file that has its name.
  std::span<Outgoing> apart_from_twins();
  std::span<Outgoing> twins();

  /// Further names of files whose first name is among the firsts, or was exported before.
  std::span<Outgoing> further_names() { return further_names_; }

  const Outgoing& first_of(std::size_t further_name) const { return *first_of_[further_name]; }

  void swap_further_names(std::size_t one, std::size_t other) {
    std::swap(further_names_[one], further_names_[other]);
    std::swap(first_of_[one], first_of_[other]);
  }

  std::size_t size() const { return firsts_.size() + further_names_.size(); }

  /// The bytes to transfer, without holes.
  std::uint64_t bytes() const;

  /// Visits the firsts and then the further names.
  template <typename Visit>
  void for_each(Visit visit) {
    std::ranges::for_each(firsts_, visit);
    std::ranges::for_each(further_names_, visit);
  }

  /// The names that this stage-out gives to results and whose attributes it sets.
  std::vector<fs::PfsName> names_to_give(const std::vector<DirectoryToMake>& directories) const;

  /// True if the stage-out exports or removes files below this mount.
  bool uses(const std::string& mount, const std::vector<DirectoryToMake>& directories,
            const std::vector<fs::WalkItem>& removed) const;

  /// Directories with many results directly in them. None is an ancestor of another.
  std::unordered_set<std::string> well_filled(
      const std::vector<DirectoryToMake>& directories) const;

  /// True if the directory can be hidden under a name by which a later stage-out recognises it.
  bool can_hide(const std::string& path) const;

  /// Which of efs's own files has this name in results-dir; "": none.
  std::string own_file(const std::string& path) const;

 private:
  /// The first names of files with several names, by inode.
  using FirstNames = std::unordered_map<std::uint64_t, const Outgoing*>;

  Outgoing& add_outgoing(const fs::WalkItem& item, FirstNames& first_names);
  void describe_outgoing(Outgoing& out, const std::unordered_set<std::string_view>& reserved) const;
  void settle_refused();
  const Outgoing& brought_before(const fs::WalkItem& item);
  std::unordered_map<std::string_view, std::size_t> results_by_directory() const;

  const config::JobConfig& config_;
  ExportSource& buffer_;
  const Options& options_;
  std::vector<Outgoing> firsts_;
  std::vector<Outgoing> further_names_;    // of files whose first name is in firsts_ or before_
  std::vector<const Outgoing*> first_of_;  // that first name, for each of them
  std::deque<Outgoing> before_;            // first names that were exported before
  std::deque<fs::WalkItem> items_before_;  // the items of before_
};

}  // namespace efs::stage
