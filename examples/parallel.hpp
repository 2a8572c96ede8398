// SPDX-License-Identifier: BSD-3-Clause
// The few collective operations of the examples: with MPI if USE_MPI is defined, else for one rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#ifdef USE_MPI
#include <mpi.h>
#endif

namespace parallel {

#ifdef USE_MPI

/// MPI from the constructor to the destructor.
class World {
 public:
  World(int& argc, char**& argv) { MPI_Init(&argc, &argv); }

  World(const World&) = delete;
  World& operator=(const World&) = delete;

  ~World() { MPI_Finalize(); }
};

inline int rank() {
  int number = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &number);
  return number;
}

inline int size() {
  int number = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &number);
  return number;
}

inline double minimum(double mine) {
  double all = mine;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  return all;
}

inline double sum(double mine) {
  double all = mine;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

inline std::uint64_t sum(std::uint64_t mine) {
  unsigned long long value = mine;
  unsigned long long all = 0;
  MPI_Allreduce(&value, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

/// Ends all ranks.
[[noreturn]] inline void abort() {
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

/// Adds the values of a neighbour to those of this rank. Both sides get the same bits.
inline void add_neighbour(double* values, int count, int neighbour) {
  std::vector<double> received(static_cast<std::size_t>(count));
  MPI_Sendrecv(values, count, MPI_DOUBLE, neighbour, 0, received.data(), count, MPI_DOUBLE,
               neighbour, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  std::transform(received.begin(), received.end(), values, values, std::plus<double>());
}

/// Every rank r has values[starts[r]] to values[starts[r + 1]]; afterwards every rank has all.
inline void gather(double* values, const std::vector<int>& starts) {
  std::vector<int> counts(starts.size() - 1);
  for (std::size_t r = 0; r < counts.size(); ++r) {
    counts[r] = starts[r + 1] - starts[r];
  }
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values, counts.data(), starts.data(),
                 MPI_DOUBLE, MPI_COMM_WORLD);
}

#else

class World {
 public:
  World(int&, char**&) {}
};

inline int rank() {
  return 0;
}

inline int size() {
  return 1;
}

inline double minimum(double mine) {
  return mine;
}

inline double sum(double mine) {
  return mine;
}

inline std::uint64_t sum(std::uint64_t mine) {
  return mine;
}

[[noreturn]] inline void abort() {
  std::exit(1);
}

inline void add_neighbour(double*, int, int) {}

inline void gather(double*, const std::vector<int>&) {}

#endif

/// The first of this rank's rows, and one past its last.
inline std::pair<int, int> share(int rows) {
  return {rows * rank() / size(), rows * (rank() + 1) / size()};
}

}  // namespace parallel
