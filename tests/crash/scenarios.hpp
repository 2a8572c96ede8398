#pragma once
// What the crash enumeration runs: every operation once, and random sequences.

#include "crash/enumeration.hpp"

namespace efs::test {

/// Every operation of the namespace, the daemon's writes and the kernel's, stage-in, the bookkeeping of a stage-out,
/// and renames over files that were there.
Scenario every_operation();

/// Steps each of which changes what can be seen, and syncs that are acknowledged.
Scenario visible_operations();

/// `steps` random ones on few names, so that they meet.
Scenario random_operations(std::uint64_t seed, std::size_t steps);

}  // namespace efs::test
