// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The site file: an administrator's defaults and limits for all jobs of a node. efs-site(5) is the
// reference.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/document.hpp"
#include "config/load.hpp"

namespace efs::config {

/// A site file, checked as far as possible without a job. Its values are checked again with those
/// of each job.
struct Site {
  std::string file;
  std::string runtime_dir;               // "": the built-in directory
  std::optional<unsigned> memory_share;  // percent: JobConfig::memory_share
  std::optional<Value> huge;             // of backends that do not say
  Section settings;                      // defaults of global-settings
  std::vector<Section> backends;         // backends of jobs that name none
  std::vector<Value> fixed;              // fixed keys of global-settings or of a backend, or
                                         // "backends"
  std::optional<std::uint64_t> most_capacity, most_transfer_size;
  std::optional<unsigned> most_workers;
  Section limits;  // the limits and their positions
};

/// Parses `text` of the site file `file`; returns all its problems.
Checked<Site> parse_site(const std::string& text, const std::string& file);

/// A site file's text, not yet parsed.
struct SiteText {
  std::string file, text;
};

/// Reads $EFS_SITE_FILE, or /etc/efs/site.yaml if it exists; otherwise returns nullopt. It is a
/// problem if a named file does not exist, or if other users can change the file.
Checked<std::optional<SiteText>> read_site(const Surroundings& surroundings);

/// Parses the result of read_site(); null for nullopt.
Checked<std::shared_ptr<const Site>> site_of(const std::optional<SiteText>& read);

/// read_site() and site_of().
Checked<std::shared_ptr<const Site>> load_site(const Surroundings& surroundings);

inline constexpr const char* default_site_file = "/etc/efs/site.yaml";

}  // namespace efs::config
