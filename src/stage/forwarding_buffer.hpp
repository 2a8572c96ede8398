// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A Buffer that forwards every call. Classes that change a few calls derive from it.

#include "stage/buffer.hpp"

namespace efs::stage {

/// Thread-safe if `inner` is. `inner` is borrowed and must outlive the object.
class ForwardingBuffer : public Buffer {
 public:
  explicit ForwardingBuffer(Buffer& inner) : inner_(inner) {}

  Result<fs::OpenContainer> begin_open_file() override { return inner_.begin_open_file(); }

  Result<fs::OpenContainer> begin_open_file_at(unsigned place) override {
    return inner_.begin_open_file_at(place);
  }

  Result<fs::OpenContainer> adopt_file(Container& other) override {
    return inner_.adopt_file(other);
  }

  Result<fs::OpenContainer> open_container(std::uint64_t ino) override {
    return inner_.open_container(ino);
  }

  void abandon(std::uint64_t ino) override { inner_.abandon(ino); }

  std::size_t publish_files(std::span<const fs::StagedFile> files, Status& failed) override {
    return inner_.publish_files(files, failed);
  }

  Status link_files(const std::string& existing, std::span<const std::string> names) override {
    return inner_.link_files(existing, names);
  }

  Status make_directory(const std::string& path, const fs::StagedAttributes& attributes) override {
    return inner_.make_directory(path, attributes);
  }

  Status make_symlink(const std::string& path, const std::string& target,
                      const fs::StagedAttributes& attributes) override {
    return inner_.make_symlink(path, target, attributes);
  }

  Result<std::vector<fs::WalkItem>> walk() override { return inner_.walk(); }

  Result<std::vector<fs::WalkItem>> look(const Plan& plan) override { return inner_.look(plan); }

  Status set_xattrs(const std::string& path,
                    const std::map<std::string, std::string>& xattrs) override {
    return inner_.set_xattrs(path, xattrs);
  }

  Status record_directory(const std::string& path, std::uint64_t version) override {
    return inner_.record_directory(path, version);
  }

  std::vector<fs::WalkItem> gone() override { return inner_.gone(); }

  Result<std::vector<fs::WalkItem>> inputs() override { return inner_.inputs(); }

  std::map<std::string, Error> revoke(std::span<const fs::PfsName> names, fs::Side side,
                                      const fs::ResultName& called) override {
    return inner_.revoke(names, side, called);
  }

  Result<std::uint64_t> available_bytes() override { return inner_.available_bytes(); }

  bool has(const std::string& path) override { return inner_.has(path); }

  std::string own_path(const std::string& path) override { return inner_.own_path(path); }

  std::string refusal(const std::string& path) override { return inner_.refusal(path); }

  bool is_at_rest() const override { return inner_.is_at_rest(); }

  Status confirm(std::uint64_t ino, bool same) override { return inner_.confirm(ino, same); }

  Status secure(std::span<const std::uint64_t> inos) override { return inner_.secure(inos); }

  Status named(const fs::WalkItem& item,
               const std::function<Result<fs::Origin>()>& version) override {
    return inner_.named(item, version);
  }

 protected:
  Buffer& inner_;
};

}  // namespace efs::stage
