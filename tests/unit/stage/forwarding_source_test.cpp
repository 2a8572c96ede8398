// SPDX-License-Identifier: BSD-3-Clause
// ForwardingSource forwards every member of a source.

#include "stage/forwarding_source.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace efs;
using namespace efs::stage;

namespace {

/// Records the calls. It must override every member, because all are pure.
class Recorder final : public ExportSource {
 public:
  mutable std::vector<std::string> calls{};

  Result<fs::OpenContainer> open_container(std::uint64_t) override {
    return noted("open_container", fail(EIO));
  }

  Result<std::vector<fs::WalkItem>> walk() override { return noted("walk", fail(EIO)); }

  std::vector<fs::WalkItem> gone() override { return noted("gone", std::vector<fs::WalkItem>(3)); }

  Result<std::vector<fs::WalkItem>> inputs() override { return noted("inputs", fail(EIO)); }

  std::map<std::string, Error> revoke(std::span<const fs::PfsName>, fs::Side,
                                      const fs::ResultName&) override {
    return noted("revoke", std::map<std::string, Error>{{"x", {}}});
  }

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

TEST_CASE("a forwarding source hands every call on, and its answer back", "[stage]") {
  Recorder recorder;
  ForwardingSource source(recorder);
  CHECK((!source.open_container(1) && !source.walk()));
  CHECK(source.gone().size() == 3);
  CHECK(!source.inputs());
  CHECK(source.revoke({}, fs::Side::both, {}).size() == 1);
  CHECK((source.has("a") && source.own_path("a") == "own" && source.refusal("a") == "no" &&
         !source.is_at_rest()));
  CHECK((!source.confirm(1, true) && !source.secure({}) && !source.named({}, {})));
  CHECK(recorder.calls == std::vector<std::string>{"open_container", "walk", "gone", "inputs",
                                                   "revoke", "has", "own_path", "refusal",
                                                   "is_at_rest", "confirm", "secure", "named"});
}
