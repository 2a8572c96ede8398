// SPDX-License-Identifier: BSD-3-Clause
#include "cli/verbs.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "config/mount_options.hpp"

namespace efs::cli {
namespace {

// Checks NUMBER/NODES, counted from 0.
std::string is_node(const std::string& text) {
  unsigned node = 0, nodes = 0;
  char more = 0;
  const bool good = std::sscanf(text.c_str(), "%u/%u%c", &node, &nodes, &more) == 2 &&
                    node < nodes && nodes <= 1'000'000;
  return good ? "" : "\"" + text + "\" is no NUMBER/NODES such as 0/4";
}

// CLI::Range compares, and NaN passes every comparison.
std::string is_a_number(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr))
             ? "\"" + text + "\" is not a number of seconds"
             : "";
}

// CLI11 accepts -1 as the largest number and 010 as eight.
std::string make_decimal(std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos) {
    return "\"" + text + "\" is not a number of bytes";
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
  return config::parse_memory(size) ? "" : size + " is not a size such as 4 GiB";
}

// Checks the form that squeue prints.
std::string is_job(const std::string& text) {
  const auto rest = text.find_first_not_of("0123456789");
  const bool good =
      rest != 0 && !text.empty() &&
      (rest == text.npos || (text[rest] == '_' && rest + 1 < text.size() &&
                             text.find_first_not_of("0123456789", rest + 1) == text.npos));
  return good ? "" : "\"" + text + "\" is not a job: write its number, or ARRAY_TASK";
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

// Returns the interval of --watch, whose value can be left out: a word behind it is its value.
double seconds_to_watch(const std::string& text) {
  constexpr double usual = 2, least = 0.1, most = 3600;
  if (text.empty()) {
    return usual;
  }
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(seconds >= least && seconds <= most)) {
    throw CLI::ValidationError("--watch", text +
                                              " is not a number of seconds from 0.1 to 3600; write "
                                              "the instance first: efs status NAME --watch");
  }
  return seconds;
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
                  "memory of the batch job on a node (--mem of sbatch): bounds a store in memory")
      ->check(is_size);
  if (!starts) {
    verb.add_flag("--show", a.show, "show every value and where it comes from");
    return;
  }
  path("--trace", a.overrides.trace,
       "write a trace of every operation to this file; all I/O goes through the daemon then");
  verb.add_option("-o,--options", a.options, "mount options: " + config::mount_option_names());
  verb.add_option("--node", a.node, "NUMBER/NODES: which node of a job on several nodes this is")
      ->check(is_node);
  verb.add_option("--interleaving", a.interleaving,
                  "directory of the queue in which stagings take turns at the PFS")
      ->envname("EFS_INTERLEAVING");
  verb.add_flag("-d,--debug", a.debug, "log more");
}

// The app that gets the verbs, and the arguments that they fill.
class Verbs {
 public:
  Verbs(CLI::App& app, World& world, VerbArguments& given)
      : app_(app), world_(world), given_(given) {}

  CLI::App* add(const char* name, const char* help, VerbAction what) {
    CLI::App* sub = app_.add_subcommand(name, help);
    sub->add_flag("--json", world_.json, "answer in JSON");
    sub->callback([&given = given_, what = std::move(what)] { given.action = what; });
    return sub;
  }

  /// A verb that prints tables or verdicts.
  CLI::App* add_coloured(const char* name, const char* help, VerbAction what) {
    CLI::App* sub = add(name, help, std::move(what));
    sub->add_option("--color", given_.colour,
                    "colours: on a terminal unless NO_COLOR is set (auto, the default), always, or "
                    "never")
        ->check(CLI::IsMember({"auto", "always", "never"}));
    return sub;
  }

  [[nodiscard]] VerbArguments& given() const { return given_; }

 private:
  CLI::App& app_;
  World& world_;
  VerbArguments& given_;
};

// Adds --job and the argument `name` of a verb: two ways to name the instance.
template <typename Which>
void add_instance(CLI::App& verb, VerbArguments& given, Which& which, const char* name,
                  const char* help) {
  verb.add_option("--job", given.job_here,
                  "the file system that this batch job has on this node, by the job's number (or "
                  "ARRAY_TASK)")
      ->check(is_job)
      ->excludes(verb.add_option(name, which, help)->check(is_named));
}

