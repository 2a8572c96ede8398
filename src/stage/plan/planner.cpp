#include "stage/plan/planner.hpp"

#include "stage/plan/distribute.hpp"
#include "stage/plan/hard_links.hpp"
#include "stage/plan/input_list.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <string_view>

#include "base/text.hpp"
#include "config/paths.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/plan/follow.hpp"
#include "stage/plan/own_files.hpp"
#include "stage/plan/placement.hpp"
#include "stage/plan/results_dir.hpp"
#include "stage/plan/survey.hpp"

namespace efs::stage {
namespace {

/// Whole grains that the file's holes save; 0 where the PFS does not tell.
std::uint64_t hole_bytes(const PlanEntry& entry, int root, PfsIo& pfs) {
  auto file = open_source(pfs, root, source_of(entry), O_RDONLY | O_NONBLOCK);
  if (!file) {
    return 0;
  }
  std::uint64_t data = 0;
  for (std::uint64_t at = 0; at < entry.size;) {
    auto begin = pfs.seek(file->get(), at, SEEK_DATA);
    if (!begin && begin.error().code == ENXIO) {
      break;
    }
    auto end = begin ? pfs.seek(file->get(), *begin, SEEK_HOLE) : begin;
    if (!end || *end <= at) {
      return 0;
    }
    data += rounded(std::min(*end, entry.size) - *begin);
    at = *end;
  }
  return rounded(entry.size) - std::min(data, rounded(entry.size));
}

class Planner {
 public:
  Planner(const config::JobConfig& config, PfsIo& pfs) : config_(config), pfs_(pfs) {}

  Plan run(const Rooms& rooms) {
    plan_.name = config_.name;
    plan_.root_dir = config_.root_dir;
    plan_.results_dir = config_.results_dir;
    plan_.cache = config_.cache;
    plan_.deletions = config_.deletions == config::Deletions::propagate;
    // Of all together only where it is known of each.
    if (std::ranges::all_of(rooms, [](const auto& room) { return room.has_value(); })) {
      for (const auto& room : rooms) {
        plan_.capacity = plan_.capacity.value_or(0) + *room;
      }
    }
    auto root = pfs_.open(AT_FDCWD, known_part(config_.root_dir, config_.root_open), passage_flags);
    if (root && config_.root_open) {
      skip(config_.root_dir, for_the_nodes);
    } else if (root) {
      root_ = std::move(*root);
      survey_.emplace(pfs_, root_.get());
      own_.emplace(config_, pfs_, root_.get());
      for (const auto& resource : config_.resources) {
        add_resource(resource);
      }
    } else {
      problem(config_.root_dir, "root-dir cannot be opened: " + describe(root.error()));
    }
    check_results();
    total();
    if (rooms.size() > 1) {
      place(rooms);
    } else if (plan_.capacity) {
      check_capacity(*plan_.capacity);
    }
    return std::move(plan_);
  }

 private:
  using Entries = std::map<std::string, PlanEntry>;

  /// A symbolic link, and what is at its place on the mount.
  struct Followed {
    std::string link, target;
    Identity identity{};
    int directory = -1;  // open, of a directory
  };

  static constexpr std::size_t most_followed = 8;  // links within what links lead to

  static constexpr const char* for_the_nodes =
      "has patterns that only the job's nodes know: looked at when the job starts";

  void problem(const std::string& path, std::string reason, std::string unreadable = {},
               std::string not_there = {}) {
    const bool listed = !place_.empty();
    plan_.problems.push_back({.path = listed ? place_ : path,
                              .reason = listed ? path + " " + reason : std::move(reason),
                              .line = line_,
                              .unreadable = std::move(unreadable),
                              .not_there = std::move(not_there)});
  }

  std::string absolute(const std::string& relative) const {
    return stage::absolute(config_.root_dir, relative);
  }

