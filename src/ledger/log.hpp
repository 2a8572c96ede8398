// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A ledger whose events outlive the process.

#include <functional>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "ledger/ledger.hpp"

namespace efs::ledger {

/// Thread-safe.
class Log {
 public:
  virtual ~Log() = default;

  /// Calls `look` with the present ledger, which does not change meanwhile.
  virtual void read(const std::function<void(const Ledger&)>& look) const = 0;

  /// Appends the events that `make` returns for the present ledger; no other event comes between.
  /// On return they survive the process; sync() makes them survive power loss. After an error this
  /// process still knows them. A later process is unsure of files that have appeared `since` then;
  /// nullopt: such a loss leaves no file whose origin is unclear.
  virtual Status append(const std::function<std::vector<Event>(const Ledger&)>& make,
                        std::optional<Nanoseconds> since) = 0;

  /// Makes all events durable. Tries failed ones again.
  virtual Status sync() = 0;
};

}  // namespace efs::ledger
