#include <sys/wait.h>

#include <cerrno>
#include <iostream>

#include "base/text.hpp"
#include "cli/cli.hpp"

namespace efs::cli {

int start(World& world, const JobArguments& arguments) {
  const auto config = load_job(world, arguments);
  if (!config) return config.error();
  const auto started = launch(world, arguments, *config);
  if (!started) return started.error();
  if (world.json) {
    print_document(world, *started);
  } else {
    world.out << "efs: " << config->name << " is mounted at " << config->mount_dir << " (" << started->value("files_done", 0) << " files, "
              << format_bytes(started->value("bytes_done", std::uint64_t{0})) << " staged in; I/O " << started->value("io", "?") << ")" << std::endl;
  }
  if (!arguments.foreground) return exit_good;
  int ended = 0;
  while (::waitpid(-1, &ended, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(ended) ? WEXITSTATUS(ended) : exit_failure;
}

}  // namespace efs::cli
