// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/channel.hpp"

#include <algorithm>
#include <span>

#include "base/socket.hpp"

namespace efs::daemon {

void set_text(Message& message, std::string_view text) {
  const std::size_t length = std::min(text.size(), message.text.size() - 1);
  std::copy_n(text.data(), length, message.text.begin());
  message.text[length] = '\0';
}

Status send_message(int socket, const Message& message, std::span<const int> fds) {
  if (const Status sent = send_with_descriptors(socket, std::as_bytes(std::span(&message, 1)), fds);
      !sent) {
    return with_context(sent.error(), "supervisor channel");
  }
  return {};
}

Result<std::optional<Received>> receive_message(int socket, std::vector<UniqueFd> room) {
  Received received;
  auto got =
      receive_with_descriptors(socket, std::as_writable_bytes(std::span(&received.message, 1)),
                               most_descriptors, std::move(room));
  if (!got) {
    return with_context(got.error(), "supervisor channel");
  }
  if (got->size == 0) {
    return std::nullopt;
  }
  if (got->size != sizeof received.message) {
    return fail(EPROTO, "supervisor channel: message of the wrong size");
  }
  received.fds = std::move(got->fds);
  received.message.text.back() = '\0';
  received.message.count = std::min<std::uint32_t>(received.message.count, most_descriptors);
  return received;
}

}  // namespace efs::daemon
