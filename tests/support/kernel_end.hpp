// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The kernel's end of a FUSE connection, without a kernel.

#include <linux/fuse.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"
#include "fuse/connection.hpp"
#include "fuse/library.hpp"
#include "fuse/request.hpp"
#include "support/failing_new.hpp"

namespace efs::test {

/// A message of the protocol.
using Message = std::vector<std::byte>;

template <typename Struct>
Message& operator<<(Message& message, const Struct& part) {
  const auto bytes = std::as_bytes(std::span(&part, 1));
  message.insert(message.end(), bytes.begin(), bytes.end());
  return message;
}

/// With its terminating zero, as the protocol has names.
inline Message& operator<<(Message& message, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  message.insert(message.end(), bytes.begin(), bytes.end());
  message.push_back(std::byte{0});
  return message;
}

template <typename... Parts>
Message message_of(const Parts&... parts) {
  Message message;
  (message << ... << parts);
  return message;
}

/// Sends requests to callbacks of libfuse, whose replies arrive at a socket. One thread.
class KernelEnd {
 public:
  struct Reply {
    std::uint64_t number = 0;
    int error = 0;
    Message data;
  };

  static constexpr uid_t uid = 1234;
  static constexpr gid_t gid = 567;

  /// Opens the connection (INIT). The kernel offers the INIT flags `offered`.
  KernelEnd(const fuse_lowlevel_ops& callbacks, fuse::Connection& connection,
            std::uint32_t offered = FUSE_DO_READDIRPLUS) {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    socket_.reset(ends[0]);
    char program[] = "efs-tests";
    char* arguments[] = {program, nullptr};
    fuse_args args = FUSE_ARGS_INIT(1, arguments);
    session_ = fuse_session_new(&args, &callbacks, sizeof callbacks, &connection);
    fuse_opt_free_args(&args);
    REQUIRE(session_ != nullptr);
    REQUIRE(fuse_session_mount(session_, ("/dev/fd/" + std::to_string(ends[1])).c_str()) == 0);
    fuse_init_in init{};
    init.major = FUSE_KERNEL_VERSION;
    init.minor = FUSE_KERNEL_MINOR_VERSION;
    init.flags = offered;
    REQUIRE(send(FUSE_INIT, 0, message_of(init)).size() == 1);
  }

  ~KernelEnd() { fuse_session_destroy(session_); }

  KernelEnd(const KernelEnd&) = delete;
  KernelEnd& operator=(const KernelEnd&) = delete;

  /// Sends a request, and returns all replies. `number`: includes resent_bit; 0: the next number.
  std::vector<Reply> send(std::uint32_t opcode, std::uint64_t ino, const Message& arguments,
                          std::uint64_t number = 0) {
    deliver(opcode, ino, arguments, number);
    return replies();
  }

  /// Handles a whole request again that was put aside, with this fuse::Delivery::wait_error().
  std::vector<Reply> send_again(Message request, int wait_error) {
    fuse_in_header header{};
    std::memcpy(&header, request.data(), sizeof header);
    process(request, header.unique, wait_error);
    return replies();
  }

  std::vector<Reply> replies() {
    std::vector<Reply> replies;
    std::vector<std::byte> bytes(std::size_t{1} << 20U);
    ssize_t got = 0;
    while ((got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) {
      fuse_out_header header{};
      REQUIRE(got >= static_cast<ssize_t>(sizeof header));
      std::memcpy(&header, bytes.data(), sizeof header);
      replies.push_back({.number = header.unique,
                         .error = -header.error,
                         .data = {bytes.begin() + sizeof header, bytes.begin() + got}});
    }
    return replies;
  }

  /// Makes the n-th allocation of the next request fail, and all after it.
  void fail_allocation(std::uint64_t n) { failing_ = n; }

  /// True if the request made that many allocations.
  bool allocation_failed() const { return met_; }

 private:
  void deliver(std::uint32_t opcode, std::uint64_t ino, const Message& arguments,
               std::uint64_t number) {
    fuse_in_header header{};
    header.len = static_cast<std::uint32_t>(sizeof header + arguments.size());
    header.opcode = opcode;
    header.unique = number != 0 ? number : ++last_;
    header.nodeid = ino;
    header.uid = uid;
    header.gid = gid;
    header.pid = static_cast<std::uint32_t>(::getpid());
    Message whole = message_of(header);
    whole.insert(whole.end(), arguments.begin(), arguments.end());
    process(whole, header.unique, 0);
  }

  void process(Message& whole, std::uint64_t unique, int wait_error) {
    fuse_buf buffer{};
    buffer.size = whole.size();
    buffer.mem = whole.data();
    const fuse::Delivery delivery(unique, answer_, whole, wait_error);
    if (failing_ == 0) {
      fuse_session_process_buf(session_, &buffer);
      return;
    }
    const FailingNew failing(std::exchange(failing_, 0), Shortage::for_good);
    fuse_session_process_buf(session_, &buffer);
    met_ = failing.met();
  }

  UniqueFd socket_;
  fuse_session* session_ = nullptr;
  std::uint64_t last_ = 0;
  std::vector<std::byte> answer_;
  std::uint64_t failing_ = 0;
  bool met_ = false;
};

}  // namespace efs::test
