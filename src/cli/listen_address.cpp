// SPDX-License-Identifier: BSD-3-Clause
#include "cli/listen_address.hpp"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace efs::cli {
namespace {

constexpr int backlog = 64;
constexpr std::size_t longest_path = sizeof(sockaddr_un{}.sun_path) - 1;

std::unexpected<Error> refuse(const std::string& text, const char* why) {
  return fail(EINVAL, text + ": " + why +
                          "; write a loopback address such as 127.0.0.1:9464 or [::1]:9464, or "
                          "unix:PATH");
}

std::optional<in_port_t> port_of(std::string_view text) {
  in_port_t port = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool is_whole = read.ec == std::errc{} && read.ptr == text.data() + text.size();
  return is_whole ? std::optional(port) : std::nullopt;
}

template <typename Address>
ListenAddress inet_address(const Address& address) {
  ListenAddress listen{.path = {}, .length = sizeof address};
  std::memcpy(&listen.inet, &address, sizeof address);
  return listen;
}

Result<ListenAddress> unix_address(const std::string& text, std::string path) {
  if (path.empty()) {
    return refuse(text, "the path is empty");
  }
  if (path.size() > longest_path) {
    return fail(ENAMETOOLONG, text + ": a socket's path has at most " +
                                  std::to_string(longest_path) + " bytes; choose a shorter one");
  }
  return ListenAddress{.path = std::move(path)};
}

Result<UniqueFd> open_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return fd ? Result<UniqueFd>(std::move(fd)) : fail_errno("socket");
}

sockaddr_un socket_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Removes a socket of the caller that no process serves.
Status remove_stale(const std::string& path) {
  struct stat st{};
  if (::lstat(path.c_str(), &st) != 0) {
    return {};
  }
  if (!S_ISSOCK(st.st_mode) || st.st_uid != ::geteuid()) {
    return fail(EADDRINUSE, "unix:" + path + ": another file has this name; choose another one");
  }
  const auto fd = open_socket(AF_UNIX);
  if (!fd) {
    return std::unexpected(fd.error());
  }
  const sockaddr_un address = socket_at(path);
  const int connected =
      ::connect(fd->get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (connected == 0 || errno != ECONNREFUSED) {
    return fail(EADDRINUSE, "unix:" + path + ": another process serves it; choose another path");
  }
  (void)::unlink(path.c_str());
  return {};
}

// Returns 0 or an errno.
int bind_and_listen(int fd, const ListenAddress& address) {
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool is_unix = !address.path.empty();
  const sockaddr_un file = socket_at(address.path);
  const auto* to = is_unix ? reinterpret_cast<const sockaddr*>(&file)
                           : reinterpret_cast<const sockaddr*>(&address.inet);
  const mode_t mask = ::umask(0177);
  const int bound = ::bind(fd, to, is_unix ? sizeof file : address.length);
  const int problem = bound == 0 ? 0 : errno;
  ::umask(mask);
  return problem != 0 ? problem : ::listen(fd, backlog) == 0 ? 0 : errno;
}

std::string name_of_inet(int fd) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  std::array<char, INET6_ADDRSTRLEN> text{};
  (void)::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length);
  const bool is_v6 = bound.ss_family == AF_INET6;
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&bound);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&bound);
  const void* address = is_v6 ? static_cast<const void*>(&v6->sin6_addr) : &v4->sin_addr;
  (void)::inet_ntop(bound.ss_family, address, text.data(), text.size());
  const std::string host = is_v6 ? "[" + std::string(text.data()) + "]" : text.data();
  return "http://" + host + ":" + std::to_string(ntohs(is_v6 ? v6->sin6_port : v4->sin_port)) +
         "/metrics";
}

}  // namespace

Result<ListenAddress> parse_listen_address(const std::string& text) {
  constexpr std::string_view unix_mark = "unix:";
  if (text.starts_with(unix_mark)) {
    return unix_address(text, text.substr(unix_mark.size()));
  }
  const auto colon = text.rfind(':');
  const auto port = colon == text.npos ? std::nullopt : port_of(text.substr(colon + 1));
  if (!port) {
    return refuse(text, "there is no port from 0 to 65535 behind a colon");
  }
  std::string host = text.substr(0, colon);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(*port);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    constexpr unsigned loopback_net = 127;
    return ntohl(v4.sin_addr.s_addr) >> 24U == loopback_net
               ? inet_address(v4)
               : Result<ListenAddress>(refuse(text, "other machines could reach this address"));
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(*port);
  const bool is_bracketed = host.starts_with('[') && host.ends_with(']');
  if (is_bracketed &&
      ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr)
               ? inet_address(v6)
               : Result<ListenAddress>(refuse(text, "other machines could reach this address"));
  }
  return refuse(text, "this is no address in figures");
}

Result<Listener> Listener::listen(const ListenAddress& address) {
  const bool is_unix = !address.path.empty();
  if (is_unix) {
    EFS_TRY(remove_stale(address.path));
  }
  auto fd = open_socket(is_unix ? AF_UNIX : address.inet.ss_family);
  if (!fd) {
    return std::unexpected(fd.error());
  }
  if (const int problem = bind_and_listen(fd->get(), address); problem != 0) {
    return fail(problem, std::string("cannot listen") + (is_unix ? " at " + address.path : "") +
                             ": " + std::strerror(problem) + "; choose another address");
  }
  Listener listener(std::move(*fd), "unix:" + address.path);
  struct stat st{};
  if (!is_unix) {
    listener.name_ = name_of_inet(listener.fd());
  } else if (::lstat(address.path.c_str(), &st) == 0) {
    listener.path_ = address.path;
    listener.device_ = st.st_dev;
    listener.inode_ = st.st_ino;
  }
  return listener;
}

Listener::Listener(Listener&& other) noexcept
    : fd_(std::move(other.fd_)),
      name_(std::move(other.name_)),
      path_(std::exchange(other.path_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

Listener::~Listener() {
  struct stat st{};
  if (!path_.empty() && ::lstat(path_.c_str(), &st) == 0 && st.st_dev == device_ &&
      st.st_ino == inode_) {
    (void)::unlink(path_.c_str());
  }
}

}  // namespace efs::cli
