// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <string>
#include <utility>

#include "config/job_config.hpp"

using namespace efs::config;

namespace {

constexpr auto persistent = FileClass::persistent;
constexpr auto temporary = FileClass::temporary;

Resource resource(const std::string& path, FileClass file_class) {
  return {.path = path.empty() ? "/pfs" : "/pfs/" + path,
          .backend = "dram",
          .file_class = file_class,
          .is_glob = path.find_first_of("*?[") != path.npos};
}

JobConfig job(std::vector<Resource> resources, std::vector<OutputRule> outputs) {
  JobConfig config;
  config.root_dir = "/pfs";
  config.mount_dir = "/m";
  config.resources = std::move(resources);
  config.outputs = std::move(outputs);
  return config;
}

}  // namespace

TEST_CASE("without output rules every new file is persistent") {
  const auto config = job({resource("in", temporary)}, {});
  CHECK(classify(config, "new", false) == persistent);
  CHECK(classify(config, "in/new", false) == persistent);
  CHECK(classify(config, "in/old", true) == temporary);
}

TEST_CASE("with output rules new files that match none are temporary") {
  const auto config = job({}, {{"out", persistent}});
  CHECK(classify(config, "out/a/b", false) == persistent);
  CHECK(classify(config, "out", false) == persistent);
  CHECK(classify(config, "/out/a", false) == persistent);
  CHECK(classify(config, "outer", false) == temporary);
  CHECK(classify(config, "other", false) == temporary);
}

TEST_CASE("the first output rule that matches decides") {
  const auto config =
      job({}, {{"out/*.tmp", temporary}, {"out", persistent}, {"**/*.tmp", persistent}});
  CHECK(classify(config, "out/x.tmp", false) == temporary);
  CHECK(classify(config, "out/x.dat", false) == persistent);
  CHECK(classify(config, "out/d/x.tmp", false) == persistent);
  CHECK(classify(config, "else/x.tmp", false) == persistent);
}

TEST_CASE("a rule that matches a directory holds for all below it, hidden files too") {
  const auto config = job({}, {{"step-[0-9]*", persistent}});
  CHECK(classify(config, "step-17/.meta/x", false) == persistent);
  CHECK(classify(config, "d/step-17", false) == temporary);
}

TEST_CASE("output rules do not concern what was staged in") {
  const auto config = job({resource("in", temporary)}, {{"**", persistent}});
  CHECK(classify(config, "in/a", true) == temporary);
  CHECK(classify(config, "in/a", false) == persistent);
}

TEST_CASE("but those that hold inputs do, whatever the resource says") {
  const auto config = job({resource("in", temporary), resource("state", persistent)},
                          {{.pattern = "in/new", .file_class = persistent},
                           {.pattern = "in/s*", .file_class = persistent, .holds_inputs = true},
                           {.pattern = "state/x", .file_class = temporary, .holds_inputs = true}});
  CHECK(classify(config, "in/state", true) == persistent);
  CHECK(classify(config, "in/sub/a", true) == persistent);
  CHECK(classify(config, "in/new", true) == temporary);
  CHECK(classify(config, "in/a", true) == temporary);
  CHECK(classify(config, "in/new", false) == persistent);
  CHECK(classify(config, "in/state", false) == persistent);
  CHECK(classify(config, "state/x", true) == temporary);
  CHECK(classify(config, "state/y", true) == persistent);
  std::string why;
  (void)classify(config, "in/state", true, why);
  CHECK(why == "the output rule in/s*, which holds inputs, too");
}

TEST_CASE("new files below a persistent resource are kept where no output rule matches") {
  const auto config = job({resource("state", persistent), resource("state/scratch", temporary)},
                          {{"out", persistent}});
  CHECK(classify(config, "state/new", false) == persistent);
  CHECK(classify(config, "state/scratch/new", false) == temporary);
}

TEST_CASE("the deepest resource decides, and a plain path beats a glob") {
  const auto config = job({resource("a", temporary), resource("a/b", persistent),
                           resource("a/b/*.log", temporary), resource("a/b/keep.log", persistent)},
                          {});
  CHECK(classify(config, "a/x", true) == temporary);
  CHECK(classify(config, "a/b/x", true) == persistent);
  CHECK(classify(config, "a/b/x.log", true) == temporary);
  CHECK(classify(config, "a/b/keep.log", true) == persistent);
  CHECK(classify(config, "a/bc", true) == temporary);
}

TEST_CASE("root-dir itself as a resource holds everything") {
  const auto config = job({resource("", persistent)}, {{"out", temporary}});
  CHECK(classify(config, "a/b", true) == persistent);
  CHECK(classify(config, "new", false) == persistent);
  CHECK(classify(config, "out/new", false) == temporary);
}

TEST_CASE("a wildcard character in root-dir is not a pattern") {
  auto config = job({{.path = "/p[x]/in/*.dat", .file_class = persistent, .is_glob = true}},
                    {{"o", persistent}});
  config.root_dir = "/p[x]";
  CHECK(classify(config, "in/a.dat", true) == persistent);
  CHECK(classify(config, "in/a.txt", true) == temporary);
}

TEST_CASE("staged in without a resource that names it") {
  CHECK(classify(job({}, {}), "a", true) == persistent);
  CHECK(classify(job({}, {{"o", persistent}}), "a", true) == temporary);
}

TEST_CASE(
    "the backend of an input is its resource's, that of a new file its rule's or that of new "
    "files") {
  auto config =
      job({resource("", temporary), resource("big", temporary)},
          {{"ckpt", persistent, "bulk"}, {"ckpt/tmp", persistent, "fast"}, {"**", persistent}});
  config.backends = {{.id = "fast"}, {.id = "bulk"}, {.id = "new"}};
  config.new_files = 2;
  config.resources[0].backend = "fast";
  config.resources[1].backend = "bulk";
  CHECK(backend_of(config, "a", true) == 0);
  CHECK(backend_of(config, "big/a", true) == 1);
  CHECK(backend_of(config, "/big/a", true) == 1);
  CHECK(backend_of(config, "big/new", false) == 2);
  CHECK(backend_of(config, "ckpt/a", false) == 1);
  CHECK(backend_of(config, "ckpt/tmp/a", false) == 1);  // the first that matches
  config.backends.resize(1);
  CHECK(backend_of(config, "ckpt/a", false) == 0);
}

TEST_CASE("an input may leave if all resources that name it say so", "[config][evict]") {
  auto config = job({resource("in", temporary), resource("in/*.dat", temporary)}, {});
  CHECK_FALSE(evicts_input(config, "in/a"));
  config.resources[0].evict = Evict::when_full;
  CHECK(evicts_input(config, "in/a"));
  CHECK(evicts_input(config, "in/d/b"));
  CHECK_FALSE(evicts_input(config, "in/a.dat"));
  CHECK_FALSE(evicts_input(config, "other"));
  config.resources[1].evict = Evict::when_full;
  CHECK(evicts_input(config, "in/a.dat"));
  config.resources.push_back({.path = "/pfs/list", .is_list = true});
  CHECK_FALSE(evicts_input(config, "in/a"));
  config.resources.back().evict = Evict::when_full;
  CHECK(evicts_input(config, "in/a"));
  CHECK(evicts_input(config, "other"));
}
