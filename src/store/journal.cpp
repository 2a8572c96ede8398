// SPDX-License-Identifier: BSD-3-Clause
#include "store/journal.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/checksum.hpp"

namespace efs::store {
namespace {

std::uint64_t aligned(std::uint64_t n) {
  return (n + record_alignment - 1) / record_alignment * record_alignment;
}

std::uint64_t whole_chunks(std::uint64_t n) {
  return (n + journal_chunk - 1) / journal_chunk * journal_chunk;
}

std::span<const std::byte> bytes_of(const auto& object, std::size_t length = sizeof(object)) {
  return {reinterpret_cast<const std::byte*>(&object), length};
}

// Checksums one contiguous copy in `summed`: the streaming interface costs more for so few bytes.
std::uint64_t record_checksum(const RecordHeader& header, std::span<const std::byte> payload,
                              std::vector<std::byte>& summed) {
  const auto head = bytes_of(header, offsetof(RecordHeader, checksum));
  summed.assign(head.begin(), head.end());
  summed.insert(summed.end(), payload.begin(), payload.end());
  return checksum(summed);
}

JournalHeader make_header(std::uint64_t first_sequence, std::uint64_t complete_to,
                          const InstanceId& instance) {
  JournalHeader header{.magic = journal_magic,
                       .version = journal_version,
                       .header_size = sizeof(JournalHeader),
                       .first_sequence = first_sequence,
                       .chunk = journal_chunk,
                       .complete_to = complete_to,
                       .instance = instance.bytes,
                       .checksum = 0};
  header.checksum = checksum(bytes_of(header, offsetof(JournalHeader, checksum)));
  return header;
}

bool all_zero(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes[0] == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// The bytes that must be allocated behind the records for this reserve. 1/64 more: space lost at
// the ends of chunks while the reserve is used up.
std::uint64_t room_for(std::uint64_t reserve) {
  return reserve + reserve / 64 + 4096;
}

std::string new_name(const std::string& name) {
  return name + ".new";
}

std::string last_name(const std::string& name) {
  return name + ".last";
}

// Returns the last number recorded for this store; 0 if there is none.
std::uint64_t noted_in(std::span<const std::byte> bytes, const InstanceId& instance) {
  LastRecord last{};
  std::memcpy(&last, bytes.data(), sizeof last);
  return last.magic == last_magic && last.instance == instance.bytes ? last.sequence : 0;
}

}  // namespace

std::uint64_t Journal::record_size(std::size_t payload) {
  return aligned(sizeof(RecordHeader) + payload);
}

std::uint64_t Journal::file_size(std::uint64_t records, std::uint64_t reserve) {
  return whole_chunks(sizeof(JournalHeader) + records + room_for(reserve));
}

// Creates a journal without records, named "NAME.new".
Result<Journal> Journal::make_beside(std::shared_ptr<Medium> medium, const std::string& name,
                                     std::uint64_t first_sequence, const InstanceId& instance) {
  EFS_TRY(medium->remove(new_name(name)));
  Journal journal;
  journal.medium_ = std::move(medium);
  journal.name_ = name;
  auto file = journal.medium_->create(new_name(name));
  if (!file) {
    return std::unexpected(file.error());
  }
  journal.file_ = std::move(*file);
  EFS_TRY(journal.grow(journal_chunk));
  journal.end_.first_sequence = first_sequence;
  journal.end_.instance = instance;
  EFS_TRY(journal.write_header(unfinished));
  journal.end_.tail = sizeof(JournalHeader);
  journal.sequence_ = first_sequence - 1;
  journal.batch_ = true;
  return journal;
}

Status Journal::write_header(std::uint64_t complete_to) {
  if (chunk_ == nullptr || chunk_index_ != 0) {
    EFS_TRY(map_chunk(0));
  }
  end_.complete_to = complete_to;
  put(bytes_of(make_header(end_.first_sequence, complete_to, end_.instance)), 0);
  return {};
}

// R5: the rename is the switch. Before the rename the old journal is valid, after it the new one.
// The new journal refers to durable data, so its whole content must be durable before the rename.
Status Journal::take_the_name(bool* switched) {
  EFS_TRY(write_header(sequence_));
  file_->drain();
  batch_ = false;
  EFS_TRY(file_->sync());
  EFS_TRY(medium_->rename(new_name(name_), name_));
  *switched = true;
  return medium_->sync_names();
}

Result<Journal> Journal::create(std::shared_ptr<Medium> medium, const std::string& name,
                                const InstanceId& instance) {
  if (auto there = medium->open(name, true); there || there.error().code != ENOENT) {
    return there ? fail(EEXIST, "journal " + name) : std::unexpected(there.error());
  }
  bool switched = false;
  auto journal = make_beside(medium, name, 1, instance);
  if (journal) {
    // before the journal exists: a number recorded for another journal must not apply to this one
    journal->open_last();
    journal->record_last();
  }
  Status status = journal ? journal->take_the_name(&switched) : std::unexpected(journal.error());
  if (status) {
    return journal;
  }
  (void)medium->remove(switched ? name : new_name(name));
  return std::unexpected(status.error());
}

Result<Journal> Journal::open(std::shared_ptr<Medium> medium, const std::string& name,
                              const Replay& replay, const JournalOptions& options) {
  Journal journal;
  journal.medium_ = std::move(medium);
  journal.name_ = name;
  auto file = journal.medium_->open(name, false);
  if (!file) {
    return std::unexpected(file.error());
  }
  journal.file_ = std::move(*file);
  EFS_TRY(journal.read_header());
  EFS_TRY(journal.expect(*journal.medium_, options));
  if (journal.end_.cut_short && !options.after_power_loss) {
    return journal.refuse_cut();
  }
  if (journal.end_.cut_short) {
    EFS_TRY(journal.grow(whole_chunks(journal.end_.size)));
  }
  EFS_TRY(journal.map_chunk(0));
  EFS_TRY(journal.replay_all(replay, options.verify));
  EFS_TRY(journal.refuse_damage(options.after_power_loss));
  EFS_TRY(journal.clear_behind_tail());
  EFS_TRY(journal.medium_->remove(new_name(name)));
  // R5: the process that renamed the journal may have died before it synced the directory. Sync it
  // now: later records must not go to a journal that power loss would remove.
  EFS_TRY(journal.medium_->sync_names());
  journal.open_last();
  journal.record_last();
  journal.replayed_ = journal.end_;
  return journal;
}

// Checks the journal against independent information: its owner, and its last record.
Status Journal::expect(Medium& medium, const JournalOptions& options) {
  EFS_TRY(refuse_other(options.instance));
  end_.complete_to = std::max(end_.complete_to, options.complete_to);
  if (options.after_power_loss || end_.complete_to == unfinished) {
    return {};
  }
  const auto file = medium.open(last_name(name_), true);
  const auto size = file ? (*file)->size() : std::unexpected(file.error());
  const auto noted = size && *size >= last_size ? (*file)->map(0, last_size) : fail(ENOENT);
  if (noted) {
    end_.complete_to = std::max(end_.complete_to, noted_in({*noted, last_size}, end_.instance));
  }
  return {};
}

// The file serves only to detect damage, so the journal works without it.
void Journal::open_last() {
  auto file = medium_->open(last_name(name_), false);
  if (!file) {
    file = medium_->create(last_name(name_));
  }
  if (!file || !(*file)->allocate(last_size)) {
    return;
  }
  const auto mapped = (*file)->map(0, last_size);
  if (!mapped) {
    return;
  }
  last_file_ = std::move(*file);
  last_ = *mapped;
  last_file_->store(
      last_, bytes_of(LastRecord{
                 .magic = last_magic, .instance = end_.instance.bytes, .sequence = sequence_}));
}

// One store of 8 bytes, after the record: the number never exceeds the records.
void Journal::record_last() {
  if (last_ != nullptr) {
    last_file_->store(last_ + offsetof(LastRecord, sequence), bytes_of(sequence_));
  }
}

Status Journal::refuse_other(const InstanceId& instance) const {
  if (!end_.instance.contradicts(instance)) {
    return {};
  }
  return fail(EUCLEAN, "journal " + name_ + ": it belongs to another instance (" +
                           to_string(end_.instance) + ", and this store to " + to_string(instance) +
                           "); nothing was changed. Restore the journal of this store");
}

Status Journal::refuse_damage(bool after_power_loss) const {
  const std::string last = std::to_string(end_.sequence);
  if (end_.settled) {
    return fail(EUCLEAN, "journal " + name_ + ": it is damaged behind record " + last +
                             ", although later records had reached the medium: power loss does not "
                             "explain this; nothing was removed");
  }
  if (end_.cut_short && !after_power_loss) {
    return refuse_cut();
  }
  if (end_.followed && !after_power_loss) {
    return fail(EUCLEAN, "journal " + name_ + ": it is damaged behind record " + last +
                             ", and good records follow; nothing was removed");
  }
  if (end_.spoilt && !after_power_loss) {
    return fail(EUCLEAN, "journal " + name_ + ": its last record, behind record " + last +
                             ", is damaged: it was whole once; nothing was removed");
  }
  if (end_.incomplete) {
    return fail(
        EUCLEAN,
        "journal " + name_ + ": it ends at record " + last + " and " +
            (end_.complete_to == unfinished ? "was never finished"
                                            : "had all up to " + std::to_string(end_.complete_to)) +
            ": it is damaged, cut short, or older than its store; nothing was removed");
  }
  return {};
}

std::unexpected<Error> Journal::refuse_cut() const {
  return fail(EUCLEAN, "journal " + name_ + ": it is cut short, at " + std::to_string(end_.size) +
                           " bytes; nothing was removed");
}

Result<ReplayEnd> Journal::scan(Medium& medium, const std::string& name, const Replay& replay,
                                const JournalOptions& options) {
  Journal journal;
  journal.name_ = name;
  auto file = medium.open(name, true);
  if (!file) {
    return std::unexpected(file.error());
  }
  journal.file_ = std::move(*file);
  EFS_TRY(journal.read_header());
  EFS_TRY(journal.expect(medium, options));
  journal.allocated_ = whole_chunks(journal.end_.size);
  EFS_TRY(journal.replay_all(replay));
  return journal.end_;
}

// Reads the fields of the header. The first chunk is mapped on return.
Status Journal::read_header() {
  auto size = file_->size();
  if (!size) {
    return std::unexpected(size.error());
  }
  end_.size = *size;
  allocated_ = *size / journal_chunk * journal_chunk;
  if (*size < sizeof(JournalHeader)) {
    return fail(EPROTO, "journal " + name_ + ": too short to be a journal of efs");
  }
  auto cut = ends_in_records();
  if (!cut) {
    return std::unexpected(cut.error());
  }
  end_.cut_short = *cut;
  EFS_TRY(map_chunk(0));
  JournalHeader header{};
  std::memcpy(&header, chunk_, sizeof header);
  // All versions have these fields and this checksum, so that damage is not taken for a later
  // version, which a salvage would refuse.
  if (header.magic != journal_magic ||
      header.checksum != checksum(bytes_of(header, offsetof(JournalHeader, checksum)))) {
    return fail(EPROTO, "journal " + name_ + ": not a journal of efs, or its header is damaged");
  }
  EFS_TRY(check_version(header));
  end_.version = header.version;
  end_.tail = sizeof(JournalHeader);
  end_.first_sequence = header.first_sequence;
  end_.complete_to = header.complete_to;
  end_.instance.bytes = header.instance;
  sequence_ = end_.sequence = header.first_sequence - 1;
  return {};
}

Status Journal::check_version(const JournalHeader& header) const {
  if (header.version >= oldest_version && header.version <= journal_version &&
      header.chunk == journal_chunk && header.header_size == sizeof(JournalHeader)) {
    return {};
  }
  return fail(EPROTONOSUPPORT,
              "journal " + name_ + ": written by another version of efs (format " +
                  std::to_string(header.version) + ", and this efs reads " +
                  std::to_string(oldest_version) + " to " + std::to_string(journal_version) +
                  "). Nothing was changed. Open the store with the efs that wrote it" +
                  (header.version < oldest_version ? "" : ", or a newer one"));
}

// Whole chunks are allocated before use. If a full file system allocated only a part of a chunk,
// that part is empty.
Result<bool> Journal::ends_in_records() {
  const std::uint64_t within = end_.size % journal_chunk;
  if (within == 0) {
    return false;
  }
  EFS_TRY(map_chunk(end_.size / journal_chunk));
  return !all_zero({chunk_, within});
}

namespace {

// Reads the header at `within` of a chunk. Returns false if no record begins in the rest of it.
bool read_record_header(const std::byte* chunk, std::uint64_t within, RecordHeader& header) {
  if (within + sizeof header > journal_chunk) {
    return false;
  }
  std::memcpy(&header, chunk + within, sizeof header);
  return header.length != end_of_chunk;
}

// Returns whether the record of this header can lie at `within` of a chunk.
bool has_valid_length(const RecordHeader& header, std::uint64_t within) {
  return header.length != 0 && header.length <= Journal::max_payload &&
         within + Journal::record_size(header.length) <= journal_chunk;
}

}  // namespace

Status Journal::replay_all(const Replay& replay, bool verify) {
  std::uint64_t& tail = end_.tail;
  while (tail < allocated_) {
    const std::uint64_t within = tail % journal_chunk;
    if (tail / journal_chunk != chunk_index_) {
      EFS_TRY(map_chunk(tail / journal_chunk));
    }
    RecordHeader header{};
    if (!read_record_header(chunk_, within, header)) {
      tail += journal_chunk - within;
      continue;
    }
    end_.spoilt = header.length != 0;
    if (!has_valid_length(header, within)) {
      break;
    }
    const std::span payload(chunk_ + within + sizeof header, header.length);
    // R2: replay ends at the first record that does not verify, even if it looks valid.
    if (header.sequence != sequence_ + 1 ||
        (verify && header.checksum != record_checksum(header, payload, scratch_))) {
      break;
    }
    if (const Status done = replay(Record{header.sequence, header.request, payload, end_.version});
        !done) {
      return fail(done.error().code, "journal " + name_ + ", record " +
                                         std::to_string(header.sequence) + ": " +
                                         describe(done.error()));
    }
    sequence_ = header.sequence;
    end_.spoilt = false;
    ++end_.records;
    tail += record_size(header.length);
  }
  end_.sequence = sequence_;
  end_.incomplete = sequence_ < end_.complete_to;
  // The journal allocates the next chunk before the last one is full.
  end_.cut_short = end_.cut_short || tail + sizeof(RecordHeader) > allocated_;
  return look_behind_tail();
}

// If only the last record is incomplete, no good record follows. In later chunks the search starts
// at the chunk's begin, because any records begin there.
Status Journal::look_behind_tail() {
  const std::uint64_t index = end_.tail / journal_chunk, within = end_.tail % journal_chunk;
  for (std::uint64_t later = index + 1; later * journal_chunk < allocated_ && !end_.settled;
       ++later) {
    EFS_TRY(map_chunk(later));
    for (std::uint64_t at = 0, size = 0; (size = later_record(at)) != 0;) {
      at += size;
    }
  }
  if (end_.tail < allocated_) {
    if (index != chunk_index_) {
      EFS_TRY(map_chunk(index));
    }
    end_.torn = !all_zero({chunk_ + within, journal_chunk - within});
  }
  for (std::uint64_t at = within;
       end_.torn && !end_.settled && at + sizeof(RecordHeader) <= journal_chunk;) {
    at += std::max(later_record(at), record_alignment);
  }
  end_.torn = end_.torn || end_.followed;
  return {};
}

// Looks in the mapped chunk for a good record newer than the last replayed one. Returns its size,
// or 0.
std::uint64_t Journal::later_record(std::uint64_t within) {
  if (within + sizeof(RecordHeader) > journal_chunk) {
    return 0;
  }
  RecordHeader header{};
  std::memcpy(&header, chunk_ + within, sizeof header);
  const bool may_be_one = header.sequence > sequence_ &&
                          header.sequence - sequence_ <= allocated_ / sizeof(RecordHeader);
  if (!may_be_one || header.length == 0 || header.length > max_payload ||
      within + record_size(header.length) > journal_chunk) {
    return 0;
  }
  if (header.checksum != record_checksum(header,
                                         std::span(chunk_ + within + sizeof header, header.length),
                                         scratch_)) {
    return 0;
  }
  end_.followed = true;
  end_.settled =
      end_.settled || (header.unsettled != 0 && header.sequence > sequence_ + header.unsettled);
  return record_size(header.length);
}

// The next record gets the sequence of the record that did not verify. Remains of old records
// behind it could then appear to continue the journal, so clear them.
Status Journal::clear_behind_tail() {
  const std::uint64_t end_of_tail = whole_chunks(end_.tail + sizeof(RecordHeader));
  if (allocated_ > end_of_tail) {
    EFS_TRY(file_->cut(end_of_tail));
    EFS_TRY(file_->sync());
    allocated_ = end_of_tail;
  }
  if (end_.tail >= allocated_ || !end_.torn) {
    return {};
  }
  static constexpr std::array<std::byte, 4096> zeros{};
  for (std::uint64_t at = end_.tail, length = 0; at < end_of_tail; at += length) {
    length = std::min<std::uint64_t>(zeros.size() - at % zeros.size(), end_of_tail - at);
    const std::span<const std::byte> there(chunk_ + at % journal_chunk, length);
    if (!all_zero(there)) {
      put(std::span(zeros).first(length), at);
    }
  }
  file_->drain();
  return file_->sync();
}

Status Journal::grow(std::uint64_t wanted_end) {
  const std::uint64_t end = whole_chunks(wanted_end);
  if (end <= allocated_) {
    return {};
  }
  EFS_TRY(file_->allocate(end));
  allocated_ = end;
  return {};
}

Status Journal::map_chunk(std::uint64_t index) {
  chunk_ = nullptr;
  auto mapped = file_->map(index * journal_chunk, journal_chunk);
  if (!mapped) {
    return std::unexpected(mapped.error());
  }
  chunk_ = *mapped;
  chunk_index_ = index;
  return {};
}

void Journal::put(std::span<const std::byte> bytes, std::uint64_t at) {
  file_->store(chunk_ + at % journal_chunk, bytes);
}

Status Journal::set_reserve(std::uint64_t bytes) {
  reserved_ = bytes;
  return grow(end_.tail + room_for(reserved_));
}

namespace {

// Returns the reserved bytes after a change by `change`.
std::uint64_t changed_reserve(std::uint64_t reserved, std::int64_t change) {
  return change < 0 ? reserved - std::min(reserved, static_cast<std::uint64_t>(-change))
                    : reserved + static_cast<std::uint64_t>(change);
}

// Returns the bytes that must be allocated behind a record of `size` bytes. Only a record that
// releases at least its own size may use the reserve.
std::uint64_t needed_behind(std::uint64_t size, std::uint64_t reserved, std::int64_t change) {
  if (change < 0 && static_cast<std::uint64_t>(-change) >= size) {
    return sizeof(RecordHeader);
  }
  return room_for(reserved);
}

// `durable`: as for Journal::append(). The checksum is still to be set.
RecordHeader header_of(const Record& record, std::uint64_t durable) {
  const std::uint64_t unsettled = durable == 0 ? 0 : record.sequence - durable;
  return {.length = static_cast<std::uint32_t>(record.payload.size()),
          .unsettled = unsettled > UINT32_MAX ? 0 : static_cast<std::uint32_t>(unsettled),
          .sequence = record.sequence,
          .request = record.request,
          .checksum = 0};
}

}  // namespace

Status Journal::append(std::uint64_t request, std::span<const std::byte> payload,
                       std::int64_t reserve, std::uint64_t durable) {
  if (payload.empty() || payload.size() > max_payload) {
    return fail(EINVAL, "journal record of " + std::to_string(payload.size()) + " bytes");
  }
  if (end_.version != journal_version) {
    return fail(EPROTO, "journal " + name_ + " has the older format " +
                            std::to_string(end_.version) + " and takes no records");
  }
  const std::uint64_t size = record_size(payload.size());
  std::uint64_t at = end_.tail;
  const std::uint64_t left = journal_chunk - at % journal_chunk;
  const bool next_chunk = left < size;
  if (next_chunk) {
    at += left;
  }
  const std::uint64_t reserved = changed_reserve(reserved_, reserve);
  EFS_TRY(grow(at + size + needed_behind(size, reserved, reserve)));
  const auto map_position = [this](std::uint64_t position) -> Status {
    const std::uint64_t index = position / journal_chunk;
    return index != chunk_index_ || chunk_ == nullptr ? map_chunk(index) : Status{};
  };
  if (next_chunk && left >= sizeof(RecordHeader)) {
    const std::uint32_t mark = end_of_chunk;
    EFS_TRY(map_position(end_.tail));
    put(bytes_of(mark), end_.tail);
  }
  EFS_TRY(map_position(at));
  RecordHeader header = header_of(Record{sequence_ + 1, request, payload}, durable);
  header.checksum = record_checksum(header, payload, scratch_);
  const auto head = bytes_of(header);
  scratch_.assign(head.begin(), head.end());
  scratch_.insert(scratch_.end(), payload.begin(), payload.end());
  // Stores the length last: a process that dies before leaves a length of 0. So a record with a
  // length was complete once.
  constexpr std::size_t first = offsetof(RecordHeader, sequence);
  put(std::span(scratch_).subspan(first), at + first);
  put(std::span(scratch_).first(first), at);
  if (!batch_) {
    file_->drain();
  }
  end_.tail = at + size;
  reserved_ = reserved;
  ++sequence_;
  record_last();
  return {};
}

Status Journal::replace(const std::function<Status(Journal&)>& write, bool* switched) {
  bool done = false;
  auto next = make_beside(medium_, name_, sequence_ + 1, end_.instance);
  Status status = next ? write(*next) : std::unexpected(next.error());
  if (status) {
    status = next->take_the_name(&done);
  }
  if (switched != nullptr) {
    *switched = done;
  }
  if (done) {
    next->last_file_ = std::move(last_file_);
    next->last_ = last_;
    *this = std::move(*next);
    record_last();
  } else {
    (void)medium_->remove(new_name(name_));
  }
  return status;
}

}  // namespace efs::store
