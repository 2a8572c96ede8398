// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/receipt.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/checksum.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"
#include "stage/export/partial.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {
namespace {

/// "2026-01-31T12:00:00.123456789Z"
// Formats by hand for speed: a receipt may have a million times.
void append_digits(std::string& text, std::int64_t number, std::size_t width, char behind) {
  const std::size_t begin = text.size();
  text.append(width, '0').push_back(behind);
  for (std::size_t at = begin + width; at > begin && number > 0; number /= 10) {
    text[--at] = static_cast<char>('0' + number % 10);
  }
}

std::string iso_time(Nanoseconds ns) {
  const timespec t = to_timespec(ns);
  const std::chrono::sys_seconds moment{std::chrono::seconds(t.tv_sec)};
  const auto day = std::chrono::floor<std::chrono::days>(moment);
  const std::chrono::year_month_day date{day};
  const std::chrono::hh_mm_ss clock{moment - day};
  std::string text = int(date.year()) < 0 ? "-" : "";
  append_digits(text, std::abs(int(date.year())), 4, '-');
  append_digits(text, unsigned(date.month()), 2, '-');
  append_digits(text, unsigned(date.day()), 2, 'T');
  append_digits(text, clock.hours().count(), 2, ':');
  append_digits(text, clock.minutes().count(), 2, ':');
  append_digits(text, clock.seconds().count(), 2, '.');
  append_digits(text, t.tv_nsec, 9, 'Z');
  return text;
}

std::uint64_t& counter(ReceiptTotals& totals, Action action) {
  switch (action) {
    case Action::staged_out: return totals.staged_out;
    case Action::unchanged: return totals.unchanged;
    case Action::kept: return totals.kept;
    case Action::dropped: return totals.dropped;
    case Action::skipped: return totals.skipped;
    case Action::conflict: return totals.conflict;
    case Action::not_saved: return totals.not_saved;
    case Action::removed: return totals.removed;
    case Action::failed: break;
  }
  return totals.failed;
}

bool left_behind(Action action) {
  return action == Action::failed || action == Action::conflict || action == Action::not_saved;
}

void count_entry(ReceiptTotals& totals, const ReceiptEntry& entry) {
  ++counter(totals, entry.action);
  if (entry.action == Action::staged_out) {
    totals.bytes_staged_out += entry.bytes;
  }
  if (!left_behind(entry.action) && entry.replaced) {
    ++totals.replaced;
  }
  if (left_behind(entry.action)) {
    totals.bytes_left += entry.bytes;
  }
}

/// Except for missing time.
bool has_cause(const Receipt& receipt) {
  return !receipt.reason.empty() ||
         std::ranges::any_of(receipt.entries, [](const ReceiptEntry& entry) {
           return left_behind(entry.action) && entry.code != ECANCELED;
         });
}

/// Appends JSON. Plain text needs no escaping; the library formats all other text.
class JsonText {
 public:
  explicit JsonText(std::string& text) : text_(text) {}

  void string(const char* key, std::string_view value) {
    name(key);
    const auto plain = [](char c) {
      return c >= ' ' && c <= '~' && c != '"' && c != '\\';
    };
    if (std::ranges::all_of(value, plain)) {
      text_.append("\"").append(value).append("\"");
    } else {
      text_ += json_to_text(nlohmann::json(value));
    }
  }