// Adds the options of interception. `wanted`: the flag that they need; null: none.
void add_intercept_options(CLI::App& verb, InterceptArguments& a, CLI::Option* wanted) {
  CLI::Option* const stats =
      verb.add_flag("--stats", a.stats, "each process prints what was served, at its end");
  CLI::Option* const verify =
      verb.add_flag("--verify", a.verify, "compare each served read with the kernel's, for tests")
          ->excludes(stats);
  CLI::Option* const skip =
      verb.add_option("--skip", a.skip,
                      "names of programs that are not intercepted, with commas: git,gcc")
          ->check(is_named);
  for (CLI::Option* const option : {stats, verify, skip}) {
    if (wanted != nullptr) {
      option->needs(wanted);
    }
  }
}

void add_run_verb(Verbs& verbs) {
  VerbArguments& given = verbs.given();
  CLI::App* verb =
      verbs.add("run", "mount, stage in, run a program, stage out, unmount",
                [](World& world, VerbArguments& g) { return run(world, g.job, g.command); });
  add_job_options(*verb, given.job, true);
  CLI::Option* const wanted =
      verb->add_flag("--intercept", given.job.intercepts,
                     "serve the program's reads and writes by memory, see efs-intercept(7)");
  add_intercept_options(*verb, given.job.intercept, wanted);
  verb->add_option("command", given.command, "the program and its arguments, after --");
  verb->footer(
      "Exit code: the program's if not 0; 125: it succeeded but results are not exported; 126, "
      "127: it could not be run.");
}

void add_intercept_verb(Verbs& verbs) {
  VerbArguments& given = verbs.given();
  CLI::App* verb = verbs.add(
      "intercept", "run a program in a running job, with its reads and writes served by memory",
      [](World& world, VerbArguments& g) { return intercept(world, g.intercepting, g.command); });
  add_intercept_options(*verb, given.intercepting, nullptr);
  verb->add_option("command", given.command, "the program and its arguments, after --");
  verb->footer("Exit code: the program's; 126, 127: it could not be run. See efs-intercept(7).");
}

void add_record_verb(Verbs& verbs) {
  VerbArguments& given = verbs.given();
  RecordArguments& recording = given.recording;
  CLI::App* verb = verbs.add(
      "record", "run a program on the PFS as it is, and write the job file that it needs",
      [](World& world, VerbArguments& g) { return record_program(world, g.recording, g.command); });
  verb->add_option("-o,--output", recording.output, "the job file to write (default: job.yaml)")
      ->check(is_named);
  verb->add_option("--pfs", recording.pfs,
                   "the directory of the PFS with the program's files: root-dir of the job file "
                   "(default: the working directory)")
      ->check(is_named)
      ->check(is_no_home);
  verb->add_flag("--force", recording.force, "replace an existing job file");
  verb->add_option("command", given.command, "the program and its arguments, after --");
  verb->footer(
      "Exit code: the program's if not 0; 125: it succeeded but the job file is not written; 126, "
      "127: it could not be run.");
}

void add_start_verb(Verbs& verbs) {
  VerbArguments& given = verbs.given();
  CLI::App* verb = verbs.add("start", "mount and stage in; returns when the inputs are there",
                             [](World& world, VerbArguments& g) { return start(world, g.job); });
  add_job_options(*verb, given.job, true);
  verb->add_flag("-f,--foreground", given.job.foreground, "stay until the instance ends");
}

constexpr const char* before_job =
    "before the job starts: patterns such as %j are left to its nodes, inputs marked from-job may "
    "be missing";

void add_plan_verb(Verbs& verbs) {
  JobArguments& job = verbs.given().job;
  CLI::App* verb = verbs.add("plan", "show what would move and whether it fits; moves nothing",
                             [](World& world, VerbArguments& g) { return plan(world, g.job); });
  add_job_options(*verb, job, false);
  verb->add_flag("--at-submission", job.at_submission, before_job);
  verb->add_option("--node-memory", job.node_memory,
                   "with --at-submission: memory of the largest node, of which a store in memory "
                   "has its share without a capacity")
      ->check(is_size);
  verb->add_flag("--brief", job.brief, "with --json: without the entries, one for each input");
}

void add_check_verb(Verbs& verbs) {
  JobArguments& job = verbs.given().job;
  CLI::App* verb = verbs.add("check", "report all problems of a job file",
                             [](World& world, VerbArguments& g) { return check(world, g.job); });
  add_job_options(*verb, job, false);
  verb->add_flag(
      "--keys", job.keys,
      "list every key of job files: section, name, values, what a site may do, meaning, default");
  verb->add_option("--memory-source", job.memory_source,
                   "the option or setting behind it, for the message (default: --mem)");
  verb->add_option("--node-memory", job.node_memory,
                   "memory of the largest node: no capacity in memory may be more")
      ->check(is_size);
  CLI::Option* submitting = verb->add_flag("--at-submission", job.at_submission, before_job);
  verb->add_option(
          "--snapshot", job.snapshot,
          "write the job file for the job's nodes to this file, with the values of the environment")
      ->needs(submitting);
}

