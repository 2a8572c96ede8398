// SPDX-License-Identifier: BSD-3-Clause
// A journal of arbitrary bytes: rejected, or replayed up to the first record that does not verify.
// The resulting tree must be consistent, and a snapshot must preserve it. The first byte of the
// input selects how to use the rest:
// - a journal as it is;
// - payloads that get valid headers and checksums, so that replay reaches the records;
// - few bytes for each record, with small numbers and few names, so that records interact.
#include <linux/fs.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "base/checksum.hpp"
#include "fs/namespace.hpp"
#include "image/check_tree.hpp"
#include "store/format.hpp"
#include "store/journal.hpp"

using namespace efs;

namespace {

class Bytes final : public store::MediumFile {
 public:
  explicit Bytes(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  Result<std::uint64_t> size() override { return bytes_.size(); }

  Status allocate(std::uint64_t) override { return fail(EROFS); }

  Status cut(std::uint64_t) override { return fail(EROFS); }

  Result<std::byte*> map(std::uint64_t offset, std::size_t length) override {
    // The window is mostly zeros, so only the bytes of the previous input are cleared: clearing all
    // of it would take most of the time.
    static std::vector<std::byte> window;
    static std::size_t filled = 0;
    std::fill_n(window.begin(), filled, std::byte{0});
    if (window.size() < length) {
      window.resize(length);
    }
    filled = offset < bytes_.size() ? std::min(length, bytes_.size() - offset) : 0;
    if (filled > 0) {
      std::memcpy(window.data(), bytes_.data() + offset, filled);
    }
    return window.data();
  }

  void store(std::byte*, std::span<const std::byte>) override {}

  void drain() override {}

  Status sync() override { return {}; }

 private:
  std::vector<std::byte> bytes_;
};

class OneFile final : public store::Medium {
 public:
  explicit OneFile(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  Result<std::unique_ptr<store::MediumFile>> create(const std::string&) override {
    return fail(EROFS);
  }

  Result<std::unique_ptr<store::MediumFile>> open(const std::string&, bool) override {
    return std::make_unique<Bytes>(bytes_);
  }

  Status rename(const std::string&, const std::string&) override { return fail(EROFS); }

  Status remove(const std::string&) override { return fail(EROFS); }

  Status sync_names() override { return {}; }

 private:
  std::vector<std::byte> bytes_;
};

void append(std::vector<std::byte>& to, const void* data, std::size_t length) {
  const auto* bytes = static_cast<const std::byte*>(data);
  to.insert(to.end(), bytes, bytes + length);
}

// `choice`: of the versions that efs reads.
std::vector<std::byte> journal_of(std::span<const std::byte> input, unsigned choice) {
  constexpr auto versions = store::journal_version - store::oldest_version + 1;
  store::JournalHeader header{.magic = store::journal_magic,
                              .version = store::journal_version - choice / 4 % versions,
                              .header_size = sizeof header,
                              .first_sequence = 1,
                              .chunk = store::journal_chunk,
                              .complete_to = 0,
                              .instance = {},
                              .checksum = 0};
  header.checksum = checksum(
      {reinterpret_cast<const std::byte*>(&header), offsetof(store::JournalHeader, checksum)});
  std::vector<std::byte> journal;
  append(journal, &header, sizeof header);
  for (std::uint64_t sequence = 1; input.size() > 1; ++sequence) {
    const std::size_t length =
        std::min<std::size_t>(std::to_integer<std::size_t>(input[0]) + 1, input.size() - 1);
    const auto payload = input.subspan(1, length);
    store::RecordHeader record{.length = static_cast<std::uint32_t>(length),
                               .unsettled = 0,
                               .sequence = sequence,
                               .request = 0,
                               .checksum = 0};
    Checksum sum;
    sum.update(
        {reinterpret_cast<const std::byte*>(&record), offsetof(store::RecordHeader, checksum)});
    sum.update(payload);
    record.checksum = sum.digest();
    append(journal, &record, sizeof record);
    append(journal, payload.data(), payload.size());
    journal.resize((journal.size() + 7) / 8 * 8);
    input = input.subspan(1 + length);
  }
  return journal;
}

// Makes each field of a record from a byte.
class Filler {
 public:
  explicit Filler(std::span<const std::byte> in) : in_(in) {}

