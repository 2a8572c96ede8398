// SPDX-License-Identifier: BSD-3-Clause
#include "record/events.hpp"

#include <algorithm>
#include <cstring>

namespace efs::record {
namespace {

template <typename T>
T copy_of(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// `bytes`: the event with its names.
void take_event(std::span<const std::byte> bytes, std::vector<Event>& events) {
  const auto event = copy_of<efs_event>(bytes);
  const auto names = bytes.subspan(sizeof event);
  const std::size_t first = event.first_length, second = event.second_length;
  const bool is_whole = event.done == 1 && event.kind >= EFS_EVENT_READ &&
                        event.kind <= EFS_EVENT_MAKE_DIRECTORY && first + second <= names.size();
  if (is_whole) {
    events.push_back({.kind = static_cast<efs_event_kind>(event.kind),
                      .order = event.order,
                      .path = text_of(names.first(first)),
                      .second = text_of(names.subspan(first, second)),
                      .size = event.size});
  }
}

}  // namespace

Recording read_recording(std::span<const std::byte> bytes) {
  Recording recording;
  if (bytes.size() < sizeof(efs_recording)) {
    return recording;
  }
  const auto head = copy_of<efs_recording>(bytes);
  recording.lost = head.lost;
  recording.processes = head.processes;
  bytes = bytes.first(std::min<std::uint64_t>(bytes.size(), head.used));
  std::size_t at = std::min(sizeof head, bytes.size());
  while (bytes.size() - at >= sizeof(efs_event)) {
    const std::size_t length = copy_of<efs_event>(bytes.subspan(at)).length;
    if (length == 0) {
      at += EFS_RECORDING_ALIGNMENT;
      continue;
    }
    if (length < sizeof(efs_event) || length > bytes.size() - at) {
      break;
    }
    take_event(bytes.subspan(at, length), recording.events);
    at += length;
  }
  std::ranges::stable_sort(recording.events, {}, &Event::order);
  return recording;
}

}  // namespace efs::record
