#include "daemon/supervisor_client.hpp"

namespace efs::daemon {
namespace {

Message make(Ask ask, std::uint64_t number = 0, const std::string& text = {}) {
  Message message;
  message.ask = ask;
  message.number = number;
  set_text(message, text);
  return message;
}

Result<UniqueFd> descriptor_of(Result<Received> received) {
  if (!received) return std::unexpected(received.error());
  if (!received->fd) return fail(EPROTO, "the supervisor sent no descriptor");
  return std::move(received->fd);
}

Status status_of(const Result<Received>& received) { return received ? Status{} : std::unexpected(received.error()); }

}  // namespace

Result<Received> SupervisorClient::ask(const Message& message, int fd) {
  MutexLock lock(mutex_);
  EFS_TRY(send_message(channel_.get(), message, fd));
  auto received = receive_message(channel_.get());
  if (!received) return std::unexpected(received.error());
  if (!*received) return fail(EPIPE, "the supervisor is gone");
  const Message& answer = (*received)->message;
  if (answer.error != 0) return fail(answer.error, answer.text.data());
  return std::move(**received);
}

Result<SupervisorClient::MemoryStore> SupervisorClient::memory_store(std::uint64_t bytes) {
  auto received = ask(make(Ask::memory_store, bytes));
  const bool left = received && received->message.number != 0;
  auto root = descriptor_of(std::move(received));
  if (!root) return std::unexpected(root.error());
  return MemoryStore{std::move(*root), left};
}
void SupervisorClient::keep_store(bool keep) { (void)ask(make(Ask::keep_store, keep ? 1 : 0)); }
Status SupervisorClient::drop_dead_mount(int parent, const std::string& name) { return status_of(ask(make(Ask::drop_dead_mount, 0, name), parent)); }
Status SupervisorClient::check_mount(int mount_point) { return status_of(ask(make(Ask::check_mount), mount_point)); }
Result<UniqueFd> SupervisorClient::mount(int mount_point, std::uint64_t flags, const std::string& source) {
  return descriptor_of(ask(make(Ask::mount, flags, source), mount_point));
}
Status SupervisorClient::unmount() { return status_of(ask(make(Ask::unmount))); }

void SupervisorClient::abort() { (void)ask(make(Ask::abort)); }

Result<int> SupervisorClient::open_backing(int fd) {
  auto received = ask(make(Ask::open_backing), fd);
  if (!received) return std::unexpected(received.error());
  return static_cast<int>(received->message.number);
}

void SupervisorClient::close_backing(int id) { (void)ask(make(Ask::close_backing, static_cast<std::uint64_t>(id))); }

}  // namespace efs::daemon
