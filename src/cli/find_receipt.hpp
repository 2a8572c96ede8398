// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The receipt that an argument of `efs report` and `efs receipt` names.

#include <string>

#include "base/result.hpp"
#include "stage/export/receipt.hpp"

namespace efs::cli {

struct FoundReceipt {
  std::string path;
  stage::Receipt receipt;
};

/// Reads the receipt that is meant: by its own path, by an instance or by a job file. With "", the
/// only receipt in the working directory. Adds the names from the file beside it.
Result<FoundReceipt> find_receipt(const std::string& which);

}  // namespace efs::cli
