// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/session.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/memory.hpp"
#include "base/mutex.hpp"
#include "base/thread.hpp"
#include "fuse/adapter.hpp"
#include "fuse/library.hpp"
#include "fuse/limits.hpp"
#include "fuse/put_aside.hpp"
#include "fuse/request.hpp"
#include "fuse/upkeep.hpp"
#include "fuse/wire.hpp"

namespace efs::fuse {
namespace {

// State that the readers of one session share.
struct Shared {
  fuse_session* session = nullptr;
  int end = -1;  // readable when the session is to end
  const std::function<void(const InitRequest&)>& keep;
  const std::function<void()>& progress;
  std::atomic<bool> progressed{false};
  std::atomic<int> failure{0};     // errno of an error that ended the session
  PacedRequests* paced = nullptr;  // null: the mount has no limits
  PutAside* aside = nullptr;       // null: no content is fetched
};

// Replaces libfuse's own loop, which hides the request's header and blocks in read(2). The pages of
// libfuse's buffers may be absent. If the kernel meets an absent page while it copies a request,
// and the process has just been killed, the kernel fails the request (EIO) instead of keeping it
// for a successor (fuse_dev_do_read() and get_user_pages() of Linux 6.18).
class FuseReader final : public RequestReader {
 public:
  explicit FuseReader(Shared& shared) : shared_(shared), memory_(largest_request) {
    buffer_.mem = memory_.data();
  }

  Got receive() override {
    if (fuse_session_exited(shared_.session) != 0) {
      return Got::end;
    }
    wait_error_ = 0;
    locks_ = false;
    if (take_aside() || take_delayed()) {
      return Got::request;
    }
    ssize_t got = 0;
    do {
      got = ::read(fuse_session_fd(shared_.session), memory_.data(), memory_.size());
      buffer_.size = got > 0 ? static_cast<std::size_t>(got) : 0;
    } while (buffer_.size > 0 && (ends_wait() || put_off()));
    if (got >= static_cast<ssize_t>(sizeof(fuse_in_header))) {
      return Got::request;
    }
    const int code = got < 0 ? errno : EIO;
    // ENOENT: the caller of the request was interrupted
    if (code == EAGAIN || code == EINTR || code == ENOENT) {
      return Got::nothing;
    }
    if (code != ENODEV) {
      shared_.failure = code;
    }
    fuse_session_exit(shared_.session);
    return Got::end;
  }

  std::uint32_t caller() const override { return header().pid; }

  void handle() override {
    const fuse_in_header header = this->header();
    if (header.opcode == FUSE_INIT && shared_.keep) {
      shared_.keep({memory_.data(), memory_.data() + buffer_.size});
    }
    {
      const Delivery delivery(header.unique, answer_, std::span(memory_.data(), buffer_.size),
                              wait_error_);
      fuse_session_process_buf(shared_.session, &buffer_);
    }
    if (locks_) {
      shared_.aside->handled();
    }
    const bool is_new = (header.unique & resent_bit) == 0;
    if (is_new && shared_.progress && !shared_.progressed.exchange(true)) {
      shared_.progress();
    }
  }

  bool wait(int milliseconds) override {
    const int delayed = shared_.paced != nullptr ? shared_.paced->ready_fd() : -1;
    const int aside = shared_.aside != nullptr ? shared_.aside->ready_fd() : -1;
    std::array<pollfd, 4> what{
        pollfd{.fd = fuse_session_fd(shared_.session), .events = POLLIN, .revents = 0},
        pollfd{.fd = shared_.end, .events = POLLIN, .revents = 0},
        pollfd{.fd = delayed, .events = POLLIN, .revents = 0},
        pollfd{.fd = aside, .events = POLLIN, .revents = 0}};
    return ::poll(what.data(), what.size(), milliseconds) != 0;
  }

 private:
  bool take_aside() {
    if (shared_.aside == nullptr) {
      return false;
    }
    const auto taken =
        shared_.aside->take(std::span(static_cast<std::byte*>(buffer_.mem), memory_.size()));
    buffer_.size = taken.size;
    wait_error_ = taken.error;
    locks_ = taken.locks;
    return taken.size > 0;
  }

  // True for the interrupt of a request that waits for a content: libfuse does not know it.
  bool ends_wait() const {
    if (shared_.aside == nullptr || header().opcode != FUSE_INTERRUPT) {
      return false;
    }
    fuse_interrupt_in interrupted{};
    std::memcpy(&interrupted, memory_.data() + sizeof(fuse_in_header), sizeof interrupted);
    return shared_.aside->interrupt(interrupted.unique & ~resent_bit);
  }

  bool take_delayed() {
    if (shared_.paced == nullptr) {
      return false;
    }
    buffer_.size =
        shared_.paced->take(std::span(static_cast<std::byte*>(buffer_.mem), memory_.size()));
    return buffer_.size > 0;
  }

