// SPDX-License-Identifier: BSD-3-Clause
#include "config/precedence.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "config/expand.hpp"
#include "config/paths.hpp"

namespace efs::config {
namespace {

const Value* fixed_by(const Site& site, std::string_view key) {
  const auto found = std::ranges::find(site.fixed, key, &Value::text);
  return found == site.fixed.end() ? nullptr : &*found;
}

void refuse_fixed(const Value& value, std::string_view key, const Value& site,
                  ProblemList& problems) {
  problems.add(value.mark,
               in_quotes(key) + " is " + in_quotes(value.text) + ", but the site has fixed it to " +
                   in_quotes(site.text),
               "remove it; see " + site.mark.place());
}

// Normalises a value, so that "/a/" equals "/a", and "1 MiB" equals "1024 KiB". Ignores problems:
// other code reports them.
std::string meaning_of(const Value& value, std::string_view key, const Surroundings& surroundings) {
  ProblemList ignored;
  if (is_expanded(key)) {
    const auto text = value.source == Source::command_line
                          ? value.text
                          : expand(value, key, surroundings, ignored).text;
    return key == "name" || text.empty()
               ? text
               : absolute_path(surroundings.in_directory(text)).value_or(text);
  }
  const auto size = parse_size(value.text);
  return size ? std::to_string(*size) : value.text;
}

bool same_meaning(const Value& a, const Value& b, std::string_view key,
                  const Surroundings& surroundings) {
  return a.text == b.text || meaning_of(a, key, surroundings) == meaning_of(b, key, surroundings);
}

// Collects the values of a section; the last value put for a key wins.
class Layers {
 public:
  Layers(Section job, const Surroundings& surroundings, ProblemList& problems)
      : result_(std::move(job)),
        surroundings_(surroundings),
        site_(surroundings.site.get()),
        problems_(problems) {}

  void put(std::string_view key, std::string text, Source source, std::string origin) {
    Value value{.text = std::move(text), .mark = {0, 0, std::move(origin)}, .source = source};
    if (is_changed_fixed(key, value)) {
      return;
    }
    result_.bad.erase(std::string(key));
    result_.values[std::string(key)] = std::move(value);
  }

  // Adds the site's values; existing values win.
  void put_site() {
    if (site_ == nullptr) {
      return;
    }
    for (const auto& [key, value] : site_->settings.values) {
      if (const auto own = result_.values.find(key);
          own != result_.values.end() && !is_changed_fixed(key, own->second)) {
        continue;
      }
      if (!result_.bad.contains(key)) {
        result_.values[key] = value;
      }
    }
  }

  Section take() { return std::move(result_); }

 private:
  bool is_changed_fixed(std::string_view key, const Value& value) {
    if (site_ == nullptr || fixed_by(*site_, key) == nullptr) {
      return false;
    }
    const Value& fixed = *site_->settings.find(key);
    if (same_meaning(value, fixed, key, surroundings_)) {
      return false;
    }
    refuse_fixed(value, key, fixed, problems_);
    return true;
  }

  Section result_;
  const Surroundings& surroundings_;
  const Site* site_;
  ProblemList& problems_;
};

// A shell does not expand ~ after =, and expansion on the command line is the shell's task. The
// user hardly means a directory of that name.
bool is_home_left_alone(std::string_view key, std::string_view text) {
  return is_expanded(key) && (text == "~" || text.starts_with("~/"));
}

void put_command_line(const Overrides& overrides, Layers& layers, ProblemList& problems) {
  const auto put = [&](std::string_view key, const std::string& value, const std::string& origin) {
    if (is_home_left_alone(key, value)) {
      problems.add({0, 0, origin}, "'~' is not replaced on the command line",
                   "write $HOME, or ./~ for a directory of that name");
    } else {
      layers.put(key, value, Source::command_line, origin);
    }
  };
  for (const auto& [key, value] : overrides.settings) {
    const auto known = settings_schema();
    if (std::ranges::find(known, key) == known.end()) {
      const auto near = nearest(key, known);
      problems.add({0, 0, "--set " + key}, "unknown key " + in_quotes(key),
                   near.empty() ? "see global-settings in efs-job(5)"
                                : "did you mean " + in_quotes(near) + "?");
    } else if (value.empty()) {
      problems.add({0, 0, "--set " + key}, in_quotes(key) + " has no value",
                   "write --set " + key + "=VALUE");
    } else {
      put(key, value, "--set " + key);
    }
  }
  using Named = std::pair<std::string_view, const std::optional<std::string>&>;
  const std::array named{
      Named{"name", overrides.name},           Named{"root-dir", overrides.root_dir},
      Named{"mount-dir", overrides.mount_dir}, Named{"results-dir", overrides.results_dir},
      Named{"log-file", overrides.log_file},   Named{"trace", overrides.trace}};
  for (const auto& [key, value] : named) {
    if (value && !value->empty()) {
      put(key, *value, "--" + std::string(key));
    }
  }
}

// Puts the fixed values of the site into the section of a backend. Refuses other values.
void put_fixed(const Site& site, Section& section, const Surroundings& surroundings,
               ProblemList& problems) {
  for (const auto key : backend_schema()) {
    if (fixed_by(site, key) == nullptr) {
      continue;
    }
    const Value& value = *site.backends.front().find(key);
    if (const auto* own = section.find(key);
        own != nullptr && !same_meaning(*own, value, key, surroundings)) {
      refuse_fixed(*own, key, value, problems);
    }
    section.values[std::string(key)] = value;
  }
}

}  // namespace

std::string_view name_of(Source source) {
  switch (source) {
    case Source::built_in: return "built in";
    case Source::site: return "site file";
    case Source::job_file: return "job file";
    case Source::environment: return "environment";
    case Source::command_line: return "command line";
  }
  return "?";
}

std::string variable_of(std::string_view key) {
  std::string name = "EFS_";
  for (const char c : key) {
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  return name;
}

Section resolve_settings(Section job, const Overrides& overrides, const Surroundings& surroundings,
                         ProblemList& problems) {
  Layers layers(std::move(job), surroundings, problems);
  layers.put_site();
  for (const auto key : settings_schema()) {
    const auto name = variable_of(key);
    if (auto text = surroundings.find(name); text && !text->empty()) {
      layers.put(key, std::move(*text), Source::environment, name);
    }
  }
  put_command_line(overrides, layers, problems);
  Section result = layers.take();
  expand(result, surroundings, problems);
  return result;
}

std::vector<Section> resolve_backends(std::vector<Section> job, const Surroundings& surroundings,
                                      ProblemList& problems) {
  const Site* site = surroundings.site.get();
  if (site != nullptr && job.empty()) {
    job = site->backends;
  } else if (site != nullptr && fixed_by(*site, "backends") != nullptr) {
    problems.add(job.front().mark, "the site has fixed the backends",
                 "remove the section; see " + fixed_by(*site, "backends")->mark.place());
  }
  for (auto& section : job) {
    if (site != nullptr && site->huge && section.find("huge") == nullptr) {
      section.values["huge"] = *site->huge;
    }
    if (site != nullptr) {
      put_fixed(*site, section, surroundings, problems);
    }
    expand(section, surroundings, problems);
  }
  return job;
}

}  // namespace efs::config
