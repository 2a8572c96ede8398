// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The conflict table: what an export does about the file that already has a name in results-dir.
// Pure: the callers look at the file and carry the decision out. The keys on-conflict and existing
// of the job file decide only here.

#include <cstdint>
#include <string_view>

#include "config/job_config.hpp"
#include "stage/versions/directory_version.hpp"
#include "stage/versions/placed_names.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::stage {

/// The file that has the name, as the export sees it.
struct Encounter {
  PfsVersion version = PfsVersion::origin_or_none;  // compared with the item of the buffer
  WhoseCopy whose = WhoseCopy::unknown;             // by the ledger
  bool exists = false;
  bool is_own = false;  // a version that the job has imported or exported under this name
  // in place, and the job has imported or exported a version of this name: another version is one
  // that somebody has changed
  bool is_known_name = false;
  // several nodes export to this directory, and the file is newer than the job
  bool may_be_nodes = false;
  bool is_directory = false;
};

/// The two policies of the job file.
struct ConflictRules {
  config::OnConflict on_conflict = config::OnConflict::fail;
  config::Existing existing = config::Existing::replace;
};

/// Why the file is an obstacle.
enum class Obstacle : std::uint8_t {
  none,
  changed,  // it replaced a version of the job
  unsure,   // as `changed`, if the name is the job's: the ledger is incomplete
  existed,  // neither an input nor a result of the job had the name
  of_job,   // the job has exported another file under the name
  of_node,  // another node of the job may have exported it
};

enum class Act : std::uint8_t {
  write,      // the result gets the name; a removal removes the file
  keep_both,  // the result gets a name beside it; a removal leaves the file, and that is no failure
  leave,      // the file stays; the job's version is in the buffer only
};

struct Decision {
  Act act = Act::write;
  Obstacle obstacle = Obstacle::none;
  bool replaces = false;  // with `write`: it replaces a file that is not the job's

  bool operator==(const Decision&) const = default;
};

/// False if decide_result() returns `write` for every file that has the name.
bool may_protect(bool is_known_name, const ConflictRules& rules);

/// For a result that is to get the name, and for a part that is laid over the file.
///
/// The first row that fits counts.
///
/// | the file is                                            | decided by  |
/// |---|---|
/// | missing, the job's own, or the same content            | write       |
/// | another version, the name is known or may be (unsure)  | on-conflict |
/// | another's, but another node's perhaps                  | write: the rename decides |
/// | another's                                              | existing    |
Decision decide_result(const Encounter& met, const ConflictRules& rules);

/// For an input that the job has removed (deletions: propagate).
///
/// | the file is                          | fail  | keep-both | overwrite            |
/// |---|---|---|---|
/// | the job's version                    | write | write     | write                |
/// | another node's perhaps               | leave | keep_both | leave                |
/// | another version                      | leave | keep_both | write, but directory |
Decision decide_removal(const Encounter& met, const ConflictRules& rules);

/// True if a directory gets the job's attributes: if only the job has changed them, or if both have
/// and on-conflict is overwrite.
bool takes_ours(DirectoryMerge merge, const ConflictRules& rules);

/// The receipt's reasons for a result.
struct ObstacleTexts {
  std::string_view replaced;  // the result replaces that version
  std::string_view both;      // both are kept; the new name of the result follows
  std::string_view left;      // that version stays; " is kept in the buffer only" follows
};

/// For an obstacle that decide_result() returns, but not Obstacle::none.
const ObstacleTexts& texts_about(Obstacle obstacle);

}  // namespace efs::stage