void add_status_verb(Verbs& verbs) {
  VerbArguments& given = verbs.given();
  CLI::App* verb =
      verbs.add_coloured("status", "show instances", [](World& world, VerbArguments& g) {
        return !g.job_id.empty() ? job_status(world, g.job_id, g.shared)
               : g.watch         ? watch_status(world, g.which, *g.watch)
                                 : status(world, g.which);
      });
  verb->add_option("instance", given.which, "name, mount point or job file")->check(is_named);
  CLI::Option* const watch =
      verb->add_option_function<std::vector<std::string>>(
              "--watch",
              [&given](const std::vector<std::string>& text) {
                given.watch = seconds_to_watch(text.empty() ? "" : text.front());
              },
              "show them again and again until q or ctrl-c, with so many seconds between (default "
              "2)")
          ->expected(0, 1)
          ->allow_extra_args(false)
          ->type_name("SECONDS");
  verb->add_option("--job", given.job_id,
                   "a batch job instead, by its number (or ARRAY_TASK): its state on the nodes; "
                   "exit code 1: it failed, 3: results are not exported")
      ->check(is_job)
      ->excludes(watch);
  verb->add_option("--shared", given.shared,
                   "with --job: the site's directory for the state of jobs (default: $EFS_SHARED, "
                   "or that of plugstack.conf)")
      ->envname("EFS_SHARED");
  verb->add_flag("-a,--all", given.all, "all instances, also dead and kept ones (the default)");
}

void add_stop_verb(Verbs& verbs) {
  VerbArguments& given = verbs.given();
  StopArguments& stopping = given.stopping;
  CLI::App* verb = verbs.add("stop", "unmount and stage out; returns when the results are exported",
                             [](World& world, VerbArguments& g) {
                               g.stopping.stage_out = !g.no_stage_out;
                               return with_job(world, g.job_here, g.stopping.which,
                                               [&] { return stop(world, g.stopping); });
                             });
  add_instance(*verb, given, stopping.which, "instance", "name, mount point or job file");
  verb->add_flag("--no-stage-out", given.no_stage_out, "drop everything that is not exported yet");
  verb->add_flag("--keep", stopping.keep,
                 "leave the buffer on the node for the next start under this name");
  verb->add_option("--deadline", stopping.deadline,
                   "seconds until the instance must be gone; the other results stay in its image")
      ->check(CLI::Range(1e-6, 1e8, "SECONDS"))
      ->check(is_a_number);
  verb->add_flag("--cut-off", stopping.cut_off,
                 "do not wait for containers and other mount namespaces that still have the mount");
  verb->add_flag("--brief", stopping.brief,
                 "with --json: without the receipt, which has an entry for each file");
  verb->add_flag("--merge", stopping.merge,
                 "replace no result that is newer than the start of the instance");
}

void add_salvage_verb(Verbs& verbs) {
  VerbArguments& given = verbs.given();
  SalvageArguments& salvaging = given.salvaging;
  CLI::App* verb = verbs.add("salvage", "export the results of a dead instance",
                             [](World& world, VerbArguments& g) {
                               return with_job(world, g.job_here, g.salvaging.which, [&] {
                                 return g.salvaging.lost ? salvage_orphans(world, g.salvaging)
                                                         : salvage(world, g.salvaging);
                               });
                             });
  add_instance(*verb, given, salvaging.which, "image",
               "instance, job file, or directory of a store (default: the only dead instance)");
  verb->add_option("--to", salvaging.to, "where to (default: the job's results-dir)")
      ->check(is_no_home);
  verb->add_flag("--all", salvaging.all, "everything, inputs and temporary files too");
  verb->add_flag("--list", salvaging.list, "only list what is there");
  verb->add_flag("--lost", salvaging.lost,
                 "contents without a name, where the journal is damaged: to lost+found in "
                 "the directory of --to, under numbers")
      ->excludes("--all");
}

