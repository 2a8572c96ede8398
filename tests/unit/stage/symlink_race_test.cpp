// SPDX-License-Identifier: BSD-3-Clause
// An attacker replaces a directory or file by a symbolic link between two calls to the PFS: at
// every call in turn. efs reads, writes and removes nothing outside root-dir and results-dir.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "stage/import/stage_in.hpp"
#include "support/temp.hpp"
#include "support/without_openat2.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/live_scene.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

constexpr const char* secret = "what lies elsewhere";

/// Makes a directory outside, with the same names below it as the inside.
std::string make_elsewhere(const std::string& top) {
  const std::string elsewhere = top + "/elsewhere";
  for (const char* name : {"f", "g", "sub/h", "f.efs-partial"}) {
    write_file(elsewhere + "/" + name, secret);
  }
  stdfs::create_directory(elsewhere + "/nothing");
  return elsewhere;
}

/// The target of the link at `place`, which is d or below it.
std::string target_of(const std::string& place, const std::string& elsewhere) {
  return elsewhere + place.substr(1);
}

/// Moves `path` aside, if it exists, and makes a link in its place.
void put_link(const std::string& path, const std::string& target) {
  std::error_code ignored;
  stdfs::rename(path, path + ".aside", ignored);
  stdfs::create_symlink(target, path, ignored);
}

/// A PFS on which `path` becomes a link to `target` just before call number `at`.
struct Racing {
  std::string path, target;
  std::uint64_t at;
  FaultPfs pfs{[this](std::uint64_t number, const std::string&, const std::string&) {
    if (number == at) {
      put_link(path, target);
    }
    return 0;
  }};
};

/// `race` does one whole transfer in which the link appears before call `at`, and returns the
/// number of calls. Runs `race` for each call (EFS_SAMPLE: for a part). Returns the number of calls
/// without a link. `failing`: the error of openat2(2).
std::uint64_t at_every_call(int failing,
                            const std::function<std::uint64_t(std::uint64_t at)>& race) {
  const auto seed = efs::test::seed();
  const efs::test::Sample sample(seed);
  INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed);
  std::uint64_t calls = 0;
  efs::test::with_openat2_failing(failing, [&] {
    calls = race(std::numeric_limits<std::uint64_t>::max());
    for (std::uint64_t at = std::min(sample.first, calls - 1); race(at) > at; at += sample.step) {
    }
  });
  return calls;
}

std::vector<std::string> names_below(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : stdfs::recursive_directory_iterator(directory)) {
    names.push_back(entry.path().string());
  }
  std::ranges::sort(names);
  return names;
}

/// The files outside, to check that they stay.
struct Outside {
  explicit Outside(std::string path) : directory(std::move(path)) {}

  bool is_as_it_was() const {
    return snapshot_of(directory) == files && names_below(directory) == names;
  }

  std::string directory;
  std::map<std::string, std::pair<std::string, Nanoseconds>> files = snapshot_of(directory);
  std::vector<std::string> names = names_below(directory);
};

/// True if no file below `directory` has content from elsewhere, except through the link.
bool holds_no_secret(const std::string& directory) {
  return std::ranges::none_of(snapshot_of(directory),
                              [](const auto& file) { return file.second.first.contains(secret); });
}

/// Makes inputs below d, and files elsewhere.
void prepare(const LiveScene& scene) {
  for (const char* name : {"d/f", "d/g", "d/sub/h"}) {
    write_file(scene.config.root_dir + "/" + name, "input of some length");
  }
  make_elsewhere(scene.top.path());
}

}  // namespace

TEST_CASE("a link that comes between look and use leads no input out of root-dir",
          "[stage][in][race]") {
  const std::string place = GENERATE(as<std::string>{}, "d", "d/sub", "d/f");
  const int failing = GENERATE(0, ENOSYS);  // of openat2(2)
  const auto calls = at_every_call(failing, [&](std::uint64_t at) {
    Scene scene;
    for (const char* name : {"d/f", "d/g", "d/sub/h"}) {
      write_file(scene.root + "/" + name, "input");
    }
    const std::string elsewhere = make_elsewhere(scene.top);
    scene.resource("d");
    scene.options.workers = 1;
    Racing racing{scene.root + "/" + place, target_of(place, elsewhere), at};
    INFO(place << " at call " << at << ", openat2 gives " << failing);
    Progress progress;
    const auto plan = make_plan(scene.config, racing.pfs);
    if (plan && plan->problems.empty()) {
      (void)stage_in(*plan, scene.buffer, racing.pfs, scene.options, progress);
    }
    for (const auto& [path, node] : scene.buffer.nodes) {
      if (node.type == S_IFREG) {
        CHECK(content_of(scene.buffer.container(node.ino)) != secret);
      }
    }
    return racing.pfs.calls();
  });
  CHECK(calls > 19);
}

TEST_CASE("a link that comes between look and use leads no result out of results-dir",
          "[stage][out][race]") {
  const std::string place = GENERATE(as<std::string>{}, "d", "d/sub", "d/f", "d/f.efs-partial");
  const bool there_before = GENERATE(true, false);
  const int failing = GENERATE(0, ENOSYS);  // of openat2(2)
  const auto calls = at_every_call(failing, [&](std::uint64_t at) {
    Scene scene;
    stdfs::create_directory(scene.results);
    const std::string elsewhere = make_elsewhere(scene.top);
    if (there_before) {
      for (const char* name : {"d/f", "d/sub/h"}) {
        write_file(scene.results + "/" + name, "before");
      }
    }
    for (const char* name : {"d", "d/sub"}) {
      scene.buffer.put(name, S_IFDIR);
    }
    for (const char* name : {"d/f", "d/g", "d/sub/h"}) {
      scene.buffer.put(name, S_IFREG, "result");
    }
    scene.buffer.put("d/l", S_IFLNK, "f");
    scene.options.workers = 1;
    const Outside outside(elsewhere);
    Racing racing{scene.results + "/" + place, target_of(place, elsewhere), at};
    INFO(place << " at call " << at << (there_before ? ", there before" : "") << ", openat2 gives "
               << failing);
    (void)scene.out(racing.pfs);
    CHECK(outside.is_as_it_was());
    return racing.pfs.calls();
  });
  CHECK(calls > 19);
}

