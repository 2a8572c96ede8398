// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Copies between a program's buffer and a mapping, either of which may be bad: the buffer by the
// program's mistake, the mapping because another process has cut the file.

#include <cstddef>
#include <cstdint>

namespace efs::intercept {

/// Copies `bytes`. False: a load or a store met SIGSEGV or SIGBUS, and an unknown part is copied.
/// The handler of fault_handler.hpp must be installed. Safe in a signal handler.
bool copy(void* to, const void* from, std::size_t bytes);

/// If `instruction` is one of copy()'s, returns where the thread goes on so that copy() returns
/// false; else 0.
std::uintptr_t after_fault(std::uintptr_t instruction);

}  // namespace efs::intercept
