// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The queue's directory on the PFS. It belongs to the account that holds the slots; no other
// account may write there:
//   settings          the site's settings (settings.hpp); may be absent
//   locks             mode 0600; only locks on its bytes matter, not its data
//                     (open file description locks, fcntl(2)):
//                       byte 0 the mutex, 2^20 + i and 2^21 + i the slots in and out,
//                       2^40 + n ticket n
//   state             next number and measured rates; written under the mutex
//   in/ out/          tickets: wN (waits), hN (holds); one JSON line each, readable by all;
//                     mtime is the heartbeat
// The kernel releases a lock when its process ends in any way. So any process may remove a ticket
// whose byte is not locked. The PFS must keep POSIX locks coherent between nodes (Lustre: -o flock,
// NFS: version 4).
//
// Not thread-safe. Every Directory has its own open file description: two of them in one process
// exclude each other as two processes do.

#include <fcntl.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "queue/policy.hpp"

namespace efs::queue {

/// Rates measured from finished transfers: bytes/s of one slot; 0: not known yet.
struct State {
  std::uint64_t next = 1;
  double rate_in = 0, rate_out = 0;

  double& rate(Direction direction) { return direction == Direction::in ? rate_in : rate_out; }
};

/// A ticket's file in a directory listing.
struct Entry {
  std::uint64_t number = 0;
  bool holds = false;
  std::string name;  // in/w000..
};

/// Replaced by tests: lock calls that are counted or slow, and a clock that the test advances.
struct System {
  std::function<int(int fd, int command, struct flock& lock)> lock = [](int fd, int command,
                                                                        struct flock& wanted) {
    return ::fcntl(fd, command, &wanted);
  };
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

class Directory {
 public:
  /// `to_hold`: to draw tickets. The directory must belong to this user and be closed to others
  /// (EPERM). Creates missing files. Otherwise for reading only, by any user with read permission.
  static Result<Directory> open(const std::string& path, bool to_hold, System system = {});

  const std::string& path() const { return path_; }

  std::chrono::steady_clock::time_point now() const { return system_.now(); }

  /// Reads the settings file anew each time. An invalid file is an error; without a file, the
  /// defaults apply.
  Result<Settings> settings() const;
  State state() const;
  void save(const State& state) const;

  /// Calls `what` under the mutex. EBUSY if the mutex is not free within `patience` seconds. A
  /// caller with a long `patience` retries less and less often, so that callers with a short one
  /// succeed.
  Status with_mutex(const std::function<Status()>& what, double patience = 2);

  /// Lock without waiting; false if another process holds the lock.
  bool lock_ticket(std::uint64_t number) const;
  bool lock_slot(Direction direction, unsigned slot) const;
  void unlock_slot(Direction direction, unsigned slot) const;
  /// Return whether another process holds the lock. Only for a Directory opened to hold, or for
  /// root or the owner.
  bool is_alive(std::uint64_t number) const;
  bool slot_is_held(Direction direction, unsigned slot) const;

  bool sees_locks() const { return static_cast<bool>(locks_); }

  std::vector<Entry> list(Direction direction) const;
  std::optional<Ticket> read(const Entry& entry) const;
  /// Seconds since the ticket's last heartbeat, by the file server's clock; `now` is its current
  /// time.
  double silence(const Entry& entry, Nanoseconds now) const;
  void remove(const std::string& name) const;

  int fd() const { return directory_.get(); }

 private:
  bool lock_byte(std::uint64_t offset, short type) const;
  bool byte_is_locked(std::uint64_t offset) const;

  std::string path_;
  System system_;
  UniqueFd directory_, locks_;
};

std::string ticket_name(const Ticket& ticket);
/// Returns the line of a ticket, padded to a fixed length, so that one write replaces the whole
/// line.
std::string encode(const Ticket& ticket);
std::optional<Ticket> decode(const std::string& line);

}  // namespace efs::queue
