// SPDX-License-Identifier: BSD-3-Clause
#include "base/cpu_binding.hpp"

#include <sched.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "base/thread.hpp"

using namespace efs;

namespace {

cpu_set_t cpus_of(pid_t thread) {
  cpu_set_t cpus{};
  REQUIRE(::sched_getaffinity(thread, sizeof cpus, &cpus) == 0);
  return cpus;
}

bool uses_all_of_process() {
  const cpu_set_t mine = cpus_of(0), all = cpus_of(::getpid());
  return CPU_EQUAL(&mine, &all) != 0;
}

unsigned first_cpu() {
  const cpu_set_t all = cpus_of(::getpid());
  unsigned cpu = 0;
  while (!CPU_ISSET(cpu, &all)) {
    ++cpu;
  }
  return cpu;
}

}  // namespace

// Each case has a thread of its own: the main thread stands for the whole process.
TEST_CASE("a thread is bound to a CPU, and to all of the process again") {
  std::jthread([] {
    const unsigned cpu = first_cpu();
    CHECK_FALSE(bound_cpu());
    unbind_from_cpu();
    CHECK(uses_all_of_process());
    REQUIRE(bind_to_cpu(cpu));
    CHECK(bound_cpu() == cpu);
    CHECK(only_cpu_of(::gettid()) == cpu);
    unbind_from_cpu();
    CHECK_FALSE(bound_cpu());
    CHECK(uses_all_of_process());
  }).join();
}

TEST_CASE("a thread that a bound one starts may use all CPUs of the process") {
  std::jthread([] {
    REQUIRE(bind_to_cpu(first_cpu()));
    bool all = false;
    auto started = start_thread([&all] { all = uses_all_of_process() && !bound_cpu(); });
    REQUIRE(started);
    started->join();
    CHECK(all);
    CHECK(bound_cpu());
  }).join();
}

TEST_CASE("a CPU that the process may not use, and a thread that does not exist") {
  std::jthread([] {
    CHECK_FALSE(bind_to_cpu(8 * CPU_SETSIZE - 1));
    CHECK_FALSE(bind_to_cpu(8 * CPU_SETSIZE));
    CHECK_FALSE(bound_cpu());
    CHECK(uses_all_of_process());
  }).join();
  CHECK_FALSE(only_cpu_of(-1));
}
