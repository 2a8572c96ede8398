// SPDX-License-Identifier: BSD-3-Clause
#include "config/keys.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.hpp"
#include "config/validate.hpp"

namespace efs::config {
namespace {

constexpr std::uint64_t KiB = 1u << 10, MiB = 1u << 20, GiB = 1u << 30;
constexpr auto largest_number = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
constexpr std::uint64_t week = 7 * 24 * 3600;  // seconds

template <typename Enum>
constexpr Word word(std::string_view name, Enum value) {
  return {name, static_cast<int>(value)};
}

constexpr std::array yes_or_no{Word{"true", 1}, Word{"false", 0}, Word{"yes", 1}, Word{"no", 0}};
constexpr std::array in_place_words{Word{"true", 1}, Word{"false", 0}, Word{"yes", 1},
                                    Word{"no", 0},   Word{"on", 1},    Word{"off", 0}};
constexpr std::array on_or_off{Word{"on", 1}, Word{"off", 0}};
constexpr std::array levels_words{Word{"error", 0}, Word{"warn", 1}, Word{"info", 2},
                                  Word{"debug", 3}};
constexpr std::array conflicts_words{word("fail", OnConflict::fail),
                                     word("keep-both", OnConflict::keep_both),
                                     word("overwrite", OnConflict::overwrite)};
constexpr std::array existing_words{word("replace", Existing::replace),
                                    word("fail", Existing::fail),
                                    word("keep-both", Existing::keep_both)};
constexpr std::array checks_words{word("stream", Verify::stream),
                                  word("read-back", Verify::read_back)};
constexpr std::array deletions_words{word("ignore", Deletions::ignore),
                                     word("propagate", Deletions::propagate)};
constexpr std::array vanished_words{word("fail", Vanished::fail), word("skip", Vanished::skip)};
constexpr std::array on_full_words{word("error", OnFull::error), word("spill", OnFull::spill)};
constexpr std::array types_words{word("DRAM", BackendType::dram),
                                 word("NVRAM-NVML", BackendType::fsdax),
                                 word("NVRAM-DEVDAX", BackendType::devdax),
                                 // so printed in the ancestor's paper
                                 word("NVRAM-DEVDAIX", BackendType::devdax)};
constexpr std::array bounds_words{word("advisory", Enforce::advisory),
                                  word("strict", Enforce::strict)};
constexpr std::array huge_words{Word{"never", 0}, Word{"within_size", 1}};
constexpr std::array classes_words{word("persistent", FileClass::persistent),
                                   word("temporary", FileClass::temporary)};
constexpr std::array stage_words{word("now", StageWhen::now),
                                 word("on-access", StageWhen::on_access),
                                 word("background", StageWhen::background)};
constexpr std::array evict_words{word("never", Evict::never), word("when-full", Evict::when_full)};
constexpr std::array promote_words{word("never", Promote::never),
                                   word("on-open", Promote::on_open)};
constexpr std::array changed_words{word("fail", Changed::fail), word("accept", Changed::accept)};
constexpr std::array distributions_words{word("replicate", Distribute::replicate),
                                         word("partition", Distribute::partition)};

constexpr ValueRange a_text{Type::text}, a_name{Type::name}, a_path{Type::path},
    a_directory{Type::directory}, a_place{Type::place}, a_mode{Type::mode}, a_table{Type::table};

constexpr ValueRange a_size(std::uint64_t least, std::uint64_t most = no_limit,
                            std::string_view suffix = {}) {
  return {Type::size, least, most, suffix};
}

constexpr ValueRange a_number(std::uint64_t least, std::uint64_t most,
                              std::string_view suffix = {}) {
  return {Type::number, least, most, suffix};
}

constexpr ValueRange one_of(std::span<const Word> words) {
  return {.type = Type::choice, .words = words};
}

template <typename T>
struct IsOptional : std::false_type {
  using Value = T;
};

template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {
  using Value = T;
};

template <typename Owner, typename T>
Owner owner_of(T Owner::*);

template <auto member>
constexpr auto in() {
  using Owner = decltype(owner_of(member));
  using T = std::remove_cvref_t<decltype(std::declval<Owner>().*member)>;
  if constexpr (std::is_same_v<T, std::string>) {
    return Field<Owner>{.text = member};
  } else {
    return Field<Owner>{.put =
                            [](Owner& owner, std::uint64_t value) {
                              owner.*member = static_cast<IsOptional<T>::Value>(value);
                            },
                        .get = [](const Owner& owner) -> std::optional<std::uint64_t> {
                          if constexpr (IsOptional<T>::value) {
                            return owner.*member;
                          } else {
                            return static_cast<std::uint64_t>(owner.*member);
                          }
                        }};
  }
}

// The table. Order: of `efs check --show`.
using J = JobConfig;
constexpr std::array<KeyOf<J>, 34> settings_table{{
    {{"name", a_name, "", "names the instance (default: the job file's name)",
      read_elsewhere | of_one_job},
     in<&J::name>()},
    {{"root-dir", a_directory, "", "directory of the PFS that holds the inputs", mandatory},
     in<&J::root_dir>()},
    {{"mount-dir", a_directory, "", "where the job sees its file system", mandatory},
     in<&J::mount_dir>()},
    {{"results-dir", a_directory, "none", "where persistent files go when the job ends"},
     in<&J::results_dir>()},
    {{"in-place", one_of(in_place_words), "", "results go to root-dir and may overwrite inputs",
      of_one_job},
     in<&J::in_place>()},
    {{"log-file", a_path, "efsd.log in the instance's directory", "the log of the daemon"},
     in<&J::log_file>()},
    {{"log-level", one_of(levels_words), "", "what is logged"}, in<&J::log_level>()},
    {{"status-file", a_path, "status.json in the instance's directory",
      "state of the daemon for schedulers"},
     in<&J::status_file>()},
    {{"trace", a_path, "none", "trace of every operation; all I/O goes through the daemon then"},
     in<&J::trace>()},
    {{"access-log", a_path, "none", "a line for every request that reaches the daemon"},
     in<&J::access_log>()},
    {{"access-log-size", a_size(64 * KiB), "", "bound of the access log and its predecessor"},
     in<&J::access_log_size>()},
    {{"workers", a_number(1, 256), "automatic", "the most threads that stage"}, in<&J::workers>()},
    {{"transfer-size", a_size(64 * KiB, 64 * MiB), "", "size of one request to the PFS"},
     in<&J::transfer_size>()},
    {{"on-conflict", one_of(conflicts_words), "", "an input that the job and the PFS both changed"},
     in<&J::on_conflict>()},
    {{"verify", one_of(checks_words), "", "what the checksum of a result proves"},
     in<&J::verify>()},
    // below 64 KiB/s no transfer of any size ends
    {{"max-rate", a_size(64 * KiB, no_limit, "/s"), "none", "bandwidth from and to the PFS"},
     in<&J::max_rate>()},
    {{"max-ops", a_number(1, largest_number, "/s"), "none", "calls to the PFS per second"},
     in<&J::max_ops>()},
    // one request may be 1 MiB, and waits at most a second for one before it
    {{"limit-read", a_size(MiB, no_limit, "/s"), "none", "reads of the job's programs"},
     in<&J::limit_read>()},
    {{"limit-write", a_size(MiB, no_limit, "/s"), "none", "writes of the job's programs"},
     in<&J::limit_write>()},
    {{"limit-ops", a_number(10, largest_number, "/s"), "none",
      "requests of the job's programs that reach the daemon"},
     in<&J::limit_ops>()},
    {{"retries", a_number(0, 100), "", "how often a call to the PFS is repeated"},
     in<&J::retries>()},
    {{"interleaving", a_path, "none", "directory on the PFS in which stagings take turns"},
     in<&J::interleaving>()},
    {{"deadline", {Type::seconds, 0, week}, "none", "seconds that a stop may take"},
     in<&J::deadline>()},
    {{"deletions", one_of(deletions_words), "", "inputs that the job has removed"},
     in<&J::deletions>()},
    {{"new-files", a_text, "",
      "id of the backend for files that the job makes (default: the first)", read_elsewhere}},
    {{"on-full", one_of(on_full_words), "", "a new file whose backend is full"}, in<&J::on_full>()},
    {{"cache", a_path, "none", "directory of the node for inputs that are reusable"},
     in<&J::cache>()},
    {{"cache-capacity", a_size(MiB), "half of its file system", "how much the cache may hold"},
     in<&J::cache_capacity>()},
    // the start finds out whether there is such a group
    {{"results-group", a_text, "none", "the group of every result, by name or number"},
     in<&J::results_group>()},
    {{"results-mode", a_mode, "none", "the permissions of every result, in octal"},
     in<&J::results_mode>()},
    {{"existing", one_of(existing_words), "", "a result whose name is taken in results-dir"},
     in<&J::existing>()},
    {{"vanished", one_of(vanished_words), "", "an input that a start listed and that is gone"},
     in<&J::vanished>()},
    {{"xattr", one_of(on_or_off), "", "extended attributes and ACLs on the mount"},
     in<&J::xattr>()},
    {{"report", one_of(on_or_off), "", "a page about the job beside its receipt"},
     in<&J::report>()},
}};

using B = Backend;
constexpr std::array<KeyOf<B>, 8> backends_table{{
    {{"id", a_text, "", "how resources, output rules and new-files name the backend", mandatory},
     in<&B::id>()},
    {{"type", one_of(types_words), "", "the kind of storage", read_elsewhere}, in<&B::type>()},
    {{"capacity", a_size(smallest_capacity), "", "how much the job may store (default: all)",
      read_elsewhere}},
    {{"daxfs", a_path, "none", "directory that holds the data of a backend of type NVRAM-NVML",
      read_elsewhere},
     in<&B::daxfs>()},
    {{"require-dax", one_of(yes_or_no), "", "refuse a daxfs that is not persistent memory"},
     in<&B::require_dax>()},
    // least: some dozens for each file, or most writes would map anew; most: those of all open
    // files fit in the address space
    {{"segment-size", a_size(64 * KiB, 4 * GiB), "",
      "largest piece of a file that the daemon maps at a time"},
     in<&B::segment_size>()},
    {{"enforce", one_of(bounds_words), "",
      "what happens at capacity where the kernel cannot hold it"},
     in<&B::enforce>()},
    {{"huge", one_of(huge_words), "", "huge pages of a backend in memory"}, in<&B::huge_pages>()},
}};

using T = Tiers;
constexpr std::array<KeyOf<T>, 5> tiers_table{{
    {{"order", a_text, "", "ids of the backends between which contents move, the fastest first",
      mandatory | read_elsewhere}},
    {{"high", a_number(2, 99, "%"), "", "contents go down once so much of a tier is in use"},
     in<&T::high>()},
    {{"low", a_number(1, 99, "%"), "", "until no more than so much is"}, in<&T::low>()},
    {{"promote", one_of(promote_words), "",
      "whether files that programs open go to the first tier"},
     in<&T::promote>()},
    {{"max-rate", a_size(64 * KiB, no_limit, "/s"), "none", "bandwidth of the moves between tiers"},
     in<&T::max_rate>()},
}};

using R = Resource;
constexpr std::array<KeyOf<R>, 14> resources_table{{
    {{"path", a_place, "", "file, directory or pattern below root-dir",
      mandatory | read_elsewhere}},
    {{"list", a_place, "", "text file that names inputs, in the place of path", read_elsewhere}},
    {{"as", a_place, "", "where it appears on the mount", read_elsewhere}},
    {{"backend", a_text, "", "id of the backend for its files (default: the first)",
      read_elsewhere}},
    {{"flags", one_of(classes_words), "",
      "whether its files go to results-dir when they have changed"},
     in<&R::file_class>()},
    {{"distribute", one_of(distributions_words), "", "which nodes of the job get its files"},
     in<&R::distribute>()},
    {{"from-job", one_of(yes_or_no), "", "an earlier job makes it"}, in<&R::from_job>()},
    {{"priority", a_number(static_cast<std::uint64_t>(-100), 100), "",
      "higher ones are staged in first"},
     in<&R::priority>()},
    {{"reusable", one_of(yes_or_no), "", "its files stay in the node's cache"}, in<&R::reusable>()},
    {{"vanished", one_of(vanished_words), "", "as in global-settings, for its files"},
     in<&R::vanished>()},
    {{"follow", one_of(yes_or_no), "", "symbolic links are staged in as what they lead to"},
     in<&R::follow>()},
    {{"stage", one_of(stage_words), "", "when the contents of its files are copied"},
     in<&R::stage>()},
    {{"evict", one_of(evict_words), "", "whether unused contents give their room to other files"},
     in<&R::evict>()},
    {{"changed", one_of(changed_words), "",
      "with stage: whether a version that has changed since may be fetched"},
     in<&R::changed>()},
}};

using O = OutputRule;
constexpr std::array<KeyOf<O>, 9> outputs_table{{
    {{"path", a_place, "", "file, directory or pattern below mount-dir",
      mandatory | read_elsewhere}},
    {{"as", a_place, "", "what it is called in results-dir", read_elsewhere}},
    {{"flags", one_of(classes_words), "", "whether it goes to results-dir"}, in<&O::file_class>()},
    {{"backend", a_text, "", "id of the backend for new files (default: that of new-files)",
      read_elsewhere}},
    {{"inputs", one_of(yes_or_no), "", "the rule holds for inputs, too"}, in<&O::holds_inputs>()},
    {{"drain", a_text, "", "results go home while the job runs: on-close, or a time, as in 10 min",
      read_elsewhere}},
    {{"keep", a_number(1, 1'000'000), "all", "so many of the newest versions stay in the buffer"},
     in<&O::keep>()},
    {{"evict", one_of(evict_words), "", "whether results that are home give their room to others"},
     in<&O::evict>()},
    {{"to-pfs", a_text, "", "which versions go home while the job runs, as in 1 in 10",
      read_elsewhere}},
}};

constexpr std::array<KeyOf<Site>, 7> site_table{{
    {{"runtime-dir", a_path, "/run/efs", "where root keeps the directories of its instances",
      read_elsewhere},
     in<&Site::runtime_dir>()},
    {{"memory-share", a_number(1, 100, "%"), "50%",
      "share of a job's memory for a DRAM backend without capacity"},
     in<&Site::memory_share>()},
    {{"huge", one_of(huge_words), "", "huge pages of backends in memory that do not say",
      read_elsewhere}},
    {{"global-settings", a_table, "", "defaults of the section of that name", read_elsewhere}},
    {{"backends", a_table, "", "backends of jobs that name none", read_elsewhere}},
    {{"limits", a_table, "", "upper bounds", read_elsewhere}},
    {{"fixed", a_table, "", "keys whose values jobs cannot change", read_elsewhere}},
}};

constexpr std::array<KeyOf<Site>, 3> limits_table{{
    {{"capacity", a_size(1), "", "how much one job may store"}, in<&Site::most_capacity>()},
    {{"workers", a_size(1, 256), "", "threads that stage"}, in<&Site::most_workers>()},
    {{"transfer-size", a_size(64 * KiB), "", "size of one request to the PFS"},
     in<&Site::most_transfer_size>()},
}};

template <typename Owner, std::size_t count>
constexpr auto names(const std::array<KeyOf<Owner>, count>& keys) {
  std::array<std::string_view, count> result;
  std::ranges::transform(keys, result.begin(), &KeyOf<Owner>::name);
  return result;
}

constexpr std::array<std::string_view, 5> top_level{"global-settings", "backends", "tiers",
                                                    "resources", "outputs"};
constexpr auto settings_names = names(settings_table);
constexpr auto backend_names = names(backends_table);
constexpr auto tier_names = names(tiers_table);
constexpr auto resource_names = names(resources_table);
constexpr auto output_names = names(outputs_table);
constexpr auto site_names = names(site_table);
constexpr auto limit_names = names(limits_table);
constexpr std::array section_table{
    SectionKeys{"the top level", top_level},  SectionKeys{"global-settings", settings_names},
    SectionKeys{"backends", backend_names},   SectionKeys{"tiers", tier_names},
    SectionKeys{"resources", resource_names}, SectionKeys{"outputs", output_names},
    SectionKeys{"site file", site_names},     SectionKeys{"site limits", limit_names},
};

// "500 MB/s" without its "/s", which may be left out.
Section without_suffix(const Section& section, const Key& key) {
  Section result = section;
  const auto it = result.values.find(key.name);
  if (!key.range.suffix.empty() && it != result.values.end() &&
      it->second.text.ends_with(key.range.suffix)) {
    std::string& text = it->second.text;
    text.resize(text.size() - key.range.suffix.size());
    text.resize(text.find_last_not_of(' ') + 1);
  }
  return result;
}

// Of files; the rights to search and to execute follow from it.
std::optional<std::uint64_t> read_mode(const Value& value, std::string_view key,
                                       ProblemList& problems) {
  const std::string& text = value.text;
  unsigned mode = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  const bool is_octal = problem == std::errc() && end == text.data() + text.size();
  if (is_octal && (mode & ~0666U) == 0 && (mode & 0400U) != 0) {
    return mode;
  }
  problems.add(value.mark, in_quotes(key) + " is " + in_quotes(text),
               "give the rights to read and write in octal, the owner's to read among them, as in "
               "0660; executable files and directories get the right to execute with that to read");
  return std::nullopt;
}

std::string octal_mode(std::uint64_t mode) {
  std::string text = "0";
  for (int shift = 6; shift >= 0; shift -= 3) {
    text += static_cast<char>('0' + ((mode >> shift) & 7U));
  }
  return text;
}

// "fail|skip"; "number".
std::string values_text(const ValueRange& range) {
  if (range.type == Type::choice) {
    std::string text;
    for (const auto& word : range.words) {
      if (std::ranges::find(range.words, word.value, &Word::value)->name == word.name) {
        text.append(text.empty() ? "" : "|").append(word.name);
      }
    }
    return text;
  }
  static constexpr std::array<std::string_view, 11> type_names{
      "text",   "name",   "path",   "path",  "path", "size",
      "number", "number", "choice", "octal", "table"};
  return std::string(type_names.at(static_cast<std::size_t>(range.type)));
}

template <typename Owner>
void describe(std::string_view section, std::span<const KeyOf<Owner>> keys, bool of_site,
              std::vector<KeyDescription>& all) {
  for (const auto& key : keys) {
    all.push_back({.section = section,
                   .name = key.name,
                   .values = values_text(key.range),
                   .fallback = shown(key, Owner{}).value_or(""),
                   .site = !of_site || (key.flags & of_one_job) != 0     ? ""
                           : find_key(limit_keys(), key.name) != nullptr ? "fix,limit"
                                                                         : "fix",
                   .help = key.help,
                   .is_mandatory = (key.flags & mandatory) != 0});
  }
}

}  // namespace

std::span<const KeyOf<JobConfig>> settings_keys() {
  return settings_table;
}

std::span<const KeyOf<Backend>> backend_keys() {
  return backends_table;
}

std::span<const KeyOf<Tiers>> tier_keys() {
  return tiers_table;
}

std::span<const KeyOf<Resource>> resource_keys() {
  return resources_table;
}

std::span<const KeyOf<OutputRule>> output_keys() {
  return outputs_table;
}

std::span<const KeyOf<Site>> site_keys() {
  return site_table;
}

std::span<const KeyOf<Site>> limit_keys() {
  return limits_table;
}

std::optional<Type> type_of(std::string_view name) {
  std::optional<Type> type;
  const auto look_in = [&](const auto& keys) {
    const auto* key = find_key(keys, name);
    type = type || key == nullptr ? type : std::optional(key->range.type);
  };
  look_in(settings_keys());
  look_in(backend_keys());
  look_in(tier_keys());
  look_in(resource_keys());
  look_in(output_keys());
  return type;
}

std::span<const SectionKeys> schema() {
  return section_table;
}

std::span<const std::string_view> settings_schema() {
  return settings_names;
}

std::span<const std::string_view> backend_schema() {
  return backend_names;
}

std::optional<std::string> read_text(const Section& section, const Key& key,
                                     ProblemList& problems) {
  const auto* value = section.find(key.name);
  if (value == nullptr) {
    return std::nullopt;
  }
  switch (key.range.type) {
    case Type::choice:
      if (const auto* word = find_word(section, key.name, key.range.words, problems)) {
        return std::string(word->name);
      }
      return std::nullopt;
    case Type::path: return read_path(section, key.name, problems);
    // "/" is refused: below it everything would be input, hidden or overwritten.
    case Type::directory:
      if (auto path = read_path(section, key.name, problems); path != "/") {
        return path;
      }
      problems.add(value->mark, in_quotes(key.name) + " must not be '/'",
                   "name a directory of this job's own");
      return std::nullopt;
    default: return value->text;
  }
}

std::optional<std::uint64_t> read_value(const Section& section, const Key& key,
                                        ProblemList& problems) {
  if (section.find(key.name) == nullptr) {
    return std::nullopt;
  }
  const auto& range = key.range;
  const Section bare = without_suffix(section, key);
  switch (range.type) {
    case Type::size: return read_size(bare, key.name, range.least, range.most, problems);
    case Type::mode: return read_mode(*section.find(key.name), key.name, problems);
    case Type::choice: {
      const auto* word = find_word(section, key.name, range.words, problems);
      return word != nullptr ? std::optional(static_cast<std::uint64_t>(word->value))
                             : std::nullopt;
    }
    default:
      return read_number(bare, key.name, static_cast<int>(range.least),
                         static_cast<int>(range.most), problems);
  }
}

Result<std::uint64_t> parse_setting(std::string_view key, const std::string& text) {
  Section section;
  section.values.emplace(key, Value{.text = text, .mark = {}});
  ProblemList problems;
  if (const auto value = read_value(section, *find_key(settings_keys(), key), problems)) {
    return *value;
  }
  const Problem problem = problems.take_sorted().front();
  return fail(EINVAL, problem.text + ": " + problem.suggestion);
}

std::string shown(const Key& key, std::optional<std::uint64_t> value) {
  if (!value || (*value == 0 && !key.absent.empty())) {
    return std::string(key.absent);
  }
  const auto& range = key.range;
  switch (range.type) {
    case Type::size: return format_bytes(*value) + std::string(range.suffix);
    case Type::mode: return octal_mode(*value);
    case Type::seconds: return std::to_string(*value) + " s";
    case Type::choice:
      return std::string(
          std::ranges::find(range.words, static_cast<int>(*value), &Word::value)->name);
    default: return std::to_string(static_cast<int>(*value)) + std::string(range.suffix);
  }
}

std::vector<KeyDescription> describe_keys() {
  std::vector<KeyDescription> all;
  describe("global-settings", settings_keys(), true, all);
  describe("backends", backend_keys(), true, all);
  describe("tiers", tier_keys(), false, all);
  describe("resources", resource_keys(), false, all);
  describe("outputs", output_keys(), false, all);
  return all;
}

}  // namespace efs::config
