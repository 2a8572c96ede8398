// SPDX-License-Identifier: BSD-3-Clause
// The plan for programs and for people.

#include <nlohmann/json.hpp>
#include <ranges>

#include "base/text.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {
namespace {

const char* name_of(EntryType type) {
  switch (type) {
    case EntryType::directory: return "directory";
    case EntryType::symlink: return "symlink";
    case EntryType::file: break;
  }
  return "file";
}

const char* name_of(config::StageWhen stage) {
  switch (stage) {
    case config::StageWhen::background: return "background";
    case config::StageWhen::on_access: return "on-access";
    case config::StageWhen::now: break;
  }
  return "now";
}

nlohmann::json entry_json(const Plan& plan, const PlanEntry& entry) {
  nlohmann::json json{
      {"path", entry.path},
      {"type", name_of(entry.type)},
      {"class", entry.file_class == config::FileClass::persistent ? "persistent" : "temporary"},
      {"mode", entry.attributes.mode},
      {"uid", entry.attributes.uid},
      {"gid", entry.attributes.gid},
      {"mtime_ns", entry.attributes.mtime}};
  if (entry.type == EntryType::file) {
    json["bytes"] = entry.size;
    json["allocated"] = entry.allocated;
    if (!plan.shares.empty()) {
      json["backend"] = plan.shares.at(entry.place).backend;
    }
    json["reusable"] = entry.reusable;
    json["stage"] = name_of(is_remote(entry) ? entry.stage : config::StageWhen::now);
  }
  if (entry.source) {
    json["source"] = *entry.source;
  }
  if (!entry.outside.empty()) {
    json["follows"] = entry.outside;
  }
  if (!entry.link_to.empty()) {
    json["link_to"] = entry.link_to;
  }
  if (entry.type == EntryType::symlink) {
    json["target"] = entry.target;
  }
  return json;
}

}  // namespace

nlohmann::json to_json(const Plan& plan) {
  nlohmann::json json{{"format", "efs-plan-1"},
                      {"job", plan.name},
                      {"root_dir", plan.root_dir},
                      {"results_dir", plan.results_dir},
                      {"deletions", plan.deletions ? "propagate" : "ignore"},
                      {"bytes", plan.bytes},
                      {"needed_bytes", plan.needed},
                      {"files", plan.files},
                      {"inodes", plan.inodes},
                      {"reusable_files", plan.reusable_files},
                      {"reusable_bytes", plan.reusable_bytes},
                      {"remote_files", plan.remote_files},
                      {"remote_bytes", plan.remote_bytes},
                      {"cache", plan.cache},
                      {"ok", plan.problems.empty()},
                      {"entries", nlohmann::json::array()},
                      {"problems", nlohmann::json::array()},
                      {"skipped", nlohmann::json::array()},
                      {"links", nlohmann::json::array()}};
  if (plan.capacity) {
    json["capacity"] = *plan.capacity;
  }
  for (const auto& share : plan.shares) {
    nlohmann::json one{{"id", share.backend},          {"files", share.files},
                       {"needed_bytes", share.needed}, {"spilled", share.spilled},
                       {"memory", share.memory},       {"journal", share.journal},
                       {"new_files", share.new_files}};
    if (share.room) {
      one["capacity"] = *share.room;
    }
    json["backends"].push_back(std::move(one));
  }
  for (const auto& entry : plan.entries) {
    json["entries"].push_back(entry_json(plan, entry));
  }
  for (const auto& problem : plan.problems) {
    json["problems"].push_back(
        {{"path", problem.path}, {"reason", problem.reason}, {"line", problem.line}});
  }
  for (const auto& skip : plan.skipped) {
    json["skipped"].push_back({{"path", skip.path},
                               {"reason", skip.reason},
                               {"awaited", skip.awaited},
                               {"vanished", skip.vanished}});
  }
  for (const auto& link : plan.links) {
    json["links"].push_back(
        {{"path", link.path}, {"target", link.target}, {"reason", link.reason}});
  }
  return json;
}

namespace {

std::string line_of_share(const Share& share) {
  const std::string is = std::string(share.memory ? ", memory" : "") +
                         (share.journal ? ", the journal" : "") +
                         (share.new_files ? ", new files" : "");
  return "backend " + escaped(share.backend) + (is.empty() ? "" : " (" + is.substr(2) + ")") +
         ": " + std::to_string(share.files) + " files, needs at most " +
         format_bytes(share.needed) + (share.room ? " of " + format_bytes(*share.room) : "") +
         (share.spilled > 0 ? "; " + std::to_string(share.spilled) +
                                  " of them because their own backend is full\n"
                            : "\n");
}

/// A line for each of the first links that lead out, and the number of the others.
std::string notes_on(const std::vector<PlanNote>& links) {
  constexpr std::size_t most_links = 20;
  std::string text;
  for (const auto& link : links | std::views::take(most_links)) {
    text += "note: " + escaped(link.path) + " -> " + escaped(link.target) + " " +
            printable(link.reason) + "\n";
  }
  if (links.size() > most_links) {
    text += "note: and " + std::to_string(links.size() - most_links) +
            " more such links; --json has them all\n";
  }
  return text;
}

std::string lines_of_problems(const std::vector<PlanProblem>& problems) {
  std::string text;
  for (const auto& problem : problems) {
    text += "problem: " + escaped(problem.path) + ": " + printable(problem.reason);
    text +=
        problem.line > 0 ? " (line " + std::to_string(problem.line) + " of the job file)\n" : "\n";
  }
  if (!problems.empty()) {
    text += std::to_string(problems.size()) + " problems: the job cannot start\n";
  }
  return text;
}

}  // namespace

std::string describe(const Plan& plan) {
  std::string text = escaped(plan.name) + ": stage in " + std::to_string(plan.files) + " files, " +
                     format_bytes(plan.bytes) + " (" + std::to_string(plan.inodes) +
                     " inodes) from " + escaped(plan.root_dir) + "\n";
  if (plan.capacity) {
    text += "buffer: needs at most " + format_bytes(plan.needed) + " of " +
            format_bytes(*plan.capacity) + "\n";
  }
  for (const auto& share : plan.shares) {
    text += line_of_share(share);
  }
  if (!plan.shares.empty()) {
    text += "durability: no name survives what " + escaped(plan.shares.front().backend) +
            " does not, no content what its own backend does not\n";
  }
  if (plan.remote_files > 0) {
    text += "later: the contents of " + std::to_string(plan.remote_files) + " files, " +
            format_bytes(plan.remote_bytes) + ", come when a program opens them, or in the " +
            "background\n";
  }
  if (plan.reusable_files > 0) {
    text += "reusable: " + std::to_string(plan.reusable_files) + " files, " +
            format_bytes(plan.reusable_bytes) +
            (plan.cache.empty() ? "; without effect, as no cache is configured (key 'cache')\n"
                                : "; cache below " + escaped(plan.cache) + "\n");
  }
  text += plan.results_dir.empty() ? "stage out: nothing is persistent\n"
                                   : "stage out: to " + escaped(plan.results_dir) + "\n";
  if (plan.deletions) {
    text += "deletions: persistent inputs that the job removes or renames are removed from " +
            escaped(plan.results_dir) + ", if unchanged there\n";
  }
  for (const auto& skip : plan.skipped) {
    text += "skipped: " + escaped(skip.path) + " (" + printable(skip.reason) + ")\n";
  }
  return text + notes_on(plan.links) + lines_of_problems(plan.problems);
}

}  // namespace efs::stage
