// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Records the calls by which this process makes data durable. The test program defines functions of
// the same names before those of the libraries (durable_calls.cpp has the list). A call outside
// that list is not recorded, so a test that needs it fails.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace efs::test {

/// A successful call. Paths are the kernel's names of the file at that moment: absolute, without
/// symbolic links.
struct DurableCall {
  // change: of the bytes or the size of a file, by a system call; only a listener hears of it
  enum class Kind : std::uint8_t { memory, sync, rename, removal, change };
  std::string function;
  Kind kind = Kind::memory;
  // path of the file; for memory calls, of the mapped file; "" if the call is about all memory
  std::string path;
  std::string to{};          // target of a rename
  std::uint64_t offset = 0;  // position in the file
  std::uint64_t length = 0;  // bytes
  bool stores = false;       // stores through libpmem
  bool flushes = false;      // flushes its range
  bool drains = false;       // drains earlier flushes
  // of a memory call: the mapped bytes; valid only while a listener is called
  const std::byte* bytes = nullptr;
};

/// Is called after each call has succeeded, one call at a time. It may read files and change none.
using DurableListener = std::function<void(const DurableCall&)>;

/// Records the calls of all threads during its lifetime. At most one may exist.
class DurableCalls {
 public:
  DurableCalls();
  /// Keeps no list. Syncs only reach the listener, not the kernel: they would take most of the time
  /// of a long run.
  explicit DurableCalls(DurableListener listener);
  ~DurableCalls();
  DurableCalls(const DurableCalls&) = delete;
  DurableCalls& operator=(const DurableCalls&) = delete;
  std::vector<DurableCall> so_far() const;
  /// From now on, every sync but the first `after` ones fails with `code` and has no effect.
  void fail_syncs(int code, int after = 0);
};

/// Replaces libpmem's answer for every mapping during its lifetime, as PMEM_IS_PMEM_FORCE does from
/// the start. At most one may exist.
class PersistentMemory {
 public:
  explicit PersistentMemory(bool yes);
  ~PersistentMemory();
  PersistentMemory(const PersistentMemory&) = delete;
  PersistentMemory& operator=(const PersistentMemory&) = delete;
};

/// An event that a test looks for among the calls; `name` is for messages.
struct DurableEvent {
  std::string name;
  std::function<bool(const DurableCall&)> is;
};

/// A sync of this file's content and size, or of this directory's names. A syncfs of a parent
/// directory counts too.
DurableEvent syncs(const std::string& path);
/// The same, including the file's times.
DurableEvent syncs_all_of(const std::string& path);
DurableEvent stores_to(const std::string& path);
DurableEvent renames(const std::string& from, const std::string& to);
DurableEvent removes(const std::string& path);
DurableEvent drains();

bool happens(std::span<const DurableCall> calls, const DurableEvent& event);

/// Checks that each event occurs, and none before the first of its predecessor. Returns the
/// violation; "" if there is none.
std::string disorder(std::span<const DurableCall> calls, const std::vector<DurableEvent>& events);

/// Checks that a `sync` follows the last `store`.
std::string left_behind(std::span<const DurableCall> calls, const DurableEvent& store,
                        const DurableEvent& sync);

/// Returns the calls before the first such event; all if there is none.
std::span<const DurableCall> up_to(std::span<const DurableCall> calls, const DurableEvent& event);

/// Returns how many bytes of [begin, end) of the file power loss may erase: those that no call has
/// stored, flushed and drained, or stored and synced.
std::uint64_t exposed(std::span<const DurableCall> calls, const std::string& path,
                      std::uint64_t begin, std::uint64_t end);

/// Writes one call a line, for INFO.
std::string text_of(std::span<const DurableCall> calls);

}  // namespace efs::test
