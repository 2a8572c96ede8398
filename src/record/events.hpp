// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The events of a recorded program, read from the memory that its processes shared.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "recorder/recording.h"

namespace efs::record {

struct Event {
  efs_event_kind kind = EFS_EVENT_READ;
  std::uint64_t order = 0;
  std::string path;        // absolute, raw bytes; links and .. in it are not resolved
  std::string second;      // of a rename: the new name
  std::uint64_t size = 0;  // of a removed file
};

struct Recording {
  std::vector<Event> events;    // in their order
  std::uint64_t lost = 0;       // events that had no space
  std::uint64_t processes = 0;  // that were observed
};

/// Reads a recording (recorder/recording.h). Skips events that a killed process did not finish, and
/// never reads beyond `bytes`. Processes may still append.
Recording read_recording(std::span<const std::byte> bytes);

}  // namespace efs::record
