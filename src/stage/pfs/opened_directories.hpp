#pragma once
// Directories on the PFS that deny their owner writing or reading, and were opened to him for as
// long as a stage-out needs it: what mode each is to get again, in `meta/opened` of the store.
// Where the process dies meanwhile its successor gives it back.
//
// Format: records of a mode (four octal digits; "----": it has it again), a blank, the absolute
// path and a NUL byte; of a path the last one counts. What is behind the last whole record came too
// late to be acted upon. Empty where all have their modes.

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::stage {

inline constexpr const char* opened_name = "opened";

/// Thread-safe.
class OpenedDirectories {
 public:
  /// Of the store with this open metadata directory, which outlives it. A file that is not there,
  /// or is none, says nothing.
  static std::unique_ptr<OpenedDirectories> open(int metadata);

  /// The directory `path` is about to be opened; its mode is `mode`, without the type. Durable on
  /// return. After an error the mode is given back by this process or not at all.
  Status note(const std::string& path, mode_t mode);

  /// It has its mode again, or needs it no more. Not durable: who reads of it looks whether it is
  /// open still.
  void done(const std::string& path);

  /// It could not be given its mode again: take() gives it out once more.
  void stays_open(const std::string& path);

  /// Is there anything for take() to give out?
  bool has_any_of_before();

  /// Those below `directory` that were noted by a process that is gone, or stayed open, by their
  /// paths relative to it. Each is given out once: whoever has them says done().
  std::map<std::string, mode_t> take(const std::string& directory);

 private:
  explicit OpenedDirectories(int metadata) : metadata_(metadata) {}

  void load();
  Status append(const std::string& record) EFS_REQUIRES(mutex_);

  const int metadata_;
  Mutex mutex_;                           // rank 90 (leaf): guards what follows
  UniqueFd file_ EFS_GUARDED_BY(mutex_);  // none until something is noted
  off_t end_ EFS_GUARDED_BY(mutex_) = 0;
  std::map<std::string, mode_t> opened_ EFS_GUARDED_BY(mutex_);  // all that have not their modes
  std::map<std::string, mode_t> from_before_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::stage
