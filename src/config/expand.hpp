// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Expands %j, $NAME and ~ in the values of job files.

#include <string>
#include <string_view>

#include "config/document.hpp"
#include "config/surroundings.hpp"

namespace efs::config {

/// Returns whether the value of this key (a path, or the name) is expanded at all.
bool is_expanded(std::string_view key);
/// Returns whether it is a path that is not relative to root-dir or the mount point.
bool is_path_of_its_own(std::string_view key);

/// Returns `value` with these patterns in its text replaced:
///   %j %A %a %u %x %N  as in Slurm's file names (sbatch(1)); their values never hold a '/'
///   %t             the number of the node in the job
///   $NAME ${NAME}      the environment
///   ~ at the start     the home directory of the job's user
///   %% $$              % and $
/// A pattern without a value is reported by name at the value's position, and the text is then "".
/// Replaced text is not expanded again. Before the job, the patterns of the first two lines stay
/// unchanged, except %u.
Value expand(const Value& value, std::string_view key, const Surroundings& surroundings,
             ProblemList& problems);

/// Returns `text` escaped so that it expands to itself.
std::string escape(std::string_view text);

/// Expands in place, and prepends the directory of the surroundings to relative paths. A value that
/// cannot be expanded becomes bad.
void expand(Section& section, const Surroundings& surroundings, ProblemList& problems);

}  // namespace efs::config