void add_receipt_verb(Verbs& verbs) {
  ReceiptArguments& receipt = verbs.given().receipt;
  CLI::App* verb = verbs.add_coloured(
      "receipt", "show a receipt, or compare it with the files on the PFS or another receipt",
      [](World& world, VerbArguments& g) { return show_receipt(world, g.receipt); });
  CLI::Option* which =
      verb->add_option(
              "receipt", receipt.which,
              "receipt, job file or instance (default: the only receipt in this directory)")
          ->check(is_named);
  CLI::Option* verify = verb->add_option("--verify", receipt.verify,
                                         "receipt of a stage-out, a salvage, or an unload, to "
                                         "compare with what the PFS has")
                            ->check(is_named)
                            ->excludes(which);
  CLI::Option* diff = verb->add_option("--diff", receipt.diff,
                                       "two receipts: results that only one has, or that differ")
                          ->expected(2)
                          ->check(is_named)
                          ->excludes(which)
                          ->excludes(verify);
  for (const auto& [name, flag, help] :
       {std::tuple{"--failed", &receipt.failed, "only results that were not exported"},
        std::tuple{"--dropped", &receipt.dropped, "only files that were dropped"},
        std::tuple{"--replaced", &receipt.replaced,
                   "only results that replaced a file of the same name"}}) {
    verb->add_flag(name, *flag, help)->excludes(verify)->excludes(diff);
  }
  verb->footer(
      "Exit codes: 0 all are as the receipt says, or both receipts agree; 1 a receipt or "
      "results-dir cannot be read; 3 not all are.");
}

void add_report_verb(Verbs& verbs) {
  ReportArguments& reporting = verbs.given().reporting;
  CLI::App* verb = verbs.add_coloured(
      "report", "show what happened in a job, where its time went, and what to change",
      [](World& world, VerbArguments& g) { return report_job(world, g.reporting); });
  verb->add_option("receipt", reporting.which,
                   "receipt, job file or instance (default: the only receipt in this directory)")
      ->check(is_named);
  verb->add_option("--html", reporting.html, "write the report to this file, as one HTML page")
      ->check(is_named);
}

void add_metrics_verb(Verbs& verbs) {
  MetricsArguments& measured = verbs.given().measured;
  CLI::App* verb =
      verbs.add("metrics", "print the figures of instances for a monitoring system (OpenMetrics)",
                [](World& world, VerbArguments& g) { return metrics(world, g.measured); });
  verb->add_option("instance", measured.which, "name, mount point or job file (default: all)")
      ->check(is_named);
  CLI::Option* const textfile =
      verb->add_option("--textfile", measured.textfile,
                       "write them to this file instead, as node_exporter's textfile collector "
                       "reads them")
          ->check(is_named);
  verb->add_option("--listen", measured.listen,
                   "serve them by HTTP, as /metrics, until ctrl-c: a loopback address such as "
                   "127.0.0.1:9464, or unix:PATH")
      ->check(is_named)
      ->excludes(textfile)
      ->excludes(verb->get_option("--json"));
  verb->add_flag("--changed", measured.changed,
                 "count the files that a stop would export, too: a walk over all names");
}

void add_check_image_verb(Verbs& verbs) {
  VerbArguments& given = verbs.given();
  CLI::App* verb = verbs.add(
      "check-image", "verify the image of an instance that is not running",
      [](World& world, VerbArguments& g) { return check_image(world, g.which, g.repair); });
  verb->add_option("image", given.which,
                   "instance, job file, or directory of a store (default: the only dead instance)")
      ->check(is_named);
  verb->add_flag("--repair", given.repair, "remove what is provably left over");
  verb->footer("Exit codes: 0 whole, 1 damaged or not to be looked at, 3 leftovers.");
}

void add_clean_verb(Verbs& verbs) {
  VerbArguments& given = verbs.given();
  CleanArguments& cleaning = given.cleaning;
  CLI::App* verb = verbs.add("clean", "remove what dead instances left behind",
                             [](World& world, VerbArguments& g) {
                               std::string name;
                               return with_job(world, g.job_here, name, [&] {
                                 if (!name.empty()) {
                                   g.cleaning.which = {name};
                                 }
                                 return clean(world, g.cleaning);
                               });
                             });
  add_instance(*verb, given, cleaning.which, "instance",
               "names, or directories of stores (default: all that are dead)");
  verb->add_flag("--force", cleaning.force, "also where results would be lost");
  verb->add_flag("--kept", cleaning.kept,
                 "without a name: also those that were kept for another start");
}

