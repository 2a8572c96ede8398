// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Results whose name in results-dir differs from the name in the buffer (`as` of output rules).

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "config/job_config.hpp"
#include "stage/export/receipt.hpp"
#include "stage/forwarding_source.hpp"

namespace efs::stage {

/// The buffer as a stage-out sees it. Renamed results appear under their names in results-dir, as
/// new files. A result keeps its own name and is refused (refusal()) if another item of the buffer
/// has its new name. Owns nothing. Thread-safe are only the members that threads of the stage-out
/// call: open_container(), has(), confirm(), named(), refusal(), own_path().
class RenamingBuffer final : public ForwardingSource {
 public:
  RenamingBuffer(const config::JobConfig& config, ExportSource& inner)
      : ForwardingSource(inner), config_(config) {}

  /// Replaces the names in the receipt by the names in the buffer. `placed_as` gets the path in
  /// results-dir.
  void give_names_back(Receipt& receipt) const;

  Result<std::vector<fs::WalkItem>> walk() override;
  std::string refusal(const std::string& path) override;

  std::string own_path(const std::string& path) override {
    const auto own = own_names_.find(path);
    return own == own_names_.end() ? path : own->second;
  }

  bool has(const std::string& path) override {
    return own_names_.contains(path) || inner_.has(path);
  }

  /// Leaves out the inputs whose name a result now has.
  std::vector<fs::WalkItem> gone() override;

  /// Does nothing for a renamed result: every stage-out exports it as a new file.
  Status named(const fs::WalkItem& item,
               const std::function<Result<fs::Origin>()>& version) override {
    return own_names_.contains(item.path) ? Status() : inner_.named(item, version);
  }

 private:
  using GoneByName = std::unordered_map<std::string_view, const fs::WalkItem*>;

  void give_result_name(fs::WalkItem& item, std::string path, const GoneByName& gone);

  const config::JobConfig& config_;
  // Constant after walk().
  std::unordered_map<std::string, std::string> own_names_;  // by the path in results-dir
  std::unordered_set<std::string> refused_;
};

}  // namespace efs::stage
