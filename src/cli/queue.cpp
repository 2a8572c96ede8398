// SPDX-License-Identifier: BSD-3-Clause
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/output.hpp"
#include "cli/slurm_site.hpp"
#include "queue/overview.hpp"

namespace efs::cli {
namespace {

constexpr int answer_time = 20;  // seconds

int show_queue(World& world, const std::string& directory) {
  const auto overview = efs::queue::look_at(directory);
  if (!overview) {
    return report(world, overview.error());
  }
  if (world.json) {
    Json line = efs::queue::to_json(*overview);
    line["ok"] = overview->problem.empty();
    print_document(world, line);
  } else {
    world.out << printable(efs::queue::describe(*overview), true);
  }
  return overview->problem.empty() ? exit_good : exit_failure;
}

}  // namespace

// Reads the queue in a child process, because a hanging PFS blocks any process that accesses it. A
// child that cannot be killed is left behind.
int queue(World& world, const std::string& given) {
  const std::string directory = given.empty() ? site_argument("queue") : given;
  if (directory.empty()) {
    return report(
        world,
        {EINVAL, "the queue's directory is not known here: name it, or set EFS_INTERLEAVING"},
        exit_usage);
  }
  world.out.flush();
  world.err.flush();
  const pid_t child = ::fork();
  if (child < 0) {
    return report(world, fail_errno("fork").error());
  }
  if (child == 0) {
    const int code = finish_output(world, show_queue(world, directory));
    world.err.flush();
    ::_exit(code);
  }
  const UniqueFd end(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  pollfd line{.fd = end.get(), .events = POLLIN, .revents = 0};
  int ready = 0;
  while ((ready = ::poll(&line, 1, answer_time * 1000)) < 0 && errno == EINTR) {
  }
  if (end && ready == 0) {
    ::kill(child, SIGKILL);
    return report(world,
                  {ETIMEDOUT, "queue " + directory + ": its file system does not answer for " +
                                  std::to_string(answer_time) + " s; it may hang"});
  }
  const int status = await_exit(child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : exit_failure;
}

}  // namespace efs::cli
