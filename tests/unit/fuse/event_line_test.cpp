// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <cerrno>

#include "fuse/access_log.hpp"
#include "fuse/trace.hpp"

using namespace efs::fuse;

namespace {

Event event(Operation operation) {
  return {.operation = operation,
          .started = 1'763'730'307'000'123'456,
          .duration = 10'999,
          .uid = 1000,
          .gid = 100,
          .pid = 4711,
          .tid = 4712,
          .path = "/a/b"};
}

}  // namespace

TEST_CASE("a line of the trace is epoch_microseconds:operation:pid:tid:path") {
  CHECK(trace_line(event(Operation::open)) == "1763730307000123:open:4711:4712:/a/b");
}

TEST_CASE("reads, writes and truncations have offset and size") {
  auto read = event(Operation::read);
  read.offset = 8192;
  read.size = 4096;
  CHECK(trace_line(read) == "1763730307000123:read:4711:4712:/a/b:8192:4096");
  auto truncate = event(Operation::setattr);
  truncate.truncates = true;
  truncate.size = 7;
  CHECK(trace_line(truncate) == "1763730307000123:truncate:4711:4712:/a/b:0:7");
}

TEST_CASE("the trace uses the ancestor's words") {
  CHECK(trace_line(event(Operation::lookup)).contains(":stat:"));
  CHECK(trace_line(event(Operation::getattr)).contains(":stat:"));
  CHECK(trace_line(event(Operation::release)).contains(":close:"));
  CHECK(trace_line(event(Operation::releasedir)).contains(":closedir:"));
  CHECK(trace_line(event(Operation::setattr)).contains(":setattr:"));
  for (const auto same :
       {Operation::access, Operation::create, Operation::fsync, Operation::open, Operation::opendir,
        Operation::read, Operation::readdir, Operation::unlink, Operation::write}) {
    CHECK(trace_line(event(same)).contains(std::string(":") + name_of(same) + ":"));
  }
  CHECK(trace_line(event(Operation::forget)).empty());
}

TEST_CASE("a path cannot break a line or a field") {
  auto odd = event(Operation::rename);
  odd.path = "/a:b\nc\\d";
  odd.other = "/x\ty";
  CHECK(trace_line(odd) == "1763730307000123:rename:4711:4712:/a\\072b\\012c\\134d:/x\\011y");
  CHECK(efs::escape_line("r\xC3\xA9sum\xC3\xA9", ':') == "r\xC3\xA9sum\xC3\xA9");
}

TEST_CASE("a line of the access log") {
  CHECK(access_line(event(Operation::open)) ==
        "2025.11.21 13:05:07.000123 [uid:1000,gid:100,pid:4711] open (/a/b): OK <0.000010>");
  auto read = event(Operation::read);
  read.offset = 8192;
  read.size = 4096;
  read.bytes = 100;
  CHECK(access_line(read).ends_with("read (/a/b,4096,8192): OK (100) <0.000010>"));
  auto failed = event(Operation::rename);
  failed.other = "/c,d";
  failed.error = EXDEV;
  failed.duration = 3'000'002'000;
  CHECK(access_line(failed).ends_with(
      "rename (/a/b,/c\\054d): Invalid cross-device link <3.000002>"));
}