TEST_CASE("a link that comes between look and use leads no removal of an input out of root-dir",
          "[stage][out][deletions][race]") {
  const std::string place = GENERATE(as<std::string>{}, "d", "d/sub", "d/f");
  const int failing = GENERATE(0, ENOSYS);  // of openat2(2)
  const auto calls = at_every_call(failing, [&](std::uint64_t at) {
    Scene scene;
    // the same as elsewhere
    for (const char* name : {"d/f", "d/g", "d/sub/h", "d/stays"}) {
      write_file(scene.root + "/" + name, secret);
    }
    stdfs::create_directory(scene.root + "/d/nothing");
    const Outside outside(make_elsewhere(scene.top));
    scene.resource("d");
    scene.options.workers = 1;
    scene.config.results_dir = scene.root;
    scene.config.in_place = true;
    scene.config.deletions = config::Deletions::propagate;
    scene.config.on_conflict = config::OnConflict::overwrite;  // it goes, whatever became of it
    REQUIRE(scene.in().ok());
    const auto items = *scene.buffer.walk();
    for (const char* path : {"d/f", "d/g", "d/nothing", "d/sub", "d/sub/h"}) {
      scene.buffer.gone_items.push_back(*std::ranges::find(items, path, &fs::WalkItem::path));
      scene.buffer.nodes.erase(path);
    }
    Racing racing{scene.root + "/" + place, target_of(place, outside.directory), at};
    INFO(place << " at call " << at << ", openat2 gives " << failing);
    (void)scene.out(racing.pfs);
    CHECK(outside.is_as_it_was());
    return racing.pfs.calls();
  });
  CHECK(calls > 14);
}

TEST_CASE("a link that comes between look and use leads no load out of root-dir", "[stage][race]") {
  const std::string place = GENERATE(as<std::string>{}, "d", "d/sub", "d/f");
  const bool whole = GENERATE(true, false);
  const int failing = GENERATE(0, ENOSYS);  // of openat2(2)
  const auto calls = at_every_call(failing, [&](std::uint64_t at) {
    LiveScene scene;
    prepare(scene);
    scene.options.workers = 1;
    Racing racing{scene.config.root_dir + "/" + place,
                  target_of(place, scene.top.path() + "/elsewhere"), at};
    INFO(place << " at call " << at << (whole ? "" : ", of a part") << ", openat2 gives "
               << failing);
    if (whole) {
      (void)scene.in({.names = {"d"}}, racing.pfs);
    } else {
      (void)scene.in({.names = {"d/f"}, .part = {.offset = 0, .length = 5}}, racing.pfs);
    }
    const auto items = scene.buffer.staging->walk().value();
    for (const auto& item : items) {
      if (S_ISREG(item.attributes.st_mode)) {
        CHECK_FALSE(scene.buffer.read(item.path).contains(std::string(secret).substr(0, 5)));
      }
    }
    CHECK(scene.leaks_nothing());
    return racing.pfs.calls();
  });
  CHECK(calls > (whole ? 19 : 9));
}

TEST_CASE("a link that comes between look and use leads no unload out of results-dir",
          "[stage][race]") {
  const std::string place = GENERATE(as<std::string>{}, "d", "d/sub", "d/f", "d/f.efs-partial");
  const bool whole = GENERATE(true, false);
  const bool in_place = GENERATE(true, false);
  const int failing = GENERATE(0, ENOSYS);  // of openat2(2)
  const auto calls = at_every_call(failing, [&](std::uint64_t at) {
    LiveScene scene;
    prepare(scene);
    scene.options.workers = 1;
    scene.config.in_place = in_place;
    scene.config.on_conflict = config::OnConflict::overwrite;
    if (in_place) {
      scene.config.results_dir = scene.config.root_dir;
    }
    REQUIRE(scene.in({.names = {"d"}}).ok());
    for (const char* name : {"d/f", "d/g", "d/sub/h"}) {
      scene.buffer.write(name, "result");
    }
    if (!in_place) {
      REQUIRE(scene.back({.names = {"d"}}).verdict == Verdict::complete);
    }
    for (const char* name : {"d/f", "d/g", "d/sub/h"}) {
      scene.buffer.write(name, "another result");
    }
    const Outside outside(scene.top.path() + "/elsewhere");
    Racing racing{scene.config.results_dir + "/" + place, target_of(place, outside.directory), at};
    INFO(place << " at call " << at << (whole ? "" : ", of a part")
               << (in_place ? ", in place" : "") << ", openat2 gives " << failing);
    if (whole) {
      (void)scene.back({.names = {"d"}, .remove = true}, racing.pfs);
    } else {
      (void)scene.back({.names = {"d/f"}, .part = {.offset = 2, .length = 3}}, racing.pfs);
    }
    CHECK(outside.is_as_it_was());
    CHECK(holds_no_secret(scene.config.results_dir));
    return racing.pfs.calls();
  });
  CHECK(calls > (whole ? 19 : 9));
}
