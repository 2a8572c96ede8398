// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/transfer_service.hpp"

#include <catch2/catch_test_macros.hpp>

#include "support/file_text.hpp"
#include "unit/daemon/job_scene.hpp"

namespace efs::daemon {
namespace {

using scene::JobScene;
using scene::OneStore;

struct TransferScene : JobScene {
  TransferScene() {
    put_input("a", "input");
    config.resources = {{.path = config.root_dir}};
  }

  /// Opens the store and imports.
  void start() {
    REQUIRE(one.open());
    REQUIRE(transfers.import_inputs([&] { ++planned; }));
  }

  int planned = 0;
  stage::Progress progress;
  SlotClient turns;
  std::optional<SlotClient::Held> turn;
  OneStore one{*this};
  TransferService transfers{{.config = config,
                             .directory = path("instance"),
                             .store = one.store,
                             .turns = turns,
                             .progress = progress}};
};

TEST_CASE("the import brings the inputs into the buffer, and status counts them",
          "[daemon][transfer]") {
  TransferScene it;
  it.transfers.inherit(false);
  it.start();
  CHECK(it.planned == 1);
  CHECK(it.one.has("a"));
  control::replies::Status status;
  it.transfers.add_status(status);
  REQUIRE(status.staged_in);
  CHECK((status.staged_in->files == 1 && status.staged_in->bytes == 5));
  CHECK(it.transfers.slowest_inputs().size() == 1);
  it.one.store.close([] {});
}

TEST_CASE("an import that cannot start leaves no trace in status", "[daemon][transfer]") {
  TransferScene it;
  it.config.resources = {{.path = it.config.root_dir + "/none"}};
  REQUIRE(it.one.open());
  const Status refused = it.transfers.import_inputs([&] { ++it.planned; });
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what.contains("none"));
  CHECK(it.planned == 0);
  control::replies::Status status;
  it.transfers.add_status(status);
  CHECK(status == control::replies::Status{});
  it.one.store.close([] {});
}

TEST_CASE("load and unload return the outcome of their task", "[daemon][transfer]") {
  TransferScene it;
  it.start();
  it.put_input("b", "later");
  stage::Progress progress;
  const auto loaded = it.transfers.load({.names = {"b"}}, progress);
  CHECK((loaded.ok && loaded.loaded.value().files == 1 && loaded.loaded->bytes == 5));
  CHECK(it.one.has("b"));
  const auto missing = it.transfers.load({.names = {"none"}}, progress);
  CHECK((!missing.ok && missing.failure.code == ENOENT));
  it.one.write("result", "42");
  const auto unloaded = it.transfers.unload({.names = {"result"}}, progress);
  CHECK((unloaded.ok && unloaded.unloaded.value().receipt.is_object()));
  CHECK(efs::test::file_text(it.config.results_dir + "/result") == "42");
  it.one.store.close([] {});
}

TEST_CASE("the receipt of the export lists what unloads exported before", "[daemon][transfer]") {
  TransferScene it;
  it.start();
  it.one.write("early", "1");
  stage::Progress progress;
  CHECK(it.transfers.unload({.names = {"early"}}, progress).ok);
  it.one.write("late", "2");
  stage::Receipt receipt = it.transfers.export_results({}, it.turn);
  CHECK(stage::exit_code(receipt) == 0);
  CHECK(receipt.staged_in->files == 1);
  CHECK(efs::test::file_text(it.config.results_dir + "/late") == "2");
  it.transfers.add_earlier(receipt, nullptr);
  const auto early = std::ranges::find(receipt.entries, "early", &stage::ReceiptEntry::path);
  REQUIRE(early != receipt.entries.end());
  CHECK(early->reason.contains(stage::unloaded_early));
  it.one.store.close([] {});
}

TEST_CASE("the receipt lists a drop that was cut off by the death of the worker",
          "[daemon][transfer][keep]") {
  TransferScene it;
  it.transfers.inherit(false);
  it.start();
  it.one.write("old", "1");
  it.one.write("removed", "2");
  stage::Progress progress;
  CHECK(it.transfers.drain({"old", "removed"}, {}, progress).totals.staged_out == 2);
  fs::Staging staging(it.one.store.files());
  const auto old = staging.find("old").value();
  REQUIRE(staging.drop_unused("old", old.ino, *old.pfs.saved));
  REQUIRE(it.one.store.files().unlink({}, fs::root_ino, "removed"));
  TransferService successor{{.config = it.config,
                             .directory = it.path("instance"),
                             .store = it.one.store,
                             .turns = it.turns,
                             .progress = it.progress}};
  successor.inherit(true);
  stage::Receipt receipt = successor.export_results({}, it.turn);
  successor.add_earlier(receipt, nullptr);
  const auto reason = [&](const char* name) {
    return std::ranges::find(receipt.entries, name, &stage::ReceiptEntry::path)->reason;
  };
  CHECK(reason("old").contains(stage::removed_from_buffer));
  CHECK_FALSE(reason("old").contains("the job removed"));
  CHECK(reason("removed").contains("the job removed or renamed it"));
  it.one.store.close([] {});
}

TEST_CASE("the receipt of a second stop lists what the first one exported", "[daemon][transfer]") {
  TransferScene it;
  it.start();
  it.one.write("result", "1");
  const stage::Receipt first = it.transfers.export_results({}, it.turn);
  it.transfers.book(first);
  stage::Receipt second = it.transfers.export_results({}, it.turn);
  it.transfers.add_earlier(second, &first);
  const auto result = std::ranges::find(second.entries, "result", &stage::ReceiptEntry::path);
  REQUIRE(result != second.entries.end());
  CHECK(result->action == stage::Action::kept);
  it.one.store.close([] {});
}

TEST_CASE("after a failure the next transfer looks for partial files", "[daemon][transfer]") {
  TransferScene it;
  it.start();
  CHECK_FALSE(it.transfers.options().has_a_past);
  it.transfers.note_failure();
  CHECK(it.transfers.options().has_a_past);
  it.one.store.close([] {});
}

}  // namespace
}  // namespace efs::daemon
