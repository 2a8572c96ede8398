// SPDX-License-Identifier: BSD-3-Clause
#include "cli/screen.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string_view>

#include "base/unique_fd.hpp"
#include "cli/colour.hpp"

namespace efs::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Blocks the signals that end, stop or resize a screen, and SIGTTOU, so that a screen in the
// background does not stop when it restores the terminal.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked = awaited();
    sigaddset(&blocked, SIGTTOU);
    ::sigprocmask(SIG_BLOCK, &blocked, &before_);
    const sigset_t signals = awaited();
    fd_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  ~BlockedSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  int fd() const { return fd_.get(); }

  // Returns the next pending signal, or 0.
  int take() const {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)
               ? static_cast<int>(info.ssi_signo)
               : 0;
  }

 private:
  static sigset_t awaited() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) {
      sigaddset(&signals, signal);
    }
    return signals;
  }

  sigset_t before_{};
  UniqueFd fd_;
};

// Uses the terminal for a screen: its second page, no cursor, keys without a line. Restores it.
class UsedTerminal {
 public:
  explicit UsedTerminal(std::ostream& out) : out_(out) {
    // A process in the background must not read keys.
    if (::tcgetpgrp(STDIN_FILENO) == ::getpgrp() && ::tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      keys.c_cc[VMIN] = 0;
      keys.c_cc[VTIME] = 0;
      has_keys_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
    }
    out_ << "\033[?1049h\033[?25l" << std::flush;
  }

  UsedTerminal(const UsedTerminal&) = delete;
  UsedTerminal& operator=(const UsedTerminal&) = delete;

  ~UsedTerminal() {
    out_ << "\033[?25h\033[?1049l" << std::flush;
    if (has_keys_) {
      ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }
  }

  bool has_keys() const { return has_keys_; }

 private:
  std::ostream& out_;
  termios before_{};
  bool has_keys_ = false;
};

// A frame over the previous one, without a moment at which the screen is empty.
std::string over_last(const std::string& text) {
  std::string frame = "\033[H";
  for (const char c : text) {
    frame += c == '\n' ? std::string("\033[K\n") : std::string(1, c);
  }
  // A newline at the end of the last row would scroll.
  if (text.ends_with('\n')) {
    frame.pop_back();
  }
  return frame + "\033[J";
}

enum class Next : std::uint8_t { wait, draw, end };

class Repetition {
 public:
  Repetition(World& world, double interval, const MakeFrame& make_frame)
      : world_(world), interval_(interval), make_frame_(make_frame) {
    if (screen_of_output().is_terminal) {
      terminal_.emplace(world.out);
    }
  }

  int run() {
    while (true) {
      const Screen screen = screen_of_output();
      const auto text = make_frame_(screen);
      if (!text) {
        terminal_.reset();
        return report(world_, text.error());
      }
      world_.out << (terminal_ ? over_last(*text) : *text) << std::flush;
      if (!world_.out) {
        return exit_good;  // main() reports lost output
      }
      if (await_next_frame() == Next::end) {
        return exit_good;
      }
    }
  }

 private:
  Next await_next_frame() {
    const auto due = Clock::now() + std::chrono::duration<double>(interval_);
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now()).count();
      if (left <= 0) {
        return Next::draw;
      }
      const Next next = await_event(static_cast<int>(left));
      if (next != Next::wait) {
        return next;
      }
    }
  }

  Next await_event(int milliseconds) {
    const bool has_keys = terminal_ && terminal_->has_keys();
    std::array<pollfd, 3> waited{
        {{.fd = signals_.fd(), .events = POLLIN, .revents = 0},
         // an end of the reader
         {.fd = STDOUT_FILENO, .events = 0, .revents = 0},
         {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0}}};
    (void)::poll(waited.data(), waited.size(), milliseconds);
    if ((waited[1].revents & (POLLERR | POLLHUP)) != 0 || waited[2].revents == POLLHUP) {
      return Next::end;
    }
    if (waited[0].revents != 0) {
      return on_signal(signals_.take());
    }
    return waited[2].revents != 0 && is_end_pressed() ? Next::end : Next::wait;
  }

  static bool is_end_pressed() {
    std::array<char, 64> keys{};
    const ssize_t n = ::read(STDIN_FILENO, keys.data(), keys.size());
    const std::string_view pressed(keys.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
    return n < 0 || pressed.find_first_of("qQ") != pressed.npos;
  }

  Next on_signal(int signal) {
    if (signal == SIGTSTP) {
      terminal_.reset();
      (void)::raise(SIGSTOP);
      if (screen_of_output().is_terminal) {
        terminal_.emplace(world_.out);
      }
      return Next::draw;
    }
    return signal == 0 ? Next::wait : signal == SIGWINCH ? Next::draw : Next::end;
  }

  World& world_;
  const double interval_;
  const MakeFrame& make_frame_;
  const BlockedSignals signals_;
  std::optional<UsedTerminal> terminal_;
};

}  // namespace

Screen screen_of_output() {
  Screen screen;
  const std::string_view term = variable("TERM");
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 1) {
    screen.is_terminal = !term.empty() && term != "dumb";
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
      screen.columns = size.ws_col;
      screen.rows = screen.is_terminal ? size.ws_row : 0;
    }
  }
  if (screen.columns == 0) {
    const auto columns = std::strtoul(std::string(variable("COLUMNS")).c_str(), nullptr, 10);
    screen.columns = std::min<std::size_t>(columns, 10000);
  }
  return screen;
}

std::string cut_to_screen(const std::string& text, const Screen& screen) {
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  const std::size_t kept = screen.rows == 0 || lines <= screen.rows ? lines : screen.rows - 1;
  std::string cut;
  std::size_t at = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    const auto end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    cut += (screen.columns == 0 ? line : cut_painted(line, screen.columns)) + "\n";
    at = end + 1;
  }
  return kept == lines ? cut : cut + "... " + std::to_string(lines - kept) + " more lines\n";
}

int show_repeatedly(World& world, double interval, const MakeFrame& make_frame) {
  return Repetition(world, interval, make_frame).run();
}

}  // namespace efs::cli