  void add_resource(const config::Resource& resource) {
    line_ = resource.line;
    priority_ = resource.priority;
    reusable_ = resource.reusable;
    skips_vanished_ = resource.vanished == config::Vanished::skip;
    follows_ = resource.follow;
    const auto prefix = config_.root_dir == "/" ? std::string("/") : config_.root_dir + "/";
    as_ = resource.as.empty() ? nullptr : &resource;
    if (resource.open) {
      add_open(resource, prefix);
    } else if (resource.is_list) {
      add_list(resource.path);
    } else if (resource.path == config_.root_dir) {
      add_root();
    } else if (!resource.path.starts_with(prefix)) {
      problem(resource.path, "is not below root-dir " + config_.root_dir);
    } else if (resource.is_glob) {
      add_glob(resource.path.substr(prefix.size()));
    } else {
      add_path(resource.path.substr(prefix.size()));
    }
    line_ = 0;
    as_ = nullptr;
  }

  void add_root() {
    named_ = true;
    if (as_ != nullptr) {
      // told of
      const auto attributes =
          add_places() ? pfs_.fstat(root_.get()) : std::unexpected(Error{EINVAL, ""});
      if (!attributes) {
        return;
      }
      insert("", EntryType::directory, *attributes);
    }
    add_children("");
  }

  /// Where on the mount appears what the PFS has at `path`.
  std::string placed(const std::string& path) const {
    if (as_ == nullptr) {
      return path;
    }
    const std::string whole = absolute(path);
    const auto below = config::part_below(whole, as_->path);
    return below.empty() ? as_->as : as_->as + "/" + std::string(below);
  }

  /// The directories above it on the mount: such as root-dir has of these names, or else like
  /// root-dir itself.
  bool add_places() {
    named_ = true;
    for (auto slash = as_->as.find('/'); slash != std::string::npos;
         slash = as_->as.find('/', slash + 1)) {
      const std::string above = as_->as.substr(0, slash);
      if (const auto known = entries_.find(above); known != entries_.end()) {
        if (known->second.type == EntryType::directory) {
          continue;
        }
        return problem(as_->path, "cannot be at " + as_->as + ": " +
                                      absolute(known->second.from()) + " is at " + above),
               false;
      }
      const auto directory = pfs_.open_beneath(root_.get(), above, passage_flags);
      const auto attributes = pfs_.fstat(directory ? directory->get() : root_.get());
      if (!attributes) {
        return problem(config_.root_dir, "cannot be read: " + describe(attributes.error())), false;
      }
      insert_at(above, directory ? std::nullopt : std::optional<std::string>(""),
                EntryType::directory, *attributes);
    }
    return true;
  }

  /// Before the job: what holds it has to be there.
  void add_open(const config::Resource& resource, const std::string& prefix) {
    const bool below_root = !resource.is_list && resource.path.starts_with(prefix);
    const std::string path = below_root ? resource.path.substr(prefix.size()) : resource.path,
                      known = known_part(path, true);
    const auto directory = below_root ? pfs_.open_beneath(root_.get(), known, passage_flags)
                                      : pfs_.open(AT_FDCWD, known, passage_flags);
    if (!directory) {
      return problem(below_root ? absolute(known) : known, missing(directory.error(), known));
    }
    skip(path, for_the_nodes);
  }

