// SPDX-License-Identifier: BSD-3-Clause
#include "support/durable_calls.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <libpmem.h>
#include <sys/mman.h>
#include <unistd.h>

#include <limits.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>

namespace efs::test {
namespace {

// Returns the library's own function. Looked up before main(): a child forked from a threaded
// process may not do this.
template <typename Function>
Function* next(const char* name) {
  void* found = ::dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s is in no library behind the tests: its calls cannot be observed\n",
                 name),
        std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

const auto real_fsync = next<int(int)>("fsync");
const auto real_fdatasync = next<int(int)>("fdatasync");
const auto real_syncfs = next<int(int)>("syncfs");
const auto real_msync = next<int(void*, std::size_t, int)>("msync");
const auto real_renameat = next<int(int, const char*, int, const char*)>("renameat");
const auto real_pwrite = next<ssize_t(int, const void*, std::size_t, off_t)>("pwrite");
const auto real_ftruncate = next<int(int, off_t)>("ftruncate");
const auto real_fallocate = next<int(int, int, off_t, off_t)>("fallocate");
const auto real_unlinkat = next<int(int, const char*, int)>("unlinkat");
// This is the only direct call of a libpmem function. Without it, the linker would drop the
// library.
[[maybe_unused]] const char* const not_this_libpmem =
    ::pmem_check_version(PMEM_MAJOR_VERSION, PMEM_MINOR_VERSION);
[[maybe_unused]] const int may_be_forced = ::setenv("EFS_TEST_PMEM", "1", 1);
const auto real_is_pmem = next<int(const void*, std::size_t)>("pmem_is_pmem");
const auto real_memcpy = next<void*(void*, const void*, std::size_t, unsigned)>("pmem_memcpy");
const auto real_flush = next<void(const void*, std::size_t)>("pmem_flush");
const auto real_drain = next<void()>("pmem_drain");
const auto real_persist = next<void(const void*, std::size_t)>("pmem_persist");
const auto real_pmem_msync = next<int(const void*, std::size_t)>("pmem_msync");

std::atomic<bool> noting = false;
std::atomic<int> sync_error = 0;
std::atomic<int> good_syncs = 0;       // before the error
std::atomic<int> said_of_memory = -1;  // -1: use libpmem's answer
std::mutex calls_mutex;
std::vector<DurableCall> calls_noted;  // guarded by calls_mutex
DurableListener listens;               // guarded by calls_mutex; changes while nothing is noted
std::atomic<bool> listened = false;

void note(DurableCall call) {
  const std::lock_guard lock(calls_mutex);
  if (noting && listens) {
    listens(call);
  } else if (noting && call.kind != DurableCall::Kind::change) {
    calls_noted.push_back(std::move(call));
  }
}

std::string path_of(int fd) {
  char path[PATH_MAX];
  const ssize_t length =
      ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return {path, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

std::string path_at(int directory, const char* name) {
  return name[0] == '/' || directory == AT_FDCWD ? name : path_of(directory) + "/" + name;
}

// Sets the file and offset that are mapped at this address.
void locate_memory(const void* address, DurableCall& call) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0, offset = 0;
    int path = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx %*s %*s %n", &begin, &end, &offset, &path) !=
            3 ||
        wanted < begin || wanted >= end) {
      continue;
    }
    call.path = line.substr(static_cast<std::size_t>(path));
    call.offset = offset + (wanted - begin);
    return;
  }
}

void record_memory(DurableCall call, const void* address, std::size_t length) {
  if (!noting) {
    return;
  }
  call.length = length;
  call.bytes = static_cast<const std::byte*>(address);
  locate_memory(address, call);
  note(std::move(call));
}

int record_sync(const char* function, int (*real)(int), int fd) {
  if (!noting) {
    return real(fd);
  }
  if (sync_error != 0 && good_syncs-- <= 0) {
    return errno = sync_error, -1;
  }
  DurableCall call{.function = function, .kind = DurableCall::Kind::sync, .path = path_of(fd)};
  const int result = listened ? 0 : real(fd);
  if (result == 0) {
    note(std::move(call));
  }
  return result;
}

void record_change(const char* function, int fd, off_t offset, ssize_t length) {
  if (!listened || length < 0) {
    return;
  }
  note({.function = function,
        .kind = DurableCall::Kind::change,
        .path = path_of(fd),
        .offset = static_cast<std::uint64_t>(offset),
        .length = static_cast<std::uint64_t>(length)});
}

}  // namespace

DurableCalls::DurableCalls() : DurableCalls(DurableListener()) {}

