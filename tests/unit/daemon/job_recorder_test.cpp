// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/job_recorder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "unit/daemon/fake_privileges.hpp"
#include "unit/daemon/job_scene.hpp"
#include "unit/daemon/stop_scene.hpp"

namespace efs::daemon {
namespace {

struct RecorderScene : scene::JobScene, scene::StopScene {
  RecorderScene() {
    put_input("a", "input");
    config.source = "/jobs/scene.yaml";
    config.resources = {{.path = config.root_dir}};
    REQUIRE(one.open());
    REQUIRE(transfers.import_inputs([] {}));
    one.write("result", "42");
  }

  ~RecorderScene() {
    one.store.close([] {});
  }

  SlotClient turns;
  std::optional<SlotClient::Held> turn;
  JobFacts facts{.config = config, .directory = path("instance"), .takeovers = 3};
  scene::OneStore one{*this};
  scene::FakePrivileges privileges;
  MountService mount{config, {}, privileges, stops};
  TransferService transfers{{.config = config,
                             .directory = path("instance"),
                             .store = one.store,
                             .turns = turns,
                             .progress = progress}};
  std::unique_ptr<Tasks> tasks = std::move(*Tasks::open());
  JobRecorder recorder{{.facts = facts,
                        .store = one.store,
                        .mount = mount,
                        .transfers = transfers,
                        .tasks = *tasks,
                        .progress = progress}};
};

TEST_CASE("the receipt is written to results-dir and replaces an earlier one elsewhere",
          "[daemon][receipt]") {
  RecorderScene it;
  const stage::Receipt receipt = it.transfers.export_results({}, it.turn);
  const std::string results = it.config.results_dir;
  it.config.results_dir = it.path("none");
  control::replies::Stopped outcome;
  CHECK_FALSE(it.recorder.write_receipt(receipt, outcome));
  const std::string second = it.path("instance") + "/receipt.json";
  CHECK(outcome.receipt_file == second);
  CHECK(outcome.summary.value().contains("The receipt could not be written"));
  CHECK(std::filesystem::exists(second));
  it.config.results_dir = results;
  CHECK(it.recorder.write_receipt(receipt, outcome));
  CHECK(outcome.receipt_file == results + "/" + stage::receipt_name("scene"));
  CHECK(std::filesystem::exists(outcome.receipt_file.value()));
  CHECK_FALSE(std::filesystem::exists(second));
}

TEST_CASE("a job without results-dir has a summary and no receipt", "[daemon][receipt]") {
  RecorderScene it;
  const stage::Receipt receipt = it.transfers.export_results({}, it.turn);
  it.config.results_dir.clear();
  control::replies::Stopped outcome;
  CHECK(it.recorder.write_receipt(receipt, outcome));
  CHECK(outcome.summary);
  CHECK_FALSE(outcome.receipt_file);
}

TEST_CASE("the report lies beside the receipt, with the record of the job", "[daemon][receipt]") {
  RecorderScene it;
  it.config.report = true;
  stage::Receipt receipt = it.transfers.export_results({}, it.turn);
  it.recorder.add_record(receipt, {});
  REQUIRE(receipt.record);
  CHECK((receipt.record->job_file == "/jobs/scene.yaml" && receipt.record->takeovers == 3));
  CHECK(receipt.record->slowest_inputs.size() == 1);
  control::replies::Stopped outcome;
  CHECK(it.recorder.write_receipt(receipt, outcome));
  it.recorder.write_report(receipt, {}, outcome);
  const std::string report = it.config.results_dir + "/" + stage::report_name("scene");
  CHECK(outcome.report_file == report);
  CHECK(std::filesystem::exists(report));
  // the next stop wants none
  it.config.report = false;
  it.recorder.write_report(receipt, {}, outcome);
  CHECK_FALSE(std::filesystem::exists(report));
}

}  // namespace
}  // namespace efs::daemon
