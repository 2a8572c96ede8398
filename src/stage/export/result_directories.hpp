#pragma once
// The directories of a stage-out: made before what is in them, finished behind it, and reported.

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "stage/export/receipt.hpp"
#include "stage/export/result_writer.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/export/selection.hpp"
#include "stage/options.hpp"
#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/patience.hpp"
#include "stage/versions/directory_version.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::stage {

/// Parents come before children. Each call returns entries of the receipt. Not thread-safe; nothing
/// may be written meanwhile.
///
/// In place a directory has exactly the job's attributes at the end, unless somebody has changed
/// those of the PFS since the stage-in, or since a stage-out brought the job's there: where the job
/// has not, his stay, else on-conflict decides. Where nothing is known of what is there, it stays,
/// too. What is decided, and done, is so under a claim to the directory's name, as of a file
/// (name_claim.hpp); who is no efs may come between all the same.
class ResultDirectories {
 public:
  /// `writer` is told of a full PFS. `options`: the store's partial_tag, and its `placed`, which
  /// knows, and is told, what the directories have by our doing.
  ResultDirectories(const config::JobConfig& config, const Options& options, Buffer& buffer,
                    PfsIo& pfs, ResultsTree& tree, ResultWriter& writer)
      : config_(config),
        options_(options),
        buffer_(buffer),
        pfs_(pfs),
        tree_(tree),
        writer_(writer),
        in_place_(config::has_results_in_place(config)),
        placed_(in_place_ ? options.placed : nullptr) {}

  /// Durably. Those that could not be made.
  std::vector<ReceiptEntry> make(const std::vector<DirectoryToMake>& directories);

  /// What no batch has shown, for nothing was to be written there.
  void show_hidden();

  /// Gives them their attributes, durably, when everything in them is in place. What became of
  /// those that make() made. What another has a claim to is waited for as long as `patience` lasts.
  std::vector<ReceiptEntry> finish(const std::vector<DirectoryToMake>& directories,
                                   Patience& patience);

  /// None is made, for this reason.
  static std::vector<ReceiptEntry> leave(const std::vector<DirectoryToMake>& directories,
                                         const std::string& reason);

  /// Why those that make() made may not survive a crash, nor what is in them; "": they will.
  const std::string& not_durable() const { return not_durable_; }

 private:
  struct Finished {
    const DirectoryToMake* directory = nullptr;
    std::string lost{};    // what the PFS does not take
    bool refused = false;  // its mode is among that
    std::string reason{};
    bool stays = false;                      // as somebody else has it: a conflict
    std::optional<std::uint64_t> version{};  // that it has, by our doing or as we would have it
  };

  /// Of a directory that was there before.
  struct Decided {
    std::optional<std::uint64_t> known{};  // the job's to replace
    DirectoryAttributes there{};
    std::uint64_t theirs = 0;  // its version
    DirectoryMerge merge = DirectoryMerge::same;
    bool takes_ours(const config::JobConfig& config) const;
  };

  ReceiptEntry failed(const fs::WalkItem& item, const Error& error);
  PlacedDirectory state_of(const fs::WalkItem& item) const;
  void note_coming(const fs::WalkItem& item, const DirectoryAttributes* has);
  void note_made(const fs::WalkItem& item, const DirectoryAttributes& has);
  void note_applied(const fs::WalkItem& item, std::uint64_t version);
  void note_placed(const fs::WalkItem& item, std::optional<std::uint64_t> version);
  Status make_one(const fs::WalkItem& item);
  Result<Finished> finish_one(const DirectoryToMake& directory, bool fsync, Patience& patience);
  Status apply(const fs::WalkItem& item, bool fsync, const DirectoryAttributes* has,
               Finished& finished);
  Status merge(const fs::WalkItem& item, bool fsync, Finished& finished, Patience& patience);
  Result<Decided> decide(const fs::WalkItem& item);
  Status leave_theirs(const fs::WalkItem& item, bool fsync, const Decided& decided,
                      Finished& finished);
  Status replace(const fs::WalkItem& item, bool fsync, const Decided& decided, Finished& finished);
  Result<std::optional<NameClaim>> claim_name(int parent, const fs::WalkItem& item,
                                              Patience& patience);
  std::optional<std::uint64_t> known_of(const fs::WalkItem& item, std::uint64_t theirs) const;

  const config::JobConfig& config_;
  const Options& options_;
  Buffer& buffer_;
  PfsIo& pfs_;
  ResultsTree& tree_;
  ResultWriter& writer_;
  const bool in_place_;
  PlacedNames* const placed_;  // null: elsewhere what is there is replaced whoever made it
  bool is_patient_ = true;
  std::unordered_set<std::string> failed_;
  std::string not_durable_;
};

}  // namespace efs::stage
