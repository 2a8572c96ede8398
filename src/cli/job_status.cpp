// efs status --job N: what the nodes of a batch job have written down for each other (slurm-plugin/notice.c), and where those that
// stage now stand in the queue, which they name. Within a job nobody may write such things down.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "queue/overview.hpp"

namespace efs::cli {
namespace {

namespace stdfs = std::filesystem;
constexpr std::streamsize longest_record = 16384;

// The directory of the job's last run: JOB.RESTART.
std::string records_of(const std::string& shared, unsigned job) {
  std::string best;
  long best_restart = -1;
  std::error_code problem;
  for (stdfs::directory_iterator it(shared + "/jobs", problem), end; !problem && it != end; it.increment(problem)) {
    const std::string name = it->path().filename().string(), prefix = std::to_string(job) + ".";
    if (!name.starts_with(prefix)) continue;
    const long restart = std::strtol(name.c_str() + prefix.size(), nullptr, 10);
    if (restart > best_restart) best = it->path().string(), best_restart = restart;
  }
  return best;
}

Json records(const std::string& directory) {
  std::map<std::string, Json> by_node;
  std::error_code problem;
  for (stdfs::directory_iterator it(directory, problem), end; !problem && it != end; it.increment(problem)) {
    if (it->path().filename().string().starts_with('.')) continue;
    std::string text(longest_record, '\0');
    std::ifstream file(it->path());
    file.read(text.data(), longest_record);
    text.resize(static_cast<std::size_t>(file.gcount()));
    Json record = Json::parse(text, nullptr, false);
    if (record.is_object()) by_node[it->path().filename().string()] = std::move(record);
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

}  // namespace

int job_status(World& world, unsigned job, const std::string& shared) {
  const std::string directory = shared.empty() ? "" : records_of(shared, job);
  if (shared.empty()) return report(world, {EINVAL, "where the nodes write the state of jobs is not known: name the site's directory with --shared, or set EFS_SHARED"}, exit_usage);
  if (directory.empty()) return report(world, {ENOENT, "no node has written anything about job " + std::to_string(job) + " below " + shared + ": it waits for its nodes, uses no efs, or is long over"});
  Json all = records(directory);
  add_turns(all);
  const int code = code_of(all);
  if (world.json) {
    print_document(world, {{"ok", code == exit_good}, {"job", job}, {"nodes", all}, {"exit", code}});
    return code;
  }
  for (const auto& record : all) {
    const std::string text = record.value("turn", record.value("text", ""));
    world.out << "job " << job << " on " << printable(record.value("node", "?") + ": " + record.value("state", "?") + (text.empty() ? "" : ": " + text)) << "\n";
  }
  return code;
}

}  // namespace efs::cli