  template <typename Number>
  void number(const char* key, Number value) {
    name(key);
    std::array<char, 40> digits{};
    text_.append(digits.data(),
                 std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
  }

  void boolean(const char* key, bool value) {
    name(key);
    text_ += value ? "true" : "false";
  }

  void document(const char* key, const nlohmann::json& value) {
    name(key);
    text_ += json_to_text(value);
  }

  void begin(const char* key, char bracket) {
    if (key != nullptr) {
      name(key);
    } else if (!first_) {
      text_ += ", ";
    }
    text_ += bracket;
    first_ = true;
  }

  void end(char bracket) {
    text_ += bracket;
    first_ = false;
  }

 private:
  void name(const char* key) {
    if (!first_) {
      text_ += ", ";
    }
    first_ = false;
    text_.append("\"").append(key).append("\": ");
  }

  std::string& text_;
  bool first_ = true;
};

void append_entry(std::string& text, const ReceiptEntry& entry) {
  JsonText json(text);
  json.begin(nullptr, '{');
  json.string("path", entry.path);
  json.string("action", name_of(entry.action));
  json.number("bytes", entry.bytes);
  json.string("mtime", iso_time(entry.mtime));
  json.number("mtime_ns", entry.mtime);
  json.number("seconds", entry.seconds);
  if (entry.checksum) {
    json.string("checksum", to_text(*entry.checksum));
  }
  if (!entry.placed_as.empty()) {
    json.string("placed_as", entry.placed_as);
  }
  if (!entry.reason.empty()) {
    json.string("reason", entry.reason);
  }
  if (!entry.evidence.empty()) {
    json.string("evidence", entry.evidence);
  }
  if (entry.replaced) {
    json.boolean("replaced", true);
  }
  if (entry.unverified) {
    json.boolean("unverified", true);
  }
  if (entry.unreadable) {
    json.boolean("unreadable", true);
  }
  json.end('}');
}

void append_totals(JsonText& json, const ReceiptTotals& totals) {
  json.begin("totals", '{');
  json.number("staged-out", totals.staged_out);
  json.number("replaced", totals.replaced);
  json.number("unchanged", totals.unchanged);
  json.number("kept", totals.kept);
  json.number("dropped", totals.dropped);
  json.number("skipped", totals.skipped);
  json.number("failed", totals.failed);
  json.number("conflict", totals.conflict);
  json.number("not-saved", totals.not_saved);
  if (totals.removed > 0) {
    json.number("removed", totals.removed);
  }
  json.number("bytes_staged_out", totals.bytes_staged_out);
  json.number("bytes_left", totals.bytes_left);
  json.end('}');
}

void append_staged_in(JsonText& json, const StagedIn& in) {
  json.begin("staged_in", '{');
  json.number("files", in.files);
  json.number("bytes", in.bytes);
  json.number("bytes_read", in.bytes - in.bytes_reused);
  json.number("files_reused", in.files_reused);
  json.number("bytes_reused", in.bytes_reused);
  json.number("files_away", in.files_away);
  if (!in.skipped.empty()) {
    json.begin("skipped", '[');
    for (const auto& skip : in.skipped) {
      json.begin(nullptr, '{');
      json.string("path", skip.path);
      json.string("reason", skip.reason);
      if (skip.vanished) {
        json.boolean("vanished", true);
      }
      json.end('}');
    }
    json.end(']');
  }
  json.end('}');
}

/// The whole receipt, one entry a line. Built as text, because a JSON document of a million entries
/// in memory costs seconds.
std::string json_text(const Receipt& receipt) {
  std::string text;
  text.reserve(512 + receipt.entries.size() * 256);
  JsonText json(text);
  json.begin(nullptr, '{');
  json.string("format", "efs-receipt-1");
  json.string("job", receipt.job);
  json.string("results_dir", receipt.results_dir);
  json.string("started", iso_time(receipt.started));
  json.string("ended", iso_time(receipt.ended));
  json.string("verdict", name_of(receipt.verdict));
  if (!receipt.reason.empty()) {
    json.string("reason", receipt.reason);
  }
  if (!receipt.note.empty()) {
    json.string("note", receipt.note);
  }
  json.string("verify", receipt.read_back ? "read-back" : "stream");
  json.number("retries", receipt.retries);
  if (receipt.staged_in) {
    append_staged_in(json, *receipt.staged_in);
  }
  append_totals(json, receipt.totals);
  if (receipt.record) {
    json.document("record", to_json(*receipt.record));
  }
  if (receipt.unlisted > 0) {
    json.number("unlisted", receipt.unlisted);
  }
  json.begin("entries", '[');
  for (const auto& entry : receipt.entries) {
    text += &entry == receipt.entries.data() ? "\n" : ",\n";
    append_entry(text, entry);
  }
  json.end(']');
  json.end('}');
  return text;
}

Status write_all(PfsIo& pfs, PfsRef file, std::span<const std::byte> bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const auto part = pfs.write(file, bytes.subspan(done), done);
    if (!part) {
      return with_context(part.error(), "writing it");
    }
    if (*part == 0) {
      return fail(EIO, "writing it: the PFS takes no more");
    }
    done += *part;
  }
  return {};
}

/// Writes the text to the new file `file`, durably.
Result<PartialFile> fill_receipt(PfsIo& pfs, PfsRef file, const std::string& text) {
  EFS_TRY(write_all(pfs, file, std::as_bytes(std::span(text))));
  if (auto synced = pfs.fsync(file); !synced) {
    return with_context(synced.error(), "fsync");
  }
  auto now = pfs.fstat(file);
  if (!now) {
    return with_context(now.error(), "reading back its attributes");
  }
  return PartialFile{.inode = now->st_ino, .size = text.size(), .checksum = std::nullopt};
}

/// A new file with this text, and its name and partial in the directory.
struct NewText {
  const std::string& text;
  mode_t mode;
  std::string name, partial;
};

Status write_in(PfsIo& pfs, PfsRef directory, const NewText& file) {
  const std::string& partial = file.partial;
  auto made = make_afresh(pfs, directory, partial, [&] {
    return pfs.open(directory, partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, file.mode);
  });
  if (!made) {
    return with_context(made.error(), "creating its partial");
  }
  EFS_TRY(with_partial(pfs, directory, partial, [&]() -> Status {
    const auto written = fill_receipt(pfs, *made, file.text);
    if (!written) {
      *made = {};  // NFS only renames an open file when it is removed
      (void)pfs.unlink(directory, partial);
      return std::unexpected(written.error());
    }
    const fs::WalkItem none;
    return publish_partial(
        {.item = none, .directory = directory, .partial = partial, .name = file.name}, *written,
        pfs, replacing_publisher());
  }));
  if (auto synced = pfs.fsync(directory); !synced) {
    return with_context(synced.error(), "fsync of its directory");
  }
  return {};
}

Status write_new(const std::string& text, const std::string& path, mode_t mode, PfsIo& pfs,
                 std::string partial) {
  std::string name = leaf_of(path);
  const std::string parent = path.contains('/') ? path.substr(0, path.size() - name.size()) : ".";
  const auto directory = pfs.open(no_directory, parent, directory_flags);
  if (!directory) {
    return with_context(directory.error(), "opening its directory");
  }
  return write_in(
      pfs, *directory,
      {.text = text, .mode = mode, .name = std::move(name), .partial = std::move(partial)});
}

void list_names(std::string& text, const Receipt& receipt, Action action, std::size_t names) {
  std::size_t listed = 0;
  std::size_t all = 0;
  for (const auto& entry : receipt.entries) {
    if (entry.action != action || ++all > names) {
      continue;
    }
    ++listed;
    text += std::string("  ") + name_of(action) + ": " + escaped(entry.path) +
            (entry.reason.empty() ? "" : ": " + printable(entry.reason)) + "\n";
  }
  const std::uint64_t unlisted = action == Action::not_saved ? receipt.unlisted : 0;
  if (all + unlisted == listed) {
    return;
  }
  const char* in_receipt =
      unlisted > 0 ? " (the receipt names a part of them)" : " (all are in the receipt)";
  text += "  ... and " + std::to_string(all + unlisted - listed) + " more " + name_of(action);
  text += std::string(names == names_shown ? in_receipt : "") + "\n";
}

}  // namespace

