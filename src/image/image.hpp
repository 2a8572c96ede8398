#pragma once
// The store of an instance that is not running: found, locked and opened for a look. Nothing in it
// is changed.

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

/// The directories of a store. `root` holds `meta` (the journal) and `data` (the containers, or
/// those of the first of several backends).
struct Directories {
  std::string path;
  UniqueFd root, metadata, data;
  uid_t owner = 0;
};

/// The containers of all backends that are there.
struct Backends {
  std::unique_ptr<Backend> backend;
  std::vector<std::string> missing;  // those that are not, and why: "ID (PATH): REASON"
};

/// `manifest`: the store's own. Each backend must say of itself that it belongs to it, and be the
/// store's owner's.
Result<Backends> open_backends(const Directories& store, const Manifest& manifest, bool read_only);

/// `path` may be the store, the directory of the instance, or anything that a manifest in it leads
/// on from. ENOENT with a text where no store is found there.
Result<Directories> find_store(const std::string& path);

/// The same for who reads what is in it or changes it: EPERM where that is root and the store
/// another user's. What is there is the user's word, and may have become another store since it was
/// looked for.
Result<Directories> find_own_store(const std::string& path);

/// Says in a directory of containers whose they are, by a symbolic link `instance` that leads
/// nowhere. Durable on return.
Status mark_containers(int data, const store::InstanceId& instance);

/// EUCLEAN with a text where they are another instance's. `path`: of the directory, for the text.
Status refuse_other_containers(int data, const store::InstanceId& instance,
                               const std::string& path);

/// What holds a store against others: looking at it beside others who look; bringing out of it
/// beside those, which one does at a time, for partials are called by the store's name; or changing
/// it.
enum class Hold : std::uint8_t { to_look, to_bring_out, to_change };

/// EBUSY while another's hold forbids it. What is not to be changed may lie on a medium that takes
/// no changes. (That one alone brings out open_image() sees to.)
Result<UniqueFd> lock_store(const Directories& store, Hold hold);

/// A store that is held, with its containers; of what is in them nothing is known yet. Owns what it
/// has.
struct HeldStore {
  Directories directories;
  UniqueFd lock, bringing_out;
  Manifest manifest;
  std::string manifest_problem;      // why that is an older one; "": it is not
  bool rebooted = false;             // the machine was restarted since: power may have failed
  std::vector<std::string> missing;  // backends that are gone, as Backends::missing
  std::unique_ptr<Backend> backend;
};

/// Locks and opens it, read-only: `hold` is no more than to_bring_out.
Result<HeldStore> hold_store(const std::string& path, Hold hold);

/// Applies the records of its journal, up to the first that does not verify, to `names`, which are
/// empty. An error: not one is known.
Result<store::ReplayEnd> replay_names(const Directories& store, const Manifest& manifest,
                                      bool rebooted, fs::Namespace& names);

/// Is there reason to think that it had more records, which power loss does not explain?
bool is_damaged(const store::ReplayEnd& end, bool rebooted);

/// In order of destruction: what is below is used by what is above.
struct Image : HeldStore {
  config::JobConfig config;
  // why nothing is known of its rules, and all that the job has made or changed is a result
  std::string job_problem;
  std::map<std::uint64_t, std::string> changed;  // containers, as changed_contents()
  std::string contents_problem;                  // why nothing is known of that
  std::unique_ptr<fs::Filesystem> filesystem;
};

/// Why the image may have held more than it tells of, for people; "": nothing speaks for that.
/// (What lay in a backend that is gone is not meant.)
std::string what_is_missing(const Image& image);

/// Has all that should be back been brought out, by the word of a stop or a salvage?
bool is_brought_out(const Image& image);

/// hold_store(), and replays. An error says what is wrong with the image.
Result<Image> open_image(const std::string& path, Hold hold = Hold::to_look);

}  // namespace efs::image
