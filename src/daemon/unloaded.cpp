// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/unloaded.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "base/json_text.hpp"
#include "base/text.hpp"
#include "stage/live/drop.hpp"
#include "stage/live/unload.hpp"

namespace efs::daemon {
namespace {

bool is_out(const stage::ReceiptEntry& entry) {
  return entry.action == stage::Action::staged_out || entry.action == stage::Action::kept;
}

/// Returns the first names as text; "": none.
std::string named(const std::vector<std::string>& names) {
  constexpr std::size_t most = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) {
    text += (i > 0 ? ", " : "") + escaped(names[i]);
  }
  return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more"
                             : text;
}

void complete(stage::ReceiptEntry& entry, const stage::ReceiptEntry& unloaded) {
  if (entry.action != stage::Action::unchanged && entry.action != stage::Action::dropped) {
    return;
  }
  // A later, incomplete stop may have exported another version. (A further name of a file has none
  // of its own.)
  if (entry.action == stage::Action::unchanged &&
      (entry.mtime != unloaded.mtime || (unloaded.bytes != 0 && entry.bytes != unloaded.bytes))) {
    return;
  }
  entry.reason += (entry.reason.empty() ? "" : "; ") + std::string(stage::unloaded_early) +
                  (unloaded.reason.empty() ? "" : ": " + unloaded.reason);
  entry.unverified = unloaded.unverified;
  if (!entry.checksum) {
    entry.checksum = unloaded.checksum;
  }
  if (entry.placed_as.empty()) {
    entry.placed_as = unloaded.placed_as;
  }
}

bool is_dropped(const stage::ReceiptEntry& entry) {
  return entry.action == stage::Action::kept && entry.reason == stage::dropped_by_keep;
}

/// The last entry of a path counts. That an earlier one replaced another file stays true. A drop
/// adds its reason to the entry of the export, which has the checksum.
void put(std::map<std::string, stage::ReceiptEntry>& entries, stage::ReceiptEntry entry) {
  auto& known = entries[entry.path];
  if (is_dropped(entry) && known.path == entry.path && known.bytes == entry.bytes &&
      known.mtime == entry.mtime) {
    if (!known.reason.contains(stage::dropped_by_keep)) {
      known.reason += (known.reason.empty() ? "" : "; ") + entry.reason;
    }
    return;
  }
  entry.replaced = entry.replaced || known.replaced;
  known = std::move(entry);
}

}  // namespace

void Unloaded::inherit(bool successor) {
  const MutexLock lock(mutex_);
  has_past_ = successor;
  book_.reset(::open(
      path_.c_str(),
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | (successor ? 0 : O_TRUNC), 0600));
}

void Unloaded::remember(const stage::Receipt& unloaded) {
  std::vector<stage::ReceiptEntry> out;
  std::ranges::copy_if(unloaded.entries, std::back_inserter(out), is_out);
  add(out);
}

void Unloaded::remember_dropped(const std::vector<stage::ReceiptEntry>& dropped) {
  add(dropped);
}

void Unloaded::add(const std::vector<stage::ReceiptEntry>& entries) {
  std::string lines;
  for (const auto& entry : entries) {
    lines += stage::entry_text(entry) + "\n";
  }
  const MutexLock lock(mutex_);
  for (const auto& entry : entries) {
    put(entries_, entry);
    ++lines_;
  }
  append(lines);
  if (lines_ > most_lines && lines_ / 4 > entries_.size()) {
    write_anew();
  }
}

void Unloaded::append(const std::string& lines) {
  if (book_) {
    (void)!::write(book_.get(), lines.data(), lines.size());
  }
}

// After an error the old book stays, and is tried again after as many lines.
void Unloaded::write_anew() {
  lines_ = 0;
  std::string lines;
  for (const auto& [path, entry] : all()) {
    lines += stage::entry_text(entry) + "\n";
  }
  const std::string fresh = path_ + ".new";
  UniqueFd book(::open(fresh.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  const bool is_whole =
      book && ::write(book.get(), lines.data(), lines.size()) == static_cast<ssize_t>(lines.size());
  if (is_whole && ::rename(fresh.c_str(), path_.c_str()) == 0) {
    book_ = std::move(book);
    return;
  }
  ::unlink(fresh.c_str());
}

Unloaded::Entries Unloaded::all() const {
  Entries all;
  std::ifstream lines(has_past_ ? path_ : "");
  for (std::string text; std::getline(lines, text);) {
    if (auto entry = stage::entry_of(json_from_text(text))) {
      put(all, std::move(*entry));
    }
  }
  for (const auto& [path, entry] : entries_) {
    put(all, entry);
  }
  return all;
}

void Unloaded::add_to(stage::Receipt& receipt,
                      const std::function<bool(const std::string& path)>& has,
                      const std::set<std::string>& dropped) const {
  Entries missing;
  std::set<std::string> cut_off;  // drops that a predecessor did not record
  {
    const MutexLock lock(mutex_);
    missing = all();
    for (const auto& path : dropped) {
      if (!entries_.contains(path)) {
        cut_off.insert(path);
      }
    }
  }
  for (auto& entry : receipt.entries) {
    const auto found = missing.find(entry.path);
    if (found == missing.end()) {
      continue;
    }
    entry.replaced = entry.replaced || found->second.replaced;
    complete(entry, found->second);
    missing.erase(found);
  }
  std::vector<std::string> left_over;
  for (auto& [path, entry] : missing) {
    entry.reason =
        std::string(stage::unloaded_early) + (entry.reason.empty() ? "" : ": " + entry.reason);
    const bool is_told = has(path) || entry.reason.contains(stage::removed_from_buffer);
    if (!is_told && cut_off.contains(path)) {
      entry.reason += std::string("; ") + stage::removed_from_buffer;
    } else if (!is_told) {
      entry.reason +=
          "; the job removed or renamed it since; the exported file stays in results-dir";
      left_over.push_back(path);
    }
    receipt.entries.push_back(std::move(entry));
  }
  if (const std::string more = named(left_over); !more.empty()) {
    receipt.note +=
        (receipt.note.empty() ? "" : "; ") +
        std::string("exported while the job ran, and then removed or renamed by the job: ") + more;
  }
  stage::settle(receipt);
}

}  // namespace efs::daemon