  /// What the list names, looked at side by side.
  void add_list(const std::string& file) {
    const auto text = read_list(pfs_, file);
    if (!text) {
      return problem(file, "the list cannot be read: " + describe(text.error()));
    }
    const auto before = plan_.problems.size();
    InputList list = parse_list(*text, config_.root_dir, config_.mount_dir, config_.in_place);
    for (const auto& bad : list.problems) {
      problem(file + ":" + std::to_string(bad.line), bad.reason);
    }
    const auto at_line = [&](const ListedInput& input, const auto& work) {
      const config::Resource elsewhere{.path = absolute(input.path), .as = input.as};
      as_ = input.as.empty() ? nullptr : &elsewhere;
      place_ = file + ":" + std::to_string(input.line);
      const bool good = work();
      as_ = nullptr;
      place_.clear();
      return good;
    };
    for (const auto& input : list.inputs) {
      if (!input.as.empty()) {
        plan_.listed.emplace(input.as, input.path);
      }
    }
    std::erase_if(list.inputs, [&](const ListedInput& input) {
      if (input.as.empty()) {
        note_plain(input.path);
      }
      return !at_line(input, [&] {
        return input.path.empty() ? (add_root(), false) : add_parents(input.path);
      });
    });
    std::vector<std::string> paths;
    for (const auto& input : list.inputs) {
      paths.push_back(input.path);
    }
    const auto all = survey_->look(std::move(paths));
    for (std::size_t i = 0; i < all.size(); ++i) {
      at_line(list.inputs[i], [&] { return add_found(all[i], true); });
    }
    shorten_problems(file, before);
  }

  /// Below a destination, and in its own place all the same.
  void note_plain(const std::string& path) {
    if (plan_.listed.empty()) {
      return;
    }
    for (auto slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      if (plan_.listed.contains(path.substr(0, slash))) {
        return (void)plan_.listed.emplace(path, path);
      }
    }
  }

  /// A list of a million paths that are not there is told of by a few of them.
  void shorten_problems(const std::string& file, std::size_t before) {
    constexpr std::size_t most = 20;
    const auto found = plan_.problems.size() - before;
    if (found <= most + 1) {
      return;
    }
    plan_.problems.resize(before + most);
    problem(file, "has " + std::to_string(found - most) + " more such lines");
  }

  /// A named path with its parents; false where there is a problem (which is recorded).
  bool add_path(const std::string& path) {
    if (!add_parents(path)) {
      return false;
    }
    return add_found(survey_->look({path}).front(), true);
  }

  static bool is_in_its_place(const PlanEntry& entry) {
    return !entry.source && entry.outside.empty();
  }

  /// Where in `path` the names begin below its deepest directory that is an entry, with all
  /// directories above it.
  std::size_t behind_known_parent(const std::string& path) const {
    if (as_ != nullptr) {
      return 0;
    }
    for (auto slash = path.rfind('/'); slash != std::string::npos && slash > 0;
         slash = path.rfind('/', slash - 1)) {
      const auto known = entries_.find(path.substr(0, slash));
      if (known != entries_.end() && known->second.type == EntryType::directory &&
          is_in_its_place(known->second)) {
        return slash + 1;
      }
    }
    return 0;
  }

  bool add_parents(const std::string& path, bool named = true) {
    named_ = named;
    for (auto slash = path.find('/', behind_known_parent(path)); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      const std::string parent = path.substr(0, slash);
      if (const auto known = entries_.find(parent); as_ == nullptr && known != entries_.end()) {
        const bool directory = known->second.type == EntryType::directory;
        if (!directory && known->second.source) {
          return problem(absolute(path), absolute(known->second.from()) + " is at " + parent),
                 false;
        }
        if (directory && is_in_its_place(known->second)) {
          continue;
        }
      }
      auto directory = pfs_.open_beneath(root_.get(), parent_of(parent), passage_flags);
      if (!directory && is_vanishing(directory.error())) {
        return vanished(parent_of(parent)), false;
      }
      if (!directory) {
        return problem(absolute(parent_of(parent)),
                       "cannot be read: " + describe(directory.error())),
               false;
      }
      auto attributes = pfs_.lstat(directory->get(), leaf_of(parent));
      if (!attributes && is_vanishing(attributes.error())) {
        return vanished(parent), false;
      }
      if (!attributes) {
        return problem(absolute(path), missing(attributes.error(), path)), false;
      }
      if (S_ISLNK(attributes->st_mode)) {
        problem(absolute(path),
                "leads through the symbolic link " + absolute(parent) + ": name the real path");
        return false;
      }
      if (!S_ISDIR(attributes->st_mode)) {
        return problem(absolute(path), absolute(parent) + " is not a directory"), false;
      }
      above_inputs_.try_emplace(identity_of(*attributes), parent);
      if (as_ == nullptr) {
        insert(parent, EntryType::directory, *attributes);
      }
    }
    return as_ == nullptr || add_places();
  }

