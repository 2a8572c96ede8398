#pragma once
// How long a stop has been going on, for who goes on with it after its worker died: a deadline of the job file is to be kept all the same.
// The file `stop` in the instance's directory: the moment of its begin, in ns of the steady clock, which all processes of a boot share.

#include <string>

namespace efs::daemon {

/// Not thread-safe.
class StopClock {
 public:
  /// `is_successor`: a stop may be under way that a predecessor began; else what is there is of an earlier life.
  StopClock(const std::string& directory, bool is_successor);

  /// Seconds since the stop began, which it does now if none is under way. What cannot be noted is known to this process alone.
  double elapsed();

  /// It has ended.
  void over();

 private:
  const std::string file_;
};

}  // namespace efs::daemon
