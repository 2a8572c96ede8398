// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The bytes of a file, read at once: an iterator over characters takes a sanitized build minutes.

#include <fstream>
#include <string>

namespace efs::test {

/// "" if the file cannot be opened.
inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::string text(file ? static_cast<std::size_t>(file.tellg()) : 0, '\0');
  file.seekg(0).read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

}  // namespace efs::test
