// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Arrays, stores and processes for the tests of libefs-objects.

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "objects/efs_objects.h"
#include "objects/name.hpp"
#include "support/file_text.hpp"
#include "support/temp.hpp"

namespace efs::objects_test {

using test::Sample;
using test::seed;
using test::TempDirectory;

/// A description of an array, without data.
inline eo_array array_of(std::string_view dtype, std::initializer_list<std::uint64_t> shape,
                         int order = EO_C_ORDER, void* data = nullptr) {
  eo_array array{};
  dtype.copy(array.dtype, sizeof array.dtype - 1);
  array.ndim = static_cast<int>(shape.size());
  array.order = order;
  std::copy(shape.begin(), shape.end(), array.shape);
  array.data = data;
  return array;
}

/// An open store, closed at the end.
class OpenStore {
 public:
  explicit OpenStore(const std::string& path) {
    const int error = eo_open(path.c_str(), &store_);
    INFO(eo_error());
    REQUIRE(error == 0);
  }

  OpenStore(const OpenStore&) = delete;
  OpenStore& operator=(const OpenStore&) = delete;

  ~OpenStore() { eo_close(store_); }

  operator eo_storage*() const { return store_; }

 private:
  eo_storage* store_ = nullptr;
};

/// A store in a new directory.
struct TempStore {
  explicit TempStore(const std::string& parent = "/tmp") : directory(parent), store(path()) {}

  std::string path() const { return directory.path() + "/store"; }

  TempDirectory directory;
  OpenStore store;
};

/// Returns an array of int32, all of one value.
inline std::vector<std::int32_t> filled(std::int32_t value, std::size_t count) {
  return std::vector<std::int32_t>(count, value);
}

inline int store_filled(eo_storage* store, const char* name, std::int32_t value, std::size_t count,
                        unsigned flags = 0) {
  auto data = filled(value, count);
  const eo_array array = array_of("<i4", {count}, EO_C_ORDER, data.data());
  return eo_store(store, name, &array, flags);
}

/// Returns the value of an array that store_filled() made; -1: it is missing, -2: it is torn or
/// damaged.
inline std::int32_t value_of(eo_storage* store, const char* name) {
  eo_array view{};
  const int error = eo_view(store, name, &view);
  if (error != 0) {
    return error == ENOENT ? -1 : -2;
  }
  const auto* const data = static_cast<const std::int32_t*>(view.data);
  const std::int32_t first = view.shape[0] > 0 ? data[0] : 0;
  const bool same =
      std::all_of(data, data + view.shape[0], [&](std::int32_t value) { return value == first; });
  eo_release(&view);
  return same ? first : -2;
}

inline std::vector<std::string> names_of(eo_storage* store) {
  std::vector<std::string> names;
  const auto each = [](const char* name, void* context) {
    static_cast<std::vector<std::string>*>(context)->push_back(name);
    return 0;
  };
  REQUIRE(eo_list(store, each, &names) == 0);
  return names;
}

/// Returns the draft of a version that a process of this node writes.
inline std::string draft_of(const std::string& series, std::uint64_t n) {
  return series + '/' + objects::version_draft_name(n, objects::node_mark());
}

/// Returns the files and directories of drafts below a directory.
inline std::vector<std::string> drafts_in(const std::string& path) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.path().extension() == ".part") {
      found.push_back(entry.path());
    }
  }
  return found;
}

inline std::string bytes_of(const std::string& path) {
  return test::file_text(path);
}

/// Bytes that this process has read by system calls.
inline std::uint64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string word;
  std::uint64_t bytes = 0;
  REQUIRE(file >> word >> bytes);
  REQUIRE(word == "rchar:");
  return bytes;
}

/// Returns true if the text of the last failure contains this.
inline bool error_says(std::string_view text) {
  return std::string_view(eo_error()).find(text) != std::string_view::npos;
}

inline void write_file(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<long>(content.size()));
}

/// Runs the action in a child, and kills the child at its nth stop: each system call has one before
/// and one after. Returns false if the child ended before, and then its exit code was 0.
template <typename Action>
bool killed_at(long n, Action action) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    ::_exit(action() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(::ptrace(PTRACE_SETOPTIONS, child, nullptr,
                   reinterpret_cast<void*>(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) == 0);
  while (true) {
    REQUIRE(::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) == 0);
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) {
      REQUIRE(WEXITSTATUS(status) == 0);
      return false;
    }
    REQUIRE(WIFSTOPPED(status));
    if (WSTOPSIG(status) == (SIGTRAP | 0x80) && --n == 0) {
      ::kill(child, SIGKILL);
      REQUIRE(::waitpid(child, &status, 0) == child);
      return true;
    }
  }
}

}  // namespace efs::objects_test
