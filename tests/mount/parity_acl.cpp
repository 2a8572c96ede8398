// SPDX-License-Identifier: BSD-3-Clause
// POSIX access control lists: as extended attributes, their effect on modes, their inheritance, and
// the permissions they give.
#include <grp.h>
#include <sys/xattr.h>

#include <cstdint>
#include <cstring>

#include "parity.hpp"

namespace parity {
namespace {

constexpr const char* access_acl = "system.posix_acl_access";
constexpr const char* default_acl = "system.posix_acl_default";

struct Rule {
  char kind;  // u g: owner and group, or a named one if id >= 0; m mask, o other
  unsigned permissions;
  int id = -1;
};

/// Returns the list in the kernel's format (linux/posix_acl_xattr.h).
std::string list_of(std::initializer_list<Rule> rules, std::uint32_t version = 2) {
  std::string value(reinterpret_cast<const char*>(&version), 4);
  for (const Rule& rule : rules) {
    const std::uint16_t base = rule.kind == 'u'   ? 1
                               : rule.kind == 'g' ? 4
                               : rule.kind == 'm' ? 16
                               : rule.kind == 'o' ? 32
                                                  : 64;
    const std::uint16_t tag = rule.id >= 0 ? base * 2 : base;
    const auto permissions = static_cast<std::uint16_t>(rule.permissions);
    const auto id = static_cast<std::uint32_t>(rule.id);
    value.append(reinterpret_cast<const char*>(&tag), 2);
    value.append(reinterpret_cast<const char*>(&permissions), 2);
    value.append(reinterpret_cast<const char*>(&id), 4);
  }
  return value;
}

/// Returns the list in the format of getfacl.
std::string text_of(const std::string& value) {
  std::string text;
  for (std::size_t at = 4; at + 8 <= value.size(); at += 8) {
    std::uint16_t tag = 0;
    std::uint16_t permissions = 0;
    std::int32_t id = 0;
    std::memcpy(&tag, value.data() + at, 2);
    std::memcpy(&permissions, value.data() + at + 2, 2);
    std::memcpy(&id, value.data() + at + 4, 4);
    const char* name = tag == 1    ? "u:"
                       : tag == 2  ? "user "
                       : tag == 4  ? "g:"
                       : tag == 8  ? "group "
                       : tag == 16 ? "mask:"
                       : tag == 32 ? "other:"
                                   : "?";
    text += (text.empty() ? "" : ",") + std::string(name) +
            (tag == 2 || tag == 8 ? std::to_string(id) + ":" : "") + std::to_string(permissions);
  }
  return text;
}

void get(const Ctx& c, const char* path, const char* name = access_acl) {
  std::string value(4096, '\0');
  const ssize_t length = ::lgetxattr(path, name, value.data(), value.size());
  c.call(std::string("get ") + (name == access_acl ? "access " : "default ") + path, length);
  if (length > 0) {
    c.line("  " + text_of(value.substr(0, static_cast<std::size_t>(length))));
  }
}

void set(const Ctx& c, const char* path, const std::string& value, const char* name = access_acl) {
  c.call(std::string("set ") + (name == access_acl ? "access " : "default ") + path + " " +
             text_of(value),
         ::lsetxattr(path, name, value.data(), value.size(), 0));
}

void show_all(const Ctx& c, const char* path) {
  c.stat(path);
  get(c, path);
  struct stat st{};
  if (::lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
    get(c, path, default_acl);
  }
}

const std::string named = list_of({{'u', 6}, {'u', 7, 1000}, {'g', 4}, {'m', 7}, {'o', 4}});
const std::string minimal = list_of({{'u', 7}, {'g', 5}, {'o', 0}});
const std::string handed_down =
    list_of({{'u', 7}, {'u', 5, 1000}, {'g', 7}, {'g', 6, 2000}, {'m', 7}, {'o', 5}});

void make_one_of_each(const Ctx& c) {
  c.must("open", ::open("d/file", O_RDWR | O_CREAT, 0666));
  c.must("open", ::open("d/private", O_RDWR | O_CREAT, 0600));
  c.must("open", ::open("d/set-id", O_RDWR | O_CREAT, 06755));
  c.must("mkdir", ::mkdir("d/dir", 0777));
  c.must("mkdir", ::mkdir("d/dir/sub", 0750));
  c.must("mkfifo", ::mkfifo("d/fifo", 0666));
  c.must("mknod", ::mknod("d/socket", S_IFSOCK | 0644, 0));
  c.must("symlink", ::symlink("file", "d/link"));
  c.call("tmpfile linked",
         ::linkat(AT_FDCWD,
                  ("/proc/self/fd/" + std::to_string(c.get("d", O_TMPFILE | O_RDWR, 0664))).c_str(),
                  AT_FDCWD, "d/tmp", AT_SYMLINK_FOLLOW));
  for (const char* path : {"d/file", "d/private", "d/set-id", "d/dir", "d/dir/sub", "d/fifo",
                           "d/socket", "d/link", "d/tmp"}) {
    show_all(c, path);
  }
}

const Case cases[] = {
    {"acl-absent",
     [](Ctx& c) {
       c.put("f");
       get(c, "f");
       get(c, ".", default_acl);
       c.call("remove", ::removexattr("f", access_acl));
       c.call("remove default", ::removexattr(".", default_acl));
       c.call("remove default of a file", ::removexattr("f", default_acl));
     },
     anyone},
    {"acl-set",
     [](Ctx& c) {
       c.put("f");
       set(c, "f", named);
       show_all(c, "f");
       char small[4];
       c.call("size", ::getxattr("f", access_acl, nullptr, 0));
       c.call("short", ::getxattr("f", access_acl, small, sizeof small));
       c.call("remove", ::removexattr("f", access_acl));
       show_all(c, "f");
       set(c, "f", named);
       c.call("set to nothing", ::setxattr("f", access_acl, "", 0, 0));
       show_all(c, "f");
     },
     anyone},
    {"acl-minimal-is-a-mode",
     [](Ctx& c) {
       c.put("f");
       set(c, "f", minimal);
       show_all(c, "f");
       set(c, "f", named);
       set(c, "f", minimal);
       show_all(c, "f");
       set(c, "f", list_of({{'u', 7}, {'g', 5}, {'m', 1}, {'o', 0}}));
       show_all(c, "f");
     },
     anyone},
    {"acl-follows-chmod",
     [](Ctx& c) {
       c.put("f");
       c.dir("d");
       for (const char* path : {"f", "d"}) {
         set(c, path, named);
         for (const mode_t mode : {0777U, 0640U, 0000U, 0717U, 01751U, 04755U}) {
           c.call("chmod", ::chmod(path, mode));
           show_all(c, path);
         }
       }
       set(c, "d", handed_down, default_acl);
       c.call("chmod", ::chmod("d", 0700));
       show_all(c, "d");
       c.call("fchmod", ::fchmod(c.open("f", O_RDONLY), 0750));
       show_all(c, "f");
     },
     anyone},
    {"acl-errors",
     [](Ctx& c) {
       c.put("f");
       c.must("symlink", ::symlink("f", "s"));
       set(c, "f", list_of({{'u', 7}, {'u', 5, 1000}, {'g', 5}, {'o', 0}}));
       set(c, "f", list_of({{'u', 7}, {'g', 5}}));
       set(c, "f", list_of({{'u', 7}, {'o', 5}, {'g', 5}}));
       set(c, "f", list_of({{'u', 7}, {'u', 7}, {'g', 5}, {'o', 5}}));
       set(c, "f", list_of({{'u', 15}, {'g', 5}, {'o', 5}}));
       set(c, "f", list_of({{'u', 7}, {'g', 5}, {'o', 5}, {'x', 5}}));
       set(c, "f",
           list_of({{'u', 7}, {'u', 5, 2000}, {'u', 4, 1000}, {'g', 5}, {'m', 7}, {'o', 0}}));
       set(c, "f",
           list_of({{'u', 7}, {'u', 5, 1000}, {'u', 4, 1000}, {'g', 5}, {'m', 7}, {'o', 0}}));
       set(c, "f", list_of({{'u', 7}, {'g', 5}, {'o', 5}}, 3));
       set(c, "f", named.substr(0, 7));
       set(c, "f", "x");
       set(c, "f", handed_down, default_acl);
       set(c, "s", named);
       set(c, "none", named);
       c.call("unknown system attribute", ::setxattr("f", "system.other", "x", 1, 0));
       show_all(c, "f");
     },
     anyone},
    {"acl-default-is-handed-down",
     [](Ctx& c) {
       for (const mode_t mask : {0U, 022U, 077U}) {
         ::umask(mask);
         c.dir("d", 0777);
         set(c, "d", handed_down, default_acl);
         show_all(c, "d");
         make_one_of_each(c);
         c.must("rename", ::rename("d", ("d" + std::to_string(mask)).c_str()));
       }
     },
     anyone},
    {"acl-default-minimal",
     [](Ctx& c) {
       ::umask(077);
       c.dir("d", 0777);
       set(c, "d", minimal, default_acl);
       make_one_of_each(c);
       c.call("remove", ::removexattr("d", default_acl));
       c.call("remove again", ::removexattr("d", default_acl));
       c.put("d/after");
       show_all(c, "d/after");
     },
     anyone},
    {"acl-umask-without-default",
     [](Ctx& c) {
       for (const mode_t mask : {0U, 027U, 0777U}) {
         ::umask(mask);
         c.must("open", ::open("f", O_RDWR | O_CREAT, 0666));
         c.must("mkdir", ::mkdir("d", 0777));
         c.must("mkfifo", ::mkfifo("p", 0666));
         c.must("mknod", ::mknod("s", S_IFSOCK | 0777, 0));
         c.fstat("tmpfile", c.get(".", O_TMPFILE | O_RDWR, 0666));
         for (const char* path : {"f", "d", "p", "s"}) {
           c.stat(path), ::remove(path);
         }
       }
     },
     anyone},
    {"acl-in-a-setgid-directory",
     [](Ctx& c) {
       c.dir("d");
       c.must("chmod", ::chmod("d", 02775));
       set(c, "d", handed_down, default_acl);
       show_all(c, "d");
       make_one_of_each(c);
     },
     anyone},
    {"acl-is-listed",
     [](Ctx& c) {
       c.dir("d");
       set(c, "d", named);
       set(c, "d", handed_down, default_acl);
       c.must("setxattr", ::setxattr("d", "user.x", "v", 1, 0));
       std::string names(1000, '\0');
       const ssize_t length = ::listxattr("d", names.data(), names.size());
       for (const char* name : {access_acl, default_acl, "user.x"}) {
         c.check(name, length > 0 && names.substr(0, static_cast<std::size_t>(length))
                                             .find(std::string(name) + '\0') != std::string::npos);
       }
     },
     anyone},
    {"acl-times",
     [](Ctx& c) {
       c.put("f");
       c.dir("d");
       c.moves("set", {"f", "."}, [&] { set(c, "f", named); });
       c.moves("set minimal", {"f"}, [&] { set(c, "f", minimal); });
       c.moves("set default", {"d"}, [&] { set(c, "d", handed_down, default_acl); });
       c.moves("remove default", {"d"}, [&] { c.call("remove", ::removexattr("d", default_acl)); });
       c.moves("remove", {"f"}, [&] { c.call("remove", ::removexattr("f", access_acl)); });
     },
     anyone},
    {"acl-stays-with-the-inode",
     [](Ctx& c) {
       c.put("f", "data");
       set(c, "f", named);
       c.must("link", ::link("f", "g"));
       c.must("rename", ::rename("f", "h"));
       c.put("h", "other");
       for (const char* path : {"g", "h"}) {
         show_all(c, path);
       }
       c.call("chown", ::chown("g", ::geteuid(), ::getegid()));
       c.call("truncate", ::truncate("g", 0));
       show_all(c, "h");
     },
     anyone},
    {"acl-kinds",
     [](Ctx& c) {
       c.must("mkfifo", ::mkfifo("p", 0600));
       c.must("mknod", ::mknod("s", S_IFSOCK | 0600, 0));
       for (const char* path : {"p", "s"}) {
         set(c, path, named), show_all(c, path), set(c, path, handed_down, default_acl);
       }
       const int fd = c.open("f", O_RDWR | O_CREAT);
       c.call("fsetxattr", ::fsetxattr(fd, access_acl, named.data(), named.size(), 0));
       c.must("unlink", ::unlink("f"));
       c.fstat("unlinked", fd);
       c.call("fgetxattr", ::fgetxattr(fd, access_acl, nullptr, 0));
     },
     anyone},
    {"acl-decides",
     [](Ctx& c) {
       c.put("f", "data");
       c.dir("d");
       c.put("d/f", "data");
       c.must("chmod", ::chmod("d", 0700));
       const auto attempt = [&](uid_t uid, gid_t gid) {
         c.as_user(uid, gid, [&] {
           c.line("as " + std::to_string(uid) + ":" + std::to_string(gid));
           for (const int flags : {O_RDONLY, O_WRONLY}) {
             c.open("f", flags);
           }
           c.call("access x", ::access("f", X_OK));
           c.list("d");
           c.open("d/f", O_RDONLY);
           c.open("d/new", O_RDWR | O_CREAT);
           ::unlink("d/new");
         });
       };
       for (const unsigned mask : {7U, 4U, 0U}) {
         set(c, "f",
             list_of({{'u', 6},
                      {'u', 6, 1000},
                      {'u', 0, 1001},
                      {'g', 0},
                      {'g', 4, 2000},
                      {'g', 3, 2001},
                      {'m', mask},
                      {'o', 4}}));
         set(c, "d",
             list_of({{'u', 7},
                      {'u', 7, 1000},
                      {'u', 1, 1001},
                      {'g', 0},
                      {'g', 5, 2000},
                      {'m', mask},
                      {'o', 0}}));
         for (const auto& [uid, gid] :
              {std::pair(1000U, 1000U), std::pair(1001U, 1001U), std::pair(1002U, 2000U),
               std::pair(1001U, 2000U), std::pair(1002U, 2001U), std::pair(1002U, 1002U)}) {
           attempt(uid, gid);
         }
       }
     },
     root},
    {"acl-changed-by-another",
     [](Ctx& c) {
       c.put("f", "data");
       c.must("chmod", ::chmod("f", 0600));
       c.as_user(1000, 1000, [&] { c.open("f", O_RDONLY); });
       set(c, "f", named);
       c.as_user(1000, 1000, [&] { c.open("f", O_RDWR); });
       c.call("chmod", ::chmod("f", 0600));
       c.as_user(1000, 1000, [&] { c.open("f", O_RDONLY); });
       c.call("remove", ::removexattr("f", access_acl));
       c.as_user(1000, 1000, [&] { c.open("f", O_RDONLY); });
     },
     root},
    {"acl-set-by-others",
     [](Ctx& c) {
       c.put("f", "data");
       c.dir("d");
       c.must("chmod", ::chmod("f", 0666));
       c.must("chmod", ::chmod("d", 0777));
       c.as_user(1000, 1000, [&] {
         set(c, "f", named);
         set(c, "d", handed_down, default_acl);
         c.call("remove", ::removexattr("f", access_acl));
         c.put("d/own");
         set(c, "d/own", named);
         show_all(c, "d/own");
       });
       show_all(c, "f");
     },
     root},
    {"acl-clears-foreign-setgid",
     [](Ctx& c) {
       for (const int member : {0, 1}) {
         c.put("f");
         c.must("chown", ::chown("f", 1000, 2000));
         c.must("chmod", ::chmod("f", 02755));
         c.in_child([&] {
           const gid_t groups[] = {2000};
           c.must("setgroups", ::setgroups(static_cast<std::size_t>(member), groups));
           c.must("setresgid", ::setresgid(1000, 1000, 1000));
           c.must("setresuid", ::setresuid(1000, 1000, 1000));
           set(c, "f", named);
         });
         show_all(c, "f");
       }
       set(c, "f", minimal);
       show_all(c, "f");
     },
     root},
};

}  // namespace

std::span<const Case> acl_cases() {
  return cases;
}

}  // namespace parity
