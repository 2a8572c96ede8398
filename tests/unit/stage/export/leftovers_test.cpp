// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/leftovers.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

TEST_CASE("leftovers: also in a directory that the stage-out has to open to its owner",
          "[stage][out]") {
  Scene scene;
  scene.options.partial_tag = ".0123456789ab";
  scene.options.has_a_past = true;
  scene.buffer.put("d", S_IFDIR, {}, 0555);
  for (int i = 0; i < 5; ++i) {
    scene.buffer.put("d/new/" + std::to_string(i), S_IFREG, "content");
  }
  scene.buffer.put("d/new", S_IFDIR, {}, 0755);
  const std::string d = scene.results + "/d", gone = d + "/gone.0123456789ab.efs-partial";
  write_file(gone, "left");
  write_file(d + "/new.0123456789ab.efs-partial/1", "left");
  stdfs::permissions(d, stdfs::perms{0555});
  // As for a user other than root.
  FaultPfs pfs([&](auto, const std::string& call, const auto&) {
    return (call == "unlink" || call == "rmdir") && (stat_of(d).st_mode & 0200U) == 0 ? EACCES : 0;
  });
  const Receipt receipt = scene.out(pfs);
  INFO(describe(receipt));
  CHECK(receipt.verdict == Verdict::complete);
  CHECK(partials_below(scene.results) == 0);
  CHECK(content_of(d + "/new/1") == "content");
  CHECK((stat_of(d).st_mode & 07777U) == 0555);
}

TEST_CASE(
    "leftovers: partials of this store, of which nothing is there any more, go first; all else "
    "stays",
    "[stage][out]") {
  Scene scene;
  scene.options.partial_tag = ".0123456789ab";
  scene.options.has_a_past = GENERATE(true, false);
  scene.buffer.put("d", S_IFDIR, {}, 0755);
  scene.buffer.put("d/f", S_IFREG, "f");
  scene.buffer.put("d/result.0123456789ab.efs-partial", S_IFREG, "called so by the job");
  const std::string d = scene.results + "/d";
  write_file(scene.results + "/top.0123456789ab.efs-partial", "left");
  write_file(d + "/gone.0123456789ab.efs-partial", "left");
  write_file(d + "/f.0123456789ab.efs-partial", "left, of what is there still");
  write_file(d + "/gone.ba9876543210.efs-partial", "another store's");
  const std::string claim = d + "/.efs-claim-1.efs-partial",
                    anothers_claim = d + "/.efs-claim-2.efs-partial";
  stdfs::create_symlink("gone.0123456789ab.efs-partial", claim);
  stdfs::create_symlink("gone.ba9876543210.efs-partial", anothers_claim);
  write_file(d + "/gone.efs-partial", "a user's");
  write_file(d + "/gone.0123456789ab.efs-partial.txt", "a user's");
  scene.buffer.put("d/dir", S_IFDIR, {}, 0755);
  scene.buffer.put("d/dir/f", S_IFREG, "f");
  write_file(d + "/dir.0123456789ab.efs-partial/f", "left in a directory that was hidden");
  write_file(d + "/dir.0123456789ab.efs-partial/g.0123456789ab.efs-partial", "left in it");
  write_file(d + "/his.0123456789ab.efs-partial/notes", "a user's, in a directory that was hidden");
  write_file(d + "/deep.0123456789ab.efs-partial/below/f", "not made by a stage-out");
  stdfs::create_directory_symlink(scene.root, scene.results + "/link");
  write_file(scene.root + "/gone.0123456789ab.efs-partial", "not below results-dir");
  scene.buffer.put("link", S_IFDIR, {}, 0755);

  const Receipt receipt = scene.out();
  CHECK(receipt.totals.staged_out >= 2);
  CHECK(stdfs::exists(scene.results + "/top.0123456789ab.efs-partial") != scene.options.has_a_past);
  CHECK(stdfs::exists(d + "/gone.0123456789ab.efs-partial") != scene.options.has_a_past);
  CHECK(stdfs::is_symlink(claim) != scene.options.has_a_past);
  CHECK(stdfs::is_symlink(anothers_claim));
  CHECK(!stdfs::exists(d + "/f.0123456789ab.efs-partial"));
  CHECK(content_of(d + "/f") == "f");
  CHECK(content_of(d + "/result.0123456789ab.efs-partial") == "called so by the job");
  CHECK(content_of(d + "/gone.ba9876543210.efs-partial") == "another store's");
  CHECK(content_of(d + "/gone.efs-partial") == "a user's");
  CHECK(content_of(d + "/gone.0123456789ab.efs-partial.txt") == "a user's");
  CHECK(stdfs::is_directory(d + "/dir.0123456789ab.efs-partial") != scene.options.has_a_past);
  CHECK(content_of(d + "/deep.0123456789ab.efs-partial/below/f") == "not made by a stage-out");
  CHECK(content_of(d + "/his.0123456789ab.efs-partial/notes") ==
        "a user's, in a directory that was hidden");
  CHECK(receipt.note.contains("d/his.0123456789ab.efs-partial") == scene.options.has_a_past);
  CHECK(content_of(scene.root + "/gone.0123456789ab.efs-partial") == "not below results-dir");
}
