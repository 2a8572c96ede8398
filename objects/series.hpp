// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The committed versions of a series: directories with a manifest.

#include <cstdint>
#include <string_view>
#include <vector>

#include "objects/store.hpp"

namespace efs::objects {

/// Opens, and with `make` creates, the directory of a series.
Result<Fd> open_series(const Store& store, std::string_view series, bool make);
bool has_manifest(int series, std::uint64_t n);
/// Returns the committed versions, the oldest first.
Result<std::vector<std::uint64_t>> versions_in(int series);
/// Returns the newest committed version. ENOENT: there is none.
Result<std::uint64_t> newest_in(int series);

}  // namespace efs::objects
