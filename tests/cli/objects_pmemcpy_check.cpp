// SPDX-License-Identifier: BSD-3-Clause
// pMEMCPY's calls, with MPI or (PMEMCPY_NO_MPI) without.
//   objects_pmemcpy_check DIRECTORY [lose]     lose: the store vanishes before MPI_Finalize
#include <pmemcpy/pmemcpy.h>

#include <cstdlib>
#include <filesystem>

#define HOLDS(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      std::fprintf(stderr, "%d: not %s\n", __LINE__, #condition); \
      std::exit(1);                                               \
    }                                                             \
  } while (0)

namespace {

struct Particle {
  double mass;
  int charge;
};

int rank = 0;
int ranks = 1;

void open(pmemcpy::PMEM& pmem, const char* path) {
#ifdef PMEMCPY_HAS_MPI
  pmem.mmap(path, MPI_COMM_WORLD);
#else
  pmem.mmap(path);
#endif
}

void barrier() {
#ifdef PMEMCPY_HAS_MPI
  MPI_Barrier(MPI_COMM_WORLD);
#endif
}

template <typename Call>
bool fails(Call call) {
  try {
    call();
  } catch (const eo::Error&) {
    return true;
  }
  return false;
}

void values(pmemcpy::PMEM& pmem) {
  const std::string mine = "value" + std::to_string(rank);
  double x = 0.5 + rank;
  pmem.store<double>(mine, x);
  double y = 0;
  pmem.load<double>(mine, y);
  HOLDS(y == x);
  HOLDS(pmem.load<double>(mine) == x);
  Particle particle{2.5, rank};
  pmem.store<Particle>("particle" + mine, particle);
  HOLDS(pmem.load<Particle>("particle" + mine).charge == rank);

  struct Mass {
    double mass;
  };

  HOLDS(fails([&] { pmem.load<Mass>("particle" + mine); }));
}

/// Two rows of a matrix for each rank.
void arrays(pmemcpy::PMEM& pmem) {
  size_t dims[2] = {static_cast<size_t>(2 * ranks), 3};
  size_t offsets[2] = {static_cast<size_t>(2 * rank), 0};
  size_t counts[2] = {2, 3};
  double rows[6];
  for (int i = 0; i < 6; ++i) {
    rows[i] = 6 * rank + i;
  }
  HOLDS(fails([&] { pmem.store<double>("M", rows, 2, offsets, counts); }));
  pmem.alloc<double>("M", 2, dims);
  pmem.store<double>("M", rows, 2, offsets, counts);
  HOLDS(fails([&] { pmem.store<double>("M", rows, 1, offsets, counts); }));
  barrier();
  int ndims = 0;
  size_t found[8];
  pmem.load_dims("M", &ndims, found);
  HOLDS(ndims == 2 && found[0] == dims[0] && found[1] == 3);
  // A column of all ranks, before it is published.
  size_t column[2] = {0, 1};
  size_t tall[2] = {dims[0], 1};
  std::vector<double> values(dims[0]);
  pmem.load<double>("M", values.data(), 2, column, tall);
  HOLDS(values[0] == 1 && values.back() == 3 * static_cast<double>(dims[0] - 1) + 1);
  HOLDS(fails([&] { pmem.load<double>("M", values.data(), 2, column, dims); }));
  barrier();
}

void published(const char* path) {
  pmemcpy::PMEM pmem;
  open(pmem, path);
  size_t corner[2] = {1, 1};
  size_t counts[2] = {1, 2};
  double part[2];
  pmem.load<double>("M", part, 2, corner, counts);
  HOLDS(part[0] == 4 && part[1] == 5);
  int ndims = 0;
  size_t dims[8];
  pmem.load_dims("M", &ndims, dims);
  HOLDS(ndims == 2 && dims[0] == static_cast<size_t>(2 * ranks));
  HOLDS(fails([&] { pmem.load<float>("M", nullptr, 2, corner, counts); }));
  pmem.munmap();
  HOLDS(fails([&] { pmem.load<double>("value0"); }));
}

}  // namespace

int main(int argc, char** argv) {
#ifdef PMEMCPY_HAS_MPI
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
  pmemcpy::PMEM last(pmemcpy::default_);
  {
    pmemcpy::PMEM pmem;
    open(pmem, argv[1]);
    values(pmem);
    arrays(pmem);
  }
  published(argv[1]);
  open(last, argv[1]);
  size_t one = 1;
  last.alloc<int>("last", 1, &one);
  barrier();
  if (argc > 2 && rank == 0) {
    std::filesystem::remove_all(argv[1]);
  }
  barrier();
#ifdef PMEMCPY_HAS_MPI
  MPI_Finalize();
#endif
  if (rank == 0) {
    std::puts("done");
  }
}
