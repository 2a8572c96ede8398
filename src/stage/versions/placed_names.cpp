// SPDX-License-Identifier: BSD-3-Clause
#include "stage/versions/placed_names.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "base/checksum.hpp"
#include "base/clock.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::stage {
namespace {

constexpr std::uint64_t few_records = 4096;  // too few to compact
constexpr const char* shorter_name = "placed.new";

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

struct PlacedNames::Record {
  // kind
  static constexpr std::uint32_t is_coming = 1, is_placed = 2, is_forgotten = 3, is_head = 4;
  // flags
  static constexpr std::uint32_t has_version = 1, version_linked = 2, has_before = 4,
                                 before_linked = 8, of_directory = 16, is_unfinished = 32,
                                 has_shape = 64;
  std::uint64_t check = 0;
  std::uint64_t name = 0, own = 0;
  std::uint32_t kind = 0, flags = 0;
  fs::Origin version, before;

  std::uint64_t sum() const {
    std::array<std::byte, sizeof(Record)> bytes{};
    std::memcpy(bytes.data(), this, sizeof *this);
    return checksum(std::span(bytes).subspan(sizeof check));
  }
};

bool may_meet_others(const config::JobConfig& config) {
  const bool is_shared = config::has_results_in_place(config) || config.nodes > 1 || config.merges;
  return !config.results_dir.empty() && (is_shared || config.existing != config::Existing::replace);
}

PlacedNames::PlacedNames(UniqueFd fd, int metadata, std::string_view results_dir)
    : metadata_(metadata),
      room_ahead_(room_ahead(metadata)),
      results_dir_(results_dir),
      fd_(std::move(fd)) {}

Result<std::unique_ptr<PlacedNames>> PlacedNames::open(int metadata, std::string_view results_dir) {
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
  std::unique_ptr<PlacedNames> names(new PlacedNames(std::move(fd), metadata, results_dir));
  EFS_TRY(names->load());
  return names;
}

Status PlacedNames::load() {
  const MutexLock lock(mutex_);
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
    unsure_since_ = 0;
  }
  make_room();
  if (records_ == 0 && write(head_of({}), 0)) {
    records_ = 1;
  }
  return {};
}

/// Reads and applies all records of the file. Returns true if none is damaged or incomplete.
Result<bool> PlacedNames::read_records(bool is_empty) {
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
      is_whole = apply_read(std::span(some).first(whole)) && (is_start || is_whole);
    }
    if (whole < some.size()) {
      // later writes replace an incomplete last record
      return is_whole && static_cast<std::size_t>(n) == whole * sizeof(Record);
    }
  }
}

/// Applies the undamaged records. Returns true if all are undamaged, and if the first one of the
/// file is the head.
bool PlacedNames::apply_read(std::span<const Record> records) {
  bool is_whole = true;
  for (const auto& record : records) {
    const bool is_good = record.check == record.sum();
    const bool is_placed_well = records_ > 0 || record.kind == Record::is_head;
    is_whole = is_whole && is_good && is_placed_well;
    if (is_good) {
      apply(record);
    }
    ++records_;
  }
  return is_whole;
}

std::uint64_t PlacedNames::key(std::string_view name) const {
  const std::string whole = results_dir_ + "/" + std::string(name);
  return checksum(std::as_bytes(std::span(whole)));
}

PlacedNames::Version PlacedNames::version_of(const struct stat& st, bool is_shared) {
  return {.file = {.device = st.st_dev,
                   .inode = st.st_ino,
                   .size = static_cast<std::uint64_t>(st.st_size),
                   .mtime = to_ns(st.st_mtim),
                   .ctime = is_shared ? 0 : to_ns(st.st_ctim)},
          .linked = st.st_nlink > 1};
}

bool PlacedNames::is_version(const Version& version, const struct stat& st, bool by_ctime) {
  if (version.file.ctime == 0 || !is_copy(st, version.file)) {
    return false;
  }
  return !by_ctime || version.linked || st.st_nlink > 1 ||
         version.file.ctime == fs::Origin::any_ctime || version.file.ctime == to_ns(st.st_ctim);
}

