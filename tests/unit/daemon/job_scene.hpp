// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A job with a PFS, an instance's directory and a store in temporary directories, and a supervisor
// without privilege. Nothing is mounted.

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "config/job_config.hpp"
#include "daemon/job_store.hpp"
#include "daemon/supervisor.hpp"
#include "daemon/supervisor_client.hpp"
#include "support/open_handles.hpp"
#include "support/temp.hpp"

namespace efs::daemon::scene {

/// Answers its client in a thread.
class SupervisorInThread {
 public:
  explicit SupervisorInThread(const std::string& instance) {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
      throw std::runtime_error("socketpair");
    }
    client_ = std::make_unique<SupervisorClient>(UniqueFd(pair[0]));
    thread_ = std::jthread([instance, channel = UniqueFd(pair[1])] {
      Supervisor supervisor({.uid = ::geteuid(),
                             .gid = ::getegid(),
                             .instance = UniqueFd(::open(instance.c_str(), O_RDONLY | O_DIRECTORY)),
                             .store = {},
                             .fuse_device = {}});
      (void)supervisor.serve(channel.get());
    });
  }

  ~SupervisorInThread() {
    client_.reset();
    thread_.join();
  }

  SupervisorInThread(const SupervisorInThread&) = delete;
  SupervisorInThread& operator=(const SupervisorInThread&) = delete;

  SupervisorClient& client() { return *client_; }

 private:
  std::unique_ptr<SupervisorClient> client_;
  std::jthread thread_;
};

struct JobScene {
  JobScene() {
    for (const char* name : {"in", "out", "instance", "nvm", "other-nvm"}) {
      std::filesystem::create_directory(path(name));
    }
    config.name = "scene";
    config.root_dir = path("in");
    config.results_dir = path("out");
    config.mount_dir = path("mnt");
    config.backends = {{.id = "nvml:/", .type = config::BackendType::fsdax, .daxfs = path("nvm")}};
  }

  std::string path(const std::string& name) const { return top.path() + "/" + name; }

  void put_input(const std::string& name, const std::string& content) const {
    std::ofstream(config.root_dir + "/" + name, std::ios::binary) << content;
  }

  efs::test::TempDirectory top;
  config::JobConfig config;
};

/// The store of one worker of a job.
struct OneStore {
  explicit OneStore(JobScene& job)
      : supervisor(job.path("instance")),
        store(job.config, {.directory = job.path("instance")}, supervisor.client()) {}

  Status open() {
    EFS_TRY(store.open());
    return store.open_files(false);
  }

  /// Writes a new file as a program does, and closes it.
  void write(const std::string& name, const std::string& content) {
    auto& files = store.files();
    const auto file = files.make_node({}, fs::root_ino, name, S_IFREG | 0644, 0)->ino;
    (void)*files.open({}, file, O_WRONLY);
    (void)files.write({}, file, std::as_bytes(std::span(content)), 0);
    efs::test::release(files, file, O_WRONLY);
  }

  bool has(const std::string& name) { return fs::Staging(store.files()).find(name).has_value(); }

  SupervisorInThread supervisor;
  JobStore store;
};

}  // namespace efs::daemon::scene