  static std::string missing(const Error& error, const std::string& path) {
    return error.code == ENOENT ? "does not exist" + odd_note(path, "the name")
                                : "cannot be read: " + describe(error);
  }

  /// Was what a walk or a pattern found taken away, or put something else in its place, before it
  /// was looked at?
  bool is_vanishing(const Error& error) const { return !named_ && is_gone(error); }

  /// Leaves it out, or records the problem: false.
  bool vanished(const std::string& path) {
    if (!skips_vanished_) {
      return problem(absolute(path),
                     std::string("vanished while the inputs were listed; ") + vanished_hint),
             false;
    }
    complete_.erase({placed(path), path});  // a resource that names it later lists it anew
    const auto [entry, is_known] = find(placed(path));
    const auto next = is_known ? std::next(entry) : entry;
    const bool is_empty = next == entries_.end() || !next->first.starts_with(placed(path) + "/");
    if (is_known && is_empty && entry->second.from() == path) {
      if (newest_ == entry) {
        newest_ = entries_.end();
      }
      entries_.erase(entry);
    }
    return skip(path, "vanished while the inputs were listed", true);
  }

  PlanEntry& insert(const std::string& path, EntryType type, const struct stat& attributes) {
    return insert_at(placed(path), as_ == nullptr ? std::nullopt : std::optional(path), type,
                     attributes);
  }

  PlanEntry& insert_at(const std::string& path, std::optional<std::string> source, EntryType type,
                       const struct stat& attributes) {
    PlanEntry entry;
    entry.path = path;
    entry.source = std::move(source);
    if (!follows_to_.empty()) {
      entry.outside = follows_to_.back().target + path_in_target(path);
    }
    entry.type = type;
    take_version(entry, attributes);
    entry.file_class = config::classify(config_, path, true);
    const auto [at, known] = find(path);
    entry.priority = known ? std::max(priority_, at->second.priority) : priority_;
    entry.reusable = entry.outside.empty() && (reusable_ || (known && at->second.reusable));
    entry.found = !named_ && (!known || at->second.found);
    entry.may_vanish = entry.found && skips_vanished_ && (!known || at->second.may_vanish);
    if (known) {
      return at->second = std::move(entry);
    }
    newest_ = entries_.emplace_hint(at, path, std::move(entry));
    return newest_->second;
  }

  /// Where `path` is, or is to be, and whether it is. Names come in order, mostly: then nothing is
  /// searched.
  std::pair<Entries::iterator, bool> find(const std::string& path) {
    const auto behind = newest_ == entries_.end() ? newest_ : std::next(newest_);
    const bool in_order = newest_ != entries_.end() && newest_->first < path &&
                          (behind == entries_.end() || path <= behind->first);
    const auto at = in_order ? behind : entries_.lower_bound(path);
    return {at, at != entries_.end() && at->first == path};
  }

