// SPDX-License-Identifier: BSD-3-Clause
// A request whose server dies.
#include "control/asking.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/json_text.hpp"
#include "support/temp.hpp"

using namespace efs;
using control::Json;

namespace {

/// A server that receives a request, and answers it or dies of it.
class Mortal {
 public:
  explicit Mortal(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(fd_.get(), 4) == 0);
  }

  Json take(const std::string& answer) {
    const UniqueFd asker(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string text;
    for (char c = 0; ::recv(asker.get(), &c, 1, 0) == 1 && c != '\n';) {
      text += c;
    }
    if (!answer.empty()) {
      (void)!::send(asker.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
    return json_from_text(text);
  }

 private:
  UniqueFd fd_;
};

}  // namespace

TEST_CASE("asking: a successor has what is left of a deadline, and no more", "[control]") {
  const test::TempDirectory directory;
  const control::Instance instance{
      .name = "i", .directory = directory.path(), .owner = ::geteuid(), .alive = true};
  const UniqueFd lock(
      ::open((directory.path() + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::flock(lock.get(), LOCK_EX) == 0);
  Mortal worker(instance.socket());
  std::vector<Json> asked;
  std::thread workers([&] {
    for (const char* answer : {"", "", "{\"event\": \"result\", \"ok\": true}\n"}) {
      asked.push_back(worker.take(answer));
    }
  });
  const auto answer =
      control::ask_until_answered(instance, {{"verb", "stop"}, {"deadline", 0.15}}, 10);
  workers.join();
  REQUIRE(answer);
  REQUIRE(asked.size() == 3);
  CHECK(asked[0]["deadline"].get<double>() > asked[1]["deadline"].get<double>());
  // the client waits a tenth of a second before it repeats the request
  CHECK(asked[1]["deadline"].get<double>() <= 0.05);
  CHECK(asked[2]["deadline"].get<double>() > 0);  // a value of 0 would mean "no deadline"
  CHECK(asked[0]["asked_ago"].get<double>() < asked[1]["asked_ago"].get<double>());
  CHECK(asked[1]["asked_ago"].get<double>() >= 0.1);  // for the deadline of the job file
  CHECK(asked[2]["asked_ago"].get<double>() >= 0.2);
  CHECK(asked[2]["verb"] == "stop");
}
