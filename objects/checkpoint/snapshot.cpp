// SPDX-License-Identifier: BSD-3-Clause
#include "objects/checkpoint/snapshot.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "objects/checkpoint/job.hpp"
#include "objects/checkpoint/unordered.hpp"
#include "objects/checkpoint/worker.hpp"

namespace efs::objects {

namespace {

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif

constexpr std::uint64_t features =
    UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;

std::uint64_t address_of(const void* memory) {
  return reinterpret_cast<std::uint64_t>(memory);
}

uffdio_range range_of(const Range& range) {
  return {address_of(range.begin), range.size};
}

/// Opens a userfaultfd that also handles the faults of system calls: read(2) into the memory.
Result<Fd> open_faults() {
  Fd faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  if (!faults && errno == EPERM) {
    const Fd device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
    if (device) {
      faults = Fd(::ioctl(device.get(), USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK));
    } else {
      errno = EPERM;
    }
  }
  if (!faults && errno == EPERM) {
    return fail(EPERM, "this user may not protect memory by userfaultfd",
                "Give the user access to /dev/userfaultfd, or use the strategy stage");
  }
  if (!faults) {
    return fail(ENOTSUP, std::string("userfaultfd: ") + std::strerror(errno),
                "Use the strategy stage");
  }
  return faults;
}

/// ENOTSUP if a range is shared memory: a write of another process, or by another mapping, passes
/// the protection.
Status check_private(const std::vector<Range>& ranges) {
  std::ifstream maps("/proc/self/maps");
  if (!maps) {
    return fail(ENOTSUP, "/proc/self/maps cannot be read", "Use the strategy stage");
  }
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    char mode[8] = {};
    if (std::sscanf(line.c_str(), "%llx-%llx %7s", &begin, &end, mode) != 3 || mode[3] != 's') {
      continue;
    }
    for (const Range& range : ranges) {
      if (address_of(range.begin) < end && begin < address_of(range.begin) + range.size) {
        return fail(ENOTSUP, "an array is in shared memory, where other processes can write",
                    "Allocate it with malloc, or use the strategy stage");
      }
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Snapshot>> Snapshot::of(const std::vector<Range>& ranges, const Fast& fast) {
  std::unique_ptr<Snapshot> snapshot(new Snapshot(fast));
  snapshot->divide(ranges);
  for (std::size_t i = 1; i < snapshot->granules_.size(); ++i) {
    const Range& before = snapshot->granules_[i - 1].range;
    if (before.begin + before.size > snapshot->granules_[i].range.begin) {
      return fail(ENOTSUP, "two protected arrays overlap", "Use the strategy stage");
    }
  }
  EO_TRY(check_private(ranges));
  EO_TRY(snapshot->open());
  EO_TRY(snapshot->protect(ranges));
  return snapshot;
}

void Snapshot::divide(const std::vector<Range>& ranges) {
  std::vector<Range> parts;
  for (const Range& range : ranges) {
    for (std::uint64_t done = 0; done < range.size;) {
      const std::uint64_t to_end = granule_size - address_of(range.begin + done) % granule_size;
      const std::uint64_t size = std::min(to_end, range.size - done);
      parts.push_back({range.begin + done, size, range.saved + done, range.item, range.at + done});
      done += size;
    }
  }
  std::ranges::sort(parts, {}, &Range::begin);
  granules_ = std::vector<Granule>(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    granules_[i].range = parts[i];
  }
  visited_.resize(parts.size());
  content_.resize(granule_size);
}

Status Snapshot::open() {
  auto faults = open_faults();
  if (!faults) {
    return std::unexpected(std::move(faults.error()));
  }
  faults_ = std::move(*faults);
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = features;
  if (::ioctl(faults_.get(), UFFDIO_API, &api) != 0) {
    return fail(ENOTSUP, "the kernel cannot protect all memory by userfaultfd",
                "Use Linux 6.4 or newer, or the strategy stage");
  }
  ending_ = Fd(::eventfd(0, EFD_CLOEXEC));
  return ending_ ? Status() : fail(errno);
}

Status Snapshot::protect(const std::vector<Range>& ranges) {
  registered_.reserve(ranges.size());
  for (const Range& range : ranges) {
    uffdio_register request{};
    request.range = range_of(range);
    request.mode = UFFDIO_REGISTER_MODE_WP;
    if (::ioctl(faults_.get(), UFFDIO_REGISTER, &request) != 0) {
      return fail(
          ENOTSUP,
          std::string("the memory of an array cannot be protected: ") + std::strerror(errno),
          "Allocate it with malloc or mmap, or use the strategy stage");
    }
    registered_.push_back(range);
  }
  handler_ = quiet_thread([this] { handle_faults(); });
  for (const Range& range : ranges) {
    uffdio_writeprotect request{};
    request.range = range_of(range);
    request.mode = UFFDIO_WRITEPROTECT_MODE_WP;
    if (::ioctl(faults_.get(), UFFDIO_WRITEPROTECT, &request) != 0) {
      return fail(ENOTSUP, std::string("UFFDIO_WRITEPROTECT: ") + std::strerror(errno),
                  "Use the strategy stage");
    }
  }
  return {};
}

Snapshot::~Snapshot() {
  if (handler_.joinable()) {
    const std::uint64_t one = 1;
    while (::write(ending_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
    handler_.join();
  }
  // It also wakes the threads that wait.
  for (const Range& range : registered_) {
    uffdio_range request = range_of(range);
    ::ioctl(faults_.get(), UFFDIO_UNREGISTER, &request);
  }
}

void Snapshot::release(const Range& range) const {
  uffdio_writeprotect request{};
  request.range = range_of(range);
  while (::ioctl(faults_.get(), UFFDIO_WRITEPROTECT, &request) != 0 && errno == EAGAIN) {
  }
}

const char* Snapshot::acquire(Granule& granule) {
  auto state = Granule::State::untouched;
  // Until the handler has saved it: a copy of at most 2 MiB.
  while (!granule.state.compare_exchange_strong(state, Granule::State::taken)) {
    if (state == Granule::State::saved) {
      return fast_.data() + granule.range.saved;
    }
    granule.state.wait(state);
    state = Granule::State::untouched;
  }
  const UnorderedReads reads;
  std::memcpy(content_.data(), granule.range.begin, granule.range.size);
  release(granule.range);
  return content_.data();
}

void Snapshot::handle_faults() {
  pollfd waiting[] = {{faults_.get(), POLLIN, 0}, {ending_.get(), POLLIN, 0}};
  while (true) {
    if (::poll(waiting, 2, -1) < 0) {
      continue;
    }
    if (waiting[1].revents != 0) {
      return;
    }
    uffd_msg message{};
    if (::read(faults_.get(), &message, sizeof message) == sizeof message &&
        message.event == UFFD_EVENT_PAGEFAULT) {
      handle(reinterpret_cast<const char*>(message.arg.pagefault.address));
    }
  }
}

void Snapshot::handle(const char* address) {
  auto found = std::ranges::upper_bound(granules_, address, {},
                                        [](const Granule& one) { return one.range.begin; });
  if (found == granules_.begin()) {
    return;
  }
  Granule& granule = *--found;
  auto state = Granule::State::untouched;
  if (granule.state.compare_exchange_strong(state, Granule::State::saving)) {
    const UnorderedReads reads;
    const Range& range = granule.range;
    const bool saved = fast_.write(range.begin, range.size, range.saved).has_value();
    granule.state = saved ? Granule::State::saved : Granule::State::untouched;
    granule.state.notify_all();
    if (!saved) {
      // No memory for the copy: the program waits until the granule is written.
      urgent_ = static_cast<std::size_t>(found - granules_.begin());
      return;
    }
    ++saved_;
    state = Granule::State::saved;
  }
  if (state == Granule::State::saved) {
    release(granule.range);
  }
}

}  // namespace efs::objects
