// SPDX-License-Identifier: BSD-3-Clause
// Keys for jobs on several nodes and in batch systems.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "config/load.hpp"

namespace efs::config {
namespace {

std::string job(const std::string& settings, const std::string& resource) {
  return "global-settings:\n  root-dir: /pfs/run\n  mount-dir: /mnt/job\n  results-dir: "
         "/pfs/results\n" +
         settings + "resources:\n  - path: input\n" + resource;
}

TEST_CASE("distribute, from-job and interleaving", "[config]") {
  const auto plain = parse(job("", ""), "job.yaml");
  REQUIRE(plain);
  CHECK(plain->resources[0].distribute == Distribute::replicate);
  CHECK_FALSE(plain->resources[0].from_job);
  CHECK(plain->interleaving.empty());
  CHECK(plain->nodes == 1);
  const auto given =
      parse(job("  interleaving: /pfs/queue/\n", "    distribute: partition\n    from-job: true\n"),
            "job.yaml");
  REQUIRE(given);
  CHECK(given->resources[0].distribute == Distribute::partition);
  CHECK(given->resources[0].from_job);
  CHECK(given->interleaving == "/pfs/queue");
}

TEST_CASE("their values are checked", "[config]") {
  const auto bad =
      parse(job("  interleaving: ~/queue\n", "    distribute: partitoin\n    from-job: maybe\n"),
            "job.yaml");
  REQUIRE_FALSE(bad);
  REQUIRE(bad.error().size() == 3);
  CHECK(bad.error()[0].text.contains("interleaving"));
  CHECK(bad.error()[1].suggestion.contains("partition"));
  CHECK(bad.error()[2].text.contains("from-job"));
}

TEST_CASE("as: where an input appears, and where it comes from", "[config]") {
  const auto given = parse(job("",
                               "    as: ./in//put/\n    flags: persistent\n  - {path: deep/x, as: "
                               "in/put/other}\n  - path: '*.h5'\n"),
                           "job.yaml");
  REQUIRE(given);
  CHECK(given->resources[0].path == "/pfs/run/input");
  CHECK(given->resources[0].as == "in/put");
  CHECK(place_of(*given, given->resources[0]) == "in/put");
  CHECK(place_of(*given, given->resources[2]) == "*.h5");
  CHECK(source_of(*given, "in/put") == "input");
  CHECK(source_of(*given, "in/put/a/b") == "input/a/b");
  CHECK(source_of(*given, "in/put/other") == "deep/x");
  CHECK(source_of(*given, "in/putter") == "in/putter");
  CHECK(source_of(*given, "input/a") == "input/a");
  CHECK(classify(*given, "in/put/a", true) == FileClass::persistent);
  CHECK(classify(*given, "in/put/other", true) == FileClass::temporary);
  CHECK_FALSE(is_input(*given, "input/a"));
}

TEST_CASE("as: where it cannot be", "[config]") {
  for (const char* as : {"/abs", "..", "a/../..", ".", "'a*'"}) {
    INFO(as);
    const auto bad = parse(job("", std::string("    as: ") + as + "\n"), "job.yaml");
    REQUIRE_FALSE(bad);
    CHECK(bad.error().size() == 1);
    CHECK(bad.error()[0].text.contains("'as'"));
  }
  const auto first = [](const std::string& text) {
    const auto bad = parse(text, "job.yaml");
    return bad ? std::string("good") : bad.error().front().text;
  };
  CHECK(first(job("", "  - {path: 'x*', as: y}\n")).contains("'as' does not go with a pattern"));
  CHECK(first(job("", "  - {list: names, as: y}\n")).contains("'as' does not go with 'list'"));
  CHECK(first(job("", "  - {path: x, as: input}\n")).contains("another resource is at 'input'"));
  CHECK(first(job("", "  - {path: input, as: copy}\n")) == "good");
  CHECK(first("global-settings: {root-dir: /r, mount-dir: /m, in-place: true}\nresources: [{path: "
              "a, as: b}]\n")
            .contains("in-place"));
}

TEST_CASE("as of an output: what it is called in results-dir", "[config]") {
  const auto given = parse(job("",
                               "outputs:\n  - {path: sub/r.h5, as: ./final.h5}\n  - {path: out, "
                               "as: run12}\n  - {path: out/own, as: other}\n  - path: '*.log'\n"),
                           "job.yaml");
  REQUIRE(given);
  CHECK(renames_results(*given));
  CHECK(result_path(*given, "sub/r.h5") == "final.h5");
  CHECK(result_path(*given, "sub/r.h5x") == "sub/r.h5x");
  CHECK(result_path(*given, "out") == "run12");
  CHECK(result_path(*given, "out/deep/a") == "run12/deep/a");
  CHECK(result_path(*given, "out/own/a") == "other/a");
  CHECK(result_path(*given, "a.log") == "a.log");
  CHECK(rank(*given, "final.h5") == 0);
  CHECK_FALSE(renames_results(*parse(job("", "outputs:\n  - path: out\n"), "job.yaml")));
  for (const char* as : {"/abs", "..", ".", "a/b", "'a*'"}) {
    INFO(as);
    const auto bad =
        parse(job("", std::string("outputs:\n  - {path: out, as: ") + as + "}\n"), "job.yaml");
    REQUIRE_FALSE(bad);
    CHECK(bad.error().size() == 1);
    CHECK(bad.error()[0].text.contains("'as' of an output"));
  }
  const auto first = [](const std::string& outputs) {
    const auto bad = parse(job("", "outputs:\n" + outputs), "job.yaml");
    return bad ? std::string("good") : bad.error().front().text;
  };
  CHECK(first("  - {path: '*.h5', as: y}\n").contains("'as' does not go with a pattern"));
  CHECK(first("  - {path: ., as: y}\n").contains("'as' does not go with a pattern"));
  CHECK(first("  - {path: a, as: y}\n  - {path: b, as: y}\n")
            .contains("another output is called 'y'"));
}

TEST_CASE("reusable, cache and cache-capacity", "[config]") {
  const auto plain = parse(job("", ""), "job.yaml");
  REQUIRE(plain);
  CHECK_FALSE(plain->resources[0].reusable);
  CHECK(plain->cache.empty());
  CHECK_FALSE(plain->cache_capacity);
  const auto given = parse(
      job("  cache: /mnt/pmem/\n  cache-capacity: 2 GiB\n", "    reusable: true\n"), "job.yaml");
  REQUIRE(given);
  CHECK(given->resources[0].reusable);
  CHECK(given->cache == "/mnt/pmem");
  CHECK(given->cache_capacity == 2u << 30);
  const auto bad = parse(job("  cache-capacity: 3 KiB\n", "    reusable: perhaps\n"), "job.yaml");
  REQUIRE_FALSE(bad);
  REQUIRE(bad.error().size() == 2);
  CHECK(bad.error()[0].text.contains("cache-capacity"));
  CHECK(bad.error()[1].text.contains("reusable"));
}

}  // namespace
}  // namespace efs::config
