// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Writes a job file at submission, for the job's nodes to read. Values that depend on the
// submitting user and process are replaced. Values that only the nodes know are left to the nodes.

#include <string>

#include "config/document.hpp"

namespace efs::config {

/// Writes `document` as resolved before the job: with the values of the job file, the environment
/// and the command line, but not the site's. Directories are absolute. Every value keeps its line
/// of the job file, for messages. Reports values that a job file cannot contain.
std::string write_snapshot(const Document& document, ProblemList& problems);

}  // namespace efs::config
