// SPDX-License-Identifier: BSD-3-Clause
// efs receipt --verify: compares the files on the PFS with a receipt.

#include <atomic>
#include <iostream>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "stage/export/receipt_check.hpp"

namespace efs::cli {
namespace {

Json json_of(const std::string& receipt, const stage::ReceiptCheck& check) {
  Json differences = Json::array();
  for (const auto& one : check.differences) {
    differences.push_back({{"path", one.path}, {"reason", one.reason}});
  }
  const int code = check.differences.empty() ? exit_good : exit_some_failed;
  return {{"ok", code == 0},
          {"exit", code},
          {"receipt", receipt},
          {"job", check.job},
          {"results_dir", check.results_dir},
          {"verified", check.verified},
          {"unchecked", check.unchecked},
          {"different", std::move(differences)}};
}

}  // namespace

int verify_receipt(World& world, const std::string& receipt) {
  const std::atomic<bool> never = false;
  const auto check = stage::check_receipt(receipt, stage::posix_pfs(), never);
  if (!check) {
    return report(world, check.error());
  }
  const bool good = check->differences.empty();
  if (world.json) {
    print_document(world, json_of(receipt, *check));
    return good ? exit_good : exit_some_failed;
  }
  auto& out = good ? world.out : world.err;
  for (const auto& one : check->differences) {
    out << escaped(one.path) << ": " << printable(one.reason) << "\n";
  }
  out << escaped(check->job) << ": " << check->verified << " results in "
      << escaped(check->results_dir) << " are as the receipt says, " << check->differences.size()
      << " are not, " << check->unchecked << " have no checksum\n";
  return good ? exit_good : exit_some_failed;
}

}  // namespace efs::cli
