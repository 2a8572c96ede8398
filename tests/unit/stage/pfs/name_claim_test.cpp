// SPDX-License-Identifier: BSD-3-Clause
// Claims decide which of several nodes may give or remove a name.
#include "stage/pfs/name_claim.hpp"

#include <sys/stat.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "stage/pfs/forwarding_pfs.hpp"
#include "stage/pfs/posix_handle.hpp"
#include "support/temp.hpp"
#include "unit/stage/opened.hpp"

namespace efs::stage {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> names_in(const efs::test::TempDirectory& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    names.push_back(entry.path().filename());
  }
  return names;
}

// A PFS without symbolic links.
class WithoutLinks final : public ForwardingPfs {
 public:
  WithoutLinks() : ForwardingPfs(posix_pfs()) {}

  Status symlink(const std::string&, PfsRef, const std::string&) override { return fail(EPERM); }
};

}  // namespace

TEST_CASE("of many that claim a name one has it at a time, and nothing is left", "[stage][merge]") {
  WithoutLinks without_links;
  for (PfsIo* pfs : {&posix_pfs(), static_cast<PfsIo*>(&without_links)}) {
    const efs::test::TempDirectory directory;
    const PfsHandle at = opened(directory.path());
    std::atomic<int> inside{0}, met{0}, had{0};
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
          for (int round = 0; round < 20; ++round) {
            const auto claim = NameClaim::take(*pfs, at, "out", "p" + std::to_string(i), 1min);
            if (!claim) {
              continue;
            }
            if (++inside > 1) {
              ++met;
            }
            ++had;
            std::this_thread::yield();
            --inside;
          }
        });
      }
    }
    CHECK(had == 80);
    CHECK(met == 0);
    CHECK(names_in(directory).empty());
  }
}

TEST_CASE(
    "a claim that another has is waited for, told and left alone; another name's is no matter",
    "[stage][merge]") {
  WithoutLinks without_links;
  PfsIo& pfs = GENERATE(true, false) ? posix_pfs() : static_cast<PfsIo&>(without_links);
  const efs::test::TempDirectory directory;
  const PfsHandle at = opened(directory.path());
  std::optional<Result<NameClaim>> theirs(
      NameClaim::take(pfs, at, "out", "out.theirs.efs-partial"));
  REQUIRE(theirs->has_value());
  CHECK(NameClaim::take(pfs, at, "other", "other.ours.efs-partial"));
  const auto ours = NameClaim::take(pfs, at, "out", "out.ours.efs-partial", 20ms);
  REQUIRE_FALSE(ours);
  CHECK(ours.error().code == EALREADY);
  CHECK(is_held(ours.error()));
  const auto there = names_in(directory);
  REQUIRE(there.size() == 1);
  CHECK(there.front().starts_with(claim_prefix));
  CHECK(there.front().ends_with(".efs-partial"));  // which no stage-in imports
  CHECK(describe(given_up(ours.error()))
            .contains(there.front() +
                      " in the same directory is its claim, of "
                      "out.theirs.efs-partial; if that process is dead, remove the claim"));
  theirs.reset();
  CHECK(NameClaim::take(pfs, at, "out", "out.ours.efs-partial", 20ms));
  CHECK(names_in(directory).empty());
}

// The PFS removes the claim and reports an error. Another claimant makes a new claim.
class LostAnswer final : public ForwardingPfs {
 public:
  LostAnswer() : ForwardingPfs(posix_pfs()) {}

  Status unlink(PfsRef at, const std::string& name) override {
    if (!std::exchange(first_, false)) {
      return real_.unlink(at, name);
    }
    (void)real_.unlink(at, name);
    (void)real_.symlink("another", at, name);
    return fail(EIO);
  }

 private:
  bool first_ = true;
};

TEST_CASE("nobody gives back another's claim", "[stage][merge]") {
  LostAnswer pfs;
  const efs::test::TempDirectory directory;
  const PfsHandle at = opened(directory.path());
  {
    CHECK(NameClaim::take(pfs, at, "out", "p"));
  }
  REQUIRE(names_in(directory).size() == 1);
  CHECK(claimant_of(pfs, at, names_in(directory).front()).value() == "another");
}

TEST_CASE("who was killed with a claim has it still when he goes on", "[stage][merge]") {
  const efs::test::TempDirectory directory;
  const PfsHandle at = opened(directory.path());
  std::string left;
  {
    const auto claim = NameClaim::take(posix_pfs(), at, "out", "p");
    REQUIRE(claim);
    left = names_in(directory).front();
  }
  REQUIRE(::symlinkat("p", fd_of(at), left.c_str()) == 0);
  {
    CHECK(NameClaim::take(posix_pfs(), at, "out", "p", 0ms));
  }
  CHECK(names_in(directory).empty());
}

TEST_CASE("where no claim can be made nobody has one", "[stage][merge]") {
  const efs::test::TempDirectory directory;
  const PfsHandle at = opened(directory.path());
  std::filesystem::remove(directory.path());
  const auto claim = NameClaim::take(posix_pfs(), at, "out", "p");
  REQUIRE_FALSE(claim);
  CHECK(claim.error().code == ENOENT);
  std::filesystem::create_directory(directory.path());
}

}  // namespace efs::stage
