// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The directories of a stage-out. They are made before their content is exported, get their
// attributes afterwards, and are reported.

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "stage/export/conflict.hpp"
#include "stage/export/export_context.hpp"
#include "stage/export/receipt.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/export/selection.hpp"
#include "stage/options.hpp"
#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/patience.hpp"
#include "stage/versions/directory_version.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::stage {

/// In all lists parents come before children. Each call returns entries of the receipt. Not
/// thread-safe; no other thread may export during a call.
///
/// In place a directory gets exactly the job's attributes, unless the attributes on the PFS have
/// changed since the stage-in or since the last stage-out. If only the PFS's attributes have
/// changed, they stay. If both have changed, on-conflict decides. Attributes of unknown origin stay
/// too. efs decides and acts under a claim to the directory's name, as for a file (name_claim.hpp).
/// The claim does not stop programs other than efs.
class ResultDirectories {
 public:
  /// Uses the store's partial_tag, and `placed` of
  /// the options, which records the attributes that this store has given to directories.
  explicit ResultDirectories(const ExportContext& context)
      : rules_{.on_conflict = context.config.on_conflict, .existing = context.config.existing},
        options_(context.options),
        buffer_(context.buffer),
        pfs_(context.pfs),
        tree_(context.tree),
        failures_(context.failures),
        in_place_(config::has_results_in_place(context.config)),
        placed_(in_place_ ? context.options.placed : nullptr) {}

  /// Makes the directories, durably. Returns entries for those that could not be made.
  std::vector<ReceiptEntry> make(const std::vector<DirectoryToMake>& directories);

  /// Shows the hidden directories that no batch has shown because no result is in them.
  void show_hidden();

  /// Gives the directories their attributes, durably. Call it after their content is exported.
  /// Returns entries for the directories that make() made. Waits for names that another node or job
  /// has claimed for as long as `patience` lasts.
  std::vector<ReceiptEntry> finish(const std::vector<DirectoryToMake>& directories,
                                   Patience& patience);

  /// Returns entries for directories that are not made, with this reason.
  static std::vector<ReceiptEntry> leave(const std::vector<DirectoryToMake>& directories,
                                         const std::string& reason);

  /// Why the directories that make() made, and their content, may not survive a crash; "" if they
  /// will.
  const std::string& not_durable() const { return not_durable_; }

 private:
  struct Finished {
    const DirectoryToMake* directory = nullptr;
    std::string lost{};    // attributes that the PFS rejected
    bool refused = false;  // the mode is one of them
    std::string reason{};
    bool stays = false;  // a conflict: another user's attributes stay
    // the present version, if this store has set it or would set the same
    std::optional<std::uint64_t> version{};
  };

  /// The decision for a directory that existed before.
  struct Decided {
    std::optional<std::uint64_t> known{};  // the version that the job may replace
    DirectoryAttributes there{};
    std::uint64_t theirs = 0;  // its version
    DirectoryMerge merge = DirectoryMerge::same;
  };

  ReceiptEntry failed(const fs::WalkItem& item, const Error& error);
  PlacedDirectory state_of(const fs::WalkItem& item) const;
  void record_coming(const fs::WalkItem& item, const DirectoryAttributes* has);
  void record_made(const fs::WalkItem& item, const DirectoryAttributes& has);
  void record_applied(const fs::WalkItem& item, std::uint64_t version);
  void record_placed(const fs::WalkItem& item, std::optional<std::uint64_t> version);
  Status make_one(const fs::WalkItem& item);
  Result<Finished> finish_one(const DirectoryToMake& directory, bool fsync, Patience& patience);
  std::optional<ReceiptEntry> outcome_of(const Finished& finished, const std::string& doubt);
  Status apply(const fs::WalkItem& item, bool fsync, const DirectoryAttributes* has,
               Finished& finished);
  Status merge(const fs::WalkItem& item, bool fsync, Finished& finished, Patience& patience);
  Result<Decided> decide(const fs::WalkItem& item);
  Status act(const fs::WalkItem& item, bool fsync, const Decided& decided, Finished& finished);
  Status leave_theirs(const fs::WalkItem& item, bool fsync, const Decided& decided,
                      Finished& finished);
  Status replace(const fs::WalkItem& item, bool fsync, const Decided& decided, Finished& finished);
  Result<std::optional<NameClaim>> claim_name(PfsRef parent, const fs::WalkItem& item,
                                              Patience& patience);
  std::optional<std::uint64_t> known_of(const fs::WalkItem& item, std::uint64_t theirs) const;

  const ConflictRules rules_;
  const Options& options_;
  ExportSource& buffer_;
  PfsIo& pfs_;
  ResultsTree& tree_;
  ExportFailures& failures_;
  const bool in_place_;
  // null: no ledger; directories get the job's attributes regardless of their origin
  PlacedNames* const placed_;
  bool is_patient_ = true;
  std::unordered_set<std::string> failed_;
  std::string not_durable_;
};

}  // namespace efs::stage
