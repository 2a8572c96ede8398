// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A medium that runs short of descriptors or room.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "store/medium.hpp"

namespace efs::test {

struct Scarcity {
  bool descriptors = false;
  std::uint64_t room = UINT64_MAX;                              // bytes of all files together
  std::map<std::string, std::shared_ptr<std::uint64_t>> sizes;  // of what has a name

  std::uint64_t used() const {
    std::uint64_t sum = 0;
    for (const auto& [name, size] : sizes) {
      sum += *size;
    }
    return sum;
  }
};

class ScarceFile final : public store::MediumFile {
 public:
  ScarceFile(std::unique_ptr<store::MediumFile> file, Scarcity& shortage,
             std::shared_ptr<std::uint64_t> size)
      : file_(std::move(file)), shortage_(shortage), size_(std::move(size)) {}

  Result<std::uint64_t> size() override { return file_->size(); }

  Status allocate(std::uint64_t size) override {
    if (size > *size_ && shortage_.used() + size - *size_ > shortage_.room) {
      return fail(ENOSPC);
    }
    *size_ = std::max(*size_, size);
    return file_->allocate(size);
  }

  Status cut(std::uint64_t size) override { return file_->cut(size); }

  Result<std::byte*> map(std::uint64_t offset, std::size_t length) override {
    return file_->map(offset, length);
  }

  void store(std::byte* to, std::span<const std::byte> from) override { file_->store(to, from); }

  void drain() override { file_->drain(); }

  Status sync() override { return file_->sync(); }

 private:
  const std::unique_ptr<store::MediumFile> file_;
  Scarcity& shortage_;
  const std::shared_ptr<std::uint64_t> size_;
};

class ScarceMedium final : public store::Medium {
 public:
  ScarceMedium(std::shared_ptr<store::Medium> medium, Scarcity& shortage)
      : medium_(std::move(medium)), shortage_(shortage) {}

  Result<std::unique_ptr<store::MediumFile>> create(const std::string& name) override {
    if (shortage_.descriptors) {
      return fail(EMFILE);
    }
    return scarce(medium_->create(name), name);
  }

  Result<std::unique_ptr<store::MediumFile>> open(const std::string& name,
                                                  bool read_only) override {
    return scarce(medium_->open(name, read_only), name);
  }

  Status rename(const std::string& from, const std::string& to) override {
    shortage_.sizes[to] = std::move(shortage_.sizes.extract(from).mapped());
    return medium_->rename(from, to);
  }

  Status remove(const std::string& name) override {
    shortage_.sizes.erase(name);
    return medium_->remove(name);
  }

  Status sync_names() override { return medium_->sync_names(); }

 private:
  Result<std::unique_ptr<store::MediumFile>> scarce(Result<std::unique_ptr<store::MediumFile>> file,
                                                    const std::string& name) {
    if (!file) {
      return file;
    }
    auto& size = shortage_.sizes[name];
    if (!size) {
      size = std::make_shared<std::uint64_t>(0);
    }
    return std::make_unique<ScarceFile>(std::move(*file), shortage_, size);
  }

  const std::shared_ptr<store::Medium> medium_;
  Scarcity& shortage_;
};

}  // namespace efs::test
