#pragma once
// The calls by which this process makes anything durable, as the kernel and libpmem get them: the
// test program has functions of their names in front of the libraries' (durable_calls.cpp has the
// list). A call that is not in it is not seen, and so counts for nothing: a test that would need it
// fails.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace efs::test {

/// One that has succeeded. Paths are what the kernel calls the file at that moment: absolute,
/// without symbolic links.
struct DurableCall {
  enum class Kind : std::uint8_t { memory, sync, rename, removal };
  std::string function;
  Kind kind = Kind::memory;
  // of the file; of a mapped one where it is about memory; "" where it is about all memory
  std::string path;
  std::string to{};          // of a rename
  std::uint64_t offset = 0;  // in the file
  std::uint64_t length = 0;  // bytes
  bool stores = false;       // through libpmem
  bool flushes = false;      // what is in its range
  bool drains = false;       // what was flushed before
};

/// Notes the calls of all threads while it lives. One at a time.
class DurableCalls {
 public:
  DurableCalls();
  ~DurableCalls();
  DurableCalls(const DurableCalls&) = delete;
  DurableCalls& operator=(const DurableCalls&) = delete;
  std::vector<DurableCall> so_far() const;
  /// From now on every sync fails so, and does nothing.
  void fail_syncs(int code);
};

/// What libpmem says of every mapping while it lives, as PMEM_IS_PMEM_FORCE has it say from the
/// start. One at a time.
class PersistentMemory {
 public:
  explicit PersistentMemory(bool yes);
  ~PersistentMemory();
  PersistentMemory(const PersistentMemory&) = delete;
  PersistentMemory& operator=(const PersistentMemory&) = delete;
};

/// What a test looks for among the calls; `name` for its messages.
struct DurableEvent {
  std::string name;
  std::function<bool(const DurableCall&)> is;
};

/// Content and size of this file, or the names in this directory; by syncfs where it lies below the
/// directory that was given.
DurableEvent syncs(const std::string& path);
/// The same with its times.
DurableEvent syncs_all_of(const std::string& path);
DurableEvent stores_to(const std::string& path);
DurableEvent renames(const std::string& from, const std::string& to);
DurableEvent removes(const std::string& path);
DurableEvent drains();

bool happens(std::span<const DurableCall> calls, const DurableEvent& event);

/// Each of them happens, and none before the first of the one in front of it. Says what is not so;
/// "": all is.
std::string disorder(std::span<const DurableCall> calls, const std::vector<DurableEvent>& events);

/// The same of the last ones: after the last `store` comes a `sync`.
std::string left_behind(std::span<const DurableCall> calls, const DurableEvent& store,
                        const DurableEvent& sync);

/// What came before the first of these; all where there is none.
std::span<const DurableCall> up_to(std::span<const DurableCall> calls, const DurableEvent& event);

/// How many bytes of [begin, end) of the file power loss may take: what these calls have not
/// stored, flushed and drained, or stored and synced.
std::uint64_t exposed(std::span<const DurableCall> calls, const std::string& path,
                      std::uint64_t begin, std::uint64_t end);

/// One call a line, for INFO.
std::string text_of(std::span<const DurableCall> calls);

}  // namespace efs::test
