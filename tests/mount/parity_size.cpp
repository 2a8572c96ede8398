// SPDX-License-Identifier: BSD-3-Clause
// The length of a file: truncating, seeking, holes.
#include "parity.hpp"

namespace parity {
namespace {

constexpr Case cases[] = {
    {"truncate-shrink-extend",
     [](Ctx& c) {
       c.put("file", pattern(20000));
       for (const off_t size : {20000, 12345, 5000, 5001, 4096, 16384, 1, 0, 100, 0}) {
         c.call("truncate " + std::to_string(size), ::truncate("file", size));
         c.stat("file");
         c.content("file");
       }
     },
     anyone},
    {"truncate-shrink-then-extend-zeros",
     [](Ctx& c) {
       for (const off_t cut : {0, 1, 4095, 4096, 4097, 7000}) {
         c.put("file", std::string(10000, 'x'));
         const int fd = c.open("file", O_RDWR);
         c.pread(fd, 10000, 0);
         c.call("shrink", ::ftruncate(fd, cut));
         c.call("extend", ::ftruncate(fd, 10000));
         c.content("file");
         c.pwrite(fd, "y", 12000);
         c.content("file");
       }
     },
     anyone},
    {"truncate-then-write-past-end",
     [](Ctx& c) {
       c.put("file", std::string(5000, 'x'));
       c.call("truncate", ::truncate("file", 10));
       c.pwrite(c.open("file", O_WRONLY), "y", 4999);
       c.content("file");
     },
     anyone},
    {"truncate-errors",
     [](Ctx& c) {
       c.dir("dir");
       c.put("file", "data");
       c.must("mkfifo", ::mkfifo("fifo", 0600));
       c.must("symlink", ::symlink("file", "link"));
       c.call("dir", ::truncate("dir", 0));
       c.call("none", ::truncate("none", 0));
       c.call("negative", ::truncate("file", -1));
       c.call("fifo", ::truncate("fifo", 0));
       c.call("below a file", ::truncate("file/x", 0));
       c.call("slash", ::truncate("file/", 0));
       c.call("by link", ::truncate("link", 2));
       c.content("file");
       c.must("chmod", ::chmod("file", 0400));
       c.call("read-only mode", ::truncate("file", 1));
       c.content("file");
     },
     anyone},
    {"truncate-open-elsewhere",
     [](Ctx& c) {
       c.put("file", "0123456789");
       const int fd = c.open("file", O_RDWR);
       c.read(fd, 5);
       c.call("truncate", ::truncate("file", 3));
       c.fstat("file", fd);
       c.read(fd, 5);
       c.write(fd, "W");
       c.content("file");
     },
     anyone},
    {"seek",
     [](Ctx& c) {
       c.put("file", "0123456789");
       const int fd = c.open("file", O_RDWR);
       c.call("past end", ::lseek(fd, 100, SEEK_SET));
       c.read(fd, 5);
       c.call("end", ::lseek(fd, -3, SEEK_END));
       c.read(fd, 5);
       c.call("before start", ::lseek(fd, -11, SEEK_END));
       c.call("negative", ::lseek(fd, -1, SEEK_SET));
       c.call("current", ::lseek(fd, -2, SEEK_CUR));
       c.call("bad whence", ::lseek(fd, 0, 77));
       c.stat("file");
     },
     anyone},
    {"seek-data-hole-plain",
     [](Ctx& c) {
       c.put("file", "0123456789");
       c.put("empty");
       for (const char* name : {"file", "empty"}) {
         const int fd = c.open(name, O_RDWR);
         for (const off_t at : {0, 5, 9, 10, 11, -1}) {
           c.call("data from " + std::to_string(at), ::lseek(fd, at, SEEK_DATA));
           c.call("hole from " + std::to_string(at), ::lseek(fd, at, SEEK_HOLE));
         }
       }
     },
     anyone},
    {"seek-data-hole-sparse",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       const off_t mega = 1 << 20;
       c.pwrite(fd, std::string(4096, 'x'), 4 * mega);
       c.pwrite(fd, std::string(4096, 'x'), 8 * mega);
       c.call("extend", ::ftruncate(fd, 16 * mega));
       for (const off_t at :
            {off_t{0}, 4 * mega, 4 * mega + 4096, 6 * mega, 8 * mega + 1, 9 * mega, 16 * mega}) {
         c.call("data from " + std::to_string(at), ::lseek(fd, at, SEEK_DATA));
         c.call("hole from " + std::to_string(at), ::lseek(fd, at, SEEK_HOLE));
       }
     },
     anyone},
};

}  // namespace

std::span<const Case> size_cases() {
  return cases;
}

}  // namespace parity
