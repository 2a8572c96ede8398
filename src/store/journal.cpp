#include "store/journal.hpp"

#include <fcntl.h>
#include <libpmem.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/checksum.hpp"
#include "store/format.hpp"

namespace efs::store {
namespace {

std::uint64_t aligned(std::uint64_t n) { return (n + record_alignment - 1) / record_alignment * record_alignment; }

std::span<const std::byte> bytes_of(const auto& object, std::size_t length = sizeof(object)) {
  return {reinterpret_cast<const std::byte*>(&object), length};
}

// In one piece: the streaming interface costs more than the sum of so few bytes.
std::uint64_t record_checksum(const RecordHeader& header, std::span<const std::byte> payload) {
  thread_local std::vector<std::byte> summed;
  const auto head = bytes_of(header, offsetof(RecordHeader, checksum));
  summed.assign(head.begin(), head.end());
  summed.insert(summed.end(), payload.begin(), payload.end());
  return checksum(summed);
}

JournalHeader make_header(std::uint64_t first_sequence) {
  JournalHeader header{.magic = journal_magic, .version = journal_version, .header_size = sizeof(JournalHeader), .first_sequence = first_sequence, .chunk = journal_chunk, .unused = {}, .checksum = 0};
  header.checksum = checksum(bytes_of(header, offsetof(JournalHeader, checksum)));
  return header;
}

}  // namespace

std::uint64_t Journal::record_size(std::size_t payload) { return aligned(sizeof(RecordHeader) + payload); }

Journal::Journal(Journal&& other) noexcept { *this = std::move(other); }

Journal& Journal::operator=(Journal&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  directory_ = other.directory_;
  name_ = std::move(other.name_);
  fd_ = std::move(other.fd_);
  chunk_ = std::exchange(other.chunk_, nullptr);
  chunk_index_ = other.chunk_index_;
  pmem_ = other.pmem_;
  allocated_ = other.allocated_;
  tail_ = other.tail_;
  reserved_ = other.reserved_;
  sequence_ = other.sequence_;
  return *this;
}

Journal::~Journal() { unmap(); }

void Journal::unmap() {
  if (chunk_ != nullptr) ::munmap(chunk_, journal_chunk);
  chunk_ = nullptr;
}

Result<Journal> Journal::create(int directory, const std::string& name) {
  Journal journal;
  journal.directory_ = directory;
  journal.name_ = name;
  journal.fd_.reset(::openat(directory, name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!journal.fd_) return fail_errno("journal " + name);
  EFS_TRY(journal.grow(journal_chunk));
  EFS_TRY(journal.map_chunk(0));
  journal.put(bytes_of(make_header(1)), 0);
  journal.tail_ = sizeof(JournalHeader);
  return journal;
}

Result<Journal> Journal::open(int directory, const std::string& name, const std::function<Status(const Record&)>& replay) {
  Journal journal;
  journal.directory_ = directory;
  journal.name_ = name;
  journal.fd_.reset(::openat(directory, name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!journal.fd_) return fail_errno("journal " + name);
  struct stat st {};
  if (::fstat(journal.fd_.get(), &st) != 0) return fail_errno("journal " + name);
  journal.allocated_ = static_cast<std::uint64_t>(st.st_size) / journal_chunk * journal_chunk;
  if (journal.allocated_ == 0) return fail(EPROTO, "journal " + name + ": shorter than its first chunk");
  EFS_TRY(journal.map_chunk(0));
  JournalHeader header{};
  std::memcpy(&header, journal.chunk_, sizeof header);
  if (header.magic != journal_magic || header.checksum != checksum(bytes_of(header, offsetof(JournalHeader, checksum))))
    return fail(EPROTO, "journal " + name + ": not a journal of efs, or its header is damaged");
  if (header.version != journal_version || header.chunk != journal_chunk)
    return fail(EPROTO, "journal " + name + ": written by another version of efs (format " + std::to_string(header.version) + ")");
  journal.tail_ = sizeof(JournalHeader);
  journal.sequence_ = header.first_sequence - 1;
  EFS_TRY(journal.replay_all(replay));
  return journal;
}

Status Journal::replay_all(const std::function<Status(const Record&)>& replay) {
  while (tail_ < allocated_) {
    const std::uint64_t within = tail_ % journal_chunk;
    if (tail_ / journal_chunk != chunk_index_) EFS_TRY(map_chunk(tail_ / journal_chunk));
    if (within + sizeof(RecordHeader) > journal_chunk) {
      tail_ += journal_chunk - within;
      continue;
    }
    RecordHeader header{};
    std::memcpy(&header, chunk_ + within, sizeof header);
    if (header.length == end_of_chunk) {
      tail_ += journal_chunk - within;
      continue;
    }
    if (header.length == 0 || header.length > max_payload || within + record_size(header.length) > journal_chunk) break;
    const std::span payload(chunk_ + within + sizeof header, header.length);
    // R2: the first record that does not verify is the end, also when it looks like one of ours.
    if (header.sequence != sequence_ + 1 || header.checksum != record_checksum(header, payload)) break;
    EFS_TRY(replay(Record{header.sequence, header.request, payload}));
    sequence_ = header.sequence;
    tail_ += record_size(header.length);
  }
  if (tail_ < allocated_ && tail_ / journal_chunk != chunk_index_) EFS_TRY(map_chunk(tail_ / journal_chunk));
  return {};
}

Status Journal::grow(std::uint64_t wanted_end) {
  const std::uint64_t end = (wanted_end + journal_chunk - 1) / journal_chunk * journal_chunk;
  if (end <= allocated_) return {};
  // Allocated, not only extended: a later store must not meet a full file system (and SIGBUS).
  if (::fallocate(fd_.get(), 0, static_cast<off_t>(allocated_), static_cast<off_t>(end - allocated_)) != 0) return fail_errno();
  allocated_ = end;
  return {};
}

Status Journal::map_chunk(std::uint64_t index) {
  unmap();
  const auto at = static_cast<off_t>(index * journal_chunk);
  void* address = ::mmap(nullptr, journal_chunk, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd_.get(), at);
  if (address == MAP_FAILED) address = ::mmap(nullptr, journal_chunk, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), at);
  if (address == MAP_FAILED) return fail_errno("journal " + name_);
  chunk_ = static_cast<std::byte*>(address);
  chunk_index_ = index;
  pmem_ = pmem_is_pmem(address, journal_chunk) != 0;
  return {};
}

// Durable at once on persistent memory; in the page cache (and so beyond our death) elsewhere.
void Journal::put(std::span<const std::byte> bytes, std::uint64_t at) {
  pmem_memcpy(chunk_ + at % journal_chunk, bytes.data(), bytes.size(), pmem_ ? 0 : PMEM_F_MEM_NOFLUSH);
}

Status Journal::append(std::uint64_t request, std::span<const std::byte> payload, std::int64_t reserve) {
  if (payload.empty() || payload.size() > max_payload) return fail(EINVAL, "journal record of " + std::to_string(payload.size()) + " bytes");
  const std::uint64_t size = record_size(payload.size());
  std::uint64_t at = tail_;
  const std::uint64_t left = journal_chunk - at % journal_chunk;
  const bool next_chunk = left < size;
  if (next_chunk) at += left;
  const std::uint64_t reserved = reserve < 0 ? reserved_ - std::min(reserved_, static_cast<std::uint64_t>(-reserve)) : reserved_ + static_cast<std::uint64_t>(reserve);
  // Only a record that returns at least what it takes may live on the reserve.
  const bool gives_back = reserve < 0 && static_cast<std::uint64_t>(-reserve) >= size;
  // 1/64 more than the reserve: what is lost at the ends of chunks when the reserve is used up.
  const std::uint64_t wanted = at + size + (gives_back ? 0 : reserved + reserved / 64 + 4096);
  EFS_TRY(grow(wanted));
  if (next_chunk && left >= sizeof(RecordHeader)) {
    const std::uint32_t mark = end_of_chunk;
    put(bytes_of(mark), tail_);
  }
  if (at / journal_chunk != chunk_index_) EFS_TRY(map_chunk(at / journal_chunk));
  RecordHeader header{.length = static_cast<std::uint32_t>(payload.size()), .unused = 0, .sequence = sequence_ + 1, .request = request, .checksum = 0};
  header.checksum = record_checksum(header, payload);
  thread_local std::vector<std::byte> record;
  record.assign(reinterpret_cast<const std::byte*>(&header), reinterpret_cast<const std::byte*>(&header) + sizeof header);
  record.insert(record.end(), payload.begin(), payload.end());
  put(record, at);
  tail_ = at + size;
  reserved_ = reserved;
  ++sequence_;
  return {};
}

Status Journal::sync() {
  return ::fsync(fd_.get()) == 0 ? Status{} : fail_errno("journal " + name_);
}

Status Journal::replace(const std::function<Status(Journal&)>& write) {
  const std::string next_name = name_ + ".new";
  if (::unlinkat(directory_, next_name.c_str(), 0) != 0 && errno != ENOENT) return fail_errno("journal " + next_name);
  auto next = create(directory_, next_name);
  if (!next) return std::unexpected(next.error());
  next->sequence_ = sequence_;
  next->put(bytes_of(make_header(sequence_ + 1)), 0);
  Status status = write(*next);
  if (status) status = next->sync();
  // R5: the rename is the switch; before it the old journal counts, after it the new one.
  if (status && ::renameat(directory_, next_name.c_str(), directory_, name_.c_str()) != 0) status = fail_errno("journal " + name_);
  if (!status) {
    ::unlinkat(directory_, next_name.c_str(), 0);
    return status;
  }
  if (const int fd = ::openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
  next->name_ = name_;
  *this = std::move(*next);
  return {};
}

}  // namespace efs::store
