// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/slot_keeper.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"

namespace efs::daemon {
namespace {

using queue::View;

enum Verb : std::uint32_t { take_turn, report_progress, release_turn };

struct TurnAsk {
  std::uint32_t verb = take_turn;
  std::uint32_t turn = 0;  // the worker's number of the turn
  std::uint64_t bytes = 0;
  double seconds_left = 0;  // until the transfer must be complete; 0: no deadline
};

struct Answer {
  std::uint32_t turn = 0;
  std::uint32_t standing = 0;
  std::uint32_t ahead = 0;
  double wait = -1;
  double longest_wait = 0;  // seconds, from the site's settings; 0: unknown
  std::array<char, 500> reason{};
};

using Clock = std::chrono::steady_clock;

// The keeper's side of one direction, with at most one turn at a time.
class Keeping {
 public:
  Keeping(queue::Direction direction, UniqueFd socket)
      : direction_(direction), socket_(std::move(socket)) {}

  int socket() const { return socket_.get(); }

  /// The time of the next check.
  Clock::time_point next_look() const { return turn_ ? next_look_ : Clock::time_point::max(); }

  bool is_open() const { return static_cast<bool>(socket_); }

  /// Reads a request of the worker. Closes the socket if the worker is gone.
  void hear(const QueueOptions& options, uid_t uid, const std::string& refused) {
    TurnAsk ask;
    const ssize_t n = ::recv(socket_.get(), &ask, sizeof ask, 0);
    if (n < 0 && errno == EINTR) {
      return;
    }
    if (n != static_cast<ssize_t>(sizeof ask)) {
      turn_.reset();
      return socket_.reset();
    }
    if (ask.verb == report_progress) {
      if (turn_) {
        turn_->progress(ask.bytes);
      }
      return;
    }
    turn_.reset();
    if (ask.verb != take_turn) {
      return;
    }
    number_ = ask.turn;
    auto drawn =
        refused.empty() ? draw(ask, options, uid) : Result<queue::Turn>(fail(EPERM, refused));
    if (!drawn) {
      return answer({.standing = queue::Standing::unserialised,
                     .reason = refused.empty() ? describe(drawn.error()) : refused});
    }
    turn_.emplace(std::move(*drawn));
    next_look_ = Clock::now();
  }

  void look() {
    const View view = turn_->poll();
    next_look_ =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double>(std::clamp(view.next_look, 0.01, 3600.0)));
    answer(view);
  }

 private:
  Result<queue::Turn> draw(const TurnAsk& ask, const QueueOptions& options, uid_t uid) const {
    return queue::Turn::draw(
        options.directory, {.job = options.job,
                            .node = options.node,
                            .direction = direction_,
                            .bytes = ask.bytes,
                            .seconds_left = std::isfinite(ask.seconds_left) ? ask.seconds_left : 0,
                            .uid = uid});
  }

