// SPDX-License-Identifier: BSD-3-Clause
// Atoms with Lennard-Jones forces in a periodic box, in the manner of CoMD: cells as wide as the
// cutoff find the neighbours, velocity Verlet moves the atoms.
//
// Each rank moves a part of the atoms and knows the positions of all. An atom's force is the sum
// over its neighbours in the order of the cells, so it does not depend on the number of ranks.
#include <array>
#include <cmath>

#include "options.hpp"

namespace {

constexpr double spacing = 1.6796;  // of the lattice: density 0.8442
constexpr double cutoff = 2.5;
constexpr double dt = 0.004;

using Vector = std::array<double, 3>;

class Atoms {
 public:
  explicit Atoms(int size)
      : box_(size * spacing),
        cells_(std::max(1, static_cast<int>(box_ / cutoff))),
        all_(4 * size * size * size),
        first_(parallel::share(all_).first),
        count_(parallel::share(all_).second - first_) {
    if (box_ < 2 * cutoff) {
      throw eo::Error(EINVAL, "the box is smaller than two cutoffs. Use a --size of at least 3");
    }
    positions_.resize(static_cast<std::size_t>(all_));
    velocities_.resize(static_cast<std::size_t>(count_));
    forces_.resize(static_cast<std::size_t>(count_));
    for (int r = 0; r <= parallel::size(); ++r) {
      starts_.push_back(3 * (all_ * r / parallel::size()));
    }
    build_lattice(size);
  }

  std::vector<Memory> memory() {
    const auto first = static_cast<std::size_t>(first_);
    const auto count = static_cast<std::size_t>(count_);
    const auto all = static_cast<std::size_t>(all_);
    return {Memory{"positions", own_positions(), first, count, all, 3},
            Memory{"velocities", velocities_.data()->data(), first, count, all, 3}};
  }

  void step() {
    if (!has_forces_) {  // at the start and after a restore
      parallel::gather(positions_.data()->data(), starts_);
      compute_forces();
    }
    kick();
    for (std::size_t i = 0; i < velocities_.size(); ++i) {
      Vector& position = positions_[static_cast<std::size_t>(first_) + i];
      for (std::size_t k = 0; k < 3; ++k) {
        position[k] += dt * velocities_[i][k];
        position[k] -= box_ * std::floor(position[k] / box_);
      }
    }
    parallel::gather(positions_.data()->data(), starts_);
    compute_forces();
    kick();
  }

  /// Kinetic and potential energy of all ranks.
  double energy() {
    parallel::gather(positions_.data()->data(), starts_);
    compute_forces();
    double total = 0.5 * potential_;  // a pair counts for both atoms
    for (const Vector& v : velocities_) {
      total += 0.5 * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    }
    return parallel::sum(total);
  }

 private:
  double* own_positions() { return positions_[static_cast<std::size_t>(first_)].data(); }

  /// A face-centred lattice, and velocities from a fixed sequence.
  void build_lattice(int size) {
    constexpr double corners[4][3] = {{0, 0, 0}, {0.5, 0.5, 0}, {0.5, 0, 0.5}, {0, 0.5, 0.5}};
    std::uint64_t random = 42;
    for (int i = 0; i < all_; ++i) {
      const int cell = i / 4;
      const int at[3] = {cell / (size * size), cell / size % size, cell % size};
      for (std::size_t k = 0; k < 3; ++k) {
        positions_[static_cast<std::size_t>(i)][k] = (at[k] + corners[i % 4][k] + 0.25) * spacing;
        random = random * 6364136223846793005U + 1442695040888963407U;
        if (i >= first_ && i < first_ + count_) {
          velocities_[static_cast<std::size_t>(i - first_)][k] =
              2.4 * (static_cast<double>(random >> 11U) * 0x1p-53 - 0.5);
        }
      }
    }
  }

  void kick() {
    for (std::size_t i = 0; i < velocities_.size(); ++i) {
      for (std::size_t k = 0; k < 3; ++k) {
        velocities_[i][k] += 0.5 * dt * forces_[i][k];
      }
    }
  }

  int cell_of(double coordinate) const {
    return std::min(static_cast<int>(coordinate / box_ * cells_), cells_ - 1);
  }

  std::size_t cell(int i, int j, int k) const {
    const auto wrap = [&](int n) {
      return (n + cells_) % cells_;
    };
    return static_cast<std::size_t>((wrap(i) * cells_ + wrap(j)) * cells_ + wrap(k));
  }

  void sort_into_cells() {
    members_.assign(static_cast<std::size_t>(cells_ * cells_ * cells_), {});
    for (std::size_t i = 0; i < positions_.size(); ++i) {
      const Vector& p = positions_[i];
      members_[cell(cell_of(p[0]), cell_of(p[1]), cell_of(p[2]))].push_back(i);
    }
  }

  void compute_forces() {
    sort_into_cells();
    potential_ = 0;
    const int reach = cells_ < 3 ? 0 : 1;  // with fewer cells each atom visits all
    for (std::size_t i = 0; i < forces_.size(); ++i) {
      const std::size_t atom = static_cast<std::size_t>(first_) + i;
      const Vector& p = positions_[atom];
      forces_[i] = {};
      if (reach == 0) {
        for (const auto& others : members_) {
          add_forces(atom, others);
        }
        continue;
      }
      const int at[3] = {cell_of(p[0]), cell_of(p[1]), cell_of(p[2])};
      for (int n = 0; n < 27; ++n) {
        add_forces(atom,
                   members_[cell(at[0] + n / 9 - 1, at[1] + n / 3 % 3 - 1, at[2] + n % 3 - 1)]);
      }
    }
    has_forces_ = true;
  }

  void add_forces(std::size_t atom, const std::vector<std::size_t>& others) {
    Vector& force = forces_[atom - static_cast<std::size_t>(first_)];
    for (const std::size_t other : others) {
      Vector d{};
      double square = 0;
      for (std::size_t k = 0; k < 3; ++k) {
        d[k] = positions_[atom][k] - positions_[other][k];
        d[k] -= box_ * std::round(d[k] / box_);
        square += d[k] * d[k];
      }
      if (other == atom || square >= cutoff * cutoff) {
        continue;
      }
      const double sixth = 1 / (square * square * square);
      potential_ += 4 * sixth * (sixth - 1);
      for (std::size_t k = 0; k < 3; ++k) {
        force[k] += 24 * sixth * (2 * sixth - 1) / square * d[k];
      }
    }
  }

  double box_;
  int cells_, all_, first_, count_;
  std::vector<Vector> positions_;            // of all atoms
  std::vector<Vector> velocities_, forces_;  // of this rank's atoms
  std::vector<int> starts_;                  // of each rank's coordinates
  std::vector<std::vector<std::size_t>> members_;
  double potential_ = 0;
  bool has_forces_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  return run_example<Atoms>(argc, argv);
}
