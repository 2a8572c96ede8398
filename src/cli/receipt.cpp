// SPDX-License-Identifier: BSD-3-Clause
// efs receipt: shows a receipt, or compares it with the files on the PFS or with another receipt.

#include <atomic>
#include <iostream>
#include <map>
#include <string_view>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/colour.hpp"
#include "cli/find_receipt.hpp"
#include "stage/export/receipt_check.hpp"
#include "stage/export/receipt_reader.hpp"

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

namespace {

using stage::Action;
using stage::Receipt;
using stage::ReceiptEntry;

bool is_asked_for(const ReceiptEntry& entry, const ReceiptArguments& wanted) {
  const bool is_left = entry.action == Action::failed || entry.action == Action::conflict ||
                       entry.action == Action::not_saved;
  return (wanted.failed && is_left) || (wanted.dropped && entry.action == Action::dropped) ||
         (wanted.replaced && entry.replaced);
}

Json json_of(const ReceiptEntry& entry) {
  Json json{{"path", entry.path}, {"action", name_of(entry.action)}, {"bytes", entry.bytes}};
  if (!entry.reason.empty()) {
    json["reason"] = entry.reason;
  }
  return json;
}

void list_wanted(World& world, const Receipt& receipt, const ReceiptArguments& wanted,
                 Json& document) {
  document["entries"] = Json::array();
  for (const auto& entry : receipt.entries) {
    if (!is_asked_for(entry, wanted)) {
      continue;
    }
    if (world.json) {
      document["entries"].push_back(json_of(entry));
    } else {
      world.out << escaped(entry.path) << ": " << painted(name_of(entry.action), world.colour)
                << (entry.replaced ? ", replaced" : "") << ", " << format_bytes(entry.bytes)
                << (entry.reason.empty() ? "" : ": " + printable(entry.reason)) << "\n";
    }
  }
}

// A result that an earlier, failed stage-out of the same job had exported is a result like others.
Action outcome_of(const ReceiptEntry& entry) {
  return entry.action == Action::kept ? Action::staged_out : entry.action;
}

// Returns the way in which the results differ; "" if they agree. The time of the copy is not
// compared.
std::string difference_of(const ReceiptEntry& a, const ReceiptEntry& b) {
  if (outcome_of(a) != outcome_of(b)) {
    return std::string(name_of(outcome_of(a))) + " -> " + name_of(outcome_of(b));
  }
  if (a.bytes != b.bytes) {
    return std::to_string(a.bytes) + " -> " + std::to_string(b.bytes) + " bytes";
  }
  if (a.checksum && b.checksum && *a.checksum != *b.checksum) {
    return "other content: " + to_text(*a.checksum) + " -> " + to_text(*b.checksum);
  }
  return a.placed_as == b.placed_as ? "" : "placed as " + a.placed_as + " -> " + b.placed_as;
}

Json differences_of(const Receipt& a, const Receipt& b) {
  std::map<std::string_view, const ReceiptEntry*> before;
  for (const auto& entry : a.entries) {
    before.emplace(entry.path, &entry);
  }
  Json all = Json::array();
  for (const auto& entry : b.entries) {
    const auto found = before.find(entry.path);
    if (found == before.end()) {
      all.push_back({{"path", entry.path}, {"change", "added"}});
      continue;
    }
    if (const auto text = difference_of(*found->second, entry); !text.empty()) {
      all.push_back({{"path", entry.path}, {"change", "changed"}, {"text", text}});
    }
    before.erase(found);
  }
  for (const auto& [path, entry] : before) {
    all.push_back({{"path", entry->path}, {"change", "removed"}});
  }
  return all;
}

int compare_receipts(World& world, const std::vector<std::string>& paths) {
  const auto a = stage::read_receipt(paths.at(0));
  const auto b = stage::read_receipt(paths.at(1));
  if (!a || !b) {
    return report(world, a ? b.error() : a.error());
  }
  const Json all = differences_of(*a, *b);
  const int code = all.empty() ? exit_good : exit_some_failed;
  if (world.json) {
    print_document(world, {{"ok", code == 0}, {"exit", code}, {"differences", all}});
    return code;
  }
  for (const auto& one : all) {
    const std::string change = one.value("change", "");
    world.out << (change == "added"     ? "+ "
                  : change == "removed" ? "- "
                                        : "~ ")
              << escaped(one.value("path", ""))
              << (one.contains("text") ? ": " + escaped(one.value("text", "")) : "") << "\n";
  }
  world.out << all.size() << " of the files in the receipts differ\n";
  return code;
}

}  // namespace

int show_receipt(World& world, const ReceiptArguments& arguments) {
  if (!arguments.verify.empty()) {
    return verify_receipt(world, arguments.verify);
  }
  if (!arguments.diff.empty()) {
    return compare_receipts(world, arguments.diff);
  }
  const auto found = find_receipt(arguments.which);
  if (!found) {
    return report(world, found.error());
  }
  const Receipt& receipt = found->receipt;
  Json document{{"ok", true}, {"exit", exit_good}, {"receipt", found->path}};
  if (arguments.failed || arguments.dropped || arguments.replaced) {
    list_wanted(world, receipt, arguments, document);
  } else {
    document["summary"] = stage::describe(receipt);
    if (!world.json) {
      world.out << painted_lines(stage::describe(receipt), stage::name_of(receipt.verdict),
                                 world.colour);
    }
  }
  if (world.json) {
    print_document(world, document);
  }
  return exit_good;
}

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
