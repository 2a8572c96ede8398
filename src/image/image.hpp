// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The store of an instance that is not running (offline store): found, locked and opened for
// reading. These functions change nothing in it.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "base/unique_fd.hpp"
#include "fs/filesystem.hpp"
#include "fs/namespace.hpp"
#include "image/manifest.hpp"
#include "store/journal.hpp"

namespace efs::image {

/// The directories of a store. `root` contains `meta` (the journal) and `data` (the containers of
/// the only backend, or of the first).
struct Directories {
  std::string path;
  UniqueFd root, metadata, data;
  uid_t owner = 0;
};

/// The containers of all available backends.
struct Backends {
  std::unique_ptr<Backend> backend;
  std::vector<std::string> missing;  // missing backends with the reason: "ID (PATH): REASON"
};

/// `manifest`: the store's own. Each backend must state that it belongs to this store, and must
/// belong to the owner of the store.
Result<Backends> open_backends(const Directories& store, const Manifest& manifest, bool read_only);

/// Finds the store at `path`: the store itself, the directory of the instance, or any directory
/// whose manifest leads to a store. ENOENT with a text if there is none.
Result<Directories> find_store(const std::string& path);

/// As find_store(), for callers that read or change the contents. EPERM if the caller is root and
/// the store belongs to another user: that user controls the contents, and may have replaced the
/// store since it was found.
Result<Directories> find_own_store(const std::string& path);

/// Records the owner of a directory of containers: a dangling symbolic link named `instance`.
/// Durable on return.
Status mark_containers(int data, const store::InstanceId& instance);

/// EUCLEAN with a text if the containers belong to another instance. `path`: the directory, for the
/// text.
Status refuse_other_containers(int data, const store::InstanceId& instance,
                               const std::string& path);

/// The locks of a store. to_look: shared with other readers. to_bring_out: shared with readers, but
/// one process at a time, because the store's name is part of the names of partials. to_change:
/// exclusive.
enum class Hold : std::uint8_t { to_look, to_bring_out, to_change };

/// EBUSY while another process holds a conflicting lock. A store that will not be changed may be on
/// a read-only medium. (open_image() ensures that only one process exports.)
Result<UniqueFd> lock_store(const Directories& store, Hold hold);

/// A locked store with its containers; the contents are not read yet. Owns its members.
struct HeldStore {
  Directories directories;
  UniqueFd lock, bringing_out;
  Manifest manifest;
  std::string manifest_problem;      // the reason for using an older manifest; "": the current one
  bool rebooted = false;             // the machine was restarted since the last use: power may have
                                     // failed
  std::vector<std::string> missing;  // missing backends, as Backends::missing
  std::unique_ptr<Backend> backend;
};

/// Locks the store and opens it read-only. `hold` is at most to_bring_out.
Result<HeldStore> hold_store(const std::string& path, Hold hold);

/// Replays the journal's records, up to the first that does not verify, into the empty `names`. An
/// error means that no record could be read.
Result<store::ReplayEnd> replay_names(const Directories& store, const Manifest& manifest,
                                      bool rebooted, fs::Namespace& names);

/// Returns whether the journal has probably lost records for another reason than power loss.
bool is_damaged(const store::ReplayEnd& end, bool rebooted);

/// The members are destroyed in reverse order: members above are used by members below.
struct Image : HeldStore {
  config::JobConfig config;
  // the reason why the job's rules are unknown; then all new or changed files count as results
  std::string job_problem;
  std::map<std::uint64_t, std::string> changed;  // changed containers, from changed_contents()
  std::string contents_problem;                  // the reason why `changed` is unknown
  std::unique_ptr<fs::Filesystem> filesystem;
};

/// Returns, for people, why the journal may lack records; "" if there is no sign of it. (Does not
/// cover the contents of a missing backend.)
std::string what_is_missing(const Image& image);

/// Returns whether a stop or a salvage recorded that it has exported all results.
bool is_brought_out(const Image& image);

/// hold_store() and replay. An error says what is wrong with the store.
Result<Image> open_image(const std::string& path, Hold hold = Hold::to_look);

}  // namespace efs::image