  /// Something that was found; a directory with all that is below it if `whole`. False where there
  /// is a problem.
  bool add_found(const Found& found, bool named, bool whole = true) {
    const std::string& path = found.path;
    named_ = named;
    if (const auto own = own_file(found)) {
      if (named && own->refused) {
        return problem(absolute(path),
                       "is " + own->reason + ", not an input: remove it from the resources"),
               false;
      }
      if (!named) {
        return find(placed(path)).second || skip(path, own->reason);
      }
    }
    const bool is_other_kind =
        found.problem == Found::Problem::target && found.error.code == EINVAL;
    if (found.problem != Found::Problem::none && !named &&
        (is_other_kind || is_gone(found.error))) {
      return vanished(path);
    }
    switch (found.problem) {
      case Found::Problem::none: break;
      case Found::Problem::attributes:
        return problem(absolute(path), missing(found.error, path), {},
                       found.error.code == ENOENT ? path : ""),
               false;
      case Found::Problem::unreadable:
        return problem(absolute(path), "is not readable: " + describe(found.error), placed(path)),
               false;
      case Found::Problem::target:
        return problem(absolute(path), "cannot be read: " + describe(found.error)), false;
      case Found::Problem::listing:
        return problem(absolute(path), "directory cannot be read: " + describe(found.error),
                       placed(path)),
               false;
    }
    const auto [known, is_known] = find(placed(path));
    if (is_known &&
        (known->second.type != EntryType::directory || !S_ISDIR(found.attributes.st_mode))) {
      if (known->second.from() != path) {
        return problem(absolute(path), "would be at " + known->first + ", and so would " +
                                           absolute(known->second.from())),
               false;
      }
      ask_again(known->second);
      return true;
    }
    switch (found.attributes.st_mode & S_IFMT) {
      case S_IFDIR:
        insert(path, EntryType::directory, found.attributes);
        return !whole || add_children(path);
      case S_IFREG: insert(path, EntryType::file, found.attributes); return true;
      case S_IFLNK:
        if (follows_) {
          return add_target(found, named);
        }
        insert(path, EntryType::symlink, found.attributes).target = found.target;
        return true;
      default:
        if (named) {
          return problem(absolute(path),
                         "is a socket, FIFO or device: only files, directories and symbolic links "
                         "can be staged"),
                 false;
        }
        return skip(path, S_ISFIFO(found.attributes.st_mode)   ? "FIFO"
                          : S_ISSOCK(found.attributes.st_mode) ? "socket"
                                                               : "device");
    }
  }

  /// What the link leads to, in the place of the link; a directory with all below it.
  bool add_target(const Found& link, bool named) {
    const std::string& path = link.path;
    const auto target = follows_to_.empty() ? follow(pfs_, root_.get(), path, link)
                                            : follow(pfs_, follows_to_.back().directory,
                                                     path_in_target(path).substr(1), link);
    if (!target) {
      return problem(absolute(path), target.error().what), false;
    }
    if (const auto own = own_->find(path, target->attributes); own && own->refused) {
      return named ? (problem(absolute(path), "leads to " + own->reason), false)
                   : skip(path, own->reason);
    }
    named_ = named;
    if (S_ISREG(target->attributes.st_mode)) {
      follows_to_.push_back({.link = path, .target = target->path});
      insert(path, EntryType::file, target->attributes);
      follows_to_.pop_back();
      return true;
    }
    const Identity identity = identity_of(target->attributes);
    if (std::ranges::find(follows_to_, identity, &Followed::identity) != follows_to_.end() ||
        follows_to_.size() >= most_followed) {
      return problem(absolute(path),
                     "leads to " + target->path +
                         ", which leads back to this link: remove one of the links, or 'follow'"),
             false;
    }
    follows_to_.push_back({.link = path,
                           .target = target->path,
                           .identity = identity,
                           .directory = target->directory.get()});
    insert(path, EntryType::directory, target->attributes);
    Survey survey(pfs_, target->directory.get());
    const bool all = !complete_.insert({placed(path), path}).second || add_below(survey, "", path);
    follows_to_.pop_back();
    return all;
  }

  /// Where below the target of the link that is being followed.
  std::string path_in_target(const std::string& path) const {
    return path.substr(follows_to_.back().link.size());
  }

  /// What efs made for this job: by its name alone where the PFS says nothing more of it.
  std::optional<OwnFile> own_file(const Found& found) const {
    if (found.problem == Found::Problem::listing) {
      return std::nullopt;  // it was told of before
    }
    if (found.problem == Found::Problem::attributes) {
      return own_->by_name(found.path, 0);
    }
    return own_->find(found.path, found.attributes);
  }

