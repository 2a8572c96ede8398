// SPDX-License-Identifier: BSD-3-Clause
// The store of a process that was killed, with containers that are no files: another process
// salvages it, with the journal and without.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "fs/filesystem.hpp"
#include "image/image.hpp"
#include "image/orphans.hpp"
#include "image/salvage.hpp"
#include "stage/buffer.hpp"
#include "stage/import/stage_in.hpp"
#include "support/file_text.hpp"
#include "support/store_kinds.hpp"
#include "support/temp.hpp"

namespace efs::slab_salvage_test {

namespace stdfs = std::filesystem;

namespace {

/// A job whose process was killed while it worked.
struct KilledJob {
  test::TempDirectory top{"/dev/shm"};
  std::string store = top.path() + "/store", out = top.path() + "/out";
  store::InstanceId instance = store::draw_instance_id().value();
  config::JobConfig config;
  std::string result = std::string(300'000, 'r') + "end";

  KilledJob() {
    for (const auto& directory : {store + "/meta", out, top.path() + "/in"}) {
      stdfs::create_directories(directory);
    }
    config.name = "job";
    config.root_dir = top.path() + "/in";
    config.results_dir = out;
    config.mount_dir = top.path() + "/mnt";
    for (const char* name : {"changed", "clean"}) {
      std::ofstream(config.root_dir + "/" + name) << name << " as it came in";
      config::Resource resource;
      resource.path = config.root_dir + "/" + name;
      resource.file_class = config::FileClass::persistent;
      config.resources.push_back(resource);
    }
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      work();
      ::_exit(1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  }

  UniqueFd directory(const std::string& path) const {
    return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

  /// Ends with the death of the process: nothing is closed.
  void work() const {
    const UniqueFd metadata = directory(store + "/meta");
    const auto backend = test::in_slab.open(store);
    const auto files =
        fs::Filesystem::open(*backend, {.metadata_directory = metadata.get(), .instance = instance})
            .value();
    fs::Staging staging(*files);
    stage::StagingBuffer buffer(staging);
    stage::Progress progress;
    const auto plan = stage::make_plan(config, stage::posix_pfs());
    if (!plan || !stage::stage_in(*plan, buffer, stage::posix_pfs(), {}, progress).ok()) {
      return;
    }
    const auto write = [&](std::uint64_t ino, const std::string& text) {
      return files->open({}, ino, O_RDWR) &&
             files->write({}, ino, std::as_bytes(std::span(text)), 0) == text.size();
    };
    const auto made = files->make_node({}, fs::root_ino, "result", S_IFREG | 0640, 0);
    if (made && write(made->ino, result) && write(staging.find("changed")->ino, "CHANGED")) {
      ::kill(::getpid(), SIGKILL);
    }
  }

  /// The store as an offline store.
  image::Image image() const {
    image::Image found;
    found.directories = {.path = store,
                         .root = directory(store),
                         .metadata = directory(store + "/meta"),
                         .data = directory(store),
                         .owner = ::geteuid()};
    found.manifest.name = config.name;
    found.manifest.instance = instance;
    found.config = config;
    found.backend = test::in_slab.open(store);
    return found;
  }
};

}  // namespace

TEST_CASE("another process salvages containers that are no files", "[salvage][stores]") {
  const KilledJob job;
  auto image = job.image();
  image.filesystem =
      fs::Filesystem::open(*image.backend, {.metadata_directory = image.directories.metadata.get(),
                                            .read_only = true,
                                            .instance = job.instance})
          .value();
  stage::Progress progress;
  const auto receipt = image::salvage(image, {}, progress);
  INFO(stage::describe(receipt));
  CHECK(receipt.verdict == stage::Verdict::complete);
  CHECK((test::file_text(job.out + "/result") == job.result));
  CHECK(test::file_text(job.out + "/changed") == "CHANGED as it came in");
  CHECK_FALSE(stdfs::exists(job.out + "/clean"));
}

TEST_CASE("without a journal the containers that are no files are exported by number",
          "[salvage][stores]") {
  const KilledJob job;
  stdfs::remove_all(job.store + "/meta");
  stdfs::create_directory(job.store + "/meta");
  const auto image = job.image();
  const auto lost = image::find_orphans(image);
  REQUIRE(lost);
  CHECK(lost->items.size() == 2 + 3);  // with their directories
  stage::Progress progress;
  const auto receipt = image::salvage_orphans(image, *lost, job.out, progress);
  CHECK(receipt.verdict == stage::Verdict::complete);
  std::set<std::string> texts;
  for (const auto& entry : stdfs::recursive_directory_iterator(job.out)) {
    if (entry.is_regular_file()) {
      texts.insert(test::file_text(entry.path()));
    }
  }
  CHECK(
      (texts == std::set<std::string>{job.result, "CHANGED as it came in", "clean as it came in"}));
}

}  // namespace efs::slab_salvage_test
