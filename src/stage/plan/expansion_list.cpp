// SPDX-License-Identifier: BSD-3-Clause
// Lists of inputs.
#include "stage/plan/expansion.hpp"

#include "stage/plan/input_list.hpp"

namespace efs::stage {

void Expansion::add_list(const std::string& file) {
  const auto text = read_list(pfs_, file);
  if (!text) {
    return problem(file, "the list cannot be read: " + describe(text.error()));
  }
  const auto before = plan_.problems.size();
  InputList list = parse_list(*text, config_.root_dir, config_.mount_dir, config_.in_place);
  for (const auto& bad : list.problems) {
    problem(file + ":" + std::to_string(bad.line), bad.reason);
  }
  const auto at_line = [&](const ListedInput& input, const auto& work) {
    const config::Resource elsewhere{.path = absolute(input.path), .as = input.as};
    as_ = input.as.empty() ? nullptr : &elsewhere;
    place_ = file + ":" + std::to_string(input.line);
    const bool good = work();
    as_ = nullptr;
    place_.clear();
    return good;
  };
  for (const auto& input : list.inputs) {
    if (!input.as.empty()) {
      plan_.listed.emplace(input.as, input.path);
    }
  }
  std::erase_if(list.inputs, [&](const ListedInput& input) {
    if (input.as.empty()) {
      record_plain(input.path);
    }
    return !at_line(
        input, [&] { return input.path.empty() ? (add_root(), false) : add_parents(input.path); });
  });
  std::vector<std::string> paths;
  for (const auto& input : list.inputs) {
    paths.push_back(input.path);
  }
  const auto all = survey_.look(std::move(paths));
  for (std::size_t i = 0; i < all.size(); ++i) {
    at_line(list.inputs[i], [&] { return add_found(all[i], true); });
  }
  shorten_problems(file, before);
}

void Expansion::record_plain(const std::string& path) {
  if (plan_.listed.empty()) {
    return;
  }
  for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    if (plan_.listed.contains(path.substr(0, slash))) {
      return (void)plan_.listed.emplace(path, path);
    }
  }
}

void Expansion::shorten_problems(const std::string& file, std::size_t before) {
  constexpr std::size_t most = 20;
  const auto found = plan_.problems.size() - before;
  if (found <= most + 1) {
    return;
  }
  plan_.problems.resize(before + most);
  problem(file, "has " + std::to_string(found - most) + " more such lines");
}

}  // namespace efs::stage
