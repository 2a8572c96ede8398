// SPDX-License-Identifier: BSD-3-Clause
// rename in all variants.
#include <linux/fs.h>
#include <sys/syscall.h>

#include <cstdio>

#include "parity.hpp"

namespace parity {
namespace {

void rename(const Ctx& c, const char* from, const char* to, unsigned flags = 0) {
  const long result = ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
  const int code = errno;
  std::string what = std::string("rename ") + from + " " + to;
  if (flags != 0) {
    what += " flags " + std::to_string(flags);
  }
  errno = code;
  c.call(what, result);
}

/// Creates two of every kind: file1, file2, dir1, dir2, full1, full2, link1, link2, fifo1, fifo2.
void two_of_each(const Ctx& c) {
  for (const char* n : {"1", "2"}) {
    const std::string number = n;
    c.put("file" + number, "file" + number);
    c.dir("dir" + number);
    c.dir("full" + number);
    c.put("full" + number + "/inner" + number, "inner" + number);
    c.must("symlink", ::symlink(("target" + number).c_str(), ("link" + number).c_str()));
    c.must("mkfifo", ::mkfifo(("fifo" + number).c_str(), 0600));
  }
}

void clear(const Ctx& c) {
  // Removes the objects of two_of_each, wherever renames moved them (one level).
  for (const char* kind : {"file", "dir", "full", "link", "fifo"}) {
    for (const char* n : {"1", "2"}) {
      const std::string name = std::string(kind) + n;
      for (const char* inner : {"inner1", "inner2"}) {
        ::unlink((name + "/" + inner).c_str());
      }
      if (::unlink(name.c_str()) != 0) {
        ::rmdir(name.c_str());
      }
    }
  }
  c.list();
}

/// Renames every kind over every other kind.
void every_pair(const Ctx& c, unsigned flags) {
  static constexpr const char* kinds[] = {"file", "dir", "full", "link", "fifo"};
  for (const char* from : kinds) {
    for (const char* to : kinds) {
      two_of_each(c);
      rename(c, (std::string(from) + "1").c_str(), (std::string(to) + "2").c_str(), flags);
      c.list();
      c.stat(std::string(from) + "1");
      c.stat(std::string(to) + "2");
      c.list(std::string(to) + "2");
      c.stat(".");
      clear(c);
    }
  }
}

constexpr Case cases[] = {
    {"rename-every-pair", [](Ctx& c) { every_pair(c, 0); }, anyone},
    {"rename-every-pair-noreplace", [](Ctx& c) { every_pair(c, RENAME_NOREPLACE); }, anyone},
    {"rename-every-pair-exchange", [](Ctx& c) { every_pair(c, RENAME_EXCHANGE); }, anyone},
    {"rename-simple",
     [](Ctx& c) {
       c.put("a", "content");
       rename(c, "a", "b");
       c.stat("a");
       c.content("b");
       rename(c, "a", "c");
       rename(c, "none", "b");
       c.content("b");
       rename(c, "b", "none/x");
       rename(c, "b", "");
       rename(c, "", "b");
       c.list();
     },
     anyone},
    {"rename-file-over-file",
     [](Ctx& c) {
       c.put("a", "new");
       c.put("b", "old");
       c.must("link", ::link("b", "keep"));
       rename(c, "a", "b");
       c.content("b");
       c.content("keep");
       c.stat("keep");
       c.list();
     },
     anyone},
    {"rename-over-open-file",
     [](Ctx& c) {
       c.put("a", "new");
       c.put("b", "old content");
       const int replaced = c.open("b", O_RDWR);
       const int moved = c.open("a", O_RDWR);
       rename(c, "a", "b");
       c.fstat("replaced", replaced);
       c.content("replaced", replaced);
       c.pwrite(replaced, "STILL", 0);
       c.content("replaced", replaced);
       c.call("truncate replaced", ::ftruncate(replaced, 3));
       c.fstat("replaced", replaced);
       c.pwrite(moved, "written after", 0);
       c.content("b");
       c.list();
     },
     anyone},
    {"rename-checkpoint",
     [](Ctx& c) {
       for (int round = 0; round < 5; ++round) {
         c.put("c.tmp", "checkpoint " + std::to_string(round) + pattern(5000, round));
         rename(c, "c.tmp", "c");
         c.content("c");
         c.stat("c.tmp");
       }
       const int fd = c.open("c", O_WRONLY | O_APPEND);
       c.write(fd, " appended");
       c.content("c");
       c.list();
     },
     anyone},
    {"rename-checkpoint-open-descriptors",
     [](Ctx& c) {
       c.put("c", "first");
       const int old = c.open("c", O_RDONLY);
       for (int round = 0; round < 3; ++round) {
         const int fd = c.open("c.tmp", O_RDWR | O_CREAT | O_TRUNC);
         c.write(fd, "round " + std::to_string(round));
         rename(c, "c.tmp", "c");
         c.write(fd, " after the rename");
         c.call("fsync", ::fsync(fd));
         c.content("c");
         c.content("first", old);
         c.fstat("this round", fd);
       }
     },
     anyone},
    {"rename-keep-backup",
     [](Ctx& c) {
       c.put("c", "0");
       for (const char* round : {"1", "2", "3"}) {
         c.put("c.new", round);
         ::unlink("c.old");
         c.call("link", ::link("c", "c.old"));
         rename(c, "c.new", "c");
         c.content("c");
         c.content("c.old");
         c.stat("c.old");
       }
     },
     anyone},
    {"rename-same-name",
     [](Ctx& c) {
       c.put("a", "x");
       c.dir("d");
       rename(c, "a", "a");
       rename(c, "d", "d");
       rename(c, "a", "./a");
       rename(c, "a", "d/../a");
       rename(c, "a", "a", RENAME_NOREPLACE);
       rename(c, "a", "a", RENAME_EXCHANGE);
       rename(c, "none", "none");
       c.list();
     },
     anyone},
    {"rename-hard-link-to-itself",
     [](Ctx& c) {
       c.dir("d");
       c.put("a", "x");
       c.must("link", ::link("a", "b"));
       c.must("link", ::link("a", "d/c"));
       rename(c, "a", "b");
       rename(c, "a", "d/c");
       rename(c, "a", "b", RENAME_NOREPLACE);
       rename(c, "a", "b", RENAME_EXCHANGE);
       c.stat("a");
       c.list();
       c.list("d");
     },
     anyone},
    {"rename-into-own-subtree",
     [](Ctx& c) {
       c.dir("a");
       c.dir("a/b");
       c.dir("a/b/c");
       rename(c, "a", "a/x");
       rename(c, "a", "a/b/c/x");
       rename(c, "a", "a/b");
       rename(c, "a/b", "a");
       rename(c, "a/b/c", "a");
       rename(c, "a", "a/b/c", RENAME_EXCHANGE);
       rename(c, "a/b/c", "a", RENAME_EXCHANGE);
       c.list("a/b");
     },
     anyone},
    {"rename-dots",
     [](Ctx& c) {
       c.dir("a");
       c.dir("b");
       for (const char* dot : {".", "..", "a/.", "a/..", "./."}) {
         rename(c, dot, "x");
         rename(c, "b", dot);
       }
       c.list();
     },
     anyone},
    {"rename-trailing-slash",
     [](Ctx& c) {
       two_of_each(c);
       rename(c, "dir1/", "moved");
       rename(c, "moved", "again/");
       rename(c, "again/", "dir2/");
       rename(c, "file1/", "x");
       rename(c, "file1", "x/");
       rename(c, "file1", "full1/");
       rename(c, "link1/", "x");
       c.list();
     },
     anyone},
    {"rename-bad-flags",
     [](Ctx& c) {
       c.put("a");
       c.put("b");
       for (const unsigned flags : {3U, 6U, 8U, 0x80U}) {
         rename(c, "a", "b", flags);
       }
       rename(c, "a", "none", RENAME_EXCHANGE);
       rename(c, "none", "a", RENAME_EXCHANGE);
       rename(c, "a", "new", RENAME_NOREPLACE);
       c.list();
     },
     anyone},
    {"rename-whiteout",
     [](Ctx& c) {
       c.put("a");
       rename(c, "a", "b", RENAME_WHITEOUT);
       c.put("c");
       c.put("d");
       rename(c, "c", "d", RENAME_WHITEOUT | RENAME_EXCHANGE);
       c.list();
     },
     anyone},
    {"rename-exchange-across-directories",
     [](Ctx& c) {
       c.dir("d1");
       c.dir("d2");
       c.put("d1/file", "one");
       c.dir("d2/dir");
       c.put("d2/dir/inner", "inner");
       rename(c, "d1/file", "d2/dir", RENAME_EXCHANGE);
       for (const char* path : {"d1", "d2", "d1/file", "d2/dir"}) {
         c.stat(path), c.list(path);
       }
       c.content("d2/dir");
       c.content("d1/file/inner");
       c.put("d1/file/new", "new");
       c.list("d1/file/..");
     },
     anyone},
    {"rename-exchange-dirs-open",
     [](Ctx& c) {
       c.dir("a");
       c.dir("b");
       c.put("a/x", "in a");
       c.put("b/x", "in b");
       const int fd = c.open("a/x", O_RDWR);
       const int dir = c.open("a", O_RDONLY);
       rename(c, "a", "b", RENAME_EXCHANGE);
       c.content("a/x");
       c.content("b/x");
       c.pwrite(fd, "IN A", 0);
       c.content("b/x");
       c.content("by directory", c.opened("openat", ::openat(dir, "x", O_RDONLY)));
     },
     anyone},
    {"rename-across-directories",
     [](Ctx& c) {
       c.dir("from");
       c.dir("to");
       c.put("from/file", "x");
       c.dir("from/dir");
       c.put("from/dir/inner", "y");
       rename(c, "from/file", "to/file");
       rename(c, "from/dir", "to/dir");
       for (const char* path : {"from", "to", "to/dir", "to/dir/.."}) {
         c.stat(path), c.list(path);
       }
       c.content("to/dir/inner");
       c.content("to/dir/../file");
     },
     anyone},
    {"rename-directory-with-children",
     [](Ctx& c) {
       c.dir("a");
       c.dir("a/sub");
       c.put("a/sub/file", "first");
       const int fd = c.open("a/sub/file", O_RDWR | O_APPEND);
       const int dir = c.open("a/sub", O_RDONLY);
       rename(c, "a", "b");
       c.stat("a/sub/file");
       c.content("b/sub/file");
       c.write(fd, " second");
       c.content("b/sub/file");
       c.put("b/sub/new", "new");
       c.opened("create by directory", ::openat(dir, "by-fd", O_RDWR | O_CREAT, 0600));
       c.call("truncate", ::truncate("b/sub/file", 2));
       c.content("file", fd);
       c.call("unlink", ::unlink("b/sub/file"));
       c.list("b/sub");
       c.dir("a");
       c.list("a");
       rename(c, "b/sub", "a/sub");
       c.list("a/sub");
       c.call("rmdir", ::rmdir("b"));
     },
     anyone},
    {"rename-moved-directory-parent",
     [](Ctx& c) {
       c.dir("p1");
       c.dir("p2");
       c.dir("p1/d");
       c.put("p1/mark1");
       c.put("p2/mark2");
       const int dir = c.open("p1/d", O_RDONLY);
       c.same_inode("p1/d/..", "p1");
       rename(c, "p1/d", "p2/d");
       c.same_inode("p2/d/..", "p2");
       c.opened("mark1 by ..", ::openat(dir, "../mark1", O_RDONLY));
       c.opened("mark2 by ..", ::openat(dir, "../mark2", O_RDONLY));
       c.list("p2/d/..");
     },
     anyone},
    {"rename-parent-of-cwd",
     [](Ctx& c) {
       c.dir("a");
       c.dir("a/b");
       c.call("chdir", ::chdir("a/b"));
       c.cwd();
       rename(c, "../../a", "../../z");
       c.cwd();
       c.put("here", "x");
       c.list("..");
       c.content("../b/here");
       rename(c, "../b", "../../b");
       c.cwd();
       c.list("..");
     },
     anyone},
    {"rename-over-cwd-of-another",
     [](Ctx& c) {
       c.dir("a");
       c.dir("b");
       c.put("a/file", "x");
       const int dir = c.open("b", O_RDONLY);
       rename(c, "a", "b");
       c.fstat("replaced", dir);
       c.opened("create in replaced", ::openat(dir, "x", O_RDWR | O_CREAT, 0600));
       c.list("b");
       c.call("fchdir", ::fchdir(dir));
       c.cwd();
     },
     anyone},
    {"rename-symlink",
     [](Ctx& c) {
       c.put("file", "x");
       c.must("symlink", ::symlink("file", "link"));
       rename(c, "link", "moved");
       c.target("moved");
       c.content("moved");
       rename(c, "file", "moved");
       c.content("moved");
       c.stat("moved");
       c.list();
     },
     anyone},
    {"rename-back-and-forth",
     [](Ctx& c) {
       c.put("a", "content");
       const int fd = c.open("a", O_RDWR | O_APPEND);
       for (int i = 0; i < 200; ++i) {
         c.must("rename", i % 2 == 0 ? ::rename("a", "b") : ::rename("b", "a"));
         c.must("write", ::write(fd, "+", 1));
       }
       c.content("a");
       c.list();
     },
     anyone},
    {"rename-then-create-old-name",
     [](Ctx& c) {
       c.put("a", "old");
       rename(c, "a", "b");
       c.put("a", "new");
       c.content("a");
       c.content("b");
       c.check("two inodes", [] {
         struct stat one{};
         struct stat two{};
         return ::stat("a", &one) == 0 && ::stat("b", &two) == 0 && one.st_ino != two.st_ino;
       }());
       rename(c, "b", "a");
       c.content("a");
       c.list();
     },
     anyone},
    {"rename-long-name",
     [](Ctx& c) {
       c.put("a", "x");
       const std::string fits(255, 'n');
       const std::string over(256, 'n');
       c.call("to 255", ::rename("a", fits.c_str()));
       c.call("to 256", ::rename(fits.c_str(), over.c_str()));
       c.content(fits);
     },
     anyone},
};

}  // namespace

std::span<const Case> rename_cases() {
  return cases;
}

}  // namespace parity
