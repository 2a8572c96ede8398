#include "fuse/session.hpp"

#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "base/log.hpp"
#include "fuse/adapter.hpp"
#include "fuse/library.hpp"

namespace efs::fuse {
namespace {

// libfuse reads and handles a request on one thread, so the number can stay with the thread. It names the request
// in the journal: what a successor of this process needs to answer a request once and only once.
thread_local std::uint64_t request_of_thread = 0;

ssize_t receive(int fd, void* buffer, size_t length, void*) {
  const ssize_t n = ::read(fd, buffer, length);
  request_of_thread = n >= static_cast<ssize_t>(sizeof(fuse_in_header)) ? static_cast<const fuse_in_header*>(buffer)->unique : 0;
  return n;
}

ssize_t send(int fd, iovec* parts, int count, void*) { return ::writev(fd, parts, count); }

}  // namespace

std::uint64_t current_request() { return request_of_thread; }

Session::Session(fs::Filesystem& filesystem, BackingRegistrar* registrar) : door_{filesystem, BackingTable(registrar), {}} {}
Session::~Session() = default;

Status Session::serve(UniqueFd fuse_fd, unsigned threads) {
  char program[] = "efsd";
  char* arguments[] = {program, nullptr};
  fuse_args args = FUSE_ARGS_INIT(1, arguments);
  const fuse_lowlevel_ops operations = adapter_operations();
  fuse_session* session = fuse_session_new(&args, &operations, sizeof operations, &door_);
  if (session == nullptr) return fail(EIO, "libfuse refused the session");
  fuse_custom_io io{};
  io.read = receive;
  io.writev = send;
  int result = fuse_session_custom_io(session, &io, fuse_fd.get());
  if (result == 0) {
    fuse_fd.release();  // the session closes it
    fuse_loop_config* config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_max_threads(config, threads);
    fuse_loop_cfg_set_idle_threads(config, threads);
    fuse_loop_cfg_set_clone_fd(config, 0);
    result = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
  }
  fuse_session_destroy(session);
  fuse_opt_free_args(&args);
  // ENODEV is the unmount; a positive number a signal, which is handled elsewhere.
  if (result < 0 && result != -ENODEV) return fail(-result, std::string("FUSE session: ") + std::strerror(-result));
  return {};
}

}  // namespace efs::fuse
