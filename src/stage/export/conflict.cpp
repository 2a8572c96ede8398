// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/conflict.hpp"

#include "stage/export/receipt.hpp"

namespace efs::stage {
namespace {

constexpr std::string_view replaced_changed =
    "replaced a version that changed on the PFS since it was staged in";
constexpr std::string_view both_changed =
    "the PFS's version changed since it was staged in: both are kept, the job's as ";

constexpr ObstacleTexts texts_of_job{
    .replaced = "replaced another file of the job that was exported under this name",
    .both = "another file of the job was exported under this name: both are kept, this one as ",
    .left = "another file of the job was exported under this name; this one"};
constexpr ObstacleTexts texts_if_existed{
    .replaced = replaced_changed,
    .both = "results-dir has another file of this name: both are kept, the job's as ",
    .left =
        "results-dir has another file of this name, and the job file says existing: fail; the "
        "job's version"};
static_assert(std::string_view(texts_if_existed.left).contains(says_existing_fail));
constexpr ObstacleTexts texts_if_unsure{
    .replaced = replaced_changed,
    .both = both_changed,
    .left =
        "the file there is from when the buffer was too full to record exports, or a crash took "
        "their records, and may be foreign; the job's version"};
constexpr ObstacleTexts texts_if_changed{
    .replaced = replaced_changed,
    .both = both_changed,
    .left = "it changed on the PFS since it was staged in; the job's version"};

/// A new file of the job replaces an existing file, as a program would, but not a file that
/// replaced the job's own.
bool is_conflict(const Encounter& met) {
  const bool differs =
      met.version == PfsVersion::other || met.version == PfsVersion::of_another_path;
  return differs && (met.is_known_name || met.whose == WhoseCopy::unsure);
}

/// True if the file is neither an input of the job nor a result of its exports.
bool is_anothers(const Encounter& met) {
  const bool is_same =
      met.version == PfsVersion::origin_or_none || met.version == PfsVersion::same_content;
  return met.exists && !is_same && !met.is_own;
}

bool is_in_the_way(const Encounter& met, const ConflictRules& rules) {
  return rules.existing != config::Existing::replace && is_anothers(met) && !met.may_be_nodes;
}

Obstacle obstacle_of(const Encounter& met) {
  if (met.version == PfsVersion::of_another_path) {
    return Obstacle::of_job;
  }
  if (!is_conflict(met)) {
    return Obstacle::existed;
  }
  return met.whose == WhoseCopy::unsure ? Obstacle::unsure : Obstacle::changed;
}

Act act_of(config::OnConflict policy) {
  switch (policy) {
    case config::OnConflict::overwrite: return Act::write;
    case config::OnConflict::keep_both: return Act::keep_both;
    case config::OnConflict::fail: break;
  }
  return Act::leave;
}

Act act_of(config::Existing policy) {
  switch (policy) {
    case config::Existing::replace: return Act::write;
    case config::Existing::keep_both: return Act::keep_both;
    case config::Existing::fail: break;
  }
  return Act::leave;
}

}  // namespace

bool may_protect(bool is_known_name, const ConflictRules& rules) {
  return rules.existing != config::Existing::replace ||
         (is_known_name && rules.on_conflict != config::OnConflict::overwrite);
}

Decision decide_result(const Encounter& met, const ConflictRules& rules) {
  if (is_conflict(met)) {
    const Act act = act_of(rules.on_conflict);
    return {.act = act, .obstacle = obstacle_of(met), .replaces = act == Act::write};
  }
  if (is_in_the_way(met, rules)) {
    return {.act = act_of(rules.existing), .obstacle = obstacle_of(met)};
  }
  return {.act = Act::write, .replaces = is_anothers(met)};
}

Decision decide_removal(const Encounter& met, const ConflictRules& rules) {
  if (met.is_own) {
    return {};
  }
  Act act = act_of(rules.on_conflict);
  if (act == Act::write && (met.may_be_nodes || met.is_directory)) {
    act = Act::leave;
  }
  const bool stays_for_node = met.may_be_nodes && act == Act::leave;
  return {.act = act,
          .obstacle = stays_for_node ? Obstacle::of_node : Obstacle::changed,
          .replaces = act == Act::write};
}

bool takes_ours(DirectoryMerge merge, const ConflictRules& rules) {
  return merge == DirectoryMerge::take_ours ||
         (merge == DirectoryMerge::conflict && rules.on_conflict == config::OnConflict::overwrite);
}

const ObstacleTexts& texts_about(Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::of_job: return texts_of_job;
    case Obstacle::existed: return texts_if_existed;
    case Obstacle::unsure: return texts_if_unsure;
    default: return texts_if_changed;
  }
}

}  // namespace efs::stage
