// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sections of a job file -> the values of a JobConfig. Each function reports its problems and
// continues with a default, so that one run finds all problems. The result is valid only if there
// is no problem.

#include <optional>
#include <span>
#include <string_view>

#include "config/document.hpp"
#include "config/job_config.hpp"
#include "config/keys.hpp"

namespace efs::config {

/// All of it, and the rules that span sections. `file` gives the default name.
JobConfig validate(Document document, const std::string& file, const Overrides& overrides,
                   const Surroundings& surroundings, ProblemList& problems);

// The steps of validate(), in this order. Each step reads the results of earlier steps in `config`.
void read_settings(const Section& settings, const std::string& file, JobConfig& config,
                   ProblemList& problems);
void read_backends(const std::vector<Section>& sections, JobConfig& config, ProblemList& problems);
void read_tiers(const Section& section, JobConfig& config, ProblemList& problems);
void read_placement(const Section& settings, JobConfig& config, ProblemList& problems);
void read_resources(const std::vector<Section>& sections, JobConfig& config, ProblemList& problems);
void read_outputs(const std::vector<Section>& sections, JobConfig& config, ProblemList& problems);

// Readers for values of several kinds of sections.

/// Reads a directory or file outside the mount, made absolute; "" if it is absent or bad
/// (reported).
std::string read_path(const Section& section, std::string_view key, ProblemList& problems);
/// Reads a size from `least` to `most`; nullopt if it is absent or bad (reported).
std::optional<std::uint64_t> read_size(const Section& section, std::string_view key,
                                       std::uint64_t least, std::uint64_t most,
                                       ProblemList& problems);
/// A whole number from `least` to `most`, perhaps below 0; nullopt likewise.
std::optional<std::uint64_t> read_number(const Section& section, std::string_view key, int least,
                                         int most, ProblemList& problems);

/// Returns the entry of `words` that `key` names (case does not matter); null if the value is
/// absent or bad (reported).
const Word* find_word(const Section& section, std::string_view key, std::span<const Word> words,
                      ProblemList& problems);

/// The id, as its backend has it, of the backend that `key` names; `fallback` where it names none,
/// "" where it is bad (reported).
std::string read_backend_id(const Section& section, std::string_view key,
                            const std::string& fallback, const JobConfig& config,
                            ProblemList& problems);

/// Reports a path with a NUL, which no part of efs accepts.
bool is_usable_path(const Value& value, std::string_view key, ProblemList& problems);

}  // namespace efs::config
