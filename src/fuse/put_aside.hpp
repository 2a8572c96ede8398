// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Requests that wait for the content of a remote file (fs::Remote). Such a request is put aside as
// the kernel sent it, and holds no thread. It is handled again, from its beginning, when the
// content is here, the fetch has failed, or its client is being killed. A signal that does not kill
// the client does not end its wait, as on a network file system: many programs do not expect EINTR
// of open(2).

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::fuse {

/// True if a signal is about to end this thread, or if that is unknown. 0: of another pid
/// namespace.
bool is_being_killed(std::uint32_t thread);

/// Thread-safe.
class PutAside {
 public:
  /// `wanted` is called after a request was put aside, on its thread. It starts the fetch of the
  /// file, does not wait for it, and must not throw. Fails with an errno.
  static Result<std::unique_ptr<PutAside>> make(
      std::function<void(std::uint64_t ino)> wanted,
      std::function<bool(std::uint32_t thread)> is_dying = is_being_killed);

  /// Sets what opened() calls. It must not wait and not throw. Call it before any request.
  void set_opened(std::function<void(std::uint64_t ino)> call) { opened_ = std::move(call); }

  /// How many files set_opened() wants to hear of. While there are none, opened() costs a load.
  void watch_opens(std::size_t files) { watched_ = files; }

  /// A program has opened the file.
  void opened(std::uint64_t ino) const {
    if (watched_.load(std::memory_order_relaxed) > 0) {
      opened_(ino);
    }
  }

  /// A descriptor for poll(2), readable when take() may have a request.
  int ready_fd() const { return ready_fd_.get(); }

  /// Keeps a copy of the request, which needs the content of `ino`. False, without an effect: the
  /// kernel holds a lock for the request that a notification needs (Telling). Throws
  /// std::bad_alloc, without an effect.
  bool park(std::uint64_t ino, std::span<const std::byte> request);
  /// Call it when the thread of a parked request has finished with the request. `interrupted`:
  /// libfuse had the interrupt of its client.
  void parked(std::uint64_t ino, std::uint64_t unique, bool interrupted);

  /// Starts further fetches, which a request will wait for later.
  void want_all(std::span<const std::uint64_t> inos) const {
    for (const auto ino : inos) {
      wanted_(ino);
    }
  }

  /// The fetch of this file has ended: `error` 0 if its content is here, or the error that the
  /// waiting clients get. A request that is put aside later begins another fetch.
  void fetched(std::uint64_t ino, int error);

  /// The client of this request got a signal, about which the kernel tells once. Returns true if
  /// the request waits here: it is answered EINTR when the client is being killed, now or later.
  /// False: the request is handled, or may be put aside after this call.
  bool interrupt(std::uint64_t unique);

  struct Taken {
    std::size_t size = 0;  // 0: there is none
    int error = 0;         // the answer, if the request would wait again
    bool locks = false;    // call handled() after it
  };

  /// A request to be handled now, after a copy to `into`, which must have room for the largest.
  Taken take(std::span<std::byte> into);
  /// A taken request that `locks` was handled: it is answered, or waits again.
  void handled();

  /// While one lives, the kernel may be told of changed names. For that it takes locks of
  /// directories and files without a way to kill the waiting thread, and a rename, a link or a
  /// change of attributes that is put aside may hold them as long as the PFS hangs. So a telling
  /// begins when none of these is put aside, and while it lives none will be.
  class Telling {
   public:
    /// null: does nothing. Waits for the requests that are put aside. After `patience` they fail
    /// with EAGAIN. `refuses`: from here on park() refuses such a request at once, so that no
    /// further telling waits; at most one may live.
    explicit Telling(PutAside* aside, bool refuses = false,
                     std::chrono::milliseconds patience = std::chrono::seconds(10));
    ~Telling();
    Telling(const Telling&) = delete;
    Telling& operator=(const Telling&) = delete;

   private:
    PutAside* const aside_;
    const bool refuses_;
  };

  /// The number of requests that wait for a fetch.
  std::size_t waiting() const { return waiting_; }

  /// Drops all requests: the connection has ended.
  void clear();

 private:
  struct Parked {
    std::uint64_t unique;      // without resent_bit
    std::uint32_t client = 0;  // its thread
    bool signalled = false;
    bool locks = false;
    int error = 0;
    std::vector<std::byte> request;
  };

  PutAside(std::function<void(std::uint64_t)> wanted, std::function<bool(std::uint32_t)> is_dying,
           UniqueFd ready)
      : wanted_(std::move(wanted)), is_dying_(std::move(is_dying)), ready_fd_(std::move(ready)) {}

  using Requests = std::list<Parked>;

  bool interrupt_locked(std::uint64_t unique) EFS_REQUIRES(mutex_);
  /// Moves a request to ready_. Allocates nothing, so that none is lost.
  void make_ready(Requests& from, Requests::iterator request, int error) EFS_REQUIRES(mutex_);
  /// Looks again at the clients that got a signal.
  void look_for_dying() EFS_REQUIRES(mutex_);
  void set_timer() EFS_REQUIRES(mutex_);
  /// Counts one more request in locking_. False: the kernel is being told of names.
  bool may_lock() EFS_REQUIRES(mutex_);
  void lock_less() EFS_REQUIRES(mutex_);
  void end_those_with_locks() EFS_REQUIRES(mutex_);

  const std::function<void(std::uint64_t)> wanted_;
  std::function<void(std::uint64_t)> opened_;
  std::atomic<std::size_t> watched_{0};
  const std::function<bool(std::uint32_t)> is_dying_;
  // a timer, which has expired while ready_ is not empty, or when look_for_dying() is due
  const UniqueFd ready_fd_;
  std::atomic<std::size_t> waiting_{0};
  std::atomic<std::size_t> ready_count_{0};
  std::atomic<std::size_t> signalled_{0};           // of those that wait
  Mutex mutex_;                                     // rank 88: no other lock is taken under it
  Condition changed_;                               // locking_ or telling_
  std::size_t locking_ EFS_GUARDED_BY(mutex_) = 0;  // requests with locks, until handled
  std::size_t telling_ EFS_GUARDED_BY(mutex_) = 0;
  bool refusing_ EFS_GUARDED_BY(mutex_) = false;
  std::size_t pressing_ EFS_GUARDED_BY(mutex_) = 0;  // tellings whose patience is over
  std::unordered_map<std::uint64_t, Requests> by_file_ EFS_GUARDED_BY(mutex_);
  Requests ready_ EFS_GUARDED_BY(mutex_);
  // interrupted requests that were not found: each may be just about to be put aside
  std::array<std::uint64_t, 64> not_found_ EFS_GUARDED_BY(mutex_){};
  std::size_t next_not_found_ EFS_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point looked_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::fuse
