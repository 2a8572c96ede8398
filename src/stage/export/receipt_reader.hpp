// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads a receipt that write_receipt() wrote.

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "stage/export/receipt.hpp"

namespace efs::stage {

/// The document of a receipt: an object with "entries". EPROTO if `path` is not a receipt of efs.
Result<nlohmann::json> read_receipt_document(const std::string& path);

/// The receipt in `path`. Members that are not in the file keep their defaults. Totals and verdict
/// are those of the file. EPROTO if this version of efs cannot read it.
Result<Receipt> read_receipt(const std::string& path);

}  // namespace efs::stage
