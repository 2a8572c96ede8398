// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One mounted FUSE connection: receives requests, passes each to the adapter, and ends with the
// unmount.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fuse/backing.hpp"
#include "fuse/connection.hpp"
#include "fuse/due_work.hpp"
#include "fuse/limits.hpp"
#include "fuse/observer.hpp"
#include "fuse/request_loop.hpp"

struct fuse_session;

namespace efs::fuse {

/// The INIT request that opened a connection, as the kernel sent it. A successor needs it to
/// continue the connection.
using InitRequest = std::vector<std::byte>;

/// True if the kernel that sent `init` sends requests again to a successor (FUSE_NOTIFY_RESEND,
/// kernel 6.9). Without this no successor can continue the connection.
bool offers_resend(const InitRequest& init);

class Session final : public fs::KernelView {
 public:
  struct Options {
    std::vector<EventSink*> sinks = {};  // are told of every request; must outlive the session
    // Each read and write of a program is a request, or several, as far as the kernel (from 6.6 on)
    // can map files that are opened so, and only of files without passthrough.
    bool uncached = false;
    bool writeback = false;        // see Connection; false if the kernel does not offer it
    bool stacked = false;          // containers lie on an overlay: no overlay can lie on the mount
    bool xattr = true;             // see Connection
    Counters* counters = nullptr;  // see Observer
    Usage* usage = nullptr;        // see Connection; must outlive the session
    DueWork* due_work = nullptr;   // see Connection; must outlive the session
    // What the mount may do per second; null: no limits. Needs the daemon's path, and `uncached` to
    // count every read. Must outlive the session
    Limits* limits = nullptr;
    // Requests that wait for contents; null: none is fetched. Must outlive the session
    PutAside* put_aside = nullptr;
    DoorMemory* door = nullptr;         // null: the mount has no door; must outlive the session
    DoorTotals* door_totals = nullptr;  // null: the session's own; must outlive the session
  };

  /// `registrar`: null for the daemon's path only. Both must outlive the session.
  Session(fs::Filesystem& filesystem, BackingRegistrar* registrar, Options options);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Serves `fuse_fd` (a mounted /dev/fuse) until the unmount, and then returns success. Makes the
  /// open file non-blocking. Call once. What programs have open stays counted, because after an
  /// error the connection may go on with a successor. `keep` receives the INIT request, for a
  /// successor, before the daemon answers the request. `begun` is called when the daemon has
  /// answered it.
  Status serve(UniqueFd fuse_fd, const RequestLoop::Options& options,
               const std::function<void(const InitRequest&)>& keep,
               const std::function<void()>& begun);
  /// Continues a connection whose daemon has died. The kernel sends again the requests that the
  /// daemon had read and not answered. `resumed` is called before the first request is served; from
  /// then on the session notifies the kernel of changes. `progress` is called once, when the first
  /// new request has been answered. Source: linux/fuse.h, FUSE_NOTIFY_RESEND (kernel 6.9).
  Status take_over(UniqueFd fuse_fd, const RequestLoop::Options& options, const InitRequest& init,
                   const std::function<void()>& resumed, const std::function<void()>& progress);
  /// Call before take_over(), with the registrations of the predecessor.
  void inherit(std::span<const InheritedBacking> backings);

  /// Returns when the daemon has all data that programs stored through mappings before the call,
  /// and all data that the kernel has collected (Connection::writeback). Call from any thread that
  /// does not serve requests.
  void write_back();
  void write_back(std::uint64_t ino) override;
  /// Ends serve() or take_over() before the unmount. The connection ends as well if no other
  /// process has its descriptor. Programs that still have the file system, in other mount
  /// namespaces, then get ENOTCONN. Any thread.
  void end();

  const Counters& counters() const { return connection_.observer.counters; }

  /// The programs that intercept.
  const Door& door() const { return connection_.door; }

  /// True if the kernel has agreed to passthrough and has not rejected every container.
  bool passthrough() const { return connection_.backing.enabled(); }

  /// Call after a change of this limit. Any thread.
  void rate_changed(Limited what);
  /// While lifted, no request waits for a limit. Any thread.
  void lift_limits(bool lifted);
  /// True while requests wait for a limit. Any thread.
  bool has_delayed();

  /// True if the kernel collects writes.
  bool writeback() const { return connection_.writeback; }

  /// Stops passthrough, because the kernel rejects every container of this store. Any thread.
  void refuse_passthrough() { connection_.backing.refuse(); }

  void name_changed(std::uint64_t parent, const std::string& name) override;
  void name_removed(std::uint64_t parent, const std::string& name, std::uint64_t ino,
                    bool last) override;
  void name_doubted(std::uint64_t parent, const std::string& name, std::uint64_t ino) override;
  void attributes_changed(std::uint64_t ino) override;
  void space_given_back(std::uint64_t ino) override;

  void let_go(std::uint64_t ino) override { connection_.backing.let_go(ino); }

  void container_removed(std::uint64_t ino, std::uint64_t bytes) override {
    connection_.backing.drop(ino, bytes);
  }

  bool removes_later() override { return connection_.upkeep != nullptr; }

  void removals_wait() override;

  void release_space() override;
  void await_received() override;

 private:
  struct Hooks {
    std::function<void(const InitRequest&)> keep;
    std::function<void()> resumed;
    std::function<void()> progress;
  };

  Status run(UniqueFd fuse_fd, const RequestLoop::Options& options, const Hooks& hooks,
             const InitRequest* init);
  void serve_requests(const RequestLoop::Options& options,
                      const RequestLoop::MakeReader& make_reader, const Hooks& hooks, bool resumes);
  void publish_session(fuse_session* session);
  void publish_loop(RequestLoop* loop);

  Connection connection_;
  Limits* const limits_;
  // an eventfd, readable after end(). Empty if no descriptor was available; then end() takes effect
  // at the next request
  const UniqueFd end_;
  // rank 38: held shared while a thread notifies the kernel, exclusively to end the notifications
  SharedMutex notify_;
  fuse_session* session_ EFS_GUARDED_BY(notify_) = nullptr;
  // Rank 37: held shared while a thread awaits the loop, at most for a second. Not notify_: a
  // thread that notifies the kernel may wait for a request, and so for the loop.
  SharedMutex awaiting_;
  RequestLoop* loop_ EFS_GUARDED_BY(awaiting_) = nullptr;  // while run() serves
};

}  // namespace efs::fuse
