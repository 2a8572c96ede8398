#pragma once
// The site file: an administrator's defaults and limits for all jobs of a node. efs-site(5) is the
// reference.

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/document.hpp"
#include "config/load.hpp"

namespace efs::config {

/// Checked as far as it can be without a job; its values are checked again with those of the job.
struct Site {
  std::string file;
  std::string runtime_dir;               // "": the built-in one
  std::optional<unsigned> memory_share;  // percent: JobConfig::memory_share
  std::optional<Value> huge;             // of backends that do not say
  Section settings;                      // defaults of global-settings
  std::vector<Section> backends;         // of jobs that name none
  std::vector<Value> fixed;              // keys of global-settings or of a backend, or "backends"
  std::optional<std::uint64_t> most_capacity, most_transfer_size;
  std::optional<unsigned> most_workers;
  Section limits;  // their places
};

/// `text` of the site file `file`; all its problems.
std::expected<Site, std::vector<Problem>> parse_site(const std::string& text,
                                                     const std::string& file);

/// A site file that was read and not parsed yet.
struct SiteText {
  std::string file, text;
};

/// $EFS_SITE_FILE, or /etc/efs/site.yaml where there is one; nothing where there is none. A file
/// that is named and not there, or that others can change, is a problem.
std::expected<std::optional<SiteText>, std::vector<Problem>> read_site(
    const Surroundings& surroundings);

/// parse_site() of what read_site() has read; null of nothing.
std::expected<std::shared_ptr<const Site>, std::vector<Problem>> site_of(
    const std::optional<SiteText>& read);

/// Both.
std::expected<std::shared_ptr<const Site>, std::vector<Problem>> load_site(
    const Surroundings& surroundings);

inline constexpr const char* default_site_file = "/etc/efs/site.yaml";

}  // namespace efs::config
