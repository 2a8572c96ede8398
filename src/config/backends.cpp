// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "config/validate.hpp"

namespace efs::config {
namespace {

constexpr std::uint64_t page = 4096;

// Returns nullopt if the type is bad; then the keys that depend on it are not checked.
std::optional<BackendType> read_type(const Section& section, ProblemList& problems) {
  if (section.bad.contains("type")) {
    return std::nullopt;
  }
  if (!section.find("type")) {
    return BackendType::dram;
  }
  const auto* word =
      find_word(section, "type", find_key(backend_keys(), "type")->range.words, problems);
  if (!word) {
    return std::nullopt;
  }
  const auto type = static_cast<BackendType>(word->value);
  if (type == BackendType::devdax) {
    problems.add(section.mark_of("type"),
                 "backend type " + in_quotes(section.find("type")->text) + " is not supported yet",
                 "use NVRAM-NVML with a DAX file system, or DRAM");
  }
  return type;
}

void read_daxfs(const Section& section, Backend& backend, ProblemList& problems) {
  if (backend.type == BackendType::dram) {
    for (const char* key : {"daxfs", "require-dax"}) {
      if (section.find(key)) {
        problems.add(section.mark_of(key),
                     in_quotes(key) + " has no meaning for a backend of type DRAM",
                     "remove it, or set type: \"NVRAM-NVML\"");
      }
    }
    return;
  }
  if (backend.type == BackendType::fsdax) {
    section.require("daxfs", problems);
  }
  backend.daxfs = read_path(section, "daxfs", problems);
}

Backend read_backend(const Section& section, ProblemList& problems) {
  Backend backend;
  read_keys(section, backend_keys(), backend, problems);
  if (const auto type = read_type(section, problems)) {
    backend.type = *type;
    read_daxfs(section, backend, problems);
  }
  if (const auto* capacity = section.find("capacity"); capacity && capacity->text != "all") {
    backend.capacity = read_size(section, "capacity", smallest_capacity, no_limit, problems);
  }
  if (backend.segment_size % page != 0) {
    problems.add(section.mark_of("segment-size"), "'segment-size' is not a multiple of 4 KiB",
                 "use a binary unit, for example \"128 MiB\"");
  }
  return backend;
}

// Checks rules that span several backends.
void check_together(const std::vector<Section>& sections, const JobConfig& config,
                    ProblemList& problems) {
  if (sections.size() > most_backends) {
    problems.add(sections[most_backends].mark,
                 "more than " + std::to_string(most_backends) + " backends",
                 "remove some; keys of one backend go into one pair of brackets");
  }
  std::map<std::string, int> directories;
  std::size_t first_dram = sections.size();
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const Backend& backend = config.backends[i];
    const auto [first, is_new] = directories.try_emplace(backend.daxfs, sections[i].mark.line);
    if (!is_new && !backend.daxfs.empty()) {
      problems.add(sections[i].mark_of("daxfs"),
                   "two backends have the directory " + in_quotes(backend.daxfs),
                   "the first is at line " + std::to_string(first->second) +
                       "; give each a directory of its own");
    }
    if (backend.type != BackendType::dram) {
      continue;
    }
    first_dram = std::min(first_dram, i);
    if (first_dram != i && (!backend.capacity || !config.backends[first_dram].capacity)) {
      problems.add(sections[i].mark,
                   "two backends in memory, and not both with a 'capacity': each would take its "
                   "share of the same memory",
                   "give each a capacity");
    }
  }
}

}  // namespace

std::uint64_t default_capacity(std::uint64_t memory, unsigned share) {
  const std::uint64_t part = memory / 100 * share + memory % 100 * share / 100;
  return std::min(memory, std::max(smallest_capacity, part));
}

std::optional<std::uint64_t> capacity_of(const JobConfig& config, const Backend& backend,
                                         std::uint64_t available) {
  if (backend.capacity || backend.type != BackendType::dram) {
    return backend.capacity;
  }
  const std::uint64_t memory = std::min(available, config.job_memory.value_or(available));
  return std::min(default_capacity(memory, config.memory_share),
                  backend.most_capacity.value_or(memory));
}

void read_backends(const std::vector<Section>& sections, JobConfig& config, ProblemList& problems) {
  std::map<std::string, int> first_lines;
  for (const auto& section : sections) {
    const auto backend = read_backend(section, problems);
    const auto [first, is_new] = first_lines.try_emplace(
        backend.id.substr(0, backend.id.find_last_not_of('/') + 1), section.mark.line);
    if (!is_new && !backend.id.empty()) {
      problems.add(section.mark_of("id"), "backend " + in_quotes(backend.id) + " is defined twice",
                   "the first is at line " + std::to_string(first->second));
    }
    config.backends.push_back(backend);
  }
  check_together(sections, config, problems);
  if (config.backends.empty()) {
    config.backends.push_back({.id = "dram"});
  }
}

}  // namespace efs::config
