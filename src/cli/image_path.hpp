// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds the offline store that a user names by the instance, its mount point, its job file or the
// directory of the store.

#include <string>

#include "base/result.hpp"
#include "image/image.hpp"

namespace efs::cli {

/// Returns the directory of the store for image::find_store(). `which` "": the store of the only
/// dead instance. Fails with EBUSY if the instance lives. A root process becomes the owner of the
/// store here, permanently. Removes a dead mount of the instance.
Result<std::string> image_path_as_owner(const std::string& which);

/// False if one of the paths does not exist.
bool is_same_directory(const std::string& a, const std::string& b);

/// Fails with EINVAL if `to` is inside a directory that efs removes with the store: one of the
/// backends, or the directory of the instance. Resolves symbolic links. `to` need not exist.
Status refuse_own_places(const image::HeldStore& held, const std::string& to);

}  // namespace efs::cli
