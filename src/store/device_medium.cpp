// SPDX-License-Identifier: BSD-3-Clause
#include "store/device_medium.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "store/file_table.hpp"

namespace efs::store {
namespace {

/// A file, also one without a name that has a user.
struct Entry {
  TableFile file;
  bool has_name = true;
};

using EntryPointer = std::shared_ptr<Entry>;

/// The files of a range. Thread-safe. The table on the device always has what the entries with
/// names say.
class DeviceFiles {
 public:
  DeviceFiles(std::shared_ptr<DeviceMemory> range, FileTable table)
      : range_(std::move(range)), generation_(table.generation) {
    for (auto& file : table.files) {
      entries_.push_back(std::make_shared<Entry>(Entry{.file = std::move(file)}));
    }
  }

  DeviceMemory& range() { return *range_; }

  Result<EntryPointer> create(const std::string& name) {
    const MutexLock lock(mutex_);
    if (find(name)) {
      return fail(EEXIST, text(name));
    }
    if (name.empty() || name.size() > TableFile::longest_name) {
      return fail(ENAMETOOLONG, text(name));
    }
    auto made = std::make_shared<Entry>();
    made->file.name = name;
    entries_.push_back(made);
    if (Status written = write(); !written) {
      entries_.pop_back();
      return std::unexpected(written.error());
    }
    return made;
  }

  Result<EntryPointer> open(const std::string& name) {
    const MutexLock lock(mutex_);
    if (auto entry = find(name)) {
      return entry;
    }
    return fail(ENOENT, text(name));
  }

  Status rename(const std::string& from, const std::string& to) {
    const MutexLock lock(mutex_);
    const auto entry = find(from), replaced = find(to);
    if (!entry) {
      return fail(ENOENT, text(from));
    }
    if (to.empty() || to.size() > TableFile::longest_name) {
      return fail(ENAMETOOLONG, text(to));
    }
    if (entry == replaced) {
      return {};
    }
    entry->file.name = to;
    if (replaced) {
      replaced->has_name = false;
    }
    return write();  // the table is not longer than before
  }

  Status remove(const std::string& name) {
    const MutexLock lock(mutex_);
    if (const auto entry = find(name)) {
      entry->has_name = false;
      return write();
    }
    return {};
  }

  std::uint64_t size(const Entry& entry) {
    const MutexLock lock(mutex_);
    return entry.file.size;
  }

  // The new bytes are durable zeros before the table has them.
  Status allocate(Entry& entry, std::uint64_t wanted) {
    const MutexLock lock(mutex_);
    const TableFile before = entry.file;
    if (wanted <= before.size) {
      return {};
    }
    FreePages pages(pages_of(*range_), used());
    EFS_TRY(pages.lengthen(entry.file.pieces, before.pages(), up_to_page(wanted) / table_page));
    zero(entry.file, before.size, wanted);
    entry.file.size = wanted;
    Status written = write();
    if (!written) {
      entry.file = before;
    }
    return written;
  }

  Status cut(Entry& entry, std::uint64_t wanted) {
    const MutexLock lock(mutex_);
    if (wanted >= entry.file.size) {
      return {};
    }
    entry.file.size = wanted;
    std::uint64_t left = up_to_page(wanted) / table_page;
    for (auto& piece : entry.file.pieces) {
      piece.count = static_cast<std::uint32_t>(std::min<std::uint64_t>(piece.count, left));
      left -= piece.count;
    }
    std::erase_if(entry.file.pieces, [](const PageRange& piece) { return piece.count == 0; });
    return write();
  }

  Result<std::byte*> window(const Entry& entry, std::uint64_t offset, std::uint64_t length) {
    const MutexLock lock(mutex_);
    const auto at = offset <= entry.file.size && length <= entry.file.size - offset
                        ? entry.file.find(offset, length)
                        : std::nullopt;
    if (!at) {
      return fail(ENXIO, text(entry.file.name) + ": no window of " + std::to_string(length) +
                             " bytes at " + std::to_string(offset));
    }
    return range_->bytes().data() + *at;
  }

  /// Copies the bytes of the file; zeros behind its end.
  std::vector<std::byte> read(const Entry& entry, std::uint64_t offset, std::size_t length) {
    const MutexLock lock(mutex_);
    std::vector<std::byte> copy(length);
    const std::uint64_t end = std::min<std::uint64_t>(entry.file.size, offset + length);
    for (std::uint64_t at = offset; at < end;) {
      const std::uint64_t part = std::min(table_page - at % table_page, end - at);
      const auto from = entry.file.find(at, part);
      std::memcpy(copy.data() + (at - offset), range_->bytes().data() + from.value(), part);
      at += part;
    }
    return copy;
  }

 private:
  static std::uint64_t up_to_page(std::uint64_t bytes) {
    return (bytes + table_page - 1) / table_page * table_page;
  }

  static std::string text(const std::string& name) { return "journal " + name; }