DurableCalls::DurableCalls(DurableListener listener) {
  const std::lock_guard lock(calls_mutex);
  if (noting) {
    std::fputs("two at a time would note the same calls\n", stderr), std::abort();
  }
  calls_noted.clear();
  listens = std::move(listener);
  listened = static_cast<bool>(listens);
  sync_error = 0;
  noting = true;
}

DurableCalls::~DurableCalls() {
  noting = false;
  const std::lock_guard lock(calls_mutex);
  listens = {};
  listened = false;
  sync_error = 0;
}

std::vector<DurableCall> DurableCalls::so_far() const {
  const std::lock_guard lock(calls_mutex);
  return calls_noted;
}

void DurableCalls::fail_syncs(int code, int after) {
  good_syncs = after;
  sync_error = code;
}

PersistentMemory::PersistentMemory(bool yes) {
  said_of_memory = yes ? 1 : 0;
}

PersistentMemory::~PersistentMemory() {
  said_of_memory = -1;
}

namespace {

using Kind = DurableCall::Kind;

bool covers(const DurableCall& call, const std::string& path) {
  if (call.kind != Kind::sync) {
    return false;
  }
  return call.path == path || (call.function == "syncfs" && path.starts_with(call.path + "/"));
}

std::size_t first_of(std::span<const DurableCall> calls, const DurableEvent& event) {
  return static_cast<std::size_t>(std::find_if(calls.begin(), calls.end(), event.is) -
                                  calls.begin());
}

std::size_t end_of_last(std::span<const DurableCall> calls, const DurableEvent& event) {
  return calls.size() - static_cast<std::size_t>(
                            std::find_if(calls.rbegin(), calls.rend(), event.is) - calls.rbegin());
}

}  // namespace

DurableEvent syncs(const std::string& path) {
  return {"sync of " + path, [path](const DurableCall& call) {
            return covers(call, path);
          }};
}

DurableEvent syncs_all_of(const std::string& path) {
  return {"sync with times of " + path, [path](const DurableCall& call) {
            return covers(call, path) && call.function != "fdatasync" && call.function != "msync";
          }};
}

DurableEvent stores_to(const std::string& path) {
  return {"store to " + path, [path](const DurableCall& call) {
            return call.stores && call.path == path;
          }};
}

DurableEvent renames(const std::string& from, const std::string& to) {
  return {"rename of " + from + " to " + to, [from, to](const DurableCall& call) {
            return call.kind == Kind::rename && call.path == from && call.to == to;
          }};
}

DurableEvent removes(const std::string& path) {
  return {"removal of " + path, [path](const DurableCall& call) {
            return call.kind == Kind::removal && call.path == path;
          }};
}

DurableEvent drains() {
  return {"drain", [](const DurableCall& call) {
            return call.drains;
          }};
}

bool happens(std::span<const DurableCall> calls, const DurableEvent& event) {
  return std::any_of(calls.begin(), calls.end(), event.is);
}

std::string disorder(std::span<const DurableCall> calls, const std::vector<DurableEvent>& events) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (!happens(calls, events[i])) {
      return "no " + events[i].name;
    }
    if (i > 0 && first_of(calls, events[i]) < first_of(calls, events[i - 1])) {
      return events[i].name + " before any " + events[i - 1].name;
    }
  }
  return {};
}

std::string left_behind(std::span<const DurableCall> calls, const DurableEvent& store,
                        const DurableEvent& sync) {
  if (!happens(calls, store)) {
    return "no " + store.name;
  }
  return end_of_last(calls, sync) > end_of_last(calls, store)
             ? ""
             : "no " + sync.name + " after the last " + store.name;
}

std::span<const DurableCall> up_to(std::span<const DurableCall> calls, const DurableEvent& event) {
  return calls.first(first_of(calls, event));
}

std::uint64_t exposed(std::span<const DurableCall> calls, const std::string& path,
                      std::uint64_t begin, std::uint64_t end) {
  enum : std::uint8_t { unknown, stored, flushed, durable };

  std::vector<std::uint8_t> bytes(end - begin, unknown);
  const auto raise = [&](std::uint8_t from, std::uint8_t to) {
    for (auto& byte : bytes) {
      if (byte >= from && byte < to) {
        byte = to;
      }
    }
  };
  for (const auto& call : calls) {
    if (covers(call, path)) {
      raise(stored, durable);
    }
    if (call.path == path && (call.stores || call.flushes)) {
      const auto state = static_cast<std::uint8_t>(call.flushes ? flushed : stored);
      for (std::uint64_t at = std::max(begin, call.offset);
           at < std::min(end, call.offset + call.length); ++at) {
        if (call.stores || bytes[at - begin] == stored) {
          bytes[at - begin] = state;
        }
      }
    }
    if (call.drains) {
      raise(flushed, durable);
    }
  }
  return static_cast<std::uint64_t>(
      std::count_if(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte != durable; }));
}

