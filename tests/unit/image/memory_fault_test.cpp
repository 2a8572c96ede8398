// SPDX-License-Identifier: BSD-3-Clause
// Check, repair and removal of an offline store while each allocation of memory fails in turn. The
// reports are true, no descriptor stays open, and a second call completes the work.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <optional>
#include <set>

#include "image/check.hpp"
#include "image/removal.hpp"
#include "support/dead_image.hpp"
#include "support/short_of_memory.hpp"

namespace efs::image {
namespace {

using test::DeadImage;
namespace stdfs = std::filesystem;

std::ptrdiff_t descriptors_now() {
  return std::distance(stdfs::directory_iterator("/proc/self/fd"), stdfs::directory_iterator{});
}

/// Adds the remainders of a process that died during a stage-in and a snapshot.
void add_leftovers(const DeadImage& dead) {
  DeadImage::put(dead.store() + "/meta/journal.new", "half a snapshot");
  const std::uint64_t unknown = dead.ino("replaced") + 10;
  char name[64];
  std::snprintf(name, sizeof name, "/data/%02llx/%016llx",
                static_cast<unsigned long long>(unknown % 256),
                static_cast<unsigned long long>(unknown));
  DeadImage::put(dead.store() + name, "half an input");
}

std::set<std::string> texts_of(const CheckReport& report) {
  std::set<std::string> all;
  for (const auto& one : report.findings) {
    all.insert(std::string(name_of(one.severity)) + " " + one.object + ": " + one.text);
  }
  all.insert(std::to_string(report.records) + " records, " + std::to_string(report.files) +
             " files, " + std::to_string(report.containers) + " containers");
  return all;
}

std::uint64_t allocations_of(const std::function<void()>& work) {
  const test::NoThreads alone;
  const auto before = test::allocations();
  work();
  return test::allocations() - before;
}

/// As each_allocation_fails(), without the allocations of reading a manifest: destroying a Json may
/// allocate and must not throw (docs/dev/style.md).
template <typename Round>
void each_but_of_manifests_fails(const DeadImage& dead, Round round) {
  const auto read_manifests = [&] {
    (void)job_of(dead.open_meta().get(),
                 read_manifest(find_own_store(dead.store())->metadata.get()).value());
  };
  const auto first = allocations_of(read_manifests),
             all = allocations_of([&] { (void)check_image(dead.store()); });
  constexpr std::uint64_t about = 8;  // what is in between
  const auto seed = test::seed();
  const test::Sample sample(seed);
  bool met = true;
  for (std::uint64_t n = first + about + sample.first; met; n += sample.step) {
    if (n > all - about && n < all + first) {
      continue;  // repair_image() reads it once more
    }
    INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed << ": allocation " << n
                       << " fails");
    round([&](const std::function<void()>& work) {
      met = test::met_shortage(n, test::Shortage::once, work);
    });
  }
}

}  // namespace

// With a permanent shortage they only end early.
TEST_CASE("check: every allocation of memory fails once", "[image][faults][memory]") {
  const DeadImage dead;
  add_leftovers(dead);
  const auto whole = check_image(dead.store());
  REQUIRE(whole);
  REQUIRE(whole->worst() == Severity::leftover);
  const auto before = test::everything_below(dead.store());
  int told = 0;
  each_but_of_manifests_fails(dead, [&](const auto& short_of_memory) {
    const auto descriptors = descriptors_now();
    std::optional<Result<CheckReport>> report;
    short_of_memory([&] {
      try {
        report = check_image(dead.store());
      } catch (const std::bad_alloc&) {
      }
    });
    REQUIRE(descriptors_now() == descriptors);
    if (!report || !*report) {
      return;
    }
    ++told;
    REQUIRE((texts_of(**report) == texts_of(*whole)));
  });
  if (test::Sample(0).step == 1) {
    CHECK(told > 0);
  }
  CHECK((test::everything_below(dead.store()) == before));
}

TEST_CASE("repair: every allocation of memory fails once", "[image][faults][memory]") {
  const DeadImage dead;
  int failed = 0;
  each_but_of_manifests_fails(dead, [&](const auto& short_of_memory) {
    add_leftovers(dead);
    const auto descriptors = descriptors_now();
    Status done = fail(ENOMEM);
    short_of_memory([&] {
      try {
        done = repair_image(dead.store());
      } catch (const std::bad_alloc&) {
      }
    });
    REQUIRE(descriptors_now() == descriptors);
    failed += !done;
    if (!done) {
      INFO(describe(done.error()));
    }
    if (!done) {
      REQUIRE(repair_image(dead.store()));
    }
    const auto report = check_image(dead.store());
    REQUIRE(report);
    REQUIRE(report->worst() == Severity::note);
    REQUIRE(report->files == 9);
    REQUIRE(test::text_of(dead.container("saved")) == "was brought out by the job");
  });
  if (test::Sample(0).step == 1) {
    CHECK(failed > 50);
  }
}

TEST_CASE("removal: every allocation of memory fails once, and for good",
          "[image][faults][memory]") {
  const auto shortage = GENERATE(test::Shortage::once, test::Shortage::for_good);
  int failed = 0;
  test::each_allocation_fails(shortage, [&](const auto& short_of_memory) {
    const test::TempDirectory top("/dev/shm");
    const std::string store = top.path() + "/store";
    for (const char* directory : {"/meta", "/data/00", "/data/01"}) {
      stdfs::create_directories(store + directory);
    }
    for (const char* file :
         {"/meta/journal", "/meta/instance.json", "/meta/lock", "/data/00/0000000000000100",
          "/data/01/0000000000000101", "/instance.json", "/lock"}) {
      DeadImage::put(store + file, "content");
    }
    stdfs::create_directories(store + "/data/01/below/deep");
    DeadImage::put(top.path() + "/outside", "content");
    stdfs::create_directory_symlink(top.path(), store + "/data/01/out");
    const UniqueFd root(::open(store.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto descriptors = descriptors_now();
    Status done = fail(ENOMEM);
    short_of_memory([&] {
      try {
        done = remove_content(root.get(), store);
      } catch (const std::bad_alloc&) {
      }
    });
    REQUIRE(descriptors_now() == descriptors);
    failed += !done;
    // The metadata show later processes that the store is being removed, until nothing is left of
    // it.
    const UniqueFd meta(::open((store + "/meta").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const bool untouched = stdfs::exists(store + "/meta/journal");
    if (untouched) {
      REQUIRE(stdfs::exists(store + "/data/01/0000000000000101"));
    }
    if (!untouched && stdfs::exists(store + "/data")) {
      REQUIRE(is_being_removed(meta.get()));
    }
    if (!done) {
      REQUIRE(remove_content(root.get(), store));
    }
    REQUIRE(stdfs::is_empty(store));
    REQUIRE(stdfs::exists(top.path() + "/outside"));
  });
  if (test::Sample(0).step == 1) {
    CHECK(failed > 0);
  }
}

}  // namespace efs::image
