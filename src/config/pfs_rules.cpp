// The keys of global-settings about the use of the PFS.

#include <array>
#include <charconv>
#include <limits>

#include "config/validate.hpp"

namespace efs::config {
namespace {

// bytes per second: with a lower rate, large transfers would not end
constexpr std::uint64_t least_rate = 64u << 10;
constexpr int most_retries = 100;
constexpr int longest_deadline = 7 * 24 * 3600;  // seconds

/// Removes the optional "/s" of "500 MB/s".
Section without_per_second(const Section& settings, std::string_view key) {
  Section section = settings;
  const auto it = section.values.find(key);
  if (it == section.values.end()) {
    return section;
  }
  std::string& text = it->second.text;
  if (text.ends_with("/s")) {
    text.resize(text.find_last_not_of(' ', text.size() - 3) + 1);
  }
  return section;
}

/// The mode of files; that of directories is derived from it.
void read_results_mode(const Section& settings, JobConfig& config, ProblemList& problems) {
  const auto* value = settings.find("results-mode");
  if (value == nullptr) {
    return;
  }
  const std::string& text = value->text;
  unsigned mode = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  const bool is_octal = problem == std::errc() && end == text.data() + text.size();
  if (is_octal && (mode & ~0666U) == 0 && (mode & 0400U) != 0) {
    config.results_mode = mode;
  } else {
    problems.add(
        value->mark, "'results-mode' is " + in_quotes(text),
        "give the rights to read and write in octal, the owner's to read among them, as in "
        "0660; executable files and directories get the right to execute with that to read");
  }
}

}  // namespace

Vanished read_vanished(const Section& section, Vanished fallback, ProblemList& problems) {
  static constexpr std::array words{Word{"fail", static_cast<int>(Vanished::fail)},
                                    Word{"skip", static_cast<int>(Vanished::skip)}};
  return read_word(section, "vanished", words, fallback, problems);
}

void read_pfs_rules(const Section& settings, JobConfig& config, ProblemList& problems) {
  static constexpr std::array conflicts{Word{"fail", static_cast<int>(OnConflict::fail)},
                                        Word{"keep-both", static_cast<int>(OnConflict::keep_both)},
                                        Word{"overwrite", static_cast<int>(OnConflict::overwrite)}};
  static constexpr std::array checks{Word{"stream", static_cast<int>(Verify::stream)},
                                     Word{"read-back", static_cast<int>(Verify::read_back)}};
  static constexpr std::array deletions{Word{"ignore", static_cast<int>(Deletions::ignore)},
                                        Word{"propagate", static_cast<int>(Deletions::propagate)}};
  config.on_conflict = read_word(settings, "on-conflict", conflicts, config.on_conflict, problems);
  static constexpr std::array existing{Word{"replace", static_cast<int>(Existing::replace)},
                                       Word{"fail", static_cast<int>(Existing::fail)},
                                       Word{"keep-both", static_cast<int>(Existing::keep_both)}};
  config.existing = read_word(settings, "existing", existing, config.existing, problems);
  // The start checks that the group exists.
  if (const auto* group = settings.find("results-group")) {
    config.results_group = group->text;
  }
  read_results_mode(settings, config, problems);
  config.deletions = read_word(settings, "deletions", deletions, config.deletions, problems);
  config.vanished = read_vanished(settings, config.vanished, problems);
  config.verify = read_word(settings, "verify", checks, config.verify, problems);
  config.max_rate = read_size(without_per_second(settings, "max-rate"), "max-rate", least_rate,
                              no_limit, problems)
                        .value_or(0);
  config.max_ops =
      static_cast<std::uint64_t>(read_number(without_per_second(settings, "max-ops"), "max-ops", 1,
                                             std::numeric_limits<int>::max(), 0, problems));
  config.deadline =
      static_cast<unsigned>(read_number(settings, "deadline", 0, longest_deadline, 0, problems));
  config.retries = static_cast<unsigned>(read_number(settings, "retries", 0, most_retries,
                                                     static_cast<int>(config.retries), problems));
}

}  // namespace efs::config
