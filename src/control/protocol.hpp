// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Control: JSON objects, one per line, over a Unix socket in the instance's directory. A request
// has "verb"; the answers are any number of {"event": "progress", ...} and then one {"event":
// "result", "ok": bool, ...}. Errors are {"ok": false, "code": errno, "error": text, "exit": exit
// code}. Described in src/control/README.md.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.hpp"

namespace efs::control {

using Json = nlohmann::json;

inline constexpr std::size_t longest_line = 64u << 20;    // bytes; the receipt of many files is
                                                          // long
inline constexpr std::size_t longest_request = 1u << 20;  // bytes; limit for a request

/// Sends one line. EPIPE or ECONNRESET if the peer is gone. E2BIG, with nothing sent, if the line
/// exceeds `most`.
Status send_line(int socket, const Json& line, std::size_t most = SIZE_MAX);

/// Sends a short line (below 64 KiB) without waiting. EAGAIN, with nothing sent, if the peer has
/// not read earlier lines. Leaves room for a result of that size.
Status send_line_now(int socket, const Json& line);

/// Reads lines from a socket and buffers the bytes after a line. Not thread-safe.
class LineReader {
 public:
  explicit LineReader(int socket, std::size_t most = longest_line) : socket_(socket), most_(most) {}

  /// ECONNRESET at the end of the stream. EPROTO if a line is not JSON or too long.
  Result<Json> next();

 private:
  int socket_;
  std::size_t most_;
  std::string pending_;
};

Json progress_line(Json fields);
Json result_line(Json fields = Json::object());
Json error_line(const Error& error, int exit_code = 1);

}  // namespace efs::control
