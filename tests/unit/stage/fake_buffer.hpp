// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A buffer over a plain directory: containers are files in it, the namespace is a map in
// memory.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "backends/container_file.hpp"
#include "stage/export_source.hpp"
#include "stage/import_sink.hpp"
#include "support/failing_new.hpp"

namespace efs::stage::test {

/// Thread-safe as ImportSink and ExportSource require. The directory is borrowed. Assumes enough
/// memory: each call succeeds completely or does nothing.
class FakeBuffer final : public ImportSink, public RestingSource {
 public:
  struct Node {
    std::uint64_t ino = 0;
    mode_t type = S_IFREG;
    fs::StagedAttributes attributes;
    std::string target;
    bool dirty = false;
    std::optional<fs::Origin> origin;
    std::map<std::string, std::string> xattrs{};
    bool handed_down = false;  // the directory's group was inherited
  };

  explicit FakeBuffer(std::string directory) : directory_(std::move(directory)) {
    ::mkdir(directory_.c_str(), 0700);
  }

  std::string container(std::uint64_t ino) const { return directory_ + "/" + std::to_string(ino); }

  Result<std::uint64_t> begin_file() {
    const efs::test::SparedAllocations spared;
    const std::uint64_t ino = next_++;
    const UniqueFd fd(::open(container(ino).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) {
      return fail_errno("container");
    }
    const std::lock_guard lock(mutex_);
    pending_.insert(ino);
    return ino;
  }

  Result<fs::OpenContainer> begin_open_file_at(unsigned) override {
    auto ino = begin_file();
    if (!ino) {
      return std::unexpected(ino.error());
    }
    return open_container(*ino);
  }

  Result<fs::OpenContainer> adopt_file(Container&) override { return fail(EXDEV); }

  Result<fs::OpenContainer> open_container(std::uint64_t ino) override {
    const efs::test::SparedAllocations spared;
    auto fd = open_container(ino, O_RDWR);
    if (!fd) {
      return std::unexpected(fd.error());
    }
    return fs::OpenContainer{
        .ino = ino,
        .container = std::make_shared<ContainerFile>(std::move(*fd), nullptr, false, true)};
  }

  Result<UniqueFd> open_container(std::uint64_t ino, int flags) {
    UniqueFd fd(::open(container(ino).c_str(), flags | O_CLOEXEC));
    if (!fd) {
      return fail_errno("container");
    }
    return fd;
  }

  void abandon(std::uint64_t ino) override {
    ::unlink(container(ino).c_str());
    const std::lock_guard lock(mutex_);
    pending_.erase(ino);
  }

  Status publish_file(std::uint64_t ino, const std::string& path,
                      const fs::StagedAttributes& attributes, const fs::Origin& origin) {
    const std::lock_guard lock(mutex_);
    pending_.erase(ino);
    return add(path, {.ino = ino,
                      .type = S_IFREG,
                      .attributes = attributes,
                      .target = {},
                      .dirty = false,
                      .origin = origin});
  }

  std::size_t publish_files(std::span<const fs::StagedFile> files, Status& failed) override {
    std::size_t done = 0;
    for (; done < files.size(); ++done) {
      const auto& file = files[done];
      if (failed = publish_file(file.ino, file.path, file.attributes, file.origin); !failed) {
        break;
      }
      const std::lock_guard lock(mutex_);
      nodes.at(file.path).xattrs = file.xattrs;
    }
    return done;
  }

  Status set_xattrs(const std::string& path,
                    const std::map<std::string, std::string>& xattrs) override {
    const std::lock_guard lock(mutex_);
    nodes.at(path).xattrs = xattrs;
    return {};
  }

  Status record_directory(const std::string& path, std::uint64_t version) override {
    const std::lock_guard lock(mutex_);
    nodes.at(path).origin = fs::Origin{.size = version};
    return {};
  }

  std::vector<fs::WalkItem> gone() override {
    const efs::test::SparedAllocations spared;
    return gone_items;
  }

  Status link_files(const std::string& existing, std::span<const std::string> names) override {
    const std::lock_guard lock(mutex_);
    const auto first = nodes.find(existing);
    if (first == nodes.end()) {
      return fail(ENOENT);
    }
    for (const auto& name : names) {
      EFS_TRY(add(name, first->second));
    }
    return {};
  }

  Status make_directory(const std::string& path, const fs::StagedAttributes& attributes) override {
    const std::lock_guard lock(mutex_);
    if (auto known = nodes.find(path); known != nodes.end() && known->second.type == S_IFDIR) {
      known->second.attributes = attributes;
      return {};
    }
    return add(path, {.ino = next_++,
                      .type = S_IFDIR,
                      .attributes = attributes,
                      .target = {},
                      .dirty = false,
                      .origin = {}});
  }

  Status make_symlink(const std::string& path, const std::string& target,
                      const fs::StagedAttributes& attributes) override {
    const std::lock_guard lock(mutex_);
    return add(path, {.ino = next_++,
                      .type = S_IFLNK,
                      .attributes = attributes,
                      .target = target,
                      .dirty = false,
                      .origin = {}});
  }

  Result<std::vector<fs::WalkItem>> walk() override {
    const efs::test::SparedAllocations spared;
    const std::lock_guard lock(mutex_);
    std::vector<fs::WalkItem> items;
    for (const auto& [path, node] : nodes) {
      fs::WalkItem item;
      item.path = path;
      item.ino = node.ino;
      if (node.type == S_IFREG && ::stat(container(node.ino).c_str(), &item.attributes) != 0) {
        return fail_errno("walk");
      }
      item.attributes.st_ino = node.ino;
      item.attributes.st_nlink = static_cast<nlink_t>(std::ranges::count_if(
          nodes, [&](const auto& other) { return other.second.ino == node.ino; }));
      item.attributes.st_mode = node.type | node.attributes.mode;
      item.attributes.st_uid = node.attributes.uid;
      item.attributes.st_gid = node.attributes.gid;
      item.attributes.st_atim = to_timespec(node.attributes.atime);
      item.attributes.st_mtim = to_timespec(node.attributes.mtime);
      item.target = node.target;
      item.xattrs = node.xattrs;
      item.group.handed_down = node.handed_down;
      item.pfs.dirty = node.dirty;
      item.pfs.origin = node.origin;
      item.pfs.linked = node.origin && std::ranges::count_if(nodes, [&](const auto& other) {
                                         return other.second.ino == node.ino && other.second.origin;
                                       }) > 1;
      items.push_back(std::move(item));
    }
    return items;
  }

  Result<std::vector<fs::WalkItem>> look(const Plan&) override { return walk(); }

  Status secure(std::span<const std::uint64_t> inos) override {
    const std::lock_guard lock(mutex_);
    secured.insert(inos.begin(), inos.end());
    return {};
  }

  /// Acts as a job: makes a new file, directory or link, dirty and without an origin.
  void put(const std::string& path, mode_t type, const std::string& content = {},
           mode_t mode = 0644) {
    const std::uint64_t ino = next_++;
    if (type == S_IFREG) {
      const UniqueFd fd(
          ::open(container(ino).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
      if (::write(fd.get(), content.data(), content.size()) !=
          static_cast<ssize_t>(content.size())) {
        ::abort();
      }
    }
    nodes[path] = {.ino = ino,
                   .type = type,
                   .attributes = {.mode = mode,
                                  .uid = ::geteuid(),
                                  .gid = ::getegid(),
                                  .atime = 1'500'000'000'123'456'789,
                                  .mtime = 1'600'000'000'987'654'321},
                   .target = type == S_IFLNK ? content : std::string(),
                   .dirty = true,
                   .origin = {}};
  }

  /// Acts as a job: changes an input's content and makes it dirty.
  void overwrite(const std::string& path, const std::string& content) {
    Node& node = nodes.at(path);
    const UniqueFd fd(::open(container(node.ino).c_str(), O_RDWR | O_TRUNC | O_CLOEXEC));
    if (::write(fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
      ::abort();
    }
    node.dirty = true;
    node.attributes.mtime = 1'650'000'000'000'000'001;
  }

  /// link(2), as a job would.
  void link(const std::string& from, const std::string& to) {
    Node node = nodes.at(from);
    node.origin.reset();
    node.dirty = true;
    nodes[to] = std::move(node);
  }

  std::size_t pending() {
    const std::lock_guard lock(mutex_);
    return pending_.size();
  }

  std::set<std::uint64_t> secured;       // arguments of secure()
  std::vector<fs::WalkItem> gone_items;  // result of gone()
  std::map<std::string, Node> nodes;     // tests may read and change it while no transfer runs

 private:
  Status add(const std::string& path, Node node) {
    const auto slash = path.rfind('/');
    if (slash != std::string::npos && !nodes.contains(path.substr(0, slash))) {
      return fail(ENOENT);
    }
    if (!nodes.emplace(path, std::move(node)).second) {
      return fail(EEXIST);
    }
    return {};
  }

  std::string directory_;
  std::atomic<std::uint64_t> next_{1};
  std::mutex mutex_;  // guards nodes and pending_
  std::set<std::uint64_t> pending_;
};

}  // namespace efs::stage::test
