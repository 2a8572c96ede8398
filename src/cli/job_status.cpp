// efs status --job N: what the nodes of a batch job have written down for each other (slurm-plugin/notice.c), and where those that
// stage now stand in the queue, which they name. Within a job nobody may write such things down. Of a job that has no nodes yet
// slurmctld tells.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "base/json_text.hpp"
#include "base/mounts.hpp"
#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/slurm_site.hpp"
#include "queue/overview.hpp"

namespace efs::cli {
namespace {

namespace stdfs = std::filesystem;
constexpr std::streamsize longest_record = 16384;
constexpr int answer_time_of_site = 20;  // seconds, for the site's directory

// The directory of the job's last run: JOB.RESTART.
std::string records_of(const std::string& shared, const std::string& job) {
  std::string best;
  long best_restart = -1;
  std::error_code problem;
  for (stdfs::directory_iterator it(shared + "/jobs", problem), end; !problem && it != end; it.increment(problem)) {
    const std::string name = it->path().filename().string(), prefix = job + ".";
    if (!name.starts_with(prefix)) continue;
    const long restart = std::strtol(name.c_str() + prefix.size(), nullptr, 10);
    if (restart > best_restart) best = it->path().string(), best_restart = restart;
  }
  return best;
}

constexpr std::array texts_of_a_record{"queue", "state", "instance", "node", "text"};

Json records(const std::string& directory) {
  std::map<std::string, Json> by_node;
  std::error_code problem;
  for (stdfs::directory_iterator it(directory, problem), end; !problem && it != end; it.increment(problem)) {
    if (it->path().filename().string().starts_with('.')) continue;
    std::string text(longest_record, '\0');
    std::ifstream file(it->path());
    file.read(text.data(), longest_record);
    text.resize(static_cast<std::size_t>(file.gcount()));
    Json record = json_from_text(text);
    const bool is_record = record.is_object() && std::ranges::all_of(texts_of_a_record, [&](const char* key) { return !record.contains(key) || record[key].is_string(); });
    if (is_record) by_node[it->path().filename().string()] = std::move(record);
  }
  Json all = Json::array();
  for (auto& [node, record] : by_node) all.push_back(std::move(record));
  return all;
}

// As efs status says it of an instance.
std::string describe(const queue::Line& line, std::size_t ahead) {
  const queue::Ticket& t = line.ticket;
  const std::string direction = queue::name_of(t.direction);
  const std::string moved = t.bytes > 0 ? ", " + std::to_string(std::min<std::uint64_t>(100, t.done * 100 / t.bytes)) + "% moved" : "";
  if (t.slot >= 0) return "stages " + direction + moved + (line.left >= 0 ? ", about " + format_seconds(line.left) + " left" : "");
  return "waits to stage " + direction + ", " + std::to_string(ahead) + " ahead" + (line.wait >= 0 ? ", about " + format_seconds(line.wait) : "");
}

using Turns = std::map<std::pair<std::string, std::string>, std::string>;  // by instance and node

void add_turns(const queue::Side& side, Turns& turns) {
  for (const auto& line : side.holders) turns[{line.ticket.job, line.ticket.node}] = describe(line, 0);
  for (std::size_t i = 0; i < side.waiters.size(); ++i) turns[{side.waiters[i].ticket.job, side.waiters[i].ticket.node}] = describe(side.waiters[i], i);
}

// What cannot be looked at tells nothing.
Turns turns_at(const std::string& directory) {
  Turns turns;
  const auto overview = queue::look_at(directory);
  if (!overview) return turns;
  add_turns(overview->in, turns);
  add_turns(overview->out, turns);
  return turns;
}

void add_turns(Json& all) {
  std::map<std::string, Turns> by_queue;
  for (auto& record : all) {
    const std::string directory = record.value("queue", ""), state = record.value("state", "");
    if (directory.empty() || (state != "running" && state != "staging-in" && state != "staging-out")) continue;
    auto known = by_queue.find(directory);
    if (known == by_queue.end()) known = by_queue.emplace(directory, turns_at(directory)).first;
    const auto turn = known->second.find({record.value("instance", ""), record.value("node", "")});
    if (turn != known->second.end()) record["turn"] = turn->second;
  }
}

int code_of(const Json& all) {
  int code = exit_good;
  for (const auto& record : all) {
    const std::string state = record.value("state", "");
    if (state == "failed" || state == "put-off" || state == "cancelled") return exit_failure;
    if (state == "unsaved") code = exit_some_failed;
  }
  return code;
}

Json document_of(const std::string& job, const Json& nodes, int code) { return {{"ok", code == exit_good}, {"job", std::strtoul(job.c_str(), nullptr, 10)}, {"nodes", nodes}, {"exit", code}}; }

// No node has written anything: it is slurmctld that knows why.
int status_without_records(World& world, const std::string& job, const std::optional<SlurmJob>& known, const std::string& shared) {
  const std::string nothing = "no node has written anything about job " + job + " below " + shared;
  if (!known) return report(world, {ENOENT, nothing + ": it uses no efs, or is long over, or slurmctld cannot be asked here"});
  if (known->state != "PENDING") return report(world, {ENOENT, nothing + ", and Slurm has it as " + known->state + ": it uses no efs, begins just now, or what was written has been removed"});
  if (world.json) {
    Json document = document_of(job, Json::array(), exit_good);
    document["slurm"] = {{"state", known->state}, {"reason", known->reason}, {"start", known->start}};
    print_document(world, document);
    return exit_good;
  }
  world.out << "job " << job << " waits for its nodes (" << known->reason << ")" << (known->start.empty() || known->start == "N/A" ? "" : ", which Slurm expects at " + known->start) << "; its inputs come when it has them\n";
  return exit_good;
}

int show_records(World& world, const std::string& job, const std::string& directory) {
  Json all = records(directory);
  add_turns(all);
  const int code = code_of(all);
  if (world.json) {
    print_document(world, document_of(job, all, code));
    return code;
  }
  for (const auto& record : all) {
    const std::string text = record.value("turn", record.value("text", ""));
    world.out << "job " << job << " on " << printable(record.value("node", "?") + ": " + record.value("state", "?") + (text.empty() ? "" : ": " + text)) << "\n";
  }
  return code;
}

}  // namespace

int job_status(World& world, const std::string& job, const std::string& given) {
  const std::string shared = given.empty() ? site_argument("shared") : given;
  if (shared.empty()) return report(world, {EINVAL, "where the nodes write the state of jobs is not known here: name the site's directory with --shared, or set EFS_SHARED"}, exit_usage);
  if (!answers(shared, answer_time_of_site)) return report(world, {ETIMEDOUT, shared + ": its file system does not answer for " + std::to_string(answer_time_of_site) + " s; it may hang"});
  const bool is_task = job.contains('_');
  auto known = is_task ? ask_slurm(job) : std::nullopt;
  if (is_task && !known) return report(world, {ENOENT, "slurmctld does not know the task " + job + " (any more), or cannot be asked here: name it by its own number, which is SLURM_JOB_ID in the task"});
  const std::string number = is_task ? std::to_string(known->id) : job, directory = records_of(shared, number);
  if (!directory.empty()) return show_records(world, number, directory);
  if (!is_task) known = ask_slurm(job);
  return status_without_records(world, number, known, shared);
}

}  // namespace efs::cli
