// SPDX-License-Identifier: BSD-3-Clause
#include "ledger/names.hpp"

namespace efs::ledger {

bool Names::contains(std::string_view path) const {
  bool found = false;
  for_each([&](std::string_view name) { found = found || name == path; });
  return found;
}

void Names::add(std::string_view path) {
  if (contains(path)) {
    return;
  }
  if (!text_.empty()) {
    text_ += '\0';
  }
  text_ += path;
}

void Names::remove(std::string_view path) {
  std::string left;
  for_each([&](std::string_view name) {
    if (name != path) {
      (left.empty() ? left : left += '\0') += name;
    }
  });
  // A trailing NUL: had_several() stays true.
  if (!left.empty() && !left.contains('\0') && had_several()) {
    left += '\0';
  }
  text_ = std::move(left);
}

std::vector<std::string> Names::list() const {
  std::vector<std::string> all;
  for_each([&](std::string_view name) { all.emplace_back(name); });
  return all;
}

}  // namespace efs::ledger
