// SPDX-License-Identifier: BSD-3-Clause
// open and its flags.
#include <linux/openat2.h>
#include <sys/syscall.h>

#include "parity.hpp"

namespace parity {
namespace {

/// Opens `name` with every combination of the flags; `make` creates it anew each time.
void every_flag(const Ctx& c, void (*make)(const Ctx&)) {
  static constexpr int bits[] = {O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW};
  for (const int access : {O_RDONLY, O_WRONLY, O_RDWR}) {
    for (unsigned set = 0; set < 64; ++set) {
      int flags = access;
      for (unsigned bit = 0; bit < 6; ++bit) {
        flags |= (set >> bit & 1U) != 0 ? bits[bit] : 0;
      }
      for (const char* name : {"name", "to"}) {
        if (::unlink(name) != 0) {
          ::rmdir(name);
        }
      }
      make(c);
      const int fd = c.open("name", flags, 0640);
      if (fd >= 0) {
        struct stat st{};
        c.must("fstat", ::fstat(fd, &st));
        if (S_ISREG(st.st_mode)) {
          c.call("  write", ::write(fd, "xyz", 3));
          c.line("  size " + std::to_string(st.st_size));
        }
        ::close(fd);
      }
      c.stat("name");
      c.stat("to");
    }
  }
}

void open_everything_as_path(Ctx& c, int extra) {
  c.put("file", "data");
  c.dir("dir");
  c.must("symlink", ::symlink("file", "link"));
  c.must("symlink", ::symlink("nowhere", "dangling"));
  c.must("mkfifo", ::mkfifo("fifo", 0600));
  for (const char* name : {"file", "dir", "link", "dangling", "fifo", "none"}) {
    const int fd = c.open(name, O_PATH | extra);
    if (fd < 0) {
      continue;
    }
    char byte = 0;
    c.fstat(name, fd);
    c.call("read", ::read(fd, &byte, 1));
    c.call("write", ::write(fd, "x", 1));
    c.call("fchmod", ::fchmod(fd, 0600));
    c.call("ftruncate", ::ftruncate(fd, 0));
    c.opened("openat below", ::openat(fd, "sub", O_RDONLY));
    char text[16];
    c.call("readlinkat empty", ::readlinkat(fd, "", text, sizeof text));
  }
}

constexpr Case cases[] = {
    {"open-flags-missing", [](Ctx& c) { every_flag(c, [](const Ctx&) {}); }, anyone},
    {"open-flags-file", [](Ctx& c) { every_flag(c, [](const Ctx& x) { x.put("name", "12345"); }); },
     anyone},
    {"open-flags-dir", [](Ctx& c) { every_flag(c, [](const Ctx& x) { x.dir("name"); }); }, anyone},
    {"open-flags-link-to-file",
     [](Ctx& c) {
       every_flag(c, [](const Ctx& x) {
         x.put("to", "12345");
         x.must("symlink", ::symlink("to", "name"));
       });
     },
     anyone},
    {"open-flags-link-to-dir",
     [](Ctx& c) {
       every_flag(c, [](const Ctx& x) {
         x.dir("to");
         x.must("symlink", ::symlink("to", "name"));
       });
     },
     anyone},
    {"open-flags-link-dangling",
     [](Ctx& c) {
       every_flag(c, [](const Ctx& x) { x.must("symlink", ::symlink("to", "name")); });
     },
     anyone},
    {"open-path", [](Ctx& c) { open_everything_as_path(c, 0); }, anyone},
    {"open-path-nofollow", [](Ctx& c) { open_everything_as_path(c, O_NOFOLLOW); }, anyone},
    {"open-path-directory", [](Ctx& c) { open_everything_as_path(c, O_DIRECTORY); }, anyone},
    {"open-accmode-3",
     [](Ctx& c) {
       c.put("file", "data");
       const int fd = c.open("file", O_ACCMODE);
       char byte = 0;
       c.call("read", ::read(fd, &byte, 1));
       c.call("write", ::write(fd, "x", 1));
     },
     anyone},
    {"open-rdonly-trunc",
     [](Ctx& c) {
       c.put("file", "data");
       const int fd = c.open("file", O_RDONLY | O_TRUNC);
       c.fstat("file", fd);
       c.read(fd, 10);
       c.write(fd, "x");
     },
     anyone},
    {"open-trunc-keeps-inode",
     [](Ctx& c) {
       c.put("file", "data");
       c.must("link", ::link("file", "other"));
       const int old = c.open("file", O_RDONLY);
       c.open("file", O_WRONLY | O_TRUNC);
       c.same_inode("file", "other");
       c.fstat("old descriptor", old);
       c.read(old, 4);
     },
     anyone},
    {"open-create-mode-umask",
     [](Ctx& c) {
       for (const mode_t mask : {0U, 022U, 077U, 0777U}) {
         ::umask(mask);
         for (const mode_t mode :
              {0U, 0400U, 0644U, 0666U, 0777U, 04755U, 02755U, 01777U, 07777U}) {
           const int fd = c.open("file", O_RDWR | O_CREAT | O_EXCL, mode);
           c.stat("file");
           c.write(fd, "ok whatever the mode");
           ::close(fd);
           c.must("unlink", ::unlink("file"));
         }
       }
     },
     anyone},
    {"open-trailing-slash",
     [](Ctx& c) {
       c.put("file", "data");
       c.dir("dir");
       c.open("file/", O_RDONLY);
       c.open("file/.", O_RDONLY);
       c.open("file/sub", O_RDONLY);
       c.open("file/sub", O_RDWR | O_CREAT);
       c.open("dir/", O_RDONLY);
       c.open("new/", O_RDWR | O_CREAT);
       c.open("dir/", O_RDWR | O_CREAT);
       c.open("", O_RDONLY);
       c.open(".", O_RDONLY);
       c.open(".", O_RDWR);
       c.open("..", O_RDONLY | O_DIRECTORY);
       c.open("none/sub", O_RDWR | O_CREAT);
       c.list();
     },
     anyone},
    {"openat-relative",
     [](Ctx& c) {
       c.dir("dir");
       c.put("dir/file", "inner");
       c.put("file", "outer");
       const int dir = c.open("dir", O_RDONLY | O_DIRECTORY);
       const int file = c.open("file", O_RDONLY);
       c.content("inner", c.opened("openat dir file", ::openat(dir, "file", O_RDONLY)));
       c.content("outer", c.opened("openat dir ../file", ::openat(dir, "../file", O_RDONLY)));
       c.opened("openat on a file", ::openat(file, "file", O_RDONLY));
       c.opened("openat on a bad descriptor", ::openat(999, "file", O_RDONLY));
       c.opened("openat absolute, bad descriptor",
                ::openat(999, (c.base() + "/file").c_str(), O_RDONLY));
       c.opened("openat create", ::openat(dir, "new", O_RDWR | O_CREAT | O_EXCL, 0600));
       c.call("mkdirat", ::mkdirat(dir, "sub", 0700));
       c.call("symlinkat", ::symlinkat("x", dir, "link"));
       c.call("renameat", ::renameat(dir, "new", AT_FDCWD, "moved"));
       c.call("unlinkat", ::unlinkat(dir, "file", 0));
       c.call("unlinkat sub as a file", ::unlinkat(dir, "sub", 0));
       c.call("unlinkat sub", ::unlinkat(dir, "sub", AT_REMOVEDIR));
       c.call("unlinkat link as a directory", ::unlinkat(dir, "link", AT_REMOVEDIR));
       c.call("unlinkat bad flag", ::unlinkat(dir, "link", 1));
       c.list("dir");
       c.list();
     },
     anyone},
    {"openat-after-removal-of-dir",
     [](Ctx& c) {
       c.dir("dir");
       const int dir = c.open("dir", O_RDONLY | O_DIRECTORY);
       c.call("rmdir", ::rmdir("dir"));
       c.opened("openat create", ::openat(dir, "new", O_RDWR | O_CREAT, 0600));
       c.opened("openat .", ::openat(dir, ".", O_RDONLY));
       c.call("mkdirat", ::mkdirat(dir, "sub", 0700));
       c.fstat("removed directory", dir);
     },
     anyone},
    {"openat2-resolve",
     [](Ctx& c) {
       c.dir("dir");
       c.put("file", "data");
       c.put("dir/inner", "inner");
       c.must("symlink", ::symlink("../file", "dir/out"));
       c.must("symlink", ::symlink("inner", "dir/in"));
       const int dir = c.open("dir", O_RDONLY | O_DIRECTORY);
       for (const unsigned long resolve : {0UL, RESOLVE_BENEATH + 0UL, RESOLVE_IN_ROOT + 0UL,
                                           RESOLVE_NO_SYMLINKS + 0UL, RESOLVE_NO_XDEV + 0UL}) {
         for (const char* name : {"inner", "in", "out", "../file"}) {
           open_how how{};
           how.flags = O_RDONLY;
           how.resolve = resolve;
           c.opened("openat2 " + std::string(name) + " " + std::to_string(resolve),
                    static_cast<int>(::syscall(SYS_openat2, dir, name, &how, sizeof how)));
         }
       }
     },
     anyone},
    {"open-tmpfile-flags",
     [](Ctx& c) {
       c.put("file", "data");
       for (const int flags :
            {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_EXCL, O_RDWR | O_CREAT, O_RDWR | O_APPEND}) {
         for (const char* name : {".", "file", "none"}) {
           c.open(name, O_TMPFILE | flags, 0600);
         }
       }
       c.list();
     },
     anyone},
    {"open-tmpfile-use",
     [](Ctx& c) {
       const int fd = c.open(".", O_TMPFILE | O_RDWR, 0640);
       c.fstat("new", fd);
       c.write(fd, "content");
       c.pread(fd, 20, 0);
       c.call("ftruncate", ::ftruncate(fd, 3));
       c.fstat("cut", fd);
       c.list();
     },
     anyone},
    {"open-tmpfile-link",
     [](Ctx& c) {
       const int fd = c.open(".", O_TMPFILE | O_RDWR, 0640);
       c.write(fd, "content");
       const std::string path = "/proc/self/fd/" + std::to_string(fd);
       c.call("linkat", ::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
       c.call("linkat again",
              ::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
       c.call("linkat second name",
              ::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "second", AT_SYMLINK_FOLLOW));
       c.fstat("tmpfile", fd);
       c.content("named");
       c.write(fd, " more");
       c.content("second");
     },
     anyone},
    {"open-tmpfile-excl-no-link",
     [](Ctx& c) {
       const int fd = c.open(".", O_TMPFILE | O_RDWR | O_EXCL, 0640);
       const std::string path = "/proc/self/fd/" + std::to_string(fd);
       c.call("linkat", ::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
       c.list();
     },
     anyone},
    {"open-proc-self-fd",
     [](Ctx& c) {
       c.put("file", "data");
       const int fd = c.open("file", O_RDONLY);
       const std::string path = "/proc/self/fd/" + std::to_string(fd);
       const int again = c.opened("reopen for writing", ::open(path.c_str(), O_RDWR));
       c.write(again, "DA");
       c.content("file");
       c.call("unlink", ::unlink("file"));
       const int gone = c.opened("reopen unlinked", ::open(path.c_str(), O_RDWR));
       c.write(gone, "gone");
       c.content("unlinked", fd);
       const int path_fd = c.open(".", O_PATH);
       c.opened("reopen O_PATH", ::open(("/proc/self/fd/" + std::to_string(path_fd)).c_str(),
                                        O_RDONLY | O_DIRECTORY));
     },
     anyone},
    {"open-getfl-setfl",
     [](Ctx& c) {
       for (const int flags : {O_RDONLY, O_WRONLY | O_APPEND, O_RDWR | O_SYNC, O_RDWR | O_DSYNC,
                               O_RDWR | O_NONBLOCK}) {
         const int fd = c.open("file", flags | O_CREAT);
         c.line("flags " + open_flags(::fcntl(fd, F_GETFL) & ~O_LARGEFILE & ~0100000));
       }
       const int fd = c.open("file", O_RDWR);
       c.write(fd, "abc");
       c.must("seek", ::lseek(fd, 0, SEEK_SET));
       c.call("set append", ::fcntl(fd, F_SETFL, O_APPEND));
       c.write(fd, "END");
       c.call("clear append", ::fcntl(fd, F_SETFL, 0));
       c.must("seek", ::lseek(fd, 0, SEEK_SET));
       c.write(fd, "X");
       c.content("file");
     },
     anyone},
    {"open-noatime",
     [](Ctx& c) { c.put("file", "data"), c.read(c.open("file", O_RDONLY | O_NOATIME), 4); },
     anyone},
    {"open-many",
     [](Ctx& c) {
       int good = 0;
       for (int i = 0; i < 500; ++i) {
         good += ::open(("f" + std::to_string(i % 50)).c_str(), O_RDWR | O_CREAT, 0600) >= 0;
       }
       c.line("opened " + std::to_string(good));
       c.list();
     },
     anyone},
    {"dup-shares-offset",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       const int copy = ::dup(fd);
       c.write(fd, "one ");
       c.write(copy, "two ");
       c.must("close", ::close(fd));
       c.write(copy, "three");
       c.call("seek", ::lseek(copy, 0, SEEK_CUR));
       c.content("file");
     },
     anyone},
    {"fork-shares-offset",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.write(fd, "parent ");
       c.in_child([&] { c.write(fd, "child "); });
       c.write(fd, "parent");
       c.content("file");
       c.must("seek", ::lseek(fd, 0, SEEK_SET));
       c.in_child([&] { c.read(fd, 7); });
       c.read(fd, 5);
     },
     anyone},
    {"close-twice",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.call("close", ::close(fd));
       c.call("close", ::close(fd));
       c.write(fd, "x");
     },
     anyone},
};

}  // namespace

std::span<const Case> open_cases() {
  return cases;
}

}  // namespace parity
