#pragma once
// A job file at submission, written so that its nodes read the same from it: what depends on
// whoever submits is in place, what only they know is left to them.

#include <string>

#include "config/document.hpp"

namespace efs::config {

/// `document` as resolved before the job: values of the job file, the environment and the command
/// line, but none of the site's. Directories are absolute, and every value stands in the line that
/// it has in the job file, for messages. What no job file can hold is reported.
std::string write_snapshot(const Document& document, ProblemList& problems);

}  // namespace efs::config