  /// Notes each path once; true, as a skip is no problem.
  bool skip(const std::string& path, std::string reason, bool vanished = false) {
    if (skipped_.insert(path).second) {
      plan_.skipped.push_back({.path = path, .reason = std::move(reason), .vanished = vanished});
    }
    return true;
  }

  /// All below the survey's directory `path`, which is at `prefix` below root-dir. Links are
  /// followed when all else is there.
  bool add_below(Survey& survey, const std::string& path, const std::string& prefix) {
    bool all = true;
    std::vector<Found> links;
    survey.below(path, [&](Found&& found) {
      const bool is_known = found.problem == Found::Problem::none,
                 is_named = found.problem == Found::Problem::listing && found.path == path;
      if (!prefix.empty()) {
        found.path = found.path.empty() ? prefix : prefix + "/" + found.path;
      }
      if (follows_ && is_known && S_ISLNK(found.attributes.st_mode)) {
        return links.push_back(std::move(found)), false;
      }
      all = add_found(found, is_named, false) && all;
      if (!is_known || !S_ISDIR(found.attributes.st_mode) || skipped_.contains(found.path)) {
        return false;
      }
      complete_.insert({placed(found.path), found.path});
      return true;
    });
    for (const auto& link : links) {
      all = add_found(link, false, false) && all;
    }
    return all;
  }

  bool add_children(const std::string& path) {
    // an overlapping resource was here before
    if (!complete_.insert({placed(path), path}).second) {
      return ask_again(placed(path)), true;
    }
    return add_below(*survey_, path, "");
  }

  /// Another resource names what is there already.
  void ask_again(PlanEntry& entry) const {
    entry.priority = std::max(entry.priority, priority_);
    entry.reusable = entry.outside.empty() && (entry.reusable || reusable_);
    entry.found = entry.found && !named_;
    entry.may_vanish = entry.may_vanish && entry.found && skips_vanished_;
  }

  void ask_again(const std::string& directory) {
    named_ = false;
    const std::string prefix = directory.empty() ? "" : directory + "/";
    for (auto it = entries_.lower_bound(prefix);
         it != entries_.end() && it->first.starts_with(prefix); ++it) {
      ask_again(it->second);
    }
  }

  /// The names in a directory; a problem is recorded where that fails.
  std::optional<std::vector<std::string>> list(const std::string& path, bool named) {
    auto directory = pfs_.open_beneath(root_.get(), path, directory_flags);
    auto names = directory ? pfs_.list(directory->get()) : std::unexpected(directory.error());
    if (names) {
      return std::move(*names);
    }
    named_ = named;
    if (is_vanishing(names.error())) {
      return vanished(path), std::nullopt;
    }
    problem(absolute(path), "directory cannot be read: " + describe(names.error()));
    return std::nullopt;
  }

  void add_glob(const std::string& pattern) {
    const auto before = plan_.problems.size();
    const std::string base = parent_of(pattern.substr(0, pattern.find_first_of("*?[")) + "x");
    const auto slashes = std::count(pattern.begin(), pattern.end(), '/');
    const auto depth = pattern.find("**") == std::string::npos ? slashes : std::ptrdiff_t{4096};
    // A base that is not there holds no match, and is reported as such below.
    auto there = pfs_.open_beneath(root_.get(), base, directory_flags);
    const bool matched =
        (there || there.error().code == EACCES) && match_below(pattern, base, depth, true);
    if (!matched && plan_.problems.size() == before) {
      problem(absolute(pattern),
              "no file matches this pattern" + odd_note(pattern, "it") + name_hint(pattern));
    }
  }

