#include "stage/receipt.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>

#include "base/checksum.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace efs::stage {
namespace {

/// "2026-01-31T12:00:00.123456789Z"
std::string iso_time(Nanoseconds ns) {
  const timespec t = to_timespec(ns);
  tm parts{};
  gmtime_r(&t.tv_sec, &parts);
  std::array<char, 32> seconds{};
  std::strftime(seconds.data(), seconds.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s.%09ldZ", seconds.data(), t.tv_nsec);
  return text.data();
}

std::uint64_t& counter(ReceiptTotals& totals, Action action) {
  switch (action) {
    case Action::staged_out: return totals.staged_out;
    case Action::unchanged: return totals.unchanged;
    case Action::dropped: return totals.dropped;
    case Action::skipped: return totals.skipped;
    case Action::conflict: return totals.conflict;
    case Action::not_saved: return totals.not_saved;
    case Action::failed: break;
  }
  return totals.failed;
}

bool left_behind(Action action) {
  return action == Action::failed || action == Action::conflict || action == Action::not_saved;
}

nlohmann::json entry_json(const ReceiptEntry& entry) {
  nlohmann::json json{{"path", entry.path},
                      {"action", name_of(entry.action)},
                      {"bytes", entry.bytes},
                      {"mtime", iso_time(entry.mtime)},
                      {"mtime_ns", entry.mtime},
                      {"seconds", entry.seconds}};
  if (entry.checksum) json["checksum"] = "xxh3:" + to_hex(*entry.checksum);
  if (!entry.reason.empty()) json["reason"] = entry.reason;
  if (!entry.evidence.empty()) json["evidence"] = entry.evidence;
  if (entry.unverified) json["unverified"] = true;
  return json;
}

Status write_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const auto part = ::write(fd, text.data() + done, text.size() - done);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return fail_errno("writing the receipt");
    done += static_cast<std::size_t>(part);
  }
  return {};
}

Status fill_partial(const std::string& partial, const std::string& text) {
  const UniqueFd fd(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) return fail_errno("creating " + partial);
  EFS_TRY(write_all(fd.get(), text));
  if (::fsync(fd.get()) != 0) return fail_errno("fsync of " + partial);
  return {};
}

void list_names(std::string& text, const Receipt& receipt, Action action, std::size_t names) {
  std::size_t listed = 0;
  std::size_t all = 0;
  for (const auto& entry : receipt.entries) {
    if (entry.action != action || ++all > names) continue;
    ++listed;
    text += std::string("  ") + name_of(action) + ": " + entry.path + (entry.reason.empty() ? "" : ": " + entry.reason) + "\n";
  }
  if (all > listed) text += "  ... and " + std::to_string(all - listed) + " more " + name_of(action) + " (all are in the receipt)\n";
}

}  // namespace

const char* name_of(Action action) {
  switch (action) {
    case Action::staged_out: return "staged-out";
    case Action::unchanged: return "unchanged";
    case Action::dropped: return "dropped";
    case Action::skipped: return "skipped";
    case Action::conflict: return "conflict";
    case Action::not_saved: return "not-saved";
    case Action::failed: break;
  }
  return "failed";
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::complete: return "complete";
    case Verdict::partial: return "partial";
    case Verdict::failed: break;
  }
  return "failed";
}

void settle(Receipt& receipt) {
  std::ranges::sort(receipt.entries, {}, &ReceiptEntry::path);
  receipt.totals = {};
  for (const auto& entry : receipt.entries) {
    ++counter(receipt.totals, entry.action);
    if (entry.action == Action::staged_out) receipt.totals.bytes_staged_out += entry.bytes;
    if (left_behind(entry.action)) receipt.totals.bytes_left += entry.bytes;
  }
  const auto& totals = receipt.totals;
  const bool lost = totals.failed + totals.conflict + totals.not_saved > 0;
  if (!receipt.reason.empty() || (lost && totals.staged_out == 0)) {
    receipt.verdict = Verdict::failed;
  } else {
    receipt.verdict = lost ? Verdict::partial : Verdict::complete;
  }
}

int exit_code(const Receipt& receipt) {
  switch (receipt.verdict) {
    case Verdict::complete: return 0;
    case Verdict::partial: return 3;
    case Verdict::failed: break;
  }
  return 1;
}

nlohmann::json to_json(const Receipt& receipt) {
  const auto& totals = receipt.totals;
  nlohmann::json json{{"format", "efs-receipt-1"},
                      {"job", receipt.job},
                      {"results_dir", receipt.results_dir},
                      {"started", iso_time(receipt.started)},
                      {"ended", iso_time(receipt.ended)},
                      {"verdict", name_of(receipt.verdict)},
                      {"totals",
                       {{"staged-out", totals.staged_out},
                        {"unchanged", totals.unchanged},
                        {"dropped", totals.dropped},
                        {"skipped", totals.skipped},
                        {"failed", totals.failed},
                        {"conflict", totals.conflict},
                        {"not-saved", totals.not_saved},
                        {"bytes_staged_out", totals.bytes_staged_out},
                        {"bytes_left", totals.bytes_left}}},
                      {"entries", nlohmann::json::array()}};
  if (!receipt.reason.empty()) json["reason"] = receipt.reason;
  if (!receipt.note.empty()) json["note"] = receipt.note;
  for (const auto& entry : receipt.entries) json["entries"].push_back(entry_json(entry));
  return json;
}

std::string describe(const Receipt& receipt, std::size_t names) {
  const auto& totals = receipt.totals;
  std::string text = receipt.job + ": stage-out " + name_of(receipt.verdict) + ": " + std::to_string(totals.staged_out) + " staged out (" +
                     format_bytes(totals.bytes_staged_out) + ") to " + (receipt.results_dir.empty() ? "nowhere" : receipt.results_dir) +
                     " in " + format_seconds(static_cast<double>(receipt.ended - receipt.started) * 1e-9) + ", " +
                     std::to_string(totals.unchanged) + " unchanged, " + std::to_string(totals.dropped) + " dropped, " +
                     std::to_string(totals.skipped) + " skipped\n";
  if (!receipt.reason.empty()) text += "  " + receipt.reason + "\n";
  for (const auto action : {Action::failed, Action::conflict, Action::not_saved, Action::dropped, Action::skipped}) {
    list_names(text, receipt, action, names);
  }
  const auto left = totals.failed + totals.conflict + totals.not_saved;
  if (left > 0) {
    text += std::to_string(left) + " results (" + format_bytes(totals.bytes_left) +
            ") are still in the buffer; remove the cause, then retry: efs stop " + receipt.job + "\n";
  }
  return text;
}

Status write_receipt(const Receipt& receipt, const std::string& path) {
  try {
    const std::string text = to_json(receipt).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    const std::string partial = path + ".efs-partial";
    Status done = fill_partial(partial, text);
    if (done && ::rename(partial.c_str(), path.c_str()) != 0) done = fail_errno("renaming " + partial);
    if (!done) {
      ::unlink(partial.c_str());
      return done;
    }
    const auto slash = path.rfind('/');
    const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::fsync(fd.get()) != 0) return fail_errno("fsync of " + directory);
    return {};
  } catch (const std::exception& exception) {
    return fail(ENOMEM, std::string("writing the receipt: ") + exception.what());
  }
}

}  // namespace efs::stage
