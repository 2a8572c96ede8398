#include "daemon/channel.hpp"

#include <algorithm>
#include <span>

#include "base/socket.hpp"

namespace efs::daemon {

namespace {

std::unexpected<Error> told(const Error& error) { return fail(error.code, "supervisor channel: " + describe(error)); }

}  // namespace

void set_text(Message& message, std::string_view text) {
  const std::size_t length = std::min(text.size(), message.text.size() - 1);
  std::copy_n(text.data(), length, message.text.begin());
  message.text[length] = '\0';
}

Status send_message(int socket, const Message& message, int fd) {
  if (const Status sent = send_with_descriptor(socket, std::as_bytes(std::span(&message, 1)), fd); !sent) return told(sent.error());
  return {};
}

Result<std::optional<Received>> receive_message(int socket) {
  Received received;
  const auto n = receive_with_descriptor(socket, std::as_writable_bytes(std::span(&received.message, 1)), received.fd);
  if (!n) return told(n.error());
  if (*n == 0) return std::nullopt;
  if (*n != sizeof received.message) return fail(EPROTO, "supervisor channel: message of the wrong size");
  received.message.text.back() = '\0';
  return received;
}

}  // namespace efs::daemon
