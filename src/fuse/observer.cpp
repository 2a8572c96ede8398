#include "fuse/observer.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>

#include <array>

#include "base/unique_fd.hpp"

namespace efs::fuse {
namespace {

// The process of a thread. FUSE tells the thread; while it waits for our reply it cannot go away.
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

void Observer::learn(const Observation& o) {
  if (o.error != 0) {
    return;
  }
  switch (o.operation) {
    case Operation::link: names_.add(o.made, o.new_parent, o.new_name); break;
    case Operation::lookup:
    case Operation::mknod:
    case Operation::mkdir:
    case Operation::symlink:
    case Operation::create:
      if (o.made != 0) {
        names_.add(o.made, o.ino, o.name);
      }
      break;
    case Operation::tmpfile: names_.add(o.made, o.ino, ""); break;
    case Operation::rename: names_.rename(o.ino, o.name, o.new_parent, o.new_name); break;
    case Operation::forget: names_.forget(o.ino, o.count); break;
    default: break;
  }
}

Event Observer::describe(const Observation& o, uid_t uid, gid_t gid, pid_t tid) const {
  Event event{.operation = o.operation,
              .truncates = o.truncates,
              .started = wall_clock(),
              .uid = uid,
              .gid = gid,
              .pid = process_of(tid),
              .tid = tid,
              .offset = o.offset,
              .size = o.size};
  if (has_attribute_name(o.operation)) {
    event.path = names_.path(o.ino);
    event.other = o.name;
  } else if (o.operation == Operation::symlink) {
    event.path = names_.path(o.ino, o.name);
    event.other = o.new_name;
  } else {
    event.path = o.name != nullptr ? names_.path(o.ino, o.name) : names_.path(o.ino);
    if (o.new_name != nullptr) {
      event.other = names_.path(o.new_parent, o.new_name);
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
