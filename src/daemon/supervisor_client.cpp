// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/supervisor_client.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

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
  if (!received) {
    return std::unexpected(received.error());
  }
  if (received->fds.empty()) {
    return fail(EPROTO, "the supervisor sent no descriptor");
  }
  return received->first();
}

Status status_of(const Result<Received>& received) {
  return received ? Status{} : std::unexpected(received.error());
}

}  // namespace

Result<Received> SupervisorClient::ask(const Message& message, std::span<const int> fds) {
  // allocate early: an answer left unread would be taken for that of the next request
  std::vector<UniqueFd> room;
  room.reserve(most_descriptors);
  MutexLock lock(mutex_);
  EFS_TRY(send_message(channel_.get(), message, fds));
  auto received = receive_message(channel_.get(), std::move(room));
  if (!received) {
    return std::unexpected(received.error());
  }
  if (!*received) {
    return fail(EPIPE, "the supervisor is gone");
  }
  const Message& answer = (*received)->message;
  if (answer.error != 0) {
    return fail(answer.error, answer.text.data());
  }
  return std::move(**received);
}

Result<SupervisorClient::MemoryStore> SupervisorClient::memory_store(
    const MemoryStores::Ask& wanted) {
  Message message = make(Ask::memory_store, wanted.bytes);
  message.count = wanted.number;
  message.numbers[0] = wanted.must_be_there ? 1 : 0;
  message.numbers[1] = static_cast<int>(wanted.access_times);
  message.numbers[2] = wanted.huge_pages ? 0 : 1;
  auto received = ask(message);
  const bool left = received && received->message.number != 0;
  auto root = descriptor_of(std::move(received));
  if (!root) {
    return std::unexpected(root.error());
  }
  return MemoryStore{std::move(*root), left};
}

Result<std::uint64_t> SupervisorClient::unpromised_memory() {
  const auto received = ask(make(Ask::unpromised));
  if (!received) {
    return std::unexpected(received.error());
  }
  return received->message.number;
}

Status SupervisorClient::store_at(int file) {
  return status_of(ask(make(Ask::store_at), std::span(&file, 1)));
}

Result<UniqueFd> SupervisorClient::hold_store(const UniqueFd& lock) {
  const int file = lock.get();
  return descriptor_of(ask(make(Ask::hold_store), std::span(&file, 1)));
}

void SupervisorClient::keep_store(bool keep) {
  (void)ask(make(Ask::keep_store, keep ? 1 : 0));
}

Status SupervisorClient::drop_dead_mount(int parent, const std::string& name) {
  return status_of(ask(make(Ask::drop_dead_mount, 0, name), std::span(&parent, 1)));
}

Status SupervisorClient::check_mount(int mount_point) {
  return status_of(ask(make(Ask::check_mount), std::span(&mount_point, 1)));
}

Result<UniqueFd> SupervisorClient::mount(int mount_point, std::uint64_t flags,
                                         const std::string& source) {
  return descriptor_of(ask(make(Ask::mount, flags, source), std::span(&mount_point, 1)));
}

Status SupervisorClient::unmount(bool unusual) {
  return status_of(ask(make(Ask::unmount, unusual ? 1 : 0)));
}

void SupervisorClient::abort() {
  (void)ask(make(Ask::abort));
}

std::vector<Result<int>> SupervisorClient::open_backing(std::span<const fuse::Registration> files) {
  Message message = make(Ask::open_backing);
  std::vector<int> fds;
  fds.reserve(files.size());
  for (const auto& file : files) {
    message.inodes.at(fds.size()) = file.ino;
    fds.push_back(file.fd);
  }
  std::vector<Result<int>> ids;
  ids.reserve(fds.size());  // allocate early: a lost id would keep the space of its file allocated
  const auto received = ask(message, fds);
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (!received) {
      ids.push_back(std::unexpected(received.error()));
    } else if (i >= received->message.count) {
      ids.push_back(fail(EMFILE, "the supervisor got no more descriptors"));
    } else if (const int id = received->message.numbers.at(i); id < 0) {
      ids.push_back(fail(-id));
    } else {
      ids.push_back(id);
    }
  }
  return ids;
}

// Does not take the lock of ask(), because this message is never answered. If the supervisor is
// gone, the kernel drops the ids.
void SupervisorClient::close_backing(std::span<const int> ids) {
  Message message = make(Ask::close_backing);
  for (const int id : ids) {
    message.numbers.at(message.count++) = id;
  }
  (void)send_message(channel_.get(), message);
}

void SupervisorClient::keep_init(const fuse::InitRequest& init) {
  Message message = make(Ask::keep_init, init.size());
  std::memcpy(message.text.data(), init.data(), std::min(init.size(), message.text.size()));
  (void)ask(message);
}

void SupervisorClient::report_progress() {
  (void)ask(make(Ask::progress));
}

Result<SupervisorClient::Connection> SupervisorClient::resume() {
  auto resumed = ask(make(Ask::resume));
  if (!resumed) {
    return std::unexpected(resumed.error());
  }
  Connection connection{.fuse = resumed->first(), .init = {}, .backings = {}};
  const auto bytes =
      std::as_bytes(std::span(resumed->message.text))
          .first(std::min<std::size_t>(resumed->message.number, resumed->message.text.size()));
  connection.init.assign(bytes.begin(), bytes.end());
  auto listed = ask(make(Ask::inherited));
  if (!listed) {
    return std::unexpected(listed.error());
  }
  connection.backings.resize(listed->message.number);
  const std::size_t length = connection.backings.size() * sizeof(fuse::InheritedBacking);
  if (::pread(listed->first().get(), connection.backings.data(), length, 0) !=
      static_cast<ssize_t>(length)) {
    return fail(EPROTO, "the supervisor's list of backing files is cut short");
  }
  return connection;
}

}  // namespace efs::daemon
