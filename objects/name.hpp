// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Names: of objects, of drafts and of versions. Pure functions.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "objects/result.hpp"

namespace efs::objects {

constexpr std::string_view object_suffix = ".npy";
constexpr std::string_view bundle_suffix = ".npz";
constexpr std::string_view draft_suffix = ".part";
constexpr const char* manifest_name = "manifest.json";
constexpr const char* small_name = "small.npz";

/// The deepest name that is accepted: components.
constexpr int max_depth = 32;

/// Validates the name of an object or of a series: EINVAL with the reason.
Status check_name(std::string_view name);

/// Returns true for one component that check_name() accepts.
bool is_component(std::string_view component);

/// Returns the name for a message: in UTF-8, without control characters, at most 300 bytes.
std::string printable(std::string_view name);

/// Returns the number of a version's directory, if it is one: eight digits, more if needed.
std::optional<std::uint64_t> version_of(std::string_view component);
std::string version_directory(std::uint64_t n);

/// Returns a new name of a draft: eo-, 16 hexadecimal digits, .part.
Result<std::string> new_draft_name();
std::string draft_name(std::string_view token);

/// Returns true for the names that new_draft_name() makes.
bool is_draft(std::string_view component);

/// Returns a new token: 16 hexadecimal digits, of which the first ones are those of node_mark(). It
/// also is the number in the name of a draft.
Result<std::string> new_token();
/// Returns six hexadecimal digits for this boot of this node, the first ones of the kernel's
/// boot_id: a flock may be local to a node.
std::string node_mark();
bool is_token(std::string_view text);
/// Returns the token in the name of a draft or of a join file.
std::string_view token_of(std::string_view name);

/// The name of the file by which other processes join a draft: eo-, the token, -join.part.
std::string join_name(std::string_view token);
bool is_join_file(std::string_view component);
/// The name of the file by which a process that leaves a version passes its checksums: eo-, a token
/// of its own, -sums.part.
std::string sums_name(std::string_view token);
bool is_sums_file(std::string_view component);

/// The name of the draft of a version: its number, -eo-, a mark of a node, .part. The mark is that
/// of the token, or a mark alone.
std::string version_draft_name(std::uint64_t n, std::string_view token);
/// Returns true for the names that version_draft_name() makes.
bool is_version_draft(std::string_view component);

/// The name of a damaged version that a restore has skipped: no call finds it.
std::string damaged_version_name(std::uint64_t n, std::string_view token);

/// Returns true for the name of a draft that a process of this boot of this node has made.
bool is_of_this_node(std::string_view draft);

}  // namespace efs::objects
