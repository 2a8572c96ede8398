#pragma once
// %j, $NAME and ~ in the values of job files.

#include <string>
#include <string_view>

#include "config/document.hpp"
#include "config/surroundings.hpp"

namespace efs::config {

/// Is the value of this key (a path, or the name) expanded at all?
bool is_expanded(std::string_view key);
/// Is it a path that is not relative to root-dir or the mount point?
bool is_path_of_its_own(std::string_view key);

/// `value` with everything in its text replaced:
///   %j %A %a %u %x %N  as in Slurm's file names (sbatch(1)); their values never hold a '/'
///   %t             the number of the node in the job
///   $NAME ${NAME}      the environment
///   ~ at the start     the home directory of the job's user
///   %% $$              % and $
/// What has no value is reported at the value's place, with its name, and the text is "" then.
/// Values are not expanded again. Before the job the first two lines, but for %u, stay as they are.
Value expand(const Value& value, std::string_view key, const Surroundings& surroundings,
             ProblemList& problems);

/// `text` so written that it expands to itself.
std::string escape(std::string_view text);

/// Expands in place, and puts the directory of the surroundings before relative paths. Values of
/// keys that cannot be expanded become bad.
void expand(Section& section, const Surroundings& surroundings, ProblemList& problems);

}  // namespace efs::config
