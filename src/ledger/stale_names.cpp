// SPDX-License-Identifier: BSD-3-Clause
#include "ledger/stale_names.hpp"

namespace efs::ledger {

TakenNames::TakenNames(std::span<const PfsName> names, Side side, const ResultName& called)
    : side_(side), called_(called) {
  for (const auto& name : names) {
    names_.emplace(name.path, &name);
  }
}

StaleNames TakenNames::stale(std::uint64_t id, const FileEntry& entry,
                             const std::function<bool(const std::string&)>& leads_to) const {
  StaleNames stale;
  const auto add = [&](std::string_view name, std::string_view on_pfs, const FileVersion& known,
                       std::vector<std::string>& to) {
    const auto taken = names_.find(on_pfs);
    if (taken == names_.end()) {
      return;
    }
    const PfsName& by = *taken->second;
    if (by.version && is_same_file(*by.version, known)) {
      return;
    }
    std::string own(name);
    if (by.by != 0 ? id != by.by : !leads_to(own)) {
      to.push_back(std::move(own));
    }
  };
  if (entry.imported) {
    entry.imported->names.for_each(
        [&](std::string_view name) { add(name, name, entry.imported->version, stale.imported); });
  }
  if (entry.exported && side_ != Side::inputs) {
    entry.exported->names.for_each([&](std::string_view name) {
      if (called_) {
        add(name, called_(std::string(name)), entry.exported->version, stale.exported);
      } else {
        add(name, name, entry.exported->version, stale.exported);
      }
    });
  }
  return stale;
}

void TakenNames::add(const StaleNames& names, const Error& error,
                     std::map<std::string, Error>& failed) const {
  for (const auto& name : names.imported) {
    failed.try_emplace(name, error);
  }
  for (const auto& name : names.exported) {
    failed.try_emplace(called_ ? called_(name) : name, error);
  }
}

}  // namespace efs::ledger
