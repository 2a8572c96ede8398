// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The offline store of an instance that died, with one file of every kind, and its PFS. Nothing is
// mounted, and no daemon runs.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/boot.hpp"
#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "image/image.hpp"
#include "image/manifest.hpp"
#include "stage/export/receipt.hpp"
#include "stage/live/load.hpp"
#include "stage/live/unload.hpp"
#include "support/containers.hpp"
#include "support/temp.hpp"

namespace efs::test {

inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    return {};
  }
  std::string text(static_cast<std::size_t>(file.tellg()), '\0');
  file.seekg(0);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

/// Returns names, types, modes, times and contents of all files below a directory. Equal results
/// mean that nothing has changed.
inline std::map<std::string, std::string> everything_below(const std::string& directory) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    struct stat st{};
    ::lstat(entry.path().c_str(), &st);
    std::string& text = all[entry.path().string().substr(directory.size())];
    text = std::to_string(st.st_mode) + " " + std::to_string(st.st_nlink) + " " +
           std::to_string(st.st_size) + " " + std::to_string(st.st_mtim.tv_sec) + "." +
           std::to_string(st.st_mtim.tv_nsec) + " ";
    if (S_ISLNK(st.st_mode)) {
      text += std::filesystem::read_symlink(entry.path()).string();
    }
    if (S_ISREG(st.st_mode)) {
      text += text_of(entry.path().string());
    }
  }
  return all;
}

class DeadImage {
 public:
  struct Kind {
    bool in_place = false;  // with `deletions: propagate`
    std::string name = "job";
    bool snapshot = false;  // the journal begins with a snapshot
    bool on_disk = false;   // otherwise in memory, which power loss erases
  };

  DeadImage() : DeadImage(Kind{}) {}

  explicit DeadImage(const Kind& kind) : kind_(kind) {
    for (const std::string& directory : {store(), store() + "/meta", store() + "/data", pfs(),
                                         pfs() + "/input", pfs() + "/input/sub", results()}) {
      std::filesystem::create_directories(directory);
    }
    put(pfs() + "/input/changed", "as it came in");
    put(pfs() + "/input/clean", "never touched");
    put(pfs() + "/input/sub/removed", "the job removes it");
    mark_containers();
    work();
    if (kind_.snapshot) {
      make_snapshot();
    }
    write_manifest();
  }

  std::string store() const { return top_.path() + "/store"; }

  std::string journal() const { return store() + "/meta/journal"; }

  std::string pfs() const { return top_.path() + "/pfs"; }

  std::string results() const { return kind_.in_place ? pfs() : top_.path() + "/out"; }

  const store::InstanceId& instance() const { return instance_; }

  /// Returns the path of a file's container.
  std::string container(const std::string& path) const {
    char text[64];
    const auto ino = inodes_.at(path);
    std::snprintf(text, sizeof text, "/data/%02llx/%016llx",
                  static_cast<unsigned long long>(ino % 256), static_cast<unsigned long long>(ino));
    return store() + text;
  }

  std::uint64_t ino(const std::string& path) const { return inodes_.at(path); }

  /// Fills results-dir with earlier files: an older version, and the rest of a killed stage-out.
  void fill_results() const {
    if (kind_.in_place) {
      return;
    }
    std::filesystem::remove_all(results());
    std::filesystem::create_directory(results());
    put(results() + "/replaced", "old");
    put(results() + "/replaced.efs-partial", stale);
  }

  static constexpr const char* stale = "of a killed stage-out";

  static void put(const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  }

  /// Writes a manifest with the boot id of the machine that last used the store.
  void write_manifest(const std::string& boot = boot_id()) const {
    write_manifest_of(instance_, boot);
  }

  void write_manifest_of(const store::InstanceId& instance,
                         const std::string& boot = boot_id()) const {
    const UniqueFd meta = open_meta();
    image::Manifest manifest;
    manifest.name = kind_.name;
    manifest.uid = ::geteuid();
    manifest.root_dir = pfs();
    manifest.mount_dir = top_.path() + "/mnt";
    manifest.results_dir = results();
    manifest.job_file = "job.yaml";
    manifest.store = store();
    manifest.kind = "fsdax";
    manifest.instance = instance;
    manifest.boot_id = boot;
    const std::string results_line = kind_.in_place ? "  in-place: true\n  deletions: propagate\n"
                                                    : "  results-dir: " + results() + "\n";
    const std::string job = "global-settings:\n  root-dir: " + pfs() +
                            "\n  mount-dir: " + manifest.mount_dir + "\n" + results_line +
                            "backends:\n  - id: ram\n    type: DRAM\n    capacity: 128 "
                            "MiB\nresources: [ [ path: input, flags: persistent ] ]\n";
    if (!image::write_job_file(meta.get(), job) || !image::write_manifest(meta.get(), manifest)) {
      throw std::runtime_error("no manifest");
    }
  }

