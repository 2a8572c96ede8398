// SPDX-License-Identifier: BSD-3-Clause
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

// Allocates all memory except for a few small pieces, which stay free.
void take_all_memory() {
  std::array<void*, 4> small{};
  for (auto& one : small) {
    one = std::malloc(24);
  }
  const rlimit nothing{.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &nothing);
  for (std::size_t bytes = 1U << 20U; bytes > 4096; bytes /= 2) {
    while (std::malloc(bytes) != nullptr) {
    }
  }
  // glibc keeps freed memory in lists by size
  for (std::size_t bytes = 4096; bytes >= 128; bytes -= 16) {
    while (std::malloc(bytes) != nullptr) {
    }
  }
  for (void* one : small) {
    std::free(one);
  }
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
      // use up the memory in the heaps of other threads first
      for (;;) {
        (new Checksum)->update(std::as_bytes(std::span("x")));
      }
    } catch (const std::bad_alloc&) {
      ::_exit(0);
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

namespace {

FileSum sum_of(SumKind kind, const std::string& content, std::size_t step) {
  FileChecksum sum(kind);
  for (std::size_t at = 0; at < content.size(); at += step) {
    sum.update(std::as_bytes(std::span(content).subspan(at, std::min(step, content.size() - at))));
  }
  return sum.finish();
}

}  // namespace

TEST_CASE("xxh3-sparse depends on the content alone, and costs nothing for holes") {
  constexpr std::size_t block = FileChecksum::block_size;
  std::string content(5 * block + 1000, '\0');
  content[2 * block - 1] = 'a';
  content[3 * block] = 'b';
  const FileSum whole = sum_of(SumKind::xxh3_sparse, content, content.size());
  for (const std::size_t step : {4096UL, 65537UL, block, 3 * block}) {
    CHECK(sum_of(SumKind::xxh3_sparse, content, step) == whole);
  }
  // Holes as one maximal piece or in several pieces give the same sum as data.
  FileChecksum holes(SumKind::xxh3_sparse);
  holes.skip(2 * block - 1);
  holes.update(std::as_bytes(std::span(content).subspan(2 * block - 1, 1)));
  holes.skip(block);
  holes.update(std::as_bytes(std::span(content).subspan(3 * block, 4096)));
  holes.skip(content.size() - 3 * block - 4096);
  CHECK(holes.finish() == whole);
  CHECK(holes.hashed() <= 2 * block);
  // Computes the sum by its definition.
  std::string numbers;
  const auto add = [&](std::uint64_t number) {
    numbers.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  for (const std::size_t at : {block, 3 * block}) {
    add(at);
    add(block);
    add(checksum(std::as_bytes(std::span(content).subspan(at, block))));
  }
  add(content.size());
  add(0);
  add(0);
  CHECK(whole.value == checksum(std::as_bytes(std::span(numbers))));
  // Trailing zeros are content, too. The other kind is the plain checksum.
  CHECK_FALSE(sum_of(SumKind::xxh3_sparse, content + '\0', block) == whole);
  CHECK(sum_of(SumKind::xxh3, content, 70000).value == checksum(std::as_bytes(std::span(content))));
}

TEST_CASE("a tebibyte of hole is not hashed") {
  FileChecksum sum(SumKind::xxh3_sparse);
  sum.skip(std::uint64_t{1} << 40U);
  sum.update(std::as_bytes(std::span("end")));
  (void)sum.finish();
  CHECK(sum.hashed() < 10);
}

TEST_CASE("the checksum of a file as text, and back") {
  for (const FileSum sum : {FileSum(0x123456789abcdef0), FileSum(7, SumKind::xxh3_sparse)}) {
    CHECK(file_sum_of(to_text(sum)) == sum);
  }
  CHECK(to_text(FileSum(7, SumKind::xxh3_sparse)) == "xxh3-sparse:0000000000000007");
  for (const char* text : {"", "xxh3:", "xxh3:zz", "xxh3:12 ", "md5:00", "xxh3-sparse"}) {
    CHECK_FALSE(file_sum_of(text));
  }
  CHECK(sum_kind_for(1U << 20U, 4096) == SumKind::xxh3_sparse);
  CHECK(sum_kind_for(1U << 20U, 1U << 20U) == SumKind::xxh3);
  CHECK(sum_kind_for(8192, 4096) == SumKind::xxh3);
}

TEST_CASE("a stream's checksum is that of the whole, holes included") {
  const std::string text(70000, 'x'), zeros(100000, '\0');
  Checksum sum;
  sum.update(std::as_bytes(std::span(text)));
  sum.update_zeros(zeros.size());
  const std::string whole = text + zeros;
  CHECK(sum.digest() == checksum(std::as_bytes(std::span(whole))));
}
