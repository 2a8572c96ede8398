#pragma once
// What the containers were when their instance was left on purpose: who cuts or overwrites one
// afterwards leaves another size or another time of modification. `meta/contents`: a line for each,
// "NUMBER SIZE SECONDS NANOSECONDS" and " durable", and its checksum. The manifest names that
// checksum, so that the list counts until the next instance writes a manifest of its own.

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "backends/backend.hpp"
#include "base/result.hpp"
#include "fs/staging.hpp"
#include "image/manifest.hpp"

namespace efs::image {

inline constexpr const char* contents_name = "contents";

/// Of all regular files for which no input vouches. Durable on return. What Manifest::contents is
/// to be. Files that are open may change still: call it when nothing is mounted, and while no
/// manifest names an earlier list.
Result<std::string> write_contents(int metadata, std::span<const fs::WalkItem> items);
/// When a manifest of the next instance is there: it takes room.
void remove_contents(int metadata);

/// The containers that are not what they were, and how: "it has 5 bytes instead of 100". None,
/// where nothing is known: no list, or it was removed. After a restart of the machine only of what
/// was on the medium. EUCLEAN with a text where the list is damaged.
Result<std::map<std::uint64_t, std::string>> changed_contents(int metadata,
                                                              const Manifest& manifest,
                                                              Backend& backend);

}  // namespace efs::image
