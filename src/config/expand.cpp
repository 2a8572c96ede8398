// SPDX-License-Identifier: BSD-3-Clause
#include "config/expand.hpp"

#include <algorithm>
#include <array>

#include "config/keys.hpp"

namespace efs::config {
namespace {

struct Directive {
  char letter;
  const char* variable;
};

constexpr std::array directives{
    Directive{'j', "SLURM_JOB_ID"},        Directive{'A', "SLURM_ARRAY_JOB_ID"},
    Directive{'a', "SLURM_ARRAY_TASK_ID"}, Directive{'u', "SLURM_JOB_USER"},
    Directive{'x', "SLURM_JOB_NAME"},      Directive{'N', "SLURMD_NODENAME"},
    Directive{'t', "SLURM_NODEID"}};
constexpr const char* known_directives =
    "known are %j %A %a %u %x %N %t; a percent sign is written %%";

bool begins_name(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

bool is_in_name(char c) {
  return begins_name(c) || (c >= '0' && c <= '9');
}

bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

// Expands one value. Each step consumes a pattern from the front of rest_ and appends to the
// result. A step returns false after it has reported a problem.
class Expansion {
 public:
  Expansion(const Value& value, std::string_view key, const Surroundings& surroundings,
            ProblemList& problems)
      : value_(value),
        key_(key),
        surroundings_(surroundings),
        problems_(problems),
        rest_(value.text),
        result_(value) {}

  Value run() {
    result_.text.clear();
    if (!take_all()) {
      result_.text.clear();
    }
    return std::move(result_);
  }

 private:
  bool take_all() {
    if (rest_.starts_with('~') && !take_home()) {
      return false;
    }
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c != '%' && c != '$') {
        put(std::string_view(&c, 1));
      } else if (!(c == '%' ? take_directive() : take_variable())) {
        return false;
      }
    }
    return true;
  }

  bool put(std::string_view text) {
    result_.text += text;
    if (surroundings_.before_job) {
      result_.for_nodes += escape(text);
    }
    return true;
  }

  // Leaves a pattern to the job's nodes; `text` is its value as far as it is known here.
  bool leave(const std::string& name, const std::string& text) {
    result_.text += text;
    result_.for_nodes += name;
    result_.open = result_.open || text == name;
    return true;
  }

  bool report(const std::string& text, const std::string& suggestion) {
    problems_.add(value_.mark, text + " in " + in_quotes(key_), suggestion);
    return false;
  }

  bool take_home() {
    if (rest_ != "~" && !rest_.starts_with("~/")) {
      return report(
          "'~' with a name",
          "only ~/ is expanded; write the path out, or a name that begins with ~ as ./~...");
    }
    if (surroundings_.home.empty()) {
      return report("'~' has no value", "the user has no home directory; write the path out");
    }
    rest_.remove_prefix(1);
    return put(surroundings_.home);
  }

  // The names of the user and of the node are known without Slurm.
  std::string value_of(const Directive& directive) const {
    const std::string text = surroundings_.find(directive.variable).value_or("");
    return !text.empty()             ? text
           : directive.letter == 'u' ? surroundings_.user
           : directive.letter == 'N' ? surroundings_.node
                                     : "";
  }

  bool take_directive() {
    const char letter = rest_.empty() ? '\0' : rest_.front();
    if (!rest_.empty()) {
      rest_.remove_prefix(1);
    }
    if (letter == '%') {
      return put("%");
    }
    const auto* found = std::ranges::find(directives, letter, &Directive::letter);
    if (found == directives.end()) {
      return report(letter == '\0' ? "a single % at the end"
                                   : "unknown " + in_quotes(std::string("%") + letter),
                    known_directives);
    }
    const std::string name = std::string("%") + letter;
    // At submission, the environment may describe another job: the one that submits this job.
    if (surroundings_.before_job) {
      return leave(name, letter == 'u' && !surroundings_.user.empty() ? surroundings_.user : name);
    }
    return put_value(*found, name, value_of(*found));
  }

  // Puts the value of a directive if it can be part of a name.
  bool put_value(const Directive& directive, const std::string& name, const std::string& text) {
    if (text.empty()) {
      const bool of_array = directive.letter == 'A' || directive.letter == 'a';
      return report(name + " has no value: " + directive.variable + " is not set",
                    "set it, or take " + name + " out; Slurm sets it in jobs" +
                        (of_array ? " of an array" : ""));
    }
    if (text.contains('/') || text == "." || text == ".." || has_control(text)) {
      return report(name + " is " + in_quotes(text) + " (" + directive.variable +
                        "), which cannot be part of a name",
                    "choose another one without '/'");
    }
    return put(text);
  }

  // Takes NAME or {NAME}; "" if there is none.
  std::string take_name() {
    const bool braces = rest_.starts_with('{');
    rest_.remove_prefix(braces ? 1 : 0);
    const std::string name(rest_.begin(), std::ranges::find_if_not(rest_, is_in_name));
    rest_.remove_prefix(name.size());
    if (name.empty() || !begins_name(name.front()) || (braces && !rest_.starts_with('}'))) {
      return {};
    }
    rest_.remove_prefix(braces ? 1 : 0);
    return name;
  }

  bool take_variable() {
    if (rest_.starts_with('$')) {
      return rest_.remove_prefix(1), put("$");
    }
    const std::string name = take_name();
    if (name.empty()) {
      return report("a '$' without a variable's name",
                    "write $NAME or ${NAME}; a dollar sign is written $$");
    }
    const auto text = surroundings_.find(name);
    // An empty value would change the path: "$SCRATCH/out" must not become "/out".
    if (!text || text->empty()) {
      return report("the environment variable " + name + " is " + (text ? "empty" : "not set"),
                    "set it, or write the value out; a dollar sign is written $$");
    }
    if (has_control(*text)) {
      return report("the environment variable " + name + " holds a control character",
                    "no path of a job file can");
    }
    return put(*text);
  }

  const Value& value_;
  const std::string_view key_;
  const Surroundings& surroundings_;
  ProblemList& problems_;
  std::string_view rest_;
  Value result_;
};

}  // namespace

bool is_expanded(std::string_view key) {
  const auto type = type_of(key);
  return type == Type::name || type == Type::place || is_path_of_its_own(key);
}

bool is_path_of_its_own(std::string_view key) {
  const auto type = type_of(key);
  return type == Type::path || type == Type::directory;
}

std::string escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    escaped.append(c == '%' || c == '$' ? 2 : 1, c);
  }
  return escaped;
}

Value expand(const Value& value, std::string_view key, const Surroundings& surroundings,
             ProblemList& problems) {
  return Expansion(value, key, surroundings, problems).run();
}

void expand(Section& section, const Surroundings& surroundings, ProblemList& problems) {
  for (auto at = section.values.begin(); at != section.values.end();) {
    if (is_expanded(at->first) && at->second.source != Source::command_line) {
      at->second = expand(at->second, at->first, surroundings, problems);
      if (at->second.text.empty()) {
        section.bad.insert(at->first);
        at = section.values.erase(at);
        continue;
      }
    }
    if (is_path_of_its_own(at->first)) {
      at->second.text = surroundings.in_directory(at->second.text);
    }
    ++at;
  }
}

}  // namespace efs::config
