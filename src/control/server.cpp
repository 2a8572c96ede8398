#include "control/server.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "base/log.hpp"

namespace efs::control {
namespace {

constexpr std::size_t most_connections = 64;
constexpr std::size_t longest_request = 1u << 20;
// A connection that says nothing, or does not take its answer, must not keep one of the few places for ever.
constexpr timeval longest_silence{.tv_sec = 30, .tv_usec = 0};

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(const std::string& path, uid_t owner, Handler handler) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return fail(ENAMETOOLONG, path + ": too long for a socket");
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("socket");
  ::unlink(path.c_str());
  const mode_t mask = ::umask(0177);
  const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::umask(mask);
  if (bound != 0 || ::listen(fd.get(), 16) != 0) return fail_errno(path);
  return std::unique_ptr<Server>(new Server(std::move(fd), owner, std::move(handler)));
}

Server::Server(UniqueFd fd, uid_t owner, Handler handler) : fd_(std::move(fd)), owner_(owner), handler_(std::move(handler)), acceptor_([this] { accept_loop(); }) {}

Server::~Server() {
  ::shutdown(fd_.get(), SHUT_RDWR);
  acceptor_.join();
  std::list<Connection> connections;
  {
    MutexLock lock(mutex_);
    connections.swap(connections_);
  }
  // An answer under way is finished; nothing more is read.
  for (auto& connection : connections) ::shutdown(connection.socket.get(), SHUT_RD);
}

void Server::accept_loop() {
  while (true) {
    UniqueFd accepted(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted && (errno == EINVAL || errno == EBADF)) return;  // shut down
    if (!accepted) {
      // No descriptor or no memory passes; a daemon that cannot be asked to stop does not.
      if (errno != EINTR && errno != ECONNABORTED) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    MutexLock lock(mutex_);
    connections_.remove_if([](const Connection& c) { return c.ended.load(); });
    if (connections_.size() >= most_connections) continue;
    Connection& connection = connections_.emplace_back();
    connection.socket = std::move(accepted);
    connection.thread = std::jthread([this, &connection] {
      answer(connection.socket.get());
      ::shutdown(connection.socket.get(), SHUT_RDWR);
      connection.ended = true;
    });
  }
}

void Server::answer(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || (peer.uid != owner_ && peer.uid != 0)) {
    (void)send_line(socket, error_line({EPERM, "this instance belongs to another user"}));
    return;
  }
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &longest_silence, sizeof longest_silence);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &longest_silence, sizeof longest_silence);
  LineReader reader(socket, longest_request);
  while (true) {
    const auto request = reader.next();
    if (!request) return;
    bool heard = true;
    Json result;
    try {
      result = handler_(*request, [&](Json fields) {
        if (heard) heard = send_line(socket, progress_line(std::move(fields))).has_value();
        return heard;
      });
    } catch (const std::exception& problem) {  // a hostile request: wrong types, no memory
      log::warn("event=control_request_failed reason=\"{}\"", problem.what());
      result = error_line({EINVAL, std::string("bad request: ") + problem.what()}, 2);
    }
    if (!send_line(socket, result)) return;
  }
}

}  // namespace efs::control
