// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Text files of a store: atomic, durable, and with a checksum that shows damage.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::image {

// bytes: a list may have millions of lines
inline constexpr std::size_t largest_text = std::size_t{1} << 30;

/// XXH3-64, as 16 hexadecimal digits.
std::string checksum_of(std::string_view text);

/// Reads a file. ENOENT; EPROTO if it is not a regular file of at most `most` bytes.
Result<std::string> read_text(int directory, const char* name, std::size_t most);

/// Creates a new file; replaces an existing one of that name.
Result<UniqueFd> make_anew(int directory, const std::string& name);
/// Writes from the begin of the file; durable on return.
Status put(int fd, const std::string& text);
/// Adds the object's name to the error in `done`.
Status name_error(const Status& done, const std::string& name);

/// Replaces a file through NAME.new; durable together with its directory. Does not write an
/// unchanged text again: a full store has no space for a second copy.
Status write_text(int directory, const char* name, const std::string& text);

/// Returns the text with its checksum as the last line, which is a comment in YAML.
std::string sealed(const std::string& text);
/// Reads a text and removes the checksum line. EPROTO if it does not verify or exceeds `most`.
Result<std::string> read_sealed(int directory, const char* name, std::size_t most);

}  // namespace efs::image
