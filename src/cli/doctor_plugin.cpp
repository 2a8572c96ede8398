// SPDX-License-Identifier: BSD-3-Clause
// Checks the words of the plugin's line in plugstack.conf by the rules of slurm-plugin/site.c. If
// the plugin rejects one, sbatch rejects every job with efs.
#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "cli/doctor.hpp"

namespace efs::cli {
namespace {

enum class Value : unsigned char { path, number, number_or_no, choice };

struct Key {
  std::string_view name;
  Value value;
};

constexpr std::array keys{Key{"efs", Value::path},          Key{"state", Value::path},
                          Key{"run", Value::path},          Key{"mount", Value::path},
                          Key{"shared", Value::path},       Key{"queue", Value::path},
                          Key{"view", Value::path},         Key{"scontrol", Value::path},
                          Key{"mail", Value::path},         Key{"licence", Value::path},
                          Key{"poll", Value::number},       Key{"stage-out", Value::number},
                          Key{"plan", Value::choice},       Key{"directives", Value::choice},
                          Key{"output", Value::choice},     Key{"keep", Value::number_or_no},
                          Key{"watch", Value::number_or_no}};
constexpr std::size_t longest_path = 511;  // EFS_PATH in the plugin

bool is_number(std::string_view text) {
  long number = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc{} && rest == text.data() + text.size() && number > 0 &&
         number <= 1'000'000'000;
}

// Returns the expected form of the value; "": the value is valid.
std::string expected(Value value, const std::string& text) {
  switch (value) {
    case Value::path:
      return text.size() <= longest_path ? ""
                                         : "at most " + std::to_string(longest_path) + " bytes";
    case Value::number: return is_number(text) ? "" : "a number above 0";
    case Value::number_or_no:
      return is_number(text) || text == "no" ? "" : "a number above 0, or no";
    case Value::choice: break;
  }
  return text == "yes" || text == "no" ? "" : "yes or no";
}

}  // namespace

Findings judge_words(const PluginLine& line) {
  Findings found;
  for (const auto& word : line.words) {
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto key = std::ranges::find(keys, std::string_view(name), &Key::name);
    const bool is_known = equals != std::string::npos && key != keys.end();
    const std::string needs = is_known ? expected(key->value, word.substr(equals + 1)) : "";
    if (is_known && needs.empty()) {
      continue;
    }
    const std::string why =
        is_known ? "the value of " + name + "= must be " + needs : "the plugin knows no such word";
    found.push_back({Level::problem, "plugstack.conf",
                     "\"" + word + "\": " + why + ": sbatch refuses every job with efs",
                     "correct the word, or take it out of the line; spank_efs(8) lists the words"});
  }
  return found;
}

}  // namespace efs::cli
