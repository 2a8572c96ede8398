// SPDX-License-Identifier: BSD-3-Clause
// ForwardingBuffer forwards every member of a buffer.

#include "stage/forwarding_buffer.hpp"

#include <catch2/catch_test_macros.hpp>

#include "backends/container_file.hpp"

using namespace efs;
using namespace efs::stage;

namespace {

/// Records the calls. It must override every member, because all are pure.
class Recorder final : public Buffer {
 public:
  mutable std::vector<std::string> calls{};

  Result<fs::OpenContainer> begin_open_file() override {
    return noted("begin_open_file", fail(EIO));
  }

  Result<fs::OpenContainer> begin_open_file_at(unsigned) override {
    return noted("begin_open_file_at", fail(EIO));
  }

  Result<fs::OpenContainer> adopt_file(Container&) override {
    return noted("adopt_file", fail(EIO));
  }

  Result<fs::OpenContainer> open_container(std::uint64_t) override {
    return noted("hold", fail(EIO));
  }

  void abandon(std::uint64_t) override { note("abandon"); }

  std::size_t publish_files(std::span<const fs::StagedFile>, Status&) override {
    return noted("publish_files", 7);
  }

  Status link_files(const std::string&, std::span<const std::string>) override {
    return noted("link_files", fail(EIO));
  }

  Status make_directory(const std::string&, const fs::StagedAttributes&) override {
    return noted("make_directory", fail(EIO));
  }

  Status make_symlink(const std::string&, const std::string&,
                      const fs::StagedAttributes&) override {
    return noted("make_symlink", fail(EIO));
  }

  Result<std::vector<fs::WalkItem>> walk() override { return noted("walk", fail(EIO)); }

  Result<std::vector<fs::WalkItem>> look(const Plan&) override { return noted("look", fail(EIO)); }

  Status set_xattrs(const std::string&, const std::map<std::string, std::string>&) override {
    return noted("set_xattrs", fail(EIO));
  }

  Status record_directory(const std::string&, std::uint64_t) override {
    return noted("record_directory", fail(EIO));
  }

  std::vector<fs::WalkItem> gone() override { return noted("gone", std::vector<fs::WalkItem>(3)); }

  Result<std::vector<fs::WalkItem>> inputs() override { return noted("inputs", fail(EIO)); }

  std::map<std::string, Error> revoke(std::span<const fs::PfsName>, fs::Side,
                                      const fs::ResultName&) override {
    return noted("disown", std::map<std::string, Error>{{"x", {}}});
  }

  Result<std::uint64_t> available_bytes() override { return noted("available_bytes", fail(EIO)); }

  bool has(const std::string&) override { return noted("has", true); }

  std::string own_path(const std::string&) override { return noted("own_path", "own"); }

  std::string refusal(const std::string&) override { return noted("refusal", "no"); }

  bool is_at_rest() const override { return noted("is_at_rest", false); }

  Status confirm(std::uint64_t, bool) override { return noted("confirm", fail(EIO)); }

  Status secure(std::span<const std::uint64_t>) override { return noted("secure", fail(EIO)); }

  Status named(const fs::WalkItem&, const std::function<Result<fs::Origin>()>&) override {
    return noted("named", fail(EIO));
  }

 private:
  void note(const char* call) const { calls.emplace_back(call); }

  template <typename Answer>
  Answer noted(const char* call, Answer answer) const {
    note(call);
    return answer;
  }
};

}  // namespace

TEST_CASE("a forwarding buffer hands every call on, and its answer back", "[stage]") {
  Recorder recorder;
  ForwardingBuffer buffer(recorder);
  Status failed;
  ContainerFile shared(UniqueFd(), nullptr, false, false);
  CHECK((!buffer.begin_open_file() && !buffer.begin_open_file_at(1) && !buffer.adopt_file(shared) &&
         !buffer.open_container(1)));
  buffer.abandon(1);
  CHECK(buffer.publish_files({}, failed) == 7);
  CHECK((!buffer.link_files("a", {}) && !buffer.make_directory("d", {}) &&
         !buffer.make_symlink("l", "t", {})));
  CHECK((!buffer.walk() && !buffer.look({}) && !buffer.set_xattrs("d", {}) &&
         !buffer.record_directory("d", 1)));
  CHECK(buffer.gone().size() == 3);
  CHECK(!buffer.inputs());
  CHECK(buffer.revoke({}, fs::Side::both, {}).size() == 1);
  CHECK((!buffer.available_bytes() && buffer.has("a") && buffer.own_path("a") == "own" &&
         buffer.refusal("a") == "no" && !buffer.is_at_rest()));
  CHECK((!buffer.confirm(1, true) && !buffer.secure({}) && !buffer.named({}, {})));
  CHECK(recorder.calls == std::vector<std::string>{"begin_open_file",
                                                   "begin_open_file_at",
                                                   "adopt_file",
                                                   "hold",
                                                   "abandon",
                                                   "publish_files",
                                                   "link_files",
                                                   "make_directory",
                                                   "make_symlink",
                                                   "walk",
                                                   "look",
                                                   "set_xattrs",
                                                   "record_directory",
                                                   "gone",
                                                   "inputs",
                                                   "disown",
                                                   "available_bytes",
                                                   "has",
                                                   "own_path",
                                                   "refusal",
                                                   "is_at_rest",
                                                   "confirm",
                                                   "secure",
                                                   "named"});
}