void add_cache_verb(Verbs& verbs) {
  CacheArguments& caching = verbs.given().caching;
  CLI::App* verb =
      verbs.add("cache", "list or remove what the cache of inputs holds on this node",
                [](World& world, VerbArguments& g) { return cache(world, g.caching); });
  verb->add_option("action", caching.action,
                   "ls: list, the least recently used first; clean: remove")
      ->required()
      ->check(CLI::IsMember({"ls", "clean"}));
  verb->add_option("path", caching.paths, "clean: files or directories of the PFS");
  verb->add_flag("--all", caching.all, "clean: everything");
  verb->add_option("--cache", caching.directory,
                   "the directory below which the cache lies (default: $EFS_CACHE, or the site's)");
  verb->add_option("-u,--user", caching.user, "the user of the cache (root only)");
}

void add_queue_verb(Verbs& verbs) {
  verbs
      .add("queue", "show which jobs have or await a turn at the PFS, and for how long",
           [](World& world, VerbArguments& g) { return queue(world, g.queue_directory); })
      ->add_option("directory", verbs.given().queue_directory,
                   "directory of the queue (default: $EFS_INTERLEAVING, or that of plugstack.conf)")
      ->envname("EFS_INTERLEAVING");
}

void add_doctor_verb(Verbs& verbs) {
  VerbArguments& given = verbs.given();
  CLI::App* verb = verbs.add_coloured(
      "doctor", "show what this node lacks for efs, and what to change; changes nothing",
      [](World& world, VerbArguments& g) {
        return g.examined_pmem ? doctor_pmem(world) : doctor(world, g.examined, g.examined_memory);
      });
  CLI::Option* job_file =
      verb->add_option("job_file", given.examined, "look at the stores of this job file, too");
  CLI::Option* memory = verb->add_option("--mem", given.examined_memory,
                                         "show what a job of this size gets here, written as for "
                                         "sbatch (500M)")
                            ->check(is_size);
  verb->add_flag("--pmem", given.examined_pmem,
                 "show the persistent memory of this node alone, and how to use it")
      ->excludes(job_file)
      ->excludes(memory);
}

void add_top_verb(Verbs& verbs) {
  TopArguments& watched = verbs.given().watched;
  CLI::App* verb =
      verbs.add_coloured("top", "show the activity of instances, repeatedly",
                         [](World& world, VerbArguments& g) { return top(world, g.watched); });
  verb->add_option("instance", watched.which, "name, mount point or job file")->check(is_named);
  verb->add_option("-i,--interval", watched.interval, "seconds between two looks (default 2)")
      ->check(CLI::Range(0.1, 3600.0))
      ->check(is_a_number);
  verb->add_flag("--once", watched.once,
                 "show totals once and end; with --interval: rates over that time");
}

void add_ls_options(CLI::App& verb, FileArguments& a) {
  verb.add_flag("--instances", a.instances, "list instances, not files: as efs status --all");
}

void add_wait_options(CLI::App& verb, FileArguments& a) {
  CLI::Option* const tasks = verb.add_option("task", a.paths, "numbers of tasks");
  CLI::Option* const inputs =
      verb.add_flag("--inputs", a.inputs,
                    "wait until the contents of all inputs with stage: background are here")
          ->excludes(tasks);
  verb.add_option("--timeout", a.timeout, "seconds after which --inputs fails")
      ->check(CLI::Range(0.0, 1e8, "SECONDS"))
      ->check(is_a_number)
      ->needs(inputs);
}

// A verb for files while programs run.
CLI::App* add_file_verb(Verbs& verbs, const char* name, const char* help,
                        int (*what)(World&, const FileArguments&)) {
  CLI::App* verb = verbs.add(
      name, help, [what](World& world, VerbArguments& g) { return what(world, g.files); });
  verb->add_option("-i,--instance", verbs.given().files.instance,
                   "name, mount point or job file of the instance (default: the one that the path "
                   "lies in, or the only one)")
      ->check(is_named);
  return verb;
}

void add_paths(CLI::App& verb, FileArguments& a, bool needed) {
  verb.add_option(
          "path", a.paths,
          "paths on the mount, of the PFS below root-dir, or relative to root-dir; patterns "
          "in quotes")
      ->required(needed);
}

// Adds the options of a verb that can transfer a part of one file.
void add_part(CLI::App& verb, FileArguments& a) {
  verb.add_flag("-w,--wait", a.wait, "return when it is done, not at once with a task's number");
  verb.add_option("--offset", a.offset, "only a part of one file: its first byte")
      ->transform(CLI::Validator(make_decimal, ""));
  verb.add_option("--size", a.size, "and how many (0: to the end)")
      ->transform(CLI::Validator(make_decimal, ""));
}

