// SPDX-License-Identifier: BSD-3-Clause
#include "fs/placed_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "base/checksum.hpp"

namespace efs::fs {
namespace {

constexpr std::uint64_t few_records = 4096;  // too few to compact
constexpr const char* shorter_placed_name = "placed.new";

/// Bytes reserved for records, because the buffer may be full when results are exported. At most
/// 1/4000 of a large buffer.
std::uint64_t room_ahead(int metadata) {
  constexpr std::uint64_t least = 256u << 10, most = 16u << 20, share = 4096;
  struct statvfs values{};
  if (::fstatvfs(metadata, &values) != 0) {
    return least;
  }
  return std::clamp<std::uint64_t>(values.f_blocks * values.f_frsize / share, least, most);
}

bool write_from_start(int fd, std::span<const std::byte> bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n =
        ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

struct PlacedFile::Record {
  // kind
  static constexpr std::uint32_t is_announced = 1, is_last = 2, is_imported = 3, is_head = 4;
  // flags
  static constexpr std::uint32_t has_version = 1, version_linked = 2, has_before = 4,
                                 before_linked = 8, of_directory = 16, is_unfinished = 32,
                                 has_shape = 64;
  std::uint64_t check = 0;
  ledger::Name at;
  std::uint32_t kind = 0, flags = 0;
  ledger::FileVersion version, before;

  std::uint64_t sum() const {
    std::array<std::byte, sizeof(Record)> bytes{};
    std::memcpy(bytes.data(), this, sizeof *this);
    return checksum(std::span(bytes).subspan(sizeof check));
  }

  bool has(std::uint32_t flag) const { return (flags & flag) != 0; }

  void put(const ledger::Announced& event) {
    at = event.at;
    kind = is_announced;
    put_version(event.version);
    if (event.before) {
      before = event.before->version;
      flags |= has_before | (event.before->linked ? before_linked : 0U);
    }
  }

  void put(const ledger::Exported& event) {
    at = event.at;
    kind = is_last;
    put_version(event.file);
  }

  void put(const ledger::Removed& event) {
    at = event.at;
    kind = is_last;
  }

  void put(const ledger::Imported& event) {
    at.name = event.name;
    kind = is_imported;
  }

  void put(const ledger::DirectoryGiven& event) {
    const auto& state = event.state;
    at = event.at;
    kind = state.interrupted ? is_announced : is_last;
    flags = of_directory | (state.unfinished ? is_unfinished : 0U);
    if (state.version) {
      version.size = *state.version, flags |= has_version;
    }
    if (state.was) {
      version.device = state.was->mode;
      version.inode = (static_cast<std::uint64_t>(state.was->uid) << 32U) | state.was->gid;
      version.mtime = static_cast<Nanoseconds>(state.was->xattrs);
      flags |= has_shape;
    }
    if (state.applied) {
      before.size = *state.applied, flags |= has_before;
    }
  }

  void put(const ledger::Missed& event) {
    kind = is_head;
    flags = has_version;
    version.ctime = event.since;
  }

  ledger::DirectoryGiven directory() const {
    ledger::DirectoryGiven event{
        .at = at, .state = {.interrupted = kind == is_announced, .unfinished = has(is_unfinished)}};
    if (has(has_shape)) {
      event.state.was =
          ledger::DirectoryShape{.mode = static_cast<std::uint32_t>(version.device),
                                 .uid = static_cast<std::uint32_t>(version.inode >> 32U),
                                 .gid = static_cast<std::uint32_t>(version.inode & UINT32_MAX),
                                 .xattrs = static_cast<std::uint64_t>(version.mtime)};
    }
    if (has(has_version)) {
      event.state.version = version.size;
    }
    if (has(has_before)) {
      event.state.applied = before.size;
    }
    return event;
  }

  /// nullopt: a head that says that no event is missing.
  std::optional<ledger::Event> event() const {
    using ledger::Event, ledger::File;
    if (has(of_directory)) {
      return directory();
    }
    const auto now =
        has(has_version) ? std::optional(File{version, has(version_linked)}) : std::nullopt;
    if (kind == is_head) {
      return now ? std::optional<Event>(ledger::Missed{version.ctime}) : std::nullopt;
    }
    if (kind == is_announced) {
      const auto former =
          has(has_before) ? std::optional(File{before, has(before_linked)}) : std::nullopt;
      return ledger::Announced{.at = at, .version = now, .before = former};
    }
    if (kind != is_last) {
      return ledger::Imported{at.name};
    }
    return now ? Event(ledger::Exported{.at = at, .file = *now}) : Event(ledger::Removed{at});
  }

 private:
  void put_version(const std::optional<ledger::File>& file) {
    if (file) {
      version = file->version;
      flags |= has_version | (file->linked ? version_linked : 0U);
    }
  }
};

PlacedFile::PlacedFile(UniqueFd fd, int metadata)
    : metadata_(metadata), room_ahead_(room_ahead(metadata)), fd_(std::move(fd)) {}

Result<std::unique_ptr<PlacedFile>> PlacedFile::open(int metadata, const ledger::Ledger& before) {
  static_assert(sizeof(Record) == 112 && std::is_trivially_copyable_v<Record>,
                "as the header says");
  UniqueFd fd(::openat(metadata, placed_name,
                       O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!fd && (errno == EROFS || errno == EACCES || errno == ENOSPC)) {
    fd.reset(::openat(metadata, placed_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  }
  if (!fd && errno != ENOENT) {
    return fail_errno(std::string("meta/") + placed_name + ", which lists the exports");
  }
  std::unique_ptr<PlacedFile> file(new PlacedFile(std::move(fd), metadata));
  EFS_TRY(file->load(before));
  return file;
}

Status PlacedFile::load(const ledger::Ledger& before) {
  const MutexLock lock(mutex_);
  before.snapshot([this](const ledger::Event& event)
                      EFS_REQUIRES(mutex_) { ledger_.apply(event); });
  if (!fd_) {
    return {};
  }
  struct stat st{};
  if (::fstat(fd_.get(), &st) != 0 || !S_ISREG(st.st_mode)) {
    return fail(EPROTO, std::string("meta/") + placed_name + ": not a file of efs");
  }
  const auto is_whole = read_records(st.st_size == 0);
  if (!is_whole) {
    return std::unexpected(is_whole.error());
  }
  if (!*is_whole) {
    ledger_.apply(ledger::Missed{});
  }
  make_room();
  if (records_ == 0 && write(records_that_count().front(), 0)) {
    records_ = 1;
  }
  return {};
}

/// Reads and applies all records of the file. Returns true if none is damaged or incomplete.
Result<bool> PlacedFile::read_records(bool is_empty) {
  bool is_whole = is_empty;
  std::array<Record, 512> some;
  for (;;) {
    const ssize_t n =
        ::pread(fd_.get(), some.data(), sizeof some, static_cast<off_t>(records_ * sizeof(Record)));
    if (n < 0) {
      return fail_errno(std::string("meta/") + placed_name);
    }
    const auto whole = static_cast<std::size_t>(n) / sizeof(Record);
    if (whole > 0) {
      const bool is_start = records_ == 0;
      const auto apply = [this](const ledger::Event& event) EFS_REQUIRES(mutex_) {
        ledger_.apply(event);
      };
      is_whole =
          visit_events(std::span(some).first(whole), is_start, apply) && (is_start || is_whole);
      records_ += whole;
    }
    if (whole < some.size()) {
      // later writes replace an incomplete last record
      return is_whole && static_cast<std::size_t>(n) == whole * sizeof(Record);
    }
  }
}

bool PlacedFile::visit_events(std::span<const Record> records, bool is_start,
                              const std::function<void(const ledger::Event&)>& visit) {
  bool is_whole = true;
  for (const auto& record : records) {
    const bool is_good = record.check == record.sum();
    const bool is_placed_well = !is_start || record.kind == Record::is_head;
    is_whole = is_whole && is_good && is_placed_well;
    if (const auto event = is_good ? record.event() : std::nullopt) {
      visit(*event);
    }
    is_start = false;
  }
  return is_whole;
}

Status PlacedFile::events(store::Medium& medium,
                          const std::function<void(const ledger::Event&)>& visit) {
  const auto file = medium.open(placed_name, true);
  if (!file && file.error().code == ENOENT) {
    return {};
  }
  const auto size = file ? (*file)->size() : std::unexpected(file.error());
  const auto bytes = size && *size > 0 ? (*file)->map(0, *size) : Result<std::byte*>(nullptr);
  if (!size || !bytes) {
    return with_context(size ? bytes.error() : size.error(), "meta/placed");
  }
  std::vector<Record> records(*size / sizeof(Record));
  std::memcpy(records.data(), *bytes, records.size() * sizeof(Record));
  const bool is_whole = visit_events(records, true, visit);
  if (!is_whole || *size % sizeof(Record) != 0) {
    visit(ledger::Missed{});
  }
  return {};
}

void PlacedFile::read(const std::function<void(const ledger::Ledger&)>& look) const {
  const MutexLock lock(mutex_);
  look(ledger_);
}

PlacedFile::Record PlacedFile::record_of(const ledger::Event& event) {
  Record record;
  std::visit([&](const auto& one) { record.put(one); }, event);
  record.check = record.sum();
  return record;
}

Status PlacedFile::append(
    const std::function<std::vector<ledger::Event>(const ledger::Ledger&)>& make,
    std::optional<Nanoseconds> since) {
  const MutexLock lock(mutex_);
  Status all;
  for (const auto& event : make(ledger_)) {
    const Status one = append_one(event);
    all = all ? one : all;
  }
  if (!all && since) {
    record_missed(*since);
  }
  return all;
}

Status PlacedFile::append_one(const ledger::Event& event) {
  ledger_.apply(event);
  EFS_TRY(write(record_of(event), records_));
  ++records_;
  make_room();
  // the long file is equally valid
  if (records_ > few_records && records_ > 4 * ledger_.size()) {
    (void)rewrite();
  }
  return {};
}

Status PlacedFile::write(const Record& record, std::uint64_t at) {
  if (!fd_) {
    return fail(EROFS, std::string("meta/") + placed_name);
  }
  const ssize_t n =
      ::pwrite(fd_.get(), &record, sizeof record, static_cast<off_t>(at * sizeof record));
  if (n == static_cast<ssize_t>(sizeof record)) {
    return {};
  }
  if (n < 0) {
    return fail_errno(std::string("meta/") + placed_name);
  }
  // an incomplete record would count as damage
  if (at == records_) {
    (void)::ftruncate(fd_.get(), static_cast<off_t>(at * sizeof record));
  }
  return fail(ENOSPC, std::string("meta/") + placed_name);
}

/// Written in the head record, which exists and needs no space. This process misses nothing.
void PlacedFile::record_missed(Nanoseconds since) {
  if (missed_since_ && *missed_since_ <= since) {
    return;
  }
  missed_since_ = since;
  if (records_ > 0) {
    const auto before = ledger_.unsure_since();
    (void)write(record_of(ledger::Missed{std::min(before.value_or(since), since)}), 0);
  }
}

/// If the reservation fails, a later record may fail for missing space, and reports that then.
void PlacedFile::make_room() {
  if (!fd_ || records_ * sizeof(Record) + room_ahead_ / 4 < space_) {
    return;
  }
  const std::uint64_t wanted = records_ * sizeof(Record) + room_ahead_;
  if (::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(wanted)) == 0) {
    space_ = wanted;
  }
}

/// Compacts the file to the records that count. The old file stays until the new one is whole.
bool PlacedFile::rewrite() {
  (void)::unlinkat(metadata_, shorter_placed_name, 0);
  UniqueFd fd(::openat(metadata_, shorter_placed_name,
                       O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) {
    return false;
  }
  const auto records = records_that_count();
  const bool whole = write_from_start(fd.get(), std::as_bytes(std::span(records))) &&
                     ::fdatasync(fd.get()) == 0 &&
                     ::renameat(metadata_, shorter_placed_name, metadata_, placed_name) == 0;
  if (!whole) {
    ::unlinkat(metadata_, shorter_placed_name, 0);
    return false;
  }
  fd_ = std::move(fd);
  records_ = records.size();
  space_ = 0;
  missed_since_.reset();
  make_room();
  return true;
}

/// The shortest file with the same content, with the head.
std::vector<PlacedFile::Record> PlacedFile::records_that_count() const {
  std::vector<Record> records;
  if (!ledger_.is_incomplete()) {
    Record head;
    head.kind = Record::is_head;
    head.check = head.sum();
    records.push_back(head);
  }
  ledger_.snapshot([&](const ledger::Event& event) { records.push_back(record_of(event)); });
  return records;
}

Status PlacedFile::sync() {
  const MutexLock lock(mutex_);
  if (missed_since_) {
    (void)rewrite();
  }
  return !fd_ || ::fdatasync(fd_.get()) == 0 ? Status{}
                                             : fail_errno(std::string("meta/") + placed_name);
}

}  // namespace efs::fs