std::string text_of(std::span<const DurableCall> calls) {
  std::string text;
  for (const auto& call : calls) {
    text += call.function + " " + call.path + (call.to.empty() ? "" : " -> " + call.to);
    if (call.length > 0) {
      text += " " + std::to_string(call.offset) + "+" + std::to_string(call.length);
    }
    text += "\n";
  }
  return text;
}

}  // namespace efs::test

// The functions below replace those of the libraries.

using efs::test::DurableCall;

extern "C" {

int fsync(int fd) {
  return efs::test::record_sync("fsync", efs::test::real_fsync, fd);
}

int fdatasync(int fd) {
  return efs::test::record_sync("fdatasync", efs::test::real_fdatasync, fd);
}

int syncfs(int fd) noexcept {
  return efs::test::record_sync("syncfs", efs::test::real_syncfs, fd);
}

int msync(void* address, std::size_t length, int flags) {
  const int result = efs::test::real_msync(address, length, flags);
  if (result == 0 && (flags & MS_SYNC) != 0) {
    efs::test::record_memory({.function = "msync", .path = {}, .flushes = true, .drains = true},
                             address, length);
  }
  return result;
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  if (!efs::test::noting) {
    return efs::test::real_renameat(from_directory, from, to_directory, to);
  }
  DurableCall call{.function = "renameat",
                   .kind = DurableCall::Kind::rename,
                   .path = efs::test::path_at(from_directory, from),
                   .to = efs::test::path_at(to_directory, to)};
  const int result = efs::test::real_renameat(from_directory, from, to_directory, to);
  if (result == 0) {
    efs::test::note(std::move(call));
  }
  return result;
}

ssize_t pwrite(int fd, const void* from, std::size_t length, off_t offset) {
  const ssize_t result = efs::test::real_pwrite(fd, from, length, offset);
  efs::test::record_change("pwrite", fd, offset, result);
  return result;
}

int ftruncate(int fd, off_t length) noexcept {
  const int result = efs::test::real_ftruncate(fd, length);
  efs::test::record_change("ftruncate", fd, length, result);
  return result;
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  const int result = efs::test::real_fallocate(fd, mode, offset, length);
  efs::test::record_change("fallocate", fd, offset, result < 0 ? result : length);
  return result;
}

int unlinkat(int directory, const char* name, int flags) noexcept {
  const int result = efs::test::real_unlinkat(directory, name, flags);
  if (result == 0 && efs::test::noting) {
    efs::test::note({.function = "unlinkat",
                     .kind = DurableCall::Kind::removal,
                     .path = efs::test::path_at(directory, name)});
  }
  return result;
}

int pmem_is_pmem(const void* address, std::size_t length) {
  const int said = efs::test::said_of_memory;
  return said >= 0 ? said : efs::test::real_is_pmem(address, length);
}

void* pmem_memcpy(void* to, const void* from, std::size_t length, unsigned flags) {
  void* result = efs::test::real_memcpy(to, from, length, flags);
  const bool flushes = (flags & PMEM_F_MEM_NOFLUSH) == 0;
  efs::test::record_memory({.function = "pmem_memcpy",
                            .path = {},
                            .stores = true,
                            .flushes = flushes,
                            .drains = flushes && (flags & PMEM_F_MEM_NODRAIN) == 0},
                           to, length);
  return result;
}

void pmem_flush(const void* address, std::size_t length) {
  efs::test::real_flush(address, length);
  efs::test::record_memory({.function = "pmem_flush", .path = {}, .flushes = true}, address,
                           length);
}

void pmem_drain() {
  efs::test::real_drain();
  if (efs::test::noting) {
    efs::test::note({.function = "pmem_drain", .path = {}, .drains = true});
  }
}

void pmem_persist(const void* address, std::size_t length) {
  efs::test::real_persist(address, length);
  efs::test::record_memory(
      {.function = "pmem_persist", .path = {}, .flushes = true, .drains = true}, address, length);
}

int pmem_msync(const void* address, std::size_t length) {
  const int result = efs::test::real_pmem_msync(address, length);
  if (result == 0) {
    efs::test::record_memory(
        {.function = "pmem_msync", .path = {}, .flushes = true, .drains = true}, address, length);
  }
  return result;
}

}  // extern "C"
