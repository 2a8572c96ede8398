// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// YAML text -> a small tree with a position for every node. Built from the parser's events, so that
// aliases, depth and further documents are rejected before they cost time or memory. No YAML
// exception leaves this file.

#include <expected>
#include <string>
#include <vector>

#include "config/problems.hpp"

namespace efs::config {

struct YamlNode {
  enum class Kind { null, scalar, sequence, map };
  Kind kind = Kind::null;
  Mark mark;
  std::string text;             // text of a scalar
  std::vector<YamlNode> items;  // entries of a sequence; of a map: key, value, key, value ...
};

/// Returns the only document of `text`; a null node if `text` is empty. Parsing ends at the first
/// problem, because the rest is unreliable. Never throws YAML exceptions.
std::expected<YamlNode, Problem> read_yaml(const std::string& text);

}  // namespace efs::config
