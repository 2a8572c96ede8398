// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/door_clients.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "base/unique_fd.hpp"

namespace efs::fuse {
namespace {

constexpr std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();

std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
  return a > limit - b ? limit : a + b;
}

void add(std::atomic<std::uint64_t>& total, std::uint64_t more) {
  auto seen = total.load(std::memory_order_relaxed);
  while (!total.compare_exchange_weak(seen, sum(seen, more), std::memory_order_relaxed)) {
  }
}

void add(DoorCounts& all, const DoorCounts& more) {
  all.reads = sum(all.reads, more.reads);
  all.read_bytes = sum(all.read_bytes, more.read_bytes);
  all.writes = sum(all.writes, more.writes);
  all.written_bytes = sum(all.written_bytes, more.written_bytes);
  all.kernel_calls = sum(all.kernel_calls, more.kernel_calls);
  all.mapped_files = more.mapped_files;
}

// The name is the program's own choice, at most 15 bytes of any value.
std::string program_of(pid_t pid) {
  if (pid <= 0) {
    return {};
  }
  const UniqueFd fd(
      ::open(("/proc/" + std::to_string(pid) + "/comm").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 16> text{};
  const ssize_t got = fd ? ::read(fd.get(), text.data(), text.size()) : 0;
  std::string name(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  if (name.ends_with('\n')) {
    name.pop_back();
  }
  return name;
}

}  // namespace

DoorClients::DoorClients(DoorTotals& totals)
    : totals_(totals),
      first_(static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                        std::chrono::nanoseconds(1))),
      next_(first_) {}

std::uint64_t DoorClients::opened(pid_t pid) noexcept {
  const std::uint64_t handle = next_.fetch_add(1);
  ++open_;
  add(totals_.clients, 1);
  keep(handle, pid, {});
  return handle;
}

void DoorClients::keep(std::uint64_t handle, pid_t pid, const DoorCounts& counts) noexcept try {
  Client client{.pid = pid, .program = program_of(pid), .counts = counts};
  MutexLock lock(mutex_);
  if (clients_.size() < most) {
    clients_.try_emplace(handle, std::move(client));
  }
} catch (const std::bad_alloc&) {
}  // it is counted

void DoorClients::reported(std::uint64_t handle, pid_t pid, const DoorCounts& counts) noexcept {
  add(totals_.reads, counts.reads);
  add(totals_.read_bytes, counts.read_bytes);
  add(totals_.writes, counts.writes);
  add(totals_.written_bytes, counts.written_bytes);
  add(totals_.kernel_calls, counts.kernel_calls);
  {
    MutexLock lock(mutex_);
    if (const auto it = clients_.find(handle); it != clients_.end()) {
      return add(it->second.counts, counts);
    }
    if (clients_.size() >= most) {
      return;
    }
  }
  keep(handle, pid, counts);
}

bool DoorClients::closed(std::uint64_t handle) noexcept {
  {
    MutexLock lock(mutex_);
    clients_.erase(handle);
  }
  const bool is_own = handle >= first_;
  if (is_own) {
    --open_;
  }
  return is_own;
}

std::size_t DoorClients::kept() const {
  MutexLock lock(mutex_);
  return clients_.size();
}

std::vector<DoorClients::Client> DoorClients::list(std::size_t most_shown) const {
  std::vector<std::pair<std::uint64_t, Client>> all;
  {
    MutexLock lock(mutex_);
    all.assign(clients_.begin(), clients_.end());
  }
  const auto shown = static_cast<std::ptrdiff_t>(std::min(most_shown, all.size()));
  std::ranges::partial_sort(all, all.begin() + shown, {}, &std::pair<std::uint64_t, Client>::first);
  std::vector<Client> list;
  list.reserve(static_cast<std::size_t>(shown));
  for (auto it = all.begin(); it != all.begin() + shown; ++it) {
    list.push_back(std::move(it->second));
  }
  return list;
}

}  // namespace efs::fuse
