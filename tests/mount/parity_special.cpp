// SPDX-License-Identifier: BSD-3-Clause
// Fifos, sockets, running programs, handles and watches.
#include <linux/fs.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "parity.hpp"

namespace parity {
namespace {

sockaddr_un address(const char* path) {
  sockaddr_un result{};
  result.sun_family = AF_UNIX;
  std::strncpy(result.sun_path, path, sizeof result.sun_path - 1);
  return result;
}

int bind_to(const Ctx& c, const char* path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un where = address(path);
  c.call(std::string("bind ") + path,
         ::bind(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where));
  return fd;
}

int connect_to(const Ctx& c, const char* path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un where = address(path);
  c.call(std::string("connect ") + path,
         ::connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where));
  return fd;
}

void exec(const Ctx& c, const char* path) {
  c.run(std::string("exec ") + path,
        [&] { ::execl(path, path, "--helper", "exit", "7", nullptr); });
}

constexpr Case cases[] = {
    {"mknod-kinds",
     [](Ctx& c) {
       c.call("file", ::mknod("f", S_IFREG | 0640, 0));
       c.call("no type", ::mknod("n", 0600, 0));
       c.call("fifo", ::mknod("p", S_IFIFO | 0666, 0));
       c.call("socket", ::mknod("s", S_IFSOCK | 0755, 0));
       c.call("dir", ::mknod("d", S_IFDIR | 0755, 0));
       c.call("link", ::mknod("l", S_IFLNK | 0755, 0));
       c.call("existing", ::mknod("f", S_IFREG | 0640, 0));
       for (const char* path : {"f", "n", "p", "s", "d", "l"}) {
         c.stat(path);
       }
       c.list();
     },
     anyone},
    {"fifo-times",
     [](Ctx& c) {
       c.must("mkfifo", ::mkfifo("p", 0644));
       const int fd = c.open("p", O_RDWR);
       c.moves("write", {"p"}, [&] { c.write(fd, "x"); });
       c.moves("read", {"p"}, [&] { c.read(fd, 1); });
     },
     anyone},
    {"fifo-use",
     [](Ctx& c) {
       c.call("mkfifo", ::mkfifo("p", 0644));
       c.call("mkfifo again", ::mkfifo("p", 0644));
       c.open("p", O_WRONLY | O_NONBLOCK);
       const int reader = c.open("p", O_RDONLY | O_NONBLOCK);
       c.read(reader, 10);
       const int writer = c.open("p", O_WRONLY);
       c.read(reader, 10);
       c.write(writer, "through the fifo");
       c.read(reader, 100);
       c.call("seek", ::lseek(reader, 0, SEEK_SET));
       c.call("ftruncate", ::ftruncate(writer, 0));
       c.call("rename", ::rename("p", "q"));
       c.write(writer, "renamed");
       c.read(reader, 100);
       c.call("unlink", ::unlink("q"));
       c.write(writer, "removed");
       c.read(reader, 100);
       c.must("close", ::close(reader));
       c.write(writer, "nobody");
     },
     anyone},
    {"fifo-two-processes",
     [](Ctx& c) {
       c.must("mkfifo", ::mkfifo("p", 0644));
       const pid_t pid = c.start([&] {
         const int writer = c.get("p", O_WRONLY);
         c.must("write", ::write(writer, "from the child", 14));
       });
       const int reader = c.get("p", O_RDONLY);
       c.read(reader, 100);
       c.finish(pid);
       c.read(reader, 100);
     },
     anyone},
    {"socket-use",
     [](Ctx& c) {
       const int server = bind_to(c, "s");
       c.stat("s");
       bind_to(c, "s");
       connect_to(c, "s");
       c.call("listen", ::listen(server, 5));
       const int client = connect_to(c, "s");
       const int session = c.opened("accept", ::accept(server, nullptr, nullptr));
       c.write(client, "through the socket");
       c.read(session, 100);
       c.open("s", O_RDWR);
       c.call("rename", ::rename("s", "t"));
       connect_to(c, "s");
       connect_to(c, "t");
       c.call("unlink", ::unlink("t"));
       connect_to(c, "t");
       c.put("f");
       bind_to(c, "f");
       connect_to(c, "f");
       bind_to(c, "none/s");
       c.list();
     },
     anyone},
    {"socket-mode",
     [](Ctx& c) {
       ::umask(077);
       const int server = bind_to(c, "s");
       c.must("listen", ::listen(server, 5));
       c.stat("s");
       c.call("chmod", ::chmod("s", 0));
       connect_to(c, "s");
       c.call("chmod", ::chmod("s", 0777));
       connect_to(c, "s");
     },
     anyone},
    {"exec-script",
     [](Ctx& c) {
       c.put("script", "#!/bin/sh\nexit 5\n", 0755);
       exec(c, "./script");
       c.must("chmod", ::chmod("script", 0644));
       exec(c, "./script");
       c.put("bad", "#!/nonexistent/interpreter\n", 0755);
       exec(c, "./bad");
       c.put("empty", "", 0755);
       exec(c, "./empty");
       c.dir("dir");
       exec(c, "./dir");
       exec(c, "./none");
     },
     anyone},
    {"exec-binary",
     [](Ctx& c) {
       c.put_program("program");
       exec(c, "./program");
       c.call("rename", ::rename("program", "moved"));
       exec(c, "./moved");
       c.must("symlink", ::symlink("moved", "link"));
       exec(c, "./link");
       c.call("chmod", ::chmod("moved", 0111));
       exec(c, "./moved");
       c.call("chmod", ::chmod("moved", 0444));
       exec(c, "./moved");
     },
     anyone},
    {"exec-by-descriptor",
     [](Ctx& c) {
       c.put_program("program");
       const int fd = c.open("program", O_RDONLY);
       const int path = c.open("program", O_PATH);
       const char* args[] = {"program", "--helper", "exit", "9", nullptr};
       for (const int which : {fd, path}) {
         c.run("execveat",
               [&] { ::execveat(which, "", const_cast<char**>(args), environ, AT_EMPTY_PATH); });
       }
       c.call("unlink", ::unlink("program"));
       c.run("execveat unlinked",
             [&] { ::execveat(fd, "", const_cast<char**>(args), environ, AT_EMPTY_PATH); });
     },
     anyone},
    {"exec-open-for-writing",
     [](Ctx& c) {
       c.put_program("program");
       const int fd = c.open("program", O_RDWR);
       exec(c, "./program");
       c.must("close", ::close(fd));
       exec(c, "./program");
     },
     anyone},
    {"exec-running-program-is-busy",
     [](Ctx& c) {
       c.put_program("program");
       int to[2];
       int from[2];
       c.must("pipe", ::pipe2(to, O_CLOEXEC));
       c.must("pipe", ::pipe2(from, O_CLOEXEC));
       const pid_t pid = c.start([&] {
         ::dup2(to[0], 0);
         ::dup2(from[1], 1);
         ::execl("./program", "program", "--helper", "wait", nullptr);
         ::_exit(9);
       });
       ::close(from[1]);
       c.read(from[0], 1);
       c.open("program", O_RDWR);
       c.open("program", O_WRONLY | O_TRUNC);
       c.call("truncate", ::truncate("program", 0));
       c.call("chmod", ::chmod("program", 0700));
       c.open("program", O_RDONLY);
       c.put("replacement", "x");
       c.call("replace", ::rename("replacement", "program"));
       c.open("program", O_RDWR);
       c.must("close", ::close(to[1]));
       c.finish(pid);
       c.list();
     },
     anyone},
    {"exec-rewritten",
     [](Ctx& c) {
       for (const char* code : {"3", "4", "5"}) {
         c.put("script", std::string("#!/bin/sh\nexit ") + code + "\n", 0755);
         exec(c, "./script");
       }
     },
     anyone},
    {"inode-flags",
     [](Ctx& c) {
       c.put("f");
       const int fd = c.open("f", O_RDONLY);
       int flags = 0;
       c.call("get", ::ioctl(fd, FS_IOC_GETFLAGS, &flags));
       flags = FS_NODUMP_FL;
       c.call("set nodump", ::ioctl(fd, FS_IOC_SETFLAGS, &flags));
     },
     anyone},
    {"file-handles",
     [](Ctx& c) {
       c.put("f", "data");
       c.dir("d");
       const int mount = c.open(".", O_RDONLY | O_DIRECTORY);
       for (const char* path : {"f", "d"}) {
         alignas(file_handle) char space[sizeof(file_handle) + MAX_HANDLE_SZ];
         auto* handle = reinterpret_cast<file_handle*>(space);
         handle->handle_bytes = MAX_HANDLE_SZ;
         int id = 0;
         if (c.call("name_to_handle_at", ::name_to_handle_at(AT_FDCWD, path, handle, &id, 0)) !=
             0) {
           continue;
         }
         const int fd = c.opened("open_by_handle_at", ::open_by_handle_at(mount, handle, O_RDONLY));
         if (fd >= 0) {
           c.fstat(path, fd);
         }
         ::close(fd);
       }
     },
     root},
    {"inotify",
     [](Ctx& c) {
       const int queue = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
       c.call("watch", ::inotify_add_watch(queue, ".",
                                           IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_DELETE |
                                               IN_MOVE | IN_ATTRIB) > 0
                           ? 0
                           : -1);
       c.put("f", "data");
       c.must("chmod", ::chmod("f", 0600));
       c.must("rename", ::rename("f", "g"));
       c.must("truncate", ::truncate("g", 1));
       c.must("unlink", ::unlink("g"));
       c.dir("d");
       alignas(inotify_event) char space[8192];
       for (ssize_t got = 0; (got = ::read(queue, space, sizeof space)) > 0;) {
         for (ssize_t at = 0; at < got;) {
           const auto* event = reinterpret_cast<const inotify_event*>(space + at);
           c.line("event " + std::to_string(event->mask) + " " +
                  (event->len > 0 ? event->name : ""));
           at += static_cast<ssize_t>(sizeof *event + event->len);
         }
       }
     },
     anyone},
};

}  // namespace

std::span<const Case> special_cases() {
  return cases;
}

}  // namespace parity
