// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A temporary place with a PFS side and a buffer, and the small helpers that the staging tests
// share.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <stdexcept>
#include <string>

#include "base/checksum.hpp"
#include "base/clock.hpp"
#include "config/job_config.hpp"
#include "stage/export/stage_out.hpp"
#include "stage/import/stage_in.hpp"
#include "stage/plan/planner.hpp"
#include "unit/stage/fake_buffer.hpp"

namespace efs::stage::test {

namespace stdfs = std::filesystem;

inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    return {};
  }
  std::string content(static_cast<std::size_t>(file.tellg()), '\0');
  file.seekg(0);
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  return content;
}

inline void write_file(const std::string& path, const std::string& content) {
  stdfs::create_directories(stdfs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::uint64_t hash(const std::string& text) {
  return checksum(std::as_bytes(std::span(text)));
}

inline std::string random_text(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string text(size, '\0');
  for (auto& byte : text) {
    byte = static_cast<char>(random());
  }
  return text;
}

inline struct stat stat_of(const std::string& path) {
  struct stat attributes{};
  if (::lstat(path.c_str(), &attributes) != 0) {
    attributes.st_mode = 0;
  }
  return attributes;
}

inline void set_mtime(const std::string& path, Nanoseconds ns) {
  const timespec times[2] = {to_timespec(ns), to_timespec(ns)};
  ::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

/// All regular files below a directory with content and mtime: equal snapshots, nothing changed.
inline std::map<std::string, std::pair<std::string, Nanoseconds>> snapshot_of(
    const std::string& directory) {
  std::map<std::string, std::pair<std::string, Nanoseconds>> files;
  if (!stdfs::exists(directory)) {
    return files;
  }
  for (const auto& entry : stdfs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file() || entry.is_symlink()) {
      continue;
    }
    files[entry.path().string()] = {content_of(entry.path().string()),
                                    to_ns(stat_of(entry.path().string()).st_mtim)};
  }
  return files;
}

inline std::size_t partials_below(const std::string& directory) {
  std::size_t found = 0;
  if (!stdfs::exists(directory)) {
    return 0;
  }
  for (const auto& entry : stdfs::recursive_directory_iterator(directory)) {
    if (entry.path().string().ends_with(".efs-partial")) {
      ++found;
    }
  }
  return found;
}

inline bool has_problem(const Plan& plan, const std::string& path, const std::string& words) {
  for (const auto& problem : plan.problems) {
    if (problem.path == path && problem.reason.find(words) != std::string::npos) {
      return true;
    }
  }
  return false;
}

class Scene {
 public:
  Scene() : top(make_top()), root(top + "/in"), results(top + "/out"), buffer(top + "/buffer") {
    stdfs::create_directory(root);
    config.source = "job.yaml";
    config.name = "job";
    config.root_dir = root;
    config.results_dir = results;
    config.mount_dir = top + "/mnt";
  }

  ~Scene() {
    std::error_code ignored;
    stdfs::remove_all(top, ignored);
  }

  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  void resource(const std::string& relative,
                config::FileClass file_class = config::FileClass::persistent) {
    config::Resource added;
    added.path = relative.empty() ? root : root + "/" + relative;
    added.file_class = file_class;
    added.is_glob = relative.find_first_of("*?[") != std::string::npos;
    added.line = 7;
    config.resources.push_back(added);
  }

  Plan plan(std::optional<std::uint64_t> capacity = {}) {
    return make_plan(config, posix_pfs(), capacity).value();
  }

  StageReport in(PfsIo& pfs = posix_pfs()) {
    Progress progress;
    return stage_in(plan(), buffer, pfs, options, progress);
  }

  Receipt out(PfsIo& pfs = posix_pfs()) {
    Progress progress;
    return stage_out(config, buffer, pfs, options, progress);
  }

  std::string buffered(const std::string& path) const {
    return content_of(buffer.container(buffer.nodes.at(path).ino));
  }

  std::string top, root, results;
  FakeBuffer buffer;
  config::JobConfig config;
  Options options{.workers = 3, .transfer_size = 64U << 10U};

 private:
  static std::string make_top() {
    std::string name = "/dev/shm/efs-stage-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      name = "/tmp/efs-stage-XXXXXX", static_cast<void>(::mkdtemp(name.data()));
    }
    return name;
  }
};

inline const ReceiptEntry* entry_of(const Receipt& receipt, const std::string& path) {
  for (const auto& entry : receipt.entries) {
    if (entry.path == path) {
      return &entry;
    }
  }
  return nullptr;
}

inline Action action_of(const Receipt& receipt, const std::string& path) {
  const auto* entry = entry_of(receipt, path);
  if (entry == nullptr) {
    throw std::runtime_error("no entry for " + path);
  }
  return entry->action;
}

}  // namespace efs::stage::test
