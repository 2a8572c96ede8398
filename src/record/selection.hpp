// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Chooses the entries of a job file for the files of a Summary: directories, patterns and files.

#include <cstdint>
#include <string>
#include <vector>

#include "record/summary.hpp"

namespace efs::record {

struct Resource {
  std::string path;         // as in a job file: a pattern has its special characters escaped
  std::uint64_t files = 0;  // that efs imports
  std::uint64_t bytes = 0;
  std::string note;      // a reason for the reader; "": none
  bool follow = false;   // of the key `follow`
  bool is_gone = false;  // does not exist any more, or is too large to import unasked
};

struct Rule {
  std::string path;  // as in a job file
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  bool inputs = false;  // of the key `inputs`
  bool is_temporary = false;
};

/// A directory becomes one resource if the program used most of its files and of its bytes, and
/// wrote nothing there. Files with one extension become a pattern if the program used all of them
/// in their directory. A directory that the program wrote to, and that no input brings along,
/// becomes a resource, too. root-dir itself never does.
std::vector<Resource> choose_resources(const Summary& summary, const std::string& root,
                                       const Tree& tree);

/// Rules for the results, of directories where all files are results. Empty without results.
std::vector<Rule> choose_rules(const Summary& summary);

/// Returns a path of raw bytes as a path of a job file. A path with special characters of patterns,
/// or with bytes that are not UTF-8, becomes a pattern that matches it.
std::string as_job_path(const std::string& path);

}  // namespace efs::record
