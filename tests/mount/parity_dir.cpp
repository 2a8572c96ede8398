// SPDX-License-Identifier: BSD-3-Clause
// Directories: creating, removing, names, reading.
#include <dirent.h>

#include <array>
#include <climits>
#include <map>
#include <set>

#include "parity.hpp"

namespace parity {
namespace {

std::string numbered(const char* prefix, int number) {
  return prefix + std::to_string(number);
}

void fill(const Ctx& c, int count, const char* prefix = "f") {
  for (int i = 0; i < count; ++i) {
    const int fd = ::open(numbered(prefix, i).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    c.must("create", fd);
    ::close(fd);
  }
}

/// Returns the remaining names of a directory stream.
std::vector<std::string> rest(DIR* stream) {
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream)) {
    names.emplace_back(entry->d_name);
  }
  return names;
}

/// Reads the directory while `change(step)` changes it; records whether every f* name was returned
/// exactly once.
void read_while(const Ctx& c, int count, void (*change)(int)) {
  fill(c, count);
  DIR* stream = ::opendir(".");
  std::map<std::string, int> seen;
  int step = 0;
  while (const dirent* entry = ::readdir(stream)) {
    if (entry->d_name[0] == 'f') {
      ++seen[entry->d_name];
    }
    change(step++);
  }
  ::closedir(stream);
  int once = 0;
  for (const auto& [name, times] : seen) {
    once += times == 1;
  }
  c.line("names seen exactly once: " + std::to_string(once) +
         ", names seen: " + std::to_string(seen.size()));
}

/// Reads a directory, a few entries a call, and calls `change(name, step)` for each; records
/// whether the reading ends.
void walk_while(const Ctx& c, const char* what, void (*change)(const std::string&, int)) {
  constexpr int count = 400;
  c.dir("walk");
  c.dir("other");
  c.must("chdir", ::chdir("walk"));
  fill(c, count);
  const int fd = c.get(".", O_RDONLY | O_DIRECTORY);
  alignas(dirent64) std::array<char, 1024> entries;
  int step = 0;
  for (ssize_t size = 1; size > 0 && step <= 4 * count;) {
    size = ::getdents64(fd, entries.data(), entries.size());
    for (ssize_t at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      if (entry->d_name[0] != '.') {
        change(entry->d_name, step++);
      }
      at += entry->d_reclen;
    }
  }
  c.check(std::string(what) + ": the walk ends", step <= 3 * count);
  c.must("close", ::close(fd));
  DIR* stream = ::opendir(".");
  for (const std::string& name : rest(stream)) {
    ::unlink(name.c_str());
  }
  ::closedir(stream);
  c.must("chdir", ::chdir(".."));
  c.call("rmdir", ::rmdir("walk"));
  c.must("rmdir", ::rmdir("other"));
}

constexpr Case cases[] = {
    {"mkdir-modes",
     [](Ctx& c) {
       for (const mode_t mask : {0U, 022U, 077U}) {
         ::umask(mask);
         for (const mode_t mode : {0U, 0700U, 0755U, 0777U, 01777U, 02755U, 04755U, 07777U}) {
           c.call("mkdir", ::mkdir("d", mode));
           c.stat("d");
           c.must("rmdir", ::rmdir("d"));
         }
       }
     },
     anyone},
    {"mkdir-errors",
     [](Ctx& c) {
       c.put("f");
       c.dir("d");
       c.must("symlink", ::symlink("none", "s"));
       for (const char* path :
            {"f", "d", "s", ".", "..", "/", "none/x", "f/x", "", "d/.", "new/."}) {
         c.call(std::string("mkdir ") + path, ::mkdir(path, 0755));
       }
       c.call("mkdir slash", ::mkdir("e/", 0755));
       c.list();
     },
     anyone},
    {"dir-link-counts",
     [](Ctx& c) {
       c.dir("d");
       c.stat("d");
       for (const char* sub : {"d/1", "d/2", "d/3"}) {
         c.dir(sub), c.stat("d");
       }
       c.put("d/file");
       c.stat("d");
       c.dir("e");
       c.call("move", ::rename("d/1", "e/1"));
       c.stat("d");
       c.stat("e");
       c.call("move over", ::rename("d/2", "e/1"));
       c.stat("d");
       c.stat("e");
       c.call("rmdir", ::rmdir("d/3"));
       c.stat("d");
       c.stat(".");
     },
     anyone},
    {"rmdir-errors",
     [](Ctx& c) {
       c.put("f");
       c.dir("d");
       c.dir("d/sub");
       c.dir("e");
       for (const char* path : {"d", "f", "none", ".", "..", "e/.", "e/..", "", "f/x", "/"}) {
         c.call(std::string("rmdir ") + path, ::rmdir(path));
       }
       c.call("rmdir slash", ::rmdir("e/"));
       c.call("rmdir sub", ::rmdir("d/sub"));
       c.call("rmdir d", ::rmdir("d"));
       c.list();
     },
     anyone},
    {"rmdir-cwd",
     [](Ctx& c) {
       c.dir("d");
       c.call("chdir", ::chdir("d"));
       c.call("rmdir", ::rmdir("../d"));
       c.cwd();
       c.stat(".");
       c.list(".");
       c.open("x", O_RDWR | O_CREAT);
       c.call("mkdir", ::mkdir("x", 0700));
       c.call("symlink", ::symlink("x", "y"));
       c.stat("..");
       c.call("chdir up", ::chdir(".."));
     },
     anyone},
    {"rmdir-open",
     [](Ctx& c) {
       c.dir("d");
       const int fd = c.open("d", O_RDONLY);
       c.call("rmdir", ::rmdir("d"));
       c.fstat("d", fd);
       c.dir("d");
       c.put("d/new");
       DIR* stream = ::fdopendir(fd);
       c.line("entries of the removed one: " + std::to_string(rest(stream).size()));
     },
     anyone},
    {"mkdir-deep",
     [](Ctx& c) {
       std::string path = "d";
       for (int i = 0; i < 60; ++i) {
         c.dir(path);
         path += "/d";
       }
       c.put(path, "deep");
       c.content(path);
       c.list(path.substr(0, path.size() - 2));
     },
     anyone},
    {"name-length",
     [](Ctx& c) {
       for (const std::size_t length : {1, 254, 255, 256, 300}) {
         const std::string name(length, 'n');
         c.call("file " + std::to_string(length), ::mknod(name.c_str(), S_IFREG | 0600, 0));
         c.stat(name);
         c.call("remove", ::unlink(name.c_str()));
         c.call("dir", ::mkdir(name.c_str(), 0700));
         c.call("remove", ::rmdir(name.c_str()));
         c.call("link", ::symlink("x", name.c_str()));
         c.list();
         c.call("remove", ::unlink(name.c_str()));
       }
     },
     anyone},
    {"path-length",
     [](Ctx& c) {
       c.put("file", "x");
       for (const std::size_t length : {4000, 4094, 4095, 4096, 5000}) {
         std::string path;
         while (path.size() + 6 <= length) {
           path += "./";
         }
         path += std::string(length - 4 - path.size(), '/') + "file";
         struct stat st{};
         c.call("path of " + std::to_string(path.size()), ::stat(path.c_str(), &st));
         c.opened("open", ::open(path.c_str(), O_RDONLY));
       }
     },
     anyone},
    {"path-deeper-than-path-max",
     [](Ctx& c) {
       const std::string name(200, 'd');
       int dir = c.open(".", O_RDONLY);
       for (int depth = 0; depth < 25; ++depth) {
         c.must("mkdirat", ::mkdirat(dir, name.c_str(), 0755));
         dir = static_cast<int>(
             c.must("openat", ::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY)));
       }
       c.opened("create", ::openat(dir, "file", O_RDWR | O_CREAT, 0600));
       c.call("fchdir", ::fchdir(dir));
       c.stat("file");
       c.put("other", "x");
       c.call("rename", ::rename("file", "moved"));
       c.list();
     },
     anyone},
    {"names-odd-bytes",
     [](Ctx& c) {
       for (const char* name :
            {"new\nline", "caf\xc3\xa9", "\xff\xfe\x80", " ", "trailing ", "-rf", "...", "..x",
             "a\\b", "\"'", "*?[", "tab\t", "\x01\x7f", "%s%n", "~", "#", "a:b;c"}) {
         c.put(name, name);
         c.stat(name);
         c.content(name);
         c.call("rename", ::rename(name, "plain"));
         c.call("rename back", ::rename("plain", name));
       }
       c.list();
     },
     anyone},
    {"names-case-sensitive",
     [](Ctx& c) {
       c.put("name", "lower");
       c.put("NAME", "upper");
       c.put("cafe\xcc\x81", "decomposed");
       c.put("caf\xc3\xa9", "composed");
       c.content("name");
       c.list();
     },
     anyone},
    {"readdir-types",
     [](Ctx& c) {
       c.put("file");
       c.dir("dir");
       c.must("symlink", ::symlink("x", "link"));
       c.must("mkfifo", ::mkfifo("fifo", 0600));
       c.must("mknod", ::mknod("sock", S_IFSOCK | 0600, 0));
       c.list();
       c.list("dir");
     },
     anyone},
    {"readdir-inodes",
     [](Ctx& c) {
       fill(c, 20);
       c.dir("dir");
       DIR* stream = ::opendir(".");
       bool same = true;
       std::set<ino_t> inodes;
       while (const dirent* entry = ::readdir(stream)) {
         struct stat st{};
         const std::string name = entry->d_name;
         if (name == "..") {
           continue;
         }
         c.must("stat", ::lstat(name.c_str(), &st));
         same = same && st.st_ino == entry->d_ino;
         inodes.insert(entry->d_ino);
       }
       c.check("d_ino is st_ino", same);
       c.line("inodes " + std::to_string(inodes.size()));
     },
     anyone},
    {"readdir-3000",
     [](Ctx& c) {
       fill(c, 3000);
       c.list();
       for (int i = 0; i < 3000; i += 3) {
         c.must("unlink", ::unlink(numbered("f", i).c_str()));
       }
       c.list();
     },
     anyone},
    {"readdir-long-names",
     [](Ctx& c) {
       for (int i = 0; i < 300; ++i) {
         c.put(std::string(250, 'n') + std::to_string(i));
       }
       c.list();
     },
     anyone},
    {"readdir-while-creating",
     [](Ctx& c) {
       read_while(c, 1000, [](int step) {
         if (step < 1000) {
           ::close(::open(numbered("new", step).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
         }
       });
     },
     anyone},
    {"readdir-while-removing-others",
     [](Ctx& c) {
       fill(c, 500, "gone");
       read_while(c, 1000, [](int step) {
         if (step < 500) {
           ::unlink(numbered("gone", step).c_str());
         }
       });
       c.list();
     },
     anyone},
    {"readdir-while-renaming-others",
     [](Ctx& c) {
       fill(c, 500, "a");
       read_while(c, 1000, [](int step) {
         if (step < 500) {
           ::rename(numbered("a", step).c_str(), numbered("b", step).c_str());
         }
       });
     },
     anyone},
    {"readdir-ends",
     [](Ctx& c) {
       walk_while(c, "renamed", [](const std::string& name, int step) {
         ::rename(name.c_str(), numbered("r", step).c_str());
       });
       walk_while(c, "renamed and back", [](const std::string& name, int) {
         ::rename(name.c_str(), "TEMP"), ::rename("TEMP", name.c_str());
       });
       walk_while(c, "moved away and back", [](const std::string& name, int) {
         const std::string away = "../other/" + name;
         ::rename(name.c_str(), away.c_str());
         ::rename(away.c_str(), name.c_str());
       });
       walk_while(c, "one made for each", [](const std::string&, int step) {
         ::close(::open(numbered("new", step).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
       });
       walk_while(c, "linked and the old name removed", [](const std::string& name, int step) {
         (void)!::link(name.c_str(), numbered("l", step).c_str());
         ::unlink(name.c_str());
       });
     },
     anyone},
    {"readdir-remove-as-read",
     [](Ctx& c) {
       fill(c, 1500);
       DIR* stream = ::opendir(".");
       int removed = 0;
       while (const dirent* entry = ::readdir(stream)) {
         if (entry->d_name[0] == 'f') {
           removed += ::unlink(entry->d_name) == 0;
         }
       }
       c.line("removed " + std::to_string(removed));
       c.list();
     },
     anyone},
    {"readdir-telldir-seekdir",
     [](Ctx& c) {
       fill(c, 500);
       DIR* stream = ::opendir(".");
       std::vector<long> places;
       std::vector<std::string> names;
       places.push_back(::telldir(stream));
       while (const dirent* entry = ::readdir(stream)) {
         names.emplace_back(entry->d_name);
         places.push_back(::telldir(stream));
       }
       c.line("entries " + std::to_string(names.size()));
       int good = 0;
       for (std::size_t i = 0; i < names.size(); i += 13) {
         ::seekdir(stream, places[i]);
         const dirent* entry = ::readdir(stream);
         good += entry != nullptr && entry->d_name == names[i];
       }
       c.line("found again " + std::to_string(good));
       ::seekdir(stream, places.back());
       c.check("end is end", ::readdir(stream) == nullptr);
       ::seekdir(stream, places[100]);
       c.line("from the middle " + std::to_string(rest(stream).size()));
     },
     anyone},
    {"readdir-seekdir-after-removal",
     [](Ctx& c) {
       fill(c, 600);
       DIR* stream = ::opendir(".");
       std::set<std::string> first;
       for (int i = 0; i < 200; ++i) {
         first.insert(::readdir(stream)->d_name);
       }
       const long place = ::telldir(stream);
       rest(stream);
       for (const std::string& name : first) {
         ::unlink(name.c_str());
       }
       ::seekdir(stream, place);
       const std::vector<std::string> second = rest(stream);
       int repeated = 0;
       for (const std::string& name : second) {
         repeated += first.contains(name);
       }
       c.line("rest " + std::to_string(second.size()) + ", repeated " + std::to_string(repeated));
     },
     anyone},
    {"readdir-rewinddir",
     [](Ctx& c) {
       fill(c, 10);
       DIR* stream = ::opendir(".");
       c.line("first " + std::to_string(rest(stream).size()));
       c.put("new");
       c.must("unlink", ::unlink("f0"));
       c.must("unlink", ::unlink("f1"));
       ::rewinddir(stream);
       c.line("second " + std::to_string(rest(stream).size()));
       c.check("end again", ::readdir(stream) == nullptr);
     },
     anyone},
    {"readdir-fresh-after-change-by-another",
     [](Ctx& c) {
       fill(c, 5);
       c.list();
       c.in_child([&] { c.put("by-child"), c.must("unlink", ::unlink("f2")); });
       c.list();
       c.in_child([&] { c.must("rename", ::rename("f3", "moved")), c.dir("sub"); });
       c.list();
     },
     anyone},
    {"readdir-two-streams",
     [](Ctx& c) {
       fill(c, 300);
       DIR* one = ::opendir(".");
       DIR* two = ::opendir(".");
       std::set<std::string> left;
       std::set<std::string> right;
       for (int i = 0; i < 302; ++i) {
         if (const dirent* entry = ::readdir(one)) {
           left.insert(entry->d_name);
         }
         if (const dirent* entry = ::readdir(two)) {
           right.insert(entry->d_name);
         }
       }
       c.check("same names", left == right);
       c.line("names " + std::to_string(left.size()));
     },
     anyone},
    {"readdir-dup-shares-position",
     [](Ctx& c) {
       fill(c, 100);
       const int fd = c.open(".", O_RDONLY);
       DIR* one = ::fdopendir(::dup(fd));
       c.line("all " + std::to_string(rest(one).size()));
       DIR* two = ::fdopendir(fd);
       c.line("rest " + std::to_string(rest(two).size()));
       c.call("seek", ::lseek(fd, 0, SEEK_SET));
       c.line("again " + std::to_string(rest(two).size()));
     },
     anyone},
    {"readdir-errors",
     [](Ctx& c) {
       c.put("file");
       c.list("file");
       c.list("none");
       char buffer[1024];
       c.call("getdents of a file", ::getdents64(c.open("file", O_RDONLY), buffer, sizeof buffer));
       c.call("getdents into nothing", ::getdents64(c.open(".", O_RDONLY), buffer, 1));
       c.call("seek negative", ::lseek(c.open(".", O_RDONLY), -1, SEEK_SET));
     },
     anyone},
    {"chdir",
     [](Ctx& c) {
       c.dir("d");
       c.put("f");
       c.call("file", ::chdir("f"));
       c.call("none", ::chdir("none"));
       c.call("dir", ::chdir("d"));
       c.cwd();
       c.call("up", ::chdir(".."));
       c.cwd();
       c.call("fchdir file", ::fchdir(c.open("f", O_RDONLY)));
       c.call("fchdir dir", ::fchdir(c.open("d", O_PATH)));
       c.cwd();
     },
     anyone},
    {"negative-lookup",
     [](Ctx& c) {
       c.stat("x");
       c.in_child([&] { c.put("x", "made by another"); });
       c.content("x");
       c.in_child([&] { c.must("unlink", ::unlink("x")); });
       c.stat("x");
       c.in_child([&] { c.dir("x"); });
       c.stat("x");
     },
     anyone},
};

}  // namespace

std::span<const Case> dir_cases() {
  return cases;
}

}  // namespace parity
