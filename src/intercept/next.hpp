// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The function behind a hook: the next of its name in the loader's order, which is the C library's
// or that of another preloaded library. Found at the first call. Thread-safe.

#include <dlfcn.h>

#include <atomic>
#include <cstddef>

namespace efs::intercept {

template <std::size_t length>
struct Name {
  char text[length];

  constexpr Name(const char (&from)[length]) {  // NOLINT(google-explicit-constructor)
    for (std::size_t i = 0; i < length; ++i) {
      text[i] = from[i];
    }
  }
};

template <Name name>
inline constinit std::atomic<void*> resolved{nullptr};

template <Name name, typename Function>
Function* next() {
  void* found = resolved<name>.load(std::memory_order_relaxed);
  if (found == nullptr) [[unlikely]] {
    found = dlsym(RTLD_NEXT, name.text);
    resolved<name>.store(found, std::memory_order_relaxed);
  }
  return reinterpret_cast<Function*>(found);
}

}  // namespace efs::intercept

// A hook that the C library of this machine does not have is never called.
#define EFS_NEXT(function) (::efs::intercept::next<#function, decltype(::function)>())
// Exported. `extern "C"`, and the name as programs call it.
#define EFS_HOOK extern "C" __attribute__((visibility("default")))
