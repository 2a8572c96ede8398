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
  if (received->fds.empty()) return fail(EPROTO, "the supervisor sent no descriptor");
  return received->first();
}

Status status_of(const Result<Received>& received) { return received ? Status{} : std::unexpected(received.error()); }

}  // namespace

Result<Received> SupervisorClient::ask(const Message& message, std::span<const int> fds) {
  MutexLock lock(mutex_);
  EFS_TRY(send_message(channel_.get(), message, fds));
  auto received = receive_message(channel_.get());
  if (!received) return std::unexpected(received.error());
  if (!*received) return fail(EPIPE, "the supervisor is gone");
  const Message& answer = (*received)->message;
  if (answer.error != 0) return fail(answer.error, answer.text.data());
  return std::move(**received);
}

Result<UniqueFd> SupervisorClient::memory_store(std::uint64_t bytes) { return descriptor_of(ask(make(Ask::memory_store, bytes))); }
Status SupervisorClient::check_mount(int mount_point) { return status_of(ask(make(Ask::check_mount), std::span(&mount_point, 1))); }
Result<UniqueFd> SupervisorClient::mount(int mount_point, std::uint64_t flags, const std::string& source) {
  return descriptor_of(ask(make(Ask::mount, flags, source), std::span(&mount_point, 1)));
}
Status SupervisorClient::unmount() { return status_of(ask(make(Ask::unmount))); }

void SupervisorClient::abort() { (void)ask(make(Ask::abort)); }

std::vector<Result<int>> SupervisorClient::open_backing(std::span<const int> fds) {
  const auto received = ask(make(Ask::open_backing), fds);
  std::vector<Result<int>> ids;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (!received) ids.push_back(std::unexpected(received.error()));
    else if (i >= received->message.count) ids.push_back(fail(EMFILE, "the supervisor got no more descriptors"));
    else if (const int id = received->message.numbers.at(i); id < 0) ids.push_back(fail(-id));
    else ids.push_back(id);
  }
  return ids;
}

// Without the lock of ask(): a message of its own that nobody answers. Where the supervisor is gone, the kernel drops the ids.
void SupervisorClient::close_backing(std::span<const int> ids) {
  Message message = make(Ask::close_backing);
  for (const int id : ids) message.numbers.at(message.count++) = id;
  (void)send_message(channel_.get(), message);
}

}  // namespace efs::daemon
