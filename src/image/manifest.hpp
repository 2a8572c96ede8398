#pragma once
// What an image says of itself: whose it is, which job's, and how it was left. `meta/instance.json`
// in the store, with the job file beside it as `meta/job.yaml`, and a copy in the instance's
// directory that leads to the store. Written by the job's user; whoever else reads it believes
// nothing that could hurt him.

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

/// How the last instance left it. in_use: it runs, or died. kept: `efs stop --keep`, everything
/// that should be back is. unsaved: it ended in time and not with everything. salvaged: `efs
/// salvage` brought out what was asked for. over: nothing in it is needed any more, and it was
/// about to be removed (in the instance's directory only, and true of a store of the same life).
enum class ShutdownState : std::uint8_t { in_use, kept, unsaved, salvaged, over };
const char* name_of(ShutdownState left);

/// One of several backends.
struct Member {
  std::string id;
  // absolute: the directory that holds its data, and (all but the first) a manifest of its own
  std::string path;
  std::string kind;
};

struct Manifest {
  std::string name;
  uid_t uid = 0;
  std::string root_dir, mount_dir, results_dir, log_file;
  std::string job_file;                    // as it was named, for people
  std::vector<std::string> start_options;  // likewise: words of config::start_command()
  std::string store;                       // absolute: the directory that holds meta and data
  std::string kind;                        // dram or fsdax
  store::InstanceId instance;  // of the store, which a later instance of the name goes on with
  // drawn by whoever begins with the store, or goes on with it: what was said of an earlier one is
  // not true of this one
  store::InstanceId life;
  // of the machine when it was last in use: another one now means power loss or reboot
  std::string boot_id;
  ShutdownState left = ShutdownState::in_use;
  // the journal's last record when this was written, durable by then: an older one is refused
  std::uint64_t journal_to = 0;
  // checksum of what is known of the containers since it was left (contents.hpp); "": nothing is
  std::string contents;
  // of the job's; and when it began, by the PFS's clock: stage/pfs/merge.hpp
  unsigned node = 0, nodes = 1;
  Nanoseconds merge_since = 0;
  bool merges = false;  // efs stop --merge: whoever goes on replaces nothing newer either
  // where what results_dir lies on was mounted when the instance began
  std::string results_mount;
  // what was mounted below results_dir then: paths relative to it
  std::vector<std::string> mounts_below;
  bool made_mount_dir = false;  // by the instance, and to be removed by whoever ends it
  // where there are several: all, in the order of their numbers, the one with the journal first
  std::vector<Member> members;
  // bytes: of the backend in memory that declares none; 0: there is no such backend
  std::uint64_t memory_capacity = 0;
  unsigned place = 0;  // of the member in whose directory this manifest lies; else 0
  config::Circumstances circumstances;  // of the job file
};

using efs::boot_id;

/// Did the instance of this manifest bring everything back, or was it given up, before it could
/// remove the store that `own` is the manifest of? Nobody has gone on with that since.
bool was_over(const Manifest& instance, const Manifest& own);

/// ENOENT where there is none; EPROTO with a text where it is none of ours, or its checksum (which
/// who changes it by hand takes out) does not verify.
Result<Manifest> read_manifest(int directory);

/// The same; where that is damaged or gone, what was there before the last change of it, perhaps of
/// an earlier life. How the instance was left, what was known of its containers then, and the
/// circumstances of its job are not told by that: it counts as in use, and as one that replaces
/// nothing newer. The error, where there is none either, is that of the first.
Result<Manifest> recover_manifest(int directory);

/// Whole or not at all; durable with its directory. A file beside it, NAME.new, is kept for the
/// next text, so that all but the first writing of an instance's manifest needs no room.
Status write_manifest(int directory, const Manifest& manifest);

/// Is the store of the instance in `directory` on a disk that is not mounted now? Then this
/// manifest is what leads to it.
bool is_out_of_reach(const Manifest& manifest, const std::string& directory);
/// Was its store in memory, and is not there any more?
bool is_gone(const Manifest& manifest);
/// That it is out of reach, and the way out.
std::string out_of_reach_text(const Manifest& manifest);

/// Writes into the manifest that is there, or could be recovered, how it was left.
Status write_left(int directory, ShutdownState left);

/// The job file beside the manifest: `text`, likewise.
Status write_job_file(int directory, const std::string& text);

/// The destinations of the job's lists (JobConfig::listed) beside it, likewise; none: no file.
Status write_listed(int directory, const std::map<std::string, std::string>& listed);

/// Both have a checksum in their last line. The job of the image, with the paths and the
/// circumstances of the manifest, and the destinations of its lists.
Result<config::JobConfig> job_of(int directory, const Manifest& manifest);

/// What the manifest alone tells of it: all that the job has made or changed is a result.
config::JobConfig job_without_rules(const Manifest& manifest);

}  // namespace efs::image
