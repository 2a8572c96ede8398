// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/log.hpp"
#include "base/standard_fds.hpp"
#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/colour.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "cli/words.hpp"
#include "config/read_file.hpp"
#include "config/site.hpp"

namespace {

using namespace efs::cli;

// CLI11 splits words such as [a,b], {} or %% for options with several values. In efs these are
// ordinary names, so each word gets `guard` as a prefix to protect it from CLI11.
std::vector<std::string> guarded(int argc, char** argv) {
  std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  for (auto& word : words) {
    if (word.empty() || word == "%%" || word.starts_with(guard) ||
        (word.starts_with('[') && word.ends_with(']')) ||
        (word.starts_with('{') && word.ends_with('}'))) {
      word.insert(0, 1, guard);
    }
  }
  return words;
}

void unguard(std::string& word) {
  if (word.starts_with(guard)) {
    word.erase(0, 1);
  }
}

// CLI11 removes the guard from single values through this transformation. The guard of lists is
// removed after parsing.
void unguard_single_values(CLI::App& app) {
  for (CLI::App* sub : app.get_subcommands({})) {
    for (CLI::Option* option : sub->get_options()) {
      if (!option->get_allow_extra_args() && option->get_items_expected_max() > 0) {
        option->transform(
            CLI::Validator([](std::string& word) { return unguard(word), std::string(); }, ""));
      }
    }
  }
}

// The verbs that run a program.
constexpr std::array<std::string_view, 3> program_verbs{"run", "record", "intercept"};

// Removes and returns the words after the first "--" of such a verb: the program and its arguments.
std::vector<std::string> cut_command(std::vector<std::string>& words) {
  const bool has_program =
      !words.empty() && std::ranges::find(program_verbs, words.front()) != program_verbs.end();
  const auto mark = has_program ? std::ranges::find(words, "--") : words.end();
  std::vector<std::string> command(mark == words.end() ? mark : mark + 1, words.end());
  words.erase(mark, words.end());
  return command;
}

// Returns why the words are not a command, with a hint from the options of the verb. `error`: the
// parser's message, or "" before parsing.
std::string refusal(CLI::App& app, const std::vector<std::string>& words,
                    const std::string& error) {
  std::vector<std::string_view> verbs;
  for (CLI::App* sub : app.get_subcommands({})) {
    verbs.emplace_back(sub->get_name());
  }
  if (error.empty()) {
    return refusal_of(words, verbs);
  }
  std::vector<std::string> names{"--help"};
  for (CLI::App* sub : app.get_subcommands({})) {
    if (words.empty() || sub->get_name() != words.front()) {
      continue;
    }
    for (CLI::Option* option : sub->get_options()) {
      for (const auto& name : option->get_lnames()) {
        names.push_back("--" + name);
      }
    }
  }
  const std::vector<std::string_view> options(names.begin(), names.end());
  return error + hint_for(words, options);
}

// control/ does not read the site file. A broken site file must not prevent a stop; verbs with a
// job file reject it.
void use_site_runtime_directory(World& world, bool needs_job) {
  const auto site = efs::config::load_site(efs::config::surroundings_of_process({}));
  if (!site && !needs_job) {
    for (const auto& problem : site.error()) {
      world.err << "efs: warning: " << efs::printable(to_string(problem, "")) << "\n";
    }
  }
  if (site && *site && !(*site)->runtime_dir.empty()) {
    ::setenv("EFS_ROOT_RUNTIME_DIR", (*site)->runtime_dir.c_str(), 0);
  }
}

// Replaces a job file that is a stream by its text.
efs::Status read_job_stream(JobArguments& job) {
  const auto stream = efs::config::stream_of(job.job_file);
  if (!stream) {
    return {};
  }
  auto text = efs::config::read_stream(*stream, "the job file from " + job.job_file);
  if (!text) {
    return std::unexpected(text.error());
  }
  job.text = std::move(*text);
  job.job_file = efs::config::standard_input;
  return {};
}

void describe_program(CLI::App& app) {
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", "efs " EFS_VERSION);
  app.footer(
      "Exit codes: 0 all good, 1 failure, 2 usage or job file, 3 some files failed. See efs(1).");
}

// Fills `given` from the command line. Returns the exit code if no verb is to run: a usage error,
// which it reports, or --help.
std::optional<int> parse(World& world, CLI::App& app, VerbArguments& given,
                         std::vector<std::string> words) {
  std::vector<std::string> program = cut_command(words);
  const bool wants_json = std::ranges::find(words, "--json") != words.end();
  const auto refused = [&](const std::string& text) {
    world.json = wants_json;  // set this even if parsing failed before the option
    if (wants_json) {
      return report(world, {EINVAL, text}, exit_usage);
    }
    world.err << efs::printable(text, true) << "\nRun with --help for more information.\n";
    return int{exit_usage};
  };
  if (const std::string text = refusal(app, words, ""); !text.empty()) {
    return refused(text);
  }
  try {
    // CLI11 expects reverse order
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    std::ranges::move(program, std::back_inserter(given.command));
    for (auto* list :
         {&given.command, &given.files.paths, &given.cleaning.which, &given.caching.paths}) {
      std::ranges::for_each(*list, unguard);
    }
    const bool needs_command = std::ranges::any_of(
        program_verbs, [&](auto name) { return app.got_subcommand(std::string(name)); });
    if (needs_command && given.command.empty()) {
      throw CLI::RequiredError("command");
    }
  } catch (const CLI::ParseError& problem) {
    // --help, --version
    if (problem.get_exit_code() == 0) {
      return app.exit(problem, world.out, world.err);
    }
    std::string text = refusal(app, words, problem.what());
    std::erase(text, guard);
    return refused(text);
  }
  return std::nullopt;
}

// Completes the job file's name from the environment, and reads the job file if it is a stream.
// Returns the exit code if the verb needs a job file and has none.
std::optional<int> find_job_file(World& world, JobArguments& job, bool needs_job) {
  if (job.job_file.empty()) {
    if (const char* given = std::getenv("EFS_CONFIG")) {
      job.job_file = given;
    }
  }
  if (!needs_job) {
    return std::nullopt;
  }
  if (job.job_file.empty()) {
    return report(world, {EINVAL, "no job file: name one, or set EFS_CONFIG"}, exit_usage);
  }
  if (const efs::Status read = read_job_stream(job); !read) {
    return report(world, read.error(), exit_usage);
  }
  return std::nullopt;
}

int run_verb_of(World& world, int argc, char** argv) {
  VerbArguments given;
  CLI::App app{"efs: a POSIX file system of its own for every batch job, in node-local memory",
               "efs"};
  describe_program(app);
  add_verbs(app, world, given);
  unguard_single_values(app);
  if (const auto code = parse(world, app, given, guarded(argc, argv))) {
    return *code;
  }
  const bool needs_job =
      !given.job.keys &&
      std::ranges::any_of(std::array{"run", "start", "plan", "check"},
                          [&](const char* name) { return app.got_subcommand(name); });
  if (const auto code = find_job_file(world, given.job, needs_job)) {
    return *code;
  }
  use_site_runtime_directory(world, needs_job);
  world.colour = !world.json && wants_colour(given.colour);
  try {
    return given.action(world, given);
  } catch (const std::exception& problem) {
    return report(world, {EIO, std::string("internal error: ") + problem.what()});
  }
}

}  // namespace

int main(int argc, char** argv) {
  efs::fill_standard_fds();
  (void)efs::log::setup("", "warn");  // standard output is for the results
  OutputBuffer buffer(STDOUT_FILENO);
  std::ostream out(&buffer);
  if (::isatty(STDOUT_FILENO) == 1) {
    out << std::unitbuf;
  }
  std::cerr.tie(&out);
  World world{out, std::cerr, ::isatty(STDERR_FILENO) == 1, false};
  const int code = finish_output(world, run_verb_of(world, argc, argv));
  std::cerr.tie(nullptr);
  return code;
}
