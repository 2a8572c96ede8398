// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/distribute.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>

namespace efs::stage {
namespace {

config::JobConfig job(unsigned node, unsigned nodes) {
  config::JobConfig config{.root_dir = "/pfs", .node = node, .nodes = nodes};
  config.resources.push_back({.path = "/pfs/all"});
  config.resources.push_back({.path = "/pfs/parts", .distribute = config::Distribute::partition});
  config.resources.push_back({.path = "/pfs/parts/common"});
  config.resources.push_back(
      {.path = "/pfs/g*", .is_glob = true, .distribute = config::Distribute::partition});
  return config;
}

std::vector<PlanEntry> inputs() {
  std::vector<PlanEntry> entries;
  const auto add = [&](const std::string& path, EntryType type, std::uint64_t size) {
    entries.push_back({.path = path, .type = type, .size = size});
  };
  add("all", EntryType::directory, 0);
  add("all/x", EntryType::file, 5000);
  add("parts", EntryType::directory, 0);
  add("parts/common", EntryType::directory, 0);
  add("parts/common/y", EntryType::file, 5000);
  for (std::uint64_t i = 0; i < 40; ++i) {
    add("parts/" + std::to_string(i), EntryType::file, 1u << (i % 20));
  }
  add("parts/link", EntryType::symlink, 0);
  add("g1", EntryType::file, 7);
  add("gdir/deep", EntryType::file, 7);
  return entries;
}

TEST_CASE("one node gets everything", "[distribute]") {
  auto entries = inputs();
  deal_out(job(0, 1), entries);
  CHECK(entries.size() == inputs().size());
}

TEST_CASE("partitioned files go to exactly one node each, in fair shares; the rest to all",
          "[distribute]") {
  constexpr unsigned nodes = 3;
  std::map<std::string, int> seen;
  std::vector<std::uint64_t> bytes(nodes, 0);
  for (unsigned node = 0; node < nodes; ++node) {
    auto entries = inputs();
    deal_out(job(node, nodes), entries);
    for (const auto& entry : entries) {
      ++seen[entry.path];
      if (entry.path.starts_with("parts/") && !entry.path.contains("common")) {
        bytes.at(node) += entry.size;
      }
    }
  }
  CHECK(seen.size() == inputs().size());
  for (const auto& [path, count] : seen) {
    INFO(path);
    const bool dealt =
        path == "g1" || path == "gdir/deep" ||
        (path.starts_with("parts/") && !path.contains("common") && path != "parts/link");
    CHECK(count == (dealt ? 1 : static_cast<int>(nodes)));
  }
  const auto [least, most] = std::ranges::minmax(bytes);
  CHECK(most - least <= (1u << 19));  // no more than one large file
}

TEST_CASE("every node tells the same of where the parts are, and it is so", "[distribute]") {
  constexpr unsigned nodes = 3;
  std::string lines;
  for (unsigned node = 0; node < nodes; ++node) {
    auto entries = inputs();
    const auto parts = deal_out(job(node, nodes), entries);
    CHECK(parts.size() == 42);
    CHECK(std::ranges::is_sorted(parts, {}, &Dealt::path));
    for (const auto& part : parts) {
      INFO(part.path);
      CHECK(std::ranges::any_of(entries, [&](const PlanEntry& entry) {
              return entry.path == part.path;
            }) == (part.node == node));
    }
    if (node > 0) {
      CHECK(lines_of(parts) == lines);
    }
    lines = lines_of(parts);
  }
  auto entries = inputs();
  CHECK(deal_out(job(0, 1), entries).empty());
  CHECK(lines_of({{.path = "in/a b", .node = 0}, {.path = "in/\n\\", .node = 12}}) ==
        "0 in/a b\n12 in/\\012\\134\n");
}

}  // namespace
}  // namespace efs::stage
