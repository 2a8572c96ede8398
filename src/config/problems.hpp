#pragma once
// Collects the problems of one job file, so that all of them can be shown at once.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "config/load.hpp"

namespace efs::config {

/// A place in the job file, or in what `origin` names. Counts from 1; 0:0 is "nowhere in it".
struct Mark {
  int line = 0;
  int column = 0;
  std::string origin;  // "": the job file; else the site file, "EFS_WORKERS", "--set workers" ...

  /// For people, of what the job file does not say: "ORIGIN:LINE", or "ORIGIN" where that has no
  /// lines.
  std::string place() const { return origin + (line > 0 ? ":" + std::to_string(line) : ""); }
};

/// Not thread-safe. Keeps the first `limit` problems only: a hostile file must not make a report of
/// its own size.
class ProblemList {
 public:
  static constexpr std::size_t limit = 1000;

  void add(Mark mark, std::string text, std::string suggestion = {});

  bool empty() const { return problems_.empty(); }

  /// All problems in the order of the file, then those of other origins; the list is empty
  /// afterwards.
  std::vector<Problem> take_sorted();

 private:
  std::vector<Problem> problems_;
};

/// `text` in single quotes for a message: what controls a terminal in octal, cut after some sixty
/// bytes.
std::string in_quotes(std::string_view text);

}  // namespace efs::config
