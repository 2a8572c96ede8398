// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The test program's operator new: counts allocations, and fails when a test says so.

#include <cstdint>

namespace efs::test {

/// The kind of shortage: one allocation fails, or that one and all later ones.
enum class Shortage : std::uint8_t { once, for_good };

/// The n-th allocation of this thread from now on (1 is the next) throws std::bad_alloc. At most
/// one may exist.
class FailingNew {
 public:
  explicit FailingNew(std::uint64_t n, Shortage shortage = Shortage::once);
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;
  bool met() const;  // the allocation has failed
};

/// Returns the number of allocations of this thread so far: a measure of work that does not depend
/// on the machine.
std::uint64_t allocations();

/// During its lifetime no allocation fails: an operation of the simulated kernel must be atomic.
class SparedAllocations {
 public:
  SparedAllocations();
  ~SparedAllocations();
  SparedAllocations(const SparedAllocations&) = delete;
  SparedAllocations& operator=(const SparedAllocations&) = delete;

 private:
  const std::uint64_t left_;
};

}  // namespace efs::test
