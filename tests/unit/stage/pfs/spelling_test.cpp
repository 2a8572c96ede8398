// SPDX-License-Identifier: BSD-3-Clause
// Names that collide on a case-insensitive PFS.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "stage/pfs/spelling.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using stage::test::FaultPfs;
using stage::test::Scene;

namespace {

std::string spelled(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Action fate(const Receipt& receipt, const std::string& path) {
  const auto entry = std::ranges::find(receipt.entries, path, &ReceiptEntry::path);
  REQUIRE(entry != receipt.entries.end());
  return entry->action;
}

int no_fault(std::uint64_t, const std::string&, const std::string&) {
  return 0;
}

}  // namespace

TEST_CASE("spelling: case is folded in every alphabet, and nothing else", "[stage][spelling]") {
  CHECK(case_folded("dir/File.DAT") == case_folded("DIR/file.dat"));
  // A with diaeresis
  CHECK(case_folded("\xc3\x84pfel") == case_folded("\xc3\xa4PFEL"));
  CHECK(case_folded("\xd0\x96") == case_folded("\xd0\xb6"));  // Cyrillic zhe
  CHECK(case_folded("a") != case_folded("b"));
  CHECK(case_folded("a/b") != case_folded("ab"));
  CHECK(case_folded("\xff\xfe") != case_folded("\xfe\xff"));  // no UTF-8
  CHECK(case_folded("\xffX") == case_folded("\xffx"));
}

TEST_CASE("spelling: where the PFS folds case no result takes the place of another",
          "[stage][out][spelling]") {
  const bool is_new = GENERATE(true, false);  // results-dir
  Scene scene;
  if (!is_new) {
    std::filesystem::create_directory(scene.results);
  }
  scene.buffer.put("Data", S_IFREG, "first");
  scene.buffer.put("data", S_IFREG, "second");
  scene.buffer.put("other", S_IFREG, "third");
  FaultPfs pfs(no_fault);
  pfs.folds_case = true;
  const Receipt receipt = scene.out(pfs);
  CHECK(receipt.verdict == Verdict::partial);
  CHECK(fate(receipt, "Data") == Action::staged_out);
  CHECK(fate(receipt, "data") == Action::conflict);
  CHECK(fate(receipt, "other") == Action::staged_out);
  CHECK(spelled(scene.results + "/Data") == "first");
  // The next time the order of the exports does not matter.
  const Receipt again = scene.out(pfs);
  CHECK(again.verdict == Verdict::partial);
  CHECK(spelled(scene.results + "/Data") == "first");
  CHECK_FALSE(std::filesystem::exists(scene.results + "/data"));
}

TEST_CASE("spelling: another spelling of what is there is no reason to replace it, the same one is",
          "[stage][out][spelling]") {
  Scene scene;
  std::filesystem::create_directory(scene.results);
  std::ofstream(scene.results + "/OUT") << "of another run";
  std::ofstream(scene.results + "/same") << "of another run";
  scene.buffer.put("out", S_IFREG, "result");
  scene.buffer.put("same", S_IFREG, "result");
  FaultPfs pfs(no_fault);
  pfs.folds_case = true;
  const Receipt receipt = scene.out(pfs);
  CHECK(fate(receipt, "out") == Action::conflict);
  CHECK(spelled(scene.results + "/OUT") == "of another run");
  CHECK(spelled(scene.results + "/same") == "result");
}

TEST_CASE("spelling: where the PFS tells case apart both are brought out",
          "[stage][out][spelling]") {
  Scene scene;
  for (const auto* name : {"Data", "data", "DATA"}) {
    scene.buffer.put(name, S_IFREG, name);
  }
  CHECK(scene.out().verdict == Verdict::complete);
  for (const std::string name : {"Data", "data", "DATA"}) {
    CHECK(spelled(scene.results + "/" + name) == name);
  }
}
