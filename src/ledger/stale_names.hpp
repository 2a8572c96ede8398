// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Names on the PFS that other files have by now. The record of a file that was imported or exported
// under such a name is stale: the file would wrongly count as clean if it got the name back.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "ledger/file_entry.hpp"

namespace efs::ledger {

/// Which records of a file a name on the PFS concerns: its imports, or its imports and exports.
enum class Side : std::uint8_t { inputs, both };

/// A name on the PFS that another file gets.
struct PfsName {
  std::string path;
  // the present version; nullopt: the name is about to get a new version
  std::optional<FileVersion> version{};
  // the file of the version, because the name may lead to another file by now; 0: the file that has
  // the name
  std::uint64_t by = 0;
};

/// Maps a name of the buffer to the name in results-dir. Empty: the names are equal.
using ResultName = std::function<std::string(const std::string&)>;

/// The names in a file's entry that are stale.
struct StaleNames {
  std::vector<std::string> imported, exported;

  bool empty() const { return imported.empty() && exported.empty(); }
};

/// The names on the PFS that other files have by now. Borrows the arguments.
class TakenNames {
 public:
  TakenNames(std::span<const PfsName> names, Side side, const ResultName& called);

  /// `leads_to`: true if the name of the buffer leads to the file `id`. It is called only for names
  /// that were taken. A search over all files calls this for each of them: it allocates nothing for
  /// another name.
  StaleNames stale(std::uint64_t id, const FileEntry& entry,
                   const std::function<bool(const std::string& name)>& leads_to) const;

  /// Adds the names on the PFS to `failed`, with the error.
  void add(const StaleNames& names, const Error& error, std::map<std::string, Error>& failed) const;

 private:
  std::unordered_map<std::string_view, const PfsName*> names_;
  Side side_;
  const ResultName& called_;
};

}  // namespace efs::ledger
