#pragma once
// The asking side of the control socket.

#include <functional>
#include <string>

#include "base/unique_fd.hpp"
#include "control/protocol.hpp"

namespace efs::control {

class Client {
 public:
  /// Connects to `socket_path`, the last part of which is not followed where it is a link.
  /// ECONNREFUSED or ENOENT where no daemon listens; EPERM where it does not run as `owner`, or
  /// that is no socket. Where it says nothing for `seconds`: EAGAIN to connect, ETIMEDOUT to answer
  /// or go on with it; 0: it takes what it takes.
  static Result<Client> connect(const std::string& socket_path, uid_t owner, int seconds = 0);

  /// Sends `request` and calls `progress` for each progress line; the result line. E2BIG for a
  /// request of more than longest_request.
  Result<Json> ask(const Json& request, const std::function<void(const Json&)>& progress = {});

  /// The first half of ask(): the answer comes in its time.
  Status send(const Json& request);
  /// The other half.
  Result<Json> receive(const std::function<void(const Json&)>& progress = {});

 private:
  explicit Client(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace efs::control
