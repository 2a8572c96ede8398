// SPDX-License-Identifier: BSD-3-Clause
// Runs the same system calls in two directories and compares results, errno and effects.
//
//   parity NATIVE_DIR TESTED_DIR [--expect FILE] [--user UID] [--only CASE] [--show] | --list
//
// NATIVE_DIR is on tmpfs; TESTED_DIR is on a file system that must behave like it. Every case runs
// in its own process per directory; a case that does not end in 30 s fails. --expect names the
// declared differences, one `case: reason` per line; a declared case without a difference is a
// failure too. --user makes the processes of the cases drop root.
#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "parity.hpp"

namespace parity {
namespace {

constexpr unsigned time_limit = 30;  // seconds a case may take in one directory

struct Options {
  std::string native;
  std::string tested;
  std::map<std::string, std::string> expected;
  std::optional<uid_t> user;
  std::string only;
  bool show = false;
};

/// The result of a case in one directory.
struct Outcome {
  std::vector<std::string> lines;
  std::string trouble;  // the reason for a bad end; empty otherwise
};

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto family :
       {open_cases(), io_cases(), size_cases(), transfer_cases(), space_cases(), rename_cases(),
        link_cases(), dir_cases(), attr_cases(), xattr_cases(), acl_cases(), privilege_cases(),
        time_cases(), atime_cases(), perm_cases(), lock_cases(), map_cases(), special_cases(),
        race_cases()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

void remove_tree(int parent, const char* name) {
  if (::unlinkat(parent, name, 0) == 0 || ::unlinkat(parent, name, AT_REMOVEDIR) == 0) {
    return;
  }
  ::fchmodat(parent, name, 0700, 0);
  const int fd = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  std::vector<std::string> names;
  DIR* stream = ::fdopendir(fd);
  while (const dirent* entry = ::readdir(stream)) {
    const std::string_view found = entry->d_name;
    if (found != "." && found != "..") {
      names.emplace_back(found);
    }
  }
  for (const std::string& child : names) {
    remove_tree(fd, child.c_str());
  }
  ::closedir(stream);
  ::unlinkat(parent, name, AT_REMOVEDIR);
}

/// Runs `body` in a new process group. Reads its output from the pipe until its end or a timeout.
Outcome run_process(const std::function<void(int)>& body) {
  using Clock = std::chrono::steady_clock;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return {{}, "pipe: " + errno_name(errno)};
  }
  const pid_t pid = ::fork();
  if (pid < 0) {
    return {{}, "fork: " + errno_name(errno)};
  }
  if (pid == 0) {
    ::setpgid(0, 0);
    ::alarm(time_limit);
    body(ends[1]);
    ::_exit(0);
  }
  ::setpgid(pid, pid);
  ::close(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  const int ended = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));

  // The alarm ends a waiting process; this deadline covers a process that even SIGKILL does not
  // end.
  const auto deadline = Clock::now() + std::chrono::seconds(time_limit + 5);
  std::string text;
  const auto drain = [&] {
    char part[65536];
    ssize_t got = 0;
    while ((got = ::read(ends[0], part, sizeof part)) > 0) {
      text.append(part, static_cast<std::size_t>(got));
    }
    return got;
  };
  Outcome outcome;
  pollfd waits[2] = {{ended, POLLIN, 0}, {ends[0], POLLIN, 0}};
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      outcome.trouble = "hangs, and does not end when killed";
      break;
    }
    ::poll(waits, 2, static_cast<int>(left));
    if (drain() == 0) {
      waits[1].fd = -1;
    }
    if ((waits[0].revents & POLLIN) != 0) {
      break;
    }
  }
  drain();
  ::kill(-pid, SIGKILL);  // processes that the case left running
  int status = 0;
  if (outcome.trouble.empty() && ::waitpid(pid, &status, 0) == pid) {
    if (WIFSIGNALED(status)) {
      outcome.trouble = WTERMSIG(status) == SIGALRM
                            ? "hangs"
                            : std::string("killed: ") + strsignal(WTERMSIG(status));
    } else if (WEXITSTATUS(status) != 0) {
      outcome.trouble = "exit " + std::to_string(WEXITSTATUS(status));
    }
  }
  ::close(ended);
  ::close(ends[0]);
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    outcome.lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return outcome;
}

Outcome run_case(const Case& test, const std::string& parent, const Options& options) {
  const std::string base = parent + "/" + test.name;
  const auto drop = [&] {
    if (options.user && !become(*options.user, *options.user)) {
      ::_exit(2);
    }
  };
  Outcome outcome = run_process([&](int transcript) {
    // The user's mount may reject root, and root's directory may reject the user: the user tries if
    // root fails.
    bool made = ::mkdir(base.c_str(), 0755) == 0;
    if (made && options.user) {
      made = ::chown(base.c_str(), *options.user, *options.user) == 0;
    }
    drop();
    ::umask(022);
    ::signal(SIGPIPE, SIG_IGN);
    Ctx ctx(transcript, base);
    if ((!made && ::mkdir(base.c_str(), 0755) != 0) || ::chdir(base.c_str()) != 0) {
      const int code = errno;
      ctx.line("cannot make the directory of the case: " + errno_name(code));
      ::_exit(2);
    }
    test.run(ctx);
  });
  const Outcome cleanup = run_process([&](int transcript) {
    remove_tree(AT_FDCWD, base.c_str());
    drop();
    remove_tree(AT_FDCWD, base.c_str());
    struct stat st{};
    if (::lstat(base.c_str(), &st) == 0) {
      Ctx(transcript, base).line("left behind: " + std::string(test.name));
    }
  });
  if (outcome.trouble.empty() && !cleanup.trouble.empty()) {
    outcome.trouble = "cleanup " + cleanup.trouble;
  }
  outcome.lines.insert(outcome.lines.end(), cleanup.lines.begin(), cleanup.lines.end());
  return outcome;
}

