// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The ledger of a file system: its events are records of the journal.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "ledger/log.hpp"

namespace efs::fs {

class Filesystem;

/// If the file system is opened for reading, only read() has an effect. The file system must
/// outlive it.
class LedgerLog final : public ledger::Log {
 public:
  explicit LedgerLog(Filesystem& filesystem) : filesystem_(filesystem) {}

  /// Reserves room in the journal, because the buffer may be full when results are exported. At
  /// most 1/4000 of a large buffer. Without that room an event may fail, and reports that then.
  void reserve_room();

  void read(const std::function<void(const ledger::Ledger&)>& look) const override;
  Status append(const std::function<std::vector<ledger::Event>(const ledger::Ledger&)>& make,
                std::optional<Nanoseconds> since) override;
  Status sync() override;

 private:
  Filesystem& filesystem_;
};

}  // namespace efs::fs