WhoseCopy PlacedNames::look(const PlacedName& name, const struct stat& there, bool by_ctime) const {
  const MutexLock lock(mutex_);
  const std::uint64_t at = key(name.name);
  const auto whose = [&](std::uint64_t own) {
    return own == key(name.own) ? WhoseCopy::ours : WhoseCopy::of_another_path;
  };
  if (const auto coming = coming_.find(at); coming != coming_.end()) {
    const auto& [own, version, before] = coming->second;
    if (version && is_version(*version, there, by_ctime)) {
      return whose(own);
    }
    if (!before || !is_version(*before, there, true)) {
      return WhoseCopy::theirs;
    }
  }
  const auto placed = placed_.find(at);
  if (placed == placed_.end()) {
    return whose_without_record(there);
  }
  const auto& version = placed->second.version;
  return version && is_version(*version, there, by_ctime) ? whose(placed->second.own)
                                                          : WhoseCopy::theirs;
}

WhoseCopy PlacedNames::whose_without_record(const struct stat& there) const {
  return unsure_since_ && to_ns(there.st_ctim) >= *unsure_since_ ? WhoseCopy::unsure
                                                                 : WhoseCopy::unknown;
}

bool PlacedNames::knows(std::string_view name) const {
  const MutexLock lock(mutex_);
  return placed_.contains(key(name)) || coming_.contains(key(name));
}

bool PlacedNames::has_removed(std::string_view name) const {
  const MutexLock lock(mutex_);
  if (const auto coming = coming_.find(key(name)); coming != coming_.end()) {
    return !coming->second.version;
  }
  const auto placed = placed_.find(key(name));
  return placed != placed_.end() && !placed->second.version;
}

bool PlacedNames::is_incomplete() const {
  const MutexLock lock(mutex_);
  return unsure_since_.has_value();
}

Status PlacedNames::coming(const PlacedName& name, const struct stat* copy,
                           const struct stat* before) {
  const MutexLock lock(mutex_);
  const std::uint64_t at = key(name.name);
  // An announced version has got its name; record it first, because the new change may fail.
  Status noted;
  if (const auto last = coming_.find(at); last != coming_.end() && before != nullptr &&
                                          last->second.version &&
                                          is_version(*last->second.version, *before, true)) {
    noted = append(
        record_of(at, Placed{.own = last->second.own, .version = version_of(*before, false)}));
  }
  Coming coming{.own = key(name.own), .version = {}, .before = {}};
  if (copy != nullptr) {
    coming.version = version_of(*copy, false), coming.version->file.ctime = fs::Origin::any_ctime;
  }
  if (before != nullptr) {
    coming.before = version_of(*before, false);
  }
  const Status about = append(record_of(at, coming));
  if (!about && copy != nullptr) {
    record_missed(to_ns(copy->st_ctim));
  }
  return noted ? about : noted;
}

Status PlacedNames::placed(const PlacedName& name, const struct stat* copy, bool is_shared) {
  const MutexLock lock(mutex_);
  Placed placed{.own = key(name.own), .version = {}};
  if (copy != nullptr) {
    placed.version = version_of(*copy, is_shared);
  }
  Status noted = append(record_of(key(name.name), placed));
  if (!noted && copy != nullptr) {
    record_missed(to_ns(copy->st_ctim));
  }
  return noted;
}

Status PlacedNames::forget(std::string_view name) {
  const MutexLock lock(mutex_);
  const std::uint64_t at = key(name);
  if (!placed_.contains(at) && !coming_.contains(at)) {
    return {};
  }
  Record record;
  record.name = at;
  record.kind = Record::is_forgotten;
  return append(record);
}