/// Prints every line that differs. Returns true if there is none.
bool compare(const char* name, const Outcome& native, const Outcome& tested, bool declared) {
  bool same = true;
  static const std::string nothing = "(nothing)";
  for (std::size_t i = 0; i < std::max(native.lines.size(), tested.lines.size()); ++i) {
    const std::string& left = i < native.lines.size() ? native.lines[i] : nothing;
    const std::string& right = i < tested.lines.size() ? tested.lines[i] : nothing;
    if (left == right) {
      continue;
    }
    same = false;
    std::printf("DIFF %s%s: native: %s tested: %s\n", name, declared ? " (declared)" : "",
                left.c_str(), right.c_str());
  }
  return same;
}

int run_all(const Options& options) {
  const bool is_root = ::geteuid() == 0 && !options.user.value_or(0);
  int passed = 0;
  int failed = 0;
  std::vector<const char*> skipped;
  const std::vector<Case> all = all_cases();
  std::map<std::string, std::string> unknown = options.expected;
  for (const Case& test : all) {
    unknown.erase(test.name);
    if (!options.only.empty() && options.only != test.name) {
      continue;
    }
    if ((test.needs & root) != 0 && !is_root) {
      skipped.push_back(test.name);
      continue;
    }
    const bool declared = options.expected.contains(test.name);
    const Outcome native = run_case(test, options.native, options);
    const Outcome tested = run_case(test, options.tested, options);
    if (options.show) {
      for (const std::string& line : native.lines) {
        std::printf("%s: %s\n", test.name, line.c_str());
      }
    }
    bool good = compare(test.name, native, tested, declared);
    if (!native.trouble.empty()) {
      std::printf("FAIL %s: native: %s\n", test.name, native.trouble.c_str());
    }
    if (!tested.trouble.empty()) {
      std::printf("FAIL %s: tested: %s\n", test.name, tested.trouble.c_str());
    }
    if (declared && good) {
      std::printf("FAIL %s: declared as different, but it is not\n", test.name);
    }
    good = good != declared && native.trouble.empty() && tested.trouble.empty();
    ++(good ? passed : failed);
    std::fflush(stdout);
  }
  for (const auto& [name, reason] : unknown) {
    std::printf("FAIL %s: declared as different, but there is no such case\n", name.c_str());
    ++failed;
  }
  for (const char* name : skipped) {
    std::printf("SKIP %s: needs root\n", name);
  }
  std::printf("%d passed, %d failed, %zu skipped\n", passed, failed, skipped.size());
  return failed == 0 ? 0 : 1;
}

/// The actions of a copy of this program when a case runs it.
int helper(const std::vector<std::string>& args) {
  if (args.size() == 3 && args[1] == "exit") {
    return std::atoi(args[2].c_str());
  }
  if (args.size() == 2 && args[1] == "wait") {
    char byte = 'x';
    if (::write(1, &byte, 1) != 1) {
      return 1;
    }
    return ::read(0, &byte, 1) < 0 ? 1 : 0;
  }
  return 2;
}

bool read_expected(const std::string& path, std::map<std::string, std::string>& expected) {
  std::ifstream file(path);
  if (!file) {
    std::fprintf(stderr, "parity: cannot read %s\n", path.c_str());
    return false;
  }
  for (std::string text; std::getline(file, text);) {
    if (text.empty() || text.front() == '#') {
      continue;
    }
    const std::size_t colon = text.find(": ");
    if (colon == std::string::npos) {
      std::fprintf(stderr, "parity: %s: not `case: reason`: %s\n", path.c_str(), text.c_str());
      return false;
    }
    expected[text.substr(0, colon)] = text.substr(colon + 2);
  }
  return true;
}

int usage() {
  std::fprintf(
      stderr,
      "usage: parity NATIVE_DIR TESTED_DIR [--expect FILE] [--user UID] [--only CASE] [--show]\n"
      "       parity --list\n");
  return 2;
}

int run(const std::vector<std::string>& args) {
  Options options;
  std::vector<std::string> dirs;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const bool more = i + 1 < args.size();
    if (args[i] == "--helper") {
      return helper({args.begin() + static_cast<std::ptrdiff_t>(i), args.end()});
    }
    if (args[i] == "--list") {
      for (const Case& test : all_cases()) {
        std::printf("%s%s\n", test.name, (test.needs & root) != 0 ? " (root)" : "");
      }
      return 0;
    }
    if (args[i] == "--show") {
      options.show = true;
    } else if (args[i] == "--expect" && more) {
      if (!read_expected(args[++i], options.expected)) {
        return 2;
      }
    } else if (args[i] == "--user" && more) {
      options.user = static_cast<uid_t>(std::strtoul(args[++i].c_str(), nullptr, 10));
    } else if (args[i] == "--only" && more) {
      options.only = args[++i];
    } else if (args[i].starts_with("--")) {
      return usage();
    } else {
      dirs.push_back(args[i]);
    }
  }
  if (dirs.size() != 2) {
    return usage();
  }
  if (::geteuid() != 0) {
    options.user.reset();
  }
  for (std::string& dir : dirs) {
    char path[PATH_MAX];
    if (::realpath(dir.c_str(), path) == nullptr) {
      std::fprintf(stderr, "parity: %s: %s\n", dir.c_str(), std::strerror(errno));
      return 2;
    }
    dir = path;
  }
  options.native = dirs[0];
  options.tested = dirs[1];
  return run_all(options);
}

}  // namespace
}  // namespace parity

int main(int argc, char** argv) {
  return parity::run({argv + 1, argv + argc});
}
