// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints by libpmem, in a file that is mapped at a path of the file system itself: with DAX,
// the mapping is the persistent memory.
#pragma once

#include <libpmem.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint.hpp"
#include "parallel.hpp"

/// A file for each rank, with room for two checkpoints. A step is in the file when its checkpoint
/// is whole, so the newer one stays while the older one is overwritten.
class MappedFile : public Checkpoints {
 public:
  MappedFile(const std::string& directory, std::vector<Memory> memory)
      : memory_(std::move(memory)) {
    std::filesystem::create_directories(directory);
    const std::string path = directory + "/mapped.rank" + std::to_string(parallel::rank());
    const std::size_t wanted = page + 2 * slot_bytes();
    int is_pmem = 0;
    address_ = static_cast<char*>(
        ::pmem_map_file(path.c_str(), wanted, PMEM_FILE_CREATE, 0666, &size_, &is_pmem));
    if (address_ == nullptr) {
      throw std::system_error(errno, std::generic_category(), "checkpoint by libpmem");
    }
    // pmem_persist() on other memory would persist nothing.
    flushes_ = is_pmem != 0;
  }

  ~MappedFile() override { ::pmem_unmap(address_, size_); }

  void save(std::uint64_t step) override {
    const int slot = steps()[0] <= steps()[1] ? 0 : 1;
    set_step(slot, 0);
    char* to = data_of(slot);
    for (const Memory& memory : memory_) {
      std::memcpy(to, memory.data, bytes_of(memory));
      persist(to, bytes_of(memory));
      to += padded(bytes_of(memory));
    }
    set_step(slot, step);
    // Every rank has this checkpoint before one overwrites an older one.
    parallel::sum(std::uint64_t{1});
  }

  std::optional<std::uint64_t> restore() override {
    const std::uint64_t newest = std::max(steps()[0], steps()[1]);
    const auto common = static_cast<std::uint64_t>(parallel::minimum(static_cast<double>(newest)));
    if (common == 0) {
      return std::nullopt;
    }
    const int slot = steps()[0] == common ? 0 : 1;
    if (steps()[1 - slot] > common) {
      set_step(1 - slot, 0);  // other ranks do not have it
    }
    const char* from = data_of(slot);
    for (const Memory& memory : memory_) {
      std::memcpy(memory.data, from, bytes_of(memory));
      from += padded(bytes_of(memory));
    }
    return common;
  }

 private:
  static constexpr std::size_t page = 4096;

  static std::size_t bytes_of(const Memory& memory) {
    return memory.rows * memory.columns * sizeof(double);
  }

  /// Objects begin at lines of the cache.
  static std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  std::size_t slot_bytes() const {
    std::size_t bytes = 0;
    for (const Memory& memory : memory_) {
      bytes += padded(bytes_of(memory));
    }
    return (bytes + page - 1) / page * page;
  }

  /// The steps of the two checkpoints, at the head of the file; 0: none.
  std::uint64_t* steps() const { return reinterpret_cast<std::uint64_t*>(address_); }

  char* data_of(int slot) const {
    return address_ + page + static_cast<std::size_t>(slot) * slot_bytes();
  }

  void persist(const void* from, std::size_t bytes) const {
    if (flushes_) {
      ::pmem_persist(from, bytes);
    } else if (::pmem_msync(from, bytes) != 0) {
      throw std::system_error(errno, std::generic_category(), "checkpoint by libpmem");
    }
  }

  void set_step(int slot, std::uint64_t step) const {
    // One store: a process that dies leaves the old value or the new one.
    __atomic_store_n(&steps()[slot], step, __ATOMIC_RELEASE);
    persist(&steps()[slot], sizeof step);
  }

  std::vector<Memory> memory_;
  char* address_ = nullptr;
  std::size_t size_ = 0;
  bool flushes_ = false;
};
