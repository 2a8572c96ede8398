#include "daemon/turn_keeper.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"

namespace efs::daemon {
namespace {

using queue::Standing;
using queue::View;

enum Verb : std::uint32_t { take_turn, report_progress, release_turn };

struct Ask {
  std::uint32_t verb = take_turn;
  std::uint32_t turn = 0;  // the worker's number of it
  std::uint32_t direction = 0;
  std::uint64_t bytes = 0;
};

struct Answer {
  std::uint32_t turn = 0;
  std::uint32_t standing = 0;
  std::uint32_t ahead = 0;
  double wait = -1;
  std::array<char, 200> reason{};
};

void answer(int socket, std::uint32_t turn, const View& view) {
  Answer line{.turn = turn, .standing = static_cast<std::uint32_t>(view.standing), .ahead = view.ahead, .wait = view.wait};
  std::copy_n(view.reason.data(), std::min(view.reason.size(), line.reason.size() - 1), line.reason.begin());
  (void)!::send(socket, &line, sizeof line, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The keeper's loop: one turn at a time, until the worker closes its end.
void keep(int socket, const QueueOptions& options, uid_t uid) {
  std::optional<queue::Turn> turn;
  std::uint32_t number = 0;
  double next_look = 0;
  while (true) {
    pollfd line{.fd = socket, .events = POLLIN, .revents = 0};
    const int timeout = turn ? static_cast<int>(std::clamp(next_look, 0.01, 3600.0) * 1000) : -1;
    const int ready = ::poll(&line, 1, timeout);
    if (ready < 0 && errno != EINTR) return;
    if (ready > 0) {
      Ask ask;
      const ssize_t n = ::recv(socket, &ask, sizeof ask, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n != static_cast<ssize_t>(sizeof ask)) return;
      if (ask.verb == report_progress) {
        if (turn) turn->progress(ask.bytes);
        continue;
      }
      turn.reset();
      if (ask.verb != take_turn) continue;
      number = ask.turn;
      auto drawn = queue::Turn::draw(options.directory, {.job = options.job, .node = options.node, .direction = ask.direction == 0 ? queue::Direction::in : queue::Direction::out, .bytes = ask.bytes, .uid = uid});
      if (!drawn) {
        answer(socket, number, {.standing = Standing::unserialised, .reason = describe(drawn.error())});
        continue;
      }
      turn.emplace(std::move(*drawn));
    }
    if (!turn) continue;
    const View view = turn->poll();
    next_look = view.next_look;
    answer(socket, number, view);
  }
}

}  // namespace

Result<UniqueFd> start_keeper(const QueueOptions& options, const User& user) {
  struct stat st {};
  if (::stat(options.directory.c_str(), &st) != 0) return fail_errno("queue " + options.directory);
  if (::geteuid() == 0 && user.uid != 0 && st.st_uid == user.uid) return fail(EPERM, "queue " + options.directory + " belongs to the job's user, who could hold or fake a turn; give it to an account of the site's");
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) return fail_errno("socketpair");
  UniqueFd ours(pair[0]), theirs(pair[1]);
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child > 0) return ours;
  // All but its line and what it says to the world: above all the locks and sockets that tell others who lives.
  (void)::close_range(3, static_cast<unsigned>(theirs.get()) - 1, 0);
  (void)::close_range(static_cast<unsigned>(theirs.get()) + 1, ~0U, 0);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::signal(signal, SIG_IGN);  // it ends with the worker
  (void)!::chdir("/");
  const auto owner = find_user(std::to_string(st.st_uid));
  if (owner && become(*owner, true)) keep(theirs.get(), options, user.uid);
  ::_exit(0);
}

// The keeper writes many answers while the turn is held; nobody needs them, but they must not fill the line.
struct TurnClient::Held::Shared {
  TurnClient& client;
  Mutex mutex;  // rank 90 (leaf): guards ended
  Condition end;
  bool ended EFS_GUARDED_BY(mutex) = false;
  std::jthread reporter;
};

TurnClient::Held::Held() = default;
TurnClient::Held::Held(Held&&) noexcept = default;

bool TurnClient::send(std::uint32_t verb, std::uint32_t direction, std::uint64_t bytes) const {
  const Ask ask{.verb = verb, .turn = asked_, .direction = direction, .bytes = bytes};
  return keeper_ && ::send(keeper_.get(), &ask, sizeof ask, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof ask);
}

void TurnClient::drain() const {
  std::array<char, sizeof(Answer)> dropped{};
  while (keeper_ && ::recv(keeper_.get(), dropped.data(), dropped.size(), MSG_DONTWAIT) > 0) {}
}

void TurnClient::show(std::optional<Shown> shown) {
  MutexLock lock(mutex_);
  shown_ = std::move(shown);
}

std::optional<TurnClient::Shown> TurnClient::view() const {
  MutexLock lock(mutex_);
  return shown_;
}

// One answer, or a look at the cancel switch. False when the waiting is over.
bool TurnClient::wait_for_answer(Shown& shown, const stage::Progress& progress, Status& given_up) {
  if (progress.cancel) {
    given_up = fail(ECANCELED, "cancelled while waiting for a turn at the PFS");
    return false;
  }
  pollfd line{.fd = keeper_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&line, 1, 200) <= 0) return true;
  Answer got;
  if (::recv(keeper_.get(), &got, sizeof got, 0) != static_cast<ssize_t>(sizeof got)) {
    shown.standing = Standing::unserialised;
    shown.reason = "the process that keeps the turn is gone";
    return false;
  }
  if (got.turn != asked_) return true;
  got.reason.back() = '\0';
  shown.standing = static_cast<Standing>(got.standing);
  shown.ahead = got.ahead;
  shown.wait = got.wait;
  shown.reason = got.reason.data();
  return shown.standing == Standing::waiting;
}

