// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One request of the kernel: its client, its number, its one reply, and its observation.

#include <sys/statvfs.h>
#include <sys/types.h>

#include <cerrno>
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
/// same thread. The callback finds the Delivery through the only thread-local variable of this
/// layer.
class Delivery {
 public:
  /// `number`: the request's number, with resent_bit. `buffer` is borrowed and grows if an answer
  /// needs more. `request`: as the kernel sent it; borrowed. `wait_error`: see wait_error().
  Delivery(std::uint64_t number, std::vector<std::byte>& buffer,
           std::span<const std::byte> request = {}, int wait_error = 0);
  ~Delivery();
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  /// Returns the Delivery of this thread, which must exist.
  static Delivery& current();

  std::uint64_t number() const { return number_; }

  std::span<const std::byte> request() const { return request_; }

  /// The request has waited for a content, and must not wait again but fail with this error; 0: it
  /// may wait.
  int wait_error() const { return wait_error_; }

  /// Throws std::bad_alloc.
  std::span<std::byte> buffer(std::size_t size);

 private:
  const std::uint64_t number_;
  std::vector<std::byte>& buffer_;
  const std::span<const std::byte> request_;
  const int wait_error_;
};

/// Move-only. A Request sends exactly one reply: it logs and drops a second one, and a Request that
/// is destroyed without a reply logs that and replies EIO. Its destructor counts the request, with
/// the time since the construction, and reports it to the sinks of the observer. A moved-from
/// Request is empty: it does not count, report or reply. Allocates nothing unless the observer
/// listens. Used on the thread of its Delivery.
class Request {
 public:
  /// `handle` must be unanswered, and its user data a Connection. Needs a Delivery on this thread.
  Request(fuse_req_t handle, Operation operation);

  ~Request() { end(); }

  Request(Request&& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  /// Must not be empty.
  Connection& connection() const { return *connection_; }

  fs::Filesystem& filesystem() const;

  /// True if the request was replied to, or is empty.
  bool replied() const { return handle_ == nullptr; }

  /// The kernel's number of the request, without resent_bit. The journal records it.
  std::uint64_t number() const;
  /// True if the kernel sent the request before, to a predecessor of this process.
  bool resent() const;
  /// The client: ids, umask, supplementary groups, number. Valid until the reply.
  fs::Caller caller() const;

  /// The client's process; 0: of another pid namespace. Valid until the reply.
  pid_t pid() const;

  /// Returns memory of this thread for the answer, valid until the next call. Throws
  /// std::bad_alloc.
  std::span<std::byte> buffer(std::size_t size) const { return delivery_->buffer(size); }

  /// Describes the subject of the request to the observer. Each handler calls this first, because a
  /// name may no longer exist when the request ends. The sinks receive no event of a request
  /// without a subject.
  void observe(const Subject& subject);
  /// The kernel drops references. The sinks receive no event.
  void observe_forget(std::uint64_t ino, std::uint64_t count);

  /// Appends a directory entry for reply_buffer() to `rest` if it fits. Returns the size of the
  /// entry.
  std::size_t add_entry(std::span<std::byte> rest, const fs::Filesystem::DirectoryItem& item) const;

  /// The same for an answer to READDIRPLUS: the size of the entry, and the entry, which must fit,
  /// with what the kernel is told of its inode (`told.ino` 0: nothing).
  std::size_t size_of_entry_plus(const fs::Filesystem::DirectoryItem& item) const;
  void add_entry_plus(std::span<std::byte> rest, const fs::Filesystem::DirectoryItem& item,
                      fuse_entry_param told) const;

  /// The request needs the content of a remote file. It is put aside and handled again when the
  /// file was fetched; this object is empty then. Replies with the error if that fetch has failed,
  /// or if nothing fetches. Throws std::bad_alloc, without an effect.
  void wait_for_content(std::uint64_t ino);

  /// True if the request has waited, and the file is not as the kernel knew it by then: it has
  /// another version, or no name.
  bool has_waited_for_another() const { return delivery_->wait_error() == ESTALE; }

  // Replies. A reply that returns bool returns false if the kernel no longer waits because the
  // client was interrupted. The kernel then does not know the inode or open of the reply.
  /// 0: success without data.
  void reply_error(int code);
  /// Ends a request that the kernel expects no reply to (FORGET): libfuse must free it.
  void reply_none();
  void reply(const Status& status);
  void reply_entry(const Result<fs::Entry>& entry);
  /// Replies "there is no such name", which the kernel caches.
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
  /// Replies with the size of an extended attribute, or of the list of them.
  void reply_xattr_size(std::size_t size);
  void reply_lseek(std::uint64_t offset);
  /// Success, with these bytes for the caller's argument.
  void reply_ioctl(std::span<const std::byte> bytes);

 private:
  using Clock = std::chrono::steady_clock;

  template <typename Send>
  int send(const Outcome& outcome, Send send_by);
  void send_entry(const fuse_entry_param& entry);
  void end() noexcept;

  Connection* connection_;  // null: empty
  fuse_req_t handle_;       // null: replied to, or empty
  Delivery* delivery_;      // for the memory of an answer
  std::uint64_t number_;    // of the Delivery
  Operation operation_;
  Clock::time_point started_;
  Subject subject_;
  Outcome outcome_;
  std::optional<Event> event_;  // for the sinks
};

}  // namespace efs::fuse
