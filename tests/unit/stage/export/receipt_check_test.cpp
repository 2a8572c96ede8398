// SPDX-License-Identifier: BSD-3-Clause
// efs receipt --verify: compares the PFS with a receipt.

#include "stage/export/receipt_check.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "stage/export/receipt.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

constexpr std::size_t sparse_size = 3U << 20U;

/// A stage-out of a small file, a sparse one and a directory, and its receipt.
struct Checked {
  Scene scene;
  std::string file = scene.top + "/receipt.json";

  Checked() {
    scene.buffer.put("d", S_IFDIR);
    scene.buffer.put("d/small", S_IFREG, "small");
    scene.buffer.put("sparse", S_IFREG, "sparse");
    if (::truncate(scene.buffer.container(scene.buffer.nodes.at("sparse").ino).c_str(),
                   sparse_size) != 0) {
      throw std::runtime_error("truncate");
    }
    write(scene.out());
  }

  void write(const Receipt& receipt) const { REQUIRE(write_receipt(receipt, file, posix_pfs())); }

  Result<ReceiptCheck> check() const {
    const std::atomic<bool> never = false;
    return check_receipt(file, posix_pfs(), never);
  }
};

}  // namespace

TEST_CASE("a receipt is verified against results-dir, whichever way holes lie there",
          "[stage][receipt]") {
  const Checked checked;
  const auto good = checked.check();
  REQUIRE(good);
  CHECK(good->verified == 2);
  CHECK(good->unchecked == 1);
  CHECK(good->differences.empty());
  const std::string sparse = checked.scene.results + "/sparse";
  std::string dense = content_of(sparse);
  stdfs::remove(sparse);
  write_file(sparse, dense);  // as cp --sparse=never would
  CHECK(checked.check()->verified == 2);
  dense[sparse_size / 2] = 'x';
  write_file(sparse, dense);
  stdfs::remove(checked.scene.results + "/d/small");
  const auto bad = checked.check();
  REQUIRE(bad);
  CHECK(bad->verified == 0);
  REQUIRE(bad->differences.size() == 2);
  CHECK(bad->differences[0].path == "d/small");
  CHECK(bad->differences[1].reason.contains("other content"));
}

TEST_CASE("a receipt says where a result is that has another name", "[stage][receipt]") {
  Checked checked;
  checked.scene.config.existing = config::Existing::keep_both;
  write_file(checked.scene.results + "/d/other", "theirs");
  write_file(checked.scene.results + "/run/x", "theirs");
  checked.scene.config.outputs = {{.pattern = "out", .as = "run"}, {.pattern = "**"}};
  checked.scene.buffer.put("d/other", S_IFREG, "ours");
  checked.scene.buffer.put("out", S_IFDIR);
  checked.scene.buffer.put("out/x", S_IFREG, "ours");
  const Receipt receipt = checked.scene.out();
  REQUIRE(receipt.verdict == Verdict::complete);
  CHECK(entry_of(receipt, "out/x")->placed_as == "run/x.efs-job");
  checked.write(receipt);
  CHECK(checked.check()->differences.empty());
  CHECK(checked.check()->verified == 4);
}

TEST_CASE("receipts of earlier versions, and what is none", "[stage][receipt]") {
  const Checked checked;
  const std::string results =
      R"(", "results_dir": ")" + checked.scene.results + R"(", "entries": [)";
  const auto entry = [](const std::string& sum) {
    return R"({"path": "d/small", "action": "staged-out", "bytes": 5,)"
           R"( "mtime": "", "mtime_ns": 0, "seconds": 0.0, "checksum": ")" +
           sum + R"("}]})";
  };
  const std::string begin = R"({"format": "efs-receipt-1", "job": "job)" + results;
  write_file(checked.file, begin + entry("xxh3:" + to_hex(hash("small"))));
  CHECK(checked.check()->verified == 1);
  write_file(checked.file, begin + entry("blake3:00"));
  CHECK(checked.check()->differences.at(0).reason.contains("does not know"));
  for (const std::string text : {"", "{}", R"({"format": "efs-receipt-1"})", R"([1])"}) {
    write_file(checked.file, text);
    const auto none = checked.check();
    REQUIRE_FALSE(none);
    CHECK(none.error().code == EPROTO);
  }
}
