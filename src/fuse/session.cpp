#include "fuse/session.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "fuse/adapter.hpp"
#include "fuse/library.hpp"

namespace efs::fuse {
namespace {

// A request is read and handled on one thread, so its number can stay with the thread. It names the request in the
// journal: what a successor of this process needs to answer a request once and only once.
thread_local std::uint64_t request_of_thread = 0;

// libfuse's own loop would hide the request's header, and blocks in read(2).
class FuseReader final : public RequestReader {
 public:
  /// `failure`: where an error that ends the session is left (an errno).
  FuseReader(fuse_session* session, std::atomic<int>& failure) : session_(session), failure_(failure) {}
  ~FuseReader() override { std::free(buffer_.mem); }

  Got receive() override {
    if (fuse_session_exited(session_) != 0) return Got::end;
    const int result = fuse_session_receive_buf(session_, &buffer_);
    if (result == -EAGAIN || result == -EINTR) return Got::nothing;
    if (result > 0) return Got::request;
    if (result < 0 && result != -ENODEV) failure_ = -result;
    return Got::end;
  }

  void handle() override {
    request_of_thread = buffer_.size >= sizeof(fuse_in_header) && (buffer_.flags & FUSE_BUF_IS_FD) == 0 ? static_cast<const fuse_in_header*>(buffer_.mem)->unique : 0;
    fuse_session_process_buf(session_, &buffer_);
    request_of_thread = 0;
  }

  bool wait(int milliseconds) override {
    pollfd device{.fd = fuse_session_fd(session_), .events = POLLIN, .revents = 0};
    return ::poll(&device, 1, milliseconds) != 0;
  }

 private:
  fuse_session* const session_;
  std::atomic<int>& failure_;
  fuse_buf buffer_{};
};

}  // namespace

std::uint64_t current_request() { return request_of_thread; }

Session::Session(fs::Filesystem& filesystem, BackingRegistrar* registrar) : door_{filesystem, BackingTable(registrar), {}} {}
Session::~Session() = default;

Status Session::serve(UniqueFd fuse_fd, const RequestLoop::Options& options) {
  char program[] = "efsd";
  char* arguments[] = {program, nullptr};
  fuse_args args = FUSE_ARGS_INIT(1, arguments);
  const fuse_lowlevel_ops operations = adapter_operations();
  fuse_session* session = fuse_session_new(&args, &operations, sizeof operations, &door_);
  if (session == nullptr) return fail(EIO, "libfuse refused the session");
  std::atomic<int> result{0};
  // The loop waits with poll(2), so that it can look without waiting. The flag belongs to the open file and so to every process that has it.
  const int flags = ::fcntl(fuse_fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fuse_fd.get(), F_SETFL, flags | O_NONBLOCK) != 0 || fuse_session_mount(session, ("/dev/fd/" + std::to_string(fuse_fd.get())).c_str()) != 0) {
    result = EIO;
  } else {
    fuse_fd.release();  // the session closes it
    RequestLoop(options, [&] { return std::make_unique<FuseReader>(session, result); }, &door_.backing).run();
  }
  fuse_session_destroy(session);
  fuse_opt_free_args(&args);
  if (result != 0) return fail(result, std::string("FUSE session: ") + std::strerror(result));
  return {};
}

}  // namespace efs::fuse
