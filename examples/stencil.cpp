// SPDX-License-Identifier: BSD-3-Clause
// A blast wave on moving quadrilaterals, in the manner of LULESH: energy, pressure and viscosity
// belong to the elements, positions and velocities to the nodes. The elements push their nodes, the
// nodes move, and the elements get new volumes. Explicit steps; total energy is conserved.
//
// Each rank has rows of elements; the nodes between two ranks belong to both.
#include <array>
#include <cmath>
#include <limits>

#include "options.hpp"

namespace {

constexpr double gamma_gas = 1.4;
constexpr double linear_viscosity = 0.5;
constexpr double quadratic_viscosity = 1.2;

class Blast {
 public:
  explicit Blast(int size)
      : columns_(size),
        first_(parallel::share(size).first),
        rows_(parallel::share(size).second - first_),
        all_rows_(size) {
    if (rows_ < 1) {
      throw eo::Error(EINVAL, "a rank has no row of elements. Use fewer ranks or a larger --size");
    }
    const std::size_t nodes = index(rows_ + 1, 0);
    for (auto* values : {&x_, &y_, &u_, &v_, &fx_, &fy_, &node_mass_}) {
      values->assign(nodes, 0);
    }
    const std::size_t elements = static_cast<std::size_t>(rows_ * columns_);
    for (auto* values : {&density_, &viscosity_, &mass_, &pressure_}) {
      values->assign(elements, 0);
    }
    energy_.assign(elements, 1e-6);
    corners_.resize(elements);
    start();
  }

  std::vector<Memory> memory() {
    const auto nodes = [&](const char* name, std::vector<double>& values) {
      return Memory{name, values.data(), 0, values.size(), values.size(), 1};
    };
    return {nodes("x", x_),
            nodes("y", y_),
            nodes("u", u_),
            nodes("v", v_),
            nodes("energy", energy_),
            nodes("density", density_),
            nodes("viscosity", viscosity_),
            Memory{"clock", clock_.data(), 0, clock_.size(), clock_.size(), 1}};
  }

  void step() {
    const double dt = next_dt();
    push_nodes();
    sum_shared_nodes();
    move_nodes(dt);
    update_elements(dt);
    clock_ = {clock_[0] + dt, dt};
  }

  /// Internal and kinetic energy of all ranks.
  double energy() const {
    double total = 0;
    for (std::size_t e = 0; e < energy_.size(); ++e) {
      total += mass_[e] * energy_[e];
    }
    // A row of nodes between two ranks counts for the lower one.
    for (std::size_t n = first_ > 0 ? index(1, 0) : 0; n < x_.size(); ++n) {
      total += 0.5 * node_mass_[n] * (u_[n] * u_[n] + v_[n] * v_[n]);
    }
    return parallel::sum(total);
  }

