// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Moves contents between the backends of the buffer while programs run (verb `move`, key `tiers`).

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "stage/live/live_transfer.hpp"

namespace efs::stage {

struct FailedMove {
  std::string path;
  Error error;
};

/// The outcome of a move.
struct Moves {
  std::uint64_t files = 0, bytes = 0;  // that were moved; the bytes that their contents take
  std::uint64_t unchanged = 0;         // files that were in the wanted backend already
  std::vector<FailedMove> failed;      // files that stay where they were, and why
};

/// Moves the contents of the regular files with these names, and of those below directories, to
/// backend number `place`. Only files that no program has open or mapped move, for reading either
/// (EBUSY). A content that the PFS does not have, or not yet, does not move to a backend that
/// survives less than its own (EPERM). A file keeps its name, number, attributes and times; a
/// program that opens it during the copy wins, and the file stays. A file whose content is not in
/// the buffer is left out.
///
/// `pins`: whether pinned files stay, with EPERM. Names are paths below root-dir. ENOENT fails one
/// name. Ends early, with ECANCELED for the files that were not begun, after Progress::cancel.
Moves move_files(const LiveArguments& with, std::span<const std::string> names, unsigned place,
                 fs::Staging::Pins pins = fs::Staging::Pins::give_way);

}  // namespace efs::stage
