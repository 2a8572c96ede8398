// SPDX-License-Identifier: BSD-3-Clause
#include "cli/scrape_server.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <span>
#include <vector>

#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "cli/scrape_request.hpp"

namespace efs::cli {
namespace {

using ScrapeClock = std::chrono::steady_clock;
using Body = std::shared_ptr<const std::string>;

constexpr std::size_t most_connections = 64;
constexpr auto longest_request = std::chrono::seconds(5);
constexpr auto longest_answer = std::chrono::seconds(5);

/// Answers by the metrics, which it collects at most once a second.
class Answers {
 public:
  explicit Answers(const CollectBodies& collect) : collect_(collect) {}

  // Returns the body for the answer, and sets its status.
  Body body_for(ScrapeAnswer& answer) {
    if (answer.status == 200 && !refresh()) {
      answer.status = 503;
      return refusal_;
    }
    if (answer.status != 200) {
      return std::make_shared<const std::string>(text_of_status(answer.status));
    }
    return answer.format == ScrapeFormat::openmetrics ? openmetrics_ : text_;
  }

 private:
  // Returns whether there are metrics.
  bool refresh() {
    constexpr auto fresh = std::chrono::seconds(1);
    if (openmetrics_ && ScrapeClock::now() - collected_ < fresh) {
      return true;
    }
    auto bodies = collect_();
    collected_ = ScrapeClock::now();
    if (!bodies) {
      openmetrics_.reset();
      refusal_ = std::make_shared<const std::string>(
          printable(describe(bodies.error()), bodies.error().lines) + "\n");
      return false;
    }
    openmetrics_ = std::make_shared<const std::string>(std::move(bodies->openmetrics));
    text_ = std::make_shared<const std::string>(std::move(bodies->text));
    return true;
  }

  const CollectBodies& collect_;
  ScrapeClock::time_point collected_;
  Body openmetrics_, text_, refusal_;
};

/// One client: it reads a request, sends the answer, and discards what the client still sends.
/// Otherwise the kernel would reset the connection, and the client would lose the answer.
class ScrapeConnection {
 public:
  explicit ScrapeConnection(UniqueFd fd) : fd_(std::move(fd)) {}

  pollfd waited() const {
    return {.fd = fd_.get(),
            .events = static_cast<short>(phase_ == Phase::sending ? POLLOUT : POLLIN),
            .revents = 0};
  }

  ScrapeClock::time_point deadline() const { return deadline_; }

  // Call it if poll() has reported an event. Returns false if the connection is over.
  bool go_on(Answers& answers) {
    switch (phase_) {
      case Phase::reading: return read_request(answers);
      case Phase::sending: return send_answer();
      case Phase::draining: return drain();
    }
    return false;
  }

 private:
  enum class Phase : std::uint8_t { reading, sending, draining };

  static bool may_be_retried() { return errno == EAGAIN || errno == EINTR; }