  UniqueFd open_meta() const {
    return UniqueFd(::open((store() + "/meta").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

 private:
  // Writes a snapshot of all state, followed by one record.
  void make_snapshot() {
    const UniqueFd meta = open_meta();
    const auto backend = open_containers(store());
    const auto filesystem = fs::Filesystem::open(*backend, {.metadata_directory = meta.get(),
                                                            .smallest_compaction = 1,
                                                            .instance = instance_})
                                .value();
    for (const char* name : {"in-the-snapshot", "behind-it"}) {
      make(*filesystem, fs::root_ino, name, S_IFREG | 0644);
    }
  }

  void mark_containers() {
    const UniqueFd data(::open((store() + "/data").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    must(image::mark_containers(data.get(), instance_));
  }

  std::uint64_t make(fs::Filesystem& filesystem, std::uint64_t parent, const std::string& path,
                     mode_t mode, const std::string& content = {}) {
    const auto made =
        filesystem.make_node({}, parent, std::filesystem::path(path).filename(), mode, 0).value();
    if (!content.empty()) {
      (void)filesystem.write({}, made.ino, std::as_bytes(std::span(content)), 0).value();
    }
    return inodes_[path] = made.ino;
  }

  void must(const Status& done) {
    if (!done) {
      throw std::runtime_error(describe(done.error()));
    }
  }

  // Performs the job's work until all processes die: nothing is forgotten, and nothing is closed.
  void work() {
    const UniqueFd meta = open_meta();
    const auto backend = open_containers(store());
    const auto filesystem =
        fs::Filesystem::open(*backend, {.metadata_directory = meta.get(), .instance = instance_})
            .value();
    fs::Staging staging(*filesystem);
    config::JobConfig config;
    config.name = kind_.name;
    config.root_dir = pfs();
    config.results_dir = results();
    stage::Progress progress;
    const stage::Options options{.workers = 1};
    const stage::LiveArguments with{.config = config,
                                    .staging = staging,
                                    .pfs = stage::posix_pfs(),
                                    .options = options,
                                    .progress = progress};
    if (!stage::load(with, {.names = {"input"}}).ok()) {
      throw std::runtime_error("nothing can be loaded");
    }
    for (const std::string path :
         {"input", "input/changed", "input/clean", "input/sub", "input/sub/removed"}) {
      inodes_[path] = staging.find(path)->ino;
    }

    const auto saved =
        make(*filesystem, fs::root_ino, "saved", S_IFREG | 0640, "was brought out by the job");
    make(*filesystem, fs::root_ino, "saved-and-there", S_IFREG | 0640, "was brought out, too");
    (void)saved;
    if (stage::unload(with, {.names = {"saved", "saved-and-there"}}).verdict !=
        stage::Verdict::complete) {
      throw std::runtime_error("nothing can be unloaded");
    }

    const auto changed = inodes_["input/changed"];
    const std::string as_left = "as the job left it";
    (void)filesystem->open({}, changed, O_WRONLY).value();
    (void)filesystem->write({}, changed, std::as_bytes(std::span(as_left)), 0).value();
    must(filesystem->unlink({}, inodes_["input/sub"], "removed"));
    const auto directory = make(*filesystem, fs::root_ino, "d", S_IFDIR | 0750);
    must(filesystem->setxattr({}, directory, "user.of", "a directory", 0));
    make(*filesystem, directory, "d/empty-directory", S_IFDIR | 0700);
    const auto big =
        make(*filesystem, directory, "d/big", S_IFREG | 0600, std::string(150'000, 'b'));
    must(filesystem->setxattr({}, big, "user.of", "a file", 0));
    const auto sparse = make(*filesystem, directory, "d/sparse", S_IFREG | 0644, "start");
    (void)filesystem->setattr({}, sparse, {.size = 60'000}).value();
    make(*filesystem, directory, "d/empty", S_IFREG | 0644);
    (void)filesystem->make_symlink({}, directory, "link", "big").value();
    const auto linked = make(*filesystem, fs::root_ino, "linked", S_IFREG | 0644, "with two names");
    (void)filesystem->link({}, linked, directory, "also-linked").value();
    make(*filesystem, fs::root_ino, "replaced", S_IFREG | 0644, "new");
    make(*filesystem, fs::root_ino, "open-without-a-name", S_IFREG | 0644,
         "unlinked while it was open");
    must(filesystem->unlink({}, fs::root_ino, "open-without-a-name"));
  }

  const Kind kind_;
  const store::InstanceId instance_ = store::draw_instance_id().value();
  TempDirectory top_{kind_.on_disk ? "/tmp" : "/dev/shm"};
  std::map<std::string, std::uint64_t> inodes_;
};

/// Returns the receipt's entry for a path.
inline const stage::ReceiptEntry& told_of(const stage::Receipt& receipt, const std::string& path) {
  const auto found = std::ranges::find(receipt.entries, path, &stage::ReceiptEntry::path);
  REQUIRE(found != receipt.entries.end());
  return *found;
}

}  // namespace efs::test
