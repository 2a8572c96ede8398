// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The records of the journal that are events of ledger::Files, and the records of its state.

#include <optional>
#include <string>

#include "fs/inode.hpp"
#include "fs/record.hpp"
#include "ledger/files.hpp"

namespace efs::fs {

/// The inode as the ledger sees it. Borrows the inode.
ledger::Node ledger_node(const Inode& inode);

ledger::FileGiven event_of(const MakeNode& record);
ledger::FileGiven event_of(const SetStaging& record);
ledger::GoneGiven event_of(const Gone& record);

/// Sets the members of the record that state the import. `settled`: the content is durable.
void set_import(MakeNode& record, const ledger::FileEntry& entry, bool settled);
/// A record with these copies and the inode's other staging data.
SetStaging staging_of(const Inode& inode, const ledger::FileEntry& entry);
Gone gone_record_of(const std::string& path, const std::optional<GoneInput>& input);

}  // namespace efs::fs
