// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/limits.hpp"

#include <linux/fuse.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <random>
#include <utility>

#include "fuse/wire.hpp"

using namespace efs;
using namespace efs::fuse;

namespace {

constexpr std::uint64_t MiB = 1U << 20;
constexpr Nanoseconds second = 1'000'000'000;

// A request as the kernel sends it. `unique` tells requests apart.
std::vector<std::byte> request(std::uint32_t opcode, std::uint32_t size = 0,
                               std::uint64_t unique = 0) {
  fuse_in_header header{};
  header.opcode = opcode;
  header.unique = unique;
  fuse_read_in read{};
  read.size = size;
  fuse_write_in write{};
  write.size = size;
  std::vector<std::byte> bytes(sizeof header + std::max(sizeof read, sizeof write));
  std::memcpy(bytes.data(), &header, sizeof header);
  if (opcode == FUSE_WRITE) {
    std::memcpy(bytes.data() + sizeof header, &write, sizeof write);
  } else {
    std::memcpy(bytes.data() + sizeof header, &read, sizeof read);
  }
  return bytes;
}

// The number of the next request that may pass; 0: none.
std::uint64_t taken(PacedRequests& paced) {
  std::vector<std::byte> room(4096);
  if (paced.take(room) == 0) {
    return 0;
  }
  fuse_in_header header{};
  std::memcpy(&header, room.data(), sizeof header);
  return header.unique;
}

// The most and the least that passes in a window of five seconds, where 8 clients ask again at once
// with requests of these sizes.
std::pair<double, double> in_windows(std::uint64_t per_second, std::uint64_t largest,
                                     unsigned seed) {
  std::mt19937 random(seed);
  TokenBucket bucket;
  std::vector<std::pair<Nanoseconds, std::uint64_t>> passed;
  constexpr Nanoseconds end = 60 * second;
  Nanoseconds now = 1'000 * second;
  const Nanoseconds begin = now;
  while (now < begin + end) {
    const std::uint64_t size = 1 + random() % largest;
    now = std::max(now, bucket.opens());
    bucket.take(size, per_second, now);
    passed.emplace_back(now, size);
  }
  double most = 0;
  double least = 1e18;
  for (Nanoseconds from = begin; from + 5 * second <= begin + end; from += second / 10) {
    double sum = 0;
    for (const auto& [when, size] : passed) {
      sum += when >= from && when < from + 5 * second ? static_cast<double>(size) : 0;
    }
    most = std::max(most, sum);
    least = std::min(least, sum);
  }
  const double whole = 5.0 * static_cast<double>(per_second);
  return {least / whole, most / whole};
}

}  // namespace

TEST_CASE("limits: what passes in five seconds is the rate within 5 %") {
  for (const unsigned seed : {1U, 2U, 3U}) {
    for (const std::uint64_t rate : {8 * MiB, 100 * MiB}) {
      const auto [least, most] = in_windows(rate, MiB, seed);
      CAPTURE(seed, rate, least, most);
      CHECK(least >= 0.95);
      CHECK(most <= 1.05);
    }
  }
}

TEST_CASE("limits: an idle bucket holds a tenth of a second") {
  TokenBucket bucket;
  const Nanoseconds now = 50 * second;
  bucket.take(5 * MiB, 100 * MiB, now);
  CHECK(bucket.opens() <= now);
  bucket.take(5 * MiB, 100 * MiB, now);
  CHECK(bucket.opens() <= now);
  bucket.take(1 * MiB, 100 * MiB, now);
  CHECK(bucket.opens() > now);
  bucket.give_back(1 * MiB, 100 * MiB);
  CHECK(bucket.opens() <= now);
}

TEST_CASE("limits: what a request costs") {
  CHECK(cost_of(request(FUSE_READ, 4096)) == Cost{4096, 0, 1});
  CHECK(cost_of(request(FUSE_WRITE, 4096)) == Cost{0, 4096, 1});
  CHECK(cost_of(request(FUSE_LOOKUP)) == Cost{0, 0, 1});
  for (const std::uint32_t free : {FUSE_FORGET, FUSE_BATCH_FORGET, FUSE_RELEASE, FUSE_RELEASEDIR,
                                   FUSE_FLUSH, FUSE_INTERRUPT, FUSE_INIT, FUSE_DESTROY}) {
    CHECK(cost_of(request(free)) == Cost{});
  }
  CHECK(cost_of({}) == Cost{0, 0, 1});  // a request without a header is none of the kernel's
}

