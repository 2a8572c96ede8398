// SPDX-License-Identifier: BSD-3-Clause
#include "control/server.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "control/asking.hpp"
#include "control/client.hpp"
#include "support/no_threads.hpp"
#include "support/temp.hpp"

using namespace efs;
using control::Json;

namespace {

Json answer(const Json& request, const control::Server::Progress& progress) {
  progress({{"step", 1}});
  if (request.at("verb").get<std::string>() == "fail") {
    return control::error_line({ENOENT, "no such thing"});
  }
  return control::result_line(
      {{"echo", request["verb"]}, {"holds_up_others", progress.holds_up_others()}});
}

// Sends raw bytes. Reads until the server closes the connection, at most `most` times.
std::string raw(const std::string& path, const std::string& bytes, int most = 1'000'000,
                const std::function<void()>& meanwhile = {}) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (meanwhile) {
    meanwhile();
  } else {
    ::shutdown(fd.get(), SHUT_WR);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; most-- > 0 && (n = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
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

TEST_CASE("progress waits for no asker: one who does not read is not gone, and one who went is") {
  const test::TempDirectory directory;
  const std::string path = directory.path() + "/s";
  std::promise<bool> slow, gone;
  const control::Server::Handler handler = [&](const Json& request,
                                               const control::Server::Progress& progress) {
    bool heard = true;
    if (request.at("verb") == "slow") {
      for (int line = 0; line < 10'000 && heard; ++line) {
        heard = progress({{"text", std::string(1000, 'x')}});
      }
      slow.set_value(heard);
    }
    if (request.at("verb") == "gone") {
      while (progress({{"step", 1}})) {
        ::usleep(1000);
      }
      gone.set_value(true);
    }
    return control::result_line();
  };
  auto server = control::Server::listen(path, ::geteuid(), handler);
  REQUIRE(server);
  {
    auto client = control::Client::connect(path, ::geteuid());
    REQUIRE(client);
    int lines = 0;
    const auto said = client->ask({{"verb", "slow"}}, [&](const Json&) {
      if (++lines == 1) {
        // the client reads nothing before the server has sent everything
        CHECK(slow.get_future().get());
      }
    });
    REQUIRE(said);
    CHECK(said->at("ok").get<bool>());
    CHECK(lines < 10'000);  // lines without room were dropped
  }
  slow = {};
  const std::string late = raw(path, "{\"verb\": \"slow\"}\n", 1'000'000, [&] {
    (void)slow.get_future().get();
    server->reset();  // the end does not wait for a client that reads late
  });
  CHECK(late.find("\"event\":\"result\"") != std::string::npos);
  server = control::Server::listen(path, ::geteuid(), handler);
  REQUIRE(server);
  (void)raw(path, "{\"verb\": \"gone\"}\n", 1);
  CHECK(gone.get_future().get());
}

TEST_CASE("a request that is too long is refused before it is sent, and the next one is answered") {
  const test::TempDirectory directory;
  const std::string path = directory.path() + "/s";
  auto server = control::Server::listen(path, ::geteuid(), answer);
  REQUIRE(server);
  auto client = control::Client::connect(path, ::geteuid());
  REQUIRE(client);
  const auto refused =
      client->ask({{"verb", "hello"}, {"paths", std::string(control::longest_request, 'x')}});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == E2BIG);
  const Json longest{
      {"verb",
       std::string(control::longest_request - std::string("{\"verb\":\"\"}\n").size(), 'x')}};
  CHECK(client->ask(longest));
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

TEST_CASE("random messages: an honest client is answered all the same") {
  const auto seed = test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const test::TempDirectory directory;
  const std::string path = directory.path() + "/s";
  auto server = control::Server::listen(path, ::geteuid(), answer);
  REQUIRE(server);
  const std::string good =
      "{\"verb\": \"hello\", \"paths\": [\"a\", {\"b\": 1e3}], \"size\": 18446744073709551615}\n";
  for (int i = 0; i < 300; ++i) {
    std::string message =
        random() % 4 == 0 ? std::string(random() % 20000, random() % 2 == 0 ? '[' : '{') : good;
    for (auto flips = random() % 12; flips > 0; --flips) {
      if (!message.empty()) {
        message[random() % message.size()] = static_cast<char>(random());
      }
    }
    if (random() % 3 == 0) {
      message.resize(random() % (message.size() + 1));
    }
    const std::string said = raw(path, message);
    // The output is empty or consists of lines that are objects.
    for (std::size_t at = 0; at < said.size();) {
      const auto end = said.find('\n', at);
      REQUIRE(end != std::string::npos);
      CHECK(Json::parse(said.substr(at, end - at), nullptr, false).is_object());
      at = end + 1;
    }
  }
  CHECK(control::Client::connect(path, ::geteuid())->ask({{"verb", "hello"}}));
}

TEST_CASE("silent clients take places, and give them back when they go") {
  const test::TempDirectory directory;
  const std::string path = directory.path() + "/s";
  auto server = control::Server::listen(path, ::geteuid(), answer);
  REQUIRE(server);
  for (int round = 0; round < 3; ++round) {
    std::vector<control::Client> silent;
    for (int i = 0; i < 200; ++i) {
      if (auto client = control::Client::connect(path, ::geteuid())) {
        silent.push_back(std::move(*client));
      }
    }
    CHECK(silent.size() > 60);
    // The server may have accepted the connection and not yet read from it.
    bool told = false;
    for (const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
         round == 0 && !told && std::chrono::steady_clock::now() < deadline;) {
      auto late = control::Client::connect(path, ::geteuid());
      const auto heard = late ? late->ask({{"verb", "hello"}}) : fail(ECONNREFUSED);
      told = heard && !heard->value("ok", true) && heard->value("error", "").contains("try again");
    }
    CHECK((told || round > 0));
    silent.clear();
  }
  // The server's threads may need a moment to see that the clients are gone.
  bool answered = false;
  for (const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
       !answered && std::chrono::steady_clock::now() < deadline;) {
    auto client = control::Client::connect(path, ::geteuid());
    answered = client && client->ask({{"verb", "hello"}}).has_value();
  }
  CHECK(answered);
}

TEST_CASE("where no thread can be had the server answers by itself, one after the other") {
  const test::TempDirectory directory;
  const std::string path = directory.path() + "/s";
  auto server = control::Server::listen(path, ::geteuid(), answer);
  REQUIRE(server);
  {
    const test::NoThreads none;
    for (int i = 0; i < 3; ++i) {
      auto client = control::Client::connect(path, ::geteuid());
      REQUIRE(client);
      for (const char* verb : {"one", "two"}) {
        const auto heard = client->ask({{"verb", verb}});
        REQUIRE(heard);
        CHECK(heard->at("echo") == verb);
        CHECK(heard->at("holds_up_others") == true);
      }
    }
    // A silent client does not block the others forever.
    const auto silent = control::Client::connect(path, ::geteuid());
    auto client = control::Client::connect(path, ::geteuid());
    REQUIRE(client);
    CHECK(client->ask({{"verb", "three"}}));
  }
  // The server ends even while it serves a connection without a thread of its own.
  {
    const test::NoThreads none;
    auto client = control::Client::connect(path, ::geteuid());
    REQUIRE(client);
    REQUIRE(client->ask({{"verb", "last"}}));
    server->reset();
  }
}

TEST_CASE(
    "who connects to a server that ends is told nothing, which he would take for its answer") {
  const test::TempDirectory directory;
  const std::string path = directory.path() + "/s";
  std::promise<void> asked, goes_on;
  auto server = control::Server::listen(path, ::geteuid(),
                                        [&](const Json&, const control::Server::Progress&) {
                                          asked.set_value();
                                          goes_on.get_future().wait();
                                          return control::result_line();
                                        });
  REQUIRE(server);
  auto first = control::Client::connect(path, ::geteuid());
  REQUIRE(first);
  // without threads the accepting thread serves the connection itself, and the next client waits
  // for it
  std::optional<test::NoThreads> none(std::in_place);
  REQUIRE(first->send({{"verb", "held"}}));
  asked.get_future().wait();
  none.reset();
  auto second = control::Client::connect(path, ::geteuid());
  REQUIRE(second);
  auto ending = std::async(std::launch::async, [&] { server->reset(); });
  for (bool listens = true; listens;) {
    // the queue of connections may be full
    const auto another = control::Client::connect(path, ::geteuid(), 1);
    listens = another || another.error().code != ECONNREFUSED;
  }
  goes_on.set_value();
  ending.get();
  CHECK(first->receive());
  const auto heard = second->receive();
  REQUIRE(!heard);
  CHECK(control::is_lost(heard.error().code));
}

TEST_CASE("a request can be sent now and its answer be read later") {
  const test::TempDirectory directory;
  const std::string path = directory.path() + "/s";
  auto server = control::Server::listen(path, ::geteuid(), answer);
  REQUIRE(server);
  auto client = control::Client::connect(path, ::geteuid());
  REQUIRE(client);
  REQUIRE(client->send({{"verb", "later"}}));
  auto other = control::Client::connect(path, ::geteuid());
  REQUIRE(other);
  CHECK(other->ask({{"verb", "now"}}));
  server->reset();  // requests that were read get an answer
  const auto heard = client->receive();
  REQUIRE(heard);
  CHECK(heard->at("echo") == "later");
  CHECK(heard->at("holds_up_others") == false);
}
