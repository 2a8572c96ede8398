// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A PFS with a few inputs and a real file system without a mount: what the tests of load and unload
// share.

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "config/job_config.hpp"
#include "stage/live/load.hpp"
#include "stage/live/unload.hpp"
#include "support/file_text.hpp"
#include "support/live_buffer.hpp"

namespace efs::stage::test {

namespace stdfs = std::filesystem;

struct LiveScene {
  explicit LiveScene(const efs::test::StoreKind& kind = efs::test::in_files) : buffer(kind) {
    stdfs::create_directories(top.path() + "/in/d");
    stdfs::create_directory(top.path() + "/out");
    config.name = "job";
    config.root_dir = top.path() + "/in";
    config.results_dir = top.path() + "/out";
    config.mount_dir = top.path() + "/mnt";
    put("d/a", std::string(3000, 'a'));
    put("d/b", std::string(70000, 'b'));
    stdfs::create_symlink("a", config.root_dir + "/d/l");
  }

  void put(const std::string& path, const std::string& content) const {
    std::ofstream(config.root_dir + "/" + path, std::ios::binary) << content;
  }

  std::string out(const std::string& path) const {
    const std::string at = config.results_dir + "/" + path;
    return std::filesystem::is_regular_file(at) ? efs::test::file_text(at) : "(not there)";
  }

  LoadReport in(const LoadRequest& request, PfsIo& pfs = posix_pfs()) {
    Progress progress;
    return load({.config = config,
                 .staging = *buffer.staging,
                 .pfs = pfs,
                 .options = options,
                 .progress = progress},
                request);
  }

  Receipt back(const UnloadRequest& request, PfsIo& pfs = posix_pfs()) {
    Progress progress;
    return unload({.config = config,
                   .staging = *buffer.staging,
                   .pfs = pfs,
                   .options = options,
                   .progress = progress},
                  request);
  }

  /// All containers that a name leads to, and no other.
  bool leaks_nothing() const {
    (void)buffer.filesystem->fsync_metadata();  // what waits for it is freed
    std::set<std::uint64_t> named;
    const auto items = buffer.staging->walk().value();
    for (const auto& item : items) {
      if (S_ISREG(item.attributes.st_mode)) {
        named.insert(item.ino);
      }
    }
    return buffer.containers() == named.size();
  }

  std::size_t partials() const {
    std::size_t found = 0;
    for (const auto& entry : stdfs::recursive_directory_iterator(config.results_dir)) {
      if (entry.path().string().ends_with(".efs-partial")) {
        ++found;
      }
    }
    return found;
  }

  efs::test::TempDirectory top{"/dev/shm"};
  efs::test::LiveBuffer buffer;
  config::JobConfig config;
  Options options{.workers = 2, .transfer_size = 64U << 10U};
};

}  // namespace efs::stage::test
