// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sections of a job file as tables of words, for both grammars. This layer knows the keys and
// does not interpret their values.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.hpp"
#include "config/yaml_tree.hpp"

namespace efs::config {

struct Value {
  std::string text;
  Mark mark;
  Source source = Source::job_file;
  // Before the job (Surroundings::before_job), for expanded values: the text that the job's nodes
  // expand. It keeps the patterns that only the nodes can resolve, and expands to `text` otherwise.
  std::string for_nodes = {};
  bool open = false;  // the value has such patterns; they stay unexpanded in `text`
  std::vector<std::string> words = {};  // of a list; `text` has them with commas
};

/// global-settings, tiers, or an entry of backends, resources or outputs.
struct Section {
  std::string title;  // for messages: "global-settings", "this backend" ...
  Mark mark;
  // not a table: its keys are unknown, and none is reported as missing
  bool malformed = false;
  std::map<std::string, Value, std::less<>> values;
  // keys that are present without a usable value; already reported
  std::set<std::string, std::less<>> bad;

  /// Returns the value of `key`; null if it is absent or bad.
  const Value* find(std::string_view key) const;
  /// As find(); reports an absent key as missing.
  const Value* require(std::string_view key, ProblemList& problems) const;
  /// Returns the position of the value of `key`, or that of the section.
  Mark mark_of(std::string_view key) const;
};

struct Document {
  Section settings;
  std::optional<Section> tiers;
  std::vector<Section> backends, resources, outputs;
};

/// A site file (site.hpp).
struct SiteDocument {
  Section top, settings, limits;
  std::vector<Section> backends;
  std::vector<Value> fixed;
};

/// Reports unknown and duplicate keys and values that are not words.
Document read_document(const YamlNode& root, ProblemList& problems);
SiteDocument read_site_document(const YamlNode& root, ProblemList& problems);

/// Returns the valid keys of each section of a job file, and of each section of a site file (titles
/// that begin with "site ").
struct SectionKeys {
  std::string_view section;
  std::span<const std::string_view> keys;
};

std::span<const SectionKeys> schema();
std::span<const std::string_view> settings_schema();
std::span<const std::string_view> backend_schema();

}  // namespace efs::config
