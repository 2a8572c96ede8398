#include "control/server.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "control/client.hpp"
#include "support/temp.hpp"

using namespace efs;
using control::Json;

namespace {

Json answer(const Json& request, const control::Server::Progress& progress) {
  progress({{"step", 1}});
  if (request.at("verb").get<std::string>() == "fail") return control::error_line({ENOENT, "no such thing"});
  return control::result_line({{"echo", request["verb"]}});
}

// Sends raw bytes and reads until the server closes or has answered one line.
std::string raw(const std::string& path, const std::string& bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::shutdown(fd.get(), SHUT_WR);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

}  // namespace

TEST_CASE("requests are answered, with progress, and errors carry code and text") {
  const test::TempDirectory directory;
  const std::string path = directory.path() + "/s";
  auto server = control::Server::listen(path, ::geteuid(), answer);
  REQUIRE(server);
  auto client = control::Client::connect(path, ::geteuid());
  REQUIRE(client);
  int steps = 0;
  const auto good = client->ask({{"verb", "hello"}}, [&](const Json&) { ++steps; });
  REQUIRE(good);
  CHECK(good->at("echo") == "hello");
  CHECK(steps == 1);
  const auto bad = client->ask({{"verb", "fail"}});
  REQUIRE(bad);
  CHECK_FALSE(bad->at("ok").get<bool>());
  CHECK(bad->at("code") == ENOENT);
}

TEST_CASE("hostile input ends that connection only") {
  const test::TempDirectory directory;
  const std::string path = directory.path() + "/s";
  auto server = control::Server::listen(path, ::geteuid(), answer);
  CHECK(raw(path, "this is no JSON\n").empty());
  CHECK(raw(path, "[1,2]\n").empty());
  CHECK(raw(path, "{\"no\": \"verb\"}\n").find("bad request") != std::string::npos);
  CHECK(raw(path, "{\"verb\": 7}\n").find("bad request") != std::string::npos);
  CHECK(raw(path, std::string(3u << 20, 'x')).empty());
  CHECK(control::Client::connect(path, ::geteuid())->ask({{"verb", "hello"}}));
}
