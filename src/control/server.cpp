// SPDX-License-Identifier: BSD-3-Clause
#include "control/server.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "base/memory.hpp"
#include "base/thread.hpp"

namespace efs::control {
namespace {

constexpr std::size_t most_connections = 64;
// A silent client, or one that does not read its answer, must not occupy a connection for ever.
constexpr timeval longest_silence{.tv_sec = 30, .tv_usec = 0};
// ... and even less if all other clients wait for this connection.
constexpr timeval longest_silence_alone{.tv_sec = 1, .tv_usec = 0};

void limit_silence(int socket, const timeval& silence) {
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
}

// As error_line(), but allocates nothing and never blocks.
void send_refusal(int socket, std::string_view line) {
  (void)!::send(socket, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void refuse_for_memory(int socket) {
  send_refusal(socket,
               "{\"event\":\"result\",\"ok\":false,\"code\":12,\"error\":\"the daemon has no "
               "memory for this; try again later\",\"exit\":1}\n");
}

void refuse_for_now(int socket) {
  send_refusal(socket,
               "{\"event\":\"result\",\"ok\":false,\"code\":11,\"error\":\"the daemon can answer "
               "no more at a time; try again later\",\"exit\":1}\n");
}

// Returns whether the client at the other end runs as `owner` or as root.
bool is_peer(int socket, uid_t owner) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == owner || peer.uid == 0);
}

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(const std::string& path, uid_t owner,
                                               Handler handler) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return fail(ENAMETOOLONG, path + ": too long for a socket");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) {
    return fail_errno("socket");
  }
  ::unlink(path.c_str());
  const mode_t mask = ::umask(0177);
  const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::umask(mask);
  if (bound != 0 || ::listen(fd.get(), 16) != 0) {
    return fail_errno(path);
  }
  std::unique_ptr<Server> server(new Server(std::move(fd), owner, std::move(handler)));
  auto acceptor = start_thread([raw = server.get()] { raw->accept_loop(); });
  if (!acceptor) {
    return with_context(acceptor.error(), "a thread for the control socket");
  }
  server->acceptor_ = std::move(*acceptor);
  return server;
}

Server::Server(UniqueFd fd, uid_t owner, Handler handler)
    : fd_(std::move(fd)), owner_(owner), handler_(std::move(handler)) {}

Server::~Server() {
  {
    // Running answers are finished, but no more requests are read. One answer may run on the
    // acceptor's thread.
    MutexLock lock(mutex_);
    ending_ = true;
    for (auto& connection : connections_) {
      ::shutdown(connection.socket.get(), SHUT_RD);
    }
  }
  ::shutdown(fd_.get(), SHUT_RDWR);
  if (acceptor_.joinable()) {
    acceptor_.join();
  }
  std::list<Connection> connections;
  MutexLock lock(mutex_);
  connections.swap(connections_);
}

// accept4() reserves its descriptor before it waits.
UniqueFd Server::accept_one() {
  UniqueFd accepted(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (accepted || (errno != EMFILE && errno != ENFILE)) {
    return accepted;
  }
  {
    MutexLock lock(mutex_);
    kept_back_.reset();
  }
  return UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

void Server::accept_loop() {
  while (true) {
    UniqueFd accepted = accept_one();
    if (!accepted && (errno == EINVAL || errno == EBADF)) {
      return;  // shut down
    }
    if (!accepted) {
      // A shortage of descriptors or memory is transient. Continue: otherwise no client could ask
      // the daemon to stop.
      if (errno != EINTR && errno != ECONNABORTED) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      continue;
    }
    try {
      take(accepted);
    } catch (const std::bad_alloc&) {
      log::warn("event=connection_refused reason=\"no memory\"");
    }
    if (accepted) {
      refuse(std::move(accepted));
    }
  }
}

// Refuses a connection that take() did not accept. A server that is ending sends nothing, as if the
// client had connected later: the client may then ask a successor.
void Server::refuse(UniqueFd accepted) noexcept {
  MutexLock lock(mutex_);
  if (!ending_) {
    refuse_for_now(accepted.get());
  }
  keep_back(std::move(accepted));
}

void Server::take(UniqueFd& accepted) {
  Connection* alone = nullptr;
  bool news = false;
  {
    MutexLock lock(mutex_);
    connections_.remove_if([](const Connection& c) { return c.ended; });
    if (ending_ || connections_.size() >= most_connections) {
      return;
    }
    Connection& connection = connections_.emplace_back();
    connection.socket = std::move(accepted);
    limit_silence(connection.socket.get(), longest_silence);
    auto thread = start_thread([this, &connection] { serve(connection); });
    if (thread) {
      connection.thread = std::move(*thread);
    } else {
      alone = &connection;
    }
    news = !std::exchange(no_thread_, !thread) && !thread;
  }
  if (alone == nullptr) {
    return;
  }
  if (news) {
    log::warn("event=no_thread_for_asker note=\"requests are answered one after the other\"");
  }
  limit_silence(alone->socket.get(), longest_silence_alone);
  serve(*alone, true);
}

void Server::serve(Connection& connection, bool alone) noexcept {
  try {
    answer(connection.socket.get(), alone);
  } catch (const std::exception& problem) {  // no memory to read a request or to report this
    log::warn("event=connection_ended reason=\"{}\"", problem.what());
  }
  close(connection);
}

void Server::close(Connection& connection) noexcept {
  MutexLock lock(mutex_);
  keep_back(std::move(connection.socket));
  connection.ended = true;
}

// Keeps one descriptor, and closes the socket only if one is kept already. Otherwise a program's
// open file could take the last descriptor.
void Server::keep_back(UniqueFd socket) noexcept {
  ::shutdown(socket.get(), SHUT_RDWR);
  if (!kept_back_) {
    kept_back_ = std::move(socket);
  }
}

void Server::answer(int socket, bool alone) {
  const ReservedMemory reserved_memory;
  if (!ReservedMemory::ready()) {
    return refuse_for_memory(socket);
  }
  if (!is_peer(socket, owner_)) {
    (void)send_line(socket, error_line({EPERM, "this instance belongs to another user"}));
    return;
  }
  LineReader reader(socket, longest_request);
  while (true) {
    const auto request = reader.next();
    if (!request) {
      return;
    }
    if (!ReservedMemory::ready()) {
      return refuse_for_memory(socket);
    }
    if (!send_line(socket, result_of(*request, socket, alone))) {
      return;
    }
  }
}

// Runs the handler; its progress goes to the client at once.
Json Server::result_of(const Json& request, int socket, bool alone) {
  bool heard = true;
  const auto send = [&](Json fields) {
    if (!heard) {
      return false;
    }
    const Status sent = send_line_now(socket, progress_line(std::move(fields)));
    // a slow or stopped client is still connected
    return heard = sent || sent.error().code == EAGAIN;
  };
  try {
    return handler_(request, Progress(send, alone));
  } catch (const std::bad_alloc&) {
    return error_line({ENOMEM, "the daemon has no memory for this; try again later"});
  } catch (const std::exception& problem) {  // a hostile request: wrong types
    log::warn("event=control_request_failed reason=\"{}\"", problem.what());
    return error_line({EINVAL, std::string("bad request: ") + problem.what()}, 2);
  }
}

}  // namespace efs::control
