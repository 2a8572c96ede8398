#pragma once
// A turn at the PFS: draw a ticket, wait, hold a slot, release. This is the coordinator's whole
// interface; behind it may one day be something else than a directory of locks.

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
  double seconds_left = 0;  // until it must be done, for Policy::deadline; 0: no such end
  std::uint32_t uid = 0;    // of the job's user, to show
};

enum class Standing : std::uint8_t {
  waiting,
  granted,  // holds a slot
  // goes ahead without a slot: it waited too long, held too long or too idly, or the queue cannot
  // be used
  unserialised,
};

/// Where a ticket stands.
struct View {
  Standing standing = Standing::waiting;
  std::uint32_t ahead = 0;  // waiters that go before it
  std::uint32_t slots = 0;
  double wait = -1;         // seconds until its turn, estimated; negative: unknown
  double next_look = 0.25;  // seconds after which poll() should be called again
  std::string reason;       // of unserialised
};

/// A drawn ticket. Not thread-safe. The destructor releases. Dies with its process: the slot is
/// free at once.
class Turn {
 public:
  /// Draws a ticket in the queue at `directory`. EPERM, ENOENT, ENOLCK and so on where the queue
  /// cannot be used.
  static Result<Turn> draw(const std::string& directory, const Request& request,
                           const System& system = {});
  Turn(Turn&&) noexcept = default;
  Turn& operator=(Turn&&) noexcept = default;
  ~Turn();

  /// Takes a slot if it is this ticket's turn; gives the sign of life that is due; never waits
  /// longer than a few seconds. Call it again after View::next_look, also while holding.
  View poll();

  /// Bytes moved so far, for those who look and for Settings::least_rate.
  void progress(std::uint64_t bytes) { ticket_.done = bytes; }

  void release();

  const Ticket& ticket() const { return ticket_; }

  double longest_wait() const { return settings_.longest_wait; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  // What it saw at a moment: those ahead while it waits, bytes moved while it holds.
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

  std::unique_ptr<Directory> directory_;  // null once released
  Settings settings_;
  Ticket ticket_;
  UniqueFd file_;
  Nanoseconds now_ = 0;                    // the file server's clock at the last sign of life
  std::map<std::uint64_t, Ticket> known_;  // what a waiting ticket says never changes
  View view_;
  Time since_ = directory_->now();  // drawn, or granted
  Time last_sign_ = since_;
  Mark last_look_;
  Mark fast_;  // of a holder: until then it moved as much as it must
};

/// Draws and waits. `waiting` is called at every look with where the ticket stands; false from it
/// gives up (ECANCELED).
Result<Turn> acquire(const std::string& directory, const Request& request,
                     const std::function<bool(const View&)>& waiting, const System& system = {});

}  // namespace efs::queue