PlacedDirectory PlacedNames::directory(const PlacedName& name) const {
  const MutexLock lock(mutex_);
  const auto known = directories_.find(key(name.name));
  return known == directories_.end() || known->second.own != key(name.own) ? PlacedDirectory()
                                                                           : known->second.state;
}

Status PlacedNames::coming_directory(const PlacedName& name, const DirectoryAttributes* has) {
  const MutexLock lock(mutex_);
  const std::uint64_t at = key(name.name), own = key(name.own);
  const auto known = directories_.find(at);
  Directory directory{.own = own, .state = {}};
  if (known != directories_.end() && known->second.own == own) {
    directory.state = known->second.state;
  }
  directory.state.applied.reset();
  directory.state.interrupted = true;
  if (has != nullptr) {
    directory.state.was = shape_of(*has);
  }
  return append(record_of(at, directory));
}

Status PlacedNames::made_directory(const PlacedName& name, const DirectoryAttributes& has) {
  const std::uint64_t at = key(name.name), own = key(name.own);
  const MutexLock lock(mutex_);
  return append(record_of(at, Directory{.own = own,
                                        .state = {.version = directory_version(has),
                                                  .was = shape_of(has),
                                                  .unfinished = true}}));
}

Status PlacedNames::applied_directory(const PlacedName& name, std::uint64_t version) {
  const MutexLock lock(mutex_);
  const std::uint64_t at = key(name.name), own = key(name.own);
  const auto known = directories_.find(at);
  Directory directory{.own = own, .state = {}};
  if (known != directories_.end() && known->second.own == own) {
    directory = known->second;
  }
  directory.state.interrupted = false;
  directory.state.applied = version;
  return append(record_of(at, directory));
}

Status PlacedNames::placed_directory(const PlacedName& name, std::optional<std::uint64_t> version) {
  const MutexLock lock(mutex_);
  const std::uint64_t at = key(name.name), own = key(name.own);
  const auto known = directories_.find(at);
  if (!version && known != directories_.end() && known->second.own == own) {
    version = known->second.state.version;
  }
  return append(record_of(at, Directory{.own = own, .state = {.version = version}}));
}

std::vector<fs::Origin> PlacedNames::copies() const {
  const MutexLock lock(mutex_);
  std::vector<const Placed*> there;
  for (const auto& [name, placed] : placed_) {
    if (placed.version) {
      there.push_back(&placed);
    }
  }
  std::ranges::sort(there, {}, &Placed::number);
  std::vector<fs::Origin> copies;
  for (const auto* placed : there) {
    copies.push_back(placed->version->file);
  }
  return copies;
}

Status PlacedNames::sync() {
  const MutexLock lock(mutex_);
  if (missed_since_) {
    (void)rewrite();
  }
  return !fd_ || ::fdatasync(fd_.get()) == 0 ? Status{}
                                             : fail_errno(std::string("meta/") + placed_name);
}

PlacedNames::Record PlacedNames::record_of(std::uint64_t name, const Placed& placed) {
  Record record;
  record.name = name;
  record.own = placed.own;
  record.kind = Record::is_placed;
  if (placed.version) {
    record.version = placed.version->file,
    record.flags |= Record::has_version | (placed.version->linked ? Record::version_linked : 0);
  }
  return record;
}

PlacedNames::Record PlacedNames::record_of(std::uint64_t name, const Coming& coming) {
  Record record = record_of(name, Placed{.own = coming.own, .version = coming.version});
  record.kind = Record::is_coming;
  if (coming.before) {
    record.before = coming.before->file,
    record.flags |= Record::has_before | (coming.before->linked ? Record::before_linked : 0);
  }
  return record;
}