const char* name_of(Action action) {
  switch (action) {
    case Action::staged_out: return "staged-out";
    case Action::unchanged: return "unchanged";
    case Action::kept: return "kept";
    case Action::dropped: return "dropped";
    case Action::skipped: return "skipped";
    case Action::conflict: return "conflict";
    case Action::not_saved: return "not-saved";
    case Action::removed: return "removed";
    case Action::failed: break;
  }
  return "failed";
}

ReceiptEntry receipt_entry(const fs::WalkItem& item, Action action, std::string reason) {
  ReceiptEntry entry;
  entry.path = item.path;
  entry.action = action;
  entry.bytes =
      S_ISREG(item.attributes.st_mode) ? static_cast<std::uint64_t>(item.attributes.st_size) : 0;
  entry.mtime = to_ns(item.attributes.st_mtim);
  entry.reason = std::move(reason);
  const bool is_input = action == Action::unchanged && item.pfs.origin.has_value();
  entry.input = is_input && S_ISREG(item.attributes.st_mode) ? item.ino : 0;
  return entry;
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::complete: return "complete";
    case Verdict::partial: return "partial";
    case Verdict::failed: break;
  }
  return "failed";
}

void add_or_count(Receipt& receipt, ReceiptEntry entry, std::size_t& not_tried, std::size_t most) {
  if (entry.action == Action::not_saved && ++not_tried > most) {
    ++receipt.unlisted;
    receipt.unlisted_bytes += entry.bytes;
    return;
  }
  receipt.entries.push_back(std::move(entry));
}

void settle(Receipt& receipt) {
  if (!std::ranges::is_sorted(receipt.entries, {}, &ReceiptEntry::path)) {
    std::ranges::sort(receipt.entries, {}, &ReceiptEntry::path);
  }
  receipt.totals = {};
  for (const auto& entry : receipt.entries) {
    count_entry(receipt.totals, entry);
  }
  receipt.totals.not_saved += receipt.unlisted;
  receipt.totals.bytes_left += receipt.unlisted_bytes;
  const auto& totals = receipt.totals;
  const bool lost = totals.failed + totals.conflict + totals.not_saved > 0;
  if (!receipt.reason.empty() || (lost && totals.staged_out + totals.kept + totals.removed == 0)) {
    receipt.verdict = Verdict::failed;
  } else {
    receipt.verdict = lost ? Verdict::partial : Verdict::complete;
  }
}