  template <typename... Field>
  void operator()(Field&... field) {
    (fill(field), ...);
  }

  template <typename... Field>
  void since(std::uint8_t /*level*/, Field&... field) {
    (*this)(field...);
  }

  bool empty() const { return in_.empty(); }

  unsigned byte() {
    if (in_.empty()) {
      return 0;
    }
    const auto first = std::to_integer<unsigned>(in_[0]);
    in_ = in_.subspan(1);
    return first;
  }

 private:
  void fill(std::uint8_t& value) { value = static_cast<std::uint8_t>(byte() % 4); }

  void fill(int& value) { value = byte() % 4; }

  void fill(std::uint32_t& value) {
    value = std::array<std::uint32_t, 6>{
        0, S_IFREG | 0644, S_IFDIR | 0755, S_IFLNK | 0777, RENAME_EXCHANGE, 07777}[byte() % 6];
  }

  void fill(std::uint64_t& value) {
    const auto number = byte();  // high values count from the other end
    value = number < 250 ? number % 16 : number - 256ULL;
  }

  void fill(std::int64_t& value) { value = byte(); }

  void fill(bool& value) { value = byte() % 2 != 0; }

  template <typename T>
    requires requires(T& one, Filler& filler) { one.fields(filler); }
  void fill(T& one) {
    one.fields(*this);
  }

  template <typename T>
  void fill(std::optional<T>& one) {
    if (byte() % 2 != 0) {
      fill(one.emplace());
    }
  }

  void fill(FileTime& time) { time = Nanoseconds{byte()}; }

  void fill(std::string& text) {
    using namespace std::string_literals;
    static const std::array<std::string, 8> all{"",  "a",   "b",     "c",
                                                ".", "x/y", "a\0b"s, "\5\0\0\0\0\0\0\0"s};
    text = all[byte() % all.size()];
  }

  void fill(std::map<std::string, std::string>& pairs) {
    for (auto count = byte() % 3; count > 0; --count) {
      std::string name;
      fill(name);
      fill(pairs[name]);
    }
  }

  void fill(std::vector<Extent>& extents) {
    for (auto count = byte() % 4; count > 0; --count) {
      Extent extent;
      (*this)(extent.offset, extent.device, extent.length);
      extents.push_back(extent);
    }
  }