PlacedNames::Record PlacedNames::record_of(std::uint64_t name, const Directory& directory) {
  Record record;
  record.name = name;
  record.own = directory.own;
  record.kind = directory.state.interrupted ? Record::is_coming : Record::is_placed;
  record.flags = Record::of_directory | (directory.state.unfinished ? Record::is_unfinished : 0U);
  if (directory.state.version) {
    record.version.size = *directory.state.version, record.flags |= Record::has_version;
  }
  if (const auto& was = directory.state.was) {
    record.version.device = was->mode;
    record.version.inode = (static_cast<std::uint64_t>(was->uid) << 32U) | was->gid;
    record.version.mtime = static_cast<Nanoseconds>(was->xattrs);
    record.flags |= Record::has_shape;
  }
  if (directory.state.applied) {
    record.before.size = *directory.state.applied, record.flags |= Record::has_before;
  }
  return record;
}

PlacedNames::Record PlacedNames::head_of(std::optional<Nanoseconds> unsure_since) {
  Record record;
  record.kind = Record::is_head;
  if (unsure_since) {
    record.flags = Record::has_version, record.version.ctime = *unsure_since;
  }
  record.check = record.sum();
  return record;
}

void PlacedNames::apply_directory(const Record& record) {
  Directory& directory = directories_[record.name];
  directory = {.own = record.own,
               .state = {.interrupted = record.kind == Record::is_coming,
                         .unfinished = (record.flags & Record::is_unfinished) != 0}};
  if ((record.flags & Record::has_shape) != 0) {
    directory.state.was =
        DirectoryShape{.mode = static_cast<mode_t>(record.version.device),
                       .uid = static_cast<uid_t>(record.version.inode >> 32U),
                       .gid = static_cast<gid_t>(record.version.inode & UINT32_MAX),
                       .xattrs = static_cast<std::uint64_t>(record.version.mtime)};
  }
  if ((record.flags & Record::has_version) != 0) {
    directory.state.version = record.version.size;
  }
  if ((record.flags & Record::has_before) != 0) {
    directory.state.applied = record.before.size;
  }
}

void PlacedNames::apply(const Record& record) {
  if ((record.flags & Record::of_directory) != 0) {
    return apply_directory(record);
  }
  std::optional<Version> version, before;
  if ((record.flags & Record::has_version) != 0) {
    version = {.file = record.version, .linked = (record.flags & Record::version_linked) != 0};
  }
  if ((record.flags & Record::has_before) != 0) {
    before = {.file = record.before, .linked = (record.flags & Record::before_linked) != 0};
  }
  if (record.kind == Record::is_head) {
    if (version) {
      unsure_since_ = version->file.ctime;
    }
    return;
  }
  if (record.kind == Record::is_coming) {
    coming_[record.name] = {.own = record.own, .version = version, .before = before};
    return;
  }
  coming_.erase(record.name);
  if (record.kind == Record::is_placed) {
    placed_[record.name] = {.own = record.own, .number = ++told_, .version = version};
  } else {
    placed_.erase(record.name);
  }
}

Status PlacedNames::append(Record record) {
  record.check = record.sum();
  apply(record);
  EFS_TRY(write(record, records_));
  ++records_;
  make_room();
  // the long file is equally valid
  if (records_ > few_records &&
      records_ > 4 * (placed_.size() + coming_.size() + directories_.size())) {
    (void)rewrite();
  }
  return {};
}

Status PlacedNames::write(const Record& record, std::uint64_t at) {
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

/// Written in the head record, which exists and needs no space.
void PlacedNames::record_missed(Nanoseconds since) {
  if (missed_since_ && *missed_since_ <= since) {
    return;
  }
  missed_since_ = since;
  if (records_ > 0) {
    (void)write(head_of(unsure_since_ ? std::min(*unsure_since_, since) : since), 0);
  }
}

/// If the reservation fails, a later record may fail for missing space, and reports that then.
void PlacedNames::make_room() {
  if (!fd_ || records_ * sizeof(Record) + room_ahead_ / 4 < space_) {
    return;
  }
  const std::uint64_t wanted = records_ * sizeof(Record) + room_ahead_;
  if (::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(wanted)) == 0) {
    space_ = wanted;
  }
}

