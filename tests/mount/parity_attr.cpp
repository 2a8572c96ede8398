// SPDX-License-Identifier: BSD-3-Clause
// Mode, owner, statx, devices.
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include <utility>

#include "parity.hpp"

namespace parity {
namespace {

constexpr Case cases[] = {
    {"chmod-all-bits",
     [](Ctx& c) {
       c.put("f");
       c.dir("d");
       for (const mode_t mode :
            {0U, 0777U, 0644U, 04755U, 02755U, 02644U, 01777U, 07777U, 0100644U, 0177777U}) {
         c.call("chmod file", ::chmod("f", mode));
         c.stat("f");
         c.call("chmod dir", ::chmod("d", mode));
         c.stat("d");
       }
     },
     anyone},
    {"chmod-errors",
     [](Ctx& c) {
       c.put("f");
       c.must("symlink", ::symlink("none", "s"));
       for (const char* path : {"none", "f/x", "s", ""}) {
         c.call(std::string("chmod ") + path, ::chmod(path, 0600));
       }
       c.call("fchmod bad", ::fchmod(999, 0600));
     },
     anyone},
    {"fchmod",
     [](Ctx& c) {
       c.put("f");
       const int reader = c.open("f", O_RDONLY);
       c.call("fchmod by reader", ::fchmod(reader, 0600));
       c.fstat("f", reader);
       c.call("fchmod dir", ::fchmod(c.open(".", O_RDONLY), 0700));
       c.stat(".");
       c.must("unlink", ::unlink("f"));
       c.call("fchmod unlinked", ::fchmod(reader, 0640));
       c.fstat("f", reader);
     },
     anyone},
    {"chmod-through-symlink",
     [](Ctx& c) {
       c.put("f");
       c.must("symlink", ::symlink("f", "s"));
       c.call("chmod", ::chmod("s", 0600));
       c.stat("f");
       c.stat("s");
     },
     anyone},
    {"chmod-open-for-writing",
     [](Ctx& c) {
       c.put("f", "data");
       const int fd = c.open("f", O_RDWR);
       c.call("chmod", ::chmod("f", 0));
       c.write(fd, "still");
       c.pread(fd, 10, 0);
       c.open("f", O_RDWR);
     },
     anyone},
    {"chmod-sees-other-links",
     [](Ctx& c) {
       c.put("a");
       c.must("link", ::link("a", "b"));
       c.stat("b");
       c.call("chmod", ::chmod("a", 0751));
       c.stat("b");
       c.in_child([&] { c.call("chmod", ::chmod("b", 0640)); });
       c.stat("a");
     },
     anyone},
    {"chown-self",
     [](Ctx& c) {
       c.put("f");
       c.must("symlink", ::symlink("f", "s"));
       for (const char* path : {"f", "s", "none", "."}) {
         c.call("-1 -1", ::chown(path, -1, -1));
         c.call("uid -1", ::chown(path, ::geteuid(), -1));
         c.call("-1 gid", ::chown(path, -1, ::getegid()));
         c.call("uid gid", ::lchown(path, ::geteuid(), ::getegid()));
         c.stat(path);
       }
       c.call("fchown", ::fchown(c.open("f", O_RDONLY), ::geteuid(), ::getegid()));
       c.call("fchownat empty",
              ::fchownat(c.open("f", O_PATH), "", ::geteuid(), ::getegid(), AT_EMPTY_PATH));
     },
     anyone},
    {"chown-clears-setuid",
     [](Ctx& c) {
       for (const mode_t mode : {04755U, 02755U, 06755U, 02644U, 06777U, 01777U}) {
         c.put("f");
         c.must("chmod", ::chmod("f", mode));
         c.call("chown -1", ::chown("f", -1, -1));
         c.stat("f");
         c.must("chmod", ::chmod("f", mode));
         c.call("chown", ::chown("f", ::geteuid(), ::getegid()));
         c.stat("f");
         ::rmdir("d");
         c.dir("d");
         c.must("chmod", ::chmod("d", mode));
         c.call("chown dir", ::chown("d", ::geteuid(), ::getegid()));
         c.stat("d");
       }
     },
     anyone},
    {"chown-others-root",
     [](Ctx& c) {
       c.put("f");
       c.dir("d");
       c.must("symlink", ::symlink("f", "s"));
       c.call("file", ::chown("f", 1000, 1001));
       c.call("dir", ::chown("d", 1002, -1));
       c.call("link itself", ::lchown("s", 1003, 1004));
       c.call("group only", ::chown("d", -1, 1005));
       for (const char* path : {"f", "d", "s"}) {
         c.stat(path);
       }
       c.call("through link", ::chown("s", 7, 8));
       c.stat("f");
       c.must("chmod", ::chmod("f", 06777));
       c.call("with setuid", ::chown("f", 1000, 1000));
       c.stat("f");
       c.call("large ids", ::chown("f", 4000000000U, 4000000001U));
       c.stat("f");
     },
     root},
    {"chown-as-other-user",
     [](Ctx& c) {
       c.call("foreign owner", ::chown("none", 1, -1));
       c.put("f");
       if (::geteuid() != 0) {
         c.call("give away", ::chown("f", 1, -1));
         c.call("foreign group", ::chown("f", -1, 1));
       }
       c.stat("f");
     },
     anyone},
    {"sgid-directory",
     [](Ctx& c) {
       c.dir("d");
       c.call("chmod", ::chmod("d", 02777));
       c.stat("d");
       c.put("d/file");
       c.dir("d/dir");
       c.must("symlink", ::symlink("x", "d/link"));
       c.must("mkfifo", ::mkfifo("d/fifo", 0600));
       for (const char* path : {"d/file", "d/dir", "d/link", "d/fifo"}) {
         c.stat(path);
       }
       c.dir("d/dir/sub");
       c.stat("d/dir/sub");
       c.put("d/exec", "", 02755);
       c.stat("d/exec");
       const int fd = c.open("d", O_TMPFILE | O_RDWR, 02755);
       c.fstat("tmpfile", fd);
     },
     anyone},
    {"sgid-directory-foreign-group",
     [](Ctx& c) {
       c.dir("d");
       c.must("chown", ::chown("d", 0, 1234));
       c.must("chmod", ::chmod("d", 02777));
       c.must("chmod", ::chmod(".", 0755));
       const auto make = [&](const std::string& prefix) {
         c.put("d/" + prefix + "file", "", 02775);
         c.dir("d/" + prefix + "dir");
         c.put("d/" + prefix + "dir/inner");
         for (const char* name : {"file", "dir", "dir/inner"}) {
           c.stat("d/" + prefix + name);
         }
       };
       make("root-");
       c.as_user(1000, 1000, [&] {
         make("user-");
         c.call("chmod keeps no foreign sgid", ::chmod("d/user-file", 02755));
         c.stat("d/user-file");
       });
     },
     root},
    {"write-clears-setuid",
     [](Ctx& c) {
       for (const mode_t mode : {04755U, 02755U, 06755U, 02644U, 06644U, 06777U}) {
         c.put("f", "data");
         const int fd = c.open("f", O_RDWR);
         c.must("chmod", ::chmod("f", mode));
         c.write(fd, "");
         c.stat("f");
         c.write(fd, "x");
         c.stat("f");
         c.must("chmod", ::chmod("f", mode));
         c.call("ftruncate", ::ftruncate(fd, 1));
         c.stat("f");
         c.must("chmod", ::chmod("f", mode));
         c.call("truncate", ::truncate("f", 0));
         c.stat("f");
         c.must("chmod", ::chmod("f", mode));
         c.open("f", O_WRONLY | O_TRUNC);
         c.stat("f");
         c.must("chmod", ::chmod("f", mode));
         c.call("fallocate", ::fallocate(fd, 0, 0, 100));
         c.stat("f");
       }
     },
     anyone},
    {"write-clears-setuid-of-foreign-file",
     [](Ctx& c) {
       for (const mode_t mode : {04777U, 02777U, 06777U, 02666U}) {
         c.put("f", "data");
         c.must("chmod", ::chmod("f", mode));
         c.as_user(1000, 1000, [&] { c.pwrite(c.open("f", O_RDWR), "x", 0); });
         c.stat("f");
       }
     },
     root},
    {"stat-fields-agree",
     [](Ctx& c) {
       c.put("f", "data");
       c.must("link", ::link("f", "g"));
       struct stat one{};
       struct stat two{};
       struct stat dir{};
       c.must("stat", ::stat("f", &one));
       c.must("fstat", ::fstat(c.open("g", O_RDONLY), &two));
       c.must("stat", ::stat(".", &dir));
       c.check("inode", one.st_ino == two.st_ino);
       c.check("device", one.st_dev == two.st_dev && one.st_dev == dir.st_dev);
       c.check("inode stays", [&] {
         struct stat again{};
         return ::stat("f", &again) == 0 && again.st_ino == one.st_ino;
       }());
       c.check("times", one.st_mtim.tv_nsec == two.st_mtim.tv_nsec &&
                            one.st_ctim.tv_nsec == two.st_ctim.tv_nsec);
     },
     anyone},
    {"statx",
     [](Ctx& c) {
       c.put("f", "data");
       c.dir("d");
       c.must("symlink", ::symlink("f", "s"));
       for (const char* path : {"f", "d", "s", "none"}) {
         struct statx st{};
         if (c.call("statx",
                    ::statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &st)) != 0) {
           continue;
         }
         c.check("basic", (st.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
         c.line(std::string(type_name(st.stx_mode)) + " nlink " + std::to_string(st.stx_nlink));
         c.check("blocks", st.stx_blksize > 0);
       }
       struct statx st{};
       c.call("force sync", ::statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC, STATX_SIZE, &st));
       c.line("size " + std::to_string(st.stx_size));
       c.call("dont sync", ::statx(AT_FDCWD, "f", AT_STATX_DONT_SYNC, STATX_SIZE, &st));
       c.line("size " + std::to_string(st.stx_size));
       c.call("empty path",
              ::statx(c.open("f", O_RDONLY), "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st));
       c.call("bad flag", ::statx(AT_FDCWD, "f", 0x40000000, STATX_BASIC_STATS, &st));
       c.call("bad mask", ::statx(AT_FDCWD, "f", 0, 0x80000000U, &st));
     },
     anyone},
    {"statx-btime",
     [](Ctx& c) {
       c.put("f", "data");
       struct statx first{};
       c.must("statx", ::statx(AT_FDCWD, "f", 0, STATX_ALL, &first));
       c.check("has a birth time", (first.stx_mask & STATX_BTIME) != 0);
       c.tick();
       c.put("f", "more");
       struct statx second{};
       c.must("statx", ::statx(AT_FDCWD, "f", 0, STATX_ALL, &second));
       c.check("it stays", first.stx_btime.tv_sec == second.stx_btime.tv_sec &&
                               first.stx_btime.tv_nsec == second.stx_btime.tv_nsec);
       int older = 0;
       for (int i = 0; i < 20; ++i) {
         const std::string path = "new" + std::to_string(i);
         c.put(path);
         c.must("statx", ::statx(AT_FDCWD, path.c_str(), 0, STATX_ALL, &first));
         older += std::pair(first.stx_mtime.tv_sec, first.stx_mtime.tv_nsec) <
                          std::pair(first.stx_btime.tv_sec, first.stx_btime.tv_nsec)
                      ? 1
                      : 0;
       }
       c.line("changed before their birth: " + std::to_string(older));
     },
     anyone},
    {"stat-empty-path",
     [](Ctx& c) {
       c.put("f", "data");
       struct stat st{};
       c.call("file", ::fstatat(c.open("f", O_PATH), "", &st, AT_EMPTY_PATH));
       c.line("size " + std::to_string(st.st_size));
       c.call("cwd", ::fstatat(AT_FDCWD, "", &st, AT_EMPTY_PATH));
       c.call("without the flag", ::fstatat(AT_FDCWD, "", &st, 0));
     },
     anyone},
    {"ioctl",
     [](Ctx& c) {
       c.put("f", "data");
       const int fd = c.open("f", O_RDONLY);
       int value = 0;
       c.call("FIONREAD", ::ioctl(fd, FIONREAD, &value));
       c.line("readable " + std::to_string(value));
       c.call("TCGETS", ::isatty(fd));
       c.call("unknown", ::ioctl(fd, 0x12345678, &value));
       c.call("FIONBIO", ::ioctl(fd, FIONBIO, &value));
     },
     anyone},
    {"mknod-devices",
     [](Ctx& c) {
       for (const mode_t type : {S_IFCHR, S_IFBLK}) {
         c.call("mknod", ::mknod("dev", type | 0640, makedev(1, 3)));
         struct stat st{};
         c.must("stat", ::lstat("dev", &st));
         c.stat("dev");
         c.line("device " + std::to_string(major(st.st_rdev)) + ":" +
                std::to_string(minor(st.st_rdev)));
         c.call("unlink", ::unlink("dev"));
       }
       c.call("large minor", ::mknod("dev", S_IFCHR | 0600, makedev(300, 70000)));
       struct stat st{};
       c.must("stat", ::lstat("dev", &st));
       c.line("device " + std::to_string(major(st.st_rdev)) + ":" +
              std::to_string(minor(st.st_rdev)));
     },
     root},
    {"mknod-device-as-user",
     [](Ctx& c) {
       c.must("chmod", ::chmod(".", 0777));
       const auto make = [&] {
         c.call("mknod", ::mknod("dev", S_IFCHR | 0640, makedev(1, 3)));
       };
       if (::geteuid() == 0) {
         c.as_user(1000, 1000, make);
       } else {
         make();
       }
       c.list();
     },
     anyone},
};

}  // namespace

std::span<const Case> attr_cases() {
  return cases;
}

}  // namespace parity
