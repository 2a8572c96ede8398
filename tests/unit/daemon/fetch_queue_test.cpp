// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/fetch_queue.hpp"

#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <vector>

using efs::daemon::FetchQueue;
using Least = FetchQueue::Least;

namespace {

std::vector<std::uint64_t> all_of(FetchQueue& queue) {
  std::vector<std::uint64_t> taken;
  while (const auto next = queue.take(Least::background)) {
    taken.push_back(*next);
  }
  return taken;
}

}  // namespace

TEST_CASE("what programs wait for comes first, in its order; the rest by priority", "[fetch]") {
  FetchQueue queue;
  queue.add_background(1, 0);
  queue.add_background(2, 5);
  queue.add_background(3, 5);
  queue.add_background(4, -100);
  queue.want(9);
  queue.want(8);
  CHECK(queue.wanted() == 2);
  CHECK(queue.others() == 4);
  CHECK(all_of(queue) == std::vector<std::uint64_t>{9, 8, 2, 3, 1, 4});
}

TEST_CASE("a file of the background that a program wants comes first, and once", "[fetch]") {
  FetchQueue queue;
  queue.add_background(1, 9);
  queue.add_background(2, 0);
  queue.want(2);
  queue.want(2);
  queue.add_background(2, 0);
  CHECK(queue.wanted() == 1);
  CHECK(queue.others() == 1);
  CHECK(all_of(queue) == std::vector<std::uint64_t>{2, 1});
}

TEST_CASE("a file that is being fetched is not fetched twice, and may be again later", "[fetch]") {
  FetchQueue queue;
  queue.want(1);
  REQUIRE(queue.take(Least::wanted) == 1);
  CHECK(queue.is_running(1));
  queue.want(1);
  queue.add_background(1, 0);
  CHECK_FALSE(queue.take(Least::background));
  queue.done(1);
  CHECK(queue.running() == 0);
  queue.want(1);
  CHECK(queue.take(Least::wanted) == 1);
}

TEST_CASE("without a leave for the background only what programs want is taken", "[fetch]") {
  FetchQueue queue;
  queue.add_background(1, 0);
  CHECK_FALSE(queue.take(Least::wanted));
  queue.want(2);
  CHECK(queue.take(Least::wanted) == 2);
  CHECK_FALSE(queue.take(Least::wanted));
  CHECK(queue.take(Least::background) == 1);
}

TEST_CASE("a dropped queue returns what programs wait for", "[fetch]") {
  FetchQueue queue;
  queue.want(1);
  queue.want(2);
  queue.want(3);
  queue.add_background(4, 0);
  REQUIRE(queue.take(Least::background) == 1);
  CHECK(queue.drop() == std::list<std::uint64_t>{2, 3});
  CHECK_FALSE(queue.take(Least::background));
  CHECK(queue.running() == 1);
  queue.want(2);
  CHECK(queue.take(Least::background) == 2);
}

TEST_CASE("asked files precede expected ones, which precede the background", "[fetch]") {
  FetchQueue queue;
  queue.add_background(1, 100);
  queue.add_background(2, 50);
  queue.add_ahead(3);
  queue.add_ahead(2);
  queue.ask(4);
  queue.ask(1);
  queue.add_background(4, 7);
  queue.add_ahead(1);
  queue.want(5);
  CHECK(queue.others() == 4);
  CHECK(all_of(queue) == std::vector<std::uint64_t>{5, 4, 1, 3, 2});
}

TEST_CASE("a file is forgotten by the reason for which it is in the queue", "[fetch]") {
  FetchQueue queue;
  queue.ask(1);
  queue.add_ahead(2);
  queue.add_background(3, 0);
  queue.ask(4);
  queue.want(4);
  queue.forget_ahead({1, 2, 3, 4});
  queue.forget_asked({3, 4, 5});
  CHECK(all_of(queue) == std::vector<std::uint64_t>{4, 1, 3});
}

TEST_CASE("only what is expected is taken while the background must wait", "[fetch]") {
  FetchQueue queue;
  queue.add_background(1, 0);
  queue.ask(2);
  queue.add_ahead(3);
  CHECK_FALSE(queue.is_background_next());
  CHECK(queue.take(Least::expected) == 2);
  CHECK(queue.take(Least::expected) == 3);
  CHECK(queue.is_background_next());
  CHECK_FALSE(queue.take(Least::expected));
  queue.want(4);
  CHECK_FALSE(queue.is_background_next());
  CHECK(queue.take(Least::expected) == 4);
}
