#include "fuse/session.hpp"

#include <linux/fuse.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "fuse/adapter.hpp"
#include "fuse/library.hpp"

namespace efs::fuse {
namespace {

// A request is read and handled on one thread, so its number can stay with the thread. It names the request in the
// journal: what a successor of this process needs to answer a request once and only once.
thread_local std::uint64_t request_of_thread = 0;

// Reads and handles requests until the unmount (0) or an error (negative errno). libfuse's own loop would hide the
// request's header.
int serve_on_this_thread(fuse_session* session) {
  fuse_buf buffer{};
  int result = 0;
  while (fuse_session_exited(session) == 0) {
    result = fuse_session_receive_buf(session, &buffer);
    if (result == -EINTR || result == -EAGAIN) continue;
    if (result <= 0) break;
    request_of_thread = buffer.size >= sizeof(fuse_in_header) && (buffer.flags & FUSE_BUF_IS_FD) == 0 ? static_cast<const fuse_in_header*>(buffer.mem)->unique : 0;
    fuse_session_process_buf(session, &buffer);
    request_of_thread = 0;
  }
  std::free(buffer.mem);
  return result == -ENODEV ? 0 : std::min(result, 0);
}

}  // namespace

std::uint64_t current_request() { return request_of_thread; }

Session::Session(fs::Filesystem& filesystem, BackingRegistrar* registrar) : door_{filesystem, BackingTable(registrar), {}} { filesystem.attach(this); }
Session::~Session() { door_.filesystem.attach(nullptr); }

void Session::publish_session(fuse_session* session) {
  WriteLock lock(notify_);
  session_ = session;
}

// ENOENT is the usual answer: the kernel does not know the name or inode, or does not any more.
void Session::attributes_changed(std::uint64_t ino) {
  ReadLock lock(notify_);
  if (session_ != nullptr) fuse_lowlevel_notify_inval_inode(session_, ino, 0, 0);
}

void Session::name_changed(std::uint64_t parent, const std::string& name) {
  ReadLock lock(notify_);
  if (session_ == nullptr) return;
  const int told = fuse_lowlevel_notify_inval_entry(session_, parent, name.c_str(), name.size());
  if (told != 0 && told != -ENOENT) log::warn("event=kernel_not_told parent={} code={}", parent, -told);
  // The directory as well: an entry that the kernel does not know leaves its cached listing as it was.
  fuse_lowlevel_notify_inval_inode(session_, parent, 0, 0);
}

void Session::name_removed(std::uint64_t parent, const std::string& name, std::uint64_t ino, bool last) {
  ReadLock lock(notify_);
  if (session_ == nullptr) return;
  int told = last ? fuse_lowlevel_notify_delete(session_, parent, ino, name.c_str(), name.size()) : -ENOSYS;
  if (told != 0) told = fuse_lowlevel_notify_inval_entry(session_, parent, name.c_str(), name.size());
  if (told != 0 && told != -ENOENT) log::warn("event=kernel_not_told parent={} code={}", parent, -told);
  fuse_lowlevel_notify_inval_inode(session_, parent, 0, 0);
  fuse_lowlevel_notify_inval_inode(session_, ino, -1, 0);
}

Status Session::serve(UniqueFd fuse_fd, unsigned threads) {
  char program[] = "efsd";
  char* arguments[] = {program, nullptr};
  fuse_args args = FUSE_ARGS_INIT(1, arguments);
  const fuse_lowlevel_ops operations = adapter_operations();
  fuse_session* session = fuse_session_new(&args, &operations, sizeof operations, &door_);
  if (session == nullptr) return fail(EIO, "libfuse refused the session");
  std::atomic<int> result{0};
  if (fuse_session_mount(session, ("/dev/fd/" + std::to_string(fuse_fd.get())).c_str()) != 0) {
    result = -EIO;
  } else {
    fuse_fd.release();  // the session closes it
    publish_session(session);
    std::vector<std::jthread> pool;
    for (unsigned i = 0; i < threads; ++i)
      pool.emplace_back([&] {
        if (const int code = serve_on_this_thread(session); code != 0) result = code;
      });
  }
  // The connection has ended, so nobody waits in a notification for an answer of ours.
  publish_session(nullptr);
  fuse_session_destroy(session);
  fuse_opt_free_args(&args);
  if (result != 0) return fail(-result, std::string("FUSE session: ") + std::strerror(-result));
  return {};
}

}  // namespace efs::fuse
