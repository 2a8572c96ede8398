#pragma once
// What a result is called on its way, and what its receipt is called.

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace efs::stage {

inline constexpr const char* partial_suffix = ".efs-partial";

/// Of the partials of a store: what has it was left by a stage-out or salvage of that store and by
/// nobody else, and may be replaced. `store`: the text of its store::InstanceId.
std::string partial_tag_of(const std::string& store);

/// NAME, `tag` and ".efs-partial", or a hashed name of the same suffix where that would be too long
/// or is `taken` by a result.
std::string partial_name(const std::string& name, const std::string& tag = {}, bool taken = false);

/// Is it the name of a directory that is being filled, of any store? (Not hashed: such a one is
/// none.) What else is called so is somebody's.
bool is_hidden_directory(std::string_view path);

/// What is told of a partial that could not be removed.
std::string left_behind(const std::string& partial, const Error& error);

/// The name of the job's version where both are kept: "NAME.efs-JOB", the n-th with ".N" behind it.
std::string kept_name(const std::string& name, const std::string& job, unsigned n);

/// Of a stage-out's receipt, and of a salvage's, in results-dir.
std::string receipt_name(const std::string& job);
std::string salvage_receipt_name(const std::string& job);

/// Is this the name of a receipt, of any job?
bool is_receipt_name(std::string_view name);

}  // namespace efs::stage
