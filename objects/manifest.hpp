// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// manifest.json of a version. Pure functions; the text that is parsed is untrusted.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "objects/npy.hpp"
#include "objects/result.hpp"

namespace efs::objects {

/// The longest manifest that is written and read, in bytes.
constexpr std::uint64_t max_manifest = 256U << 20U;

/// An object of the manifest. Size and checksum are those of its .npy bytes, header and data,
/// wherever they are.
struct Recorded {
  std::string name;
  Shape shape;
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;  // XXH3-64
  bool small = false;          // in small.npz, not in a file of its own
};

/// Returns the text of a manifest; `objects` are in byte order.
std::string manifest_of(const std::vector<Recorded>& objects);

/// Parses a manifest. EBADMSG: it is damaged, or its names are not unique, valid and in byte order.
/// ENOTSUP: another format.
Result<std::vector<Recorded>> parse_manifest(std::string_view text);

}  // namespace efs::objects
