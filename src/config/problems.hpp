// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Collects all problems of a job file, to report them together.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "config/load.hpp"

namespace efs::config {

/// A position in the job file or in `origin`. Counts from 1; 0:0 means no position.
struct Mark {
  int line = 0;
  int column = 0;
  std::string origin;  // "": the job file; else the site file, "EFS_WORKERS", "--set workers" ...

  /// The position for people, if it is not in the job file: "ORIGIN:LINE", or "ORIGIN" without a
  /// line.
  std::string place() const { return origin + (line > 0 ? ":" + std::to_string(line) : ""); }
};

/// Not thread-safe. Keeps only the first `limit` problems, so that a hostile file cannot cause a
/// report of its own size.
class ProblemList {
 public:
  static constexpr std::size_t limit = 1000;

  void add(Mark mark, std::string text, std::string suggestion = {});

  bool empty() const { return problems_.empty(); }

  /// Returns all problems in the order of the file, then those of other origins. Empties the list.
  Problems take_sorted();

 private:
  Problems problems_;
};

/// Returns `text` in single quotes for a message. Control characters become octal; the text is cut
/// after some sixty bytes.
std::string in_quotes(std::string_view text);

}  // namespace efs::config
