#pragma once
// What the crash enumeration runs: every operation once, and random sequences.

#include "crash/enumeration.hpp"

namespace efs::test {

/// Every operation of the namespace, the daemon's writes and the kernel's, stage-in, the
/// bookkeeping of a stage-out, and renames over files that were there.
Scenario every_operation();

/// Everything else that a file system and a staging can be asked for: loads over what is there,
/// links, unloads, classes, what a cache shares, containers made ahead, ACLs, and all that only
/// reads. tests/lint/scenario_coverage_test.sh checks that between the two nothing is left out.
Scenario every_staging();

/// Steps each of which changes what can be seen, and syncs that are acknowledged.
Scenario visible_operations();

/// A new file, written, and one fsync of it.
Scenario new_file_with_fsync();

/// A staged file that is not settled when it is opened for writing.
Scenario opened_while_unsettled();

/// A file whose extended attributes take several records.
Scenario bulky_attributes();

/// Records of one size behind a first file, so that what is written after a power loss fits what it
/// left behind the tail.
Scenario equal_records();

/// What the daemon does every second; `durable`: with this one, everything so far is.
Step tending(bool durable);

/// `steps` random ones on few names, so that they meet.
Scenario random_operations(std::uint64_t seed, std::size_t steps);

}  // namespace efs::test
