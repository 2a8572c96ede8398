#pragma once
// The directories of a stage-out: made before what is in them, finished behind it, and reported.

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "stage/out/receipt.hpp"
#include "stage/out/result_writer.hpp"
#include "stage/out/results_tree.hpp"
#include "stage/out/selection.hpp"

namespace efs::stage {

/// Parents come before children. Each call returns entries of the receipt. Not thread-safe; nothing may be written meanwhile.
class ResultDirectories {
 public:
  /// `writer` is told of a full PFS. In place, what came in has exactly the job's attributes at the end, unless somebody has changed those of the
  /// PFS since: where the job has not, his stay, else on-conflict decides. `buffer` is told what the PFS has then.
  ResultDirectories(const config::JobConfig& config, Buffer& buffer, ResultsTree& tree, ResultWriter& writer) : config_(config), buffer_(buffer), tree_(tree), writer_(writer), in_place_(config::has_results_in_place(config)) {}

  /// Durably. Those that could not be made.
  std::vector<ReceiptEntry> make(const std::vector<DirectoryToMake>& directories);

  /// Gives them their attributes, durably, when everything in them is in place. What became of those that make() made.
  std::vector<ReceiptEntry> finish(const std::vector<DirectoryToMake>& directories);

  /// None is made, for this reason.
  static std::vector<ReceiptEntry> leave(const std::vector<DirectoryToMake>& directories, const std::string& reason);

  /// Why those that make() made may not survive a crash, nor what is in them; "": they will.
  const std::string& not_durable() const { return not_durable_; }

 private:
  struct Finished {
    const DirectoryToMake* directory = nullptr;
    std::string lost;  // what the PFS does not take
    std::string reason;
    bool stays = false;  // as somebody else has it: a conflict
    bool is_theirs = false;  // but for its times
  };

  ReceiptEntry failed(const fs::WalkItem& item, const Error& error);
  Result<Finished> finish_one(const DirectoryToMake& directory, bool fsync);
  Status merge(fs::WalkItem& item, Finished& finished);
  void note_version(const fs::WalkItem& item, Finished& finished);

  const config::JobConfig& config_;
  Buffer& buffer_;
  ResultsTree& tree_;
  ResultWriter& writer_;
  const bool in_place_;
  std::unordered_set<std::string> failed_;
  std::string not_durable_;
};

}  // namespace efs::stage
