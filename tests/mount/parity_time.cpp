// SPDX-License-Identifier: BSD-3-Clause
// Time stamps: setting them, and which operation updates which.
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

#include <climits>
#include <cstdio>
#include <ctime>
#include <utility>

#include "parity.hpp"

namespace parity {
namespace {

std::string text(const timespec& time) {
  return std::to_string(time.tv_sec) + "." + std::to_string(time.tv_nsec);
}

/// Sets both times and records the file's times afterwards.
void set_times(const Ctx& c, const char* path, const timespec& access, const timespec& modify) {
  const timespec times[2] = {access, modify};
  c.call("utimensat " + text(access) + " " + text(modify),
         ::utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW));
  const Times now = c.times(path);
  c.line("atime " + text(now.access) + " mtime " + text(now.modify));
}

bool same(const timespec& left, const timespec& right) {
  return left.tv_sec == right.tv_sec && left.tv_nsec == right.tv_nsec;
}

constexpr Case cases[] = {
    {"utimensat-exact",
     [](Ctx& c) {
       c.put("f");
       c.dir("d");
       c.must("symlink", ::symlink("f", "s"));
       c.must("mkfifo", ::mkfifo("p", 0600));
       for (const char* path : {"f", "d", "s", "p"}) {
         set_times(c, path, {1234567890, 123456789}, {987654321, 987654321});
         set_times(c, path, {0, 0}, {0, 1});
         set_times(c, path, {1, 999999999}, {2, 1});
       }
     },
     anyone},
    {"utimensat-far",
     [](Ctx& c) {
       c.put("f");
       set_times(c, "f", {-1, 5}, {-1, 999999999});
       set_times(c, "f", {-2000000000, 0}, {-5000000000, 7});
       set_times(c, "f", {2147483647, 1}, {2147483648, 2});
       set_times(c, "f", {4294967295, 3}, {4294967296, 4});
       set_times(c, "f", {100000000000, 5}, {9000000000, 6});
       set_times(c, "f", {-62135596800, 0}, {253402300799, 999999999});
     },
     anyone},
    {"utimensat-extreme",
     [](Ctx& c) {
       c.put("f");
       set_times(c, "f", {LONG_MAX, 0}, {LONG_MIN, 0});
     },
     anyone},
    {"utimensat-omit-now",
     [](Ctx& c) {
       c.put("f");
       set_times(c, "f", {1000, 1}, {2000, 2});
       c.moves("omit both", {"f"}, [&] { set_times(c, "f", {0, UTIME_OMIT}, {0, UTIME_OMIT}); });
       c.moves("omit atime", {"f"}, [&] { set_times(c, "f", {0, UTIME_OMIT}, {3000, 3}); });
       c.moves("omit mtime", {"f"}, [&] { set_times(c, "f", {4000, 4}, {77, UTIME_OMIT}); });
       timespec clock{};
       ::clock_gettime(CLOCK_REALTIME_COARSE, &clock);
       const auto now = [&](const char* what, const timespec(&times)[2]) {
         const Times before = c.times("f");
         c.tick();
         c.call(what, ::utimensat(AT_FDCWD, "f", times, 0));
         const Times after = c.times("f");
         c.check("  atime kept", same(before.access, after.access));
         c.check("  mtime kept", same(before.modify, after.modify));
         c.check("  atime is now",
                 after.access.tv_sec >= clock.tv_sec && after.access.tv_sec < clock.tv_sec + 30);
         c.check("  mtime is now",
                 after.modify.tv_sec >= clock.tv_sec && after.modify.tv_sec < clock.tv_sec + 30);
       };
       now("now, omit", {{0, UTIME_NOW}, {0, UTIME_OMIT}});
       now("omit, now", {{0, UTIME_OMIT}, {0, UTIME_NOW}});
       now("now, now", {{0, UTIME_NOW}, {0, UTIME_NOW}});
       c.call("null", ::utimensat(AT_FDCWD, "f", nullptr, 0));
       // make(1) considers a target outdated if it is older than its source by any amount.
       int older = 0;
       for (int i = 0; i < 20; ++i) {
         const std::string made = "made" + std::to_string(i);
         c.put(made);
         const int fd = c.open(made, O_WRONLY);
         c.must("touch", ::utimensat(AT_FDCWD, "f", nullptr, 0));
         c.must("write", static_cast<int>(::write(fd, "x", 1)));
         const timespec touched = c.times("f").modify, written = c.times(made).modify;
         older +=
             std::pair(written.tv_sec, written.tv_nsec) < std::pair(touched.tv_sec, touched.tv_nsec)
                 ? 1
                 : 0;
       }
       c.line("made after a touch, and older: " + std::to_string(older));
     },
     anyone},
    {"utimensat-errors",
     [](Ctx& c) {
       c.put("f");
       c.must("symlink", ::symlink("none", "s"));
       timespec times[2] = {{1, 1000000000}, {1, 1}};
       c.call("nanoseconds", ::utimensat(AT_FDCWD, "f", times, 0));
       times[0].tv_nsec = -1;
       c.call("negative nanoseconds", ::utimensat(AT_FDCWD, "f", times, 0));
       times[0].tv_nsec = 1;
       c.call("none", ::utimensat(AT_FDCWD, "none", times, 0));
       c.call("dangling", ::utimensat(AT_FDCWD, "s", times, 0));
       c.call("bad flag", ::utimensat(AT_FDCWD, "f", times, 1));
       c.call("descriptor", ::futimens(c.open("f", O_RDONLY), times));
       c.call("path descriptor", ::futimens(c.open("f", O_PATH), times));
       c.call("empty path", ::utimensat(c.open("f", O_PATH), "", times, AT_EMPTY_PATH));
     },
     anyone},
    {"utimensat-symlink",
     [](Ctx& c) {
       c.put("f");
       c.must("symlink", ::symlink("f", "s"));
       set_times(c, "f", {1, 1}, {2, 2});
       set_times(c, "s", {3, 3}, {4, 4});
       const timespec times[2] = {{5, 5}, {6, 6}};
       c.call("follow", ::utimensat(AT_FDCWD, "s", times, 0));
       c.line(text(c.times("f").modify) + " " + text(c.times("s").modify));
     },
     anyone},
    {"utime-old-calls",
     [](Ctx& c) {
       c.put("f");
       const utimbuf seconds{100, 200};
       c.call("utime", ::utime("f", &seconds));
       c.line(text(c.times("f").access) + " " + text(c.times("f").modify));
       const timeval micro[2] = {{300, 400}, {500, 999999}};
       c.call("utimes", ::utimes("f", micro));
       c.line(text(c.times("f").access) + " " + text(c.times("f").modify));
       c.call("lutimes", ::lutimes("f", micro));
       c.call("utimes null", ::utimes("f", nullptr));
     },
     anyone},
    {"utimens-then-close",
     [](Ctx& c) {
       // The sequence of cp -p and tar: write, set the times, close.
       const int fd = c.open("f", O_RDWR | O_CREAT);
       c.write(fd, pattern(50000));
       const timespec times[2] = {{1000, 1}, {2000, 2}};
       c.call("futimens", ::futimens(fd, times));
       c.call("fchmod", ::fchmod(fd, 0600));
       c.call("close", ::close(fd));
       c.line(text(c.times("f").access) + " " + text(c.times("f").modify));
       c.in_child([&] { c.line(text(c.times("f").modify)); });
       c.call("fsync", ::fsync(c.open("f", O_RDONLY)));
       c.line(text(c.times("f").modify));
       c.call("rename", ::rename("f", "g"));
       c.line(text(c.times("g").modify));
     },
     anyone},
    {"times-of-new-file",
     [](Ctx& c) {
       timespec before{};
       c.tick();
       ::clock_gettime(CLOCK_REALTIME_COARSE, &before);
       c.put("f");
       c.dir("d");
       c.must("symlink", ::symlink("x", "s"));
       timespec after{};
       ::clock_gettime(CLOCK_REALTIME, &after);
       for (const char* path : {"f", "d", "s"}) {
         const Times now = c.times(path);
         for (const timespec& time : {now.access, now.modify, now.change}) {
           c.check(path, time.tv_sec >= before.tv_sec && time.tv_sec <= after.tv_sec + 1);
         }
       }
     },
     anyone},
    {"times-write",
     [](Ctx& c) {
       c.put("f", "data");
       const int fd = c.open("f", O_RDWR);
       c.moves("write", {"f", "."}, [&] { c.write(fd, "x"); });
       c.moves("write of nothing", {"f"}, [&] { c.write(fd, ""); });
       c.moves("pwrite", {"f"}, [&] { c.pwrite(fd, "y", 100); });
       c.moves("read", {"f"}, [&] { c.pread(fd, 10, 0); });
       c.moves("fsync", {"f"}, [&] { c.call("fsync", ::fsync(fd)); });
       c.moves("close", {"f"}, [&] { c.call("close", ::close(fd)); });
       c.moves("open", {"f"}, [&] { c.open("f", O_RDWR); });
       c.moves("open truncating", {"f"}, [&] { c.open("f", O_WRONLY | O_TRUNC); });
       c.moves("open truncating the empty", {"f"}, [&] { c.open("f", O_WRONLY | O_TRUNC); });
       c.moves("open O_CREAT of existing", {"f", "."}, [&] { c.open("f", O_WRONLY | O_CREAT); });
     },
     anyone},
    {"times-write-then-stat-then-close",
     [](Ctx& c) {
       const int fd = c.open("f", O_RDWR | O_CREAT);
       c.tick();
       c.write(fd, pattern(10000));
       const Times written = c.times("f");
       c.tick();
       c.call("close", ::close(fd));
       c.moved("f", written);
       c.in_child([&] { c.moved("f", written); });
     },
     anyone},
    {"times-truncate",
     [](Ctx& c) {
       c.put("f", "0123456789");
       const int fd = c.open("f", O_RDWR);
       c.moves("truncate to the same size", {"f"},
               [&] { c.call("truncate", ::truncate("f", 10)); });
       c.moves("ftruncate to the same size", {"f"},
               [&] { c.call("ftruncate", ::ftruncate(fd, 10)); });
       c.moves("shrink", {"f"}, [&] { c.call("ftruncate", ::ftruncate(fd, 5)); });
       c.moves("extend", {"f"}, [&] { c.call("truncate", ::truncate("f", 50)); });
     },
     anyone},
    {"times-fallocate",
     [](Ctx& c) {
       c.put("f", pattern(10000));
       const int fd = c.open("f", O_RDWR);
       c.moves("inside", {"f"}, [&] { c.call("fallocate", ::fallocate(fd, 0, 0, 100)); });
       c.moves("extend", {"f"}, [&] { c.call("fallocate", ::fallocate(fd, 0, 0, 20000)); });
       c.moves("punch", {"f"}, [&] { c.call("fallocate", ::fallocate(fd, 3, 0, 8192)); });
     },
     anyone},
    {"times-copy",
     [](Ctx& c) {
       c.put("from", pattern(1000));
       c.put("to");
       const int from = c.open("from", O_RDONLY);
       const int to = c.open("to", O_RDWR);
       c.moves("copy_file_range", {"from", "to"},
               [&] { c.call("copy", ::copy_file_range(from, nullptr, to, nullptr, 500, 0)); });
     },
     anyone},
    {"times-attributes",
     [](Ctx& c) {
       c.put("f", "data");
       c.dir("d");
       c.moves("chmod", {"f", "."}, [&] { c.call("chmod", ::chmod("f", 0600)); });
       c.moves("chmod to the same", {"f"}, [&] { c.call("chmod", ::chmod("f", 0600)); });
       c.moves("chmod dir", {"d"}, [&] { c.call("chmod", ::chmod("d", 0700)); });
       c.moves("chown", {"f"}, [&] { c.call("chown", ::chown("f", ::geteuid(), ::getegid())); });
       c.moves("chown of nothing", {"f"}, [&] { c.call("chown", ::chown("f", -1, -1)); });
       c.moves("failing chmod", {"f"}, [&] { c.call("chmod", ::chmod("f/x", 0600)); });
       c.moves("setxattr", {"f"},
               [&] { c.call("setxattr", ::setxattr("f", "user.x", "v", 1, 0)); });
     },
     anyone},
    {"times-create-remove",
     [](Ctx& c) {
       c.dir("d");
       c.moves("create", {"d", "."}, [&] { c.put("d/f"); });
       c.moves("open existing", {"d"}, [&] { c.open("d/f", O_RDWR | O_CREAT); });
       c.moves("failing create", {"d"}, [&] { c.open("d/f", O_RDWR | O_CREAT | O_EXCL); });
       c.moves("mkdir", {"d"}, [&] { c.dir("d/sub"); });
       c.moves("mkdir in sub", {"d", "d/sub"}, [&] { c.dir("d/sub/sub"); });
       c.moves("rmdir in sub", {"d", "d/sub"}, [&] { c.call("rmdir", ::rmdir("d/sub/sub")); });
       c.moves("rmdir", {"d"}, [&] { c.call("rmdir", ::rmdir("d/sub")); });
       c.moves("symlink", {"d"}, [&] { c.call("symlink", ::symlink("x", "d/s")); });
       c.moves("mkfifo", {"d"}, [&] { c.call("mkfifo", ::mkfifo("d/p", 0600)); });
       c.moves("link", {"d", "d/f"}, [&] { c.call("link", ::link("d/f", "d/g")); });
       c.moves("unlink one of two", {"d", "d/f"}, [&] { c.call("unlink", ::unlink("d/g")); });
       c.moves("unlink", {"d"}, [&] { c.call("unlink", ::unlink("d/f")); });
       c.moves("tmpfile", {"d"}, [&] { c.open("d", O_TMPFILE | O_RDWR); });
       c.moves("failing unlink", {"d"}, [&] { c.call("unlink", ::unlink("d/f")); });
       c.moves("readdir", {"d"}, [&] { c.list("d"); });
     },
     anyone},
    {"times-unlink-open",
     [](Ctx& c) {
       c.put("f", "data");
       const int fd = c.open("f", O_RDWR);
       struct stat before{};
       struct stat after{};
       c.must("fstat", ::fstat(fd, &before));
       c.tick();
       c.call("unlink", ::unlink("f"));
       c.must("fstat", ::fstat(fd, &after));
       c.check("mtime kept", same(before.st_mtim, after.st_mtim));
       c.check("ctime kept", same(before.st_ctim, after.st_ctim));
     },
     anyone},
    {"times-rename",
     [](Ctx& c) {
       c.dir("a");
       c.dir("b");
       c.put("a/f");
       c.must("link", ::link("a/f", "keep"));
       c.moves("across", {"a", "b", "keep", "."},
               [&] { c.call("rename", ::rename("a/f", "b/f")); });
       c.moves("inside", {"b", "keep"}, [&] { c.call("rename", ::rename("b/f", "b/g")); });
       c.put("b/h");
       c.must("link", ::link("b/h", "replaced"));
       c.moves("over", {"b", "keep", "replaced"},
               [&] { c.call("rename", ::rename("b/g", "b/h")); });
       c.moves("same name", {"b", "keep"}, [&] { c.call("rename", ::rename("b/h", "b/h")); });
       c.must("link", ::link("b/h", "b/i"));
       c.moves("to itself by link", {"b", "keep"},
               [&] { c.call("rename", ::rename("b/h", "b/i")); });
       c.dir("a/sub");
       c.must("utimensat", ::utimensat(AT_FDCWD, "a/sub", nullptr, 0));
       c.moves("directory", {"a", "b"}, [&] { c.call("rename", ::rename("a/sub", "b/sub")); });
       c.moves("failing", {"b"}, [&] { c.call("rename", ::rename("b/none", "b/x")); });
     },
     anyone},
    {"times-rename-of-directory-itself",
     [](Ctx& c) {
       c.dir("a");
       c.dir("b");
       c.dir("a/sub");
       const Times before = c.times("a/sub");
       c.tick();
       c.call("inside", ::rename("a/sub", "a/sub2"));
       c.moved("a/sub2", before);
       const Times second = c.times("a/sub2");
       c.tick();
       c.call("across", ::rename("a/sub2", "b/sub"));
       c.moved("b/sub", second);
     },
     anyone},
    {"times-exchange",
     [](Ctx& c) {
       c.dir("a");
       c.dir("b");
       c.put("a/f");
       c.put("b/g");
       c.must("link", ::link("a/f", "f"));
       c.must("link", ::link("b/g", "g"));
       c.moves("exchange", {"a", "b", "f", "g"}, [&] {
         c.call("rename", ::renameat2(AT_FDCWD, "a/f", AT_FDCWD, "b/g", RENAME_EXCHANGE));
       });
     },
     anyone},
    {"times-map-write",
     [](Ctx& c) {
       c.put("f", std::string(4096, 'x'));
       const int fd = c.open("f", O_RDWR);
       auto* map =
           static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
       c.moves("store and msync", {"f"}, [&] {
         map[0] = 'y';
         c.call("msync", ::msync(map, 4096, MS_SYNC));
       });
     },
     anyone},
    {"times-map-write-known-before",
     [](Ctx& c) {
       // The attributes are cached and read often before the mapping exists; then only the mapping
       // changes them. The second store is beyond the largest page of the first.
       constexpr std::size_t length = 8U << 20U;
       c.put("f", std::string(length, 'x'));
       c.stat("f");
       const int fd = c.open("f", O_RDWR);
       auto* map =
           static_cast<char*>(::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
       for (const std::size_t at : {std::size_t{0}, length / 2}) {
         c.moves("store", {"f"}, [&] {
           map[at] = 'y';
           c.call("msync", ::msync(map, length, MS_SYNC));
         });
         c.in_child([&] { c.stat("f"); });
       }
       c.must("munmap", ::munmap(map, length));
       const Times before = c.times("f");
       c.must("close", ::close(fd));
       c.tick();
       c.moved("f", before);
     },
     anyone},
    {"times-map-write-in-child",
     [](Ctx& c) {
       c.put("f", std::string(4096, 'x'));
       const Times before = c.times("f");
       c.tick();
       c.in_child([&] {
         const int fd = c.get("f", O_RDWR);
         auto* map =
             static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
         map[0] = 'y';
         c.call("msync", ::msync(map, 4096, MS_SYNC));
       });
       c.moved("f", before);
     },
     anyone},
    {"times-order-of-events",
     [](Ctx& c) {
       // Stamps of a file's data, and stamps of names, directories and links, may come from two
       // clocks.
       const int fd = c.open("f", O_RDWR | O_CREAT);
       timespec last{};
       int older = 0;
       const auto next = [&](const std::string& path) {
         const timespec now = c.times(path).modify;
         older += std::pair(now.tv_sec, now.tv_nsec) < std::pair(last.tv_sec, last.tv_nsec) ? 1 : 0;
         last = now;
       };
       for (int i = 0; i < 50; ++i) {
         const std::string number = std::to_string(i);
         for (int twice = 0; twice < 2; ++twice) {
           c.must("pwrite", ::pwrite(fd, "x", 1, 0));
           next("f");
         }
         c.dir("d" + number);
         next("d" + number);
         c.put("n" + number, "x");
         next("n" + number);
         c.must("symlink", ::symlink("x", ("s" + number).c_str()));
         next("s" + number);
         c.must("touch", ::utimensat(AT_FDCWD, ("d" + number).c_str(), nullptr, 0));
         next("d" + number);
       }
       c.line("older than what was before: " + std::to_string(older));
     },
     anyone},
    {"times-mtime-order-make",
     [](Ctx& c) {
       // make relies on this: a target written after its source is newer.
       c.put("source", "x");
       c.tick();
       c.put("target", "y");
       const Times source = c.times("source");
       const Times target = c.times("target");
       c.check("target is newer", target.modify.tv_sec > source.modify.tv_sec ||
                                      (target.modify.tv_sec == source.modify.tv_sec &&
                                       target.modify.tv_nsec > source.modify.tv_nsec));
     },
     anyone},
};

}  // namespace

std::span<const Case> time_cases() {
  return cases;
}

}  // namespace parity
