#pragma once
// What a user calls an image: by the instance, its mount point or job file, or the directory of its store.

#include <string>

#include "base/result.hpp"

namespace efs::cli {

/// The directory that it is, for image::find_store(); `which` "": the only dead instance. Refused (EBUSY) while the instance lives. Root is the store's
/// owner from here on. Whatever is mounted of a dead instance, and serves nobody, is gone then.
Result<std::string> image_path_as_owner(const std::string& which);

/// False where one of them is not there.
bool is_same_directory(const std::string& a, const std::string& b);

/// Is `path`, which need not be there, this directory or something below it? By whatever names, and over symbolic links.
bool is_within(const std::string& path, const std::string& directory);

}  // namespace efs::cli
