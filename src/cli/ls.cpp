// SPDX-License-Identifier: BSD-3-Clause
#include <iomanip>
#include <iostream>

#include "base/json_text.hpp"
#include "base/text.hpp"
#include "cli/cli.hpp"

namespace efs::cli {

// Prints CLASS STATE SIZE PATH. A stop decides by the state.
void print_item(std::ostream& out, const Json& item, bool with_backend) {
  const std::string type = item.value("type", ""), staged = item.value("staged", "");
  const std::string state = item.value("dirty", false) ? "dirty"
                            : staged == "out"          ? "unloaded"
                                                       : "clean";
  out << std::left << std::setw(11) << printable(item.value("class", "")) << std::setw(9) << state
      << std::right << std::setw(11)
      << (type == "file" ? format_bytes(item.value("size", std::uint64_t{0})) : "-") << "  "
      << escaped(item.value("path", ""));
  if (type == "directory") {
    out << "/";
  }
  if (item.contains("target")) {
    out << " -> " << escaped(item.value("target", ""));
  }
  if (with_backend && item.contains("backend")) {
    out << " [" << escaped(item.value("backend", "")) << "]";
  }
  if (item.value("pinned", false)) {
    out << " (pinned)";
  }
  if (item.contains("unreadable")) {
    out << " (cannot be read)";
  }
  if (item.contains("remote")) {
    out << (item.contains("fetching") ? " (being fetched)" : " (not here)");
  }
  if (item.contains("parts")) {
    out << " (only " << printable(item.value("parts", "")) << ")";
  }
  out << "\n";
}

namespace {

// Prints the items of a part of the answer; with --json, adds them to `document`.
void take_items(World& world, const Json& part, std::string& document) {
  const bool has_several = part.value("backends", 1U) > 1;
  for (const auto& item : part.value("items", Json::array())) {
    if (world.json) {
      document += (document.size() > 1 ? "," : "") + json_to_text(item);
    } else {
      print_item(world.out, item, has_several);
    }
  }
}

}  // namespace

int ls(World& world, const FileArguments& a) {
  if (a.instances && (!a.paths.empty() || !a.instance.empty())) {
    return report(world,
                  {EINVAL, "--instances lists all instances: it takes no path and no --instance"},
                  exit_usage);
  }
  if (a.instances) {
    return list_all(world);
  }
  const auto instance = find_instance_for(a);
  if (!instance) {
    return report(world, instance.error());
  }
  std::string document = "[";  // printed only when complete, so that an error can replace it
  const auto answer = ask(*instance, to_json(control::requests::List{.paths = a.paths}),
                          [&](const Json& part) { take_items(world, part, document); });
  if (!answer) {
    return report(world, answer.error());
  }
  if (world.json) {
    world.out << document << "]\n";
  }
  return exit_good;
}

}  // namespace efs::cli
