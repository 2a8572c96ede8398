// SPDX-License-Identifier: BSD-3-Clause
// The section tiers of a job file.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "config/load.hpp"

using namespace efs::config;

namespace {

const std::string head =
    "global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o}\n"
    "backends:\n"
    "  - {id: fast, type: DRAM, capacity: 64 MiB}\n"
    "  - {id: pmem, type: NVRAM-NVML, daxfs: /p}\n"
    "  - {id: \"ssd/\", type: NVRAM-NVML, daxfs: /s}\n";

Tiers tiers_of(const std::string& text) {
  const auto config = parse(head + text, "job.yaml");
  if (!config) {
    FAIL(to_string(config.error().front(), "job.yaml"));
  }
  return config->tiers;
}

std::string problem_of(const std::string& text) {
  const auto config = parse(head + text, "job.yaml");
  REQUIRE_FALSE(config);
  CHECK(config.error().size() == 1);
  return to_string(config.error().front(), "job.yaml");
}

}  // namespace

TEST_CASE("tiers have an order, two levels and a way up", "[config][tiers]") {
  CHECK(tiers_of("").order.empty());
  const Tiers usual = tiers_of("tiers: {order: [fast, ssd]}\n");
  CHECK(usual.order == std::vector<std::size_t>{0, 2});
  CHECK((usual.high == 90 && usual.low == 75));
  CHECK((usual.promote == Promote::never && usual.max_rate == 0));
  const Tiers all = tiers_of(
      "tiers: {order: [pmem, \"ssd/\", fast], high: 60%, low: 20, promote: on-open, max-rate: 1 "
      "MiB/s}\n");
  CHECK(all.order == std::vector<std::size_t>{1, 2, 0});
  CHECK((all.high == 60 && all.low == 20));
  CHECK((all.promote == Promote::on_open && all.max_rate == 1U << 20));
  CHECK(tiers_of("tiers: [ order: [ fast, pmem ], high: 80 ]\n").high == 80);
}

TEST_CASE("tiers that make no sense are refused", "[config][tiers]") {
  CHECK(problem_of("tiers: {high: 80}\n").contains("'order' is missing from tiers"));
  CHECK(problem_of("tiers: {order: [fast]}\n").contains("names one backend only"));
  CHECK(problem_of("tiers: {order: fast}\n").contains("names one backend only"));
  CHECK(problem_of("tiers: {order: [fast, tape]}\n").contains("unknown backend 'tape'"));
  CHECK(problem_of("tiers: {order: [fast, pmem, fast]}\n").contains("'fast' twice"));
  CHECK(problem_of("tiers: {order: [fast, ssd], low: 90}\n").contains("'low' must be less"));
  CHECK(problem_of("tiers: {order: [fast, ssd], high: 101}\n").contains("'high'"));
  CHECK(problem_of("tiers: {order: [fast, ssd], promote: yes}\n").contains("'promote'"));
  CHECK(problem_of("tiers: {order: [fast, ssd], hihg: 80}\n").contains("did you mean 'high'?"));
}

TEST_CASE("the nodes of a job read the same tiers, and --show has them", "[config][tiers]") {
  Surroundings before;
  before.before_job = true;
  const auto submitted =
      parse(head + "tiers: {order: [fast, \"ssd/\"], high: 80%}\n", "job.yaml", {}, before);
  REQUIRE(submitted);
  const auto on_node = parse(submitted->snapshot, "job.yaml");
  REQUIRE(on_node);
  CHECK(on_node->tiers.order == std::vector<std::size_t>{0, 2});
  CHECK(on_node->tiers.high == 80);
  const auto shown = [&](const std::string& key) {
    const auto found = std::ranges::find_if(submitted->effective, [&](const auto& value) {
      return value.section == "tiers" && value.key == key;
    });
    return found == submitted->effective.end() ? "" : found->value;
  };
  CHECK((shown("order") == "fast, ssd/" && shown("high") == "80%" && shown("low") == "75%"));
}
