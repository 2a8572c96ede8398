// SPDX-License-Identifier: BSD-3-Clause
#include "objects/checkpoint/job.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "objects/name.hpp"

namespace efs::objects {

namespace {

constexpr std::uint64_t page_bytes = 4096;
// Bytes that stay in the cache of the processor between their sum and their write.
constexpr std::size_t cached_size = 256U << 10U;

}  // namespace

Status Medium::write(int fd, std::string_view bytes, std::uint64_t offset, Checksum* sum) {
  while (!bytes.empty()) {
    const std::string_view unit = bytes.substr(0, granule_size);
    const Moment begun = std::chrono::steady_clock::now();
    for (std::size_t done = 0; done < unit.size(); done += cached_size) {
      const std::string_view part = unit.substr(done, cached_size);
      if (sum != nullptr) {
        sum->add(part.data(), part.size());
      }
      EO_TRY(write_all(fd, part.data(), part.size(), offset + done));
    }
    if (pace_.limited()) {
      std::this_thread::sleep_until(pace_.end_of(unit.size(), begun));
    }
    if (unit.size() == granule_size) {
      rate_.add(unit.size(), std::chrono::steady_clock::now() - begun);
    }
    offset += unit.size();
    bytes.remove_prefix(unit.size());
  }
  return {};
}

Status write_part(ArrayFile& file, Medium& medium, std::string_view bytes, std::uint64_t offset) {
  offset += file.header;
  if (file.summed != offset) {
    file.sum.reset();
  }
  file.summed = offset + bytes.size();
  return medium.write(file.draft.fd.get(), bytes, offset, file.sum ? &*file.sum : nullptr);
}

Result<ArrayFile> create_array_file(Entry entry, const Shape& shape) {
  auto draft = create_draft(entry.directory.get());
  if (!draft) {
    return std::unexpected(std::move(draft.error()));
  }
  const std::string header = header_of(shape);
  Status made;
  if (::ftruncate(draft->fd.get(), static_cast<off_t>(header.size() + shape.bytes)) != 0) {
    made = fail(errno);
  }
  if (made) {
    made = write_all(draft->fd.get(), header.data(), header.size(), 0);
  }
  if (!made) {
    ::unlinkat(entry.directory.get(), draft->name.c_str(), 0);
    return std::unexpected(std::move(made.error()));
  }
  ArrayFile file{std::move(entry), std::move(*draft), header.size(), std::nullopt, header.size()};
  if (auto sum = Checksum::begin()) {
    sum->add(header.data(), header.size());
    file.sum = std::move(*sum);
  }
  return file;
}

Job::~Job() {
  try {
    if (!committed_) {
      abort(*version_);
    }
  } catch (...) {
    // Without memory the draft stays; the next eo_open removes it.
  }
}

std::uint64_t Job::bytes() const {
  std::uint64_t sum = 0;
  for (const Item& item : items_) {
    sum += item.stored ? 0 : item.array.shape.bytes;
  }
  return sum;
}

std::uint64_t Job::place(std::uint64_t direct, bool staged) {
  std::uint64_t offset = 0;
  for (Item& item : items_) {
    const std::uint64_t bytes = item.array.shape.bytes;
    item.direct = bytes;
    if (!item.stored) {
      item.direct = staged && item.small() ? 0 : std::min(bytes, direct);
      item.direct -= item.direct < bytes ? item.direct % page_bytes : 0;
      direct -= item.direct;
    }
    item.offset = offset;
    offset += (item.rest() + page_bytes - 1) / page_bytes * page_bytes;
  }
  return offset;
}

void Job::stage_at(char* memory) {
  for (Item& item : items_) {
    item.staged = memory + item.offset;
  }
}

Status Job::in_background(Failure failure) const {
  const Unpublished& place = *version_->unpublished;
  const std::string reason = failure.reason.empty() ? std::strerror(failure.code) : failure.reason;
  failure.reason = "version " + printable(place.name) + " of " + printable(place.series_name) +
                   " was not written: " + reason;
  return std::unexpected(std::move(failure));
}

Status Job::store_small(Item& item, char* data) {
  eo_array array{};
  describe(item.array.shape, array);
  array.data = data;
  item.stored = true;
  return store_array(*version_, item.array.name, array, 0);
}

Status Job::write(Item& item, Medium& medium, const char* from, std::uint64_t size,
                  std::uint64_t offset) {
  if (!item.file) {
    auto entry = open_place(*version_, {item.array.name, object_suffix}, true);
    if (!entry) {
      return std::unexpected(std::move(entry.error()));
    }
    auto file = create_array_file(std::move(*entry), item.array.shape);
    if (!file) {
      return std::unexpected(std::move(file.error()));
    }
    item.file = std::move(*file);
  }
  return write_part(*item.file, medium, {from, size}, offset);
}

Status Job::write_direct(Medium& medium) {
  for (Item& item : items_) {
    if (item.stored) {
      continue;
    }
    if (item.small() && item.rest() == 0) {
      EO_TRY(store_small(item, item.array.data));
    } else if (item.direct > 0) {
      EO_TRY(write(item, medium, item.array.data, item.direct, 0));
    }
  }
  return {};
}

Status Job::write_staged(Medium& medium) {
  for (Item& item : items_) {
    if (item.small() && !item.stored) {
      EO_TRY(store_small(item, item.staged));
    } else if (item.rest() > 0) {
      EO_TRY(write(item, medium, item.staged, item.rest(), item.direct));
    }
  }
  return {};
}

Status Job::publish_file(const Item& item) const {
  const ArrayFile& file = *item.file;
  const std::string& name = item.array.name;
  EO_TRY(publish(version_->directory, name, file.entry, file.draft, 0));
  // The commit does not read the file again for its checksum.
  struct stat status{};
  const bool whole = file.summed == file.header + item.array.shape.bytes;
  if (file.sum && whole && ::fstat(file.draft.fd.get(), &status) == 0) {
    version_->written->set(name, Written::of(status, file.sum->value()));
  }
  return {};
}

Status Job::commit() {
  for (const Item& item : items_) {
    if (item.file) {
      EO_TRY(publish_file(item));
    }
  }
  EO_TRY(objects::commit(*version_, flags_));
  committed_ = true;
  return {};
}

}  // namespace efs::objects
