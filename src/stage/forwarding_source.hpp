// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An ExportSource that forwards every call. Classes that change a few calls derive from it.

#include "stage/export_source.hpp"

namespace efs::stage {

/// Thread-safe if `inner` is. `inner` is borrowed and must outlive the object.
class ForwardingSource : public ExportSource {
 public:
  explicit ForwardingSource(ExportSource& inner) : inner_(inner) {}

  Result<fs::OpenContainer> open_container(std::uint64_t ino) override {
    return inner_.open_container(ino);
  }

  Result<std::vector<fs::WalkItem>> walk() override { return inner_.walk(); }

  std::vector<fs::WalkItem> gone() override { return inner_.gone(); }

  Result<std::vector<fs::WalkItem>> inputs() override { return inner_.inputs(); }

  std::map<std::string, Error> revoke(std::span<const fs::PfsName> names, fs::Side side,
                                      const fs::ResultName& called) override {
    return inner_.revoke(names, side, called);
  }

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
  ExportSource& inner_;
};

}  // namespace efs::stage