  // Without memory for a copy the request is handled early.
  bool put_off() try {
    return shared_.paced != nullptr &&
           shared_.paced->put_off(
               std::span(static_cast<const std::byte*>(buffer_.mem), buffer_.size));
  } catch (const std::bad_alloc&) {
    return false;
  }

  fuse_in_header header() const {
    fuse_in_header header{};
    std::memcpy(&header, memory_.data(), sizeof header);
    return header;
  }

  Shared& shared_;
  const PresentMemory memory_;
  fuse_buf buffer_{};
  std::vector<std::byte> answer_;
  int wait_error_ = 0;  // of the request in the buffer: see Delivery
  bool locks_ = false;  // likewise: see PutAside::Taken
};

// Gives the session the descriptor, which the session closes. The loop waits with poll(2), so that
// it can look without waiting. The flag belongs to the open file and so to every process that has
// it.
bool attach(fuse_session* session, UniqueFd& fuse_fd) {
  const int flags = ::fcntl(fuse_fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fuse_fd.get(), F_SETFL, flags | O_NONBLOCK) != 0 ||
      fuse_session_mount(session, ("/dev/fd/" + std::to_string(fuse_fd.get())).c_str()) != 0) {
    return false;
  }
  fuse_fd.release();
  return true;
}

// Brings a new session to where its predecessor was. Its answer to INIT meets a kernel that waits
// for none, which libfuse takes for an interrupted request.
Status resume(fuse_session* session, InitRequest init) {
  fuse_buf buffer{};
  buffer.size = init.size();
  buffer.mem = init.data();
  fuse_session_process_buf(session, &buffer);
  const fuse_out_header again{.len = sizeof(fuse_out_header), .error = notify_resend, .unique = 0};
  if (::write(fuse_session_fd(session), &again, sizeof again) !=
      static_cast<ssize_t>(sizeof again)) {
    return fail_errno("the kernel does not resend requests (FUSE_NOTIFY_RESEND, kernel 6.9)");
  }
  return {};
}

// The kernel does not send again a FORGET that the predecessor had read. So the Prober asks the
// kernel about the inodes without a name, in two steps. It asks at once about the inodes that the
// kernel has surely been told of, so that inodes do not pile up if workers die often. It asks about
// all such inodes two seconds later. By then the resent requests have arrived, one of which may
// create such an inode.
class Prober {
 public:
  // Without a thread the inodes stay until the next takeover or the end of the instance.
  explicit Prober(Connection& connection) {
    auto thread = start_thread([this, &connection] { run(connection); });
    if (thread) {
      thread_ = std::move(*thread);
    } else {
      log::warn("event=orphans_not_asked_for reason=\"{}\"", describe(thread.error()));
    }
  }

  ~Prober() {
    {
      MutexLock lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
  }

  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

 private:
  bool waited() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    MutexLock lock(mutex_);
    while (!ended_ && wake_.wait_until(mutex_, end)) {
    }
    return !ended_;
  }

  void run(Connection& connection) noexcept {
    try {
      ask(connection, true);
      if (waited()) {
        ask(connection, false);
      }
    } catch (const std::exception& problem) {
      log::warn("event=orphans_not_asked_for reason=\"{}\"", problem.what());
    }
  }

  void ask(Connection& connection, bool told) {
    for (const auto ino : connection.filesystem.inherited_orphans(told)) {
      if (ended()) {
        return;
      }
      free_if_forgotten(connection, ino);
    }
    connection.filesystem.compact_inherited();
  }

  bool ended() {
    MutexLock lock(mutex_);
    return ended_;
  }

