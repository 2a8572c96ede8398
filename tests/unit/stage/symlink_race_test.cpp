// Somebody puts a symbolic link in a directory's or file's place between two calls to the PFS: at every call in turn. Nothing
// outside of root-dir and results-dir is read or written.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "fault_pfs.hpp"
#include "scene.hpp"
#include "support/without_openat2.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

constexpr const char* secret = "what lies elsewhere";

/// What is outside: a directory with the same names below it as the inside has.
std::string make_elsewhere(const Scene& scene) {
  const std::string elsewhere = scene.top + "/elsewhere";
  for (const char* name : {"f", "g", "sub/h", "f.efs-partial"}) write_file(elsewhere + "/" + name, secret);
  return elsewhere;
}

/// Puts a link in the place of `path`, which is moved aside; where nothing is, the link alone.
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
    if (number == at) put_link(path, target);
    return 0;
  }};
};

std::vector<std::string> names_below(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : stdfs::recursive_directory_iterator(directory)) names.push_back(entry.path().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace

TEST_CASE("a link that comes between look and use leads no input out of root-dir", "[stage][in][race]") {
  const std::string place = GENERATE(as<std::string>{}, "d", "d/sub", "d/f");
  const int failing = GENERATE(0, ENOSYS);  // of openat2(2)
  std::uint64_t at = 0;
  const auto race = [&] {
    Scene scene;
    for (const char* name : {"d/f", "d/g", "d/sub/h"}) write_file(scene.root + "/" + name, "input");
    const std::string elsewhere = make_elsewhere(scene);
    scene.resource("d");
    scene.options.workers = 1;
    const std::string target = place == "d" ? elsewhere : place == "d/sub" ? elsewhere + "/sub" : elsewhere + "/f";
    Racing racing{scene.root + "/" + place, target, at};
    INFO(place << " at call " << at << ", openat2 gives " << failing);
    Progress progress;
    const auto plan = make_plan(scene.config, racing.pfs);
    if (plan && plan->problems.empty()) (void)stage_in(*plan, scene.buffer, racing.pfs, scene.options, progress);
    for (const auto& [path, node] : scene.buffer.nodes)
      if (node.type == S_IFREG) CHECK(content_of(scene.buffer.container(node.ino)) != secret);
    return racing.pfs.calls() > at;
  };
  efs::test::with_openat2_failing(failing, [&] {
    while (race()) ++at;
  });
  CHECK(at > 19);
}

TEST_CASE("a link that comes between look and use leads no result out of results-dir", "[stage][out][race]") {
  const std::string place = GENERATE(as<std::string>{}, "d", "d/sub", "d/f", "d/f.efs-partial");
  const bool there_before = GENERATE(true, false);
  const int failing = GENERATE(0, ENOSYS);  // of openat2(2)
  std::uint64_t at = 0;
  const auto race = [&] {
    Scene scene;
    stdfs::create_directory(scene.results);
    const std::string elsewhere = make_elsewhere(scene);
    if (there_before)
      for (const char* name : {"d/f", "d/sub/h"}) write_file(scene.results + "/" + name, "before");
    for (const char* name : {"d", "d/sub"}) scene.buffer.put(name, S_IFDIR);
    for (const char* name : {"d/f", "d/g", "d/sub/h"}) scene.buffer.put(name, S_IFREG, "result");
    scene.buffer.put("d/l", S_IFLNK, "f");
    scene.options.workers = 1;
    const auto before = snapshot_of(elsewhere);
    const auto names = names_below(elsewhere);
    const std::string target = place == "d" ? elsewhere : place == "d/sub" ? elsewhere + "/sub" : elsewhere + "/f";
    Racing racing{scene.results + "/" + place, target, at};
    INFO(place << " at call " << at << (there_before ? ", there before" : "") << ", openat2 gives " << failing);
    (void)scene.out(racing.pfs);
    CHECK(snapshot_of(elsewhere) == before);
    CHECK(names_below(elsewhere) == names);
    return racing.pfs.calls() > at;
  };
  efs::test::with_openat2_failing(failing, [&] {
    while (race()) ++at;
  });
  CHECK(at > 19);
}