Receipt failed_receipt(const config::JobConfig& config, std::string reason) {
  Receipt receipt;
  receipt.job = config.name;
  receipt.results_dir = config.results_dir;
  receipt.reason = std::move(reason);
  receipt.started = receipt.ended = wall_clock();
  settle(receipt);
  return receipt;
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
  return json_from_text(json_text(receipt));
}

std::string entry_text(const ReceiptEntry& entry) {
  std::string text;
  append_entry(text, entry);
  return text;
}

std::optional<ReceiptEntry> entry_of(const nlohmann::json& json) try {
  ReceiptEntry entry;
  entry.path = json.at("path");
  const std::string action = json.at("action");
  for (const auto one :
       {Action::staged_out, Action::unchanged, Action::kept, Action::dropped, Action::skipped,
        Action::failed, Action::conflict, Action::not_saved, Action::removed}) {
    if (action == name_of(one)) {
      entry.action = one;
    }
  }
  entry.bytes = json.at("bytes");
  entry.mtime = json.at("mtime_ns");
  entry.seconds = json.at("seconds");
  entry.checksum = file_sum_of(json.value("checksum", ""));
  entry.placed_as = json.value("placed_as", "");
  entry.reason = json.value("reason", "");
  entry.evidence = json.value("evidence", "");
  entry.replaced = json.value("replaced", false);
  entry.unverified = json.value("unverified", false);
  entry.unreadable = json.value("unreadable", false);
  return entry;
} catch (const std::bad_alloc&) {
  throw;
} catch (const std::exception&) {
  return std::nullopt;
}

std::string describe(const Receipt& receipt, std::size_t names) {
  const auto& totals = receipt.totals;
  std::string text =
      escaped(receipt.job) + ": stage-out " + name_of(receipt.verdict) + ": " +
      std::to_string(totals.staged_out) + " staged out (" + format_bytes(totals.bytes_staged_out) +
      ") to " + (receipt.results_dir.empty() ? "nowhere" : escaped(receipt.results_dir)) +
      (totals.replaced > 0 ? " (" + std::to_string(totals.replaced) + " replaced)"
                           : std::string()) +
      " in " + format_seconds(static_cast<double>(receipt.ended - receipt.started) * 1e-9) + ", " +
      std::to_string(totals.unchanged) + " unchanged, " +
      (totals.kept > 0 ? std::to_string(totals.kept) + " kept, " : std::string()) +
      std::to_string(totals.dropped) + " dropped, " +
      (totals.removed > 0 ? std::to_string(totals.removed) + " removed, " : std::string()) +
      std::to_string(totals.skipped) + " skipped\n";
  if (!receipt.reason.empty()) {
    text += "  " + printable(receipt.reason) + "\n";
  }
  for (const auto action : {Action::failed, Action::conflict, Action::not_saved, Action::removed,
                            Action::dropped, Action::skipped}) {
    list_names(text, receipt, action, names);
  }
  const auto left = totals.failed + totals.conflict + totals.not_saved;
  const auto unreadable = count_unreadable(receipt);
  if (unreadable > 0) {
    text +=
        std::to_string(unreadable) +
        " results cannot be read from the buffer: their containers are gone or unreadable, they "
        "lack data that the buffer could not take, or power loss took their content. If you have "
        "the containers, restore them, then " +
        receipt.way_out + " " + escaped(receipt.job) + "\n";
  }
  if (left > receipt.lost + unreadable) {
    text += std::to_string(left - receipt.lost - unreadable) + " results (" +
            format_bytes(totals.bytes_left) + ") are still in the buffer; " +
            (has_cause(receipt) ? "remove the cause, then " : "") + receipt.way_out + " " +
            escaped(receipt.job) + "\n";
  }
  return text;
}

std::uint64_t count_unreadable(const Receipt& receipt) {
  const auto is_lost = [](const ReceiptEntry& entry) {
    return entry.unreadable && left_behind(entry.action);
  };
  return static_cast<std::uint64_t>(std::ranges::count_if(receipt.entries, is_lost));
}

Status write_beside_results(const std::string& text, const std::string& path, mode_t mode,
                            PfsIo& pfs, const std::string& partial_tag) {
  const std::string name = leaf_of(path);
  return write_new(text, path, mode, pfs, partial_name(name, partial_tag));
}

Status write_receipt(const Receipt& receipt, const std::string& path, PfsIo& pfs,
                     const std::string& partial_tag) {
  try {
    const std::string name = leaf_of(path);
    const bool taken = std::ranges::any_of(receipt.entries, [&](const ReceiptEntry& entry) {
      return entry.path == name + partial_tag + partial_suffix;
    });
    return write_new(json_text(receipt) + "\n", path, 0644, pfs,
                     partial_name(name, partial_tag, taken));
  } catch (const std::exception& exception) {
    return fail(ENOMEM, std::string("writing the receipt: ") + exception.what());
  }
}

}  // namespace efs::stage
