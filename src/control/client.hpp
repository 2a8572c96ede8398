#pragma once
// The asking side of the control socket.

#include <functional>
#include <string>

#include "base/unique_fd.hpp"
#include "control/protocol.hpp"

namespace efs::control {

class Client {
 public:
  /// Connects to `socket_path`. ECONNREFUSED or ENOENT where no daemon listens; EPERM where it runs as a stranger.
  /// EAGAIN where it takes longer than `seconds` to connect or to answer; 0: it takes what it takes.
  static Result<Client> connect(const std::string& socket_path, uid_t owner, int seconds = 0);

  /// Sends `request` and calls `progress` for each progress line; the result line.
  Result<Json> ask(const Json& request, const std::function<void(const Json&)>& progress = {});

 private:
  explicit Client(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace efs::control
