// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One request of the kernel: its client, its number, its one reply, and its observation.

#include <sys/statvfs.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "fs/filesystem.hpp"
#include "fuse/library.hpp"
#include "fuse/observer.hpp"

namespace efs::fuse {

struct Connection;

/// The data of a request that libfuse does not pass to callbacks: its number in the protocol, and
/// memory for an answer. A reader of requests makes a Delivery around each call of libfuse on the
/// same thread. The callback finds the Delivery by the layer's only thread-local.
class Delivery {
 public:
  /// `number`: of the request, with resent_bit. `buffer` is borrowed; it grows when an answer needs
  /// more.
  Delivery(std::uint64_t number, std::vector<std::byte>& buffer);
  ~Delivery();
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  /// The Delivery of this thread. There must be one.
  static Delivery& current();

  std::uint64_t number() const { return number_; }

  /// Throws std::bad_alloc.
  std::span<std::byte> buffer(std::size_t size);

 private:
  const std::uint64_t number_;
  std::vector<std::byte>& buffer_;
};

/// Move-only. A Request sends exactly one reply: it logs and drops a second one, and a Request that
/// is destroyed without a reply logs that and replies EIO. Its end counts the request, with the
/// time since its construction, and tells the sinks of the observer. A Request that was moved from
/// is empty: it counts, tells and replies nothing. Allocates nothing unless the observer listens.
/// Used on the thread of its Delivery.
class Request {
 public:
  /// `handle`: unanswered. Its user data is a Connection. Needs a Delivery on this thread.
  Request(fuse_req_t handle, Operation operation);

  ~Request() { end(); }

  Request(Request&& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  /// Must not be empty.
  Connection& connection() const { return *connection_; }

  fs::Filesystem& filesystem() const;

  /// Replied to, or empty.
  bool replied() const { return handle_ == nullptr; }

  /// The kernel's number of the request, which the journal keeps, without resent_bit.
  std::uint64_t number() const;
  /// The kernel sent the request before, to a predecessor of this process.
  bool resent() const;
  /// The client: ids, umask, supplementary groups, number. Valid until the reply.
  fs::Caller caller() const;

  /// Memory of this thread for the answer, valid until the next call. Throws std::bad_alloc.
  std::span<std::byte> buffer(std::size_t size) const { return delivery_->buffer(size); }

  /// Tells the observer the subject of the request. Each handler does so first: names may be gone
  /// when the request ends. Without it the sinks are not told of the request.
  void observe(const Subject& subject);
  /// The kernel drops references: no event for the sinks.
  void observe_forget(std::uint64_t ino, std::uint64_t count);

  /// Appends a directory entry for reply_buffer() to `rest` if it fits; returns the size that it
  /// needs.
  std::size_t add_entry(std::span<std::byte> rest, const fs::Filesystem::DirectoryItem& item) const;

  // Replies. Those that return bool return false if the kernel no longer waits, since the client
  // was interrupted; then the kernel knows nothing of what the reply names.
  /// 0: success without data.
  void reply_error(int code);
  /// The kernel expects no reply (forget); libfuse does.
  void reply_none();
  void reply(const Status& status);
  void reply_entry(const Result<fs::Entry>& entry);
  /// "There is no such name", for the kernel to remember.
  void reply_no_entry();
  void reply_attr(const Result<fs::Entry>& entry);
#if EFS_HAVE_STATX
  void reply_statx(const Result<fs::Entry>& entry);
#endif
  void reply_readlink(const std::string& target);
  [[nodiscard]] bool reply_open(const fuse_file_info& info);
  [[nodiscard]] bool reply_create(const fuse_entry_param& entry, const fuse_file_info& info);
  void reply_write(std::size_t count);
  void reply_buffer(std::span<const std::byte> bytes);
  void reply_statfs(const struct statvfs& statistics);
  /// The size of an extended attribute or of the list of them.
  void reply_xattr_size(std::size_t size);
  void reply_lseek(std::uint64_t offset);

 private:
  using Clock = std::chrono::steady_clock;

  template <typename Send>
  int send(const Outcome& outcome, Send send_by);
  void send_entry(const fuse_entry_param& entry);
  void end() noexcept;

  Connection* connection_;  // null: empty
  fuse_req_t handle_;       // null: replied to, or empty
  Delivery* delivery_;
  Operation operation_;
  Clock::time_point started_;
  Subject subject_;
  Outcome outcome_;
  std::optional<Event> event_;  // for the sinks
};

}  // namespace efs::fuse
