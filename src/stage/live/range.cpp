// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/range.hpp"

#include <algorithm>
#include <charconv>

#include "stage/copy/data_ranges.hpp"

namespace efs::stage {

Result<Part> clipped(Part part, std::uint64_t size) {
  if (part.offset >= size) {
    return fail(EINVAL, "the part begins at byte " + std::to_string(part.offset) +
                            ", the file has " + std::to_string(size));
  }
  const std::uint64_t left = size - part.offset;
  part.length = part.length == 0 ? left : std::min(part.length, left);
  return part;
}

std::string to_text(const std::vector<Part>& parts) {
  std::string text;
  for (const auto& part : parts) {
    text +=
        (text.empty() ? "" : ",") + std::to_string(part.offset) + "+" + std::to_string(part.length);
  }
  return text;
}

std::vector<Part> parts_of(const std::string& text) {
  std::vector<Part> parts;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    Part part;
    auto read = std::from_chars(at, end, part.offset);
    if (read.ec != std::errc{} || read.ptr == end || *read.ptr != '+') {
      return {};
    }
    read = std::from_chars(read.ptr + 1, end, part.length);
    if (read.ec != std::errc{} || (read.ptr != end && *read.ptr != ',')) {
      return {};
    }
    parts.push_back(part);
    at = read.ptr == end ? end : read.ptr + 1;
  }
  return parts;
}

std::vector<Part> united(std::vector<Part> parts, Part added) {
  parts.push_back(added);
  std::ranges::sort(parts, {}, &Part::offset);
  std::vector<Part> result;
  for (const auto& part : parts) {
    if (!result.empty() && part.offset <= result.back().offset + result.back().length) {
      Part& last = result.back();
      last.length = std::max(last.offset + last.length, part.offset + part.length) - last.offset;
    } else {
      result.push_back(part);
    }
  }
  return result;
}

namespace {

// Writes all of `data` at the offset `at`.
Status write_full(const ContentSink& destination, std::span<const std::byte> data,
                  std::uint64_t at) {
  for (std::size_t done = 0; done < data.size();) {
    auto put = destination.write(data.subspan(done), at + done);
    if (!put) {
      return fail(put.error().code, "writing: " + describe(put.error()));
    }
    if (*put == 0) {
      return fail(EIO, "writing: the file system took nothing");
    }
    done += *put;
  }
  return {};
}

Status copy_range(const PartCopy& copy, DataRange range, std::span<std::byte> buffer) {
  for (std::uint64_t at = range.begin; at < range.end;) {
    if (copy.progress.cancel) {
      return fail(ECANCELED, "cancelled");
    }
    const auto most = buffer.first(std::min<std::uint64_t>(buffer.size(), range.end - at));
    auto got = copy.source.read(most, at);
    if (!got) {
      return fail(got.error().code, "reading: " + describe(got.error()));
    }
    if (*got == 0) {
      return fail(ESTALE, "changed while it was being read: it ends at byte " + std::to_string(at));
    }
    const auto data = buffer.first(*got);
    EFS_TRY(write_full(copy.destination, data, at));
    if (copy.sum != nullptr) {
      copy.sum->update(data);
    }
    at += *got;
    copy.progress.bytes_done += *got;
  }
  return {};
}

}  // namespace

Status copy_part(const PartCopy& copy, Part part, Scratch& scratch) {
  const auto buffer = scratch.buffer(0);
  const std::uint64_t end = part.offset + part.length;
  DataRanges ranges(copy.source, end, true);
  for (std::uint64_t at = part.offset; at < end;) {
    const auto range = ranges.next(at);
    if (!range) {
      return std::unexpected(range.error());
    }
    if (copy.sum != nullptr) {
      copy.sum->skip(range->begin - at);
    }
    copy.progress.bytes_done += range->begin - at;
    EFS_TRY(copy_range(copy, *range, buffer));
    at = range->end;
  }
  return {};
}

}  // namespace efs::stage
