// SPDX-License-Identifier: BSD-3-Clause
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>

#include "base/text.hpp"
#include "cli/cli.hpp"

namespace efs::cli {

namespace {

// Root uses only the command line and does not read another user's job file. The worker reads the
// file as that user.
std::expected<config::JobConfig, int> load_as_starter(World& world, const JobArguments& arguments) {
  const auto& given = arguments.overrides;
  if (::geteuid() != 0 || arguments.user.empty() || !given.name || !given.mount_dir) {
    return load_job(world, arguments);
  }
  config::JobConfig config{.source = arguments.job_file,
                           .name = *given.name,
                           .root_dir = given.root_dir.value_or(""),
                           .mount_dir = *given.mount_dir,
                           .results_dir = given.results_dir.value_or(""),
                           .log_file = given.log_file.value_or("")};
  if (config.name.empty() || config.name.contains('/') || config.name.starts_with('.')) {
    return std::unexpected(
        report(world, {EINVAL, "--name " + config.name + " cannot name an instance"}, exit_usage));
  }
  return config;
}

// A stop by a signal or an unmount has no client, so this process reports the outcome. It prints
// text, because the document of --json is already printed.
int outcome_of(World world, const std::string& name) {
  world.json = false;
  const auto left = find_instance(name);
  if (!left || left->alive) {
    return exit_good;
  }
  const Json status = status_of(*left);
  if (status.value("left", "") != "unsaved") {
    return exit_good;
  }
  return report(
      world, {EIO, name + " has ended, and not all results are exported. They are in the image " +
                       status.value("store", "") + ". Export them: efs salvage " + name +
                       "; or continue: " + start_command(status)});
}

void print_started(std::ostream& out, const config::JobConfig& config,
                   const control::replies::Status& started) {
  const auto in = started.staged_in.value_or(control::replies::StagedIn{});
  out << "efs: " << escaped(config.name) << " is mounted at " << escaped(config.mount_dir) << " (";
  // A successor does not know the numbers of its predecessor's import.
  if (started.job.takeovers > 0) {
    out << "its worker died and was replaced: see " << escaped(started.job.log);
  } else {
    out << started.progress.files_done << " files, " << format_bytes(started.progress.bytes_done)
        << " staged in";
  }
  if (in.skipped > 0) {
    out << ", " << in.skipped << " skipped";
  }
  out << (in.bytes_reused > 0 ? ", " + format_bytes(in.bytes_reused) + " of it from the cache" : "")
      << text_of_away(in) << "; I/O " << (started.mount ? started.mount->io : "?") << ")"
      << std::endl;
}

}  // namespace

int start(World& world, const JobArguments& arguments) {
  const auto config = load_as_starter(world, arguments);
  if (!config) {
    return config.error();
  }
  const auto started = launch(world, arguments, *config);
  if (!started) {
    return started.error();
  }
  if (world.json) {
    print_document(world, *started);
  } else {
    print_started(world.out, *config,
                  control::replies::from_json<control::replies::Status>(*started));
  }
  if (!arguments.foreground) {
    return exit_good;
  }
  const int ended = await_exit(-1);
  if (!WIFEXITED(ended)) {
    return exit_failure;
  }
  return WEXITSTATUS(ended) == 0 ? outcome_of(world, config->name) : WEXITSTATUS(ended);
}

}  // namespace efs::cli
