// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/job_record.hpp"

#include <exception>
#include <new>
#include <nlohmann/json.hpp>

namespace efs::stage {
namespace {

using Json = nlohmann::json;

Json json_of(const std::vector<JobFile>& files) {
  Json all = Json::array();
  for (const auto& file : files) {
    all.push_back({{"path", file.path}, {"bytes", file.bytes}});
    if (file.seconds > 0) {
      all.back()["seconds"] = file.seconds;
    }
  }
  return all;
}

std::vector<JobFile> files_of(const Json& json) {
  std::vector<JobFile> files;
  for (const auto& one : json) {
    files.push_back({.path = one.at("path"),
                     .bytes = one.value("bytes", std::uint64_t{0}),
                     .seconds = one.value("seconds", 0.0)});
  }
  return files;
}

Json json_of(const JobCounters& counters) {
  return {{"opens", counters.opens},
          {"passthrough_opens", counters.passthrough_opens},
          {"read_bytes", counters.read_bytes},
          {"written_bytes", counters.written_bytes},
          {"requests", counters.requests},
          {"errors", counters.errors},
          {"daemon_reason", counters.daemon_reason}};
}

JobCounters counters_of(const Json& json) {
  const auto number = [&](const char* key) {
    return json.value(key, std::uint64_t{0});
  };
  return {.opens = number("opens"),
          .passthrough_opens = number("passthrough_opens"),
          .read_bytes = number("read_bytes"),
          .written_bytes = number("written_bytes"),
          .requests = number("requests"),
          .errors = number("errors"),
          .daemon_reason = json.value("daemon_reason", "")};
}

// A sample is [time, used]: there are many.
Json json_of(const JobSpace& space) {
  Json samples = Json::array();
  for (const auto& sample : space.samples) {
    samples.push_back({sample.time, sample.used});
  }
  return {{"capacity", space.capacity}, {"samples", std::move(samples)}};
}

JobSpace space_of(const Json& json) {
  JobSpace space{.capacity = json.value("capacity", std::uint64_t{0}), .samples = {}};
  for (const auto& sample : json.at("samples")) {
    space.samples.push_back({.time = sample.at(0), .used = sample.at(1)});
  }
  return space;
}

Json json_of(const std::vector<UnopenedResource>& resources) {
  Json all = Json::array();
  for (const auto& one : resources) {
    all.push_back(
        {{"path", one.path}, {"line", one.line}, {"files", one.files}, {"bytes", one.bytes}});
  }
  return all;
}

std::vector<UnopenedResource> resources_of(const Json& json) {
  std::vector<UnopenedResource> resources;
  for (const auto& one : json) {
    resources.push_back({.path = one.at("path"),
                         .line = one.value("line", 0),
                         .files = one.at("files"),
                         .bytes = one.at("bytes")});
  }
  return resources;
}

Json json_of(const UnopenedInputs& unopened) {
  return {{"files", unopened.files},
          {"bytes", unopened.bytes},
          {"of_files", unopened.of_files},
          {"of_bytes", unopened.of_bytes},
          {"largest", json_of(unopened.largest)},
          {"resources", json_of(unopened.resources)}};
}

UnopenedInputs unopened_of(const Json& json) {
  return {.files = json.at("files"),
          .bytes = json.at("bytes"),
          .of_files = json.value("of_files", std::uint64_t{0}),
          .of_bytes = json.value("of_bytes", std::uint64_t{0}),
          .largest = files_of(json.at("largest")),
          .resources = resources_of(json.value("resources", Json::array()))};
}

Json json_of(const MissedInputs& missed) {
  return {{"named", missed.named}, {"not_kept", missed.not_kept}, {"unchecked", missed.unchecked}};
}

MissedInputs missed_of(const Json& json) {
  return {.files = {},
          .named = json.value("named", std::uint64_t{0}),
          .not_kept = json.value("not_kept", std::uint64_t{0}),
          .unchecked = json.value("unchecked", std::uint64_t{0})};
}

Json phases_of(const JobRecord& record) {
  Json phases = Json::array();
  for (const auto& phase : record.phases) {
    phases.push_back({{"name", phase.name},
                      {"begin_ns", phase.begin},
                      {"end_ns", phase.end},
                      {"bytes", phase.bytes}});
  }
  return phases;
}

Json transfers_of(const JobRecord& record) {
  Json transfers = Json::array();
  for (const auto& one : record.transfers) {
    transfers.push_back({{"kind", one.kind},
                         {"state", one.state},
                         {"begin_ns", one.begin},
                         {"end_ns", one.end},
                         {"bytes", one.bytes}});
  }
  return transfers;
}

void read_times(const Json& json, JobRecord& record) {
  for (const auto& one : json.value("phases", Json::array())) {
    record.phases.push_back({.name = one.at("name"),
                             .begin = one.at("begin_ns"),
                             .end = one.at("end_ns"),
                             .bytes = one.value("bytes", std::uint64_t{0})});
  }
  for (const auto& one : json.value("transfers", Json::array())) {
    record.transfers.push_back({.kind = one.at("kind"),
                                .state = one.value("state", ""),
                                .begin = one.at("begin_ns"),
                                .end = one.at("end_ns"),
                                .bytes = one.value("bytes", std::uint64_t{0})});
  }
}

template <typename Part, typename Read>
void read_part(const Json& json, const char* key, std::optional<Part>& part, Read read) {
  if (const auto found = json.find(key); found != json.end()) {
    part = read(*found);
  }
}

template <typename Part>
void add_part(Json& json, const char* key, const std::optional<Part>& part) {
  if (part) {
    json[key] = json_of(*part);
  }
}

}  // namespace

Json to_json(const JobRecord& record) {
  Json json{{"version", JobRecord::version},
            {"job_file", record.job_file},
            {"root_dir", record.root_dir},
            {"takeovers", record.takeovers},
            {"continued", record.continued},
            {"phases", phases_of(record)},
            {"transfers", transfers_of(record)},
            {"unlisted_transfers", record.unlisted_transfers},
            {"slowest_inputs", json_of(record.slowest_inputs)}};
  add_part(json, "counters", record.counters);
  add_part(json, "space", record.space);
  add_part(json, "unopened_inputs", record.unopened);
  add_part(json, "missed_inputs", record.missed);
  return json;
}

std::optional<JobRecord> job_record_of(const Json& json) try {
  if (!json.is_object() || json.value("version", 0) != JobRecord::version) {
    return std::nullopt;
  }
  JobRecord record;
  record.job_file = json.value("job_file", "");
  record.root_dir = json.value("root_dir", "");
  record.takeovers = json.value("takeovers", 0U);
  record.continued = json.value("continued", false);
  read_times(json, record);
  record.unlisted_transfers = json.value("unlisted_transfers", std::uint64_t{0});
  record.slowest_inputs = files_of(json.value("slowest_inputs", Json::array()));
  read_part(json, "counters", record.counters, counters_of);
  read_part(json, "space", record.space, space_of);
  read_part(json, "unopened_inputs", record.unopened, unopened_of);
  read_part(json, "missed_inputs", record.missed, missed_of);
  return record;
} catch (const std::bad_alloc&) {
  throw;
} catch (const std::exception&) {
  return std::nullopt;
}

}  // namespace efs::stage
