// SPDX-License-Identifier: BSD-3-Clause
#include "takeover/operations.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <set>
#include <sstream>

namespace takeover {
namespace {

constexpr std::size_t some = 5000;  // bytes

std::string text(std::size_t length = some) {
  std::string made(length, '\0');
  for (std::size_t i = 0; i < length; ++i) {
    made[i] = static_cast<char>('a' + i * 7 % 26);
  }
  return made;
}

std::string gave(long result) {
  return (result < 0 ? "errno " + std::to_string(errno) : std::to_string(result)) + "; ";
}

std::string done(long result) {
  return result < 0 ? gave(result) : "ok; ";
}

void put(const char* name, const std::string& content, mode_t mode = 0644) {
  const int fd = ::open(name, O_CREAT | O_TRUNC | O_WRONLY, mode);
  if (fd < 0 ||
      ::write(fd, content.data(), content.size()) != static_cast<ssize_t>(content.size()) ||
      ::fchmod(fd, mode) != 0) {
    std::perror(name), std::abort();
  }
  ::close(fd);
}

std::string content_of(const std::string& name) {
  std::ifstream in(name, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return in ? out.str() : "none";
}

// The operands of + may be evaluated in any order.
std::string in_turn(std::initializer_list<std::string> all) {
  std::string joined;
  for (const auto& one : all) {
    joined += one;
  }
  return joined;
}

// Sets an acl(5) in the kernel's format: the owner and user 1 may write; the mask limits user 1.
int set_acl(const char* name, const char* kind) {
  struct Entry {
    std::uint16_t tag, permissions;
    std::uint32_t id;
  };

  struct {
    std::uint32_t version = 2;
    std::array<Entry, 5> entries{Entry{0x01, 6, ~0U}, Entry{0x02, 6, 1}, Entry{0x04, 4, ~0U},
                                 Entry{0x10, 4, ~0U}, Entry{0x20, 0, ~0U}};
  } const acl;

  return ::setxattr(name, kind, &acl, sizeof acl, 0);
}

std::string mode_of(const char* name) {
  struct stat st{};
  return ::stat(name, &st) != 0 ? gave(-1) : std::to_string(st.st_mode) + "; ";
}

std::string read_all(int fd) {
  std::string read(65536, '\0');
  const auto n = ::pread(fd, read.data(), read.size(), 0);
  if (n < 0) {
    return gave(n);
  }
  read.resize(static_cast<std::size_t>(n));
  return std::to_string(n) + " bytes, hash " + std::to_string(std::hash<std::string>()(read)) +
         "; ";
}

void nothing(const Place&) {}

void a_file(const Place&) {
  put("f", text());
}

void two_files(const Place&) {
  put("f", text()), put("g", text(300));
}

void a_directory(const Place&) {
  ::mkdir("d", 0755);
}

void two_names(const Place&) {
  put("f", text()), (void)!::link("f", "g");
}

void many_files(const Place&) {
  for (int i = 0; i < 300; ++i) {
    put(("n" + std::to_string(i)).c_str(), "");
  }
}

int none(const Place&) {
  return -1;
}

int to_read(const Place&) {
  return ::open("f", O_RDONLY);
}

int to_write(const Place&) {
  return ::open("f", O_RDWR);
}

int to_append(const Place&) {
  return ::open("f", O_WRONLY | O_APPEND);
}

int written(const Place&) {
  const int fd = ::open("f", O_RDWR);
  return ::pwrite(fd, "written", 7, 100) == 7 ? fd : -1;
}

// Verbs of efs: a verb interrupted by the worker's death fails and can be repeated.
std::string repeated(const std::string& command) {
  for (int i = 0; i < 5; ++i) {
    if (std::system(("{ " + command + "; } >/dev/null 2>&1").c_str()) == 0) {
      return "ok; ";
    }
  }
  return "fails: " + command;
}

std::vector<Operation> all() {
  return {
      {"create", nothing, none,
       [](const Place&, int) {
         const int fd = ::open("f", O_CREAT | O_EXCL | O_WRONLY, 0640);
         return in_turn({done(fd), gave(::close(fd))});
       }},
      {"create and write", nothing, none,
       [](const Place&, int) {
         const int fd = ::open("f", O_CREAT | O_EXCL | O_RDWR, 0640);
         const std::string data = text();
         return in_turn({done(fd), gave(::write(fd, data.data(), data.size())), read_all(fd),
                         gave(::close(fd))});
       }},
      {"mkdir", nothing, none,
       [](const Place&, int) {
         return gave(::mkdir("d", 0750));
       }},
      {"mknod", nothing, none,
       [](const Place&, int) {
         return in_turn(
             {gave(::mknod("p", S_IFIFO | 0600, 0)), gave(::mknod("f", S_IFREG | 0600, 0))});
       }},
      {"symlink", nothing, none,
       [](const Place&, int) {
         return gave(::symlink("target", "s"));
       }},
      {"link", a_file, none,
       [](const Place&, int) {
         return gave(::link("f", "g"));
       }},
      {"unlink", a_file, none,
       [](const Place&, int) {
         return gave(::unlink("f"));
       }},
      {"unlink of one of two names", two_names, none,
       [](const Place&, int) {
         return gave(::unlink("f"));
       }},
      {"unlink of an open file", a_file, to_read,
       [](const Place&, int held) {
         return in_turn({gave(::unlink("f")), read_all(held), gave(::close(held))});
       }},
      {"rmdir", a_directory, none,
       [](const Place&, int) {
         return gave(::rmdir("d"));
       }},
      {"rename", a_file, none,
       [](const Place&, int) {
         return gave(::rename("f", "g"));
       }},
      {"rename over a file", two_files, none,
       [](const Place&, int) {
         return gave(::rename("f", "g"));
       }},
      {"rename into a directory", [](const Place& p) { a_file(p), a_directory(p); }, none,
       [](const Place&, int) {
         return gave(::rename("f", "d/g"));
       }},
      {"rename of a directory over one",
       [](const Place& p) {
         a_directory(p);
         ::mkdir("e", 0700);
         put("e/f", text());
       },
       none,
       [](const Place&, int) {
         return gave(::rename("e", "d"));
       }},
      {"rename, exchange", two_files, none,
       [](const Place&, int) {
         return gave(::renameat2(AT_FDCWD, "f", AT_FDCWD, "g", RENAME_EXCHANGE));
       }},
      {"rename, noreplace", two_files, none,
       [](const Place&, int) {
         return in_turn({gave(::renameat2(AT_FDCWD, "f", AT_FDCWD, "h", RENAME_NOREPLACE)),
                         gave(::renameat2(AT_FDCWD, "h", AT_FDCWD, "g", RENAME_NOREPLACE))});
       }},
      {"chmod", a_file, none,
       [](const Place&, int) {
         return gave(::chmod("f", 0600));
       }},
      {"chown", a_file, none,
       [](const Place&, int) {
         return gave(::chown("f", 1, 1));
       }},
      {"truncate", a_file, none,
       [](const Place&, int) {
         return gave(::truncate("f", 100));
       }},
      {"ftruncate, longer", a_file, to_write,
       [](const Place&, int held) {
         return in_turn({gave(::ftruncate(held, 9000)), read_all(held)});
       }},
      {"utimens", a_file, none,
       [](const Place&, int) {
         const std::array<timespec, 2> times{timespec{.tv_sec = 1000, .tv_nsec = 1},
                                             timespec{.tv_sec = 2000, .tv_nsec = 2}};
         return gave(::utimensat(AT_FDCWD, "f", times.data(), 0));
       }},
      {"write", a_file, to_write,
       [](const Place&, int held) {
         return in_turn({gave(::pwrite(held, "other", 5, 200)), read_all(held)});
       }},
      {"append", a_file, to_append,
       [](const Place&, int held) {
         return in_turn({gave(::write(held, "more", 4)), gave(::write(held, "again", 5))});
       }},
      {"write that takes setuid away", [](const Place&) { put("f", text(), 06777); }, to_write,
       [](const Place&, int held) {
         return in_turn({gave(::setuid(65534)), gave(::pwrite(held, "other", 5, 200))});
       }},
      {"read", a_file, to_read,
       [](const Place&, int held) {
         return read_all(held);
       }},
      {"fallocate", a_file, to_write,
       [](const Place&, int held) {
         return in_turn(
             {gave(::fallocate(held, 0, 0, 100000)),
              gave(::fallocate(held, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 200))});
       }},
      {"open that truncates", a_file, none,
       [](const Place&, int) {
         const int fd = ::open("f", O_WRONLY | O_TRUNC);
         return in_turn({done(fd), gave(::write(fd, "new", 3)), gave(::close(fd))});
       }},
      {"open to read and close", a_file, none,
       [](const Place&, int) {
         const int fd = ::open("f", O_RDONLY);
         return in_turn({done(fd), read_all(fd), gave(::close(fd))});
       }},
      {"setxattr", a_file, none,
       [](const Place&, int) {
         return gave(::setxattr("f", "user.a", "value", 5, XATTR_CREATE));
       }},
      {"setxattr of a directory", a_directory, none,
       [](const Place&, int) {
         return in_turn({gave(::setxattr("d", "user.a", "value", 5, XATTR_CREATE)),
                         gave(::setxattr("d", "user.a", "new", 3, XATTR_REPLACE))});
       }},
      {"removexattr",
       [](const Place& p) {
         a_file(p);
         ::setxattr("f", "user.a", "value", 5, 0);
       },
       none,
       [](const Place&, int) {
         return gave(::removexattr("f", "user.a"));
       }},
      {"getxattr",
       [](const Place& p) {
         a_file(p);
         ::setxattr("f", "user.a", "value", 5, 0);
       },
       none,
       [](const Place&, int) {
         std::array<char, 64> value{};
         return in_turn({gave(::getxattr("f", "user.a", value.data(), value.size())),
                         std::string(value.data()),
                         gave(::getxattr("f", "user.b", value.data(), value.size()))});
       }},
      {"listxattr",
       [](const Place& p) {
         a_file(p);
         ::setxattr("f", "user.a", "value", 5, 0), ::setxattr("f", "user.bc", "value", 5, 0);
       },
       none,
       [](const Place&, int) {
         std::array<char, 64> names{};
         return in_turn({gave(::listxattr("f", names.data(), names.size())),
                         gave(::listxattr("f", nullptr, 0))});
       }},
      {"an access ACL", a_file, none,
       [](const Place&, int) {
         return in_turn({gave(set_acl("f", "system.posix_acl_access")), mode_of("f"),
                         gave(::removexattr("f", "system.posix_acl_access")), mode_of("f")});
       }},
      {"a default ACL", a_directory, none,
       [](const Place&, int) {
         const std::string set = gave(set_acl("d", "system.posix_acl_default"));
         const int fd = ::open("d/f", O_CREAT | O_EXCL | O_WRONLY, 0666);
         return in_turn({set, done(fd), gave(::close(fd)), mode_of("d/f"),
                         gave(::getxattr("d/f", "system.posix_acl_access", nullptr, 0))});
       }},
      {"fsync", a_file, written,
       [](const Place&, int held) {
         return in_turn({gave(::fsync(held)), gave(::fdatasync(held))});
       }},
      {"fsync of a directory", a_directory, [](const Place&) { return ::open("d", O_RDONLY); },
       [](const Place&, int held) {
         return gave(::fsync(held));
       }},
      {"close of one of two descriptors", a_file, written,
       [](const Place&, int held) {
         return in_turn({gave(::close(::dup(held))), read_all(held)});
       }},
      {"close", a_file, written,
       [](const Place&, int held) {
         return gave(::close(held));
       }},
      {"copy_file_range", two_files, to_read,
       [](const Place&, int held) {
         const int to = ::open("g", O_WRONLY);
         return in_turn(
             {gave(::copy_file_range(held, nullptr, to, nullptr, 4000, 0)), gave(::close(to))});
       }},
      {"O_TMPFILE", nothing, none,
       [](const Place&, int) {
         const int fd = ::open(".", O_TMPFILE | O_RDWR, 0600);
         const std::string path = "/proc/self/fd/" + std::to_string(fd);
         return in_turn({done(fd), gave(::write(fd, "data", 4)),
                         gave(::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "t", AT_SYMLINK_FOLLOW)),
                         read_all(fd), gave(::close(fd))});
       }},
      {"O_TMPFILE that gets no name", nothing, none,
       [](const Place&, int) {
         const int fd = ::open(".", O_TMPFILE | O_RDWR, 0600);
         return in_turn({done(fd), gave(::write(fd, "data", 4)), read_all(fd), gave(::close(fd))});
       }},
      {"locks", a_file, to_write,
       [](const Place&, int held) {
         struct flock lock{
             .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10, .l_pid = 0};
         const int other = ::open("f", O_RDWR);
         std::string said =
             in_turn({gave(::flock(held, LOCK_EX)), gave(::fcntl(held, F_SETLK, &lock)),
                      gave(::flock(other, LOCK_EX | LOCK_NB)), gave(::flock(held, LOCK_UN)),
                      gave(::flock(other, LOCK_EX | LOCK_NB))});
         return in_turn({said, gave(::close(other))});
       }},
      {"readdir", many_files, none,
       [](const Place&, int) {
         std::multiset<std::string> names;
         DIR* directory = ::opendir(".");
         if (directory == nullptr) {
           return gave(-1);
         }
         errno = 0;
         while (const dirent* entry = ::readdir(directory)) {
           names.insert(entry->d_name);
         }
         std::string said = errno != 0 ? gave(-1) : "";
         ::closedir(directory);
         for (const auto& name : names) {
           said += name + " ";
         }
         return said;
       }},
      {"lookup and readlink",
       [](const Place&) {
         ::mkdir("d", 0755);
         (void)!::symlink("target", "d/s");
       },
       none,
       [](const Place&, int) {
         std::array<char, 64> target{};
         struct stat st{};
         return in_turn({gave(::readlink("d/s", target.data(), target.size())), target.data(),
                         gave(::stat("d/none", &st)), gave(::lstat("d/s", &st)),
                         std::to_string(st.st_size)});
       }},
      {"lseek",
       [](const Place&) {
         put("f", text());
         (void)!::truncate("f", 1 << 20);
       },
       to_read,
       [](const Place&, int held) {
         return in_turn(
             {gave(::lseek(held, 0, SEEK_HOLE) > 0 ? 1 : 0), gave(::lseek(held, 0, SEEK_END))});
       }},
      {"ioctl", a_file, to_read,
       [](const Place&, int held) {
         return gave(::ioctl(held, _IO(0xEF, 99)));
       }},
      {"statfs", nothing, none,
       [](const Place&, int) {
         struct statfs fs{};
         return gave(::statfs(".", &fs));
       }},
      {"a mapping", a_file, to_write,
       [](const Place&, int held) {
         char* map =
             static_cast<char*>(::mmap(nullptr, some, PROT_READ | PROT_WRITE, MAP_SHARED, held, 0));
         if (map == MAP_FAILED) {
           return gave(-1);
         }
         map[10] = 'X';
         return in_turn(
             {gave(::msync(map, some, MS_SYNC)), read_all(held), gave(::munmap(map, some))});
       }},
      {"load",
       [](const Place& p) {
         ::mkdir((p.pfs + "/" + p.name).c_str(), 0755);
         put((p.pfs + "/" + p.name + "/l").c_str(), text(300000));
       },
       none,
       [](const Place& p, int) {
         if (p.native) {
           std::filesystem::copy_file(p.pfs + "/" + p.name + "/l", "l");
         }
         return p.native ? "ok; "
                         : repeated(p.efs + " load --wait -i " + p.instance + " " + p.name + "/l");
       }},
      {"unload", [](const Place&) { put("u", text(300000)); }, none,
       [](const Place& p, int) {
         const std::string copy = p.results + "/" + p.name + "/u",
                           command =
                               p.efs + " unload --wait -i " + p.instance + " " + p.name + "/u";
         if (p.native) {
           std::filesystem::create_directories(p.results + "/" + p.name),
               std::filesystem::copy_file("u", copy);
         }
         return in_turn({(p.native ? "ok; " : repeated(command + " || " + command + " --as-is")),
                         (content_of(copy) == text(300000) ? "whole" : "not whole")});
       }},
  };
}

std::string xattrs_of(const std::string& path) {
  std::array<char, 4096> names{}, value{};
  std::map<std::string, std::string> found;
  const auto length = ::llistxattr(path.c_str(), names.data(), names.size());
  for (const char* name = names.data(); name < names.data() + length;
       name += std::string(name).size() + 1) {
    const auto size = ::lgetxattr(path.c_str(), name, value.data(), value.size());
    if (std::string(name).starts_with("user.")) {
      found[name] = size < 0 ? "?" : std::string(value.data(), static_cast<std::size_t>(size));
    }
  }
  std::string said;
  for (const auto& [name, its] : found) {
    said += " " + name + "=" + its;
  }
  return said;
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> list = all();
  return list;
}

std::string listing() try {
  std::map<std::string, std::string> lines;
  std::map<ino_t, std::string> first;
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(".")) {
    paths.insert(entry.path());
  }
  for (const auto& path : paths) {
    struct stat st{};
    if (::lstat(path.c_str(), &st) != 0) {
      return path + ": " + gave(-1);
    }
    std::ostringstream line;
    line << path << " " << std::oct << st.st_mode << std::dec << " " << st.st_nlink << " "
         << st.st_uid << ":" << st.st_gid;
    if (S_ISREG(st.st_mode)) {
      line << " " << st.st_size << " hash " << std::hash<std::string>()(content_of(path))
           << " same as " << first.try_emplace(st.st_ino, path).first->second;
    }
    if (S_ISLNK(st.st_mode)) {
      line << " -> " << std::filesystem::read_symlink(path).string();
    }
    if (st.st_mtim.tv_sec < 1000000) {
      line << " mtime " << st.st_mtim.tv_sec << "." << st.st_mtim.tv_nsec;
    }
    lines[path] = line.str() + xattrs_of(path);
  }
  std::string said;
  for (const auto& [path, line] : lines) {
    said += line + "\n";
  }
  return said;
} catch (const std::exception& problem) {  // a wrong answer of the mount is a finding

  return problem.what();
}

}  // namespace takeover