  /// Where a file has the name that the pattern was perhaps meant for.
  std::string name_hint(const std::string& pattern) {
    const auto directory = pfs_.open_beneath(root_.get(), parent_of(pattern), passage_flags);
    if (!directory || !pfs_.lstat(directory->get(), leaf_of(pattern))) {
      return "";
    }
    std::string literal;
    for (const char c : pattern) {
      literal += c == '*' || c == '?' || c == '[' ? std::string("[") + c + "]" : std::string(1, c);
    }
    return ", but a file has this very name: to mean it, write " + literal;
  }

  /// Adds what matches below `path`; what lies below a matching directory comes with it.
  bool match_below(const std::string& pattern, const std::string& path, std::ptrdiff_t depth,
                   bool named = false) {
    auto names = list(path, named);
    if (!names) {
      return false;
    }
    std::vector<std::string> candidates;
    for (const auto& name : *names) {
      std::string candidate = join(path, name);
      const bool deeper = std::count(candidate.begin(), candidate.end(), '/') < depth;
      if (deeper || config::glob_match(pattern, candidate)) {
        candidates.push_back(std::move(candidate));
      }
    }
    bool matched = false;
    for (const auto& found : survey_->look(std::move(candidates))) {
      if (config::glob_match(pattern, found.path)) {
        matched = true;
        if (add_parents(found.path, false)) {
          add_found(found, false);
        }
      } else if (const auto own = own_file(found)) {
        if (S_ISDIR(found.attributes.st_mode)) {
          skip(found.path, own->reason);
        }
      } else if (found.problem == Found::Problem::none && S_ISDIR(found.attributes.st_mode)) {
        matched = match_below(pattern, found.path, depth) || matched;
      }
    }
    return matched;
  }

  void check_results() {
    for (auto& found :
         check_results_dir(config_, pfs_, root_ ? root_.get() : -1, input_directories())) {
      problem(found.path, std::move(found.reason));
    }
  }

  InputDirectories input_directories() const {
    InputDirectories all{.root = false, .whole = {}, .above = above_inputs_};
    for (const auto& [place, path] : complete_) {
      const auto entry = entries_.find(place);
      if (path.empty()) {
        all.root = true;
      } else if (entry != entries_.end()) {
        all.whole.try_emplace({entry->second.origin.device, entry->second.origin.inode}, path);
      }
    }
    return all;
  }

  void total() {
    // A later resource may have named what an earlier one skipped.
    std::erase_if(plan_.skipped, [&](const PlanSkip& known) {
      const auto entry = entries_.find(known.path);
      return entry != entries_.end() && entry->second.from() == known.path;
    });
    plan_.entries.reserve(entries_.size());
    for (auto& [path, entry] : entries_) {
      plan_.entries.push_back(std::move(entry));
    }
    entries_.clear();
    newest_ = entries_.end();
    plan_.parts = deal_out(config_, plan_.entries);
    group_links(plan_.entries);
    for (const auto& entry : plan_.entries) {
      keep_first_name(entry);
    }
    plan_.links = links_that_lead_out(config_, plan_.entries);
    sum_up(plan_);
  }

  /// Its further names are links to it: it is read, or nothing is.
  void keep_first_name(const PlanEntry& entry) {
    if (entry.link_to.empty()) {
      return;
    }
    const auto first = std::ranges::lower_bound(plan_.entries, entry.link_to, {}, &PlanEntry::path);
    if (first != plan_.entries.end() && first->path == entry.link_to) {
      first->may_vanish = false;
    }
  }

  void place(const Rooms& rooms) {
    const auto others = static_cast<std::ptrdiff_t>(plan_.problems.size());
    place_entries(config_, plan_, rooms);
    if (std::ssize(plan_.problems) == others) {
      return;
    }
    plan_.problems.erase(plan_.problems.begin() + others, plan_.problems.end());
    leave_out_holes(plan_, pfs_);
    place_entries(config_, plan_, rooms);
  }

