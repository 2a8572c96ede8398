// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Tells the journal the names that results get.

#include "stage/export/export_context.hpp"
#include "stage/export/outgoing.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::stage {

/// Records the names given in the ledger, `placed` of the options, too, unless that is null.
/// Thread-safe for different results. `directory` is always the open directory of the result.
class ExportRecords {
 public:
  explicit ExportRecords(const ExportContext& context)
      : buffer_(context.buffer),
        pfs_(context.pfs),
        publisher_(*context.options.publisher),
        placed_(context.options.placed) {}

  /// Call just before the file with the attributes `copy` gets the name of the job. `is_shared`: as
  /// in AboutToName. A program may change the file at any time, and this process may die. Only this
  /// record then shows that no other process has changed the copy on the PFS.
  void record_naming(const Outgoing& out, const PartialJob& job, const struct stat& copy,
                     bool is_shared);

  /// Call after that. `is_theirs`: another user's file has the same content. If the job changes the
  /// result later, that file must not be replaced.
  void record_named(Outgoing& out, PfsRef directory, bool is_theirs);

  /// The copy of `first` has got another name. That changes its ctime, and so does the later
  /// removal of that name.
  void record_linked(const Outgoing& first, PfsRef directory);

 private:
  Result<struct stat> named_copy(const Outgoing& out, PfsRef directory);
  Status record_placed(const Outgoing& out, PfsRef directory, const struct stat& copy);

  ExportSource& buffer_;
  PfsIo& pfs_;
  Publisher& publisher_;
  PlacedNames* const placed_;
};

}  // namespace efs::stage