  bool read_request(Answers& answers) {
    std::array<char, 4096> part{};
    const ssize_t n = ::recv(fd_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (n <= 0) {
      return n < 0 && may_be_retried();
    }
    received_.append(part.data(), static_cast<std::size_t>(n));
    auto answer = judge_scrape(received_);
    if (!answer) {
      return true;
    }
    body_ = answers.body_for(*answer);
    head_ = head_of_answer(*answer, body_->size());
    phase_ = Phase::sending;
    deadline_ = ScrapeClock::now() + longest_answer;
    return send_answer();
  }

  bool send_answer() {
    const std::size_t all = head_.size() + body_->size();
    while (sent_ < all) {
      const bool in_head = sent_ < head_.size();
      const std::string_view rest = in_head ? std::string_view(head_).substr(sent_)
                                            : std::string_view(*body_).substr(sent_ - head_.size());
      const ssize_t n = ::send(fd_.get(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0) {
        return may_be_retried();
      }
      sent_ += static_cast<std::size_t>(n);
    }
    phase_ = Phase::draining;
    return ::shutdown(fd_.get(), SHUT_WR) == 0;
  }

  bool drain() {
    std::array<char, 16384> part{};
    const ssize_t n = ::recv(fd_.get(), part.data(), part.size(), MSG_DONTWAIT);
    return n > 0 || (n < 0 && may_be_retried());
  }

  UniqueFd fd_;
  Phase phase_ = Phase::reading;
  ScrapeClock::time_point deadline_ = ScrapeClock::now() + longest_request;
  std::string received_, head_;
  Body body_;
  std::size_t sent_ = 0;
};

/// Blocks the signals that end the server, and reports them by a descriptor.
class EndSignals {
 public:
  EndSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
      sigaddset(&signals, signal);
    }
    ::sigprocmask(SIG_BLOCK, &signals, &before_);
    fd_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // Takes the signal first: otherwise it would end the process when it is no longer blocked.
  ~EndSignals() {
    signalfd_siginfo info{};
    while (::read(fd_.get(), &info, sizeof info) > 0) {
    }
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  int fd() const { return fd_.get(); }

 private:
  sigset_t before_{};
  UniqueFd fd_;
};

class ScrapeServer {
 public:
  ScrapeServer(const Listener& listener, const EndSignals& signals, const CollectBodies& collect)
      : listener_(listener), signals_(signals), answers_(collect) {}

  // Returns after a signal.
  void run() {
    while (true) {
      std::vector<pollfd> waited = {
          {.fd = signals_.fd(), .events = POLLIN, .revents = 0},
          {.fd = is_paused() ? -1 : listener_.fd(), .events = POLLIN, .revents = 0}};
      for (const auto& connection : connections_) {
        waited.push_back(connection.waited());
      }
      if (::poll(waited.data(), waited.size(), milliseconds_left()) < 0) {
        continue;
      }
      if (waited[0].revents != 0) {
        return;
      }
      serve(std::span(waited).subspan(2), ScrapeClock::now());
      if (waited[1].revents != 0) {
        accept();
      }
    }
  }

 private:
  bool is_paused() const { return ScrapeClock::now() < paused_until_; }

  // Until the next deadline; -1: there is none.
  int milliseconds_left() const {
    auto first = ScrapeClock::time_point::max();
    for (const auto& connection : connections_) {
      first = std::min(first, connection.deadline());
    }
    if (is_paused()) {
      first = std::min(first, paused_until_);
    }
    if (first == ScrapeClock::time_point::max()) {
      return -1;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - ScrapeClock::now());
    return static_cast<int>(std::max<std::int64_t>(0, left.count()));
  }

  // Deadlines count at `now`, the time of `waited`: to collect the metrics for one connection may
  // take long, and is not the fault of the others.
  void serve(std::span<const pollfd> waited, ScrapeClock::time_point now) {
    std::vector<ScrapeConnection> kept;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      const bool goes_on = waited[i].revents == 0 || connections_[i].go_on(answers_);
      if (goes_on && now < connections_[i].deadline()) {
        kept.push_back(std::move(connections_[i]));
      }
    }
    connections_ = std::move(kept);
  }

  void accept() {
    constexpr auto pause = std::chrono::milliseconds(100);
    UniqueFd client(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) {
      const bool is_gone = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      // No descriptor is free: to ask again at once would not help.
      paused_until_ = is_gone ? paused_until_ : ScrapeClock::now() + pause;
      return;
    }
    // Answers are shared here: the kernel need not have a whole copy of one for each client.
    constexpr int kernel_buffer = 16384;
    (void)::setsockopt(client.get(), SOL_SOCKET, SO_SNDBUF, &kernel_buffer, sizeof kernel_buffer);
    if (connections_.size() == most_connections) {
      connections_.erase(connections_.begin());
    }
    connections_.emplace_back(std::move(client));
  }

  const Listener& listener_;
  const EndSignals& signals_;
  Answers answers_;
  std::vector<ScrapeConnection> connections_;  // the oldest first
  ScrapeClock::time_point paused_until_;
};

}  // namespace

int serve_metrics(World& world, const ListenAddress& address, const CollectBodies& collect) {
  // The signals are blocked before there is a file that they must not leave behind.
  const EndSignals signals;
  const auto listener = Listener::listen(address);
  if (!listener) {
    return report(world, listener.error());
  }
  world.out << listener->name() << "\n" << std::flush;
  ScrapeServer(*listener, signals, collect).run();
  return exit_good;
}

}  // namespace efs::cli
