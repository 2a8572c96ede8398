// SPDX-License-Identifier: BSD-3-Clause
// Removes the mounts of dead instances. Root becomes the owner of the instance wherever the owner's
// files decide which path to access.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/mounts.hpp"
#include "base/user.hpp"
#include "cli/cli.hpp"
#include "image/image.hpp"
#include "image/removal.hpp"

namespace efs::cli {
namespace {

// Runs in the child. Closes all inherited descriptors except the end of the pipe. Writes to it the
// answer, or the code and text of the error.
[[noreturn]] void work_as(const User& user, int out, const OwnersWork& work) {
  (void)::close_range(3, static_cast<unsigned>(out) - 1, 0);
  (void)::close_range(static_cast<unsigned>(out) + 1, ~0U, 0);
  const Status became = become(user, true);
  const auto done = became ? work() : std::unexpected(became.error());
  const std::string text =
      done ? *done : std::to_string(done.error().code) + " " + describe(done.error());
  ::_exit(::write(out, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ? 2
          : done                                                                      ? 0
                                                                                      : 1);
}

// Returns the answer of work_as(), or its error. `status`: of the child.
Result<std::string> answer_of_child(const std::string& said, int status, const std::string& user) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return said;
  }
  const auto blank = said.find(' ');
  const int code = std::atoi(said.c_str());
  if (blank == std::string::npos || code <= 0) {
    return fail(EIO, "the process with the rights of " + user + " died");
  }
  return fail(code, said.substr(blank + 1));
}

}  // namespace

Result<std::string> as_owner(uid_t owner, const OwnersWork& work) {
  if (::geteuid() != 0 || owner == 0) {
    return work();
  }
  const auto user = find_user(std::to_string(owner));
  if (!user) {
    return std::unexpected(user.error());
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return fail_errno("pipe");
  }
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) {
    return fail_errno("fork");
  }
  if (child == 0) {
    work_as(*user, out.get(), work);
  }
  out.reset();
  const std::string said = read_all(in.get(), 65536);
  const int status = await_exit(child);
  return answer_of_child(said, status, user->name);
}

// Only the owner of a user mount can find out whether it answers.
Status drop_mount(const image::Manifest& manifest, const control::Instance& instance) {
  const std::string& path = manifest.mount_dir;
  const Status dropped =
      drop_dead_mount(path, instance.owner, {.unserved = usual_source(instance.name)});
  if (dropped || dropped.error().code != EBUSY || ::geteuid() != 0 || instance.owner == 0) {
    return dropped;
  }
  const auto is_dead = as_owner(instance.owner, [&]() -> Result<std::string> {
    return is_dead_mount(path, instance.owner) ? "dead" : "";
  });
  if (!is_dead) {
    return std::unexpected(is_dead.error());
  }
  return is_dead->empty() ? dropped : drop_dead_mount(path, instance.owner, {.known = true});
}

namespace {

// Dying threads of the daemon keep the store locked until the kernel has ended them. With the
// connection gone the kernel can end them.
void wait_for_store(const std::string& path) {
  constexpr int tries = 100;
  const auto store = image::find_removable(path);
  for (int i = 0; store && i < tries; ++i) {
    const auto lock = image::lock_store(*store, image::Hold::to_look);
    if (lock || lock.error().code != EBUSY) {
      return;
    }
    ::usleep(20'000);
  }
}

}  // namespace

void end_silent_mount(const control::Instance& instance) {
  constexpr int longest = 5;  // seconds
  const auto manifest = manifest_of(instance);
  if (!manifest || answers(manifest->mount_dir, longest)) {
    return;
  }
  const auto held = control::lock_instance(instance);
  if (!held || !drop_mount(*manifest, instance)) {
    return;
  }
  (void)as_owner(instance.owner,
                 [&]() -> Result<std::string> { return wait_for_store(manifest->store), ""; });
}

}  // namespace efs::cli
