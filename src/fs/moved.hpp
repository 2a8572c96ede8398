// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "backends/backend.hpp"
#include "base/result.hpp"

namespace efs::fs {

class Namespace;

/// Gives the files that have moved between backends (record Moved) their containers, as each
/// process must that opens the store: from the return on, the number of a file addresses the
/// content of the file. EUCLEAN if the store has one backend only.
Status place_moved(const Namespace& names, Backend& backend);

}  // namespace efs::fs
