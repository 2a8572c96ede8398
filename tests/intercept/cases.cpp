// SPDX-License-Identifier: BSD-3-Clause
// What a program with the preloaded library must not notice, case by case, in the directory of the
// argument. `raw` calls pass by the library: they are the other door. KIND: `served`; `reads`: the
// mount does not pass writes through; `plain`: without the library, to see that the kernel does the
// same.
//   efs-intercept-cases DIRECTORY KIND [CASE]
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "intercept/raw.hpp"

namespace {

using efs::intercept::raw;

int failures = 0;
std::string root;
bool has_library = true;
bool writes_by_memory = true;

void expect(bool holds, const char* text, int line) {
  if (!holds && ++failures <= 5) {
    std::printf("not ok line %d: %s (errno %d)\n", line, text, errno);
  }
}

#define EXPECT(condition) expect((condition), #condition, __LINE__)

std::string pattern(std::size_t bytes, unsigned seed = 1) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) {
    seed = seed * 1103515245U + 12345U;
    text[i] = static_cast<char>(seed >> 16);
  }
  return text;
}

bool is_mapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.size() >= path.size() && line.ends_with(path)) {
      return true;
    }
  }
  return false;
}

// A file with these bytes, written by the other door.
std::string make(const char* name, const std::string& bytes) {
  const std::string path = root + "/" + name;
  const long fd = raw(SYS_openat, AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
  EXPECT(fd >= 0);
  EXPECT(raw(SYS_pwrite64, fd, bytes.data(), bytes.size(), 0) == static_cast<long>(bytes.size()));
  raw(SYS_close, fd);
  return path;
}

// So many calls that the file is mapped.
void warm(int fd) {
  char byte;
  for (int i = 0; i < 300; ++i) {
    EXPECT(pread(fd, &byte, 1, i) == 1);
  }
}

int opened(const std::string& path, int flags = O_RDWR) {
  const int fd = open(path.c_str(), flags, 0644);
  if (fd < 0) {
    std::perror(path.c_str());
    exit(2);
  }
  if ((flags & O_ACCMODE) != O_WRONLY) {
    warm(fd);
    EXPECT(is_mapped(path) || !has_library);
  }
  return fd;
}

std::string by_kernel(int fd, std::size_t bytes, off_t offset) {
  std::string text(bytes, '\0');
  const long got = raw(SYS_pread64, fd, text.data(), bytes, offset);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

int in_child(const std::function<void()>& action) {
  const pid_t pid = fork();
  if (pid == 0) {
    failures = 0;
    action();
    _exit(failures == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void both_doors() {
  const std::string bytes = pattern(1 << 20);
  const std::string path = make("both", bytes);
  const int fd = opened(path);
  std::string got(5000, '\0');
  for (off_t offset : {0, 1, 4095, 4096, 777777, (1 << 20) - 5000}) {
    EXPECT(pread(fd, got.data(), got.size(), offset) == 5000);
    EXPECT(got == bytes.substr(offset, 5000));
  }
  const std::string other = pattern(5000, 7);
  for (off_t offset : {0, 3, 4095, 500000}) {
    for (int i = 0; i < 3; ++i) {
      EXPECT(pwrite(fd, other.data(), other.size(), offset) == 5000);
    }
    EXPECT(by_kernel(fd, 5000, offset) == other);
    EXPECT(raw(SYS_pwrite64, fd, bytes.data() + offset, 5000, offset) == 5000);
    EXPECT(pread(fd, got.data(), got.size(), offset) == 5000);
    EXPECT(got == bytes.substr(offset, 5000));
  }
  close(fd);
  EXPECT(!is_mapped(path));
}

void ends_of_file() {
  const std::string path = make("ends", pattern(10000));
  const int fd = opened(path);
  char buffer[6000];
  EXPECT(pread(fd, buffer, 6000, 8000) == 2000);
  EXPECT(pread(fd, buffer, 6000, 10000) == 0);
  EXPECT(pread(fd, buffer, 0, 0) == 0);
  EXPECT(pread(fd, buffer, 10, -1) == -1 && errno == EINVAL);
  EXPECT(lseek(fd, 9990, SEEK_SET) == 9990);
  EXPECT(read(fd, buffer, 100) == 10);
  EXPECT(read(fd, buffer, 100) == 0);
  EXPECT(lseek(fd, 0, SEEK_CUR) == 10000);
  EXPECT(write(fd, "end", 3) == 3);
  EXPECT(lseek(fd, 0, SEEK_END) == 10003);
  EXPECT(lseek(fd, -20000, SEEK_CUR) == -1 && errno == EINVAL);
  EXPECT(pread(fd, buffer, 10, 9999) == 4);
  constexpr off_t last = 0x7fff'ffff'ffff'ffff;
  EXPECT(lseek(fd, last, SEEK_SET) == last);
  EXPECT(lseek(fd, 1, SEEK_CUR) == -1 && errno == EINVAL);
  EXPECT(write(fd, "x", 1) == -1);
  EXPECT(by_kernel(fd, 1, 0) == pattern(1));
  close(fd);
}

void truncation_by_another_process() {
  const std::string path = make("cut", pattern(100000));
  const int fd = opened(path);
  char buffer[4096];
  for (int round = 0; round < 200; ++round) {
    EXPECT(pread(fd, buffer, 4096, 50000) == 4096);
    // as another process does it: the library of this one does not see it
    EXPECT(raw(SYS_truncate, path.c_str(), 50010) == 0);
    EXPECT(pread(fd, buffer, 4096, 50000) == 10);
    EXPECT(raw(SYS_truncate, path.c_str(), 100000) == 0);
    EXPECT(pread(fd, buffer, 4096, 50000) == 4096);
    EXPECT(buffer[10] == 0 && buffer[4095] == 0);
  }
  close(fd);
}

void cut_while_read() {
  const std::string path = make("race", pattern(1 << 20));
  const int fd = opened(path);
  const pid_t pid = fork();
  if (pid == 0) {
    for (int i = 0; i < 3000; ++i) {
      raw(SYS_truncate, path.c_str(), 4096);
      raw(SYS_truncate, path.c_str(), 1 << 20);
    }
    raw(SYS_exit_group, 0);
  }
  std::string buffer(1 << 20, '\0');
  int status = 0;
  for (unsigned i = 0; waitpid(pid, &status, WNOHANG) == 0; ++i) {
    const ssize_t got = pread(fd, buffer.data(), 60000, (i * 61441) % 900000);
    EXPECT(got >= 0);
    EXPECT(pwrite(fd, buffer.data(), 3000, (i * 61441) % 900000) == 3000);
  }
  EXPECT(WIFEXITED(status));
  close(fd);
}

// Compilers know that these calls take no null.
void* bad_address(std::uintptr_t address) {
  volatile std::uintptr_t hidden = address;
  return reinterpret_cast<void*>(hidden);
}

void bad_pointers() {
  const std::string path = make("bad", pattern(65536));
  const int fd = opened(path);
  auto* hole = static_cast<char*>(
      mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(hole + 4096, 4096, PROT_NONE);
  EXPECT(pread(fd, hole + 4096, 100, 0) == -1 && errno == EFAULT);
  EXPECT(pread(fd, bad_address(0), 100, 0) == -1 && errno == EFAULT);
  pwrite(fd, "x", 1, 0);
  EXPECT(pwrite(fd, bad_address(0), 100, 0) == -1 && errno == EFAULT);
  const ssize_t part = pread(fd, hole + 4000, 200, 0);
  EXPECT((part == -1 && errno == EFAULT) || (part > 0 && part <= 96));
  munmap(hole, 8192);
  close(fd);
}

volatile sig_atomic_t caught = 0;
sigjmp_buf back;

void signals_of_the_program() {
  const std::string path = make("signals", pattern(65536));
  struct sigaction mine{};
  mine.sa_sigaction = [](int, siginfo_t* info, void*) {
    caught = info->si_code;
    siglongjmp(back, 1);
  };
  mine.sa_flags = SA_SIGINFO;
  const int fd = opened(path);
  EXPECT(sigaction(SIGSEGV, &mine, nullptr) == 0);
  struct sigaction seen{};
  EXPECT(sigaction(SIGSEGV, nullptr, &seen) == 0);
  EXPECT(seen.sa_sigaction == mine.sa_sigaction && (seen.sa_flags & SA_SIGINFO) != 0);
  if (sigsetjmp(back, 1) == 0) {
    *static_cast<volatile char*>(nullptr) = 1;
  }
  EXPECT(caught == SEGV_MAPERR);
  caught = 0;
  char buffer[10];
  EXPECT(pread(fd, bad_address(0), 10, 0) == -1 && errno == EFAULT && caught == 0);
  sigset_t all;
  sigfillset(&all);
  EXPECT(pthread_sigmask(SIG_SETMASK, &all, nullptr) == 0);
  EXPECT(pread(fd, bad_address(8), 10, 0) == -1 && errno == EFAULT);
  EXPECT(pread(fd, buffer, 10, 0) == 10);
  sigemptyset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  signal(SIGSEGV, SIG_DFL);
  EXPECT(in_child([] { *static_cast<volatile char*>(nullptr) = 1; }) == 128);
  close(fd);
}

void offset_of_a_fork() {
  const std::string bytes = pattern(100000);
  const std::string path = make("fork", bytes);
  const int fd = opened(path);
  char buffer[100];
  lseek(fd, 0, SEEK_SET);
  for (int i = 0; i < 50; ++i) {
    EXPECT(read(fd, buffer, 100) == 100);
  }
  EXPECT(in_child([&] {
           EXPECT(lseek(fd, 0, SEEK_CUR) == 5000);
           for (int i = 0; i < 10; ++i) {
             EXPECT(read(fd, buffer, 100) == 100);
           }
           EXPECT(memcmp(buffer, bytes.data() + 5900, 100) == 0);
         }) == 0);
  EXPECT(read(fd, buffer, 100) == 100);
  EXPECT(memcmp(buffer, bytes.data() + 6000, 100) == 0);
  close(fd);
}

void offset_of_an_exec() {
  const std::string path = make("exec", pattern(100000));
  const int fd = opened(path);
  lseek(fd, 1234, SEEK_SET);
  char buffer[66];
  EXPECT(read(fd, buffer, 66) == 66);
  const std::string command =
      "test $(sed -n 's/^pos:[[:space:]]*//p' /proc/self/fdinfo/" + std::to_string(fd) + ") = 1300";
  EXPECT(system(command.c_str()) == 0);
  EXPECT(read(fd, buffer, 66) == 66);
  const std::string again = "exec test $(sed -n 's/^pos:[[:space:]]*//p' /proc/self/fdinfo/" +
                            std::to_string(fd) + ") = 1366";
  EXPECT(in_child([&] { execl("/bin/sh", "sh", "-c", again.c_str(), nullptr); }) == 0);
  const char* arguments[] = {"sh", "-c", again.c_str(), nullptr};
  pid_t pid = 0;
  EXPECT(posix_spawn(&pid, "/bin/sh", nullptr, nullptr, const_cast<char**>(arguments), environ) ==
         0);
  int status = 1;
  waitpid(pid, &status, 0);
  EXPECT(status == 0);
  const pid_t child = vfork();
  if (child == 0) {
    close(fd);
    _exit(0);
  }
  waitpid(child, &status, 0);
  EXPECT(pread(fd, buffer, 66, 0) == 66);
  close(fd);
}

void offset_of_a_dup() {
  const std::string bytes = pattern(100000);
  const std::string path = make("dup", bytes);
  const int fd = opened(path);
  char buffer[100];
  lseek(fd, 0, SEEK_SET);
  EXPECT(read(fd, buffer, 100) == 100);
  const int twin = dup(fd);
  EXPECT(read(twin, buffer, 100) == 100);
  EXPECT(memcmp(buffer, bytes.data() + 100, 100) == 0);
  for (int i = 0; i < 100; ++i) {
    EXPECT(read(i % 2 == 0 ? fd : twin, buffer, 100) == 100);
    EXPECT(memcmp(buffer, bytes.data() + 200 + i * 100, 100) == 0);
  }
  close(fd);
  EXPECT(read(twin, buffer, 100) == 100);
  EXPECT(memcmp(buffer, bytes.data() + 10200, 100) == 0);
  close(twin);
  EXPECT(!is_mapped(path));
}

void offset_of_a_message() {
  const std::string path = make("message", pattern(100000));
  const int fd = opened(path);
  lseek(fd, 0, SEEK_SET);
  char buffer[100];
  EXPECT(read(fd, buffer, 100) == 100);
  int ends[2];
  EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  char byte = 'x';
  iovec one{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &one;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(head), &fd, sizeof fd);
  EXPECT(sendmsg(ends[0], &message, 0) == 1);
  EXPECT(recvmsg(ends[1], &message, 0) == 1);
  int got = -1;
  memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
  EXPECT(lseek(got, 0, SEEK_CUR) == 100);
  EXPECT(read(fd, buffer, 100) == 100);
  EXPECT(lseek(got, 0, SEEK_CUR) == 200);
  for (int each : {fd, got, ends[0], ends[1]}) {
    close(each);
  }
}

void offset_of_a_stream() {
  const std::string bytes = pattern(100000);
  const int fd = opened(make("stream", bytes));
  lseek(fd, 0, SEEK_SET);
  char buffer[100];
  EXPECT(read(fd, buffer, 100) == 100);
  FILE* stream = fdopen(fd, "r+");
  EXPECT(fread(buffer, 1, 100, stream) == 100);
  EXPECT(memcmp(buffer, bytes.data() + 100, 100) == 0);
  fclose(stream);
}

void append_flag() {
  const std::string path = make("append", pattern(10000));
  const int fd = opened(path);
  EXPECT(fcntl(fd, F_SETFL, O_APPEND) == 0);
  EXPECT(pwrite(fd, "tail", 4, 0) == 4);  // Linux appends
  struct stat status{};
  fstat(fd, &status);
  EXPECT(status.st_size == 10004);
  EXPECT(fcntl(fd, F_SETFL, 0) == 0);
  warm(fd);
  EXPECT(pwrite(fd, "head", 4, 0) == 4);
  fstat(fd, &status);
  EXPECT(status.st_size == 10004);
  close(fd);
}

void access_modes() {
  const std::string path = make("modes", pattern(10000));
  const int both = opened(path);
  const int reads = opened(path, O_RDONLY);
  char byte = 'x';
  for (int i = 0; i < 40; ++i) {
    EXPECT(pwrite(reads, &byte, 1, 0) == -1 && errno == EBADF);
  }
  const int writes = open(path.c_str(), O_WRONLY);
  for (int i = 0; i < 100; ++i) {
    EXPECT(pwrite(writes, "w", 1, i) == 1);
    EXPECT(pread(writes, &byte, 1, i) == -1 && errno == EBADF);
  }
  EXPECT(by_kernel(both, 100, 0) == std::string(100, 'w'));
  close(both);
  close(reads);
  EXPECT(is_mapped(path) || !writes_by_memory || !has_library);
  close(writes);
  EXPECT(!is_mapped(path));
}

void times_move() {
  const std::string path = make("times", pattern(10000));
  const int fd = opened(path);
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  EXPECT(futimens(fd, old) == 0);
  char bytes[64] = {};
  for (int i = 0; i < 2000; ++i) {
    EXPECT(pwrite(fd, bytes, sizeof bytes, i) == 64);
  }
  struct stat status{};
  fstat(fd, &status);
  EXPECT(status.st_mtim.tv_sec > 1000);
  EXPECT(futimens(fd, old) == 0);
  fstat(fd, &status);
  EXPECT(status.st_mtim.tv_sec == 1000);
  close(fd);  // what was stored before the times were set does not move them
  stat(path.c_str(), &status);
  EXPECT(status.st_mtim.tv_sec == 1000);
}

void holes_stay() {
  const std::string path = make("holes", "x");
  EXPECT(truncate(path.c_str(), 32 << 20) == 0);
  const int fd = open(path.c_str(), O_RDWR);
  std::string buffer(65536, 'x');
  for (int round = 0; round < 2; ++round) {
    for (off_t offset = 4096; offset < (32 << 20) - 65536; offset += 65536) {
      EXPECT(pread(fd, buffer.data(), 100, offset) == 100);
      EXPECT(buffer[0] == 0 && buffer[99] == 0);
    }
  }
  struct stat status{};
  fstat(fd, &status);
  EXPECT(status.st_blocks <= 16);
  close(fd);
}

void closed_behind_our_back() {
  const std::string path = make("closed", pattern(10000));
  const std::string other = root + "/../other-door";
  const int fd = opened(path);
  raw(SYS_close, fd);
  const long again = raw(SYS_openat, AT_FDCWD, other.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
  EXPECT(again == fd);
  raw(SYS_pwrite64, again, "other", 5, 0);
  const timespec pause{0, 2'000'000};  // more than a tick, after which the library looks
  nanosleep(&pause, nullptr);
  char buffer[10] = {};
  EXPECT(pread(fd, buffer, 10, 0) == 5);
  EXPECT(memcmp(buffer, "other", 5) == 0);
  close(fd);
  unlink(other.c_str());
  EXPECT(!is_mapped(path));
}

void vectors() {
  const std::string bytes = pattern(100000);
  const int fd = opened(make("vectors", bytes));
  char first[10], second[1000];
  const iovec parts[] = {{first, 10}, {nullptr, 0}, {second, 1000}};
  EXPECT(preadv(fd, parts, 3, 500) == 1010);
  EXPECT(memcmp(first, bytes.data() + 500, 10) == 0);
  EXPECT(memcmp(second, bytes.data() + 510, 1000) == 0);
  lseek(fd, 0, SEEK_SET);
  EXPECT(readv(fd, parts, 3) == 1010);
  EXPECT(lseek(fd, 0, SEEK_CUR) == 1010);
  for (int i = 0; i < 3; ++i) {
    EXPECT(pwritev(fd, parts, 3, 7000) == 1010);
  }
  EXPECT(by_kernel(fd, 1010, 7000) == bytes.substr(0, 1010));
  EXPECT(preadv2(fd, parts, 3, -1, 0) == 1010);
  EXPECT(lseek(fd, 0, SEEK_CUR) == 2020);
  close(fd);
}

void many_threads() {
  const std::string path = make("threads", std::string(1 << 20, 'a'));
  const int fd = opened(path);

  struct Work {
    int fd;
    unsigned number;
    int wrong;
  };

  std::vector<Work> work;
  for (unsigned i = 0; i < 4; ++i) {
    work.push_back({fd, i, 0});
  }
  std::vector<pthread_t> threads(work.size());
  lseek(fd, 0, SEEK_SET);
  for (std::size_t i = 0; i < work.size(); ++i) {
    pthread_create(
        &threads[i], nullptr,
        [](void* given) -> void* {
          auto& mine = *static_cast<Work*>(given);
          char buffer[1024], seen[1024];
          memset(buffer, static_cast<int>('A' + mine.number), sizeof buffer);
          for (int round = 0; round < 3000; ++round) {
            const off_t offset = static_cast<off_t>(mine.number * 262144 + (round % 256) * 1024);
            mine.wrong += pwrite(mine.fd, buffer, sizeof buffer, offset) != 1024 ? 1 : 0;
            mine.wrong += pread(mine.fd, seen, sizeof seen, offset) != 1024 ? 1 : 0;
            mine.wrong += memcmp(buffer, seen, sizeof seen) != 0 ? 1 : 0;
          }
          for (int round = 0; round < 256; ++round) {
            mine.wrong += read(mine.fd, seen, sizeof seen) != 1024 ? 1 : 0;
          }
          return nullptr;
        },
        &work[i]);
  }
  for (pthread_t thread : threads) {
    pthread_join(thread, nullptr);
  }
  for (const Work& each : work) {
    EXPECT(each.wrong == 0);
  }
  char byte;
  EXPECT(read(fd, &byte, 1) == 0);  // each byte was read once
  close(fd);
}

void closed_while_read() {
  const std::string path = make("closing", pattern(1 << 20));
  static std::atomic<int> current{-1};
  static std::atomic<bool> stop{false};
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        std::string buffer(70000, '\0');
        while (!stop.load()) {
          const ssize_t got = pread(current.load(), buffer.data(), buffer.size(), 1000);
          EXPECT(got == 70000 || (got == -1 && errno == EBADF));
        }
        return nullptr;
      },
      nullptr);
  for (int i = 0; i < 50; ++i) {
    const int fd = open(path.c_str(), O_RDWR);  // mapped or not: mappings may not have paid
    current = fd;
    for (int j = 0; j < 100; ++j) {
      char byte;
      pread(fd, &byte, 1, j);
    }
    close(fd);
  }
  stop = true;
  pthread_join(thread, nullptr);
  EXPECT(!is_mapped(path));
}

void set_id_bits() {
  const std::string path = make("setid", pattern(10000));
  const int fd = opened(path);
  char byte = 'x';
  EXPECT(pwrite(fd, &byte, 1, 0) == 1 && pwrite(fd, &byte, 1, 1) == 1);
  EXPECT(chmod(path.c_str(), 06755) == 0);
  EXPECT(pwrite(fd, &byte, 1, 2) == 1 && pwrite(fd, &byte, 1, 3) == 1);
  struct stat status{};
  fstat(fd, &status);
  EXPECT(geteuid() == 0 || (status.st_mode & 06000) == 0);
  close(fd);
}

void size_limit() {
  const std::string path = make("limit", pattern(10000));
  EXPECT(in_child([&] {
           const rlimit limit{5000, 5000};
           setrlimit(RLIMIT_FSIZE, &limit);
           signal(SIGXFSZ, SIG_IGN);
           const int fd = opened(path);
           for (int i = 0; i < 100; ++i) {
             EXPECT(pwrite(fd, "x", 1, 6000) == -1 && errno == EFBIG);
           }
         }) == 0);
}

void removed_file() {
  const std::string bytes = pattern(10000);
  const std::string path = make("removed", bytes);
  const int fd = opened(path);
  EXPECT(unlink(path.c_str()) == 0);
  char buffer[100];
  EXPECT(pread(fd, buffer, 100, 5000) == 100 && memcmp(buffer, bytes.data() + 5000, 100) == 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT(pwrite(fd, "kept", 4, 5000) == 4);
  }
  EXPECT(by_kernel(fd, 4, 5000) == "kept");
  close(fd);
}

void growing_file() {
  const std::string path = root + "/growing";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
  const std::string bytes = pattern(9 << 20);
  for (std::size_t done = 0; done < bytes.size(); done += 8192) {
    EXPECT(write(fd, bytes.data() + done, 8192) == 8192);
    if (done % 65536 == 0) {
      char buffer[512];
      EXPECT(pread(fd, buffer, 512, static_cast<off_t>(done / 2)) == 512);
      EXPECT(memcmp(buffer, bytes.data() + done / 2, 512) == 0);
    }
  }
  EXPECT(is_mapped(path) || !has_library);
  std::string all(bytes.size(), '\0');
  EXPECT(pread(fd, all.data(), all.size(), 0) == static_cast<ssize_t>(all.size()));
  EXPECT(all == bytes);
  close(fd);
}

bool is_as(const std::string& path, const std::string& bytes) {
  const long fd = raw(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY, 0);
  std::string all(bytes.size() + 1, '\0');
  const long got = raw(SYS_pread64, fd, all.data(), all.size(), 0);
  raw(SYS_close, fd);
  return got == static_cast<long>(bytes.size()) && all.compare(0, bytes.size(), bytes) == 0;
}

std::uint64_t bytes_held(int fd) {
  struct stat now{};
  EXPECT(fstat(fd, &now) == 0);
  return static_cast<std::uint64_t>(now.st_blocks) * 512;
}

// Rule 11, and that the room is gone after the close. The other door sees no byte of it.
void room_for_appends() {
  const std::string path = make("appends", "");
  const std::string bytes = pattern(1 << 20);
  const int fd = open(path.c_str(), O_RDWR);
  for (std::size_t at = 0; at < bytes.size(); at += 4096) {
    EXPECT(write(fd, bytes.data() + at, 4096) == 4096);
  }
  EXPECT(is_as(path, bytes));
  if (has_library && writes_by_memory) {
    EXPECT(bytes_held(fd) >= std::uint64_t{2} << 20);
  }
  const int reader = open(path.c_str(), O_RDONLY);
  close(fd);
  EXPECT(is_as(path, bytes));
  for (int looks = 0; looks < 10000 && bytes_held(reader) > bytes.size(); ++looks) {
    usleep(1000);  // the kernel tells the daemon of a close in its own time
  }
  EXPECT(bytes_held(reader) == bytes.size());
  close(reader);
}

void streams_of_the_c_library() {
  const std::string path = make("dprintf", pattern(10000));
  const int fd = opened(path);
  lseek(fd, 0, SEEK_SET);
  char buffer[100];
  EXPECT(read(fd, buffer, 100) == 100);
  EXPECT(dprintf(fd, "%d", 4711) == 4);
  EXPECT(by_kernel(fd, 4, 100) == "4711");
  EXPECT(lseek(fd, 0, SEEK_CUR) == 104);
  close(fd);
}

// The process that has the lock on a byte, as another process sees it; 0: none.
pid_t holder(const std::string& path, off_t offset) {
  int ends[2];
  EXPECT(pipe(ends) == 0);
  EXPECT(in_child([&] {
           const int fd = open(path.c_str(), O_RDWR);
           struct flock lock{};
           lock.l_type = F_WRLCK;
           lock.l_start = offset;
           lock.l_len = 1;
           EXPECT(fcntl(fd, F_GETLK, &lock) == 0);
           const pid_t pid = lock.l_type == F_UNLCK ? 0 : lock.l_pid;
           EXPECT(write(ends[1], &pid, sizeof pid) == sizeof pid);
         }) == 0);
  pid_t pid = -1;
  EXPECT(read(ends[0], &pid, sizeof pid) == sizeof pid);
  close(ends[0]);
  close(ends[1]);
  return pid;
}

void locks_stay() {
  const std::string path = make("locks", pattern(10000));
  const int fd = open(path.c_str(), O_WRONLY);
  EXPECT(lseek(fd, 500, SEEK_SET) == 500);
  EXPECT(lockf(fd, F_LOCK, 10) == 0);
  for (int i = 0; i < 300; ++i) {
    EXPECT(write(fd, "w", 1) == 1);
  }
  EXPECT(holder(path, 505) == getpid());
  EXPECT(lockf(fd, F_LOCK, 10) == 0);  // from the offset on
  EXPECT(holder(path, 805) == getpid() && holder(path, 700) == 0);
  close(fd);
  EXPECT(holder(path, 505) == 0);
}

void data_between_holes() {
  const std::string path = make("between", "");
  EXPECT(truncate(path.c_str(), 8 << 20) == 0);
  const int fd = open(path.c_str(), O_RDWR);
  const std::string bytes = pattern(64 << 10);
  constexpr off_t middle = 1 << 20;
  EXPECT(raw(SYS_pwrite64, fd, bytes.data(), bytes.size(), middle) == 64 << 10);
  struct stat before{}, after{};
  fstat(fd, &before);
  char buffer[512];
  for (int round = 0; round < 3; ++round) {
    for (off_t at = 0; at < (64 << 10); at += 512) {
      EXPECT(pread(fd, buffer, 512, middle + at) == 512);
      EXPECT(memcmp(buffer, bytes.data() + at, 512) == 0);
    }
  }
  fstat(fd, &after);
  EXPECT(after.st_blocks == before.st_blocks);
  close(fd);
}

void cancelled_thread() {
  const std::string path = make("cancelled", pattern(100000));
  static int fd;
  fd = opened(path);
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        char buffer[100];
        for (;;) {
          pread(fd, buffer, 100, 10);
          pwrite(fd, buffer, 100, 99990);
        }
      },
      nullptr);
  pthread_cancel(thread);
  void* result = nullptr;
  pthread_join(thread, &result);
  EXPECT(result == PTHREAD_CANCELED);
  close(fd);
  EXPECT(!is_mapped(path));
}

void limit_of_memory() {
  const std::string path = make("memory", pattern(100000));
  EXPECT(in_child([&] {
           const rlimit limit{std::size_t{1} << 32, std::size_t{1} << 32};
           EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
           const int fd = open(path.c_str(), O_RDWR);
           warm(fd);
           EXPECT(!is_mapped(path));
           close(fd);
         }) == 0);
}

// Threads find out together that a descriptor can be served.
void threads_begin_together() {
  for (int round = 0; round < 30; ++round) {
    const std::string path = make("together", "");
    static int fd;
    fd = open(path.c_str(), O_RDWR);
    std::vector<pthread_t> threads(4);
    for (pthread_t& thread : threads) {
      pthread_create(
          &thread, nullptr,
          [](void*) -> void* {
            for (int i = 0; i < 50; ++i) {
              EXPECT(write(fd, "12345678", 8) == 8);
            }
            return nullptr;
          },
          nullptr);
    }
    for (pthread_t thread : threads) {
      pthread_join(thread, nullptr);
    }
    EXPECT(lseek(fd, 0, SEEK_END) == 1600);
    EXPECT(by_kernel(fd, 1600, 0).find('\0') == std::string::npos);
    close(fd);
  }
}

void child_of_vfork() {
  const std::string bytes = pattern(100000);
  const std::string path = make("vfork", bytes);
  const int fd = opened(path);
  char buffer[100];
  lseek(fd, 0, SEEK_SET);
  EXPECT(read(fd, buffer, 100) == 100);
  const pid_t pid = vfork();
  if (pid == 0) {
    close(fd);
    open("/dev/null", O_RDWR);
    _exit(0);
  }
  int status = 1;
  EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
  for (int i = 1; i < 100; ++i) {
    EXPECT(read(fd, buffer, 100) == 100);
    EXPECT(memcmp(buffer, bytes.data() + i * 100, 100) == 0);
  }
  close(fd);
  EXPECT(!is_mapped(path) && !is_mapped("/.efs-door"));
}

int open_descriptors() {
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) {
    ++count;
  }
  closedir(directory);
  return count;
}

void write_only_files() {
  std::vector<int> files;
  for (int i = 0; i < 100; ++i) {
    const bool here = i < 80;  // of other file systems, the library opens none again
    const std::string path =
        here ? root + "/only" + std::to_string(i) : "/dev/shm/efs-case" + std::to_string(getpid());
    files.push_back(open(path.c_str(), O_WRONLY | O_CREAT, 0644));
    if (!here) {
      unlink(path.c_str());
    }
  }
  const int before = open_descriptors();
  for (const int fd : files) {
    for (int j = 0; j < 70; ++j) {
      EXPECT(write(fd, "1234", 4) == 4);
    }
  }
  EXPECT(open_descriptors() <= before + 65);  // and the door
  for (const int fd : files) {
    close(fd);
  }
  EXPECT(open_descriptors() == before - 100);
  DIR* volatile none = nullptr;
  EXPECT(closedir(none) == -1 && errno == EINVAL);
}

struct Case {
  const char* name;
  void (*run)();
};

constexpr Case cases[] = {
    {"both doors", both_doors},
    {"ends of the file", ends_of_file},
    {"truncation by another process", truncation_by_another_process},
    {"a file is cut while it is read", cut_while_read},
    {"bad pointers", bad_pointers},
    {"signals of the program", signals_of_the_program},
    {"offset: fork", offset_of_a_fork},
    {"offset: exec, spawn, system", offset_of_an_exec},
    {"offset: dup", offset_of_a_dup},
    {"offset: a message", offset_of_a_message},
    {"offset: a stream", offset_of_a_stream},
    {"O_APPEND comes and goes", append_flag},
    {"access modes", access_modes},
    {"times", times_move},
    {"holes take no space", holes_stay},
    {"a close that the library does not see", closed_behind_our_back},
    {"vectors", vectors},
    {"threads", many_threads},
    {"a close while another thread reads", closed_while_read},
    {"set-ID bits", set_id_bits},
    {"a limit of the file size", size_limit},
    {"a removed file", removed_file},
    {"a growing file", growing_file},
    {"room for appends", room_for_appends},
    {"dprintf", streams_of_the_c_library},
    {"locks", locks_stay},
    {"data between holes", data_between_holes},
    {"a cancelled thread", cancelled_thread},
    {"a limit of memory", limit_of_memory},
    {"threads begin together", threads_begin_together},
    {"a child of vfork", child_of_vfork},
    {"write-only files", write_only_files},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s DIRECTORY served|reads|plain [CASE]\n", argv[0]);
    return 2;
  }
  root = argv[1];
  has_library = std::strcmp(argv[2], "plain") != 0;
  writes_by_memory = std::strcmp(argv[2], "served") == 0;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  int bad = 0;
  for (const Case& each : cases) {
    if (argc > 3 && std::strcmp(argv[3], each.name) != 0) {
      continue;
    }
    failures = 0;
    each.run();
    std::printf("%s %s\n", failures == 0 ? "ok" : "not ok", each.name);
    bad += failures == 0 ? 0 : 1;
  }
  return bad == 0 ? 0 : 1;
}
