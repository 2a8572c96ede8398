#pragma once
// The sections of a job file as tables of words, whichever of the two grammars it was written in.
// Knows which keys exist, and nothing of what their values mean.

#include <functional>
#include <map>
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
  // Before the job (Surroundings::before_job), of what is expanded:
  // what its nodes expand to `text`, and to their values where it has patterns that only they know
  std::string for_nodes = {};
  bool open = false;  // it has some; in `text` they stay as they are
};

/// global-settings, or one entry of backends, resources or outputs.
struct Section {
  std::string title;  // for messages: "global-settings", "this backend" ...
  Mark mark;
  // not even a table: its keys are unknown, and none is reported missing
  bool malformed = false;
  std::map<std::string, Value, std::less<>> values;
  // keys that are there, without a usable value: already reported
  std::set<std::string, std::less<>> bad;

  /// The value of `key`, null where it is absent or bad.
  const Value* find(std::string_view key) const;
  /// As find(); reports it as missing where it is absent.
  const Value* require(std::string_view key, ProblemList& problems) const;
  /// The place of the value of `key`, or that of the section.
  Mark mark_of(std::string_view key) const;
};

struct Document {
  Section settings;
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

/// The keys that a section of a job file, or (sections that begin with "site ") of a site file can
/// have.
struct SectionKeys {
  std::string_view section;
  std::span<const std::string_view> keys;
};

std::span<const SectionKeys> schema();
std::span<const std::string_view> settings_schema();
std::span<const std::string_view> backend_schema();

}  // namespace efs::config
