#pragma once
// The test program's own operator new, which counts, and fails where a test says so.

#include <cstdint>

namespace efs::test {

/// How memory is short: one allocation fails, or that and all after it do.
enum class Shortage : std::uint8_t { once, for_good };

/// The allocation with number n from now on (1 is the next) throws std::bad_alloc in this thread.
/// One at a time.
class FailingNew {
 public:
  explicit FailingNew(std::uint64_t n, Shortage shortage = Shortage::once);
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;
  bool met() const;  // it has failed
};

/// How many allocations this thread has made so far: a measure of work that is the same on every
/// machine.
std::uint64_t allocations();

/// While it lives none fails: what a simulated kernel does is all or nothing.
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
