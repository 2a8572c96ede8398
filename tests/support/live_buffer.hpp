// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A real file system on a container store in memory, without a mount, with queries for tests of
// live staging.

#include <fcntl.h>
#include <sys/stat.h>

#include <memory>
#include <string>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/open_handles.hpp"
#include "support/store_kinds.hpp"
#include "support/temp.hpp"

namespace efs::test {

struct LiveBuffer {
  const StoreKind kind;
  TempDirectory directory{"/dev/shm"};
  UniqueFd metadata;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<fs::Filesystem> filesystem;
  std::unique_ptr<fs::Staging> staging;

  explicit LiveBuffer(const StoreKind& kind_ = in_files) : kind(kind_), metadata(directory.open()) {
    open();
  }

  /// Opens the existing store, as after a restart.
  void open() {
    staging.reset();
    filesystem.reset();
    backend.reset();
    backend = kind.open(directory.path());
    filesystem = std::move(*fs::Filesystem::open(*backend, {.metadata_directory = metadata.get()}));
    staging = std::make_unique<fs::Staging>(*filesystem);
  }

  std::size_t containers() const {
    std::size_t count = 0;
    (void)backend->for_each([&](std::uint64_t) { ++count; });
    return count;
  }

  std::uint64_t ino(const std::string& path) const { return staging->find(path)->ino; }

  bool exists(const std::string& path) const { return staging->find(path).has_value(); }

  /// Writes a new file as a program does, and closes it.
  std::uint64_t write(const std::string& name, const std::string& content) {
    const auto there = staging->find(name);
    const std::uint64_t file =
        there ? there->ino : filesystem->make_node({}, fs::root_ino, name, S_IFREG | 0644, 0)->ino;
    (void)*filesystem->open({}, file, O_WRONLY);
    (void)filesystem->setattr({}, file, {.size = 0});
    (void)*filesystem->write({}, file, std::as_bytes(std::span(content)), 0);
    test::release(*filesystem, file, O_WRONLY);
    return file;
  }

  std::string read(const std::string& path) const {
    const auto item = staging->find(path);
    if (!item) {
      return "(not there)";
    }
    std::string content(static_cast<std::size_t>(item->attributes.st_size), '\0');
    const auto got = filesystem->read(item->ino, std::as_writable_bytes(std::span(content)), 0);
    content.resize(got.value_or(0));
    return content;
  }
};

}  // namespace efs::test
