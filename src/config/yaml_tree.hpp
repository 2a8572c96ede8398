#pragma once
// YAML text -> a small tree of our own with a place for every node. Built from the parser's events,
// so that aliases, depth and the number of documents are refused before they cost anything, and no
// YAML exception gets further.

#include <expected>
#include <string>
#include <vector>

#include "config/problems.hpp"

namespace efs::config {

struct YamlNode {
  enum class Kind { null, scalar, sequence, map };
  Kind kind = Kind::null;
  Mark mark;
  std::string text;             // of a scalar
  std::vector<YamlNode> items;  // of a sequence; of a map: key, value, key, value ...
};

/// The only document of `text`; a null node where it is empty. The first problem ends the parse:
/// behind it nothing can be trusted. Never throws YAML exceptions.
std::expected<YamlNode, Problem> read_yaml(const std::string& text);

}  // namespace efs::config
