#pragma once
// Results that are called otherwise in results-dir than in the buffer (`as` of output rules).

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "config/job_config.hpp"
#include "stage/buffer.hpp"
#include "stage/out/receipt.hpp"

namespace efs::stage {

/// The buffer as a stage-out sees it: such results have the names that they get, and are new files there, whatever they were
/// made of. One whose name something else in the buffer has keeps its own and does not go (refusal()). Owns nothing; not
/// thread-safe but for what the stage-out's threads call: hold(), has(), confirm(), named(), refusal(), own_path().
class RenamingBuffer final : public Buffer {
 public:
  RenamingBuffer(const config::JobConfig& config, Buffer& inner) : config_(config), inner_(inner) {}

  /// In the receipt every result is called as in the buffer again; `placed_as` is its path in results-dir.
  void give_names_back(Receipt& receipt) const;

  Result<std::vector<fs::WalkItem>> walk() override;
  std::string refusal(const std::string& path) override;
  std::string own_path(const std::string& path) override {
    const auto own = own_names_.find(path);
    return own == own_names_.end() ? path : own->second;
  }
  bool has(const std::string& path) override { return own_names_.contains(path) || inner_.has(path); }

  Result<fs::HeldFile> begin_open_file() override { return inner_.begin_open_file(); }
  Result<fs::HeldFile> hold(std::uint64_t ino) override { return inner_.hold(ino); }
  void abandon(std::uint64_t ino) override { inner_.abandon(ino); }
  std::size_t publish_files(std::span<const fs::StagedFile> files, Status& failed) override { return inner_.publish_files(files, failed); }
  Status link_files(const std::string& existing, std::span<const std::string> names) override { return inner_.link_files(existing, names); }
  Status make_directory(const std::string& path, const fs::StagedAttributes& attributes) override { return inner_.make_directory(path, attributes); }
  Status make_symlink(const std::string& path, const std::string& target, const fs::StagedAttributes& attributes) override { return inner_.make_symlink(path, target, attributes); }
  Status set_xattrs(const std::string& path, const std::map<std::string, std::string>& xattrs) override { return inner_.set_xattrs(path, xattrs); }
  /// Without those of which a result has the name.
  std::vector<fs::WalkItem> gone() override;
  Result<std::vector<fs::WalkItem>> inputs() override { return inner_.inputs(); }
  std::map<std::string, Error> disown(std::span<const fs::PfsName> names, fs::Side side, const fs::ResultName& called) override { return inner_.disown(names, side, called); }
  Result<std::uint64_t> available_bytes() override { return inner_.available_bytes(); }
  bool is_at_rest() const override { return inner_.is_at_rest(); }
  Status confirm(std::uint64_t ino, bool same) override { return inner_.confirm(ino, same); }
  /// What has another name there is a new file each time.
  Status named(const fs::WalkItem& item, const std::function<Result<fs::Origin>()>& version) override { return own_names_.contains(item.path) ? Status() : inner_.named(item, version); }

 private:
  const config::JobConfig& config_;
  Buffer& inner_;
  // Constant after walk().
  std::unordered_map<std::string, std::string> own_names_;  // by the path in results-dir
  std::unordered_set<std::string> refused_;
};

}  // namespace efs::stage
