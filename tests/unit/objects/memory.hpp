// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Protected memory for the tests of checkpoints.

#include <sys/mount.h>
#include <sys/stat.h>

#include "unit/objects/arrays.hpp"

namespace efs::objects_test {

/// Four protected arrays of a store: large, odd (not a multiple of a page, not aligned), small and
/// empty.
class Memory {
 public:
  explicit Memory(eo_storage* store, std::size_t large = 1U << 20U)
      : large_(large), odd_(large / 2 + 13), small_(60) {
    const auto protect = [&](const char* name, const eo_array& array) {
      INFO(eo_error());
      REQUIRE(eo_protect(store, name, &array) == 0);
    };
    protect("large", array_of("<i4", {large_.size()}, EO_C_ORDER, large_.data()));
    protect("odd", array_of("<i4", {odd_.size() - 1}, EO_C_ORDER, odd_.data() + 1));
    protect("sub/small", array_of("<i4", {20, 3}, EO_C_ORDER, small_.data()));
    protect("empty", array_of("<f8", {0, 3}));
  }

  /// The element i in state n: each element and each state has its own.
  static std::int32_t value(int n, std::size_t i) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(i) * 2654435761U) ^ (n << 20);
  }

  void fill(int n) {
    each([n](std::int32_t& element, std::size_t i) {
      element = value(n, i);
      return true;
    });
  }

  bool has(int n) {
    return each([n](std::int32_t element, std::size_t i) { return element == value(n, i); });
  }

  std::vector<std::int32_t>& large() { return large_; }

  std::uint64_t bytes() const { return 4 * (large_.size() + odd_.size() + small_.size()); }

 private:
  /// Calls visit(element, index) for each element that is protected, until it returns false.
  template <typename Visit>
  bool each(Visit visit) {
    for (auto* const array : {&large_, &odd_, &small_}) {
      for (std::size_t i = array == &odd_ ? 1 : 0; i < array->size(); ++i) {
        if (!visit((*array)[i], i)) {
          return false;
        }
      }
    }
    return true;
  }

  std::vector<std::int32_t> large_;
  std::vector<std::int32_t> odd_;
  std::vector<std::int32_t> small_;
};

/// A tmpfs of a given size. Only root can mount one.
class SizedTmpfs {
 public:
  explicit SizedTmpfs(const char* options) {
    mounted_ = ::mount("efs-test", directory_.path().c_str(), "tmpfs", 0, options) == 0;
  }

  SizedTmpfs(const SizedTmpfs&) = delete;
  SizedTmpfs& operator=(const SizedTmpfs&) = delete;

  ~SizedTmpfs() {
    if (mounted_) {
      ::umount2(directory_.path().c_str(), MNT_DETACH);
    }
  }

  bool mounted() const { return mounted_; }

  const std::string& path() const { return directory_.path(); }

 private:
  TempDirectory directory_;
  bool mounted_ = false;
};

/// Returns the bytes of storage that the drafts directly below a directory have.
inline std::uint64_t bytes_in_drafts(const std::string& path) {
  std::uint64_t bytes = 0;
  std::error_code error;  // the program that is observed renames and removes
  for (std::filesystem::directory_iterator entry(path, error); !error && entry != end(entry);
       entry.increment(error)) {
    struct stat status{};
    if (entry->path().extension() == ".part" && ::stat(entry->path().c_str(), &status) == 0) {
      bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
    }
  }
  return bytes;
}

/// Waits until a child ends; returns true if its exit code is 0.
inline bool succeeds(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace efs::objects_test
