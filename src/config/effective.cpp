// Limits of the site, and the output of `efs check --show`.
#include <algorithm>

#include "base/text.hpp"
#include "config/precedence.hpp"

namespace efs::config {
namespace {

// Applies the limit of a key to a number. Lowers a default value; rejects a value that the user
// gave.
template <typename Number>
void apply_limit(const Section& limits, std::string_view key, const std::optional<Number>& most,
                 const Section& section, Number& value, const std::string& most_text,
                 ProblemList& problems) {
  if (!most || value <= *most) {
    return;
  }
  const auto* asked = section.find(key);
  if (asked == nullptr || asked->source == Source::site) {
    value = *most;
  } else {
    problems.add(asked->mark,
                 in_quotes(key) + " is " + in_quotes(asked->text) + ", above the site's limit of " +
                     most_text,
                 "ask for less; the limit is set in " + limits.mark_of(key).place());
  }
}

void limit_capacity(const Site& site, const Document& document, JobConfig& config,
                    ProblemList& problems) {
  if (!site.most_capacity) {
    return;
  }
  const std::string most = format_bytes(*site.most_capacity),
                    where = site.limits.mark_of("capacity").place();
  // the limit applies to the job, for all its backends together
  std::uint64_t left = *site.most_capacity;
  for (std::size_t i = 0; i < config.backends.size(); ++i) {
    auto& capacity = config.backends[i].capacity;
    const bool named = i < document.backends.size();
    if (!capacity && config.backends.size() == 1 && config.backends[i].type == BackendType::dram) {
      config.backends[i].most_capacity = left;
      continue;
    }
    if (!capacity && config.backends.size() == 1) {
      capacity = left;
    }
    if (!capacity) {
      problems.add(named ? document.backends[i].mark : Mark{},
                   "this backend needs a 'capacity': the site limits that of a job to " + most,
                   "the limit is set in " + where);
    } else if (*capacity > left) {
      problems.add(named ? document.backends[i].mark_of("capacity") : Mark{},
                   "'capacity' is above the site's limit of " + most + " for a job",
                   "ask for less; the limit is set in " + where);
    } else {
      left -= *capacity;
    }
  }
}

std::string text_of(bool value) {
  return value ? "true" : "false";
}

std::string octal_mode(unsigned mode) {
  std::string text = "0";
  for (int shift = 6; shift >= 0; shift -= 3) {
    text += static_cast<char>('0' + ((mode >> shift) & 7U));
  }
  return text;
}

// Returns the value as efs uses it; nullopt for keys not handled here, whose text is shown.
std::optional<std::string> setting_text(const JobConfig& c, std::string_view key) {
  if (key == "name") {
    return c.name;
  }
  if (key == "root-dir") {
    return c.root_dir;
  }
  if (key == "mount-dir") {
    return c.mount_dir;
  }
  if (key == "results-dir") {
    return c.results_dir.empty() ? "none" : c.results_dir;
  }
  if (key == "in-place") {
    return text_of(c.in_place);
  }
  if (key == "log-file") {
    return c.log_file.empty() ? "efsd.log in the instance's directory" : c.log_file;
  }
  if (key == "log-level") {
    return c.log_level;
  }
  if (key == "status-file") {
    return c.status_file.empty() ? "status.json in the instance's directory" : c.status_file;
  }
  if (key == "trace") {
    return c.trace.empty() ? "none" : c.trace;
  }
  if (key == "access-log") {
    return c.access_log.empty() ? "none" : c.access_log;
  }
  if (key == "access-log-size") {
    return format_bytes(c.access_log_size);
  }
  if (key == "interleaving") {
    return c.interleaving.empty() ? "none" : c.interleaving;
  }
  if (key == "cache") {
    return c.cache.empty() ? "none" : c.cache;
  }
  if (key == "cache-capacity") {
    return c.cache_capacity ? format_bytes(*c.cache_capacity) : "half of its file system";
  }
  if (key == "workers") {
    return c.workers == 0 ? "automatic" : std::to_string(c.workers);
  }
  if (key == "transfer-size") {
    return format_bytes(c.transfer_size);
  }
  if (key == "on-conflict") {
    return c.on_conflict == OnConflict::fail        ? "fail"
           : c.on_conflict == OnConflict::keep_both ? "keep-both"
                                                    : "overwrite";
  }
  if (key == "results-group") {
    return c.results_group.empty() ? "none" : c.results_group;
  }
  if (key == "results-mode") {
    return c.results_mode ? octal_mode(*c.results_mode) : "none";
  }
  if (key == "existing") {
    return c.existing == Existing::replace ? "replace"
           : c.existing == Existing::fail  ? "fail"
                                           : "keep-both";
  }
  if (key == "deletions") {
    return c.deletions == Deletions::ignore ? "ignore" : "propagate";
  }
  if (key == "verify") {
    return c.verify == Verify::stream ? "stream" : "read-back";
  }
  if (key == "max-rate") {
    return c.max_rate == 0 ? "none" : format_bytes(c.max_rate) + "/s";
  }
  if (key == "max-ops") {
    return c.max_ops == 0 ? "none" : std::to_string(c.max_ops) + "/s";
  }
  if (key == "deadline") {
    return c.deadline == 0 ? "none" : std::to_string(c.deadline) + " s";
  }
  if (key == "new-files") {
    return c.backends.empty() ? "" : c.backends.at(c.new_files).id;
  }
  if (key == "on-full") {
    return c.on_full == OnFull::spill ? "spill" : "error";
  }
  if (key == "vanished") {
    return c.vanished == Vanished::fail ? "fail" : "skip";
  }
  if (key == "retries") {
    return std::to_string(c.retries);
  }
  return std::nullopt;
}

std::string capacity_text(const JobConfig& config, const Backend& b) {
  if (b.capacity) {
    return format_bytes(*b.capacity);
  }
  if (b.type != BackendType::dram) {
    return "all";
  }
  return std::to_string(config.memory_share) + "% of the job's memory" +
         (b.most_capacity ? ", at most " + format_bytes(*b.most_capacity) : "");
}

std::optional<std::string> backend_text(const JobConfig& config, const Backend& b,
                                        std::string_view key) {
  if (key == "id") {
    return b.id;
  }
  if (key == "type") {
    return b.type == BackendType::dram    ? "DRAM"
           : b.type == BackendType::fsdax ? "NVRAM-NVML"
                                          : "NVRAM-DEVDAX";
  }
  if (key == "capacity") {
    return capacity_text(config, b);
  }
  if (key == "daxfs") {
    return b.daxfs.empty() ? "none" : b.daxfs;
  }
  if (key == "segment-size") {
    return format_bytes(b.segment_size);
  }
  if (key == "enforce") {
    return b.enforce == Enforce::strict ? "strict" : "advisory";
  }
  if (key == "huge") {
    return b.huge_pages ? "within_size" : "never";
  }
  return std::nullopt;
}

std::string where_of(const Value& value, const std::string& file) {
  if (value.source == Source::environment || value.source == Source::command_line) {
    return value.mark.origin;
  }
  return (value.mark.origin.empty() ? file : value.mark.origin) + ":" +
         std::to_string(value.mark.line);
}

EffectiveValue effective(const std::string& section, std::string_view key, const Value* value,
                         std::optional<std::string> text, const std::string& file) {
  EffectiveValue result{.section = section, .key = std::string(key)};
  result.value = text ? std::move(*text) : value != nullptr ? value->text : "default";
  if (value == nullptr) {
    return result;
  }
  result.source = value->source;
  result.where = where_of(*value, file);
  return result;
}

}  // namespace

void apply_limits(const Site& site, const Document& document, JobConfig& config,
                  ProblemList& problems) {
  const auto& settings = document.settings;
  config.memory_share = site.memory_share.value_or(config.memory_share);
  if (site.huge && document.backends.empty()) {  // the built-in one
    config.backends.front().huge_pages = site.huge->text != "never";
  }
  // 0: as many as are useful
  if (site.most_workers && config.workers == 0) {
    config.workers = *site.most_workers;
  }
  apply_limit(site.limits, "workers", site.most_workers, settings, config.workers,
              std::to_string(site.most_workers.value_or(0)), problems);
  apply_limit(site.limits, "transfer-size", site.most_transfer_size, settings, config.transfer_size,
              format_bytes(site.most_transfer_size.value_or(0)), problems);
  limit_capacity(site, document, config, problems);
}

std::vector<EffectiveValue> effective_values(const Document& document, const JobConfig& config,
                                             const Surroundings& surroundings) {
  std::vector<EffectiveValue> values;
  // Adds a value; if only a limit of the site explains it, shows the limit as its source.
  const auto limited = [&](EffectiveValue value, const Section* section) {
    const auto* limit = surroundings.site ? surroundings.site->limits.find(value.key) : nullptr;
    const auto* own = section != nullptr ? section->find(value.key) : nullptr;
    const bool lowered =
        value.key == "capacity"
            ? own == nullptr || own->text == "all"
            : own == nullptr && value.value != setting_text(JobConfig{}, value.key);
    if (limit != nullptr && lowered) {
      value.source = Source::site, value.where = limit->mark.place();
    }
    if (value.key == "huge" && section == nullptr && surroundings.site && surroundings.site->huge) {
      value.source = Source::site, value.where = surroundings.site->huge->mark.place();
    }
    values.push_back(std::move(value));
  };
  for (const auto key : settings_schema()) {
    limited(effective("global-settings", key, document.settings.find(key),
                      setting_text(config, key), config.source),
            &document.settings);
  }
  for (std::size_t i = 0; i < config.backends.size(); ++i) {
    const Section* section = i < document.backends.size() ? &document.backends[i] : nullptr;
    const std::string name = "backends[" + std::to_string(i + 1) + "]";
    for (const auto key : backend_schema()) {
      limited(effective(name, key, section ? section->find(key) : nullptr,
                        backend_text(config, config.backends[i], key), config.source),
              section);
    }
  }
  return values;
}

}  // namespace efs::config
