// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/drainer.hpp"

#include <catch2/catch_test_macros.hpp>

#include <future>

#include "base/log.hpp"
#include "daemon/transfer_service.hpp"
#include "support/file_text.hpp"
#include "unit/daemon/job_scene.hpp"

namespace efs::daemon {
namespace {

using namespace std::chrono_literals;

/// Exports by `inner`, or holds until it is cancelled or released.
struct HeldTransfers final : DrainTransfers {
  explicit HeldTransfers(DrainTransfers& inner_) : inner(inner_) {}

  stage::Receipt drain(std::vector<std::string> paths, std::vector<std::string> sets,
                       stage::Progress& progress) override {
    ++calls;
    while (holds && !progress.cancel) {
      std::this_thread::sleep_for(1ms);
    }
    return inner.drain(std::move(paths), std::move(sets), progress);
  }

  stage::Dropped drop(const std::vector<stage::OldVersion>& versions,
                      stage::Progress& progress) override {
    return inner.drop(versions, progress);
  }

  DrainTransfers& inner;
  std::atomic<bool> holds{false};
  std::atomic<int> calls{0};
};

struct DrainerScene : scene::JobScene {
  DrainerScene() {
    (void)log::setup("", "off");
    config.outputs = {{.pattern = "**", .drain = std::chrono::seconds(0)}};
    REQUIRE(one.open());
  }

  ~DrainerScene() {
    drainer.end();
    (void)tasks->close(false);
    one.store.close([] {});
  }

  control::replies::Drain status() {
    control::replies::Status all;
    drainer.add_status(all);
    return all.drain.value();
  }

  /// True if it becomes so in time.
  bool await(const std::function<bool()>& is_so) {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (!is_so() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(5ms);
    }
    return is_so();
  }

  bool is_home(const std::string& name, const std::string& content) {
    const std::string file = config.results_dir + "/" + name;
    return await(
        [&] { return std::filesystem::exists(file) && efs::test::file_text(file) == content; });
  }

  stage::Progress progress;
  SlotClient turns;
  scene::OneStore one{*this};
  TransferService transfers{{.config = config,
                             .directory = path("instance"),
                             .store = one.store,
                             .turns = turns,
                             .progress = progress}};
  HeldTransfers held{transfers};
  std::unique_ptr<Tasks> tasks = std::move(*Tasks::open("", true));
  KeptDrained figures;
  Drainer drainer{
      {.config = config, .tasks = *tasks, .transfers = held, .turns = turns, .figures = &figures}};
};

TEST_CASE("a result goes home while the job runs, and the export of the stop leaves it",
          "[drain]") {
  DrainerScene it;
  REQUIRE(it.drainer.begin(it.one.store.files()));
  it.one.write("a", "1");
  CHECK(it.is_home("a", "1"));
  CHECK(it.await([&] { return it.status().due == 0; }));
  CHECK((it.status().drained == 1 && it.status().drained_bytes == 1));
  CHECK_FALSE(it.status().last_error);
  CHECK(it.figures.files == 1);
  CHECK(it.tasks->list().empty());
  it.drainer.end();
  std::optional<SlotClient::Held> turn;
  auto receipt = it.transfers.export_results({}, turn);
  it.transfers.add_earlier(receipt, nullptr);
  CHECK((receipt.totals.staged_out == 0 && receipt.totals.unchanged == 1));
  CHECK(receipt.entries.front().reason.contains(stage::unloaded_early));
}

TEST_CASE("what was there before the begin goes", "[drain]") {
  DrainerScene it;
  it.one.write("a", "1");
  REQUIRE(it.drainer.begin(it.one.store.files()));
  CHECK(it.is_home("a", "1"));
}

TEST_CASE("the end does not wait for an export, which the close of the tasks cancels", "[drain]") {
  DrainerScene it;
  it.held.holds = true;
  REQUIRE(it.drainer.begin(it.one.store.files()));
  it.one.write("a", "1");
  REQUIRE(it.await([&] { return it.held.calls > 0; }));
  it.drainer.end();
  CHECK(it.tasks->close(true));
  CHECK_FALSE(std::filesystem::exists(it.config.results_dir + "/a"));
}

TEST_CASE("an export that a refused stop has cancelled is repeated", "[drain]") {
  DrainerScene it;
  it.held.holds = true;
  REQUIRE(it.drainer.begin(it.one.store.files()));
  it.one.write("a", "1");
  REQUIRE(it.await([&] { return it.held.calls > 0; }));
  CHECK(it.tasks->close(true));
  it.held.holds = false;
  CHECK((it.status().due == 1 && it.status().failures == 0));
  it.tasks->reopen();
  CHECK(it.is_home("a", "1"));
}

TEST_CASE("a failure is told until a result goes home", "[drain]") {
  DrainerScene it;
  std::filesystem::remove(it.config.results_dir);
  std::ofstream(it.config.results_dir) << "in its place";
  REQUIRE(it.drainer.begin(it.one.store.files()));
  it.one.write("a", "1");
  CHECK(it.await([&] { return it.status().last_error.has_value(); }));
  CHECK((it.status().due == 1 && it.status().failures == 1));
  std::filesystem::remove(it.config.results_dir);
  CHECK(it.is_home("a", "1"));
  CHECK(it.await([&] { return !it.status().last_error; }));
}

TEST_CASE("an unload and a drain never run together", "[drain]") {
  DrainerScene it;
  it.held.holds = true;
  REQUIRE(it.drainer.begin(it.one.store.files()));
  it.one.write("a", "1");
  REQUIRE(it.await([&] { return it.held.calls > 0; }));
  const auto id = it.tasks->start(TaskKind::unload, "a", [&](stage::Progress& progress) {
    return it.transfers.unload({.names = {"a"}}, progress);
  });
  REQUIRE(id);
  CHECK(it.tasks->wait(*id, 50ms) == false);
  CHECK(it.tasks->look(*id)->task_state == "pending");
  it.held.holds = false;
  CHECK(it.tasks->wait(*id, 30s) == true);
  CHECK(it.tasks->look(*id)->task_state == "done");
}

TEST_CASE("old versions leave the buffer, and the receipt lists them", "[drain][keep]") {
  DrainerScene it;
  it.config.outputs = {{.pattern = "c*", .drain = std::chrono::seconds(0), .keep = 1}};
  REQUIRE(it.drainer.begin(it.one.store.files()));
  for (const auto* name : {"c1", "c2", "c3"}) {
    it.one.write(name, name);
    CHECK(it.is_home(name, name));
  }
  CHECK(it.await([&] { return it.status().dropped == 2; }));
  CHECK(it.status().dropped_bytes == 4);
  it.drainer.end();
  fs::Staging staging(it.one.store.files());
  CHECK((!staging.find("c1") && !staging.find("c2") && staging.find("c3")));
  std::optional<SlotClient::Held> turn;
  auto receipt = it.transfers.export_results({}, turn);
  it.transfers.add_earlier(receipt, nullptr);
  REQUIRE(receipt.entries.size() == 3);
  for (const auto* name : {"c1", "c2"}) {
    const auto entry = std::ranges::find(receipt.entries, name, &stage::ReceiptEntry::path);
    CHECK(entry->reason.contains(stage::dropped_by_keep));
    CHECK(entry->checksum);
  }
  CHECK((receipt.totals.failed == 0 && receipt.totals.removed == 0));
  CHECK(it.is_home("c1", "c1"));
}

}  // namespace
}  // namespace efs::daemon
