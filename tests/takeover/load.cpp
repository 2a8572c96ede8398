// SPDX-License-Identifier: BSD-3-Clause
// A program that must not notice the death of the daemon below it.
//   usage: efs-takeover-load DIRECTORY SEED [PROCESSES]
// Works until a line arrives or standard input ends. Then checks its files and prints the duration
// of the longest call. Exit code 0: no call failed and every byte was right.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Failure {
  std::string text;
};

// State shared by the processes: the stop flag, and the longest pause.
struct Shared {
  volatile int stop = 0;
  std::uint64_t operations[64]{};
  std::uint64_t longest_us[64]{};
};

class Worker {
 public:
  Worker(std::string directory, unsigned seed, unsigned index, Shared& shared)
      : directory_(std::move(directory)),
        random_(seed * 1000 + index),
        index_(index),
        shared_(shared) {}

  void run() {
    check("mkdir", ::mkdir(directory_.c_str(), 0755));
    check("chdir", ::chdir(directory_.c_str()));
    hold();
    for (std::uint64_t round = 0; shared_.stop == 0; ++round) {
      files(round);
      directories(round);
      held(round);
      leaf();
      walk(round);
    }
  }

 private:
  // Times every call: its duration is a pause that a program would see.
  template <typename Call>
  auto timed(Call call, const char* what) {
    const auto since = Clock::now();
    const auto result = call();
    const auto took = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - since).count());
    if (took > shared_.longest_us[index_]) {
      shared_.longest_us[index_] = took;
    }
    ++shared_.operations[index_];
    if (result < 0) {
      throw Failure{std::string(what) + ": " + std::strerror(errno)};
    }
    return result;
  }

