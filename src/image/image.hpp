#pragma once
// The store of an instance that is not running: found, locked and opened for a look. Nothing in it is changed.

#include <memory>
#include <string>

#include "backends/backend.hpp"
#include "base/unique_fd.hpp"
#include "fs/filesystem.hpp"
#include "image/manifest.hpp"

namespace efs::image {

/// The directories of a store. `root` holds `meta` (the journal) and `data` (the containers).
struct Directories {
  std::string path;
  UniqueFd root, metadata, data;
  uid_t owner = 0;
};

/// `path` may be the store, the directory of the instance, or anything that a manifest in it leads on from. ENOENT with a
/// text where no store is found there.
Result<Directories> find_store(const std::string& path);

/// Holds the store against its next user: exclusively for one who changes it. EBUSY while another does.
Result<UniqueFd> lock_store(const Directories& store, bool exclusive);

/// In order of destruction: what is below is used by what is above.
struct Image {
  Directories directories;
  UniqueFd lock;
  Manifest manifest;
  config::JobConfig config;
  bool rebooted = false;  // the machine was restarted since: power may have failed
  std::unique_ptr<Backend> backend;
  std::unique_ptr<fs::Filesystem> filesystem;
};

/// Locks, replays and holds it, read-only. An error says what is wrong with the image.
Result<Image> open_image(const std::string& path);

}  // namespace efs::image
