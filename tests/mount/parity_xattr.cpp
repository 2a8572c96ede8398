// SPDX-License-Identifier: BSD-3-Clause
// Extended attributes.
#include <sys/xattr.h>

#include <algorithm>

#include "parity.hpp"

namespace parity {
namespace {

void list_xattrs(const Ctx& c, const char* path) {
  std::string names(65536, '\0');
  const ssize_t length = ::listxattr(path, names.data(), names.size());
  if (length < 0) {
    c.call("listxattr", length);
    return;
  }
  // Other names (of a security module) depend on the system.
  std::vector<std::string> found;
  for (std::size_t at = 0; at < static_cast<std::size_t>(length);) {
    const std::string name = names.c_str() + at;
    if (name.starts_with("user.")) {
      found.push_back(name);
    }
    at += name.size() + 1;
  }
  std::sort(found.begin(), found.end());
  c.line("listxattr: " + std::to_string(found.size()));
  for (const std::string& name : found) {
    c.line("  " + show(name));
  }
}

void get_xattr(const Ctx& c, const char* path, const char* name) {
  std::string value(70000, '\0');
  const ssize_t length = ::getxattr(path, name, value.data(), value.size());
  c.call(std::string("getxattr ") + name, length);
  if (length > 0) {
    c.line("  " + show({value.data(), static_cast<std::size_t>(length)}));
  }
}

constexpr Case cases[] = {
    {"xattr-user",
     [](Ctx& c) {
       c.put("f");
       c.call("set", ::setxattr("f", "user.one", "value", 5, 0));
       c.call("set empty", ::setxattr("f", "user.empty", "", 0, 0));
       get_xattr(c, "f", "user.one");
       get_xattr(c, "f", "user.empty");
       get_xattr(c, "f", "user.none");
       list_xattrs(c, "f");
       char small[2];
       c.call("get size", ::getxattr("f", "user.one", nullptr, 0));
       c.call("get short", ::getxattr("f", "user.one", small, sizeof small));
       c.call("list short", ::listxattr("f", small, sizeof small));
       c.call("create existing", ::setxattr("f", "user.one", "x", 1, XATTR_CREATE));
       c.call("replace missing", ::setxattr("f", "user.none", "x", 1, XATTR_REPLACE));
       c.call("replace", ::setxattr("f", "user.one", "other", 5, XATTR_REPLACE));
       c.call("bad flags", ::setxattr("f", "user.one", "other", 5, 77));
       get_xattr(c, "f", "user.one");
       c.call("remove", ::removexattr("f", "user.one"));
       c.call("remove again", ::removexattr("f", "user.one"));
       get_xattr(c, "f", "user.one");
       list_xattrs(c, "f");
     },
     anyone},
    {"xattr-limits",
     [](Ctx& c) {
       c.put("f");
       const std::string value = pattern(70000);
       c.call("4000", ::setxattr("f", "user.a", value.data(), 4000, 0));
       get_xattr(c, "f", "user.a");
       c.call("65537", ::setxattr("f", "user.b", value.data(), 65537, 0));
       const std::string name = "user." + std::string(250, 'n');
       c.call("name of 255", ::setxattr("f", name.c_str(), "x", 1, 0));
       c.call("name of 256", ::setxattr("f", (name + "n").c_str(), "x", 1, 0));
       c.call("name user.", ::setxattr("f", "user.", "x", 1, 0));
       c.call("no name", ::setxattr("f", "", "x", 1, 0));
       c.call("no prefix", ::setxattr("f", "plain", "x", 1, 0));
       c.call("unknown prefix", ::setxattr("f", "other.x", "x", 1, 0));
       list_xattrs(c, "f");
     },
     anyone},
    {"xattr-value-64k",
     [](Ctx& c) {
       c.put("f");
       const std::string value = pattern(65536);
       c.call("set", ::setxattr("f", "user.a", value.data(), 65536, 0));
       get_xattr(c, "f", "user.a");
     },
     anyone},
    {"xattr-kinds",
     [](Ctx& c) {
       c.put("f");
       c.dir("d");
       c.must("symlink", ::symlink("f", "s"));
       c.must("mkfifo", ::mkfifo("p", 0600));
       for (const char* path : {"f", "d", "s", "p", "none"}) {
         c.call(std::string("lsetxattr ") + path, ::lsetxattr(path, "user.x", "v", 1, 0));
         char value[10];
         c.call("lgetxattr", ::lgetxattr(path, "user.x", value, sizeof value));
       }
       const int fd = c.open("f", O_RDONLY);
       c.call("fsetxattr", ::fsetxattr(fd, "user.y", "v", 1, 0));
       c.call("fremovexattr", ::fremovexattr(fd, "user.y"));
       c.call("fsetxattr path", ::fsetxattr(c.open("f", O_PATH), "user.y", "v", 1, 0));
       c.call("rename", ::rename("f", "g"));
       list_xattrs(c, "g");
     },
     anyone},
    {"xattr-read-only-file",
     [](Ctx& c) {
       c.put("f");
       c.must("setxattr", ::setxattr("f", "user.x", "v", 1, 0));
       c.must("chmod", ::chmod("f", 0400));
       c.call("set", ::setxattr("f", "user.x", "w", 1, 0));
       c.must("chmod", ::chmod("f", 0200));
       get_xattr(c, "f", "user.x");
     },
     anyone},
    {"xattr-other-namespaces",
     [](Ctx& c) {
       c.put("f");
       c.call("set trusted", ::setxattr("f", "trusted.x", "v", 1, 0));
       get_xattr(c, "f", "trusted.x");
       c.call("set security", ::setxattr("f", "security.parity", "v", 1, 0));
       get_xattr(c, "f", "security.none");
       get_xattr(c, "f", "security.capability");
     },
     anyone},
};

}  // namespace

std::span<const Case> xattr_cases() {
  return cases;
}

}  // namespace parity
