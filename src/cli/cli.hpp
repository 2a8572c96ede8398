#pragma once
// The command efs: one file per verb. Everything a verb touches comes in as a World, so that a verb is a function of
// its arguments and its world.

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "config/load.hpp"
#include "control/client.hpp"
#include "control/instances.hpp"

namespace efs::cli {

using Json = nlohmann::json;

enum ExitCode : int { exit_good = 0, exit_failure = 1, exit_usage = 2, exit_some_failed = 3, exit_not_saved = 125, exit_cannot_run = 126, exit_not_found = 127 };

/// Where a verb writes and whether a person watches.
struct World {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;  // err is one: show progress
  bool json = false;
};

/// What start, run, plan and check share.
struct JobArguments {
  std::string job_file;
  config::Overrides overrides;
  std::string options;  // -o
  std::string user;
  bool debug = false;
  bool foreground = false;
};

// Verbs: each returns the exit code and has reported everything.
int check(World& world, const JobArguments& arguments);
int plan(World& world, const JobArguments& arguments);
int start(World& world, const JobArguments& arguments);
int run(World& world, const JobArguments& arguments, const std::vector<std::string>& command);
int status(World& world, const std::string& which);
struct StopArguments {
  std::string which;
  bool stage_out = true;
  bool keep = false;
  double deadline = 0;  // seconds; 0: none
};
int stop(World& world, const StopArguments& arguments);
struct SalvageArguments {
  std::string which, to;
  bool all = false, list = false;
};
int salvage(World& world, const SalvageArguments& arguments);
int check_image(World& world, const std::string& which, bool repair);
int clean(World& world, const std::vector<std::string>& which, bool force);

// Shared pieces
/// Loads the job file or reports every problem of it.
std::expected<config::JobConfig, int> load_job(World& world, const JobArguments& arguments);
/// Reports an error in the world's form; returns `code`.
int report(World& world, const Error& error, int code = exit_failure);
/// The instance named by job file, mount point or name; with "" the only one running.
Result<control::Instance> find_instance(const std::string& which);
/// Starts efsd for a job and waits until the inputs are there; its status line.
std::expected<Json, int> launch(World& world, const JobArguments& arguments, const config::JobConfig& config);
/// Stops an instance and reports the receipt; the exit code.
int stop_instance(World& world, const control::Instance& instance, const StopArguments& arguments, Json* result = nullptr);
/// Draws a progress line (bytes, rate, time left) over the last one.
void show_progress(World& world, const Json& progress);
void end_progress(World& world);

}  // namespace efs::cli
