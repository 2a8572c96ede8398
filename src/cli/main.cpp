// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <iterator>

#include "base/log.hpp"
#include "base/standard_fds.hpp"
#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/output.hpp"
#include "cli/words.hpp"
#include "config/read_file.hpp"
#include "config/site.hpp"

namespace {

using namespace efs::cli;

// Checks NUMBER/NODES, counted from 0.
std::string is_node(const std::string& text) {
  unsigned node = 0, nodes = 0;
  char more = 0;
  const bool good = std::sscanf(text.c_str(), "%u/%u%c", &node, &nodes, &more) == 2 &&
                    node < nodes && nodes <= 1'000'000;
  return good ? "" : "\"" + text + "\" is no NUMBER/NODES such as 0/4";
}

// CLI11 splits words such as [a,b], {} or %% for options with several values. In efs these are
// ordinary names, so each word gets this character as a prefix to protect it from CLI11.
constexpr char guard = '\x01';

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

// Removes and returns the words after the first "--" of `efs run`: the program and its arguments.
std::vector<std::string> cut_command(std::vector<std::string>& words) {
  const auto mark =
      words.empty() || words.front() != "run" ? words.end() : std::ranges::find(words, "--");
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

// CLI::Range compares, and NaN passes every comparison.
std::string is_a_number(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? "\"" + text + "\" is no number of seconds"
                                                        : "";
}

// CLI11 accepts -1 as the largest number and 010 as eight.
std::string make_decimal(std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos) {
    return "\"" + text + "\" is no number of bytes";
  }
  text.erase(0, std::min(text.find_first_not_of('0'), text.size() - 1));
  return "";
}

// If the shell did not expand ~, the user hardly means a directory of that name.
std::string is_no_home(const std::string& text) {
  return text == "~" || text.starts_with("~/")
             ? "~ is not replaced there: write $HOME, or ./~ for a directory of that name"
             : "";
}

// An empty instance name does not mean "the only instance": a variable in the caller's script is
// not set.
std::string is_named(const std::string& text) {
  return text.empty() || text == std::string(1, guard)
             ? "the name is empty; is a variable not set? Leave the argument out where none is to "
               "be named"
             : "";
}

std::string is_size(const std::string& text) {
  const std::string size = text.starts_with(guard) ? text.substr(1) : text;
  return efs::config::parse_memory(size) ? "" : size + " is no size such as 4 GiB";
}

// Checks the form that squeue prints.
std::string is_job(const std::string& text) {
  const auto rest = text.find_first_not_of("0123456789");
  const bool good =
      rest != 0 && !text.empty() &&
      (rest == text.npos || (text[rest] == '_' && rest + 1 < text.size() &&
                             text.find_first_not_of("0123456789", rest + 1) == text.npos));
  return good ? "" : "\"" + text + "\" is no job: write its number, or ARRAY_TASK";
}

// For verbs that act on an instance, when --job names it instead.
int with_job(World& world, const std::string& job, std::string& which,
             const std::function<int()>& act) {
  if (job.empty()) {
    return act();
  }
  const auto name = instance_of_job(job);
  if (!name) {
    return report(world, name.error());
  }
  which = *name;
  return act();
}

void add_job_options(CLI::App& verb, JobArguments& a, bool starts) {
  const auto path = [&](const char* flags, std::optional<std::string>& into, const char* help) {
    verb.add_option_function<std::string>(
        flags, [&into](const std::string& text) { into = text; }, help);
  };
  verb.add_option(
      "job_file,-c,--config", a.job_file,
      "the job file (YAML, see efs-job(5)); - is standard input (default: $EFS_CONFIG)");
  path("-n,--name", a.overrides.name, "name of the instance (default: the job file's)");
  path("-r,--root-dir", a.overrides.root_dir, "directory of the PFS that the mount mirrors");
  path("-m,--mount-dir", a.overrides.mount_dir, "where to mount");
  path("--results-dir", a.overrides.results_dir, "where results go");
  path("-l,--log-file", a.overrides.log_file, "the daemon's log");
  verb.add_option_function<std::vector<std::string>>(
          "--set",
          [&a](const std::vector<std::string>& all) {
            for (const auto& text : all) {
              const auto equals = text.find('=');
              if (equals == std::string::npos) {
                throw CLI::ValidationError("--set", text + ": write KEY=VALUE");
              }
              a.overrides.settings.emplace_back(text.substr(0, equals), text.substr(equals + 1));
            }
          },
          "KEY=VALUE of any key of global-settings, see efs-job(5); can be repeated")
      ->allow_extra_args(false);
  verb.add_option("-u,--user", a.user, "the job's user (root only)");
  verb.add_option("--memory", a.memory,
                  "what the batch job has on a node (--mem of sbatch): bounds a store in memory")
      ->check(is_size);
  if (!starts) {
    verb.add_flag("--show", a.show, "show every value and where it comes from");
    return;
  }
  path("--trace", a.overrides.trace,
       "write a trace of every operation to this file; all I/O goes through the daemon then");
  verb.add_option("-o,--options", a.options,
                  "mount options: nosuid,nodev,noexec,ro,mode=,fsname=,daemon-io,spin=,...");
  verb.add_option("--node", a.node, "NUMBER/NODES: which node of a job on several nodes this is")
      ->check(is_node);
  verb.add_option("--interleaving", a.interleaving,
                  "directory of the queue in which stagings take turns at the PFS")
      ->envname("EFS_INTERLEAVING");
  verb.add_flag("-d,--debug", a.debug, "log more");
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

// The verbs for files while programs run.
template <typename Verb>
void add_file_verbs(Verb& verb, World& world, FileArguments& a) {
  const auto file_verb = [&](const char* name, const char* help,
                             int (*what)(World&, const FileArguments&)) {
    CLI::App* sub = verb(name, help, [&world, &a, what] { return what(world, a); });
    sub->add_option("-i,--instance", a.instance,
                    "name, mount point or job file of the instance (default: the one that the path "
                    "lies in, or the only one)")
        ->check(is_named);
    return sub;
  };
  const auto paths = [&](CLI::App* sub, bool needed) {
    auto* option = sub->add_option("path", a.paths,
                                   "paths on the mount, of the PFS below root-dir, or relative to "
                                   "root-dir; patterns in quotes");
    if (needed) {
      option->required();
    }
  };
  const auto part = [&](CLI::App* sub) {
    sub->add_flag("-w,--wait", a.wait, "return when it is done, not at once with a task's number");
    sub->add_option("--offset", a.offset, "only a part of one file: its first byte")
        ->transform(CLI::Validator(make_decimal, ""));
    sub->add_option("--size", a.size, "and how many (0: to the end)")
        ->transform(CLI::Validator(make_decimal, ""));
  };
  CLI::App* load_verb =
      file_verb("load", "bring files from the PFS into the buffer while programs run", load);
  paths(load_verb, true);
  part(load_verb);
  load_verb->add_flag("--replace", a.replace, "take the place of another version that is clean");
  load_verb->add_flag("--force", a.force,
                      "with --replace: of a changed one too, whose changes are lost");
  CLI::App* unload_verb =
      file_verb("unload", "bring changed files to results-dir while programs run", unload);
  paths(unload_verb, true);
  part(unload_verb);
  unload_verb->add_flag("--as-is", a.as_is,
                        "also what may be written to meanwhile; such a copy is not verified");
  unload_verb->add_flag("--remove", a.remove, "then remove them from the buffer");
  CLI::App* wait_verb = file_verb("wait", "wait for loads and unloads (default: all)", wait);
  wait_verb->add_option("task", a.paths, "numbers of tasks");
  CLI::App* cancel_verb = file_verb("cancel", "cancel loads and unloads", cancel);
  cancel_verb->add_option("task", a.paths, "numbers of tasks")->required();
  CLI::App* ls_verb = file_verb("ls", "list what is in the buffer: class, state, size", ls);
  paths(ls_verb, false);
  ls_verb->add_flag("--instances", a.instances, "list instances, not files: as efs status --all");
  paths(file_verb("explain", "tell where a file is and whether it will be staged out, and why",
                  explain),
        true);
  CLI::App* set_verb = file_verb("set", "change the class of files while programs run", set);
  set_verb
      ->add_option("class", a.file_class, "persistent, temporary, or default: as the job file says")
      ->required()
      ->check(CLI::IsMember({"persistent", "temporary", "default"}));
  paths(set_verb, true);
}

int run_verb_of(World& world, int argc, char** argv) {
  JobArguments job;
  std::vector<std::string> command;
  FileArguments files;
  std::string which;
  StopArguments stopping;
  SalvageArguments salvaging;
  CleanArguments cleaning;
  bool no_stage_out = false, repair = false, all = false;
  std::function<int()> action;

  CLI::App app{"efs: a POSIX file system of its own for every batch job, in node-local memory",
               "efs"};
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", "efs " EFS_VERSION);
  app.footer(
      "Exit codes: 0 all good, 1 failure, 2 usage or job file, 3 some files failed. See efs(1).");
  const auto verb = [&](const char* name, const char* help, std::function<int()> what) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->add_flag("--json", world.json, "answer in JSON");
    sub->callback([&action, what = std::move(what)] { action = what; });
    return sub;
  };
  CLI::App* run_verb = verb("run", "mount, stage in, run a program, stage out, unmount",
                            [&] { return run(world, job, command); });
  add_job_options(*run_verb, job, true);
  run_verb->add_option("command", command, "the program and its arguments, after --");
  run_verb->footer(
      "Exit code: the program's if not 0; 125: it succeeded but results are not back; 126, 127: it "
      "could not be run.");
  CLI::App* start_verb = verb("start", "mount and stage in; returns when the inputs are there",
                              [&] { return start(world, job); });
  add_job_options(*start_verb, job, true);
  start_verb->add_flag("-f,--foreground", job.foreground, "stay until the instance ends");
  CLI::App* plan_verb = verb("plan", "show what would move and whether it fits; moves nothing",
                             [&] { return plan(world, job); });
  add_job_options(*plan_verb, job, false);
  const char* before_job =
      "before the job is there: patterns such as %j are left to its nodes, what is marked from-job "
      "may be missing";
  plan_verb->add_flag("--at-submission", job.at_submission, before_job);
  plan_verb
      ->add_option("--node-memory", job.node_memory,
                   "with --at-submission: memory of the largest node, of which a store in memory "
                   "has its share without a capacity")
      ->check(is_size);
  plan_verb->add_flag("--brief", job.brief, "with --json: without the entries, one for each input");
  CLI::App* check_job_verb =
      verb("check", "report all problems of a job file", [&] { return check(world, job); });
  add_job_options(*check_job_verb, job, false);
  check_job_verb->add_flag(
      "--keys", job.keys,
      "list every key of job files: section, name, values, what a site may do, meaning, default");
  check_job_verb->add_option(
      "--memory-source", job.memory_source,
      "which option or setting that comes from, for the message (default: --mem)");
  check_job_verb
      ->add_option("--node-memory", job.node_memory,
                   "memory of the largest node: no capacity in memory may be more")
      ->check(is_size);
  CLI::Option* submitting =
      check_job_verb->add_flag("--at-submission", job.at_submission, before_job);
  check_job_verb
      ->add_option("--snapshot", job.snapshot,
                   "write to this file what the job's nodes shall read: the job file with the "
                   "values of the environment in it")
      ->needs(submitting);
  std::string job_id, shared;
  CLI::App* status_verb = verb("status", "show instances", [&] {
    return !job_id.empty() ? job_status(world, job_id, shared) : status(world, which);
  });
  status_verb->add_option("instance", which, "name, mount point or job file")->check(is_named);
  status_verb
      ->add_option("--job", job_id,
                   "a batch job instead, by its number (or ARRAY_TASK): what its nodes say; exit "
                   "code 1: it failed, 3: results are not back")
      ->check(is_job);
  status_verb
      ->add_option("--shared", shared,
                   "with --job: the site's directory for the state of jobs (default: $EFS_SHARED, "
                   "or that of plugstack.conf)")
      ->envname("EFS_SHARED");
  status_verb->add_flag("-a,--all", all,
                        "all instances, those too that are dead or were kept (the default)");
  std::string job_here;
  const char* of_job =
      "the file system that this batch job has on this node, by the job's number (or ARRAY_TASK)";
  CLI::App* stop_verb =
      verb("stop", "unmount and stage out; returns when the results are back", [&] {
        stopping.stage_out = !no_stage_out;
        return with_job(world, job_here, stopping.which, [&] { return stop(world, stopping); });
      });
  stop_verb->add_option("--job", job_here, of_job)
      ->check(is_job)
      ->excludes(stop_verb->add_option("instance", stopping.which, "name, mount point or job file")
                     ->check(is_named));
  stop_verb->add_flag("--no-stage-out", no_stage_out, "drop everything that is not back yet");
  stop_verb->add_flag("--keep", stopping.keep,
                      "leave the buffer on the node for the next start under this name");
  stop_verb
      ->add_option(
          "--deadline", stopping.deadline,
          "seconds until the instance must be gone; what is not back by then stays in its image")
      ->check(CLI::Range(1e-6, 1e8, "SECONDS"))
      ->check(is_a_number);
  stop_verb->add_flag(
      "--cut-off", stopping.cut_off,
      "do not wait for containers and other mount namespaces that still have the mount");
  stop_verb->add_flag("--brief", stopping.brief,
                      "with --json: without the receipt, which has an entry for each file");
  stop_verb->add_flag("--merge", stopping.merge,
                      "replace no result that is newer than the start of the instance");
  CLI::App* salvage_verb =
      verb("salvage", "bring out what the buffer of a dead instance holds", [&] {
        return with_job(world, job_here, salvaging.which, [&] {
          return salvaging.lost ? salvage_orphans(world, salvaging) : salvage(world, salvaging);
        });
      });
  salvage_verb->add_option("--job", job_here, of_job)
      ->check(is_job)
      ->excludes(
          salvage_verb
              ->add_option(
                  "image", salvaging.which,
                  "instance, job file, or directory of a store (default: the only dead instance)")
              ->check(is_named));
  salvage_verb->add_option("--to", salvaging.to, "where to (default: the job's results-dir)")
      ->check(is_no_home);
  salvage_verb->add_flag("--all", salvaging.all, "everything, inputs and temporary files too");
  salvage_verb->add_flag("--list", salvaging.list, "only say what is there");
  salvage_verb
      ->add_flag("--lost", salvaging.lost,
                 "what no name leads to any more, where the journal is damaged: to lost+found in "
                 "the directory of --to, under numbers")
      ->excludes("--all");
  std::string receipt;
  CLI::App* receipt_verb =
      verb("receipt", "compare the results that a receipt names with what the PFS has",
           [&] { return verify_receipt(world, receipt); });
  receipt_verb->add_option("--verify", receipt, "receipt of a stage-out, a salvage, or an unload")
      ->required()
      ->check(is_named);
  receipt_verb->footer(
      "Exit codes: 0 all are as the receipt says, 1 the receipt or results-dir cannot be read, 3 "
      "not all are.");
  CLI::App* check_verb = verb("check-image", "verify the image of an instance that is not running",
                              [&] { return check_image(world, which, repair); });
  check_verb
      ->add_option("image", which,
                   "instance, job file, or directory of a store (default: the only dead instance)")
      ->check(is_named);
  check_verb->add_flag("--repair", repair, "remove what is provably left over");
  check_verb->footer("Exit codes: 0 whole, 1 damaged or not to be looked at, 3 leftovers.");
  CLI::App* clean_verb = verb("clean", "remove what dead instances left behind", [&] {
    std::string name;
    return with_job(world, job_here, name, [&] {
      if (!name.empty()) {
        cleaning.which = {name};
      }
      return clean(world, cleaning);
    });
  });
  clean_verb->add_option("--job", job_here, of_job)
      ->check(is_job)
      ->excludes(clean_verb
                     ->add_option("instance", cleaning.which,
                                  "names, or directories of stores (default: all that are dead)")
                     ->check(is_named));
  clean_verb->add_flag("--force", cleaning.force, "also where results would be lost");
  clean_verb->add_flag("--kept", cleaning.kept,
                       "without a name: also those that were kept for another start");

  CacheArguments caching;
  CLI::App* cache_verb = verb("cache", "list or remove what the cache of inputs holds on this node",
                              [&] { return cache(world, caching); });
  cache_verb
      ->add_option("action", caching.action,
                   "ls: list, the least recently used first; clean: remove")
      ->required()
      ->check(CLI::IsMember({"ls", "clean"}));
  cache_verb->add_option("path", caching.paths, "clean: files or directories of the PFS");
  cache_verb->add_flag("--all", caching.all, "clean: everything");
  cache_verb->add_option(
      "--cache", caching.directory,
      "the directory below which the cache lies (default: $EFS_CACHE, or the site's)");
  cache_verb->add_option("-u,--user", caching.user, "whose cache (root only)");

  std::string queue_directory;
  verb("queue", "show who holds a turn at the PFS, who waits, and for how long",
       [&] { return queue(world, queue_directory); })
      ->add_option("directory", queue_directory,
                   "directory of the queue (default: $EFS_INTERLEAVING, or that of plugstack.conf)")
      ->envname("EFS_INTERLEAVING");
  std::string examined, examined_memory;
  CLI::App* doctor_verb =
      verb("doctor", "say what this node lacks for efs, and what to change; changes nothing",
           [&] { return doctor(world, examined, examined_memory); });
  doctor_verb->add_option("job_file", examined, "look at the stores of this job file, too");
  doctor_verb
      ->add_option("--mem", examined_memory,
                   "say what a job of this size gets here, written as for sbatch (500M)")
      ->check(is_size);
  TopArguments watched;
  CLI::App* top_verb =
      verb("top", "show what instances do, again and again", [&] { return top(world, watched); });
  top_verb->add_option("instance", watched.which, "name, mount point or job file")->check(is_named);
  top_verb->add_option("-i,--interval", watched.interval, "seconds between two looks (default 2)")
      ->check(CLI::Range(0.1, 3600.0));
  top_verb->add_flag("--once", watched.once, "show totals once and end, as with --json");
  add_file_verbs(verb, world, files);

  unguard_single_values(app);
  std::vector<std::string> words = guarded(argc, argv);
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
    std::ranges::move(program, std::back_inserter(command));
    for (auto* list : {&command, &files.paths, &cleaning.which, &caching.paths}) {
      std::ranges::for_each(*list, unguard);
    }
    if (app.got_subcommand(run_verb) && command.empty()) {
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
  if (job.job_file.empty()) {
    if (const char* given = std::getenv("EFS_CONFIG")) {
      job.job_file = given;
    }
  }
  const bool needs_job =
      !job.keys && std::ranges::any_of(std::array{"run", "start", "plan", "check"},
                                       [&](const char* name) { return app.got_subcommand(name); });
  if (needs_job && job.job_file.empty()) {
    return report(world, {EINVAL, "no job file: name one, or set EFS_CONFIG"}, exit_usage);
  }
  if (const auto stream = needs_job ? efs::config::stream_of(job.job_file) : std::nullopt) {
    auto text = efs::config::read_stream(*stream, "the job file from " + job.job_file);
    if (!text) {
      return report(world, text.error(), exit_usage);
    }
    job.text = std::move(*text);
    job.job_file = efs::config::standard_input;
  }
  use_site_runtime_directory(world, needs_job);
  try {
    return action();
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
