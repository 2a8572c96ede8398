#pragma once
// The directories of a stage-out: made before what is in them, finished behind it, and reported.

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "stage/receipt.hpp"
#include "stage/result_writer.hpp"
#include "stage/results_tree.hpp"
#include "stage/selection.hpp"

namespace efs::stage {

/// Parents come before children. Each call returns entries of the receipt. Not thread-safe; nothing may be written meanwhile.
class ResultDirectories {
 public:
  /// `writer` is told of a full PFS. `in_place`: what has an origin has exactly the job's attributes at the end.
  ResultDirectories(ResultsTree& tree, ResultWriter& writer, bool in_place) : tree_(tree), writer_(writer), in_place_(in_place) {}

  /// Durably. Those that could not be made.
  std::vector<ReceiptEntry> make(const std::vector<DirectoryToMake>& directories);

  /// Gives them their attributes, durably, when everything in them is in place. What became of those that make() made.
  std::vector<ReceiptEntry> finish(const std::vector<DirectoryToMake>& directories);

  /// None is made, for this reason.
  static std::vector<ReceiptEntry> leave(const std::vector<DirectoryToMake>& directories, const std::string& reason);

  /// Why those that make() made may not survive a crash, nor what is in them; "": they will.
  const std::string& not_durable() const { return not_durable_; }

 private:
  ReceiptEntry failed(const fs::WalkItem& item, const Error& error);

  ResultsTree& tree_;
  ResultWriter& writer_;
  const bool in_place_;
  std::unordered_set<std::string> failed_;
  std::string not_durable_;
};

}  // namespace efs::stage
