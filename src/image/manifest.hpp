// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The manifest of a store: its owner, its job, and how the last instance ended. The store has it as
// `meta/instance.json`, with the job file beside it as `meta/job.yaml`. The instance's directory
// has a copy that leads to the store. The job's user writes the manifest, so other users must not
// trust it with anything that could harm them.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/boot.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "config/job_config.hpp"
#include "store/instance_id.hpp"

namespace efs::image {

inline constexpr const char* manifest_name = "instance.json";
inline constexpr const char* job_file_name = "job.yaml";

/// How the last instance ended.
/// - in_use: it runs, or it died.
/// - kept: `efs stop --keep`; all results are exported.
/// - unsaved: it ended in order, but not all results are exported.
/// - salvaged: `efs salvage` exported the requested files.
/// - over: the store is not needed any more and was about to be removed (only in the instance's
///   directory, and only for a store of the same life).
enum class ShutdownState : std::uint8_t { in_use, kept, unsaved, salvaged, over };
const char* name_of(ShutdownState left);

/// One of several backends.
struct Member {
  std::string id;
  // absolute: the directory with its data and (except the first backend) its own manifest
  std::string path;
  std::string kind;
};

struct Manifest {
  std::string name;
  uid_t uid = 0;
  std::string root_dir, mount_dir, results_dir, log_file;
  std::string job_file;                    // as the user named it, for people
  std::vector<std::string> start_options;  // for people: words of config::start_command()
  std::string store;                       // absolute: the directory with meta and data
  std::string kind;                        // dram or fsdax
  store::InstanceId instance;  // identifies the store; a later instance that continues the store
                               // keeps it
  // drawn by each instance that creates or continues the store: statements about an earlier life do
  // not apply to this one
  store::InstanceId life;
  // boot id of the machine at the last use: a different one now means power loss or a reboot
  std::string boot_id;
  ShutdownState left = ShutdownState::in_use;
  // the journal's last durable record when this was written: an older journal is rejected
  std::uint64_t journal_to = 0;
  // checksum of the list of contents (contents.hpp); "": no list
  std::string contents;
  // node number and number of nodes of the job; and its begin, by the PFS's clock:
  // stage/pfs/merge.hpp
  unsigned node = 0, nodes = 1;
  Nanoseconds merge_since = 0;
  bool merges = false;  // efs stop --merge: a later instance does not replace newer files either
  // mount point of the file system of results_dir when the instance began
  std::string results_mount;
  // mount points below results_dir at that time, relative to it
  std::vector<std::string> mounts_below;
  bool made_mount_dir = false;  // the instance created it; the process that ends the instance
                                // removes it
  // if there are several: all members in order of their numbers; the first has the journal
  std::vector<Member> members;
  // bytes of the backend in memory without a declared capacity; 0: no such backend
  std::uint64_t memory_capacity = 0;
  unsigned place = 0;  // number of the member with this manifest; 0: the only or first one
  config::Circumstances circumstances;  // of the job file
};

using efs::boot_id;

/// Returns whether the instance of this manifest had exported everything, or was discarded, but
/// could not remove its store yet. `own` is the store's manifest: no later instance has continued
/// the store.
bool was_over(const Manifest& instance, const Manifest& own);

/// ENOENT if there is no manifest. EPROTO with a text if the file is not a manifest, or if its
/// checksum does not verify. (A user must remove the checksum to edit the file by hand.)
Result<Manifest> read_manifest(int directory);

/// As read_manifest(). If the manifest is damaged or missing, returns the version before its last
/// change, perhaps of an earlier life. That version does not tell how the instance ended, the state
/// of its containers, or the circumstances of its job. So the result counts as in use, and as an
/// instance that replaces nothing newer. If both versions are missing or damaged, returns the error
/// of the first.
Result<Manifest> recover_manifest(int directory);

/// Atomic; durable together with its directory. A second file, NAME.new, is kept for the next text,
/// so that only the first write of an instance's manifest needs free space.
Status write_manifest(int directory, const Manifest& manifest);

/// Returns whether the store of the instance in `directory` is on a disk that is not mounted now.
/// Then only this manifest leads to the store.
bool is_out_of_reach(const Manifest& manifest, const std::string& directory);
/// Returns whether the store was in memory and no longer exists.
bool is_gone(const Manifest& manifest);
/// Returns a text that the store is out of reach, with the remedy.
std::string out_of_reach_text(const Manifest& manifest);

/// Records how the instance ended, in the current or recovered manifest.
Status write_left(int directory, ShutdownState left);

/// Writes the job file beside the manifest, atomically and durably.
Status write_job_file(int directory, const std::string& text);

/// Writes the destinations of the job's lists (JobConfig::listed) beside it in the same way; if
/// empty, removes the file.
Status write_listed(int directory, const std::map<std::string, std::string>& listed);

/// Returns the job of the store, with the manifest's paths and circumstances and the destinations
/// of its lists. Both files end in a checksum.
Result<config::JobConfig> job_of(int directory, const Manifest& manifest);

/// Returns the job as far as the manifest alone describes it: all new or changed files count as
/// results.
config::JobConfig job_without_rules(const Manifest& manifest);

}  // namespace efs::image
