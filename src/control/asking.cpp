// SPDX-License-Identifier: BSD-3-Clause
#include "control/asking.hpp"

#include <algorithm>
#include <cerrno>
#include <thread>

namespace efs::control {
namespace {

Result<Json> ask_once(const Instance& instance, const Json& request, int seconds,
                      const std::function<void(const Json&)>& progress) {
  auto client = Client::connect(instance.socket(), instance.owner, seconds);
  if (!client) {
    return std::unexpected(client.error());
  }
  return client->ask(request, progress);
}

Json with_what_is_left(Json request, std::chrono::steady_clock::time_point begin) {
  constexpr double hardly_any = 0.001;  // seconds: 0 would mean no deadline
  if (!request.contains("deadline")) {
    return request;
  }
  const double gone =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  request["asked_ago"] = gone;
  if (const double deadline = request.value("deadline", 0.0); deadline > 0) {
    request["deadline"] = std::max(hardly_any, deadline - gone);
  }
  return request;
}

// Returns whether a worker had accepted the connection, and died.
bool is_death(int code) {
  return code == ECONNRESET || code == EPIPE;
}

}  // namespace

bool is_lost(int code) {
  return code == ECONNRESET || code == EPIPE || code == ECONNREFUSED || code == ENOENT ||
         code == EAGAIN;
}

Result<Client> connect_soon(const Instance& instance, int seconds, std::chrono::seconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (true) {
    auto client = Client::connect(instance.socket(), instance.owner, seconds);
    if (client || !is_lost(client.error().code) || !is_alive(instance.directory) ||
        std::chrono::steady_clock::now() > until) {
      return client;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Result<Json> ask_until_answered(const Instance& instance, const Json& request, int seconds,
                                const std::function<void(const Json&)>& progress,
                                std::chrono::seconds patience) {
  constexpr int most_deaths = 10;
  const auto begin = std::chrono::steady_clock::now();
  auto last = begin;
  for (int deaths = 0;;) {
    auto answer = ask_once(instance, with_what_is_left(request, begin), seconds, progress);
    if (answer || !is_lost(answer.error().code) || !is_alive(instance.directory)) {
      return answer;
    }
    const auto now = std::chrono::steady_clock::now();
    const bool died = is_death(answer.error().code);
    if ((died && ++deaths == most_deaths) || (!died && now - last > patience)) {
      return answer;
    }
    if (died) {
      last = now;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace efs::control
