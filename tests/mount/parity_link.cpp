// SPDX-License-Identifier: BSD-3-Clause
// Hard links, symbolic links, unlink.
#include "parity.hpp"

namespace parity {
namespace {

constexpr Case cases[] = {
    {"link-counts",
     [](Ctx& c) {
       c.put("a", "data");
       c.dir("d");
       c.call("link", ::link("a", "b"));
       c.call("link across", ::link("a", "d/c"));
       for (const char* path : {"a", "b", "d/c"}) {
         c.stat(path);
       }
       c.same_inode("a", "d/c");
       c.put("b", "changed");
       c.content("d/c");
       c.call("unlink", ::unlink("a"));
       c.stat("b");
       c.call("chmod", ::chmod("b", 0600));
       c.stat("d/c");
       c.call("unlink", ::unlink("b"));
       c.stat("d/c");
       c.content("d/c");
     },
     anyone},
    {"link-errors",
     [](Ctx& c) {
       c.put("a", "data");
       c.put("b", "data");
       c.dir("d");
       c.must("symlink", ::symlink("none", "dangling"));
       c.call("over file", ::link("a", "b"));
       c.call("over itself", ::link("a", "a"));
       c.call("over dir", ::link("a", "d"));
       c.call("over dangling", ::link("a", "dangling"));
       c.call("dir", ::link("d", "e"));
       c.call("none", ::link("none", "e"));
       c.call("into none", ::link("a", "none/e"));
       c.call("below file", ::link("a", "b/e"));
       c.call("slash", ::link("a", "e/"));
       c.call("slash from", ::link("a/", "e"));
       c.call("empty", ::link("a", ""));
       c.call("bad flag", ::linkat(AT_FDCWD, "a", AT_FDCWD, "e", 1));
       c.list();
     },
     anyone},
    {"link-to-symlink",
     [](Ctx& c) {
       c.put("a", "data");
       c.must("symlink", ::symlink("a", "s"));
       c.call("the link", ::linkat(AT_FDCWD, "s", AT_FDCWD, "s2", 0));
       c.call("its target", ::linkat(AT_FDCWD, "s", AT_FDCWD, "a2", AT_SYMLINK_FOLLOW));
       for (const char* path : {"s", "s2", "a", "a2"}) {
         c.stat(path);
       }
       c.target("s2");
     },
     anyone},
    {"link-after-unlink",
     [](Ctx& c) {
       c.put("a", "data");
       const int fd = c.open("a", O_RDWR);
       c.must("unlink", ::unlink("a"));
       const std::string path = "/proc/self/fd/" + std::to_string(fd);
       c.call("link removed",
              ::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "back", AT_SYMLINK_FOLLOW));
       c.list();
     },
     anyone},
    {"link-by-descriptor",
     [](Ctx& c) {
       c.put("a", "data");
       const int fd = c.open("a", O_RDWR);
       const std::string path = "/proc/self/fd/" + std::to_string(fd);
       c.call("link", ::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "b", AT_SYMLINK_FOLLOW));
       c.fstat("a", fd);
       c.same_inode("a", "b");
     },
     anyone},
    {"link-empty-path-root",
     [](Ctx& c) {
       c.put("a", "data");
       c.call("file", ::linkat(c.open("a", O_RDWR), "", AT_FDCWD, "b", AT_EMPTY_PATH));
       const int fd = c.open(".", O_TMPFILE | O_RDWR);
       c.write(fd, "tmpfile");
       c.call("tmpfile", ::linkat(fd, "", AT_FDCWD, "c", AT_EMPTY_PATH));
       c.call("directory", ::linkat(c.open(".", O_RDONLY), "", AT_FDCWD, "d", AT_EMPTY_PATH));
       c.content("c");
       c.stat("a");
       c.list();
     },
     root},
    {"link-many",
     [](Ctx& c) {
       c.put("a", "data");
       for (int i = 0; i < 300; ++i) {
         c.must("link", ::link("a", ("l" + std::to_string(i)).c_str()));
       }
       c.stat("a");
       for (int i = 0; i < 300; i += 2) {
         c.must("unlink", ::unlink(("l" + std::to_string(i)).c_str()));
       }
       c.stat("l1");
       c.list();
     },
     anyone},
    {"link-write-through-both",
     [](Ctx& c) {
       c.put("a", "0123456789");
       c.must("link", ::link("a", "b"));
       const int a = c.open("a", O_RDWR);
       const int b = c.open("b", O_RDWR);
       c.pwrite(a, "AAA", 0);
       c.pread(b, 10, 0);
       c.call("truncate", ::ftruncate(b, 5));
       c.fstat("a", a);
       c.pwrite(b, "BBB", 8);
       c.content("a");
     },
     anyone},
    {"symlink-targets",
     [](Ctx& c) {
       int number = 0;
       for (const std::size_t length :
            {0, 1, 59, 60, 61, 127, 128, 255, 256, 1000, 4094, 4095, 4096, 5000}) {
         const std::string target(length, 't');
         const std::string name = "s" + std::to_string(number++);
         c.call("symlink of " + std::to_string(length), ::symlink(target.c_str(), name.c_str()));
         c.stat(name);
         c.target(name);
       }
     },
     anyone},
    {"symlink-odd-targets",
     [](Ctx& c) {
       for (const char* target : {"/", "//a//b/", "with space", "new\nline", "\xff\xfe",
                                  "caf\xc3\xa9", "..", "./x/../y"}) {
         c.call("symlink", ::symlink(target, "s"));
         c.target("s");
         c.must("unlink", ::unlink("s"));
       }
     },
     anyone},
    {"symlink-errors",
     [](Ctx& c) {
       c.put("a");
       c.dir("d");
       c.call("over file", ::symlink("x", "a"));
       c.call("over dir", ::symlink("x", "d"));
       c.call("in none", ::symlink("x", "none/y"));
       c.call("below file", ::symlink("x", "a/y"));
       c.call("slash", ::symlink("x", "y/"));
       c.call("empty name", ::symlink("x", ""));
       c.target("a");
       c.target("d");
       c.target("none");
       c.list();
     },
     anyone},
    {"symlink-dangling-and-loops",
     [](Ctx& c) {
       c.must("symlink", ::symlink("none", "dangling"));
       c.must("symlink", ::symlink("self", "self"));
       c.must("symlink", ::symlink("pong", "ping"));
       c.must("symlink", ::symlink("ping", "pong"));
       for (const char* path : {"dangling", "self", "ping", "self/x", "dangling/x"}) {
         struct stat st{};
         c.call(std::string("stat ") + path, ::stat(path, &st));
         c.open(path, O_RDONLY);
         c.call("chmod", ::chmod(path, 0600));
         c.call("truncate", ::truncate(path, 0));
         c.call("rmdir", ::rmdir(path));
         c.call("mkdir", ::mkdir(path, 0700));
       }
       c.open("dangling", O_RDWR | O_CREAT);
       c.list();
     },
     anyone},
    {"symlink-chain-length",
     [](Ctx& c) {
       c.put("l0", "end");
       for (int i = 1; i <= 45; ++i) {
         c.must("symlink", ::symlink(("l" + std::to_string(i - 1)).c_str(),
                                     ("l" + std::to_string(i)).c_str()));
       }
       for (const char* path : {"l1", "l10", "l39", "l40", "l41", "l45"}) {
         c.content(path);
       }
     },
     anyone},
    {"symlink-walk",
     [](Ctx& c) {
       c.dir("d");
       c.dir("d/e");
       c.put("d/e/file", "deep");
       c.must("symlink", ::symlink("d/e", "rel"));
       c.must("symlink", ::symlink((c.base() + "/d").c_str(), "abs"));
       c.must("symlink", ::symlink("..", "d/e/up"));
       for (const char* path :
            {"rel/file", "abs/e/file", "rel/up/e/file", "abs/../d/e/file", "rel/../e/file"}) {
         c.content(path);
       }
       c.put("rel/new", "x");
       c.list("d/e");
     },
     anyone},
    {"readlink-buffer",
     [](Ctx& c) {
       c.must("symlink", ::symlink("0123456789", "s"));
       char text[20] = {};
       for (const std::size_t size : {1, 5, 9, 10, 11, 20}) {
         c.call("readlink " + std::to_string(size), ::readlink("s", text, size));
         c.line(show({text, std::min<std::size_t>(size, 10)}));
       }
       c.call("readlink 0", ::readlink("s", text, 0));
       const int fd = c.open("s", O_PATH | O_NOFOLLOW);
       c.call("readlinkat empty", ::readlinkat(fd, "", text, sizeof text));
     },
     anyone},
    {"symlink-mode",
     [](Ctx& c) {
       ::umask(077);
       c.must("symlink", ::symlink("x", "s"));
       c.stat("s");
       c.call("fchmodat nofollow", ::fchmodat(AT_FDCWD, "s", 0600, AT_SYMLINK_NOFOLLOW));
       c.stat("s");
     },
     anyone},
    {"unlink-open-file",
     [](Ctx& c) {
       c.put("a", "data");
       const int fd = c.open("a", O_RDWR);
       const int reader = c.open("a", O_RDONLY);
       c.call("unlink", ::unlink("a"));
       c.list();
       c.fstat("a", fd);
       c.content("a", fd);
       c.pwrite(fd, "more data", 2);
       c.content("by reader", reader);
       c.call("truncate", ::ftruncate(fd, 3));
       c.call("chmod", ::fchmod(fd, 0600));
       c.fstat("a", reader);
       c.call("fsync", ::fsync(fd));
       c.call("extend", ::ftruncate(fd, 100000));
       c.content("by reader", reader);
       c.put("a", "a new one");
       c.content("a");
       c.fstat("old", fd);
       c.must("close", ::close(reader));
       c.content("old", fd);
     },
     anyone},
    {"unlink-open-then-rmdir",
     [](Ctx& c) {
       c.dir("d");
       c.put("d/a", "data");
       const int fd = c.open("d/a", O_RDWR);
       c.call("unlink", ::unlink("d/a"));
       c.list("d");
       c.call("rmdir", ::rmdir("d"));
       c.content("a", fd);
       c.write(fd, "DATA!");
       c.content("a", fd);
       c.list();
     },
     anyone},
    {"unlink-by-another-process",
     [](Ctx& c) {
       c.put("a", "data");
       const int fd = c.open("a", O_RDWR);
       c.in_child([&] { c.call("unlink", ::unlink("a")); });
       c.fstat("a", fd);
       c.content("a", fd);
       c.stat("a");
     },
     anyone},
    {"unlink-errors",
     [](Ctx& c) {
       c.dir("d");
       c.put("f");
       c.call("dir", ::unlink("d"));
       c.call("dir slash", ::unlink("d/"));
       c.call("dot", ::unlink("."));
       c.call("dot dot", ::unlink(".."));
       c.call("none", ::unlink("none"));
       c.call("file slash", ::unlink("f/"));
       c.call("below file", ::unlink("f/x"));
       c.call("empty", ::unlink(""));
       c.call("read-only file", (::chmod("f", 0), ::unlink("f")));
       c.list();
     },
     anyone},
    {"unlink-recreate",
     [](Ctx& c) {
       for (int i = 0; i < 100; ++i) {
         c.put("a", std::to_string(i));
         c.must("unlink", ::unlink("a"));
       }
       c.stat("a");
       c.put("a", "last");
       c.stat("a");
       c.content("a");
     },
     anyone},
    {"remove-symlink-kinds",
     [](Ctx& c) {
       c.dir("d");
       c.must("symlink", ::symlink("d", "s"));
       c.call("rmdir", ::rmdir("s"));
       c.call("rmdir slash", ::rmdir("s/"));
       c.call("unlink slash", ::unlink("s/"));
       c.call("unlink", ::unlink("s"));
       c.list();
     },
     anyone},
};

}  // namespace

std::span<const Case> link_cases() {
  return cases;
}

}  // namespace parity
