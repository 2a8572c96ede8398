// SPDX-License-Identifier: BSD-3-Clause
// Access times: relatime, as in the native directory.
#include <sys/mman.h>
#include <sys/stat.h>

#include <string>

#include "parity.hpp"

namespace parity {
namespace {

bool same(const timespec& left, const timespec& right) {
  return left.tv_sec == right.tv_sec && left.tv_nsec == right.tv_nsec;
}

/// Records whether `body` updates the access time of `path`, which is older than its other times
/// before.
void reads(const Ctx& c, const char* what, const char* path, const std::function<void()>& body) {
  const timespec old[2] = {{1000000000, 0}, {1100000000, 0}};
  c.must("utimensat", ::utimensat(AT_FDCWD, path, old, AT_SYMLINK_NOFOLLOW));
  c.tick();
  body();
  c.check(std::string(what) + " moves atime", !same(c.times(path).access, old[0]));
}

constexpr Case cases[] = {
    {"atime-file",
     [](Ctx& c) {
       c.put("f", pattern(10000));
       const int fd = c.open("f", O_RDONLY);
       reads(c, "read", "f",
             [&] { c.must("pread", ::pread(fd, std::string(100, ' ').data(), 100, 0)); });
       reads(c, "read at the end", "f",
             [&] { c.must("pread", ::pread(fd, std::string(100, ' ').data(), 100, 10000)); });
       reads(c, "open", "f", [&] { c.get("f", O_RDONLY); });
       reads(c, "stat", "f", [&] { c.times("f"); });
     },
     anyone},
    {"atime-directory",
     [](Ctx& c) {
       c.dir("d");
       c.put("d/f");
       reads(c, "readdir", "d", [&] { c.list("d"); });
       reads(c, "lookup", "d", [&] { c.stat("d/f"); });
     },
     anyone},
    {"atime-symlink",
     [](Ctx& c) {
       c.must("symlink", ::symlink("f", "s"));
       c.put("f");
       reads(c, "readlink", "s", [&] { c.target("s"); });
       reads(c, "following", "s", [&] { c.content("s"); });
     },
     anyone},
    {"atime-relatime",
     [](Ctx& c) {
       // Once per change: the second read of an unchanged file does not update it.
       c.put("f", pattern(10000));
       const int fd = c.open("f", O_RDONLY);
       reads(c, "first read", "f",
             [&] { c.must("pread", ::pread(fd, std::string(100, ' ').data(), 100, 0)); });
       const Times first = c.times("f");
       c.tick();
       c.must("pread", ::pread(fd, std::string(100, ' ').data(), 100, 0));
       c.check("a second read moves atime", !same(c.times("f").access, first.access));
       c.check("reading moves ctime", !same(c.times("f").change, first.change));
       c.tick();
       c.put("f", pattern(20000, 2));
       c.tick();
       c.must("pread", ::pread(fd, std::string(100, ' ').data(), 100, 0));
       c.check("a read after a write moves atime", !same(c.times("f").access, first.access));
     },
     anyone},
    {"atime-open-noatime",
     [](Ctx& c) {
       c.put("f", pattern(10000));
       const int fd = c.open("f", O_RDONLY | O_NOATIME);
       reads(c, "read", "f",
             [&] { c.must("pread", ::pread(fd, std::string(100, ' ').data(), 100, 0)); });
     },
     anyone},
    {"atime-map-read",
     [](Ctx& c) {
       c.put("f", pattern(10000));
       const int fd = c.open("f", O_RDONLY);
       reads(c, "mmap", "f", [&] {
         const void* map = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
         c.check("mapped",
                 map != MAP_FAILED && *static_cast<const volatile char*>(map) == pattern(1)[0]);
       });
     },
     anyone},
    {"atime-exec",
     [](Ctx& c) {
       c.put_program("program");
       reads(c, "exec", "program", [&] {
         c.run("program",
               [] { ::execl("./program", "program", "--helper", "exit", "3", nullptr); });
       });
     },
     anyone},
};

}  // namespace

std::span<const Case> atime_cases() {
  return cases;
}

}  // namespace parity
