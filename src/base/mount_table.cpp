// SPDX-License-Identifier: BSD-3-Clause
#include "base/mount_table.hpp"

#include <fstream>
#include <sstream>
#include <utility>

namespace efs {
namespace {

bool are_octal(const std::string& digits) {
  return digits.size() == 3 && digits.find_first_not_of("01234567") == std::string::npos;
}

}  // namespace

std::string unescaped(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || !are_octal(text.substr(i + 1, 3))) {
      result += text[i];
      continue;
    }
    result += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
    i += 3;
  }
  return result;
}

std::vector<MountLine> mount_table(const std::string& root) {
  std::vector<MountLine> all;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    MountLine mount;
    words >> mount.id >> mount.parent >> mount.device >> mount.root >> mount.point;
    mount.root = unescaped(mount.root);
    mount.point = unescaped(mount.point);
    for (std::string word; words >> word && word != "-";) {
    }
    words >> mount.type >> mount.source >> mount.options;
    mount.source = unescaped(mount.source);
    all.push_back(std::move(mount));
  }
  return all;
}

bool has_option(const std::string& options, const std::string& option) {
  return ("," + options + ",").contains("," + option + ",");
}

}  // namespace efs
