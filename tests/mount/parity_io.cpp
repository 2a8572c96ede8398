// SPDX-License-Identifier: BSD-3-Clause
// Reading and writing.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <random>

#include "parity.hpp"

namespace parity {
namespace {

constexpr off_t giga = off_t{1} << 30;

/// Random reads, writes and truncations through two descriptors; every read is recorded.
void random_io(const Ctx& c, unsigned seed) {
  std::minstd_rand random(seed);
  const int fds[2] = {c.get("file", O_RDWR | O_CREAT), c.get("file", O_RDWR)};
  const int append = c.get("file", O_WRONLY | O_APPEND);
  for (int step = 0; step < 400; ++step) {
    const int fd = fds[random() % 2];
    const off_t offset = static_cast<off_t>(random() % 200000);
    const std::size_t length = random() % 20000;
    switch (random() % 8) {
      case 0: c.call("truncate", ::ftruncate(fd, offset)); break;
      case 1: c.write(append, pattern(length % 3000, step)); break;
      case 2:
      case 3:
      case 4: c.pwrite(fd, pattern(length, step), offset); break;
      default: c.pread(fd, length, offset); break;
    }
  }
  c.stat("file");
  c.content("file");
}

constexpr Case cases[] = {
    {"io-random-1", [](Ctx& c) { random_io(c, 1); }, anyone},
    {"io-random-2", [](Ctx& c) { random_io(c, 2); }, anyone},
    {"io-random-3", [](Ctx& c) { random_io(c, 3); }, anyone},
    {"read-at-and-past-eof",
     [](Ctx& c) {
       c.put("file", "0123456789");
       const int fd = c.open("file", O_RDONLY);
       c.read(fd, 4);
       c.read(fd, 100);
       c.read(fd, 100);
       c.pread(fd, 5, 8);
       c.pread(fd, 5, 10);
       c.pread(fd, 5, 1000000);
       c.pread(fd, 0, 3);
       c.pread(fd, 5, -1);
       c.pread(fd, 5, INT64_MAX);
       c.call("seek", ::lseek(fd, 0, SEEK_CUR));
     },
     anyone},
    {"write-past-eof-hole",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.pwrite(fd, "end", 10000);
       c.fstat("file", fd);
       c.content("file");
       c.pwrite(fd, "mid", 5000);
       c.content("file");
       c.call("seek past end", ::lseek(fd, 20000, SEEK_SET));
       c.write(fd, "tail");
       c.content("file");
     },
     anyone},
    {"zero-length",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.write(fd, "");
       c.pwrite(fd, "", 5000);
       c.stat("file");
       c.read(fd, 0);
       c.pread(c.open(".", O_RDONLY), 0, 0);
       c.call("writev of nothing", ::writev(fd, nullptr, 0));
     },
     anyone},
    {"read-write-wrong-mode",
     [](Ctx& c) {
       c.put("file", "data");
       const int reader = c.open("file", O_RDONLY);
       const int writer = c.open("file", O_WRONLY);
       c.write(reader, "x");
       c.pwrite(reader, "x", 0);
       c.read(writer, 1);
       c.pread(writer, 1, 0);
       c.call("ftruncate reader", ::ftruncate(reader, 0));
       c.content("file");
     },
     anyone},
    {"read-write-directory",
     [](Ctx& c) {
       const int fd = c.open(".", O_RDONLY);
       c.read(fd, 10);
       c.pread(fd, 10, 0);
       c.write(fd, "x");
       c.call("ftruncate", ::ftruncate(fd, 0));
       c.call("truncate", ::truncate(".", 0));
     },
     anyone},
    {"readv-writev",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       char one[] = "one";
       char two[] = "twotwo";
       char empty[] = "";
       const iovec out[] = {{one, 3}, {empty, 0}, {two, 6}};
       c.call("writev", ::writev(fd, out, 3));
       c.call("pwritev", ::pwritev(fd, out, 3, 20));
       c.content("file");
       char a[5] = {};
       char b[50] = {};
       const iovec in[] = {{a, 5}, {b, 50}};
       c.call("preadv", ::preadv(fd, in, 2, 0));
       c.line(show({a, 5}) + show({b, 30}));
       c.call("preadv at end", ::preadv(fd, in, 2, 29));
       c.call("preadv count over the limit",
              ::preadv(fd, std::vector<iovec>(1025, in[0]).data(), 1025, 0));
       c.call("pwritev2 append", ::pwritev2(fd, out, 3, 0, RWF_APPEND));
       c.call("pwritev2 dsync", ::pwritev2(fd, out, 3, 0, RWF_DSYNC));
       c.call("pwritev2 bad flag", ::pwritev2(fd, out, 3, 0, 0x40000000));
       c.content("file");
     },
     anyone},
    {"bad-buffer",
     [](Ctx& c) {
       c.put("file", "0123456789");
       const int fd = c.open("file", O_RDWR);
       void* bad = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       c.call("read", ::read(fd, bad, 4));
       c.call("write", ::write(fd, bad, 4));
       c.content("file");
     },
     anyone},
    {"large-offset-sparse",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       for (const off_t at : {2 * giga - 2, 4 * giga - 2, 5 * giga, 3000 * giga}) {
         c.pwrite(fd, "data", at);
         c.fstat("file", fd);
         c.pread(fd, 10, at - 3);
       }
       c.pread(fd, 10, 3 * giga);
       c.call("truncate", ::ftruncate(fd, 4 * giga));
       c.pread(fd, 10, 4 * giga - 4);
       c.call("seek end", ::lseek(fd, 0, SEEK_END));
     },
     anyone},
    {"large-offset-limit",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.pwrite(fd, "x", INT64_MAX);
       c.pwrite(fd, "xy", INT64_MAX - 1);
       c.pwrite(fd, "x", -1);
       c.call("ftruncate negative", ::ftruncate(fd, -1));
       c.call("seek max", ::lseek(fd, INT64_MAX, SEEK_SET));
       c.write(fd, "x");
       c.call("seek over max", ::lseek(fd, 1, SEEK_CUR));
       c.fstat("file", fd);
       c.call("ftruncate max", ::ftruncate(fd, INT64_MAX));
       c.fstat("file", fd);
     },
     anyone},
    {"rlimit-fsize",
     [](Ctx& c) {
       ::signal(SIGXFSZ, SIG_IGN);
       const rlimit limit{10000, 10000};
       c.must("setrlimit", ::setrlimit(RLIMIT_FSIZE, &limit));
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.pwrite(fd, "inside", 0);
       c.pwrite(fd, "across the limit", 9995);
       c.pwrite(fd, "beyond", 10000);
       c.call("ftruncate beyond", ::ftruncate(fd, 10001));
       c.call("fallocate beyond", ::fallocate(fd, 0, 0, 20000));
       c.call("ftruncate", ::ftruncate(fd, 10000));
       c.fstat("file", fd);
     },
     anyone},
    {"large-write-and-read",
     [](Ctx& c) {
       const std::string data = pattern(9 * 1024 * 1024 + 17);
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.write(fd, data);
       c.pread(fd, data.size() + 100, 0);
       c.pread(fd, 3000000, 4000001);
       c.in_child([&] { c.content("file"); });
     },
     anyone},
    {"small-writes",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       const std::string data = pattern(20000);
       for (std::size_t at = 0; at < data.size(); at += 7) {
         c.must("write", ::write(fd, data.data() + at, std::min<std::size_t>(7, data.size() - at)));
       }
       c.content("file");
     },
     anyone},
    {"write-seen-by-other-descriptor",
     [](Ctx& c) {
       const int writer = c.open("file", O_RDWR | O_CREAT);
       const int reader = c.open("file", O_RDONLY);
       for (int i = 0; i < 20; ++i) {
         c.pwrite(writer, "round " + std::to_string(i), i * 1000);
         c.pread(reader, 20, i * 1000);
         c.fstat("reader", reader);
       }
     },
     anyone},
    {"write-seen-by-other-process",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.write(fd, "first");
       c.in_child([&] { c.content("file"), c.put("file", "second by another"); });
       c.fstat("file", fd);
       c.pread(fd, 100, 0);
     },
     anyone},
    {"append-two-descriptors",
     [](Ctx& c) {
       const int one = c.open("file", O_WRONLY | O_CREAT | O_APPEND);
       const int two = c.open("file", O_RDWR | O_APPEND);
       c.write(one, "a1 ");
       c.write(two, "b1 ");
       c.write(one, "a2 ");
       c.call("offset one", ::lseek(one, 0, SEEK_CUR));
       c.call("offset two", ::lseek(two, 0, SEEK_CUR));
       c.call("seek", ::lseek(one, 0, SEEK_SET));
       c.write(one, "a3 ");
       c.pwrite(two, "b2", 0);
       c.content("file");
       c.call("truncate", ::truncate("file", 2));
       c.write(one, "after");
       c.content("file");
     },
     anyone},
    {"append-cleared",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT | O_APPEND);
       c.write(fd, "0123456789");
       c.call("no O_APPEND any more", ::fcntl(fd, F_SETFL, 0));
       c.pwrite(fd, "XX", 2);
       c.content("file");
     },
     anyone},
    {"append-set",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.write(fd, "0123456789");
       c.call("O_APPEND from here", ::fcntl(fd, F_SETFL, O_APPEND));
       c.pwrite(fd, "XX", 2);
       c.content("file");
     },
     anyone},
    {"append-and-plain",
     [](Ctx& c) {
       const int plain = c.open("file", O_RDWR | O_CREAT);
       const int append = c.open("file", O_WRONLY | O_APPEND);
       c.write(plain, "plain");
       c.write(append, "+append");
       c.write(plain, "PLAIN");
       c.content("file");
     },
     anyone},
};

}  // namespace

std::span<const Case> io_cases() {
  return cases;
}

}  // namespace parity