TEST_CASE("limits: requests wait in their order, and others pass") {
  Limits limits;
  limits.of(Limited::write) = 1;  // a byte per second: what waits, waits for ever
  auto paced = *PacedRequests::make(limits);
  CHECK_FALSE(paced->put_off(request(FUSE_WRITE, 1000)));
  CHECK(paced->put_off(request(FUSE_WRITE, 1, 1)));
  CHECK(paced->put_off(request(FUSE_WRITE, 1, 2)));
  CHECK(limits.delayed == 2);
  CHECK(taken(*paced) == 0);
  CHECK_FALSE(paced->put_off(request(FUSE_READ, 1000)));
  CHECK_FALSE(paced->put_off(request(FUSE_LOOKUP)));
  CHECK_FALSE(paced->put_off(request(FUSE_RELEASE)));

  limits.of(Limited::write) = 0;
  paced->rate_changed(Limited::write);
  CHECK(paced->put_off(request(FUSE_WRITE, 1, 3)));  // it does not overtake
  for (const std::uint64_t unique : {1U, 2U, 3U}) {
    CHECK(taken(*paced) == unique);
  }
  CHECK(taken(*paced) == 0);
  CHECK_FALSE(paced->put_off(request(FUSE_WRITE, 1, 4)));
}

TEST_CASE("limits: a read that returns less than it asked for gives the rest back") {
  Limits limits;
  limits.of(Limited::read) = 1;
  auto paced = *PacedRequests::make(limits);
  CHECK_FALSE(paced->put_off(request(FUSE_READ, 1000)));
  paced->give_back(Limited::read, 1000);
  CHECK_FALSE(paced->put_off(request(FUSE_READ, 1000)));
  CHECK(paced->put_off(request(FUSE_READ, 1000)));
}

TEST_CASE("limits: operations of all kinds share one limit") {
  Limits limits;
  limits.of(Limited::operations) = 1;
  auto paced = *PacedRequests::make(limits);
  CHECK_FALSE(paced->put_off(request(FUSE_LOOKUP)));
  CHECK(paced->put_off(request(FUSE_READ, 1)));
  CHECK(paced->put_off(request(FUSE_WRITE, 1)));
  CHECK(paced->put_off(request(FUSE_GETATTR)));
}

TEST_CASE("limits: a request that is interrupted, or was sent before, does not wait") {
  Limits limits;
  limits.of(Limited::write) = 1;
  auto paced = *PacedRequests::make(limits);
  CHECK_FALSE(paced->put_off(request(FUSE_WRITE, 1000)));
  for (const std::uint64_t unique : {1U, 2U, 3U}) {
    CHECK(paced->put_off(request(FUSE_WRITE, 1, unique)));
  }
  auto interrupt = request(FUSE_INTERRUPT);
  const auto interrupts = [&](std::uint64_t unique) {
    std::memcpy(interrupt.data() + sizeof(fuse_in_header), &unique, sizeof unique);
    return paced->put_off(interrupt);
  };
  CHECK_FALSE(interrupts(4));  // libfuse has that request
  CHECK(interrupts(2));
  CHECK(taken(*paced) == 2);
  CHECK(taken(*paced) == 0);
  CHECK_FALSE(paced->put_off(request(FUSE_WRITE, 1, resent_bit | 5)));
}

TEST_CASE("limits: a lift lets all pass, and ends") {
  Limits limits;
  limits.of(Limited::write) = 1;
  auto paced = *PacedRequests::make(limits);
  CHECK_FALSE(paced->put_off(request(FUSE_WRITE, 1000)));
  CHECK(paced->put_off(request(FUSE_WRITE, 1, 1)));
  paced->lift(true);
  CHECK_FALSE(paced->put_off(request(FUSE_WRITE, 1, 2)));
  CHECK(taken(*paced) == 1);
  CHECK(paced->waiting() == 0);
  paced->lift(false);
  CHECK(paced->put_off(request(FUSE_WRITE, 1, 3)));
}

TEST_CASE("limits: what waits takes a bounded amount of memory") {
  Limits limits;
  limits.of(Limited::write) = 1;
  auto paced = *PacedRequests::make(limits);
  CHECK_FALSE(paced->put_off(request(FUSE_WRITE, 1000)));
  auto large = request(FUSE_WRITE, MiB);
  large.resize(MiB);
  for (std::size_t i = 0; i < PacedRequests::most_waiting / MiB; ++i) {
    CHECK(paced->put_off(large));
  }
  CHECK_FALSE(paced->put_off(large));
}
