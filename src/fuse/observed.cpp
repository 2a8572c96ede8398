#include "fuse/observed.hpp"

#include <cerrno>
#include <chrono>
#include <tuple>

#include "fuse/adapter.hpp"
#include "fuse/library.hpp"
#include "fuse/session.hpp"

namespace efs::fuse {
namespace {

using Clock = std::chrono::steady_clock;

void close_directory(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  fuse_reply_err(request, 0);
}

const fuse_lowlevel_ops& inner() {
  static const fuse_lowlevel_ops operations = [] {
    fuse_lowlevel_ops made = adapter_operations();
    if (made.releasedir == nullptr) {
      made.releasedir = close_directory;
    }
    return made;
  }();
  return operations;
}

// What the arguments of a callback say. libfuse's numbers are all of one type, so positions count,
// and are its API's.
template <Operation operation, typename... Arguments>
void read_arguments(Observation& o, Arguments... arguments) {
  using enum Operation;
  const auto all = std::tuple(arguments...);
  o.operation = operation;
  if constexpr (operation == symlink) {
    o.new_name = std::get<0>(all), o.ino = std::get<1>(all), o.name = std::get<2>(all);
  } else if constexpr (operation == copy_file_range) {
    o.ino = std::get<3>(all), o.offset = static_cast<std::uint64_t>(std::get<4>(all)),
    o.size = std::get<6>(all);
  } else {
    o.ino = std::get<0>(all);
    if constexpr (operation == link) {
      o.new_parent = std::get<1>(all), o.new_name = std::get<2>(all);
    } else if constexpr (operation == rename) {
      o.name = std::get<1>(all), o.new_parent = std::get<2>(all), o.new_name = std::get<3>(all);
    } else if constexpr (operation == read || operation == readdir || operation == readdirplus) {
      o.size = std::get<1>(all), o.offset = static_cast<std::uint64_t>(std::get<2>(all));
    } else if constexpr (operation == write) {
      o.size = std::get<2>(all), o.offset = static_cast<std::uint64_t>(std::get<3>(all));
    } else if constexpr (operation == fallocate) {
      o.offset = static_cast<std::uint64_t>(std::get<2>(all)),
      o.size = static_cast<std::uint64_t>(std::get<3>(all));
    } else if constexpr (operation == lseek) {
      o.offset = static_cast<std::uint64_t>(std::get<1>(all));
    } else if constexpr (operation == forget) {
      o.count = std::get<1>(all);
    } else if constexpr (operation == setattr) {
      o.truncates = (std::get<2>(all) & FUSE_SET_ATTR_SIZE) != 0;
      if (o.truncates) {
        o.size = static_cast<std::uint64_t>(std::get<1>(all)->st_size);
      }
    } else if constexpr (sizeof...(Arguments) > 1) {
      if constexpr (std::is_same_v<std::tuple_element_t<1, std::tuple<Arguments...>>,
                                   const char*>) {
        o.name = std::get<1>(all);
      }
    }
  }
}

// A watcher that runs out of memory misses a request; the request goes on.
template <typename Action>
bool without_exceptions(Action action) {
  try {
    action();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

template <auto Member, Operation operation>
struct Observed;

template <typename... Arguments, void (*fuse_lowlevel_ops::*Member)(fuse_req_t, Arguments...),
          Operation operation>
struct Observed<Member, operation> {
  static void call(fuse_req_t request, Arguments... arguments) {
    Observer& observer = static_cast<Door*>(fuse_req_userdata(request))->observer;
    Observation observation{.operation = operation};
    Event event;
    bool listened = observer.listens();
    if (listened) {
      read_arguments<operation>(observation, arguments...);
      [[maybe_unused]] const fuse_ctx* context = fuse_req_ctx(request);
      if constexpr (operation != Operation::forget) {
        listened = without_exceptions([&] {
          event = observer.describe(observation, context->uid, context->gid, context->pid);
        });
      }
    }
    const auto started = Clock::now();
    current_observation() = &observation;
    (inner().*Member)(request, arguments...);
    current_observation() = nullptr;
    const auto duration = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - started).count());
    observer.counters.of(operation).add(duration, observation.error != 0);
    if (!listened || operation == Operation::forget) {
      return;
    }
    event.duration = duration;
    event.error = observation.missing ? ENOENT : observation.error;
    event.bytes = observation.bytes;
    without_exceptions([&] { observer.tell(event); });
  }
};

// Forgets of many inodes at once have no inode of their own.
void observe_forgets(fuse_req_t request, std::size_t count, fuse_forget_data* forgets) {
  Observer& observer = static_cast<Door*>(fuse_req_userdata(request))->observer;
  if (observer.listens()) {
    for (std::size_t i = 0; i < count; ++i) {
      without_exceptions([&] {
        observer.learn(
            {.operation = Operation::forget, .ino = forgets[i].ino, .count = forgets[i].nlookup});
      });
    }
  }
  const auto started = Clock::now();
  inner().forget_multi(request, count, forgets);
  observer.counters.of(Operation::forget)
      .add(
          static_cast<std::uint64_t>(
              std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - started).count()),
          false);
}

template <auto Member, Operation operation>
void observe(fuse_lowlevel_ops& operations) {
  if (inner().*Member != nullptr) {
    operations.*Member = Observed<Member, operation>::call;
  }
}

}  // namespace

