#include "base/checksum.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

using namespace efs;

namespace {

// Nothing is left of what the allocator has but for a few small pieces, and no more is to be had.
void take_all_memory() {
  std::array<void*, 4> small{};
  for (auto& one : small) one = std::malloc(24);
  const rlimit nothing{.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &nothing);
  for (std::size_t bytes = 1U << 20U; bytes > 4096; bytes /= 2)
    while (std::malloc(bytes) != nullptr) {}
  for (std::size_t bytes = 4096; bytes >= 128; bytes -= 16)  // what was freed before is kept by size
    while (std::malloc(bytes) != nullptr) {}
  for (void* one : small) std::free(one);
}

}  // namespace

TEST_CASE("a checksum that there is no memory for is std::bad_alloc") {
#ifdef EFS_SANITIZED
  SKIP("malloc is a sanitizer's");
#endif
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    take_all_memory();
    try {
      for (;;) (new Checksum)->update(std::as_bytes(std::span("x")));  // what other threads' heaps still have goes first
    } catch (const std::bad_alloc&) {
      ::_exit(0);
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a stream's checksum is that of the whole, holes included") {
  const std::string text(70000, 'x'), zeros(100000, '\0');
  Checksum sum;
  sum.update(std::as_bytes(std::span(text)));
  sum.update_zeros(zeros.size());
  const std::string whole = text + zeros;
  CHECK(sum.digest() == checksum(std::as_bytes(std::span(whole))));
}