Result<TurnClient::Held> TurnClient::take(queue::Direction direction, std::uint64_t bytes, const stage::Progress& progress, std::optional<std::chrono::steady_clock::time_point> latest) {
  if (!keeper_ && why_not_.empty()) return Held();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  Shown shown{.direction = direction, .since = to_ns(now)};
  Status given_up;
  ++asked_;
  if (!send(take_turn, static_cast<std::uint32_t>(direction), bytes)) {
    shown.standing = Standing::unserialised;
    shown.reason = why_not_.empty() ? "the process that keeps the turn is gone" : why_not_;
  } else {
    const auto is_late = [&] { return latest && std::chrono::steady_clock::now() >= *latest; };
    do show(shown);
    while (wait_for_answer(shown, progress, given_up) && !is_late());
    if (given_up && shown.standing == Standing::waiting) {
      shown.standing = Standing::unserialised;
      shown.reason = "no turn could be had early enough before the deadline";
      send(release_turn, 0, 0);
    }
  }
  if (!given_up) {
    send(release_turn, 0, 0);
    show(std::nullopt);
    return std::unexpected(given_up.error());
  }
  if (shown.standing == Standing::unserialised) log::warn("event=no_turn direction={} reason=\"{}\"", queue::name_of(direction), shown.reason);
  else log::info("event=turn direction={} bytes={}", queue::name_of(direction), bytes);
  show(shown);
  return Held(*this, progress);
}

TurnClient::Held::Held(TurnClient& client, const stage::Progress& progress) : shared_(new Shared{.client = client}) {
  if (!client.keeper_) return;
  auto reporter = start_thread([shared = shared_.get(), &progress] {
    MutexLock lock(shared->mutex);
    while (!shared->ended) {
      if (shared->end.wait_until(shared->mutex, std::chrono::steady_clock::now() + std::chrono::seconds(1))) continue;
      shared->client.drain();
      if (!shared->client.send(report_progress, 0, progress.bytes_done)) return;
    }
    shared->client.send(report_progress, 0, progress.bytes_done);
  });
  // The turn is held all the same; others see no progress, and a line that nobody empties is of no harm to the keeper.
  if (reporter) shared_->reporter = std::move(*reporter);
  else log::warn("event=turn_not_reported reason=\"{}\"", describe(reporter.error()));
}

TurnClient::Held::~Held() {
  if (!shared_) return;
  {
    MutexLock lock(shared_->mutex);
    shared_->ended = true;
  }
  shared_->end.notify_all();
  if (shared_->reporter.joinable()) shared_->reporter.join();
  shared_->client.drain();
  shared_->client.send(release_turn, 0, 0);
  shared_->client.show(std::nullopt);
}

}  // namespace efs::daemon
