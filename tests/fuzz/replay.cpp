// A journal of any bytes: refused, or replayed up to where it does not verify. The first byte of the input chooses whether
// the rest is a journal as it is, or payloads that are given good headers and checksums, so that the records are reached.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "base/checksum.hpp"
#include "fs/namespace.hpp"
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
    window_.assign(length, std::byte{0});
    if (offset < bytes_.size()) std::memcpy(window_.data(), bytes_.data() + offset, std::min(length, bytes_.size() - offset));
    return window_.data();
  }
  void store(std::byte*, std::span<const std::byte>) override {}
  void drain() override {}
  Status sync() override { return {}; }

 private:
  std::vector<std::byte> bytes_, window_;
};

class OneFile final : public store::Medium {
 public:
  explicit OneFile(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  Result<std::unique_ptr<store::MediumFile>> create(const std::string&) override { return fail(EROFS); }
  Result<std::unique_ptr<store::MediumFile>> open(const std::string&, bool) override { return std::make_unique<Bytes>(bytes_); }
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

std::vector<std::byte> journal_of(std::span<const std::byte> input) {
  store::JournalHeader header{.magic = store::journal_magic, .version = store::journal_version, .header_size = sizeof header, .first_sequence = 1, .chunk = store::journal_chunk, .complete_to = 0, .instance = {}, .checksum = 0};
  header.checksum = checksum({reinterpret_cast<const std::byte*>(&header), offsetof(store::JournalHeader, checksum)});
  std::vector<std::byte> journal;
  append(journal, &header, sizeof header);
  for (std::uint64_t sequence = 1; input.size() > 1; ++sequence) {
    const std::size_t length = std::min<std::size_t>(std::to_integer<std::size_t>(input[0]) + 1, input.size() - 1);
    const auto payload = input.subspan(1, length);
    store::RecordHeader record{.length = static_cast<std::uint32_t>(length), .unsettled = 0, .sequence = sequence, .request = 0, .checksum = 0};
    Checksum sum;
    sum.update({reinterpret_cast<const std::byte*>(&record), offsetof(store::RecordHeader, checksum)});
    sum.update(payload);
    record.checksum = sum.digest();
    append(journal, &record, sizeof record);
    append(journal, payload.data(), payload.size());
    journal.resize((journal.size() + 7) / 8 * 8);
    input = input.subspan(1 + length);
  }
  return journal;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span input(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  OneFile medium(data[0] % 2 == 0 ? std::vector(input.begin(), input.end()) : journal_of(input));
  fs::Namespace names(0755, 0, 0, 0);
  (void)store::Journal::scan(medium, "journal", [&](const store::Record& stored) -> Status {
    auto record = fs::decode(stored.payload);
    if (!record) return std::unexpected(record.error());
    return names.apply(*record);
  });
  std::map<std::uint64_t, std::uint64_t> links;
  names.for_each_name([&](const fs::Inode&, const std::string&, fs::Inode& inode) { ++links[inode.ino]; });
  names.for_each([&](fs::Inode& inode) {
    if (!inode.is_directory() && inode.nlink != links[inode.ino]) std::abort();
  });
  return 0;
}
