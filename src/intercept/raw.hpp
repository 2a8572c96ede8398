// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// System calls without the C library: no errno, no cancellation, no hook of ours. Returns what the
// kernel returns: a result, or -errno. x86-64 only.

#include <sys/syscall.h>

#include <type_traits>

namespace efs::intercept {

inline long as_register(const volatile void* pointer) {
  return reinterpret_cast<long>(pointer);
}

template <typename T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>)
long as_register(T value) {
  return static_cast<long>(value);
}

inline long raw_call(long number, const long (&arguments)[6]) {
  const auto& [a, b, c, d, e, f] = arguments;
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

template <typename... Arguments>
long raw(long number, Arguments... arguments) {
  return raw_call(number, {as_register(arguments)...});
}

}  // namespace efs::intercept