  Mutex mutex_;  // rank 90 (leaf)
  Condition wake_;
  bool ended_ EFS_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace

bool offers_resend(const InitRequest& init) {
  fuse_init_in said{};
  if (init.size() < sizeof(fuse_in_header) + offsetof(fuse_init_in, flags2) + sizeof said.flags2) {
    return false;
  }
  std::memcpy(&said, init.data() + sizeof(fuse_in_header),
              std::min(init.size() - sizeof(fuse_in_header), sizeof said));
  return (said.flags & FUSE_INIT_EXT) != 0 && (std::uint64_t{said.flags2} << 32 & has_resend) != 0;
}

Session::Session(fs::Filesystem& filesystem, BackingRegistrar* registrar, Options options)
    : connection_{.filesystem = filesystem,
                  .backing = BackingTable(registrar, ids_to_keep),
                  .observer = Observer(std::move(options.sinks), options.counters),
                  .uncached = options.uncached,
                  .stacked = options.stacked,
                  .writeback = std::atomic<bool>(options.writeback),
                  .xattr = options.xattr,
                  .usage = options.usage,
                  .due_work = options.due_work,
                  .put_aside = options.put_aside,
                  .door = Door(options.door, options.door_totals)},
      limits_(options.limits),
      end_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  filesystem.attach(this);
}

Session::~Session() {
  connection_.filesystem.attach(nullptr);
}

void Session::rate_changed(Limited what) {
  ReadLock lock(awaiting_);
  if (loop_ != nullptr && connection_.paced) {
    connection_.paced->rate_changed(what);
  }
}

void Session::lift_limits(bool lifted) {
  ReadLock lock(awaiting_);
  if (loop_ != nullptr && connection_.paced) {
    connection_.paced->lift(lifted);
  }
}

bool Session::has_delayed() {
  ReadLock lock(awaiting_);
  return loop_ != nullptr && connection_.paced && connection_.paced->waiting() > 0;
}

void Session::publish_session(fuse_session* session) {
  WriteLock lock(notify_);
  session_ = session;
}

void Session::publish_loop(RequestLoop* loop) {
  WriteLock lock(awaiting_);
  loop_ = loop;
}

void Session::write_back() {
  const auto& filesystem = connection_.filesystem;
  for (const auto ino :
       connection_.writeback ? filesystem.open_for_writing() : filesystem.may_be_mapped()) {
    write_back(ino);
  }
}

void Session::write_back(std::uint64_t ino) {
  ReadLock lock(notify_);
  if (session_ != nullptr && connection_.backing.keeps_to_daemon(ino)) {
    fuse_lowlevel_notify_inval_inode(session_, ino, 0, 0);
  }
}

void Session::end() {
  ReadLock lock(notify_);
  if (session_ == nullptr) {
    return;
  }
  fuse_session_exit(session_);
  const std::uint64_t one = 1;
  if (end_) {
    (void)!::write(end_.get(), &one, sizeof one);
  }
}

// ENOENT is the usual answer: the kernel does not know the name or inode, or no longer knows it.
void Session::attributes_changed(std::uint64_t ino) {
  ReadLock lock(notify_);
  if (session_ != nullptr) {
    fuse_lowlevel_notify_inval_inode(session_, ino, 0, 0);
  }
}

// Invalidates attributes only (no offset), because this takes no lock of the kernel that a request
// may hold. A thread that serves requests must not wait here for the end of the session.
void Session::space_given_back(std::uint64_t ino) {
  if (!notify_.try_lock_shared()) {
    return;
  }
  if (session_ != nullptr) {
    fuse_lowlevel_notify_inval_inode(session_, ino, -1, 0);
  }
  notify_.unlock_shared();
}

void Session::name_changed(std::uint64_t parent, const std::string& name) {
  const PutAside::Telling telling(connection_.put_aside);
  ReadLock lock(notify_);
  if (session_ == nullptr) {
    return;
  }
  const int told = fuse_lowlevel_notify_inval_entry(session_, parent, name.c_str(), name.size());
  if (told != 0 && told != -ENOENT) {
    log::warn("event=kernel_not_told parent={} code={}", parent, -told);
  }
  // Invalidates the directory as well: if the kernel does not know the entry, it does not drop the
  // cached listing.
  fuse_lowlevel_notify_inval_inode(session_, parent, 0, 0);
}

void Session::name_removed(std::uint64_t parent, const std::string& name, std::uint64_t ino,
                           bool last) {
  const PutAside::Telling telling(connection_.put_aside);
  ReadLock lock(notify_);
  if (session_ == nullptr) {
    return;
  }
  int told = last ? fuse_lowlevel_notify_delete(session_, parent, ino, name.c_str(), name.size())
                  : -ENOSYS;
  if (told != 0) {
    told = fuse_lowlevel_notify_inval_entry(session_, parent, name.c_str(), name.size());
  }
  if (told != 0 && told != -ENOENT) {
    log::warn("event=kernel_not_told parent={} code={}", parent, -told);
  }
  fuse_lowlevel_notify_inval_inode(session_, parent, 0, 0);
  fuse_lowlevel_notify_inval_inode(session_, ino, -1, 0);
}

// Expires the entry only. Invalidating a directory's entry would unhash it, and programs that work
// in the directory would notice.
void Session::name_doubted(std::uint64_t parent, const std::string& name, std::uint64_t ino) {
  const PutAside::Telling telling(connection_.put_aside);
  ReadLock lock(notify_);
  if (session_ == nullptr) {
    return;
  }
  const int told = expire_entry(session_, parent, name);
  if (told != 0 && told != -ENOENT) {
    log::warn("event=kernel_not_told parent={} code={}", parent, -told);
  }
  if (ino != 0) {
    fuse_lowlevel_notify_inval_inode(session_, ino, -1, 0);
  }
}

// forget_references() wakes the thread earlier if there are many.
void Session::removals_wait() {
  Upkeep* upkeep = connection_.upkeep;
  if (upkeep != nullptr) {
    upkeep->wake_soon();
  }
}

void Session::release_space() {
  connection_.batch_registrar.wait();
  connection_.backing.close_dropped();
}

void Session::await_received() {
  ReadLock lock(awaiting_);
  if (loop_ != nullptr) {
    (void)loop_->await_received(std::chrono::seconds(1));
  }
}

Status Session::serve(UniqueFd fuse_fd, const RequestLoop::Options& options,
                      const std::function<void(const InitRequest&)>& keep,
                      const std::function<void()>& begun) {
  return run(std::move(fuse_fd), options, {.keep = keep, .resumed = {}, .progress = begun},
             nullptr);
}

Status Session::take_over(UniqueFd fuse_fd, const RequestLoop::Options& options,
                          const InitRequest& init, const std::function<void()>& resumed,
                          const std::function<void()>& progress) {
  return run(std::move(fuse_fd), options, {.keep = {}, .resumed = resumed, .progress = progress},
             &init);
}

// The table of open files does not have the door. An id says that it was passed through.
void Session::inherit(std::span<const InheritedBacking> backings) {
  BackingTable::OpensByInode opens;
  connection_.filesystem.open_files().for_each([&](std::uint64_t, const fs::OpenFile& file) {
    if (file.owner.kind == fs::Owner::Kind::kernel) {
      ++(file.by_daemon ? opens[file.ino].by_daemon : opens[file.ino].through);
    }
  });
  if (const auto clients = connection_.door.totals().clients.load(); clients > 0) {
    const bool has_id =
        std::ranges::find(backings, door_inode, &InheritedBacking::ino) != backings.end();
    (has_id ? opens[door_inode].through : opens[door_inode].by_daemon) = clients;
  }
  connection_.backing.inherit(backings, opens, [this](std::uint64_t ino) {
    return ino == door_inode ? connection_.door.exists() : connection_.filesystem.exists(ino);
  });
}

// `resumes`: a predecessor served before.
void Session::serve_requests(const RequestLoop::Options& options,
                             const RequestLoop::MakeReader& make_reader, const Hooks& hooks,
                             bool resumes) {
  std::optional<Prober> prober;
  if (resumes) {
    prober.emplace(connection_);
  }
  Upkeep upkeep(connection_);
  RequestLoop::Options counted = options;
  counted.joined = &connection_.counters.joined_callers;
  RequestLoop loop(counted, make_reader, &upkeep);

  struct Reset {  // also if memory is exhausted
    Session& session;

    ~Reset() {
      session.publish_loop(nullptr);
      session.connection_.upkeep = nullptr;
      session.connection_.door.end();
    }
  };

  const Reset reset{*this};
  connection_.upkeep = &upkeep;
  connection_.door.begin(connection_, resumes);
  publish_loop(&loop);
  if (hooks.resumed) {
    hooks.resumed();
  }
  loop.run();
}

Status Session::run(UniqueFd fuse_fd, const RequestLoop::Options& options, const Hooks& hooks,
                    const InitRequest* init) {
  if (limits_ != nullptr) {
    auto paced = PacedRequests::make(*limits_);
    if (!paced) {
      return fail(paced.error().code, "the limits of the mount: " + describe(paced.error()));
    }
    connection_.paced = std::move(*paced);
  }
  char program[] = "efsd";
  char* arguments[] = {program, nullptr};
  fuse_args args = FUSE_ARGS_INIT(1, arguments);
  const fuse_lowlevel_ops operations = adapter_operations();
  fuse_session* session = fuse_session_new(&args, &operations, sizeof operations, &connection_);
  if (session == nullptr) {
    return fail(EIO, "libfuse refused the session");
  }
  Shared shared{.session = session,
                .end = end_.get(),
                .keep = hooks.keep,
                .progress = hooks.progress,
                .paced = connection_.paced.get(),
                .aside = connection_.put_aside};
  Status status;
  if (!attach(session, fuse_fd)) {
    shared.failure = EIO;
  } else {
    connection_.session = session;
    publish_session(session);
    if (init != nullptr) {
      status = resume(session, *init);
    }
    if (status) {
      serve_requests(
          options, [&] { return std::make_unique<FuseReader>(shared); }, hooks, init != nullptr);
      connection_.paced.reset();
      if (connection_.put_aside != nullptr) {
        connection_.put_aside->clear();
      }
    }
  }
  // No thread serves any more, so none waits in a notification for a reply of this session.
  publish_session(nullptr);
  connection_.session = nullptr;
  fuse_session_destroy(session);
  fuse_opt_free_args(&args);
  if (const int failure = shared.failure; failure != 0) {
    return fail(failure, std::string("FUSE session: ") + std::strerror(failure));
  }
  return status;
}

}  // namespace efs::fuse