  void answer(const View& view) const {
    Answer line{.turn = number_,
                .standing = static_cast<std::uint32_t>(view.standing),
                .ahead = view.ahead,
                .wait = view.wait,
                .longest_wait = turn_ ? turn_->longest_wait() : 0};
    std::copy_n(view.reason.data(), std::min(view.reason.size(), line.reason.size() - 1),
                line.reason.begin());
    (void)!::send(socket_.get(), &line, sizeof line, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  queue::Direction direction_;
  UniqueFd socket_;
  std::optional<queue::Turn> turn_;
  std::uint32_t number_ = 0;
  Clock::time_point next_look_{};
};

int milliseconds_until(Clock::time_point when) {
  if (when == Clock::time_point::max()) {
    return -1;
  }
  return static_cast<int>(std::clamp<std::int64_t>(
      std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now()).count(), 0, 3'600'000));
}

// The keeper's loop. Runs until the worker closes its ends. `refused`: why turns are not available.
void keep(std::array<Keeping, 2>& both, const QueueOptions& options, uid_t uid,
          const std::string& refused) {
  while (both[0].is_open() || both[1].is_open()) {
    std::array<pollfd, 2> lines{};
    for (std::size_t i = 0; i < both.size(); ++i) {
      lines[i] = {.fd = both[i].socket(), .events = POLLIN, .revents = 0};
    }
    if (::poll(lines.data(), lines.size(),
               milliseconds_until(std::min(both[0].next_look(), both[1].next_look()))) < 0 &&
        errno != EINTR) {
      return;
    }
    for (std::size_t i = 0; i < both.size(); ++i) {
      if (lines[i].revents != 0) {
        both[i].hear(options, uid, refused);
      }
    }
    for (auto& one : both) {
      if (one.is_open() && one.next_look() <= Clock::now()) {
        one.look();
      }
    }
  }
}

// Changes the keeper's user to the owner of the queue. If this fails, changes it to the job's user;
// the keeper then reports why turns are not available. As root it only looks up the owner of the
// directory.
std::string become_owner(const QueueOptions& options, const User& user) {
  struct stat st{};
  std::string refused;
  if (::stat(options.directory.c_str(), &st) != 0) {
    refused = describe(fail_errno("queue " + options.directory).error());
  } else if (::geteuid() == 0 && user.uid != 0 && st.st_uid == user.uid) {
    refused = "queue " + options.directory +
              " belongs to the job's user: a job could forge a turn; make a site account its owner";
  }
  const auto owner = refused.empty() ? find_user(std::to_string(st.st_uid)) : Result<User>(user);
  if (!owner || !become_keeper(*owner)) {
    ::_exit(0);
  }
  return refused;
}

// Closes all descriptors except the keeper's sockets and standard streams: above all the locks and
// sockets that show other processes which instances live.
void close_all_but(int a, int b) {
  const auto first = static_cast<unsigned>(std::min(a, b)),
             second = static_cast<unsigned>(std::max(a, b));
  if (first > 3) {
    (void)::close_range(3, first - 1, 0);
  }
  if (second > first + 1) {
    (void)::close_range(first + 1, second - 1, 0);
  }
  (void)::close_range(second + 1, ~0U, 0);
}

}  // namespace

Result<KeeperLines> start_keeper(const QueueOptions& options, const User& user) {
  KeeperLines ours, theirs;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
      return fail_errno("socketpair");
    }
    ours[i].reset(pair[0]);
    theirs[i].reset(pair[1]);
  }
  const pid_t child = ::fork();
  if (child < 0) {
    return fail_errno("fork");
  }
  if (child > 0) {
    return ours;
  }
  close_all_but(theirs[0].get(), theirs[1].get());
  // Standard error may be the starter's pipe, and the starter waits for its end.
  const UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (nowhere) {
    (void)::dup2(nowhere.get(), STDERR_FILENO);
  }
  // the keeper ends with the worker
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    ::signal(signal, SIG_IGN);
  }
  (void)!::chdir("/");
  const std::string refused = become_owner(options, user);
  std::array<Keeping, 2> both{Keeping(queue::Direction::in, std::move(theirs[0])),
                              Keeping(queue::Direction::out, std::move(theirs[1]))};
  keep(both, options, user.uid, refused);
  ::_exit(0);
}

// The keeper sends many answers while the turn is held. This thread reads and drops them, so that
// they do not fill the socket.
struct SlotClient::Held::Shared {
  SlotClient& client;
  queue::Direction direction{};
  Mutex mutex;  // rank 90 (leaf): guards ended
  Condition end;
  bool ended EFS_GUARDED_BY(mutex) = false;
  std::jthread reporter;

  bool goes_on_for_a_second() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    MutexLock lock(mutex);
    while (!ended && end.wait_until(mutex, until)) {
    }
    return !ended;
  }
};

SlotClient::Held::Held() = default;
SlotClient::Held::Held(Held&&) noexcept = default;

