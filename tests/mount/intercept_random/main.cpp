// SPDX-License-Identifier: BSD-3-Clause
// Random calls on a few files of a mount, by the C library, against a model in memory and against
// what a process sees that makes its system calls itself. Run it with libefs-intercept preloaded.
//   efs-intercept-random DIRECTORY [--steps N] [SEED...]     (default: 2000 steps, one random seed)
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "run.hpp"

namespace efs::intercept_random {
// In the executed program of exec_one(): reads from an inherited descriptor.
int check_inherited(int fd, std::size_t bytes, std::uint64_t sum);
}  // namespace efs::intercept_random

namespace {

using namespace efs::intercept_random;

void run_seed(const std::string& directory, std::uint64_t seed, int steps) {
  std::vector<std::string> paths;
  for (int i = 0; i < file_names; ++i) {
    paths.push_back(directory + "/f" + std::to_string(i));
  }
  Outsider outsider(paths);
  Run run(directory, seed, outsider);
  run.steps(steps);
  run.finish();
  std::printf("seed %llu: %d steps\n", static_cast<unsigned long long>(seed), steps);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--inherited") == 0) {
    return check_inherited(std::atoi(argv[2]), std::strtoul(argv[3], nullptr, 10),
                           std::strtoull(argv[4], nullptr, 10));
  }
  int steps = 2000;
  std::vector<std::uint64_t> seeds;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
      steps = std::atoi(argv[++i]);
    } else {
      seeds.push_back(std::strtoull(argv[i], nullptr, 10));
    }
  }
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY [--steps N] [SEED...]\n", argv[0]);
    return 2;
  }
  if (seeds.empty()) {
    seeds.push_back(std::random_device{}());
  }
  for (const auto seed : seeds) {
    run_seed(argv[1], seed, steps);
  }
  return 0;
}
