#pragma once
// Paths as text: nothing here touches a file system (but the working directory), so `..` is
// resolved lexically.

#include <optional>
#include <string>
#include <string_view>

namespace efs::config {

/// Absolute and normalised, without a trailing slash ("/" itself excepted). Relative paths are
/// relative to the working directory; nullopt where that is gone.
std::optional<std::string> absolute_path(std::string_view path);

/// Normalised relative path: no "//", "." or trailing slash; "" for the start itself; nullopt where
/// `..` leaves it.
std::optional<std::string> relative_path(std::string_view path);

/// Is `path` equal to `directory` or below it? Both absolute and normalised.
bool is_within(std::string_view path, std::string_view directory);

/// The part of `path` behind `directory`, "" where they are equal. Requires is_within().
std::string_view part_below(std::string_view path, std::string_view directory);

/// Holds `path` one of the characters * ? [ that make it a glob?
bool has_wildcard(std::string_view path);

/// Is one of the components of `path` ".."?
bool has_dot_dot(std::string_view path);

}  // namespace efs::config
