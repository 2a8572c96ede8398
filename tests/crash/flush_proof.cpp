// SPDX-License-Identifier: BSD-3-Clause
#include "crash/flush_proof.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include "base/checksum.hpp"
#include "fs/record.hpp"
#include "store/journal.hpp"

namespace efs::test {
namespace {

std::string content_of(int fd, std::uint64_t most = UINT64_MAX) {
  struct stat st{};
  if (::fstat(fd, &st) != 0) {
    return {};
  }
  std::string text(std::min(static_cast<std::uint64_t>(st.st_size), most), '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  return text;
}

std::uint64_t first_difference(std::string_view one, std::string_view two) {
  const auto [at, other] = std::mismatch(one.begin(), one.end(), two.begin(), two.end());
  return static_cast<std::uint64_t>(at - one.begin());
}

std::string at_offset(std::uint64_t offset) {
  return " at offset " + std::to_string(offset);
}

// Copies into the text, which grows with zeros.
void put(std::string& text, std::uint64_t offset, std::string_view bytes) {
  if (text.size() < offset + bytes.size()) {
    text.resize(offset + bytes.size());
  }
  std::copy(bytes.begin(), bytes.end(), text.begin() + static_cast<std::ptrdiff_t>(offset));
}

LoggedFile::LineBytes bytes_of_line(const std::string& text, std::uint64_t line) {
  LoggedFile::LineBytes bytes{};
  const std::uint64_t begin = line * bytes.size();
  if (begin < text.size()) {
    text.copy(bytes.data(), bytes.size(), begin);
  }
  return bytes;
}

// A clean file that power loss removes: as in the enumeration of crashes.
bool is_unsettled(const fs::Namespace& names, const fs::Inode& inode) {
  return inode.is_regular() && !inode.settled &&
         names.files().has_content({.id = inode.ino, .dirty = inode.dirty});
}

bool verifies(const store::RecordHeader& header, std::string_view payload) {
  std::string summed(reinterpret_cast<const char*>(&header),
                     offsetof(store::RecordHeader, checksum));
  summed += payload;
  return header.checksum == checksum(std::as_bytes(std::span(summed)));
}

}  // namespace

FlushProof::FlushProof(std::string directory, FlushFault fault)
    : directory_(std::move(directory)),
      fault_(std::move(fault)),
      calls_([this](const DurableCall& call) { hear(call); }) {}

void FlushProof::violation(const std::string& what) {
  violations_ += operation_ + ": " + what + "\n";
}

LoggedFile* FlushProof::find(const std::string& path) {
  const auto found = files_.find(path);
  return found == files_.end() ? nullptr : found->second.get();
}

LoggedFile& FlushProof::file_at(const std::string& path) {
  if (LoggedFile* known = find(path)) {
    return *known;
  }
  UniqueFd real(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st{};
  (void)::fstat(real.get(), &st);
  for (const auto& [other, file] : files_) {
    if (file->inode == st.st_ino) {
      return *(files_[path] = file);
    }
  }
  auto file = std::make_shared<LoggedFile>();
  file->path = path;
  file->real = std::move(real);
  file->inode = st.st_ino;
  file->visible = content_of(file->real.get());
  return *(files_[path] = std::move(file));
}

bool FlushProof::is_fault(FlushFault::Kind kind, const std::string& path) {
  if (fault_.kind != kind || path.find(fault_.file) == std::string::npos ||
      path.ends_with(".last")) {
    return false;
  }
  ++counts_.fault_points;
  return ++faults_ == fault_.nth;
}

void FlushProof::hear(const DurableCall& call) {
  if (stopped_) {
    return;
  }
  if (call.drains && call.path.empty()) {
    drain();
    return;
  }
  // no record makes a file without a name reachable
  if (!call.path.starts_with(directory_) || call.path.ends_with(" (deleted)")) {
    return;
  }
  switch (call.kind) {
    case Kind::memory: {
      const bool known = find(call.path) != nullptr;
      LoggedFile& file = file_at(call.path);
      if (!known) {
        put(file.visible, call.offset, std::string(call.length, '\0'));
      }
      if (call.stores) {
        store(file, call);
      } else if (call.flushes) {
        flush(file, call.offset, call.length);
      }
      if (call.drains) {
        drain();
      }
      break;
    }
    case Kind::change: change(file_at(call.path), call); break;
    case Kind::rename: rename(call); break;
    case Kind::removal: files_.erase(call.path); break;
    case Kind::sync: {
      struct stat st{};
      if (::stat(call.path.c_str(), &st) == 0 && S_ISREG(st.st_mode)) {
        sync(file_at(call.path));
        break;
      }
      for (const auto& [path, file] : files_) {
        if (call.function == "syncfs" && path.starts_with(call.path + "/")) {
          sync(*file);
        }
      }
      break;
    }
  }
}

void FlushProof::store(LoggedFile& file, const DurableCall& call) {
  counts_.journal_stores += file.is_journal() ? 1 : 0;
  counts_.container_stores += file.path.find("/data/") != std::string::npos ? 1 : 0;
  const std::uint64_t first = call.offset / LoggedFile::line_bytes;
  const auto exposed_by_fault = [&] {
    for (auto line = first; line * LoggedFile::line_bytes < call.offset + call.length; ++line) {
      exposed_by_fault_.emplace(&file, line);
    }
  };
  if (is_fault(FlushFault::Kind::bypass, file.path)) {
    exposed_by_fault();
    return;
  }
  // Its first 8 bytes come last. (The mark at a chunk's end is drained with the next record.)
  if (file.is_live_journal() && call.offset > file.tail && file.tail % store::journal_chunk != 0) {
    check_journal(file, "the next record begins");
  }
  put(file.visible, call.offset, {reinterpret_cast<const char*>(call.bytes), call.length});
  for (auto line = first; line * LoggedFile::line_bytes < call.offset + call.length; ++line) {
    file.lines[line].stored = true;
  }
  const bool late = call.flushes && is_fault(FlushFault::Kind::order, file.path);
  if (late || (call.flushes && is_fault(FlushFault::Kind::flush, file.path))) {
    exposed_by_fault();
  } else if (call.flushes) {
    flush(file, call.offset, call.length);
  }
  if (late) {
    late_.push_back(call);
  }
  if (file.is_journal()) {
    read_records(file);
  }
}

void FlushProof::flush(LoggedFile& file, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t first = offset / LoggedFile::line_bytes;
  for (auto at = file.lines.lower_bound(first);
       at != file.lines.end() && at->first * LoggedFile::line_bytes < offset + length; ++at) {
    if (at->second.stored) {
      at->second = {.flushed = true, .at_flush = bytes_of_line(file.visible, at->first)};
    }
  }
}

// One drain waits for the flushes of all files.
void FlushProof::drain() {
  if (++counts_.drains == image_at_) {
    write_image();
  }
  for (const auto& [path, file] : files_) {
    const bool waits =
        std::ranges::any_of(file->lines, [](const auto& line) { return line.second.flushed; });
    if (!waits) {
      continue;
    }
    if (!is_fault(FlushFault::Kind::drain, path)) {
      drain(*file);
      continue;
    }
    for (const auto& [number, line] : file->lines) {
      if (line.flushed) {
        exposed_by_fault_.emplace(file.get(), number);
      }
    }
  }
  for (const DurableCall& call : std::exchange(late_, {})) {
    if (LoggedFile* file = find(call.path)) {
      flush(*file, call.offset, call.length);
    }
  }
}

void FlushProof::drain(LoggedFile& file) {
  for (auto& [number, line] : file.lines) {
    if (line.flushed) {
      put(file.durable, number * LoggedFile::line_bytes,
          {line.at_flush.data(), line.at_flush.size()});
      line.flushed = false;
      exposed_by_fault_.erase({&file, number});
    }
  }
  std::erase_if(file.lines, [](const auto& line) { return !line.second.stored; });
}

void FlushProof::keep_image(std::uint64_t nth, std::string to, std::uint64_t seed) {
  image_at_ = nth;
  image_ = std::move(to);
  random_.seed(seed);
}

void FlushProof::write_image() {
  image_record_ = answered_record_;
  for (const auto& [path, file] : files_) {
    const std::filesystem::path to = image_ + path.substr(directory_.size());
    std::string bytes = file->durable;
    for (const auto& [number, line] : file->lines) {
      const auto now = bytes_of_line(file->visible, number);
      for (std::size_t word = 0; word < now.size(); word += 8) {
        if ((random_() & 1U) != 0) {
          put(bytes, number * now.size() + word, {now.data() + word, 8});
        }
      }
    }
    bytes.resize(std::min<std::uint64_t>(bytes.find_last_not_of('\0') + 1, file->durable_size));
    std::filesystem::create_directories(to.parent_path());
    std::ofstream(to, std::ios::binary) << bytes;
    std::filesystem::resize_file(to, file->durable_size);
  }
}

// The kernel writes what it knows of: writes by system calls, and the size.
void FlushProof::sync(LoggedFile& file) {
  std::map<std::uint64_t, LoggedFile::LineBytes> before;
  for (const auto& [number, line] : file.lines) {
    before[number] = bytes_of_line(file.durable, number);
  }
  file.durable = file.visible;
  file.durable_size = file.visible.size();
  for (const auto& [number, bytes] : before) {
    put(file.durable, number * LoggedFile::line_bytes, {bytes.data(), bytes.size()});
  }
}

void FlushProof::change(LoggedFile& file, const DurableCall& call) {
  std::string now = content_of(file.real.get());
  if (call.function == "pwrite") {
    put(file.visible, call.offset, std::string_view(now).substr(call.offset, call.length));
  } else if (call.function == "ftruncate") {
    file.visible.resize(call.offset);
    file.lines.erase(
        file.lines.lower_bound((call.offset + LoggedFile::line_bytes - 1) / LoggedFile::line_bytes),
        file.lines.end());
  } else {
    file.visible = std::move(now);
  }
}

// R5: all of a new journal is durable before it gets its name.
void FlushProof::rename(const DurableCall& call) {
  const auto found = files_.find(call.path);
  if (found == files_.end()) {
    return;
  }
  auto file = std::move(found->second);
  files_.erase(found);
  file->path = call.to;
  if (file->is_live_journal()) {
    check_journal(*file, "renamed");
  }
  files_[call.to] = std::move(file);
}

void FlushProof::read_records(LoggedFile& journal) {
  using store::journal_chunk;
  const std::string_view bytes = journal.visible;
  while (journal.tail + sizeof(store::RecordHeader) <= bytes.size()) {
    const std::uint64_t left = journal_chunk - journal.tail % journal_chunk;
    store::RecordHeader header{};
    std::memcpy(&header, bytes.data() + journal.tail, sizeof header);
    if (left < sizeof header || header.length == store::end_of_chunk) {
      journal.tail += left;
      continue;
    }
    if (header.length == 0) {
      return;
    }
    const auto payload = bytes.substr(
        std::min<std::uint64_t>(journal.tail + sizeof header, bytes.size()), header.length);
    if (!verifies(header, payload)) {
      if (std::exchange(journal.length_at, journal.tail) != journal.tail) {
        violation("a record has its length before the rest of it: " + journal.path +
                  at_offset(journal.tail));
      }
      return;
    }
    journal.tail += store::Journal::record_size(header.length);
    journal.sequence = header.sequence;
    ++counts_.records;
    apply(journal, std::as_bytes(std::span(payload)));
  }
}

void FlushProof::apply(LoggedFile& journal, std::span<const std::byte> payload) {
  if (!journal.names) {
    journal.names = std::make_unique<fs::Namespace>(0755, 0, 0, FileTime(0));
  }
  const auto record = fs::decode(payload);
  if (!record) {
    violation("a record cannot be read: " + journal.path);
    return;
  }
  if (!*record) {
    return;
  }
  if (journal.is_live_journal()) {
    check_record(*journal.names, **record);
  }
  if (const Status done = journal.names->apply(**record); !done) {
    violation("a record cannot be applied: " + describe(done.error()));
  }
}

// R1 and R6: the containers that the record makes reachable are durable.
void FlushProof::check_record(const fs::Namespace& names, const fs::Record& record) {
  const auto container_of = [&](std::uint64_t ino) {
    const fs::Inode* inode = names.find(ino);
    return inode == nullptr ? ino : inode->container();
  };
  if (const auto* settled = std::get_if<fs::Settled>(&record)) {
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= settled->inodes.size();
         at += sizeof(std::uint64_t)) {
      std::uint64_t ino = 0;
      std::memcpy(&ino, settled->inodes.data() + at, sizeof ino);
      const fs::Inode* inode = names.find(ino);
      if (inode != nullptr && inode->is_regular() && !inode->is_remote()) {
        check_container(inode->container(), "Settled");
      }
    }
  } else if (const auto* fetched = std::get_if<fs::Fetched>(&record)) {
    check_container(container_of(fetched->ino), "Fetched");
  } else if (const auto* moved = std::get_if<fs::Moved>(&record)) {
    check_container(moved->container, "Moved");
  } else if (const auto* rename = std::get_if<fs::Rename>(&record)) {
    const auto* from = names.find(rename->parent);
    const auto* to = names.find(rename->new_parent);
    const auto source = from ? names.child(*from, rename->name) : fail(ENOENT);
    const auto target = to ? names.child(*to, rename->new_name) : fail(ENOENT);
    if (rename->flags == 0 && source && target && *source != *target && (*source)->is_regular() &&
        !(*source)->is_remote() && !is_unsettled(names, **source)) {
      check_container((*source)->container(), "Rename");
    }
  }
}

std::string FlushProof::container_name(std::uint64_t id) const {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "/data/%02x/%016llx", static_cast<unsigned>(id % 256),
                static_cast<unsigned long long>(id));
  return name.data();
}

// Null: nothing logged names it, and it is not there.
LoggedFile* FlushProof::container(std::uint64_t id) {
  const std::string name = container_name(id);
  for (const char* place : {"", "/0", "/1"}) {
    const std::string path = directory_ + place + name;
    if (::access(path.c_str(), F_OK) == 0) {
      return &file_at(path);
    }
  }
  return nullptr;
}

void FlushProof::check_container(std::uint64_t id, const std::string& why) {
  ++counts_.reachable;
  LoggedFile* file = container(id);
  if (file == nullptr) {
    violation(why + " record before any sync of " + container_name(id));
    return;
  }
  std::string missing = exposed(*file, 0, file->visible.size());
  if (missing.empty() && file->durable_size != file->visible.size()) {
    missing = ": its size is not synced";
  }
  if (!missing.empty()) {
    violation(why + " record: " + file->path + missing);
  }
}

std::string FlushProof::exposed(const LoggedFile& file, std::uint64_t begin, std::uint64_t size) {
  constexpr auto width = LoggedFile::line_bytes;
  const auto line = file.lines.begin();
  if (line != file.lines.end() && line->first * width < size) {
    return at_offset(line->first * width) +
           (line->second.stored ? ": stored, not flushed" : ": flushed, not drained");
  }
  const auto part = [&](const std::string& bytes) {
    std::string text = bytes.substr(std::min<std::uint64_t>(begin, bytes.size()), size - begin);
    text.resize(size - begin);
    return text;
  };
  const std::string now = part(file.visible), kept = part(file.durable);
  if (now != kept) {
    return at_offset(begin + first_difference(now, kept)) + ": written, not synced";
  }
  return file.durable_size < size ? ": its size is not synced" : "";
}

void FlushProof::check_journal(LoggedFile& journal, const std::string& why) {
  if (const auto missing = exposed(journal, journal.checked, journal.tail); !missing.empty()) {
    violation(why + ": " + journal.path + missing);
  }
  journal.checked = journal.tail;
}

void FlushProof::answered() {
  if (LoggedFile* journal = find(directory_ + "/meta/journal")) {
    check_journal(*journal, "answered");
    answered_record_ = journal->sequence;
  }
}

void FlushProof::promised(std::uint64_t ino, const std::string& content) {
  const LoggedFile* journal = find(directory_ + "/meta/journal");
  if (journal == nullptr || !journal->names) {
    return;
  }
  const fs::Inode* inode = journal->names->find(ino);
  if (inode == nullptr || inode->nlink == 0 || inode->is_remote() ||
      is_unsettled(*journal->names, *inode)) {
    return;
  }
  ++counts_.promises;
  const LoggedFile* file = container(inode->container());
  if (file == nullptr) {
    violation("promised: no sync of " + container_name(inode->container()));
    return;
  }
  std::string missing = exposed(*file, 0, content.size());
  if (missing.empty() && file->durable_size != content.size()) {
    missing = ": its size is not synced";
  }
  if (missing.empty() && file->visible != content) {
    missing = at_offset(first_difference(file->visible, content)) + ": not the promised content";
  }
  if (!missing.empty()) {
    violation("promised: " + file->path + missing);
  }
}

void FlushProof::compare(bool all) {
  constexpr std::uint64_t behind_records = 1U << 16U;
  for (const auto& [path, file] : files_) {
    const std::uint64_t most =
        file->is_journal() && !all ? file->tail + behind_records : UINT64_MAX;
    const std::string now = content_of(file->real.get(), most);
    const auto logged = std::string_view(file->visible).substr(0, most);
    if (now != logged) {
      violation("no logged call explains the byte" + at_offset(first_difference(now, logged)) +
                " of " + path);
    }
  }
}

}  // namespace efs::test