  void check_capacity(std::uint64_t capacity) {
    // Where all fits even with its holes there is nothing to find out.
    if (plan_.needed > capacity) {
      leave_out_holes(plan_, pfs_);
    }
    if (plan_.needed <= capacity) {
      return;
    }
    problem(config_.root_dir, "the inputs need " + format_bytes(plan_.needed) +
                                  " and the buffer takes " + format_bytes(capacity) +
                                  ": raise its capacity or stage in less");
  }

  const config::JobConfig& config_;
  PfsIo& pfs_;
  UniqueFd root_;
  std::optional<Survey> survey_;  // there when root_ is
  int line_ = 0;
  int priority_ = 0;
  std::string place_;  // the line of a list that asks for it: "FILE:LINE"; "": no list does
  bool reusable_ = false;
  bool skips_vanished_ = false, follows_ = false;  // of the resource that is being added
  // the resource names what is being added, and not a directory above it or a pattern
  bool named_ = false;
  std::vector<Followed> follows_to_;  // the links that are being followed, the outermost first
  // directories that named inputs are in, and where they are below root-dir
  std::map<Identity, std::string> above_inputs_;
  std::optional<OwnFiles> own_;    // there when root_ is
  std::set<std::string> skipped_;  // the paths of plan_.skipped
  Entries entries_;
  Entries::iterator newest_ = entries_.end();
  // the resource that is being added, where it appears elsewhere than on the PFS
  const config::Resource* as_ = nullptr;
  // directories, here and on the PFS, whose children are in entries_
  std::set<std::pair<std::string, std::string>> complete_;
  Plan plan_;
};

}  // namespace

// Fewer blocks than bytes can mean holes, or a PFS that compresses; only the files can tell.
void leave_out_holes(Plan& plan, PfsIo& pfs) {
  const auto is_sparse = [](const PlanEntry& entry) {
    return entry.type == EntryType::file && entry.link_to.empty() && entry.allocated < entry.size;
  };
  if (std::ranges::none_of(plan.entries, is_sparse)) {
    return;
  }
  const auto root = pfs.open(AT_FDCWD, plan.root_dir, passage_flags);
  if (!root) {
    return;
  }
  for (auto& entry : plan.entries) {
    if (!is_sparse(entry)) {
      continue;
    }
    const std::uint64_t needed = rounded(entry.size) - hole_bytes(entry, root->get(), pfs);
    plan.needed -= entry.needed - needed;
    entry.needed = needed;
  }
}

void take_version(PlanEntry& entry, const struct stat& attributes) {
  const auto size = static_cast<std::uint64_t>(attributes.st_size);
  if (entry.type == EntryType::file) {
    entry.size = size;
    entry.allocated = static_cast<std::uint64_t>(attributes.st_blocks) * 512;
    entry.linked = attributes.st_nlink > 1;
  }
  const Nanoseconds mtime = to_ns(attributes.st_mtim);
  entry.attributes = {.mode = attributes.st_mode & 07777U,
                      .uid = attributes.st_uid,
                      .gid = attributes.st_gid,
                      .atime = to_ns(attributes.st_atim),
                      .mtime = mtime};
  entry.origin = {.device = attributes.st_dev,
                  .inode = attributes.st_ino,
                  .size = size,
                  .mtime = mtime,
                  .ctime = to_ns(attributes.st_ctim)};
}

Result<Plan> make_plan(const config::JobConfig& config, PfsIo& pfs,
                       std::optional<std::uint64_t> capacity) {
  return make_plan(config, pfs, Rooms{capacity});
}

Result<Plan> make_plan(const config::JobConfig& config, PfsIo& pfs, const Rooms& rooms) {
  try {
    return Planner(config, pfs).run(rooms);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM, "planning the stage-in: out of memory");
  } catch (const std::exception& exception) {
    return fail(EIO, std::string("planning the stage-in: ") + exception.what());
  }
}

}  // namespace efs::stage
