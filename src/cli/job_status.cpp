// SPDX-License-Identifier: BSD-3-Clause
// efs status --job N: prints the records that the nodes of a batch job wrote
// (slurm-plugin/notice.c). A record of an import or export names the queue; efs looks up the
// current position there. A program inside a job cannot write such records. If no node has written
// one, efs asks slurmctld.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>

#include "base/mounts.hpp"
#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/job_records.hpp"
#include "cli/slurm_site.hpp"
#include "queue/overview.hpp"

namespace efs::cli {
namespace {

constexpr int answer_time_of_site = 20;  // seconds, for the site's directory

// The same words as efs status uses for an instance.
std::string describe(const queue::Line& line, std::size_t ahead) {
  const queue::Ticket& t = line.ticket;
  const std::string direction = queue::name_of(t.direction);
  const std::string moved =
      t.bytes > 0
          ? ", " + std::to_string(std::min<std::uint64_t>(100, t.done * 100 / t.bytes)) + "% moved"
          : "";
  if (t.slot >= 0) {
    return "stages " + direction + moved +
           (line.left >= 0 ? ", about " + format_seconds(line.left) + " left" : "");
  }
  return "waits to stage " + direction + ", " + std::to_string(ahead) + " ahead" +
         (line.wait >= 0 ? ", about " + format_seconds(line.wait) : "");
}

// keys: instance and node
using Turns = std::map<std::pair<std::string, std::string>, std::string>;

void add_turns(const queue::Side& side, Turns& turns) {
  for (const auto& line : side.holders) {
    turns[{line.ticket.job, line.ticket.node}] = describe(line, 0);
  }
  for (std::size_t i = 0; i < side.waiters.size(); ++i) {
    turns[{side.waiters[i].ticket.job, side.waiters[i].ticket.node}] = describe(side.waiters[i], i);
  }
}

// An unreadable queue yields no turns.
Turns turns_at(const std::string& directory) {
  Turns turns;
  const auto overview = queue::look_at(directory);
  if (!overview) {
    return turns;
  }
  add_turns(overview->in, turns);
  add_turns(overview->out, turns);
  return turns;
}

void add_turns(Json& all) {
  std::map<std::string, Turns> by_queue;
  for (auto& record : all) {
    const std::string directory = record.value("queue", ""), state = record.value("state", "");
    if (directory.empty() ||
        (state != "running" && state != "staging-in" && state != "staging-out")) {
      continue;
    }
    auto known = by_queue.find(directory);
    if (known == by_queue.end()) {
      known = by_queue.emplace(directory, turns_at(directory)).first;
    }
    const auto turn = known->second.find({record.value("instance", ""), record.value("node", "")});
    if (turn != known->second.end()) {
      record["turn"] = turn->second;
    }
  }
}

int code_of(const Json& all) {
  int code = exit_good;
  for (const auto& record : all) {
    const std::string state = record.value("state", "");
    if (state == "failed" || state == "put-off" || state == "cancelled") {
      return exit_failure;
    }
    if (state == "unsaved" || state == "dead" || state == "given-up") {
      code = exit_some_failed;
    }
  }
  return code;
}

// The output for a job, or for an array with all its tasks.
struct Shown {
  Json nodes = Json::array();  // records, with "task" if the job is a task of an array
  // for an array: slurmctld's entries of tasks for which no node has written a record
  Json tasks = Json::array();
  bool is_array = false;
};

Json document_of(const std::string& job, const Shown& shown, int code) {
  Json document{{"ok", code == exit_good},
                {"job", std::strtoul(job.c_str(), nullptr, 10)},
                {"nodes", shown.nodes},
                {"exit", code}};
  if (shown.is_array) {
    document["tasks"] = shown.tasks;
  }
  return document;
}

std::string text_of_waiting(const SlurmJob& known) {
  const bool has_start = !known.start.empty() && known.start != "N/A";
  return " waits for its nodes (" + known.reason + ")" +
         (has_start ? ", which Slurm expects at " + known.start : "") +
         "; its inputs are staged in when it has them\n";
}

// No node has written a record. slurmctld knows the reason.
int status_without_records(World& world, const std::string& job,
                           const std::optional<SlurmJob>& known, const std::string& shared) {
  const std::string nothing = "no node has written anything about job " + job + " below " + shared;
  if (!known) {
    return report(
        world,
        {ENOENT, nothing + ": it uses no efs, or is long over, or slurmctld cannot be asked here"});
  }
  if (known->state != "PENDING") {
    return report(
        world,
        {ENOENT, nothing + ", and Slurm has it as " + known->state +
                     ": it uses no efs, begins just now, or what was written has been removed"});
  }
  if (world.json) {
    Json document = document_of(job, {}, exit_good);
    document["slurm"] = {
        {"state", known->state}, {"reason", known->reason}, {"start", known->start}};
    print_document(world, document);
    return exit_good;
  }
  world.out << "job " << job << text_of_waiting(*known);
  return exit_good;
}

// For a running job: the last record of its node, which may be some minutes old.
std::string text_of_figures(const Json& record) {
  if (record.value("state", "") != "running" || !record.contains("used")) {
    return {};
  }
  const auto number = [&](const char* key) {
    return record.value(key, std::uint64_t{0});
  };
  std::string text =
      "; " + format_bytes(number("used")) + " of " + format_bytes(number("capacity")) + " used";
  if (record.contains("changed_files") && record.contains("changed_bytes")) {
    text += ", " + std::to_string(number("changed_files")) + " files changed (" +
            format_bytes(number("changed_bytes")) + "), which the stage-out exports";
  }
  if (const auto takeovers = number("takeovers"); takeovers > 0) {
    text += ", its worker was replaced " + std::to_string(takeovers) +
            (takeovers == 1 ? " time" : " times");
  }
  const auto seconds =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count() -
      static_cast<double>(number("time"));
  return text + ", " + format_seconds(std::max(0.0, seconds)) + " ago";
}

void print_record(World& world, const std::string& job, const Json& record) {
  const std::string text = record.value("turn", record.value("text", "") + text_of_figures(record));
  const std::string task = record.value("task", "");
  world.out << "job " << (task.empty() ? job : task) << " on "
            << printable(record.value("node", "?") + ": " + record.value("state", "?") +
                         (text.empty() ? "" : ": " + text))
            << "\n";
}

int show(World& world, const std::string& job, Shown shown) {
  add_turns(shown.nodes);
  const int code = code_of(shown.nodes);
  if (world.json) {
    print_document(world, document_of(job, shown, code));
    return code;
  }
  for (const auto& record : shown.nodes) {
    print_record(world, job, record);
  }
  for (const auto& task : shown.tasks) {
    world.out << "job " << printable(task.value("task", "") + task.value("text", ""));
  }
  return code;
}

// slurmctld has the tasks that wait as one entry, such as 3-7.
bool is_single(const SlurmJob& task) {
  return task.task.find_first_not_of("0123456789") == task.task.npos;
}

// `name`: of the task or the tasks of `one`.
Json entry_without_records(const std::string& name, const SlurmJob& one) {
  const std::string text = one.state == "PENDING" ? text_of_waiting(one)
                                                  : ": Slurm has it as " + one.state +
                                                        "; no node has written anything about it\n";
  return {{"task", name},
          {"job", one.id},
          {"state", one.state},
          {"reason", one.reason},
          {"text", text}};
}

struct ByNumber {
  bool operator()(const std::string& a, const std::string& b) const {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  }
};

// Returns the numbers of the jobs by their index in the array: of tasks that slurmctld knows, and
// of tasks with records.
std::map<std::string, std::string, ByNumber> jobs_of_array(const std::string& shared,
                                                           const std::string& array,
                                                           const std::vector<SlurmJob>& known) {
  std::map<std::string, std::string, ByNumber> jobs;
  for (const auto& [task, job] : tasks_of_array(shared, array)) {
    jobs[task] = job;
  }
  for (const auto& one : known) {
    if (one.array == array && is_single(one)) {
      jobs[one.task] = std::to_string(one.id);
    }
  }
  return jobs;
}

// Collects the records and the tasks without records, sorted by index.
Shown look_at_array(const std::string& shared, const Runs& runs, const std::string& array,
                    const std::vector<SlurmJob>& known) {
  Shown shown{.is_array = true};
  for (const auto& [task, job] : jobs_of_array(shared, array, known)) {
    Json records = records_of(runs, job);
    for (auto& record : records) {
      record["task"] = array + "_" + task, shown.nodes.push_back(std::move(record));
    }
    const auto in_slurm = std::ranges::find_if(known, [&](const SlurmJob& one) {
      return std::to_string(one.id) == job && one.task == task;
    });
    if (records.empty() && in_slurm != known.end()) {
      shown.tasks.push_back(entry_without_records(array + "_" + task, *in_slurm));
    }
  }
  for (const auto& one : known) {
    if (one.array == array && !is_single(one)) {
      shown.tasks.push_back(entry_without_records(array + "_[" + one.task + "]", one));
    }
  }
  return shown;
}

bool is_over(const Json& records) {
  return std::ranges::all_of(records, [](const Json& record) {
    const std::string state = record.value("state", "");
    return state == "done" || state == "unsaved" || state == "kept" || state == "given-up";
  });
}

// Prints the job with exactly this number.
int status_of_job(World& world, const Runs& runs, const std::string& number,
                  const std::optional<SlurmJob>& known, const std::string& shared) {
  Json records = records_of(runs, number);
  if (records.empty()) {
    return status_without_records(world, number, known, shared);
  }
  return show(world, number, {.nodes = std::move(records)});
}

int status_of_task(World& world, const std::string& task, const std::string& shared) {
  const auto known = ask_slurm(task);
  const auto mark = task.find('_');
  const auto written = tasks_of_array(shared, task.substr(0, mark));
  const auto found = written.find(task.substr(mark + 1));
  if (!known && found == written.end()) {
    return report(
        world,
        {ENOENT, "slurmctld does not know the task " + task +
                     " (any more), or cannot be asked here, and no node has written anything about "
                     "it: name it by its own number, which is SLURM_JOB_ID in the task"});
  }
  return status_of_job(world, last_runs(shared), known ? std::to_string(known->id) : found->second,
                       known, shared);
}

// sbatch prints the number of the array, which is also the number of one task. After the end of
// that task the records of the nodes identify the task.
int status_of_job_or_array(World& world, const std::string& job, const std::string& shared) {
  const Runs runs = last_runs(shared);
  const bool has_tasks = !tasks_of_array(shared, job).empty();
  const Json own = records_of(runs, job);
  if (!has_tasks && !own.empty() && is_over(own)) {
    return show(world, job, {.nodes = own});
  }
  const auto known = ask_slurm_for_all(job);
  const bool is_array = has_tasks || std::ranges::any_of(known, [&](const SlurmJob& one) {
                          return one.array == job && !one.task.empty() && one.task != "N/A";
                        });
  if (is_array) {
    return show(world, job, look_at_array(shared, runs, job, known));
  }
  const auto itself = std::ranges::find_if(
      known, [&](const SlurmJob& one) { return std::to_string(one.id) == job; });
  const auto meant = itself == known.end() ? known.begin() : itself;
  return status_of_job(world, runs, job,
                       meant == known.end() ? std::nullopt : std::optional(*meant), shared);
}

}  // namespace

int job_status(World& world, const std::string& job, const std::string& given) {
  const std::string shared = given.empty() ? site_argument("shared") : given;
  if (shared.empty()) {
    return report(world,
                  {EINVAL,
                   "where the nodes write the state of jobs is not known here: name the site's "
                   "directory with --shared, or set EFS_SHARED"},
                  exit_usage);
  }
  if (!answers(shared, answer_time_of_site)) {
    return report(world, {ETIMEDOUT, shared + ": its file system does not answer for " +
                                         std::to_string(answer_time_of_site) + " s; it may hang"});
  }
  if (job.contains('_')) {
    return status_of_task(world, job, shared);
  }
  return status_of_job_or_array(world, job, shared);
}

}  // namespace efs::cli
