// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state of the containers at the orderly end of an instance. A process that later truncates or
// overwrites a container leaves another size or another modification time. `meta/contents` has one
// line for each container, "NUMBER SIZE SECONDS NANOSECONDS" and optionally " durable", and a
// checksum. The manifest names that checksum, so the list is valid until the next instance writes
// its manifest.

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

/// Lists all regular files that no input on the PFS can verify. Durable on return. Returns the
/// value for Manifest::contents. Call it while nothing is mounted, because open files may still
/// change, and while no manifest names an earlier list.
Result<std::string> write_contents(int metadata, std::span<const fs::WalkItem> items);
/// Frees the list's space. Call it after the next instance has written its manifest.
void remove_contents(int metadata);

/// Returns the changed containers, each with a text: "it has 5 bytes instead of 100". Returns none
/// if there is no list. After a restart of the machine, checks only the containers that were
/// durable. EUCLEAN with a text if the list is damaged.
Result<std::map<std::uint64_t, std::string>> changed_contents(int metadata,
                                                              const Manifest& manifest,
                                                              Backend& backend);

}  // namespace efs::image
