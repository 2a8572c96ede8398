// SPDX-License-Identifier: BSD-3-Clause
// flock, fcntl and open file description locks.
#include <sys/file.h>

#include "parity.hpp"

namespace parity {
namespace {

struct flock range(short type, off_t start, off_t length) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return lock;
}

void lock(const Ctx& c, const char* what, int fd, int command, short type, off_t start,
          off_t length) {
  struct flock asked = range(type, start, length);
  c.call(what, ::fcntl(fd, command, &asked));
}

/// Records the process that blocks a lock; `owner` is the expected one.
void query(const Ctx& c, int fd, int command, short type, off_t start, off_t length, pid_t owner) {
  struct flock asked = range(type, start, length);
  c.call("query", ::fcntl(fd, command, &asked));
  const char* name = asked.l_type == F_UNLCK ? "free" : asked.l_type == F_RDLCK ? "read" : "write";
  c.line(std::string("  ") + name);
  if (asked.l_type == F_UNLCK) {
    return;
  }
  c.line("  " + std::to_string(asked.l_start) + " " + std::to_string(asked.l_len));
  c.check("  the expected owner", asked.l_pid == owner);
}

constexpr Case cases[] = {
    {"flock-two-processes",
     [](Ctx& c) {
       c.put("f");
       const int fd = c.open("f", O_RDWR);
       const auto others = [&] {
         c.in_child([&] {
           const int mine = c.open("f", O_RDONLY);
           c.call("shared", ::flock(mine, LOCK_SH | LOCK_NB));
           c.call("exclusive", ::flock(mine, LOCK_EX | LOCK_NB));
         });
       };
       c.call("exclusive", ::flock(fd, LOCK_EX));
       others();
       c.call("to shared", ::flock(fd, LOCK_SH));
       others();
       c.call("unlock", ::flock(fd, LOCK_UN));
       others();
       c.call("exclusive", ::flock(fd, LOCK_EX));
       c.must("close", ::close(fd));
       others();
       c.call("bad", ::flock(c.open("f", O_RDONLY), 0));
     },
     anyone},
    {"flock-inherited",
     [](Ctx& c) {
       c.put("f");
       const int fd = c.open("f", O_RDWR);
       c.call("lock", ::flock(fd, LOCK_EX));
       c.in_child([&] { c.call("again by the same descriptor", ::flock(fd, LOCK_EX | LOCK_NB)); });
       const int other = c.open("f", O_RDWR);
       c.call("by another descriptor", ::flock(other, LOCK_EX | LOCK_NB));
       const int copy = ::dup(fd);
       c.must("close", ::close(fd));
       c.call("while a copy is open", ::flock(other, LOCK_EX | LOCK_NB));
       c.must("close", ::close(copy));
       c.call("after the last close", ::flock(other, LOCK_EX | LOCK_NB));
     },
     anyone},
    {"flock-released-by-exit",
     [](Ctx& c) {
       c.put("f");
       c.in_child([&] { c.call("lock", ::flock(c.open("f", O_RDWR), LOCK_EX)); });
       c.call("lock", ::flock(c.open("f", O_RDWR), LOCK_EX | LOCK_NB));
     },
     anyone},
    {"flock-waits",
     [](Ctx& c) {
       c.put("f");
       const int fd = c.open("f", O_RDWR);
       c.call("lock", ::flock(fd, LOCK_EX));
       const Gate started;
       const Gate recorded;
       const pid_t pid = c.start([&] {
         const int mine = c.get("f", O_RDWR);
         started.open();
         const int result = ::flock(mine, LOCK_EX);
         const int code = errno;
         recorded.wait();
         errno = code;
         c.call("waiting lock", result);
         c.content("f");
       });
       started.wait();
       c.write(fd, "written under the lock");
       c.call("unlock", ::flock(fd, LOCK_UN));
       recorded.open();
       c.finish(pid);
     },
     anyone},
    {"flock-directory",
     [](Ctx& c) {
       const int one = c.open(".", O_RDONLY);
       const int two = c.open(".", O_RDONLY);
       c.call("lock", ::flock(one, LOCK_EX | LOCK_NB));
       c.call("second", ::flock(two, LOCK_EX | LOCK_NB));
     },
     anyone},
    {"fcntl-two-processes",
     [](Ctx& c) {
       c.put("f", "0123456789");
       const int fd = c.open("f", O_RDWR);
       lock(c, "write 10-19", fd, F_SETLK, F_WRLCK, 10, 10);
       lock(c, "read 30-39", fd, F_SETLK, F_RDLCK, 30, 10);
       const pid_t owner = ::getpid();
       c.in_child([&] {
         const int mine = c.open("f", O_RDWR);
         lock(c, "write 0-9", mine, F_SETLK, F_WRLCK, 0, 10);
         lock(c, "write 5-14", mine, F_SETLK, F_WRLCK, 5, 10);
         lock(c, "read 15-16", mine, F_SETLK, F_RDLCK, 15, 2);
         lock(c, "read 30-39", mine, F_SETLK, F_RDLCK, 30, 10);
         lock(c, "write 30-39", mine, F_SETLK, F_WRLCK, 30, 10);
         lock(c, "everything", mine, F_SETLK, F_WRLCK, 0, 0);
         query(c, mine, F_GETLK, F_WRLCK, 0, 0, owner);
         query(c, mine, F_GETLK, F_RDLCK, 30, 0, owner);
         query(c, mine, F_GETLK, F_WRLCK, 35, 1, owner);
       });
       lock(c, "unlock the middle", fd, F_SETLK, F_UNLCK, 13, 4);
       c.in_child([&] {
         const int mine = c.open("f", O_RDWR);
         query(c, mine, F_GETLK, F_WRLCK, 0, 0, owner);
         query(c, mine, F_GETLK, F_WRLCK, 13, 4, owner);
         query(c, mine, F_GETLK, F_WRLCK, 14, 10, owner);
       });
     },
     anyone},
    {"fcntl-released-by-any-close",
     [](Ctx& c) {
       c.put("f");
       const int fd = c.open("f", O_RDWR);
       lock(c, "lock", fd, F_SETLK, F_WRLCK, 0, 0);
       const auto other = [&] {
         c.in_child([&] { lock(c, "by another", c.open("f", O_RDWR), F_SETLK, F_WRLCK, 0, 0); });
       };
       other();
       const int second = c.open("f", O_RDONLY);
       other();
       c.must("close", ::close(second));
       other();
     },
     anyone},
    {"fcntl-not-inherited",
     [](Ctx& c) {
       c.put("f");
       const int fd = c.open("f", O_RDWR);
       lock(c, "lock", fd, F_SETLK, F_WRLCK, 0, 0);
       c.in_child([&] { lock(c, "by the child", fd, F_SETLK, F_WRLCK, 0, 0); });
       lock(c, "again by the owner", fd, F_SETLK, F_RDLCK, 0, 0);
       c.in_child([&] { lock(c, "by the child", fd, F_SETLK, F_RDLCK, 0, 0); });
     },
     anyone},
    {"fcntl-errors",
     [](Ctx& c) {
       c.put("f");
       lock(c, "write by reader", c.open("f", O_RDONLY), F_SETLK, F_WRLCK, 0, 0);
       lock(c, "read by writer", c.open("f", O_WRONLY), F_SETLK, F_RDLCK, 0, 0);
       const int fd = c.open("f", O_RDWR);
       lock(c, "negative start", fd, F_SETLK, F_WRLCK, -1, 1);
       lock(c, "negative length", fd, F_SETLK, F_WRLCK, 10, -5);
       lock(c, "bad type", fd, F_SETLK, 77, 0, 0);
       lock(c, "directory", c.open(".", O_RDONLY), F_SETLK, F_RDLCK, 0, 0);
       lock(c, "path", c.open("f", O_PATH), F_SETLK, F_RDLCK, 0, 0);
     },
     anyone},
    {"fcntl-waits",
     [](Ctx& c) {
       c.put("f");
       const int fd = c.open("f", O_RDWR);
       lock(c, "lock", fd, F_SETLK, F_WRLCK, 0, 10);
       const Gate started;
       const Gate recorded;
       const pid_t pid = c.start([&] {
         const int mine = c.get("f", O_RDWR);
         started.open();
         struct flock asked = range(F_WRLCK, 5, 10);
         const int result = ::fcntl(mine, F_SETLKW, &asked);
         const int code = errno;
         recorded.wait();
         errno = code;
         c.call("waiting lock", result);
         c.content("f");
       });
       started.wait();
       c.write(fd, "written under the lock");
       lock(c, "unlock", fd, F_SETLK, F_UNLCK, 0, 10);
       recorded.open();
       c.finish(pid);
     },
     anyone},
    {"fcntl-deadlock",
     [](Ctx& c) {
       c.put("f");
       const int fd = c.open("f", O_RDWR);
       lock(c, "lock 0", fd, F_SETLK, F_WRLCK, 0, 1);
       const Gate started;
       int results[2];
       c.must("pipe", ::pipe(results));
       const pid_t pid = c.start([&] {
         lock(c, "lock 1", fd, F_SETLK, F_WRLCK, 1, 1);
         started.open();
         struct flock asked = range(F_WRLCK, 0, 1);
         const char result = ::fcntl(fd, F_SETLKW, &asked) == 0 ? 'y'
                             : errno == EDEADLK                 ? 'd'
                                                                : 'e';
         c.must("write", ::write(results[1], &result, 1));
       });
       started.wait();
       struct flock asked = range(F_WRLCK, 1, 1);
       const char mine = ::fcntl(fd, F_SETLKW, &asked) == 0 ? 'y' : errno == EDEADLK ? 'd' : 'e';
       lock(c, "unlock", fd, F_SETLK, F_UNLCK, 0, 0);
       char other = 0;
       c.must("read", ::read(results[0], &other, 1));
       c.finish(pid);
       c.line(std::string("one got EDEADLK: ") + std::min(mine, other) + std::max(mine, other));
     },
     anyone},
    {"ofd-locks",
     [](Ctx& c) {
       c.put("f");
       const int one = c.open("f", O_RDWR);
       const int two = c.open("f", O_RDWR);
       lock(c, "one 0-9", one, F_OFD_SETLK, F_WRLCK, 0, 10);
       lock(c, "two 5-14", two, F_OFD_SETLK, F_WRLCK, 5, 10);
       lock(c, "two 10-19", two, F_OFD_SETLK, F_WRLCK, 10, 10);
       query(c, two, F_OFD_GETLK, F_WRLCK, 0, 0, -1);
       lock(c, "process lock against it", one, F_SETLK, F_WRLCK, 0, 5);
       c.in_child([&] { lock(c, "one by the child", one, F_OFD_SETLK, F_WRLCK, 0, 5); });
       c.must("close", ::close(c.open("f", O_RDWR)));
       lock(c, "two still refused", two, F_OFD_SETLK, F_WRLCK, 0, 5);
       c.must("close", ::close(one));
       lock(c, "two after the close", two, F_OFD_SETLK, F_WRLCK, 0, 5);
     },
     anyone},
    {"locks-of-two-kinds",
     [](Ctx& c) {
       c.put("f");
       c.call("flock", ::flock(c.open("f", O_RDWR), LOCK_EX | LOCK_NB));
       c.in_child([&] { lock(c, "fcntl", c.open("f", O_RDWR), F_SETLK, F_WRLCK, 0, 0); });
       const int fd = c.open("f", O_RDWR);
       c.call("lockf", ::lockf(fd, F_TLOCK, 0));
       c.call("lockf test", ::lockf(fd, F_TEST, 0));
     },
     anyone},
    {"locks-survive-rename-and-unlink",
     [](Ctx& c) {
       c.put("f");
       const int fd = c.open("f", O_RDWR);
       c.must("link", ::link("f", "g"));
       lock(c, "lock", fd, F_SETLK, F_WRLCK, 0, 0);
       c.must("rename", ::rename("f", "h"));
       c.in_child([&] { lock(c, "by new name", c.open("h", O_RDWR), F_SETLK, F_WRLCK, 0, 0); });
       c.must("unlink", ::unlink("h"));
       c.in_child([&] { lock(c, "by other name", c.open("g", O_RDWR), F_SETLK, F_WRLCK, 0, 0); });
     },
     anyone},
    {"leases",
     [](Ctx& c) {
       c.put("f");
       const int fd = c.open("f", O_RDONLY);
       c.call("read lease", ::fcntl(fd, F_SETLEASE, F_RDLCK));
       c.call("lease is", ::fcntl(fd, F_GETLEASE));
       c.call("no lease", ::fcntl(fd, F_SETLEASE, F_UNLCK));
       c.call("write lease", ::fcntl(fd, F_SETLEASE, F_WRLCK));
       c.call("lease is", ::fcntl(fd, F_GETLEASE));
     },
     anyone},
};

}  // namespace

std::span<const Case> lock_cases() {
  return cases;
}

}  // namespace parity
