#pragma once
// Results that are called otherwise in results-dir than in the buffer (`as` of output rules).

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "config/job_config.hpp"
#include "stage/export/receipt.hpp"
#include "stage/forwarding_buffer.hpp"

namespace efs::stage {

/// The buffer as a stage-out sees it: such results have the names that they get, and are new files
/// there, whatever they were made of. One whose name something else in the buffer has keeps its own
/// and does not go (refusal()). Owns nothing; not thread-safe but for what the stage-out's threads
/// call: hold(), has(), confirm(), named(), refusal(), own_path().
class RenamingBuffer final : public ForwardingBuffer {
 public:
  RenamingBuffer(const config::JobConfig& config, Buffer& inner)
      : ForwardingBuffer(inner), config_(config) {}

  /// In the receipt every result is called as in the buffer again; `placed_as` is its path in
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

  /// Without those of which a result has the name.
  std::vector<fs::WalkItem> gone() override;

  /// What has another name there is a new file each time.
  Status named(const fs::WalkItem& item,
               const std::function<Result<fs::Origin>()>& version) override {
    return own_names_.contains(item.path) ? Status() : inner_.named(item, version);
  }

 private:
  const config::JobConfig& config_;
  // Constant after walk().
  std::unordered_map<std::string, std::string> own_names_;  // by the path in results-dir
  std::unordered_set<std::string> refused_;
};

}  // namespace efs::stage