#define TIMED(call) timed([&] { return call; }, #call)

  void check(const char* what, long result) {
    if (result < 0) {
      throw Failure{std::string(what) + ": " + std::strerror(errno)};
    }
  }

  static void require(bool true_, const std::string& what) {
    if (!true_) {
      throw Failure{what};
    }
  }

  static std::string pattern(std::uint64_t seed, std::size_t length) {
    std::string text(length, '\0');
    for (std::size_t i = 0; i < length; ++i) {
      text[i] = static_cast<char>('a' + (seed * 31 + i * 7) % 26);
    }
    return text;
  }

  void put(const std::string& name, const std::string& text, int flags) {
    const int fd = TIMED(::open(name.c_str(), flags, 0644));
    require(static_cast<std::size_t>(TIMED(::write(fd, text.data(), text.size()))) == text.size(),
            "short write of " + name);
    if (random_() % 4 == 0) {
      TIMED(::fsync(fd));
    }
    TIMED(::close(fd));
  }

  void expect(const std::string& name, const std::string& text) {
    const int fd = TIMED(::open(name.c_str(), O_RDONLY));
    std::string read(text.size() + 1, '\0');
    const auto n = TIMED(::read(fd, read.data(), read.size()));
    TIMED(::close(fd));
    read.resize(static_cast<std::size_t>(n));
    require(read == text, name + " has other bytes than were written (" + std::to_string(n) +
                              " of " + std::to_string(text.size()) + ")");
  }

  void absent(const std::string& name) {
    struct stat st{};
    require(::stat(name.c_str(), &st) != 0 && errno == ENOENT, name + " is there and must not");
  }

  void files(std::uint64_t round) {
    const std::string a = "a" + std::to_string(round % 5), b = "b" + std::to_string(round % 3),
                      l = "link";
    const std::string text = pattern(round, 100 + random_() % 9000),
                      more = pattern(round + 1, random_() % 500);
    put(a, text, O_CREAT | O_EXCL | O_WRONLY);
    expect(a, text);
    put(a, more, O_WRONLY | O_APPEND);
    expect(a, text + more);
    TIMED(::link(a.c_str(), l.c_str()));
    struct stat st{};
    TIMED(::stat(a.c_str(), &st));
    require(st.st_nlink == 2 && st.st_size == static_cast<off_t>(text.size() + more.size()),
            a + ": wrong attributes");
    TIMED(::unlink(l.c_str()));
    absent(l);
    TIMED(::setxattr(a.c_str(), "user.round", &round, sizeof round, XATTR_CREATE));
    TIMED(::rename(a.c_str(), b.c_str()));  // the pattern of checkpoints: replaces an earlier one
    absent(a);
    expect(b, text + more);
    std::uint64_t value = 0;
    TIMED(::getxattr(b.c_str(), "user.round", &value, sizeof value));
    require(value == round, b + ": wrong attribute");
    TIMED(::removexattr(b.c_str(), "user.round"));
    TIMED(::chmod(b.c_str(), 0600));
    TIMED(::truncate(b.c_str(), 50));
    expect(b, text.substr(0, 50));
  }

  void directories(std::uint64_t round) {
    const std::string d = "d" + std::to_string(round % 4);
    TIMED(::mkdir(d.c_str(), 0755));
    TIMED(::symlink("target", (d + "/s").c_str()));
    std::array<char, 16> target{};
    require(TIMED(::readlink((d + "/s").c_str(), target.data(), target.size())) == 6 &&
                std::string(target.data()) == "target",
            "wrong symbolic link");
    put(d + "/f", "x", O_CREAT | O_EXCL | O_WRONLY);
    require(::rmdir(d.c_str()) != 0 && errno == ENOTEMPTY, "rmdir of a full directory");
    TIMED(::rename((d + "/f").c_str(), "moved"));
    TIMED(::unlink("moved"));
    TIMED(::unlink((d + "/s").c_str()));
    TIMED(::rmdir(d.c_str()));
    absent(d);
  }

  // Objects opened before the first death: an unlinked file, a mapping, a lock, a directory stream.
  void hold() {
    unlinked_ = TIMED(::open("unlinked", O_CREAT | O_EXCL | O_RDWR, 0600));
    TIMED(::unlink("unlinked"));
    mapped_file_ = TIMED(::open("mapped", O_CREAT | O_EXCL | O_RDWR, 0600));
    TIMED(::ftruncate(mapped_file_, 65536));
    map_ = static_cast<char*>(
        ::mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, mapped_file_, 0));
    require(map_ != MAP_FAILED, std::string("mmap: ") + std::strerror(errno));
    locked_ = TIMED(::open("locked", O_CREAT | O_EXCL | O_RDWR, 0600));
    TIMED(::flock(locked_, LOCK_EX));
    struct flock part = a_part();
    TIMED(::fcntl(locked_, F_OFD_SETLK, &part));
    TIMED(::mkdir("walked", 0755));
    for (int i = 0; i < 300; ++i) {
      put("walked/" + std::to_string(i), "", O_CREAT | O_EXCL | O_WRONLY);
    }
    TIMED(::mkdir("leafed", 0755));
    for (std::size_t i = 0; i < leaves; ++i) {
      put("leafed/" + std::to_string(i), "", O_CREAT | O_EXCL | O_WRONLY);
    }
    leafed_ = TIMED(::open("leafed", O_RDONLY | O_DIRECTORY));
  }

  void held(std::uint64_t round) {
    const std::string text = pattern(round, 4000);
    const off_t at = static_cast<off_t>(random_() % 100) * 4096;
    require(TIMED(::pwrite(unlinked_, text.data(), text.size(), at)) == 4000, "short write");
    std::string read(4000, '\0');
    require(TIMED(::pread(unlinked_, read.data(), read.size(), at)) == 4000 && read == text,
            "an unlinked file lost its bytes");
    const std::size_t place = random_() % 60000;
    std::memcpy(map_ + place, text.data(), 1000);
    require(TIMED(::pread(mapped_file_, read.data(), 1000, static_cast<off_t>(place))) == 1000 &&
                read.compare(0, 1000, text, 0, 1000) == 0,
            "a mapping and its file differ");
    const int other = TIMED(::open("locked", O_RDWR));
    require(::flock(other, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK, "a lock was lost");
    struct flock part = a_part();
    require(::fcntl(other, F_OFD_SETLK, &part) != 0 && errno == EAGAIN,
            "a lock of a part was lost");
    TIMED(::close(other));
  }

  static struct flock a_part() {
    return {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 50, .l_pid = 0};
  }

  // Reads a directory that stays open, a few names a round, so that deaths occur in between.
  // Expects all names, each once; then starts again.
  void leaf() {
    alignas(dirent64) std::array<char, 1024> entries;
    const ssize_t size = TIMED(::getdents64(leafed_, entries.data(), entries.size()));
    for (ssize_t at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      if (entry->d_name[0] != '.') {
        require(seen_.insert(entry->d_name).second,
                std::string("an open directory gave a name twice: ") + entry->d_name);
      }
      at += entry->d_reclen;
    }
    if (size != 0) {
      return;
    }
    require(seen_.size() == leaves, "an open directory gave " + std::to_string(seen_.size()) +
                                        " of " + std::to_string(leaves) + " names");
    seen_.clear();
    TIMED(::lseek(leafed_, 0, SEEK_SET));
  }

  // Reads a directory in small steps while it changes: each name that stays must be returned
  // exactly once.
  void walk(std::uint64_t round) {
    if (round % 10 != 0) {
      return;
    }
    DIR* directory = ::opendir("walked");
    require(directory != nullptr, std::string("opendir: ") + std::strerror(errno));
    std::multiset<std::string> seen;
    const std::string beside = "walked/beside";
    errno = 0;
    for (int i = 0; const dirent* entry = ::readdir(directory); ++i) {
      if (entry->d_name[0] != '.') {
        seen.insert(entry->d_name);
      }
      if (i == 100) {
        put(beside, "", O_CREAT | O_EXCL | O_WRONLY);
      }
      if (i == 200) {
        TIMED(::unlink(beside.c_str()));
      }
    }
    require(errno == 0, std::string("readdir: ") + std::strerror(errno));
    ::closedir(directory);
    for (int i = 0; i < 300; ++i) {
      require(seen.count(std::to_string(i)) == 1,
              "readdir gave walked/" + std::to_string(i) + " " +
                  std::to_string(seen.count(std::to_string(i))) + " times");
    }
  }

  const std::string directory_;
  std::mt19937 random_;
  const unsigned index_;
  Shared& shared_;
  static constexpr std::size_t leaves = 500;
  int unlinked_ = -1, mapped_file_ = -1, locked_ = -1, leafed_ = -1;
  std::set<std::string> seen_;  // by leaf()
  char* map_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    return 2;
  }
  const std::string directory = argv[1];
  const auto seed = static_cast<unsigned>(std::atoi(argv[2]));
  const unsigned processes = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 3;
  auto* shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> children;
  for (unsigned i = 0; i < processes; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      try {
        Worker(directory + "/p" + std::to_string(i), seed, i, *shared).run();
      } catch (const Failure& failure) {
        std::fprintf(stderr, "process %u: %s\n", i, failure.text.c_str());
        ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(pid);
  }
  int code = 0;
  std::size_t left = children.size();
  while (left == children.size()) {  // until the stop command, or until a process fails
    pollfd input{.fd = 0, .events = POLLIN, .revents = 0};
    if (::poll(&input, 1, 50) > 0) {
      break;
    }
    int status = 0;
    if (::waitpid(-1, &status, WNOHANG) > 0) {
      --left, code = 1;
    }
  }
  shared->stop = 1;
  for (int status = 0; left > 0 && ::wait(&status) > 0; --left) {
    if (status != 0) {
      code = 1;
    }
  }
  std::uint64_t operations = 0, longest = 0;
  for (unsigned i = 0; i < processes; ++i) {
    operations += shared->operations[i], longest = std::max(longest, shared->longest_us[i]);
  }
  std::printf("%llu calls, the longest took %.1f ms\n", static_cast<unsigned long long>(operations),
              static_cast<double>(longest) / 1000);
  return code;
}
