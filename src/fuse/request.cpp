// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/request.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <utility>

#include "base/log.hpp"
#include "fuse/connection.hpp"
#include "fuse/convert.hpp"
#include "fuse/wire.hpp"

namespace efs::fuse {
namespace {

// A pointer: the first use of a thread-local object with a destructor allocates memory, and the C
// library ends the process if there is none.
thread_local Delivery* delivery_of_thread = nullptr;

// libfuse reads the supplementary groups from /proc, because the request does not contain them. A
// client in another pid namespace is not visible there and does not count as a member, which grants
// no right.
bool is_member(fuse_req_t handle, gid_t group) {
  std::array<gid_t, 256> few{};
  int count = fuse_req_getgroups(handle, static_cast<int>(few.size()), few.data());
  if (count <= static_cast<int>(few.size())) {
    const auto end = few.begin() + std::max(count, 0);
    return std::find(few.begin(), end, group) != end;
  }
  std::vector<gid_t> all(static_cast<std::size_t>(count));
  count = std::min(count, fuse_req_getgroups(handle, count, all.data()));
  const auto end = all.begin() + std::max(count, 0);
  return std::find(all.begin(), end, group) != end;
}

// If memory is exhausted, a sink misses the request; the request continues.
template <typename Action>
bool without_exceptions(Action action) {
  try {
    action();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

Delivery::Delivery(std::uint64_t number, std::vector<std::byte>& buffer,
                   std::span<const std::byte> request, int wait_error)
    : number_(number), buffer_(buffer), request_(request), wait_error_(wait_error) {
  delivery_of_thread = this;
}

Delivery::~Delivery() {
  delivery_of_thread = nullptr;
}

Delivery& Delivery::current() {
  return *delivery_of_thread;
}

std::span<std::byte> Delivery::buffer(std::size_t size) {
  if (buffer_.size() < size) {
    buffer_.resize(size);
  }
  return std::span(buffer_).first(size);
}

Request::Request(fuse_req_t handle, Operation operation)
    : connection_(static_cast<Connection*>(fuse_req_userdata(handle))),
      handle_(handle),
      delivery_(&Delivery::current()),
      number_(delivery_->number()),
      operation_(operation),
      started_(Clock::now()) {}

Request::Request(Request&& other) noexcept
    : connection_(std::exchange(other.connection_, nullptr)),
      handle_(std::exchange(other.handle_, nullptr)),
      delivery_(other.delivery_),
      number_(other.number_),
      operation_(other.operation_),
      started_(other.started_),
      subject_(other.subject_),
      outcome_(other.outcome_),
      event_(std::move(other.event_)) {}

Request& Request::operator=(Request&& other) noexcept {
  if (this != &other) {
    end();
    connection_ = std::exchange(other.connection_, nullptr);
    handle_ = std::exchange(other.handle_, nullptr);
    delivery_ = other.delivery_;
    number_ = other.number_;
    operation_ = other.operation_;
    started_ = other.started_;
    subject_ = other.subject_;
    outcome_ = other.outcome_;
    event_ = std::move(other.event_);
  }
  return *this;
}

fs::Filesystem& Request::filesystem() const {
  return connection_->filesystem;
}

std::uint64_t Request::number() const {
  return number_ & ~resent_bit;
}

bool Request::resent() const {
  return (number_ & resent_bit) != 0;
}

pid_t Request::pid() const {
  return fuse_req_ctx(handle_)->pid;
}

fs::Caller Request::caller() const {
  const fuse_ctx* context = fuse_req_ctx(handle_);
  return {.uid = context->uid,
          .gid = context->gid,
          .request = number(),
          .resent = resent(),
          .umask = context->umask,
          .in_group = [handle = handle_](gid_t group) {
            return is_member(handle, group);
          }};
}

std::size_t Request::add_entry(std::span<std::byte> rest,
                               const fs::Filesystem::DirectoryItem& item) const {
  struct stat type{};
  type.st_ino = item.ino;
  type.st_mode = item.type;
  return fuse_add_direntry(handle_, reinterpret_cast<char*>(rest.data()), rest.size(),
                           item.name.c_str(), &type, static_cast<off_t>(item.cookie));
}

std::size_t Request::size_of_entry_plus(const fs::Filesystem::DirectoryItem& item) const {
  const fuse_entry_param nothing{};
  return fuse_add_direntry_plus(handle_, nullptr, 0, item.name.c_str(), &nothing, 0);
}

void Request::add_entry_plus(std::span<std::byte> rest, const fs::Filesystem::DirectoryItem& item,
                             fuse_entry_param told) const {
  if (told.ino == 0) {
    told.attr.st_ino = item.ino;
    told.attr.st_mode = item.type;
  }
  (void)fuse_add_direntry_plus(handle_, reinterpret_cast<char*>(rest.data()), rest.size(),
                               item.name.c_str(), &told, static_cast<off_t>(item.cookie));
}

void Request::observe(const Subject& subject) {
  const Observer& observer = connection_->observer;
  if (!observer.listens()) {
    return;
  }
  subject_ = subject;
  const fuse_ctx* context = fuse_req_ctx(handle_);
  without_exceptions([&] {
    event_ = observer.describe(operation_, subject, context->uid, context->gid, context->pid);
  });
  started_ = Clock::now();  // the time of the description does not count
}

void Request::observe_forget(std::uint64_t ino, std::uint64_t count) {
  if (connection_->observer.listens()) {
    connection_->observer.forget(ino, count);
  }
}

// The observer learns names before the reply: afterwards another thread may already serve a request
// that uses them. libfuse frees the handle, whatever it returns.
template <typename Send>
int Request::send(const Outcome& outcome, Send send_by) {
  if (handle_ == nullptr) {
    log::error("event=second_reply operation={}", name_of(operation_));
    return 0;
  }
  outcome_ = outcome;
  if (outcome.error == 0 && connection_->observer.listens()) {
    // If there is no memory for the name, the trace shows the inode number.
    without_exceptions([&] { connection_->observer.learn(operation_, subject_, outcome.made); });
  }
  return send_by(std::exchange(handle_, nullptr));
}

// From park() on another thread may handle the request. libfuse forgets it without a reply.
void Request::wait_for_content(std::uint64_t ino) {
  PutAside* aside = connection_->put_aside;
  const int error = delivery_->wait_error();
  if (error != 0 || aside == nullptr || delivery_->request().empty()) {
    return reply_error(error != 0 ? error : EIO);
  }
  if (!aside->park(ino, delivery_->request())) {
    aside->want_all(std::span(&ino, 1));  // the next try finds it
    return reply_error(EAGAIN);
  }
  const fuse_req_t handle = std::exchange(handle_, nullptr);
  const bool interrupted = fuse_req_interrupted(handle) != 0;
  fuse_reply_none(handle);
  connection_ = nullptr;
  aside->parked(ino, number(), interrupted);
}

void Request::reply_error(int code) {
  if (code == fs::not_here_code) {
    code = EIO;  // a program must not get it; the handlers that may meet it wait
  }
  send({.error = code}, [&](fuse_req_t handle) {
    if (operation_ != Operation::forget) {
      return fuse_reply_err(handle, code);
    }
    fuse_reply_none(handle);
    return 0;
  });
}

void Request::reply_none() {
  reply_error(0);
}

void Request::reply(const Status& status) {
  reply_error(status ? 0 : status.error().code);
}

void Request::send_entry(const fuse_entry_param& entry) {
  send({.made = entry.ino, .missing = entry.ino == 0},
       [&](fuse_req_t handle) { return fuse_reply_entry(handle, &entry); });
}

void Request::reply_entry(const Result<fs::Entry>& entry) {
  if (!entry) {
    return reply_error(entry.error().code);
  }
  send_entry(to_entry(as_cached(*connection_, *entry)));
}

void Request::reply_no_entry() {
  send_entry(negative_entry());
}

void Request::reply_attr(const Result<fs::Entry>& entry) {
  if (!entry) {
    return reply_error(entry.error().code);
  }
  const fs::Entry cached = as_cached(*connection_, *entry);
  send({}, [&](fuse_req_t handle) {
    return fuse_reply_attr(handle, &cached.attributes, attribute_timeout(cached));
  });
}

#if EFS_HAVE_STATX
void Request::reply_statx(const Result<fs::Entry>& entry) {
  if (!entry) {
    return reply_error(entry.error().code);
  }
  const fs::Entry cached = as_cached(*connection_, *entry);
  struct statx result = to_statx(cached);
  send({}, [&](fuse_req_t handle) {
    return fuse_reply_statx(handle, 0, &result, attribute_timeout(cached));
  });
}
#endif

void Request::reply_readlink(const std::string& target) {
  send({}, [&](fuse_req_t handle) { return fuse_reply_readlink(handle, target.c_str()); });
}

bool Request::reply_open(const fuse_file_info& info) {
  return send({}, [&](fuse_req_t handle) { return fuse_reply_open(handle, &info); }) != -ENOENT;
}

bool Request::reply_create(const fuse_entry_param& entry, const fuse_file_info& info) {
  return send({.made = entry.ino}, [&](fuse_req_t handle) {
           return fuse_reply_create(handle, &entry, &info);
         }) != -ENOENT;
}

void Request::reply_write(std::size_t count) {
  send({.bytes = count}, [&](fuse_req_t handle) { return fuse_reply_write(handle, count); });
}

void Request::reply_buffer(std::span<const std::byte> bytes) {
  send({.bytes = bytes.size()}, [&](fuse_req_t handle) {
    return fuse_reply_buf(handle, reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
}

void Request::reply_statfs(const struct statvfs& statistics) {
  send({}, [&](fuse_req_t handle) { return fuse_reply_statfs(handle, &statistics); });
}

void Request::reply_xattr_size(std::size_t size) {
  send({}, [&](fuse_req_t handle) { return fuse_reply_xattr(handle, size); });
}

void Request::reply_lseek(std::uint64_t offset) {
  send({}, [&](fuse_req_t handle) { return fuse_reply_lseek(handle, static_cast<off_t>(offset)); });
}

void Request::reply_ioctl(std::span<const std::byte> bytes) {
  send({},
       [&](fuse_req_t handle) { return fuse_reply_ioctl(handle, 0, bytes.data(), bytes.size()); });
}

void Request::end() noexcept {
  if (connection_ == nullptr) {
    return;
  }
  if (handle_ != nullptr) {
    without_exceptions([&] {
      log::error("event=no_reply operation={} request={} note=\"the client gets EIO\"",
                 name_of(operation_), number());
    });
    reply_error(EIO);
  }
  const auto now = Clock::now();
  const auto duration = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now - started_).count());
  const Connection& connection = *std::exchange(connection_, nullptr);
  const Observer& observer = connection.observer;
  connection.counters.of(operation_).add(duration, outcome_.error != 0);
  if (connection.due_work != nullptr) {
    without_exceptions([&] { connection.due_work->run_if_due(now); });
  }
  if (!event_) {
    return;
  }
  event_->duration = duration;
  event_->error = outcome_.missing ? ENOENT : outcome_.error;
  event_->bytes = outcome_.bytes;
  without_exceptions([&] { observer.tell(*event_); });
}

}  // namespace efs::fuse
