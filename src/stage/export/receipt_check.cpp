// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/receipt_check.hpp"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

#include "stage/copy/transfer.hpp"
#include "stage/export/receipt_reader.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

constexpr std::uint64_t read_size = 4U << 20U;  // bytes at a time

/// The path of the result below results_dir. If on-conflict or existing gave the result another
/// name, placed_as is that name without its directory.
std::string place_of(const ReceiptEntry& entry, const std::string& job) {
  if (entry.placed_as.empty()) {
    return entry.path;
  }
  const bool is_beside = !entry.placed_as.contains('/') && entry.placed_as.contains(".efs-" + job);
  return is_beside ? join(parent_of(entry.path), entry.placed_as) : entry.placed_as;
}

/// The files below results_dir, of which `top` is open.
struct ResultFiles {
  PfsIo& pfs;
  PfsRef top{};
  Scratch& scratch;
  const std::atomic<bool>& cancel;
};

/// Why the file differs from the result; "" if it is equal.
std::string difference_of(const ReceiptEntry& entry, const std::string& place,
                          const ResultFiles& files) {
  auto& pfs = files.pfs;
  const auto file = pfs.open_beneath(files.top, place, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!file) {
    return "cannot be opened: " + describe(file.error());
  }
  const auto attributes = pfs.fstat(*file);
  if (!attributes) {
    return "cannot be read: " + describe(attributes.error());
  }
  if (!S_ISREG(attributes->st_mode)) {
    return "is not a regular file";
  }
  const auto size = static_cast<std::uint64_t>(attributes->st_size);
  if (entry.bytes != 0 && size != entry.bytes) {
    return "has " + std::to_string(size) + " bytes instead of " + std::to_string(entry.bytes);
  }
  const auto sum =
      hash_data(PfsContent(pfs, *file), size, entry.checksum->kind, files.scratch, files.cancel);
  if (!sum) {
    return "cannot be read: " + describe(sum.error());
  }
  if (*sum == *entry.checksum) {
    return {};
  }
  return "has other content: " + to_text(*sum) + " instead of " + to_text(*entry.checksum);
}

/// For a result whose entry has a checksum, perhaps of an unknown kind.
void check_result(const ReceiptEntry& entry, const ResultFiles& files, ReceiptCheck& check) {
  const std::string place = place_of(entry, check.job);
  std::string reason = "has a checksum of a kind that this version of efs does not know";
  if (entry.checksum) {
    reason = difference_of(entry, place, files);
  }
  if (reason.empty()) {
    ++check.verified;
  } else {
    check.differences.push_back({place, std::move(reason)});
  }
}

bool is_back(Action action) {
  return action == Action::staged_out || action == Action::kept || action == Action::unchanged;
}

}  // namespace

Result<ReceiptCheck> check_receipt(const std::string& path, PfsIo& pfs,
                                   const std::atomic<bool>& cancel) try {
  const auto json = read_receipt_document(path);
  if (!json) {
    return std::unexpected(json.error());
  }
  ReceiptCheck check{.job = json->at("job"), .results_dir = json->at("results_dir")};
  Scratch scratch(read_size);
  const auto top = pfs.open(no_directory, check.results_dir, passage_flags);
  if (!top) {
    return fail(top.error().code, check.results_dir + ": " + describe(top.error()));
  }
  const ResultFiles files{.pfs = pfs, .top = *top, .scratch = scratch, .cancel = cancel};
  for (const auto& line : json->at("entries")) {
    if (cancel) {
      return fail(ECANCELED, "cancelled");
    }
    const auto entry = entry_of(line);
    if (!entry) {
      return fail(EPROTO, path + ": has an entry that this version of efs cannot read");
    }
    if (!is_back(entry->action)) {
      continue;
    }
    if (!entry->checksum && !line.contains("checksum")) {
      ++check.unchecked;
    } else {
      check_result(*entry, files, check);
    }
  }
  return check;
} catch (const nlohmann::json::exception&) {
  return fail(EPROTO, path + ": is not a receipt of efs");
}

}  // namespace efs::stage
