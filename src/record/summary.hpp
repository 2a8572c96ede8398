// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a recorded program did with the files of root-dir: the events and the file system at the end
// give its inputs, results and temporary files.

#include <cstdint>
#include <string>
#include <vector>

#include "record/events.hpp"
#include "record/tree.hpp"

namespace efs::record {

/// A file or a link that existed before the program and that the program used, or a directory that
/// existed and that the program renamed.
struct Input {
  std::string path;         // relative to root-dir
  std::uint64_t files = 1;  // of a directory that the program renamed: all below it
  std::uint64_t bytes = 0;
  bool is_changed = false;  // the program changed or replaced it
  bool is_gone = false;     // the program removed or renamed it
  bool leads_out = false;   // a link to a file outside of root-dir
};

/// A file that the program made or changed.
struct Product {
  std::string path;         // relative to root-dir
  std::uint64_t bytes = 0;  // of a temporary file: its size when it was removed, or 0
  bool is_input = false;    // results: an input that the program changed
};

struct Summary {
  // all sorted by their paths
  std::vector<Input> inputs;
  std::vector<Product> results;      // exist at the end
  std::vector<Product> temporaries;  // do not
  // Relative to root-dir, without root-dir itself: directories of the program, and directories that
  // existed before and got files or directories of the program.
  std::vector<std::string> made_directories, written_directories;
  // Absolute, without directories of the system such as /usr.
  std::vector<std::string> outside_read, outside_written;
};

/// `root`: absolute, without links. Events that made a name count before others of the same name.
Summary summarize(const std::vector<Event>& events, const std::string& root, const Tree& tree);

}  // namespace efs::record
