// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The address of `efs metrics --listen`, and the socket there. Only programs of this machine can
// reach it.

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::cli {

/// A loopback address with a port, or the path of a Unix socket.
struct ListenAddress {
  std::string path;         // "": `inet` is the address
  sockaddr_storage inet{};  // sockaddr_in or sockaddr_in6
  socklen_t length = 0;     // of `inet`
};

/// Reads ADDRESS:PORT, [ADDRESS]:PORT or unix:PATH. EINVAL, with the reason and the right form, for
/// another text, for an address that is not loopback, and for a name.
Result<ListenAddress> parse_listen_address(const std::string& text);

/// A listening socket. Removes the file of a Unix socket at its end.
class Listener {
 public:
  /// A Unix socket has mode 0600. Replaces a socket of the caller that no process serves;
  /// EADDRINUSE for another file of that name, and for a port in use.
  static Result<Listener> listen(const ListenAddress& address);

  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  int fd() const { return fd_.get(); }

  /// "http://127.0.0.1:9464/metrics" or "unix:PATH".
  const std::string& name() const { return name_; }

 private:
  Listener(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  UniqueFd fd_;
  std::string name_;
  std::string path_;  // to remove; "": none
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace efs::cli
