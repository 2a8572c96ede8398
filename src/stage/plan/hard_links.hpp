#pragma once
// Files that have several names on the PFS: read once, and one file with those names in the buffer
// too.

#include <cstdint>
#include <string>
#include <vector>

#include "stage/plan/planner.hpp"

namespace efs::stage {

/// The space that so many bytes take in a buffer.
std::uint64_t rounded(std::uint64_t bytes);

/// Lets every further name of a file among `entries` (in the order of their paths) lead to its
/// first one, by link_to. Memory is taken for files with several names only. What the names of one
/// file may take together in the journal is bounded: where they are longer (64 KiB), the next name
/// begins a file of its own.
void group_links(std::vector<PlanEntry>& entries);

/// Bytes, needed, inodes, files and what is reusable of the plan, from its entries, and what each
/// of those needs: the data of a file with several names count once.
void sum_up(Plan& plan);

}  // namespace efs::stage
