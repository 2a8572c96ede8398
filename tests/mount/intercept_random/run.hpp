// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One run: the model, the real files and descriptors, and the random steps that change both.

#include <array>
#include <deque>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model.hpp"
#include "outsider.hpp"

namespace efs::intercept_random {

/// One thread. A difference prints the seed, the last steps and both results, and exits with 1.
class Run {
 public:
  Run(std::string directory, std::uint64_t seed, Outsider& outsider);

  void steps(int count);
  /// Compares every file with the model: by the C library, by a mapping, and from outside.
  void check_all();
  /// Closes and removes everything.
  void finish();

 private:
  using Rng = std::mt19937_64;

  struct Kind {
    int weight;
    void (Run::*step)();
  };

  static const std::vector<Kind>& kinds();

  // Reads and writes (steps_io.cpp)
  void pread_once();
  void pwrite_once();
  void read_once();
  void write_once();
  void readv_once();
  void writev_once();
  void preadv_once();
  void pwritev_once();
  void burst();
  void seek();
  void resize_open();
  void sync();
  void look_at_size();
  void raw_pread();
  void by_syscall();
  void bad_pointer();
  void in_thread();
  void map_new();
  void map_load();
  void map_store();
  void map_end();
  void send_file();
  // Descriptors, names and processes (steps_descriptors.cpp)
  void open_one();
  void close_one();
  void dup_one();
  void dup_onto();
  void dup_by_fcntl();
  void change_flags();
  void close_range_one();
  void write_by_stream();
  void read_by_stream();
  void unlink_or_rename();
  void truncate_by_name();
  void fork_one();
  void exec_one();
  void outsider_reads();
  void outsider_writes();
  void outsider_truncates();
  void pass_descriptor();

  // run.cpp
  std::size_t pick(std::size_t below);
  bool chance(int percent);
  std::size_t some_size();
  std::size_t some_offset(const File& file);
  Bytes some_bytes(std::size_t count);
  Slot* some_slot();                                  // null: there is none
  Slot* some_slot(bool (Description::*can)() const);  // null: none of some that can
  // A write at the slot's offset, or an append, leaves the file smaller than Outsider::largest.
  static bool may_grow(const Slot& slot);
  int some_name();  // -1: no file has a name
  int lowest_free() const;
  // Checks the number of a new descriptor: the lowest that is free. The library may have one of its
  // own there since the last call.
  int check_new(long got, int expected);
  void add_slot(Slot slot);
  void check(long got, long expected);
  void check_bytes(std::span<const std::uint8_t> got, std::span<const std::uint8_t> expected);
  template <typename... Parts>
  void say(const Parts&... parts);
  [[noreturn]] void differ(const std::string& what);
  void one_step();

  std::string directory_;
  std::vector<std::string> paths_;
  std::uint64_t seed_;
  Rng rng_;
  Outsider& outsider_;
  std::array<std::shared_ptr<File>, file_names> names_;
  std::vector<Slot> slots_;
  std::vector<Mapping> mappings_;
  std::set<int> foreign_;  // descriptors that were open before
  std::deque<std::string> log_;
  // False: the steps change the model alone, as a forked child has done it with the files.
  bool is_real_ = true;
  bool is_child_ = false;
  Slot* burst_ = nullptr;  // during a burst: its descriptor
  int step_ = 0;
  Bytes buffer_;
};

/// As of a system call of the C library: -errno on failure.
long result_of(long returned);

template <typename... Parts>
void Run::say(const Parts&... parts) {
  std::string text = std::to_string(step_) + (is_child_ ? " child:" : is_real_ ? ":" : " model:");
  const auto add = [&](const auto& part) {
    text += ' ';
    if constexpr (std::is_convertible_v<decltype(part), std::string_view>) {
      text += part;
    } else {
      text += std::to_string(part);
    }
  };
  (add(parts), ...);
  log_.push_back(std::move(text));
  if (log_.size() > 60) {
    log_.pop_front();
  }
}

}  // namespace efs::intercept_random
