// SPDX-License-Identifier: BSD-3-Clause
// Five ways to write a checkpoint, for the examples:
//   values   a plain file for each rank, with a flush after each value (how not to do it)
//   file     a plain file for each rank, with one flush at the end
//   pmem     a file for each rank that libpmem maps, with a flush after each array (USE_PMEM)
//   objects  libefs-objects: eo_checkpoint of protected memory, a series for each rank
//   shared   libefs-objects: one array that all ranks fill; any number of ranks restarts it
// "none" writes none.
#pragma once

#include <efs_objects.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Rows of an array of `all` rows: this rank has `rows` of them from `first`.
struct Memory {
  std::string name;
  double* data;
  std::size_t first, rows, all, columns;
};

class Checkpoints {
 public:
  virtual ~Checkpoints() = default;
  Checkpoints() = default;
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  /// Writes the memory; it then may change. Every rank calls it.
  virtual void save(std::uint64_t step) = 0;

  /// Fills the memory from the newest checkpoint that all ranks have; returns its step.
  virtual std::optional<std::uint64_t> restore() = 0;
};

/// Makes checkpoints of this kind in a directory. The memory stays until they are destroyed. NULL
/// for "none"; throws eo::Error for an unknown kind.
std::unique_ptr<Checkpoints> make_checkpoints(const std::string& kind, const std::string& directory,
                                              std::vector<Memory> memory);
