// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/observer.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>

#include <array>

#include "base/unique_fd.hpp"

namespace efs::fuse {
namespace {

// Returns the process of a thread. FUSE reports the thread, and the thread exists as long as it
// waits for the reply.
pid_t process_of(pid_t tid) {
  if (tid <= 0) {
    return 0;
  }
  const UniqueFd fd(
      ::open(("/proc/" + std::to_string(tid) + "/status").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 512> text{};
  if (!fd || ::read(fd.get(), text.data(), text.size() - 1) <= 0) {
    return tid;
  }
  const char* found = std::strstr(text.data(), "\nTgid:");
  return found == nullptr ? tid : static_cast<pid_t>(std::strtol(found + 6, nullptr, 10));
}

bool has_attribute_name(Operation o) {
  return o == Operation::setxattr || o == Operation::getxattr || o == Operation::removexattr;
}

}  // namespace

void Observer::learn(Operation operation, const Subject& subject, std::uint64_t made) {
  switch (operation) {
    case Operation::link: names_.add(made, subject.new_parent, subject.new_name); break;
    case Operation::lookup:
    case Operation::mknod:
    case Operation::mkdir:
    case Operation::symlink:
    case Operation::create:
      if (made != 0) {
        names_.add(made, subject.ino, subject.name);
      }
      break;
    case Operation::tmpfile: names_.add(made, subject.ino, ""); break;
    case Operation::rename:
      names_.rename(subject.ino, subject.name, subject.new_parent, subject.new_name);
      break;
    default: break;
  }
}

Event Observer::describe(Operation operation, const Subject& subject, uid_t uid, gid_t gid,
                         pid_t tid) const {
  Event event{.operation = operation,
              .truncates = subject.truncates,
              .started = wall_clock(),
              .uid = uid,
              .gid = gid,
              .pid = process_of(tid),
              .tid = tid,
              .offset = subject.offset,
              .size = subject.size};
  if (has_attribute_name(operation)) {
    event.path = names_.path(subject.ino);
    event.other = subject.name;
  } else if (operation == Operation::symlink) {
    event.path = names_.path(subject.ino, subject.name);
    event.other = subject.new_name;
  } else {
    event.path =
        subject.name != nullptr ? names_.path(subject.ino, subject.name) : names_.path(subject.ino);
    if (subject.new_name != nullptr) {
      event.other = names_.path(subject.new_parent, subject.new_name);
    }
  }
  return event;
}

void Observer::tell(const Event& event) const {
  for (auto* sink : sinks_) {
    sink->operation(event);
  }
}

}  // namespace efs::fuse
