// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The client side of the control socket.

#include <functional>
#include <string>

#include "base/unique_fd.hpp"
#include "control/protocol.hpp"

namespace efs::control {

class Client {
 public:
  /// Connects to `socket_path`; the last component must not be a link. ECONNREFUSED or ENOENT if no
  /// daemon listens. EPERM if the daemon does not run as `owner`, or if the path is not a socket.
  /// `seconds` limits each silence of the daemon: EAGAIN from connect(), ETIMEDOUT while waiting
  /// for an answer or its next line; 0: no limit.
  static Result<Client> connect(const std::string& socket_path, uid_t owner, int seconds = 0);

  /// Sends `request`, calls `progress` for each progress line, and returns the result line. E2BIG
  /// if the request exceeds longest_request.
  Result<Json> ask(const Json& request, const std::function<void(const Json&)>& progress = {});

  /// The first half of ask(): sends the request.
  Status send(const Json& request);
  /// The second half: waits for the answer.
  Result<Json> receive(const std::function<void(const Json&)>& progress = {});

 private:
  explicit Client(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace efs::control
