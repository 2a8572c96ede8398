// SPDX-License-Identifier: BSD-3-Clause
#include "fs/ledger_records.hpp"

namespace efs::fs {

ledger::Node ledger_node(const Inode& inode) {
  return {.id = inode.ino,
          .type = inode.mode & S_IFMT,
          .dirty = inode.dirty,
          .linked = inode.nlink > 1,
          .remote = inode.is_remote(),
          .keep = inode.keep(),
          .target = inode.extra ? std::string_view(inode.extra->target) : std::string_view()};
}

ledger::FileGiven event_of(const MakeNode& r) {
  ledger::FileGiven event{.id = r.ino, .entry = {}};
  if (r.staged != 0) {
    event.entry.imported = {.version = r.origin, .names = ledger::Names(r.origin_path)};
  }
  return event;
}

ledger::FileGiven event_of(const SetStaging& r) {
  ledger::FileGiven event{.id = r.ino, .entry = {.parts = r.parts}};
  if (r.staged != 0) {
    event.entry.imported = {.version = r.origin, .names = ledger::Names(r.origin_path)};
  }
  if (r.saved != 0) {
    event.entry.exported = {{.version = r.copy, .names = ledger::Names(r.saved_path)},
                            r.saved == 2};
  }
  return event;
}

ledger::GoneGiven event_of(const Gone& r) {
  if (r.there == 0) {
    return {.path = r.path, .input = std::nullopt};
  }
  return {.path = r.path,
          .input = GoneInput{.type = r.mode & S_IFMT,
                             .origin = r.origin,
                             .saved = r.saved != 0 ? std::optional(r.copy) : std::nullopt,
                             .linked = r.linked != 0,
                             .keep = static_cast<Keep>(r.keep),
                             .target = r.target,
                             .unloaded = r.there == Gone::unloaded}};
}

void set_import(MakeNode& record, const ledger::FileEntry& entry, bool settled) {
  if (entry.imported) {
    record.staged = settled ? 2 : 1;
    record.origin = entry.imported->version;
    record.origin_path = entry.imported->names.text();
  }
}

SetStaging staging_of(const Inode& inode, const ledger::FileEntry& entry) {
  SetStaging r{
      .ino = inode.ino, .dirty = inode.dirty, .keep = static_cast<std::uint8_t>(inode.keep())};
  if (entry.imported) {
    r.staged = 1;
    r.origin = entry.imported->version;
    r.origin_path = entry.imported->names.text();
  }
  if (entry.exported) {
    r.saved = entry.exported->as_imported ? 2 : 1;
    r.copy = entry.exported->version;
    r.saved_path = entry.exported->names.text();
  }
  r.parts = entry.parts;
  return r;
}

Gone gone_record_of(const std::string& path, const std::optional<GoneInput>& input) {
  if (!input) {
    return {.path = path};
  }
  return {.mode = input->type,
          .there = input->unloaded ? Gone::unloaded : Gone::removed,
          .keep = static_cast<std::uint8_t>(input->keep),
          .linked = input->linked,
          .saved = input->saved.has_value(),
          .origin = input->origin,
          .copy = input->saved.value_or(Origin{}),
          .path = path,
          .target = input->target};
}

}  // namespace efs::fs