  EntryPointer find(const std::string& name) EFS_REQUIRES(mutex_) {
    const auto found = std::ranges::find_if(
        entries_, [&](const auto& one) { return one->has_name && one->file.name == name; });
    return found == entries_.end() ? nullptr : *found;
  }

  std::vector<PageRange> used() EFS_REQUIRES(mutex_) {
    std::erase_if(entries_, [](const auto& one) { return !one->has_name && one.use_count() == 1; });
    std::vector<PageRange> used;
    for (const auto& entry : entries_) {
      used.insert(used.end(), entry->file.pieces.begin(), entry->file.pieces.end());
    }
    return used;
  }

  void zero(const TableFile& file, std::uint64_t begin, std::uint64_t end) {
    static constexpr std::array<std::byte, table_page> zeros{};
    for (std::uint64_t at = begin; at < end;) {
      const std::uint64_t part = std::min(table_page - at % table_page, up_to_page(end) - at);
      const auto to = file.find(at, part);
      range_->store(range_->bytes().data() + to.value(), std::span(zeros).first(part));
      at += part;
    }
    range_->drain();
  }

  Status write() EFS_REQUIRES(mutex_) {
    FileTable table{.generation = generation_ + 1, .files = {}};
    for (const auto& entry : entries_) {
      if (entry->has_name) {
        table.files.push_back(entry->file);
      }
    }
    EFS_TRY(write_table(*range_, table));
    generation_ = table.generation;
    return {};
  }

  const std::shared_ptr<DeviceMemory> range_;
  Mutex mutex_;  // rank 92
  std::uint64_t generation_ EFS_GUARDED_BY(mutex_);
  std::vector<EntryPointer> entries_ EFS_GUARDED_BY(mutex_);
};

/// A window is where the bytes of the file are on the device.
class DeviceFile final : public MediumFile {
 public:
  DeviceFile(std::shared_ptr<DeviceFiles> files, EntryPointer entry)
      : files_(std::move(files)), entry_(std::move(entry)) {}

  Result<std::uint64_t> size() override { return files_->size(*entry_); }

  Status allocate(std::uint64_t size) override { return files_->allocate(*entry_, size); }

  Status cut(std::uint64_t size) override { return files_->cut(*entry_, size); }

  Result<std::byte*> map(std::uint64_t offset, std::size_t length) override {
    return files_->window(*entry_, offset, length);
  }

  void store(std::byte* to, std::span<const std::byte> from) override {
    files_->range().store(to, from);
  }

  void drain() override { files_->range().drain(); }

  Status sync() override { return files_->range().sync(); }

 private:
  const std::shared_ptr<DeviceFiles> files_;
  const EntryPointer entry_;
};

/// A window is a copy of the bytes.
class DeviceReader final : public MediumFile {
 public:
  DeviceReader(std::shared_ptr<DeviceFiles> files, EntryPointer entry)
      : files_(std::move(files)), entry_(std::move(entry)) {}

  Result<std::uint64_t> size() override { return files_->size(*entry_); }

  Status allocate(std::uint64_t) override { return fail(EROFS); }

  Status cut(std::uint64_t) override { return fail(EROFS); }

  Result<std::byte*> map(std::uint64_t offset, std::size_t length) override {
    window_ = files_->read(*entry_, offset, length);
    return window_.data();
  }

  void store(std::byte*, std::span<const std::byte>) override {}

  void drain() override {}

  Status sync() override { return {}; }

 private:
  const std::shared_ptr<DeviceFiles> files_;
  const EntryPointer entry_;
  std::vector<std::byte> window_;
};

class DeviceMedium final : public Medium {
 public:
  explicit DeviceMedium(std::shared_ptr<DeviceFiles> files) : files_(std::move(files)) {}

  Result<std::unique_ptr<MediumFile>> create(const std::string& name) override {
    auto entry = files_->create(name);
    if (!entry) {
      return std::unexpected(entry.error());
    }
    return std::make_unique<DeviceFile>(files_, std::move(*entry));
  }

  Result<std::unique_ptr<MediumFile>> open(const std::string& name, bool read_only) override {
    auto entry = files_->open(name);
    if (!entry) {
      return std::unexpected(entry.error());
    }
    if (read_only) {
      return std::make_unique<DeviceReader>(files_, std::move(*entry));
    }
    return std::make_unique<DeviceFile>(files_, std::move(*entry));
  }

  Status rename(const std::string& from, const std::string& to) override {
    return files_->rename(from, to);
  }

  Status remove(const std::string& name) override { return files_->remove(name); }

  Status sync_names() override { return files_->range().sync(); }

 private:
  const std::shared_ptr<DeviceFiles> files_;
};

}  // namespace

Result<std::shared_ptr<Medium>> device_medium(std::shared_ptr<DeviceMemory> range) {
  auto table = read_table(*range);
  if (!table) {
    return std::unexpected(table.error());
  }
  return std::make_shared<DeviceMedium>(
      std::make_shared<DeviceFiles>(std::move(range), std::move(*table)));
}

}  // namespace efs::store
