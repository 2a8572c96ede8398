// SPDX-License-Identifier: BSD-3-Clause
// setuid, setgid and capabilities: which operations remove them, and for which users. Needs root
// and other users.
#include <grp.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "parity.hpp"

namespace parity {
namespace {

/// setcap cap_net_raw+ep
void give_capability(const Ctx& c, const char* path) {
  const vfs_cap_data data{
      .magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
      .data = {{.permitted = 1U << 13U, .inheritable = 0}, {.permitted = 0, .inheritable = 0}}};
  c.must("setcap", ::setxattr(path, "security.capability", &data, sizeof data, 0));
}

void has_capability(const Ctx& c, const char* path) {
  c.check("  capability", ::getxattr(path, "security.capability", nullptr, 0) > 0);
}

/// Changes the process to this user with these supplementary groups.
void become_member(const Ctx& c, uid_t uid, gid_t gid, std::initializer_list<gid_t> groups) {
  c.must("setgroups", ::setgroups(groups.size(), groups.begin()));
  c.must("setresgid", ::setresgid(gid, gid, gid));
  c.must("setresuid", ::setresuid(uid, uid, uid));
}

/// An operation that changes a file's content, through a descriptor open for reading and writing.
struct Change {
  const char* name;
  void (*run)(const Ctx&, int fd);
};

constexpr Change changes[] = {
    {"write",
     [](const Ctx& c, int fd) {
       c.pwrite(fd, "x", 0);
     }},
    {"write of nothing",
     [](const Ctx& c, int fd) {
       c.pwrite(fd, "", 0);
     }},
    {"ftruncate shorter",
     [](const Ctx& c, int fd) {
       c.call("ftruncate", ::ftruncate(fd, 2));
     }},
    {"ftruncate longer",
     [](const Ctx& c, int fd) {
       c.call("ftruncate", ::ftruncate(fd, 9000));
     }},
    {"truncate",
     [](const Ctx& c, int) {
       c.call("truncate", ::truncate("f", 1));
     }},
    {"open truncating",
     [](const Ctx& c, int) {
       c.open("f", O_WRONLY | O_TRUNC);
     }},
    {"fallocate",
     [](const Ctx& c, int fd) {
       c.call("fallocate", ::fallocate(fd, 0, 0, 100));
     }},
    {"punch",
     [](const Ctx& c, int fd) {
       c.call("punch", ::fallocate(fd, 3, 0, 4096));
     }},
    {"copy_file_range",
     [](const Ctx& c, int fd) {
       off_t to = 0;
       c.call("copy", ::copy_file_range(c.get("source", O_RDONLY), nullptr, fd, &to, 3, 0));
     }},
    {"sendfile",
     [](const Ctx& c, int fd) {
       c.call("sendfile", ::sendfile(fd, c.get("source", O_RDONLY), nullptr, 3));
     }},
    {"append",
     [](const Ctx& c, int) {
       c.write(c.open("f", O_WRONLY | O_APPEND), "y");
     }},
    {"chmod",
     [](const Ctx& c, int) {
       c.call("chmod", ::chmod("f", 06751));
     }},
};

/// Tests every change on a file with this mode and a capability, opened before it had them
/// (`early`) or after.
void every_change(const Ctx& c, mode_t mode, bool early, uid_t uid, gid_t gid,
                  std::initializer_list<gid_t> groups) {
  for (const Change& change : changes) {
    c.line(std::string(change.name) + (early ? ", opened early" : ""));
    ::unlink("f");
    c.put("f", "data");
    c.must("chown", ::chown("f", 3000, 2000));
    c.must("chmod", ::chmod("f", 0666));
    const int before = early ? c.get("f", O_RDWR) : -1;
    c.must("chmod", ::chmod("f", mode));
    give_capability(c, "f");
    c.in_child([&] {
      become_member(c, uid, gid, groups);
      change.run(c, early ? before : c.get("f", O_RDWR));
    });
    c.stat("f");
    has_capability(c, "f");
    ::close(before);
  }
}

void prepare(const Ctx& c) {
  c.must("chmod", ::chmod(".", 0777));
  c.put("source", "abcdef");
}

constexpr Case cases[] = {
    {"privilege-change-by-stranger",
     [](Ctx& c) {
       prepare(c);
       for (const mode_t mode : {06777U, 02666U, 04766U}) {
         every_change(c, mode, false, 1000, 1000, {});
       }
     },
     root},
    {"privilege-change-by-stranger-opened-early",
     [](Ctx& c) {
       prepare(c);
       for (const mode_t mode : {06777U, 02666U}) {
         every_change(c, mode, true, 1000, 1000, {});
       }
     },
     root},
    {"privilege-change-by-member",
     [](Ctx& c) {
       prepare(c);
       for (const mode_t mode : {06777U, 02666U}) {
         every_change(c, mode, false, 1000, 1000, {2000});
       }
       every_change(c, 02666, false, 1000, 2000, {});
     },
     root},
    {"privilege-change-by-owner",
     [](Ctx& c) {
       prepare(c);
       for (const mode_t mode : {06777U, 02666U}) {
         every_change(c, mode, false, 3000, 3000, {});
       }
     },
     root},
    {"privilege-change-by-root",
     [](Ctx& c) {
       prepare(c);
       // Root's operations remove nothing from a file without a capability. With a capability, only
       // a native file system could tell a write by root from a chown by root.
       for (const Change& change : changes) {
         c.line(change.name);
         ::unlink("f");
         c.put("f", "data");
         c.must("chmod", ::chmod("f", 06777));
         change.run(c, c.get("f", O_RDWR));
         c.stat("f");
       }
     },
     root},
    {"privilege-chown-of-nothing",
     [](Ctx& c) {
       for (const mode_t mode : {06777U, 02666U, 04755U, 0755U}) {
         for (const uid_t uid : {1000U, 3000U, 0U}) {
           c.put("f", "data");
           c.must("chown", ::chown("f", 3000, 2000));
           c.must("chmod", ::chmod("f", mode));
           give_capability(c, "f");
           c.in_child([&] {
             become_member(c, uid, uid, {});
             c.call("chown by " + std::to_string(uid), ::chown("f", -1, -1));
           });
           c.stat("f");
           has_capability(c, "f");
           c.must("unlink", ::unlink("f"));
         }
       }
     },
     root},
    {"privilege-chown-of-nothing-while-written",
     [](Ctx& c) {
       c.put("f", "data");
       c.must("chmod", ::chmod("f", 06755));
       c.open("f", O_WRONLY);
       c.as_user(1000, 1000, [&] { c.call("chown", ::chown("f", -1, -1)); });
       c.stat("f");
     },
     root},
    {"capability-change-by-root",
     [](Ctx& c) {
       prepare(c);
       for (const Change& change : changes) {
         c.line(change.name);
         ::unlink("f");
         c.put("f", "data", 0755);
         give_capability(c, "f");
         change.run(c, c.get("f", O_RDWR));
         has_capability(c, "f");
         c.stat("f");
       }
     },
     root},
    {"capability-chown-rename-link",
     [](Ctx& c) {
       c.put("f", "data", 0755);
       give_capability(c, "f");
       c.must("rename", ::rename("f", "g"));
       c.must("link", ::link("g", "h"));
       has_capability(c, "h");
       c.call("read", c.open("h", O_RDONLY) >= 0 ? 0 : -1);
       has_capability(c, "h");
       c.call("chown", ::chown("h", 1000, 1000));
       has_capability(c, "h");
     },
     root},
    {"setgid-chmod-by-non-member",
     [](Ctx& c) {
       c.put("f");
       c.dir("d");
       for (const char* path : {"f", "d"}) {
         for (const bool member : {false, true}) {
           c.must("chown", ::chown(path, 1000, 2000));
           c.in_child([&] {
             if (member) {
               become_member(c, 1000, 1000, {2000});
             } else {
               become_member(c, 1000, 1000, {});
             }
             c.call("chmod", ::chmod(path, 02775));
           });
           c.stat(path);
         }
       }
     },
     root},
    {"setgid-directory-by-member",
     [](Ctx& c) {
       c.dir("d");
       c.must("chown", ::chown("d", 0, 2000));
       c.must("chmod", ::chmod("d", 02777));
       c.in_child([&] {
         become_member(c, 1000, 1000, {2000, 3000});
         c.put("d/member", "", 02775);
         c.put("d/plain", "", 02664);
       });
       c.as_user(1001, 1001, [&] {
         c.put("d/stranger", "", 02775), c.put("d/stranger-plain", "", 02664),
             c.dir("d/sub", 02755);
       });
       for (const char* path : {"d/member", "d/plain", "d/stranger", "d/stranger-plain", "d/sub"}) {
         c.stat(path);
       }
     },
     root},
    {"owner-chowns",
     [](Ctx& c) {
       for (const mode_t mode : {06777U, 02666U, 04700U}) {
         c.put("f");
         c.must("chown", ::chown("f", 1000, 1000));
         c.must("chmod", ::chmod("f", mode));
         c.in_child([&] {
           become_member(c, 1000, 1000, {2000});
           c.call("to own group", ::chown("f", -1, 2000));
         });
         c.stat("f");
         c.must("unlink", ::unlink("f"));
       }
     },
     root},
    {"owner-chowns-special",
     [](Ctx& c) {
       const auto chown_as_owner = [&c](mode_t type, mode_t mode, gid_t group) {
         c.must("mknod", ::mknod("n", type | 0600, makedev(1, 7)));
         c.must("chown", ::chown("n", 1000, group));
         c.must("chmod", ::chmod("n", mode));
         c.in_child([&] {
           become_member(c, 1000, 1000, {2000});
           c.call("to own group", ::chown("n", -1, 2000));
         });
         c.stat("n");
         c.must("unlink", ::unlink("n"));
       };
       for (const mode_t type : {S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK}) {
         for (const mode_t mode : {06777U, 02644U, 04700U}) {
           chown_as_owner(type, mode, 1000);
           chown_as_owner(type, mode, 3000);  // not a group of the owner
         }
       }
     },
     root},
    {"truncate-by-non-owner",
     [](Ctx& c) {
       c.put("f", "data");
       for (const mode_t mode : {06777U, 02666U, 06644U}) {
         c.must("chmod", ::chmod("f", mode));
         c.as_user(1000, 1000, [&] {
           c.call("truncate", ::truncate("f", 2)), c.open("f", O_WRONLY | O_TRUNC);
         });
         c.stat("f");
       }
     },
     root},
    {"setuid-after-mapping",
     [](Ctx& c) {
       // Stores through a mapping remove nothing, on any file system: the bits are removed when the
       // mapping is made, or never.
       c.put("f", std::string(4096, 'x'));
       const int fd = c.open("f", O_RDWR);
       auto* map =
           static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
       c.must("chmod", ::chmod("f", 06755));
       map[0] = 'y';
       c.call("msync", ::msync(map, 4096, MS_SYNC));
       c.stat("f");
     },
     anyone},
};

}  // namespace

std::span<const Case> privilege_cases() {
  return cases;
}

}  // namespace parity
