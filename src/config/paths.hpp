// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Paths as text. These functions access no file system except for the working directory, so `..` is
// resolved lexically.

#include <optional>
#include <string>
#include <string_view>

namespace efs::config {

/// Returns an absolute, normalised path without a trailing slash (except "/"). Relative paths are
/// relative to the working directory; nullopt if that directory was removed.
std::optional<std::string> absolute_path(std::string_view path);

/// Returns a normalised relative path: no "//", "." or trailing slash; "" for the start itself;
/// nullopt if `..` leaves the start.
std::optional<std::string> relative_path(std::string_view path);

/// Returns whether `path` equals `directory` or is below it. Both must be absolute and normalised.
bool is_within(std::string_view path, std::string_view directory);

/// Returns the part of `path` behind `directory`; "" if they are equal. Requires is_within().
std::string_view part_below(std::string_view path, std::string_view directory);

/// Returns whether `path` is a glob: has one of the characters * ? [.
bool has_wildcard(std::string_view path);

/// Returns whether a component of `path` is "..".
bool has_dot_dot(std::string_view path);

}  // namespace efs::config
