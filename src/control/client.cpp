#include "control/client.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

namespace efs::control {

Result<Client> Client::connect(const std::string& socket_path, uid_t owner, int seconds) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) return fail(ENAMETOOLONG, socket_path + ": too long for a socket");
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("socket");
  const timeval limit{.tv_sec = seconds, .tv_usec = 0};  // 0: none
  for (const int side : {SO_RCVTIMEO, SO_SNDTIMEO})
    if (::setsockopt(fd.get(), SOL_SOCKET, side, &limit, sizeof limit) != 0) return fail_errno(socket_path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return fail_errno(socket_path);
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return fail_errno(socket_path);
  if (peer.uid != owner && peer.uid != 0) return fail(EPERM, socket_path + ": served by a process of another user");
  return Client(std::move(fd));
}

Result<Json> Client::ask(const Json& request, const std::function<void(const Json&)>& progress) {
  EFS_TRY(send_line(fd_.get(), request));
  LineReader reader(fd_.get());
  while (true) {
    auto line = reader.next();
    if (!line) return std::unexpected(line.error());
    if (line->value("event", "") == "result") return line;
    if (progress) progress(*line);
  }
}

}  // namespace efs::control
