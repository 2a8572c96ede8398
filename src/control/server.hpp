#pragma once
// The answering side of the control socket. One thread accepts, one per connection answers. Where
// no more threads can be had, the one that accepts answers by itself, one connection after the
// other.

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

    /// Sends a progress line, or leaves it out where the asker does not read; false when he is gone
    /// (the work goes on all the same).
    bool operator()(Json fields) const { return send_(std::move(fields)); }

    /// Is there no thread for anybody else, as long as this answer takes?
    bool holds_up_others() const { return holds_up_others_; }

   private:
    std::function<bool(Json)> send_;
    bool holds_up_others_;
  };

  /// Turns a request into the result line. Called on a thread of the connection, or the one that
  /// accepts; must be thread-safe.
  using Handler = std::function<Json(const Json& request, const Progress& progress)>;

  /// Listens at `path`, mode 0600. Only `owner` and root are heard.
  static Result<std::unique_ptr<Server>> listen(const std::string& path, uid_t owner,
                                                Handler handler);
  /// Ends: no new connections, open ones are cut, threads joined. Who was about to connect sees
  /// is_lost(), and no refusal.
  ~Server();

 private:
  struct Connection {
    UniqueFd socket;
    bool ended = false;   // under the server's mutex, as the end of the socket
    std::jthread thread;  // last: joined before the rest goes
  };

  Server(UniqueFd fd, uid_t owner, Handler handler);
  void accept_loop();
  UniqueFd accept_one();
  void close(Connection& connection) noexcept;
  /// Leaves `accepted` to the caller where there is no place for it.
  void take(UniqueFd& accepted);
  void refuse(UniqueFd accepted) noexcept;
  void keep_back(UniqueFd socket) noexcept EFS_REQUIRES(mutex_);
  void serve(Connection& connection, bool alone = false) noexcept;
  void answer(int socket, bool alone);

  UniqueFd fd_;
  const uid_t owner_;
  const Handler handler_;
  Mutex mutex_;  // rank 80
  std::list<Connection> connections_ EFS_GUARDED_BY(mutex_);
  bool ending_ EFS_GUARDED_BY(mutex_) = false;
  bool no_thread_ EFS_GUARDED_BY(mutex_) = false;  // for the last connection, and the log has it
  // Of a connection that has ended, for the next one: the daemon may be at its limit, and has to
  // hear that it is to stop.
  UniqueFd kept_back_ EFS_GUARDED_BY(mutex_);
  std::jthread acceptor_;
};

}  // namespace efs::control
