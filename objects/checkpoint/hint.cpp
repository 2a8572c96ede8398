// SPDX-License-Identifier: BSD-3-Clause
// Copies of arrays before the checkpoint that they are for.
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "objects/checkpoint/checkpoints.hpp"
#include "objects/checkpoint/unordered.hpp"
#include "objects/name.hpp"

namespace efs::objects {

namespace {

void remove_draft(const ArrayFile& file) {
  ::unlinkat(file.entry.directory.get(), file.draft.name.c_str(), 0);
}

bool same_description(const Shape& left, const Shape& right) {
  return header_of(left) == header_of(right);
}

/// Returns true if the file has this memory, by its sum.
bool has_memory(const ArrayFile& file, const Protected& array) {
  auto sum = Checksum::begin();
  if (!sum || !file.sum) {
    return false;
  }
  const std::string header = header_of(array.shape);
  sum->add(header.data(), header.size());
  sum->add(array.data, array.shape.bytes);
  return sum->value() == file.sum->value();
}

/// Moves a draft to the directory of its array in the version. Returns false if that fails.
bool move_draft(const Store& version, const std::string& name, ArrayFile& file) {
  auto entry = open_place(version, {name, object_suffix}, true);
  const char* const draft = file.draft.name.c_str();
  if (!entry || ::renameat(file.entry.directory.get(), draft, entry->directory.get(), draft) != 0) {
    return false;
  }
  file.entry = std::move(*entry);
  return true;
}

}  // namespace

Status Checkpoints::hint(const Store& store, std::string_view name) {
  EO_TRY(check_process());
  const std::lock_guard lock(calls_);
  const auto found = arrays_.find(name);
  if (found == arrays_.end()) {
    return fail(ENOENT, "the array is not protected", "Use a name of eo_protect");
  }
  const Strategy expected = strategy_ == Strategy::automatic ? used_.load() : strategy_;
  if (expected == Strategy::snapshot || found->second.shape.bytes <= small_array) {
    return {};
  }
  hinted_ = true;
  worker().post([this, &store, array = found->second] { precopy(store, array); });
  return {};
}

void Checkpoints::precopy(const Store& store, const Protected& array) {
  // A failure is none of the caller: the checkpoint then writes the array itself.
  try {
    if (const auto old = hints_.find(array.name); old != hints_.end()) {
      remove_draft(old->second.file);
      hints_.erase(old);
    }
    auto root = open_directory(store.directory.get(), ".");
    if (!root || ending_hints_) {
      return;
    }
    auto file = create_array_file(Entry{std::move(*root), ""}, array.shape);
    if (!file) {
      return;
    }
    if (copy_to(*file, array)) {
      hints_.emplace(array.name, Hint{std::move(*file), array.shape});
    } else {
      remove_draft(*file);
    }
  } catch (...) {
    // Without memory the draft stays; the next eo_open after this process removes it.
  }
}

Status Checkpoints::copy_to(ArrayFile& file, const Protected& array) {
  // The sum is of what is written, also if the program changes the array meanwhile.
  std::vector<char> buffer(granule_size);
  for (std::uint64_t done = 0; done < array.shape.bytes;) {
    const std::uint64_t length = std::min(granule_size, array.shape.bytes - done);
    if (ending_hints_) {
      return fail(ECANCELED);
    }
    {
      const UnorderedReads reads;
      std::memcpy(buffer.data(), array.data + done, length);
    }
    EO_TRY(write_part(file, medium_, {buffer.data(), length}, done));
    done += length;
  }
  return {};
}

void Checkpoints::end_hints() {
  if (hinted_) {
    ending_hints_ = true;
    worker().wait();
    ending_hints_ = false;
    hinted_ = false;
  }
}

void Checkpoints::adopt(Job& job) {
  for (Item& item : job.items()) {
    const auto found = hints_.find(item.array.name);
    if (found == hints_.end()) {
      continue;
    }
    Hint& hint = found->second;
    if (same_description(hint.shape, item.array.shape) && has_memory(hint.file, item.array) &&
        move_draft(job.version(), item.array.name, hint.file)) {
      item.file = std::move(hint.file);
      item.stored = true;
      hints_.erase(found);
    }
  }
}

void Checkpoints::drop_hints() {
  for (const auto& [name, hint] : hints_) {
    remove_draft(hint.file);
  }
  hints_.clear();
}

}  // namespace efs::objects
