// SPDX-License-Identifier: BSD-3-Clause
// Permissions: refusals for an ordinary user, and for root the checks that root overrides.
#include "parity.hpp"

namespace parity {
namespace {

constexpr Case cases[] = {
    {"access-file-modes",
     [](Ctx& c) {
       c.put("f", "data");
       for (mode_t mode = 0; mode < 8; ++mode) {
         c.must("chmod", ::chmod("f", mode << 6U));
         for (int want = 0; want < 8; ++want) {
           c.call("mode " + std::to_string(mode) + " access " + std::to_string(want),
                  ::access("f", want));
         }
       }
     },
     anyone},
    {"access-kinds",
     [](Ctx& c) {
       c.put("f");
       c.dir("d");
       c.must("symlink", ::symlink("none", "s"));
       for (const char* path : {"f", "d", "s", "none", "f/x"}) {
         c.call(std::string("access ") + path, ::access(path, F_OK));
         c.call("faccessat eaccess", ::faccessat(AT_FDCWD, path, W_OK, AT_EACCESS));
         c.call("faccessat nofollow", ::faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW));
       }
       c.call("bad mode", ::access("f", 77));
     },
     anyone},
    {"permission-file-modes",
     [](Ctx& c) {
       c.put("f", "data");
       for (mode_t mode = 0; mode < 8; ++mode) {
         c.must("chmod", ::chmod("f", mode << 6U));
         c.line("mode " + std::to_string(mode));
         for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC}) {
           c.open("f", flags);
         }
         c.call("truncate", ::truncate("f", 2));
         c.call("utimensat now", ::utimensat(AT_FDCWD, "f", nullptr, 0));
       }
     },
     anyone},
    {"permission-directory-modes",
     [](Ctx& c) {
       c.dir("d");
       for (mode_t mode = 0; mode < 8; ++mode) {
         c.put("d/f", "data");
         c.put("d/gone");
         ::rmdir("d/sub");
         c.must("chmod", ::chmod("d", mode << 6U));
         c.line("mode " + std::to_string(mode));
         c.stat("d");
         c.stat("d/f");
         c.stat("d/none");
         c.open("d/f", O_RDWR);
         c.open("d/new", O_RDWR | O_CREAT | O_EXCL);
         c.open("d", O_RDONLY | O_DIRECTORY);
         c.open("d", O_TMPFILE | O_RDWR);
         c.call("unlink", ::unlink("d/gone"));
         c.call("mkdir", ::mkdir("d/sub", 0755));
         c.call("symlink", ::symlink("x", "d/link"));
         c.call("link", ::link("d/f", "d/hard"));
         c.call("rename", ::rename("d/f", "d/g"));
         c.call("rename out", ::rename("d/g", "h"));
         c.call("chdir", ::chdir("d"));
         c.must("chdir back", ::chdir(c.base().c_str()));
         c.must("chmod", ::chmod("d", 0700));
         c.list("d");
         for (const char* path : {"d/g", "d/hard", "d/link", "d/new", "h"}) {
           ::unlink(path);
         }
       }
     },
     anyone},
    {"permission-readdir-only",
     [](Ctx& c) {
       c.dir("d");
       c.put("d/f");
       c.must("chmod", ::chmod("d", 0400));
       c.list("d");
       c.must("chmod", ::chmod("d", 0100));
       c.list("d");
       c.stat("d/f");
       c.must("chmod", ::chmod("d", 0700));
     },
     anyone},
    {"permission-rename-directory-needs-write",
     [](Ctx& c) {
       // Moving a directory to another parent rewrites its "..".
       c.dir("a");
       c.dir("b");
       c.dir("a/d");
       c.must("chmod", ::chmod("a/d", 0500));
       c.call("inside", ::rename("a/d", "a/e"));
       c.call("across", ::rename("a/e", "b/d"));
       c.list("a");
     },
     anyone},
    {"permission-open-before-chmod",
     [](Ctx& c) {
       c.dir("d");
       c.put("d/f", "data");
       const int dir = c.open("d", O_RDONLY);
       const int fd = c.open("d/f", O_RDWR);
       c.must("chmod", ::chmod("d", 0));
       c.pread(fd, 10, 0);
       c.opened("openat", ::openat(dir, "f", O_RDONLY));
       c.must("chmod", ::chmod("d", 0700));
       c.opened("openat", ::openat(dir, "f", O_RDONLY));
     },
     anyone},
    {"permission-changed-by-another",
     [](Ctx& c) {
       c.dir("d");
       c.put("d/f", "data");
       c.open("d/f", O_RDONLY);
       c.in_child([&] { c.must("chmod", ::chmod("d", 0)); });
       c.open("d/f", O_RDONLY);
       c.in_child([&] { c.must("chmod", ::chmod("d", 0755)); });
       c.open("d/f", O_RDONLY);
     },
     anyone},
    {"permission-create-unwritable",
     [](Ctx& c) {
       for (const mode_t mode : {0U, 0400U, 0200U, 0444U}) {
         const int fd = c.open("f", O_RDWR | O_CREAT | O_EXCL, mode);
         c.write(fd, "data");
         c.pread(fd, 10, 0);
         c.open("f", O_RDWR);
         c.open("f", O_RDONLY);
         c.open("f", O_RDWR | O_CREAT);
         c.must("unlink", ::unlink("f"));
       }
     },
     anyone},
    {"second-user-class-bits",
     [](Ctx& c) {
       c.must("chmod", ::chmod(".", 0777));
       c.put("f", "data");
       c.must("chown", ::chown("f", 1000, 2000));
       for (const mode_t mode : {0700U, 0070U, 0007U, 0640U, 0604U, 0460U, 0077U, 0707U}) {
         c.must("chmod", ::chmod("f", mode));
         for (const auto& [uid, gid] :
              {std::pair(1000U, 1000U), std::pair(3000U, 2000U), std::pair(3000U, 3000U)}) {
           c.as_user(uid, gid, [&] {
             c.line("as " + std::to_string(uid) + ":" + std::to_string(gid));
             c.open("f", O_RDONLY);
             c.open("f", O_WRONLY);
             c.call("access x", ::access("f", X_OK));
           });
         }
       }
     },
     root},
    {"second-user-changes-attributes",
     [](Ctx& c) {
       c.put("f", "data");
       c.must("chmod", ::chmod("f", 0666));
       c.as_user(1000, 1000, [&] {
         const timespec times[2] = {{1, 1}, {2, 2}};
         c.call("chmod", ::chmod("f", 0777));
         c.call("chown", ::chown("f", 1000, 1000));
         c.call("utimensat exact", ::utimensat(AT_FDCWD, "f", times, 0));
         c.call("utimensat now", ::utimensat(AT_FDCWD, "f", nullptr, 0));
         c.call("truncate", ::truncate("f", 2));
         c.open("f", O_RDONLY | O_NOATIME);
         c.call("unlink", ::unlink("f"));
         c.call("create", ::mkdir("d", 0700));
       });
       c.stat("f");
     },
     root},
    {"second-user-owner",
     [](Ctx& c) {
       c.must("chmod", ::chmod(".", 0777));
       c.as_user(1000, 1001, [&] {
         c.put("f", "data");
         c.dir("d");
         c.must("symlink", ::symlink("x", "s"));
         c.must("mkfifo", ::mkfifo("p", 0600));
         c.call("give away", ::chown("f", 1002, -1));
         c.call("foreign group", ::chown("f", -1, 1002));
         c.call("own", ::chown("f", 1000, 1001));
         c.call("sgid with own group", ::chmod("f", 02755));
       });
       for (const char* path : {"f", "d", "s", "p"}) {
         c.stat(path);
       }
     },
     root},
    {"sticky-second-user",
     [](Ctx& c) {
       c.dir("d");
       c.must("chmod", ::chmod("d", 01777));
       c.put("d/root");
       c.as_user(1000, 1000, [&] { c.put("d/first"), c.dir("d/first-dir"); });
       c.as_user(2000, 2000, [&] {
         c.put("d/second");
         c.call("unlink root's", ::unlink("d/root"));
         c.call("unlink first's", ::unlink("d/first"));
         c.call("rmdir first's", ::rmdir("d/first-dir"));
         c.call("rename first's", ::rename("d/first", "d/x"));
         c.call("rename over first's", ::rename("d/second", "d/first"));
         c.call("exchange",
                ::renameat2(AT_FDCWD, "d/second", AT_FDCWD, "d/first", RENAME_EXCHANGE));
         c.call("rename own", ::rename("d/second", "d/mine"));
         c.call("unlink own", ::unlink("d/mine"));
       });
       c.must("chown", ::chown("d", 2000, 2000));
       c.as_user(2000, 2000, [&] { c.call("unlink in own directory", ::unlink("d/first")); });
       c.list("d");
     },
     root},
    {"sticky-protected",
     [](Ctx& c) {
       // The kernel's protected_hardlinks, _symlinks, _fifos and _regular, with this system's
       // settings.
       c.dir("d");
       c.must("chmod", ::chmod("d", 01777));
       c.put("d/target", "data");
       c.must("chmod", ::chmod("d/target", 0644));
       c.as_user(1000, 1000, [&] {
         c.must("symlink", ::symlink("target", "d/link"));
         c.must("mkfifo", ::mkfifo("d/fifo", 0666));
         c.must("chmod", ::chmod("d/fifo", 0666));
         c.put("d/file", "data");
         c.must("chmod", ::chmod("d/file", 0666));
       });
       c.as_user(2000, 2000, [&] {
         c.content("d/link");
         c.open("d/fifo", O_RDWR | O_CREAT);
         c.open("d/file", O_RDWR | O_CREAT);
         c.open("d/file", O_RDWR);
         c.call("hard link to foreign", ::link("d/target", "d/hard"));
         c.call("hard link to writable foreign", ::link("d/file", "d/hard2"));
       });
     },
     root},
};

}  // namespace

std::span<const Case> perm_cases() {
  return cases;
}

}  // namespace parity
