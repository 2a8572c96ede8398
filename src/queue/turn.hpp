#pragma once
// A turn at the PFS: draw a ticket, wait, hold a slot, release. This is the coordinator's whole interface; behind it
// may one day be something else than a directory of locks.

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
  Nanoseconds deadline = 0;  // wall clock; 0: none
  std::uint32_t uid = 0;     // of the job's user, to show
};

enum class Standing : std::uint8_t {
  waiting,
  granted,       // holds a slot
  unserialised,  // goes ahead without a slot: it waited too long, held too long, or the queue cannot be used
};

/// Where a ticket stands.
struct View {
  Standing standing = Standing::waiting;
  std::uint32_t ahead = 0;   // waiters that go before it
  std::uint32_t slots = 0;
  double wait = -1;          // seconds until its turn, estimated; negative: unknown
  double next_look = 0.25;   // seconds after which poll() should be called again
  std::string reason;        // of unserialised
};

/// A drawn ticket. Not thread-safe. The destructor releases. Dies with its process: the slot is free at once.
class Turn {
 public:
  /// Draws a ticket in the queue at `directory`. EPERM, ENOENT, ENOLCK and so on where the queue cannot be used.
  static Result<Turn> draw(const std::string& directory, const Request& request);
  Turn(Turn&&) noexcept = default;
  Turn& operator=(Turn&&) noexcept = default;
  ~Turn();

  /// Takes a slot if it is this ticket's turn; gives the sign of life that is due; never waits longer than a few
  /// seconds. Call it again after View::next_look, also while holding.
  View poll();
  /// For those who look: bytes moved so far.
  void progress(std::uint64_t bytes) { ticket_.done = bytes; }
  void release();
  const Ticket& ticket() const { return ticket_; }
  double longest_wait() const { return settings_.longest_wait; }

 private:
  Turn(std::unique_ptr<Directory> directory, Settings settings) : directory_(std::move(directory)), settings_(settings) {}
  Status draw_number(const Request& request);
  Status write_file();
  void sign_of_life();
  View poll_waiting();
  View poll_holding();
  View go_ahead(std::string reason);
  Status look();
  std::vector<Ticket> those_ahead(const std::vector<Entry>& entries);
  std::size_t count_live(const std::vector<Ticket>& ahead, std::size_t enough);
  Status take(unsigned slot);
  double estimate(const std::vector<Entry>& entries, std::vector<Ticket> ahead) const;
  void remove_dead(const std::vector<Entry>& entries) const;
  double waited() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count(); }

  std::unique_ptr<Directory> directory_;  // null once released
  Settings settings_;
  Ticket ticket_;
  UniqueFd file_;
  Nanoseconds now_ = 0;  // the file server's clock at the last sign of life
  std::map<std::uint64_t, Ticket> known_;  // what a waiting ticket says never changes
  View view_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();  // drawn, or granted
  std::chrono::steady_clock::time_point last_sign_ = since_;
};

/// Draws and waits. `waiting` is called at every look with where the ticket stands; false from it gives up (ECANCELED).
Result<Turn> acquire(const std::string& directory, const Request& request, const std::function<bool(const View&)>& waiting);

}  // namespace efs::queue
