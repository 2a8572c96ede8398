// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files with several names on the PFS. A stage-in reads such a file once, and the buffer has one
// file with those names too.

#include <cstdint>
#include <string>
#include <vector>

#include "stage/plan/planner.hpp"

namespace efs::stage {

/// The space that so many bytes take in the buffer.
std::uint64_t rounded(std::uint64_t bytes);

/// Sets link_to of every further name of a file in `entries` (sorted by path) to the first name.
/// Allocates memory only for files with several names. The names of one file are limited to 64 KiB
/// in the journal; beyond that, the next name begins a separate file.
void group_links(std::vector<PlanEntry>& entries);

/// Computes the sums of the plan (bytes, needed, inodes, files, reusable files) and `needed` of
/// each entry. The data of a file with several names count once.
void sum_up(Plan& plan);

}  // namespace efs::stage
