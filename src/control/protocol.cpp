// SPDX-License-Identifier: BSD-3-Clause
#include "control/protocol.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <string_view>

#include "base/json_text.hpp"

namespace efs::control {

Status send_line(int socket, const Json& line, std::size_t most) {
  const std::string text = json_to_text(line) + "\n";
  if (text.size() > most) {
    return fail(E2BIG, "the request is " + std::to_string(text.size()) +
                           " bytes long, and an instance takes " + std::to_string(most) +
                           " at most: name fewer or shorter paths, or a directory or a pattern");
  }
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return fail_errno("control socket");
    }
    sent += static_cast<std::size_t>(n);
  }
  return {};
}

namespace {

// Three quarters of the buffer are reserved for the result. The client can read it later, and no
// thread waits for the client.
bool has_room_for_more(int socket) {
  int waiting = 0, room = 0;
  socklen_t length = sizeof room;
  return ::ioctl(socket, SIOCOUTQ, &waiting) != 0 ||
         ::getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, &length) != 0 || waiting < room / 4;
}

}  // namespace

// The kernel accepts either all or nothing of a message that is small compared with the socket's
// buffer.
Status send_line_now(int socket, const Json& line) {
  if (!has_room_for_more(socket)) {
    return fail(EAGAIN, "control socket");
  }
  const std::string text = json_to_text(line) + "\n";
  ssize_t n = 0;
  while ((n = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 &&
         errno == EINTR) {
  }
  if (n < 0) {
    return fail_errno("control socket");
  }
  return static_cast<std::size_t>(n) == text.size()
             ? Status{}
             : fail(EMSGSIZE, "control socket: a line that is too long");
}

Result<Json> LineReader::next() {
  std::size_t searched = 0;
  while (true) {
    if (const auto end = pending_.find('\n', searched); end != std::string::npos) {
      const Json line = json_from_text(std::string_view(pending_).substr(0, end));
      pending_.erase(0, end + 1);
      if (!line.is_object()) {
        return fail(EPROTO, "control socket: not a JSON object");
      }
      return line;
    }
    searched = pending_.size();
    if (pending_.size() > most_) {
      return fail(EPROTO, "control socket: line too long");
    }
    std::array<char, 65536> buffer;
    const ssize_t n = ::recv(socket_, buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return fail_errno("control socket");
    }
    if (n == 0) {
      return fail(ECONNRESET, "the daemon closed the connection");
    }
    pending_.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

Json progress_line(Json fields) {
  fields["event"] = "progress";
  return fields;
}

Json result_line(Json fields) {
  fields["event"] = "result";
  fields["ok"] = true;
  return fields;
}

Json error_line(const Error& error, int exit_code) {
  Json line{{"event", "result"},
            {"ok", false},
            {"code", error.code},
            {"error", describe(error)},
            {"exit", exit_code}};
  if (error.lines) {
    line["lines"] = true;
  }
  return line;
}

}  // namespace efs::control
