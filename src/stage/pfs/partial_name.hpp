// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The names of partials and of receipts.

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace efs::stage {

inline constexpr const char* partial_suffix = ".efs-partial";

/// The tag in the names of a store's partials. Only a stage-out or salvage of that store makes
/// files with this tag, so a later one may replace them. `store`: the text of its
/// store::InstanceId.
std::string partial_tag_of(const std::string& store);

/// NAME, `tag` and ".efs-partial". If that is too long or is `taken` by a result, a hashed name
/// with the same suffix.
std::string partial_name(const std::string& name, const std::string& tag = {}, bool taken = false);

/// True if it is the name of a hidden directory of any store. Hidden directories never have hashed
/// names. Other directories with the suffix belong to a user.
bool is_hidden_directory(std::string_view path);

/// The message about a partial that could not be removed.
std::string left_behind(const std::string& partial, const Error& error);

/// The name of the job's version with on-conflict: keep-both: "NAME.efs-JOB", the n-th with the
/// suffix ".N".
std::string kept_name(const std::string& name, const std::string& job, unsigned n);

/// The names of the receipts of a stage-out and of a salvage in results-dir.
std::string receipt_name(const std::string& job);
std::string salvage_receipt_name(const std::string& job);

/// The name of the report of a stage-out, beside its receipt.
std::string report_name(const std::string& job);

/// The name of the file beside it with names that lookups missed (stage/export/missed_names.hpp).
std::string missed_names_name(const std::string& job);

/// True if it is the name of a receipt of any job.
bool is_receipt_name(std::string_view name);
/// True if it is the name of a file of a report of any job.
bool is_report_name(std::string_view name);

}  // namespace efs::stage