  std::span<const std::byte> in_;
};

template <std::size_t Index = 0>
fs::Record record_of(std::size_t type) {
  if constexpr (Index + 1 < std::variant_size_v<fs::Record>) {
    if (type != Index) {
      return record_of<Index + 1>(type);
    }
  }
  return std::variant_alternative_t<Index, fs::Record>{};
}

// A rejected record changes nothing, and later records are still tried.
void apply_filled(std::span<const std::byte> input, fs::Namespace& names) {
  for (Filler filler(input); !filler.empty();) {
    auto record = record_of(filler.byte() % std::variant_size_v<fs::Record>);
    std::visit([&](auto& one) { one.fields(filler); }, record);
    (void)names.apply(record);
  }
}

void replay(std::vector<std::byte> journal, fs::Namespace& names) {
  OneFile medium(std::move(journal));
  (void)store::Journal::scan(medium, "journal", [&](const store::Record& stored) -> Status {
    const auto record = fs::decode(stored.payload, stored.version, fs::content_level);
    if (!record) {
      return std::unexpected(record.error());
    }
    return *record ? names.apply(**record) : Status{};
  });
}

template <typename... Part>
std::string row(const Part&... parts) {
  std::ostringstream text;
  ((text << '[' << parts << "] "), ...);
  return std::move(text).str();
}

std::string text_of(const std::optional<fs::Origin>& version) {
  return version
             ? row(version->device, version->inode, version->size, version->mtime, version->ctime)
             : "none";
}

std::string text_of(const FileTime& time) {
  return row(time.seconds, time.nanoseconds);
}

// Returns all state of an inode that a snapshot must preserve.
std::string text_of(const fs::Namespace& names, const fs::Inode& inode) {
  static const fs::InodeExtra none;
  const fs::InodeExtra& extra = inode.extra ? *inode.extra : none;
  const auto& [imported, exported, parts] = names.files().of(inode.ino);
  const bool is_import = imported && inode.ino != fs::root_ino;  // a root is never staged in
  std::string text =
      row("inode", inode.ino, inode.rdev, inode.mode, inode.uid, inode.gid, inode.nlink,
          inode.dirty, inode.settled, inode.lost_writes, text_of(inode.atime), text_of(inode.mtime),
          text_of(inode.ctime), text_of(inode.btime));
  text +=
      row(extra.target, is_import ? row(text_of(imported->version), imported->names.text()) : "",
          parts, static_cast<int>(extra.keep));
  if (exported) {
    text += row(text_of(exported->version), exported->names.text(), exported->as_imported);
  }
  for (const auto& [name, value] : extra.xattrs) {
    text += row(name, value);
  }
  if (const auto* content = inode.content()) {
    text += row("content", content->size, content->physical);
    for (const auto& extent : content->extents.list()) {
      text += row(extent.offset, extent.device, extent.length);
    }
  }
  if (inode.is_directory() && inode.nlink != 0) {
    text += row(inode.parent, inode.directory->own_name(), inode.directory->next_cookie());
  }
  return text;
}

// Equal namespaces have equal texts.
std::set<std::string> texts_of(const fs::Namespace& names) {
  std::set<std::string> all{row("next", names.next_unused())};
  names.for_each([&](const fs::Inode& inode) {
    all.insert(text_of(names, inode));
    if (inode.is_directory()) {
      inode.directory->for_each([&](const std::string& name, const fs::Directory::Entry& entry) {
        all.insert(row("name", inode.ino, name, entry.ino, entry.cookie));
      });
    }
  });
  for (const auto& [path, input] : names.gone()) {
    all.insert(row("gone", path, input.type, text_of(input.origin), text_of(input.saved),
                   input.linked, static_cast<int>(input.keep), input.target, input.unloaded));
  }
  return all;
}

fs::Namespace empty_namespace() {
  return {0755, 0, 0, 0};
}

// The next start reads the same state that a compaction writes.
void check_snapshot(const fs::Namespace& names) {
  auto again = empty_namespace();
  names.snapshot([&](const fs::Record& record) {
    std::vector<std::byte> bytes;
    fs::encode(record, bytes);
    const auto read = fs::decode(bytes, store::journal_version, fs::content_level);
    if (!read || !again.apply(read->value())) {
      std::abort();
    }
  });
  const auto before = texts_of(names), after = texts_of(again);
  if (before == after) {
    return;
  }
  for (const auto& text : before) {
    if (!after.contains(text)) {
      std::fprintf(stderr, "lost: %s\n", text.c_str());
    }
  }
  for (const auto& text : after) {
    if (!before.contains(text)) {
      std::fprintf(stderr, "made: %s\n", text.c_str());
    }
  }
  std::abort();
}

void check_tree(const fs::Namespace& names) {
  const auto damage = image::check_tree(names).damage;
  for (const auto& [object, text] : damage) {
    std::fprintf(stderr, "%s: %s\n", object.c_str(), text.c_str());
  }
  if (!damage.empty()) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::span input(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  auto names = empty_namespace();
  switch (data[0] % 4) {
    case 0: replay({input.begin(), input.end()}, names); break;
    case 1: replay(journal_of(input, data[0]), names); break;
    default: apply_filled(input, names);
  }
  check_tree(names);
  check_snapshot(names);
  return 0;
}