// The verbs that transfer contents.
void add_transfer_verbs(Verbs& verbs) {
  FileArguments& a = verbs.given().files;
  CLI::App* load_verb = add_file_verb(
      verbs, "load", "import files from the PFS into the buffer while programs run", load);
  add_paths(*load_verb, a, true);
  add_part(*load_verb, a);
  load_verb->add_flag("--replace", a.replace, "replace another version that is clean");
  load_verb->add_flag("--force", a.force,
                      "with --replace: also a changed version, whose changes are lost");
  CLI::App* unload_verb = add_file_verb(
      verbs, "unload", "export changed files to results-dir while programs run", unload);
  add_paths(*unload_verb, a, true);
  add_part(*unload_verb, a);
  unload_verb->add_flag("--as-is", a.as_is,
                        "also files that may be written to meanwhile; such a copy is not verified");
  unload_verb->add_flag("--remove", a.remove, "then remove them from the buffer");
  CLI::App* fetch_verb = add_file_verb(
      verbs, "fetch", "fetch contents of inputs that are not in the buffer yet", fetch);
  add_paths(*fetch_verb, a, true);
  CLI::App* move_verb =
      add_file_verb(verbs, "move", "move contents of files to another backend of the job", move);
  add_paths(*move_verb, a, true);
  move_verb->add_option("--to", a.to, "id of the backend")->required()->check(is_named);
  for (CLI::App* const verb : {fetch_verb, move_verb}) {
    verb->add_flag("--no-wait", a.no_wait, "return at once with a task's number");
  }
}

// The verbs for files while programs run that transfer nothing.
void add_file_verbs(Verbs& verbs) {
  FileArguments& a = verbs.given().files;
  add_wait_options(
      *add_file_verb(verbs, "wait", "wait for tasks (default: all), or for inputs", wait), a);
  add_file_verb(verbs, "cancel", "cancel loads, unloads, fetches and moves", cancel)
      ->add_option("task", a.paths, "numbers of tasks")
      ->required();
  CLI::App* ls_verb =
      add_file_verb(verbs, "ls", "list what is in the buffer: class, state, size", ls);
  add_paths(*ls_verb, a, false);
  add_ls_options(*ls_verb, a);
  add_paths(*add_file_verb(verbs, "explain", "show where a file is, and if it will be staged out",
                           explain),
            a, true);
  CLI::App* set_verb =
      add_file_verb(verbs, "set", "change the class of files while programs run", set);
  set_verb
      ->add_option("class", a.file_class, "persistent, temporary, or default: as the job file says")
      ->required()
      ->check(CLI::IsMember({"persistent", "temporary", "default"}));
  add_paths(*set_verb, a, true);
  add_paths(*add_file_verb(verbs, "pin",
                           "keep files in their backend, and their contents in the buffer", pin),
            a, true);
  add_paths(*add_file_verb(verbs, "unpin", "let pinned files move and leave again", unpin), a,
            true);
}

void add_limit_verb(Verbs& verbs) {
  FileArguments& a = verbs.given().files;
  CLI::App* verb = verbs.add("limit", "show or change what a limited mount may do per second",
                             [](World& world, VerbArguments& g) { return limit(world, g.files); });
  verb->add_option("-i,--instance", a.instance,
                   "name, mount point or job file of the instance (default: the only one)")
      ->check(is_named);
  verb->add_option("limit", a.paths,
                   "read=RATE, write=RATE, ops=NUMBER, such as read=500MB/s, or none");
}

}  // namespace

void add_verbs(CLI::App& app, World& world, VerbArguments& given) {
  Verbs verbs(app, world, given);
  add_run_verb(verbs);
  add_record_verb(verbs);
  add_intercept_verb(verbs);
  add_start_verb(verbs);
  add_plan_verb(verbs);
  add_check_verb(verbs);
  add_status_verb(verbs);
  add_stop_verb(verbs);
  add_salvage_verb(verbs);
  add_receipt_verb(verbs);
  add_report_verb(verbs);
  add_check_image_verb(verbs);
  add_clean_verb(verbs);
  add_cache_verb(verbs);
  add_queue_verb(verbs);
  add_doctor_verb(verbs);
  add_top_verb(verbs);
  add_metrics_verb(verbs);
  add_transfer_verbs(verbs);
  add_file_verbs(verbs);
  add_limit_verb(verbs);
}

}  // namespace efs::cli
