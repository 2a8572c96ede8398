#pragma once
// Texts of an image: whole or not at all, durable, and with a checksum that tells damage.

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

/// ENOENT; EPROTO where it is no file of at most `most` bytes.
Result<std::string> read_text(int directory, const char* name, std::size_t most);

/// A new file in the place of what has that name.
Result<UniqueFd> make_anew(int directory, const std::string& name);
/// From the beginning of the file; durable on return.
Status put(int fd, const std::string& text);
/// `done` with the name of its object.
Status name_error(const Status& done, const std::string& name);

/// By way of NAME.new; durable with its directory. What is there already is not written again: a
/// full store has no room for it twice.
Status write_text(int directory, const char* name, const std::string& text);

/// The text with its checksum in a last line, which is a comment where the text is YAML.
std::string sealed(const std::string& text);
/// Without that line. EPROTO where it does not verify, or is larger than `most`.
Result<std::string> read_sealed(int directory, const char* name, std::size_t most);

}  // namespace efs::image
