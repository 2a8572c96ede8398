// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The scenarios of the crash enumeration: every operation once, and random sequences.

#include "crash/enumeration.hpp"

namespace efs::test {

/// Every operation of the namespace, writes by the daemon and by the kernel, stage-in, the records
/// of a stage-out, and renames over existing files.
Scenario every_operation();

/// All other operations of a file system and a staging: loads over existing files, links, unloads,
/// classes, files shared with the cache, spare containers, ACLs, and all read-only calls.
/// tests/lint/scenario_coverage_test.sh checks that the two scenarios together cover everything.
Scenario every_staging();

/// Every event of the ledger.
Scenario every_export();

/// Files that lose writes, and that programs begin anew.
Scenario every_loss();

/// Files whose contents come later, in part and as a whole.
Scenario every_fetch();
/// Contents that leave a full buffer, and come again.
Scenario every_eviction();

/// Steps with a visible change each, and syncs that are acknowledged.
Scenario visible_operations();

/// Contents that move between two backends; without a second one nothing moves.
Scenario every_move();

/// Creates a file, writes it, and syncs it once.
Scenario new_file_with_fsync();

/// Opens a staged file for writing before it is settled.
Scenario opened_while_unsettled();

/// A file with extended attributes that need several records.
Scenario bulky_attributes();

/// Records of equal size after a first file, so that a record after a power loss fits the remains
/// behind the tail.
Scenario equal_records();

/// The daemon's work of every second. `durable`: makes all earlier records durable.
Step tending(bool durable);

/// `steps` random operations on few names, so that they interact.
Scenario random_operations(std::uint64_t seed, std::size_t steps);

}  // namespace efs::test