/// Compacts the file to the records that count. The old file stays until the new one is whole.
bool PlacedNames::rewrite() {
  (void)::unlinkat(metadata_, shorter_name, 0);
  UniqueFd fd(
      ::openat(metadata_, shorter_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) {
    return false;
  }
  const auto records = records_that_count();
  const bool whole = write_from_start(fd.get(), std::as_bytes(std::span(records))) &&
                     ::fdatasync(fd.get()) == 0 &&
                     ::renameat(metadata_, shorter_name, metadata_, placed_name) == 0;
  if (!whole) {
    ::unlinkat(metadata_, shorter_name, 0);
    return false;
  }
  fd_ = std::move(fd);
  records_ = records.size();
  space_ = 0;
  missed_since_.reset();
  make_room();
  return true;
}

/// The shortest file with the same content. The placed names keep their order.
std::vector<PlacedNames::Record> PlacedNames::records_that_count() const {
  std::vector<std::pair<std::uint64_t, const Placed*>> in_order;
  for (const auto& [name, placed] : placed_) {
    in_order.emplace_back(name, &placed);
  }
  std::ranges::sort(in_order, {}, [](const auto& one) { return one.second->number; });
  std::vector<Record> records{head_of(unsure_since_)};
  for (const auto& [name, placed] : in_order) {
    records.push_back(record_of(name, *placed));
  }
  for (const auto& [name, coming] : coming_) {
    records.push_back(record_of(name, coming));
  }
  for (const auto& [name, directory] : directories_) {
    records.push_back(record_of(name, directory));
  }
  for (auto& record : records) {
    record.check = record.sum();
  }
  return records;
}

namespace {

/// True if it is the version that the buffer imported.
bool is_staged_in(const PlanEntry& entry, const struct stat& there, fs::Staging& staging) {
  const auto item = staging.find(entry.path);
  if (!item || !item->origin) {
    return false;
  }
  if (entry.type == EntryType::symlink) {
    return S_ISLNK(there.st_mode) && item->target == entry.target;
  }
  return S_ISREG(there.st_mode) && is_copy(there, *item->origin) &&
         fs::is_same_file(*item->origin, entry.origin);
}

}  // namespace

void forget_staged(const Plan& plan, PfsIo& pfs, fs::Staging& staging, PlacedNames& placed) {
  const auto top = pfs.open(AT_FDCWD, plan.root_dir, passage_flags);
  for (const auto& entry : plan.entries) {
    if (entry.type == EntryType::directory || !placed.knows(entry.from())) {
      continue;
    }
    const auto directory =
        top ? pfs.open_beneath(top->get(), parent_of(entry.from()), passage_flags)
            : std::unexpected(top.error());
    const auto there = directory ? pfs.lstat(directory->get(), leaf_of(entry.from()))
                                 : std::unexpected(directory.error());
    if (!there ||
        placed.look({.name = entry.from(), .own = entry.path}, *there, true) != WhoseCopy::theirs) {
      continue;
    }
    if (is_staged_in(entry, *there, staging)) {
      (void)placed.forget(entry.from());
    }
  }
}

void record_came_in(const PlanEntry& entry, fs::Staging& staging, PlacedNames& placed) {
  const auto item = staging.find(entry.path);
  if (entry.from() != entry.path || !item || !item->origin || item->origin->inode != 0 ||
      item->origin->size == 0) {
    return;
  }
  const PlacedName name{.name = entry.path, .own = entry.path};
  if (placed.directory(name).version != item->origin->size) {
    (void)placed.placed_directory(name, item->origin->size);
  }
}

bool is_ours(const PlacedNames* placed, const PlacedName& name, const fs::WalkItem& item,
             const struct stat& there) {
  const auto whose = placed == nullptr ? WhoseCopy::unknown
                                       : placed->look(name, there, item.origin || item.replaced);
  return whose == WhoseCopy::ours || (is_unknown(whose) && is_origin(there, item));
}

}  // namespace efs::stage
