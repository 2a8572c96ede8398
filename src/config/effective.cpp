// SPDX-License-Identifier: BSD-3-Clause
// Limits of the site, and what `efs check --show` prints.

#include "base/text.hpp"
#include "config/keys.hpp"
#include "config/precedence.hpp"

namespace efs::config {
namespace {

// A number and the limit of the same key. A default, or a value of the site, is lowered; a value
// of the job is refused.
void apply_limit(const Site& site, const KeyOf<Site>& limit, const Section& settings,
                 JobConfig& config, ProblemList& problems) {
  const auto* key = find_key(settings_keys(), limit.name);
  const auto most = limit.field.get(site);
  if (key == nullptr || !most) {
    return;
  }
  const std::uint64_t value = key->field.get(config).value_or(0);
  if (value <= *most && (value != 0 || key->absent.empty())) {
    return;
  }
  const auto* asked = settings.find(key->name);
  if (asked == nullptr || asked->source == Source::site) {
    key->field.put(config, *most);
  } else {
    problems.add(asked->mark,
                 in_quotes(key->name) + " is " + in_quotes(asked->text) +
                     ", above the site's limit of " + shown(*key, *most),
                 "ask for less; the limit is set in " + site.limits.mark_of(key->name).place());
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

std::string where_of(const Value& value, const std::string& file) {
  if (value.source == Source::environment || value.source == Source::command_line) {
    return value.mark.origin;
  }
  return (value.mark.origin.empty() ? file : value.mark.origin) + ":" +
         std::to_string(value.mark.line);
}

EffectiveValue effective(const std::string& section, std::string_view key, const Value* value,
                         std::string text, const std::string& file) {
  EffectiveValue result{.section = section, .key = std::string(key), .value = std::move(text)};
  if (value == nullptr) {
    return result;
  }
  result.source = value->source;
  result.where = where_of(*value, file);
  return result;
}

// Has the site's limit lowered the value? `own`: the value of the job.
bool is_lowered(const EffectiveValue& value, const Value* own) {
  const auto* key = find_key(settings_keys(), value.key);
  return key != nullptr ? own == nullptr && value.value != shown(*key, JobConfig{})
                        : own == nullptr || own->text == "all";  // capacity
}

// Names the site as the source of a value that only the site explains. `section`: of the job.
void explain_by_site(const Site& site, const Section* section, EffectiveValue& value) {
  const auto* limit = site.limits.find(value.key);
  const auto* own = section != nullptr ? section->find(value.key) : nullptr;
  if (limit != nullptr && is_lowered(value, own)) {
    value.source = Source::site;
    value.where = limit->mark.place();
  }
  if (value.key == "huge" && section == nullptr && site.huge) {
    value.source = Source::site, value.where = site.huge->mark.place();
  }
}

}  // namespace

void apply_limits(const Site& site, const Document& document, JobConfig& config,
                  ProblemList& problems) {
  config.memory_share = site.memory_share.value_or(config.memory_share);
  if (site.huge && document.backends.empty()) {  // the built-in one
    config.backends.front().huge_pages = site.huge->text != "never";
  }
  for (const auto& limit : limit_keys()) {
    apply_limit(site, limit, document.settings, config, problems);
  }
  limit_capacity(site, document, config, problems);
}

std::vector<EffectiveValue> effective_values(const Document& document, const JobConfig& config,
                                             const Surroundings& surroundings) {
  std::vector<EffectiveValue> values;
  const auto add = [&](EffectiveValue value, const Section* section) {
    if (surroundings.site) {
      explain_by_site(*surroundings.site, section, value);
    }
    values.push_back(std::move(value));
  };
  const auto& settings = document.settings;
  for (const auto& key : settings_keys()) {
    // the only one that no field holds: new-files
    auto text = shown(key, config).value_or(config.backends.at(config.new_files).id);
    add(effective("global-settings", key.name, settings.find(key.name), std::move(text),
                  config.source),
        &settings);
  }
  for (const auto& key : document.tiers ? tier_keys() : std::span<const KeyOf<Tiers>>()) {
    const auto* value = document.tiers->find(key.name);
    // the only one that no field holds: order
    auto text = shown(key, config.tiers).value_or(value != nullptr ? value->text : "");
    add(effective("tiers", key.name, value, std::move(text), config.source), nullptr);
  }
  for (std::size_t i = 0; i < config.backends.size(); ++i) {
    const Section* section = i < document.backends.size() ? &document.backends[i] : nullptr;
    const std::string name = "backends[" + std::to_string(i + 1) + "]";
    for (const auto& key : backend_keys()) {
      // the only one that no field holds: capacity
      auto text =
          shown(key, config.backends[i]).value_or(capacity_text(config, config.backends[i]));
      add(effective(name, key.name, section ? section->find(key.name) : nullptr, std::move(text),
                    config.source),
          section);
    }
  }
  return values;
}

}  // namespace efs::config
