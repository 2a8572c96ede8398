// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The server side of the control socket. One thread accepts, and one thread per connection answers.
// If no more threads can be started, the accepting thread answers, one connection at a time.

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.hpp"
#include "base/unique_fd.hpp"
#include "control/protocol.hpp"

namespace efs::control {

class Server {
 public:
  class Progress {
   public:
    Progress(std::function<bool(Json)> send, bool holds_up_others)
        : send_(std::move(send)), holds_up_others_(holds_up_others) {}

    /// Sends a progress line; skips the line if the client does not read. Returns false if the
    /// client is gone; the work continues all the same.
    bool operator()(Json fields) const { return send_(std::move(fields)); }

    /// Returns whether this answer blocks all other clients, because there are no more threads.
    bool holds_up_others() const { return holds_up_others_; }

   private:
    std::function<bool(Json)> send_;
    bool holds_up_others_;
  };

  /// Turns a request into the result line. Runs on a thread of the connection, or on the accepting
  /// thread. Must be thread-safe.
  using Handler = std::function<Json(const Json& request, const Progress& progress)>;

  /// Listens at `path`, mode 0600. Accepts requests of `owner` and root only.
  static Result<std::unique_ptr<Server>> listen(const std::string& path, uid_t owner,
                                                Handler handler);
  /// Ends the server: refuses new connections, cuts open ones, and joins the threads. A client that
  /// is just connecting sees an is_lost() error, not a refusal.
  ~Server();

 private:
  struct Connection {
    UniqueFd socket;
    bool ended = false;   // guarded by the server's mutex, as the end of `socket` is
    std::jthread thread;  // last: joined before the other members are destroyed
  };

  Server(UniqueFd fd, uid_t owner, Handler handler);
  void accept_loop();
  UniqueFd accept_one();
  void close(Connection& connection) noexcept;
  /// Leaves `accepted` to the caller if there is no free connection.
  void take(UniqueFd& accepted);
  void refuse(UniqueFd accepted) noexcept;
  void keep_back(UniqueFd socket) noexcept EFS_REQUIRES(mutex_);
  void serve(Connection& connection, bool alone = false) noexcept;
  void answer(int socket, bool alone);
  Json result_of(const Json& request, int socket, bool alone);

  UniqueFd fd_;
  const uid_t owner_;
  const Handler handler_;
  Mutex mutex_;  // rank 80
  std::list<Connection> connections_ EFS_GUARDED_BY(mutex_);
  bool ending_ EFS_GUARDED_BY(mutex_) = false;
  bool no_thread_ EFS_GUARDED_BY(mutex_) = false;  // the last connection had no thread, and the log
                                                   // has a line about it
  // The descriptor of an ended connection, reserved for the next one: a daemon at its limit must
  // still receive a stop request.
  UniqueFd kept_back_ EFS_GUARDED_BY(mutex_);
  std::jthread acceptor_;
};

}  // namespace efs::control