SlotClient::SlotClient(KeeperLines keeper, std::string why_not,
                       std::chrono::duration<double> silence)
    : why_not_(std::move(why_not)), silence_(silence) {
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    lines_[i].keeper = std::move(keeper[i]);
    takes_turns_ = takes_turns_ || lines_[i].keeper;
  }
}

// A hung keeper does not read: never block on it.
bool SlotClient::send(const Line& to, std::uint32_t verb, std::uint64_t bytes,
                      double seconds_left) {
  const TurnAsk ask{.verb = verb, .turn = to.asked, .bytes = bytes, .seconds_left = seconds_left};
  return to.keeper && ::send(to.keeper.get(), &ask, sizeof ask, MSG_NOSIGNAL | MSG_DONTWAIT) ==
                          static_cast<ssize_t>(sizeof ask);
}

// If the message cannot be sent, closes the socket, which has the same effect.
void SlotClient::release(Line& of) {
  if (!send(of, release_turn, 0)) {
    of.keeper.reset();
  }
}

// Reads the keeper's messages about a held turn. Returns why the turn has ended, or "" if it
// continues.
std::string SlotClient::drain(const Line& of) {
  std::string over;
  Answer got;
  while (of.keeper && ::recv(of.keeper.get(), &got, sizeof got, MSG_DONTWAIT) > 0) {
    got.reason.back() = '\0';
    if (got.turn == of.asked &&
        got.standing == static_cast<std::uint32_t>(queue::Standing::unserialised)) {
      over = got.reason.data();
    }
  }
  return over;
}

// A turn may end before its transfer does.
void SlotClient::hear_held(queue::Direction direction) {
  const auto over = drain(line(direction));
  auto shown = view(direction);
  if (over.empty() || !shown || shown->standing != queue::Standing::granted) {
    return;
  }
  log::warn("event=turn_over direction={} reason=\"{}\"", queue::name_of(direction), over);
  shown->standing = queue::Standing::unserialised;
  shown->reason = over;
  show(direction, std::move(shown));
}

void SlotClient::show(queue::Direction direction, std::optional<Shown> shown) {
  MutexLock lock(mutex_);
  shown_[static_cast<std::size_t>(direction)] = std::move(shown);
}

std::optional<SlotClient::Shown> SlotClient::view(queue::Direction direction) const {
  MutexLock lock(mutex_);
  return shown_[static_cast<std::size_t>(direction)];
}

struct SlotClient::Waiting {
  Shown shown;
  SlotLimits limits;
  Time since = Clock::now(), heard = since;
  std::chrono::duration<double> longest_wait{};
  bool cancelled = false;

  bool is_over() const { return cancelled || shown.standing != queue::Standing::waiting; }

  void go_ahead(std::string reason) {
    shown.standing = queue::Standing::unserialised;
    shown.reason = std::move(reason);
  }
};

// Reads one answer if it arrives soon.
void SlotClient::hear(Line& from, Waiting& waiting) const {
  pollfd line{.fd = from.keeper.get(), .events = POLLIN, .revents = 0};
  if (::poll(&line, 1, 200) <= 0) {
    return;
  }
  Answer got;
  if (::recv(from.keeper.get(), &got, sizeof got, 0) != static_cast<ssize_t>(sizeof got)) {
    return waiting.go_ahead("the slot keeper is gone");
  }
  if (got.turn != from.asked) {
    return;
  }
  got.reason.back() = '\0';
  waiting.heard = Clock::now();
  if (got.longest_wait > 0) {
    waiting.longest_wait = std::chrono::duration<double>(got.longest_wait);
  }
  waiting.shown.standing = static_cast<queue::Standing>(got.standing);
  waiting.shown.ahead = got.ahead;
  waiting.shown.wait = got.wait;
  waiting.shown.reason = got.reason.data();
}

