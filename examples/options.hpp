// SPDX-License-Identifier: BSD-3-Clause
// The options that the examples share, and the loop over their steps.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "checkpoint.hpp"
#include "parallel.hpp"

struct Options {
  int size = 32;              // --size: elements or cells in each direction
  int steps = 200;            // --steps
  int every = 20;             // --every: steps between two checkpoints
  std::string kind = "none";  // --checkpoint: none, values, file, pmem, objects or shared
  std::string directory;      // --directory: of the checkpoints
};

/// Reads --NAME VALUE pairs; exits with status 2 for another option.
inline Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--size") {
      options.size = std::atoi(value);
    } else if (name == "--steps") {
      options.steps = std::atoi(value);
    } else if (name == "--every") {
      options.every = std::atoi(value);
    } else if (name == "--checkpoint") {
      options.kind = value;
    } else if (name == "--directory") {
      options.directory = value;
    } else {
      std::fprintf(stderr, "unknown option %s\n", name.c_str());
      std::exit(2);
    }
  }
  if (options.size < 2 || options.steps < 0 || options.every < 1) {
    std::fprintf(stderr, "--size is at least 2, --every at least 1\n");
    std::exit(2);
  }
  return options;
}

/// The sum of the hashes of all rows: it does not depend on the rank that has a row.
inline std::uint64_t hash_of(const std::vector<Memory>& memory) {
  std::uint64_t sum = 0;
  std::uint64_t name = 0;
  for (const Memory& m : memory) {
    ++name;
    for (std::size_t row = 0; row < m.rows; ++row) {
      std::uint64_t hash = 0xcbf29ce484222325U + (name << 48U) + m.first + row;
      for (std::size_t column = 0; column < m.columns; ++column) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, m.data + row * m.columns + column, sizeof bits);
        hash = (hash ^ bits) * 0x9e3779b97f4a7c15U;
        hash ^= hash >> 29U;
      }
      sum += hash * 0xbf58476d1ce4e5b9U;
    }
  }
  return parallel::sum(sum);
}

/// Runs the steps of a code from its newest checkpoint. A line tells each checkpoint. The code has
/// memory(), step() and energy().
template <typename Code>
void run(Code& code, const Options& options) {
  std::printf("rank %d pid %d\n", parallel::rank(), static_cast<int>(::getpid()));
  std::fflush(stdout);
  const auto checkpoints = make_checkpoints(options.kind, options.directory, code.memory());
  std::uint64_t done = 0;
  if (checkpoints) {
    done = checkpoints->restore().value_or(0);
  }
  const bool first = parallel::rank() == 0;
  using Clock = std::chrono::steady_clock;
  Clock::duration saving{};
  int saved = 0;
  if (first) {
    std::printf("begin at step %d\n", static_cast<int>(done));
    std::fflush(stdout);
  }
  while (done < static_cast<std::uint64_t>(options.steps)) {
    code.step();
    ++done;
    if (checkpoints && done % static_cast<std::uint64_t>(options.every) == 0) {
      const Clock::time_point begin = Clock::now();
      checkpoints->save(done);
      saving += Clock::now() - begin;
      ++saved;
      if (first) {
        std::printf("checkpoint %d\n", static_cast<int>(done));
        std::fflush(stdout);
      }
    }
  }
  if (first && saved > 0) {
    std::printf("%.3f ms for each checkpoint\n",
                std::chrono::duration<double, std::milli>(saving).count() / saved);
  }
  const double energy = code.energy();
  const std::uint64_t hash = hash_of(code.memory());
  if (first) {
    std::printf("energy %.12g hash %016llx\n", energy, static_cast<unsigned long long>(hash));
  }
}

/// main() of a code: Code(options) and run().
template <typename Code>
int run_example(int argc, char** argv) {
  parallel::World world(argc, argv);
  try {
    const Options options = read_options(argc, argv);
    Code code(options.size);
    run(code, options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", parallel::rank(), error.what());
    parallel::abort();
  }
}