 private:
  std::size_t index(int row, int column) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns_ + 1) +
           static_cast<std::size_t>(column);
  }

  /// The nodes of an element, against the clock.
  std::array<std::size_t, 4> nodes_of(std::size_t element) const {
    const int row = static_cast<int>(element) / columns_;
    const int column = static_cast<int>(element) % columns_;
    return {index(row, column), index(row, column + 1), index(row + 1, column + 1),
            index(row + 1, column)};
  }

  double area(std::size_t element) const {
    const auto n = nodes_of(element);
    return 0.5 * ((x_[n[2]] - x_[n[0]]) * (y_[n[3]] - y_[n[1]]) -
                  (x_[n[3]] - x_[n[1]]) * (y_[n[2]] - y_[n[0]]));
  }

  void start() {
    const double width = 1.0 / columns_;
    for (int row = 0; row <= rows_; ++row) {
      for (int column = 0; column <= columns_; ++column) {
        x_[index(row, column)] = column * width;
        y_[index(row, column)] = (first_ + row) * width;
      }
    }
    for (std::size_t e = 0; e < mass_.size(); ++e) {
      density_[e] = 1;
      mass_[e] = area(e);
      for (const std::size_t n : nodes_of(e)) {
        node_mass_[n] += mass_[e] / 4;
      }
    }
    add_shared(node_mass_);
    if (first_ == 0) {
      energy_[0] = 0.25 / mass_[0];
    }
    clock_ = {0, 1e-5};
  }

  double sound(std::size_t e) const { return std::sqrt(gamma_gas * (gamma_gas - 1) * energy_[e]); }

  /// At most 10 % longer than the last step, and short against a sound wave in an element.
  double next_dt() const {
    double dt = 1.1 * clock_[1];
    for (std::size_t e = 0; e < energy_.size(); ++e) {
      const double speed = sound(e) + 4 * std::sqrt(viscosity_[e] / density_[e]);
      dt = std::min(dt, 0.25 * std::sqrt(area(e)) / (speed + 1e-12));
    }
    return parallel::minimum(dt);
  }

  /// Pressure and viscosity push the four nodes of each element outwards.
  void push_nodes() {
    std::fill(fx_.begin(), fx_.end(), 0);
    std::fill(fy_.begin(), fy_.end(), 0);
    for (std::size_t e = 0; e < energy_.size(); ++e) {
      pressure_[e] = (gamma_gas - 1) * density_[e] * std::max(energy_[e], 0.0);
      const double push = 0.5 * (pressure_[e] + viscosity_[e]);
      const auto n = nodes_of(e);
      for (std::size_t k = 0; k < 4; ++k) {
        const std::size_t after = n[(k + 1) % 4];
        const std::size_t before = n[(k + 3) % 4];
        corners_[e][2 * k] = push * (y_[after] - y_[before]);
        corners_[e][2 * k + 1] = push * (x_[before] - x_[after]);
        fx_[n[k]] += corners_[e][2 * k];
        fy_[n[k]] += corners_[e][2 * k + 1];
      }
    }
  }

  void add_shared(std::vector<double>& values) const {
    // Even ranks first talk to the rank above, odd ranks to the rank below.
    for (int turn = 0; turn < 2; ++turn) {
      const bool above = (parallel::rank() + turn) % 2 == 0;
      if (above && first_ + rows_ < all_rows_) {
        parallel::add_neighbour(&values[index(rows_, 0)], columns_ + 1, parallel::rank() + 1);
      } else if (!above && first_ > 0) {
        parallel::add_neighbour(values.data(), columns_ + 1, parallel::rank() - 1);
      }
    }
  }

  void sum_shared_nodes() {
    add_shared(fx_);
    add_shared(fy_);
  }

  /// The walls hold the normal velocity at 0. Energy changes by force times mean velocity.
  void move_nodes(double dt) {
    const std::vector<double> u = u_;
    const std::vector<double> v = v_;
    for (int row = 0; row <= rows_; ++row) {
      for (int column = 0; column <= columns_; ++column) {
        const std::size_t n = index(row, column);
        const bool side = column == 0 || column == columns_;
        const bool end = first_ + row == 0 || first_ + row == all_rows_;
        u_[n] = side ? 0 : u[n] + dt * fx_[n] / node_mass_[n];
        v_[n] = end ? 0 : v[n] + dt * fy_[n] / node_mass_[n];
        x_[n] += dt * 0.5 * (u[n] + u_[n]);
        y_[n] += dt * 0.5 * (v[n] + v_[n]);
      }
    }
    for (std::size_t e = 0; e < energy_.size(); ++e) {
      const auto n = nodes_of(e);
      double work = 0;
      for (std::size_t k = 0; k < 4; ++k) {
        work += corners_[e][2 * k] * 0.5 * (u[n[k]] + u_[n[k]]) +
                corners_[e][2 * k + 1] * 0.5 * (v[n[k]] + v_[n[k]]);
      }
      energy_[e] -= dt * work / mass_[e];
    }
  }

  /// New densities; viscosity where an element shrinks.
  void update_elements(double dt) {
    for (std::size_t e = 0; e < energy_.size(); ++e) {
      const double now = area(e);
      const double before = mass_[e] / density_[e];
      const double closing = std::sqrt(now) * (before - now) / (now * dt);
      density_[e] = mass_[e] / now;
      viscosity_[e] = closing > 0 ? density_[e] * closing *
                                        (quadratic_viscosity * closing +
                                         linear_viscosity * std::sqrt(std::max(energy_[e], 0.0)))
                                  : 0;
    }
  }

  int columns_, first_, rows_, all_rows_;
  std::vector<double> x_, y_, u_, v_, fx_, fy_, node_mass_;             // nodes
  std::vector<double> energy_, density_, viscosity_, mass_, pressure_;  // elements
  std::vector<std::array<double, 8>> corners_;                          // forces
  std::array<double, 2> clock_{};                                       // time and last step
};

}  // namespace

int main(int argc, char** argv) {
  return run_example<Blast>(argc, argv);
}
