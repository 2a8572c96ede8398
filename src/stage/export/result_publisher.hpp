// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Gives results their names: by a rename of the partial, or by a link to a result that has the same
// content.

#include <optional>
#include <span>

#include "stage/copy/transfer.hpp"
#include "stage/export/export_context.hpp"
#include "stage/export/export_failures.hpp"
#include "stage/export/export_records.hpp"
#include "stage/export/outgoing.hpp"
#include "stage/export/partial.hpp"
#include "stage/export/result_names.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/pfs/directory_cursor.hpp"

namespace efs::stage {

/// Thread-safe for different results. Makes no name durable.
class ResultPublisher {
 public:
  /// `names` is borrowed.
  ResultPublisher(const ExportContext& context, ResultNames& names);

  /// Gives `written` results their names. Results in a hidden directory already have theirs. A
  /// result stays `written` and becomes `held` if another node or job has a claim to its name.
  void publish(std::span<Outgoing> task);

  /// Makes `out` another name of `first`, which must be settled as staged out or kept; `out`
  /// becomes `named`. Returns false if the PFS cannot link, or if `first` has changed; the caller
  /// then writes `out` as any other result. `out` stays `waiting` if its name or the name of
  /// `first` is `held`.
  bool link(Outgoing& out, const Outgoing& first);

 private:
  /// A result that the PFS has, and that gets a further name: `now` is its copy in the open
  /// `directory`.
  struct LinkedCopy {
    const Outgoing& first;
    PfsRef directory{};
    const struct stat& now;
  };

  void publish_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch);
  bool take_name(Outgoing& out, PfsRef directory, Scratch& scratch);
  std::optional<PartialJob> look_again(Outgoing& out, PfsRef directory, Scratch& scratch,
                                       PfsCheck& there);
  bool link_copy(Outgoing& out, const LinkedCopy& copy, PfsRef directory);
  bool make_link(Outgoing& out, const LinkedCopy& copy, PfsRef directory,
                 const struct stat* present);
  void take_link(Outgoing& out, const LinkedCopy& copy, PfsRef directory, bool there_already);

  PfsIo& pfs_;
  Publisher& publisher_;
  ResultsTree& tree_;
  const Progress& progress_;
  ExportFailures& failures_;
  ResultNames& names_;
  ExportRecords records_;
  const bool in_place_;
  ScratchPool scratches_;
};

}  // namespace efs::stage
