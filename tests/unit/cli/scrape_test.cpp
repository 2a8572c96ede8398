// SPDX-License-Identifier: BSD-3-Clause
// Requests of monitoring systems, and the addresses at which efs metrics may listen.
#include <catch2/catch_test_macros.hpp>

#include "cli/listen_address.hpp"
#include "cli/scrape_request.hpp"

namespace {

using namespace efs::cli;

int scrape_status(std::string_view request) {
  const auto answer = judge_scrape(request);
  return answer ? answer->status : 0;
}

bool is_openmetrics(const std::string& accept) {
  const auto answer =
      judge_scrape("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: " + accept + "\r\n\r\n");
  REQUIRE(answer);
  REQUIRE(answer->status == 200);
  return answer->format == ScrapeFormat::openmetrics;
}

TEST_CASE("scrape: a page of another host gets nothing") {
  const auto status = [](const std::string& host) {
    return judge_scrape("GET /metrics HTTP/1.1\r\nHost: " + host + "\r\n\r\n")->status;
  };
  for (const char* ours : {"localhost", "LOCALHOST:9464", "127.0.0.1:9464", "[::1]:9464", ""}) {
    CHECK(status(ours) == 200);
  }
  for (const char* other : {"evil.example", "127.0.0.1.evil.example:9464", "10.0.0.1", "[::2]"}) {
    CHECK(status(other) == 403);
  }
}

TEST_CASE("only a whole GET of /metrics gets metrics", "[scrape]") {
  const std::string whole = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CHECK(scrape_status(std::string_view(whole).substr(0, length)) == 0);
  }
  CHECK(scrape_status(whole) == 200);
  CHECK(scrape_status(whole + "more") == 200);
  CHECK(scrape_status("GET /metrics HTTP/1.0\n\n") == 200);
  CHECK(scrape_status("GET /metrics?a=b HTTP/1.1\r\n\r\n") == 200);
  CHECK(scrape_status("GET /metricsx HTTP/1.1\r\n\r\n") == 404);
  CHECK(scrape_status("GET / HTTP/1.1\r\n\r\n") == 404);
  CHECK(scrape_status("PUT /metrics HTTP/1.1\r\n\r\n") == 405);
  CHECK(scrape_status("get /metrics HTTP/1.1\r\n\r\n") == 405);
  CHECK(scrape_status("GET  /metrics HTTP/1.1\r\n\r\n") == 400);
  CHECK(scrape_status("GET /metrics HTTP/1.1 x\r\n\r\n") == 400);
  CHECK(scrape_status("\r\n\r\n") == 400);
  CHECK(scrape_status("GET /metrics HTTP/1.1\r\nnone\r\n\r\n") == 400);
}

TEST_CASE("a request has a longest head", "[scrape]") {
  const std::string begin = "GET /metrics HTTP/1.1\r\nX: ";
  const std::string longest =
      begin + std::string(longest_scrape_request - begin.size() - 4, 'x') + "\r\n\r\n";
  CHECK(scrape_status(longest) == 200);
  CHECK(scrape_status(longest.substr(0, longest.size() - 1)) == 0);
  CHECK(scrape_status("x" + longest) == 431);
  CHECK(scrape_status(std::string(longest_scrape_request, 'x')) == 431);
}

TEST_CASE("the format is the one that the client prefers", "[scrape]") {
  CHECK(is_openmetrics("application/openmetrics-text"));
  CHECK(is_openmetrics("Application/OpenMetrics-Text; version=1.0.0; charset=utf-8"));
  CHECK(
      is_openmetrics("application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
                     "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
  CHECK_FALSE(is_openmetrics("application/openmetrics-text;version=0.0.1"));
  CHECK_FALSE(is_openmetrics("application/openmetrics-text;q=0"));
  CHECK_FALSE(is_openmetrics("text/plain, application/openmetrics-text;q=0.5"));
  CHECK_FALSE(is_openmetrics("text/plain"));
  CHECK_FALSE(is_openmetrics("*/*"));
  CHECK_FALSE(is_openmetrics(",;,;=;q=x,"));
}

TEST_CASE("an answer has a status, a type and a length", "[scrape]") {
  CHECK(head_of_answer({.status = 200, .format = ScrapeFormat::openmetrics}, 7) ==
        "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; "
        "charset=utf-8\r\nContent-Length: 7\r\nConnection: close\r\n\r\n");
  CHECK(head_of_answer({.status = 200}, 0).contains("text/plain; version=0.0.4;"));
  CHECK(head_of_answer({.status = 405}, 0).contains("\r\nAllow: GET\r\n"));
  CHECK(text_of_status(404) == "404 Not Found\n");
}

TEST_CASE("efs listens at loopback addresses and Unix sockets only", "[scrape]") {
  for (const char* text : {"127.0.0.1:9464", "127.1.2.3:0", "[::1]:65535"}) {
    const auto address = parse_listen_address(text);
    REQUIRE(address);
    CHECK(address->path.empty());
    CHECK(address->length > 0);
  }
  CHECK(parse_listen_address("unix:/run/a:b")->path == "/run/a:b");
  for (const char* text :
       {"", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536",
        "127.0.0.1:-1", "127.0.0.1: 1", "localhost:9464", "0.0.0.0:9464", "10.1.2.3:9464",
        "[::]:9464", "::1:9464", "[::ffff:127.0.0.1]:9464", "[fe80::1]:9464", "unix:", "[]:1"}) {
    const auto address = parse_listen_address(text);
    REQUIRE_FALSE(address);
    CHECK(address.error().what.contains("127.0.0.1:9464"));
  }
  CHECK(parse_listen_address("0.0.0.0:1").error().what.contains("other machines"));
  CHECK(parse_listen_address("unix:" + std::string(108, 'x')).error().code == ENAMETOOLONG);
  CHECK(parse_listen_address("unix:" + std::string(107, 'x')));
}

}  // namespace
