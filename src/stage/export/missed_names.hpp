// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The file beside a receipt that names files of root-dir which the job lacked. Readers of
// results-dir can read the receipt; the user of the job alone can read this file (mode 0600).

#include <string>
#include <string_view>

#include "stage/export/receipt.hpp"

namespace efs::stage {

/// The file's content; "" if the receipt has a record without such names.
std::string missed_names_text(const Receipt& receipt);

/// True if a file of this kind begins so.
bool begins_missed_names(std::string_view text);

/// Adds the names to the record of a receipt that was read from `path`, if the file beside it
/// belongs to the same stop and this process can read it. Otherwise the record has their number
/// only.
void add_missed_names(Receipt& receipt, const std::string& path);

}  // namespace efs::stage