// The keeper itself ends a wait that is too long, unless the keeper hangs.
void SlotClient::look(Line& from, Waiting& waiting, const stage::Progress& progress) const {
  constexpr auto grace = std::chrono::seconds(3);
  hear(from, waiting);
  if (waiting.is_over()) {
    return;
  }
  const auto now = Clock::now();
  if (progress.cancel || progress.gives_way) {
    waiting.cancelled = true;
  } else if (waiting.limits.latest && now >= *waiting.limits.latest) {
    waiting.go_ahead("no turn was free early enough before the deadline");
  } else if (now - waiting.heard > silence_ || now - waiting.since > waiting.longest_wait + grace) {
    waiting.go_ahead("the queue does not answer: its file system hangs");
  }
}

void SlotClient::wait_until_over(Line& from, Waiting& waiting, std::uint64_t bytes,
                                 const stage::Progress& progress) {
  {
    MutexLock lock(mutex_);
    waiting.longest_wait = longest_wait_;
  }
  ++from.asked;
  if (!why_not_.empty()) {
    return waiting.go_ahead(why_not_);
  }
  const double left =
      waiting.limits.end
          ? std::max(1e-3,
                     std::chrono::duration<double>(*waiting.limits.end - waiting.since).count())
          : 0;
  if (!send(from, take_turn, bytes, left)) {
    return waiting.go_ahead("the slot keeper is gone, or hangs");
  }
  while (!waiting.is_over()) {
    show(waiting.shown.direction, waiting.shown);
    look(from, waiting, progress);
  }
  if (waiting.shown.standing != queue::Standing::granted) {
    release(from);
  }
  MutexLock lock(mutex_);
  longest_wait_ = waiting.longest_wait;
}

Result<SlotClient::Held> SlotClient::take(queue::Direction direction, std::uint64_t bytes,
                                          const stage::Progress& progress,
                                          const SlotLimits& limits) {
  Line& ours = line(direction);
  if (!ours.keeper && ours.asked == 0 && why_not_.empty()) {
    return Held();
  }
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  Waiting waiting{.shown = {.direction = direction, .since = to_ns(now)}, .limits = limits};
  wait_until_over(ours, waiting, bytes, progress);
  if (waiting.cancelled) {
    show(direction, std::nullopt);
    return fail(ECANCELED, "cancelled while waiting for a turn at the PFS");
  }
  if (waiting.shown.standing == queue::Standing::unserialised) {
    log::warn("event=no_turn direction={} reason=\"{}\"", queue::name_of(direction),
              waiting.shown.reason);
  } else {
    log::info("event=turn direction={} bytes={}", queue::name_of(direction), bytes);
  }
  show(direction, waiting.shown);
  return Held(*this, direction, progress);
}

SlotClient::Held::Held(SlotClient& client, queue::Direction direction,
                       const stage::Progress& progress)
    : shared_(new Shared{.client = client, .direction = direction}) {
  if (!client.line(direction).keeper) {
    return;
  }
  auto reporter = start_thread([shared = shared_.get(), &line = client.line(direction), &progress] {
    while (shared->goes_on_for_a_second()) {
      shared->client.hear_held(shared->direction);
      send(line, report_progress, progress.bytes_done);
    }
    send(line, report_progress, progress.bytes_done);
  });
  // The turn is valid without this thread. Other jobs then see no progress, and a full socket does
  // not harm the keeper.
  if (reporter) {
    shared_->reporter = std::move(*reporter);
  } else {
    log::warn("event=turn_not_reported reason=\"{}\"", describe(reporter.error()));
  }
}

SlotClient::Held::~Held() {
  if (!shared_) {
    return;
  }
  {
    MutexLock lock(shared_->mutex);
    shared_->ended = true;
  }
  shared_->end.notify_all();
  if (shared_->reporter.joinable()) {
    shared_->reporter.join();
  }
  Line& ours = shared_->client.line(shared_->direction);
  drain(ours);
  if (ours.keeper) {
    release(ours);
  }
  shared_->client.show(shared_->direction, std::nullopt);
}

}  // namespace efs::daemon
