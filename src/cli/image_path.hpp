#pragma once
// What a user calls an image: by the instance, its mount point or job file, or the directory of its
// store.

#include <string>

#include "base/result.hpp"
#include "image/image.hpp"

namespace efs::cli {

/// The directory that it is, for image::find_store(); `which` "": the only dead instance. Refused
/// (EBUSY) while the instance lives. Root is the store's owner from here on. Whatever is mounted of
/// a dead instance, and serves nobody, is gone then.
Result<std::string> image_path_as_owner(const std::string& which);

/// False where one of them is not there.
bool is_same_directory(const std::string& a, const std::string& b);

/// EINVAL where `to`, which need not be there, lies in what is removed with the image: one of its
/// backends, or the directory of its instance. By whatever name, and over symbolic links.
Status refuse_own_places(const image::HeldStore& held, const std::string& to);

}  // namespace efs::cli