fuse_lowlevel_ops observed_operations() {
  using Ops = fuse_lowlevel_ops;
  Ops ops = inner();
  observe<&Ops::lookup, Operation::lookup>(ops);
  observe<&Ops::forget, Operation::forget>(ops);
  observe<&Ops::getattr, Operation::getattr>(ops);
#if defined(EFS_HAVE_STATX) && EFS_HAVE_STATX
  observe<&Ops::statx, Operation::getattr>(ops);
#endif
  observe<&Ops::setattr, Operation::setattr>(ops);
  observe<&Ops::readlink, Operation::readlink>(ops);
  observe<&Ops::mknod, Operation::mknod>(ops);
  observe<&Ops::mkdir, Operation::mkdir>(ops);
  observe<&Ops::unlink, Operation::unlink>(ops);
  observe<&Ops::rmdir, Operation::rmdir>(ops);
  observe<&Ops::symlink, Operation::symlink>(ops);
  observe<&Ops::rename, Operation::rename>(ops);
  observe<&Ops::link, Operation::link>(ops);
  observe<&Ops::open, Operation::open>(ops);
  observe<&Ops::read, Operation::read>(ops);
  observe<&Ops::write, Operation::write>(ops);
  observe<&Ops::flush, Operation::flush>(ops);
  observe<&Ops::release, Operation::release>(ops);
  observe<&Ops::fsync, Operation::fsync>(ops);
  observe<&Ops::opendir, Operation::opendir>(ops);
  observe<&Ops::readdir, Operation::readdir>(ops);
  observe<&Ops::readdirplus, Operation::readdirplus>(ops);
  observe<&Ops::releasedir, Operation::releasedir>(ops);
  observe<&Ops::fsyncdir, Operation::fsyncdir>(ops);
  observe<&Ops::statfs, Operation::statfs>(ops);
  observe<&Ops::setxattr, Operation::setxattr>(ops);
  observe<&Ops::getxattr, Operation::getxattr>(ops);
  observe<&Ops::listxattr, Operation::listxattr>(ops);
  observe<&Ops::removexattr, Operation::removexattr>(ops);
  observe<&Ops::access, Operation::access>(ops);
  observe<&Ops::create, Operation::create>(ops);
#if EFS_HAVE_PASSTHROUGH
  observe<&Ops::tmpfile, Operation::tmpfile>(ops);
#endif
  observe<&Ops::fallocate, Operation::fallocate>(ops);
  observe<&Ops::copy_file_range, Operation::copy_file_range>(ops);
  observe<&Ops::lseek, Operation::lseek>(ops);
  if (ops.forget_multi != nullptr) {
    ops.forget_multi = observe_forgets;
  }
  return ops;
}

}  // namespace efs::fuse
