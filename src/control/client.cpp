// SPDX-License-Identifier: BSD-3-Clause
#include "control/client.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace efs::control {

namespace {

// The directory belongs to the user, and the user may put a link to another user's socket there. So
// no link is followed, and connect() uses the inspected socket itself.
Result<UniqueFd> socket_at(const std::string& path) {
  UniqueFd found(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!found) {
    return fail_errno(path);
  }
  struct stat st{};
  if (::fstat(found.get(), &st) != 0) {
    return fail_errno(path);
  }
  if (!S_ISSOCK(st.st_mode)) {
    return fail(EPERM, path + ": not a socket");
  }
  return found;
}

}  // namespace

Result<Client> Client::connect(const std::string& socket_path, uid_t owner, int seconds) {
  auto found = socket_at(socket_path);
  if (!found) {
    return std::unexpected(found.error());
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(found->get());
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) {
    return fail_errno("socket");
  }
  const timeval limit{.tv_sec = seconds, .tv_usec = 0};  // 0: none
  for (const int side : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    if (::setsockopt(fd.get(), SOL_SOCKET, side, &limit, sizeof limit) != 0) {
      return fail_errno(socket_path);
    }
  }
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return fail_errno(socket_path);
  }
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return fail_errno(socket_path);
  }
  // Rejects a socket of root too: a process of the user serves a user's instance.
  if (peer.uid != owner) {
    return fail(EPERM, socket_path + ": served by a process of another user");
  }
  return Client(std::move(fd));
}

Result<Json> Client::ask(const Json& request, const std::function<void(const Json&)>& progress) {
  const Status sent = send(request);
  if (!sent && sent.error().code != EPIPE) {
    return std::unexpected(sent.error());
  }
  auto answer = receive(progress);
  // the server may have refused the connection before it read the request
  return answer || sent ? answer : std::unexpected(sent.error());
}

Status Client::send(const Json& request) {
  return send_line(fd_.get(), request, longest_request);
}

Result<Json> Client::receive(const std::function<void(const Json&)>& progress) {
  LineReader reader(fd_.get());
  while (true) {
    auto line = reader.next();
    if (!line && line.error().code == EAGAIN) {
      return fail(ETIMEDOUT,
                  "the daemon does not answer; is it stopped, or the machine out of memory?");
    }
    if (!line) {
      return std::unexpected(line.error());
    }
    if (line->value("event", "") == "result") {
      return line;
    }
    if (progress) {
      progress(*line);
    }
  }
}

}  // namespace efs::control
