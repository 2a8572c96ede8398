// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A turn at the PFS: draw a ticket, wait, hold a slot, release it. This is the whole interface of
// the coordinator. Another implementation could replace the directory of locks.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "queue/directory.hpp"

namespace efs::queue {

struct Request {
  std::string job, node;
  Direction direction = Direction::in;
  std::uint64_t bytes = 0;
  double seconds_left = 0;  // seconds until the deadline, for Policy::deadline; 0: none
  std::uint32_t uid = 0;    // the job's user, for display
};

enum class Standing : std::uint8_t {
  waiting,
  granted,  // holds a slot
  // continues without a slot: waited too long, held too long or moved too little, or the queue is
  // unusable
  unserialised,
};

/// The state of a ticket.
struct View {
  Standing standing = Standing::waiting;
  std::uint32_t ahead = 0;  // waiters before this ticket
  std::uint32_t slots = 0;
  double wait = -1;         // estimated seconds until the grant; negative: unknown
  double next_look = 0.25;  // seconds after which poll() should be called again
  std::string reason;       // for unserialised
};

/// A drawn ticket. Not thread-safe. The destructor releases the slot. If the process dies, the slot
/// is free at once.
class Turn {
 public:
  /// Draws a ticket in the queue at `directory`. Returns EPERM, ENOENT, ENOLCK or another error if
  /// the queue is unusable.
  static Result<Turn> draw(const std::string& directory, const Request& request,
                           const System& system = {});
  Turn(Turn&&) noexcept = default;
  Turn& operator=(Turn&&) noexcept = default;
  ~Turn();

  /// Takes a slot if this ticket is next, and writes the heartbeat when it is due. Takes a few
  /// seconds at most. Call it again after View::next_look, also while holding.
  View poll();

  /// Reports the bytes moved so far, for display and for Settings::least_rate.
  void progress(std::uint64_t bytes) { ticket_.done = bytes; }

  void release();

  const Ticket& ticket() const { return ticket_; }

  double longest_wait() const { return settings_.longest_wait; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  // A count at a moment: waiters ahead while waiting, bytes moved while holding.
  struct Mark {
    Time when;
    std::uint64_t count = 0;
  };

  Turn(std::unique_ptr<Directory> directory, Settings settings)
      : directory_(std::move(directory)), settings_(settings) {}

  Status draw_number(const Request& request);
  Status write_file();
  void sign_of_life();
  View poll_waiting();
  View poll_holding();
  View go_ahead(std::string reason);
  Result<bool> look();
  Status look_and(const std::function<Status()>& take);
  Status restore();
  double pause_after_look();
  bool is_too_slow();
  std::vector<Ticket> those_ahead(const std::vector<Entry>& entries);
  bool counts(const Ticket& ticket);
  bool is_first(const std::vector<Ticket>& ahead);
  Status take();
  Status take(unsigned slot);
  void save_rate(double measured) const;
  double estimate(const std::vector<Entry>& entries, std::vector<Ticket> ahead) const;
  void remove_if_dead(const Entry& entry) const;
  void remove_dead_among(const std::vector<Entry>& entries, std::size_t some) const;
  void clean_after_grant() const;

  double seconds_since(Time then) const {
    return std::chrono::duration<double>(directory_->now() - then).count();
  }

  double waited() const { return seconds_since(since_); }

  std::unique_ptr<Directory> directory_;  // null after the release
  Settings settings_;
  Ticket ticket_;
  UniqueFd file_;
  Nanoseconds now_ = 0;                    // the file server's clock at the last heartbeat
  std::map<std::uint64_t, Ticket> known_;  // tickets of waiters, which never change
  View view_;
  Time since_ = directory_->now();  // time of the draw, or of the grant
  Time last_sign_ = since_;
  Mark last_look_;
  Mark fast_;  // the last moment at which a holder was fast enough
};

/// Draws a ticket and waits. Calls `waiting` with the ticket's state at every poll; acquire()
/// returns ECANCELED when `waiting` returns false.
Result<Turn> acquire(const std::string& directory, const Request& request,
                     const std::function<bool(const View&)>& waiting, const System& system = {});

}  // namespace efs::queue
