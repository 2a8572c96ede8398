// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/results_dir.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/mounts.hpp"
#include "base/user.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

std::string directory_above(const std::string& path) {
  return parent_of(path).empty() ? "/" : parent_of(path);
}

class ResultsDirCheck {
 public:
  ResultsDirCheck(const config::JobConfig& config, PfsIo& pfs, PfsRef root,
                  const InputDirectories& inputs)
      : config_(config), pfs_(pfs), root_(root), inputs_(inputs) {}

  std::vector<ResultsDirProblem> run() {
    check();
    return std::move(problems_);
  }

 private:
  void check() {
    if (config_.results_dir.empty()) {
      return;
    }
    const auto [there, path, exists] = nearest();
    const std::string what =
        exists ? "results-dir " : "results-dir does not exist and cannot be created: " + path + " ";
    if (!there) {
      return problem("results-dir cannot be reached: " + describe(there.error()));
    }
    auto attributes = pfs_.fstat(*there);
    if (!attributes) {
      return problem(what + "cannot be read: " + describe(attributes.error()));
    }
    if (!S_ISDIR(attributes->st_mode)) {
      return problem(what + "is not a directory");
    }
    if (auto writable = pfs_.access(no_directory, path, W_OK | X_OK); !writable) {
      problem(what + "is not writable: " + describe(writable.error()));
    } else if (exists) {
      check_outputs(*there);
    }
    check_group();
    if (!config_.in_place && config_.results_dir != config_.root_dir && root_) {
      check_apart(*there, exists);
    }
  }

  /// results-dir, or the nearest directory above it.
  struct Nearest {
    Result<PfsHandle> directory;
    std::string path;
    bool exists = false;  // it is results-dir itself
  };

  /// stage-out creates missing directories, so the nearest existing ancestor decides.
  Nearest nearest() {
    std::string path = known_part(config_.results_dir, config_.results_open);
    auto there = pfs_.open(no_directory, path, O_PATH);
    const bool exists = there.has_value() && !config_.results_open;
    while (!there && there.error().code == ENOENT && path.size() > 1) {
      path = directory_above(path);
      there = pfs_.open(no_directory, path, O_PATH);
    }
    return {.directory = std::move(there), .path = std::move(path), .exists = exists};
  }

  void check_outputs(PfsRef results) {
    for (const auto& rule : config_.outputs) {
      if (rule.file_class == config::FileClass::persistent) {
        check_place_of(rule, results);
      }
    }
  }

  void check_group() {
    if (config_.results_group.empty()) {
      return;
    }
    const auto group = find_group(config_.results_group);
    if (!group) {
      return problem("takes no result of results-group: " + describe(group.error()));
    }
    if (::geteuid() == 0 || *group == ::getegid() || ::group_member(*group) != 0) {
      return;
    }
    problem("takes no result of results-group " + config_.results_group +
            ": the job's user is not a member of it");
  }

  /// Checks the directories of results-dir that an output rule names: existing ones must accept
  /// results.
  void check_place_of(const config::OutputRule& rule, PfsRef results) {
    const auto wildcard = rule.pattern.find_first_of("*?[");
    for (std::size_t slash = rule.pattern.find('/'); slash < wildcard;
         slash = rule.pattern.find('/', slash + 1)) {
      const bool last = rule.pattern.find('/', slash + 1) >= wildcard;
      if (!check_directory(rule, results, rule.pattern.substr(0, slash),
                           last ? W_OK | X_OK : X_OK)) {
        return;
      }
    }
  }

  /// Checks the directory `below` results-dir for `access`. False if the directories below it need
  /// no check.
  bool check_directory(const config::OutputRule& rule, PfsRef results, const std::string& below,
                       int access) {
    const std::string path = config_.results_dir + "/" + below;
    const auto directory = pfs_.open_beneath(results, below, O_PATH | O_NOFOLLOW);
    if (!directory && directory.error().code == ENOENT) {
      return false;  // stage-out makes it
    }
    const auto attributes = directory ? pfs_.fstat(*directory) : std::unexpected(directory.error());
    const std::string what = "takes no result of the output " + rule.pattern + ": ";
    if (!attributes) {
      problem_at(path, what + describe(attributes.error()));
      return false;
    }
    if (!S_ISDIR(attributes->st_mode)) {
      problem_at(path, what + "it is not a directory");
      return false;
    }
    const auto usable = pfs_.access(no_directory, path, access);
    // stage-out does so
    const bool can_be_changed =
        !usable && usable.error().code == EACCES && attributes->st_uid == ::geteuid();
    if (!usable && !can_be_changed) {
      problem_at(path, what + describe(usable.error()));
      return false;
    }
    return true;
  }

  void problem(std::string reason) { problem_at(config_.results_dir, std::move(reason)); }

  /// Reports once, because several rules may name one directory.
  void problem_at(const std::string& path, std::string reason) {
    if (std::ranges::none_of(problems_,
                             [&](const ResultsDirProblem& known) { return known.path == path; })) {
      problems_.push_back({path, std::move(reason)});
    }
  }

  /// Results must not overwrite inputs. The job file compares names, and one directory can have
  /// several: a symbolic link, a bind mount. `results` is results-dir, or what exists above it.
  void check_apart(PfsRef results, bool exists) {
    const auto up_from_root = up_from(root_), up_from_results = up_from(results);
    if (!up_from_root || !up_from_results) {
      return problem("results-dir cannot be compared with root-dir: " +
                     describe((up_from_root ? up_from_results : up_from_root).error()));
    }
    const Identity& here = up_from_results->front();
    if (exists && here == up_from_root->front()) {
      return problem("results-dir is root-dir " + config_.root_dir +
                     " by another name: results would overwrite inputs; leave results-dir out and "
                     "say in-place: true if that is meant, else name another directory");
    }
    if (exists && std::ranges::find(*up_from_root, here) != up_from_root->end()) {
      return problem(
          "root-dir " + config_.root_dir +
          " is inside results-dir: a result could overwrite an input; name another directory");
    }
    if (const auto input = input_around(*up_from_results, up_from_root->front())) {
      return problem("results-dir is inside the input " + absolute(config_.root_dir, *input) +
                     ": a result could overwrite an input; name a directory beside the inputs");
    }
    if (const auto above = inputs_.above.find(here); exists && above != inputs_.above.end()) {
      problem("results-dir holds inputs (it is " + absolute(config_.root_dir, above->second) +
              "): a result could overwrite an input; name a directory beside the inputs");
    }
  }

  /// The innermost input among these directories, which lie one in another; its path below
  /// root-dir.
  std::optional<std::string> input_around(const std::vector<Identity>& directories,
                                          const Identity& root) const {
    for (const auto& directory : directories) {
      if (inputs_.root && directory == root) {
        return "";
      }
      if (const auto in = inputs_.whole.find(directory); in != inputs_.whole.end()) {
        return in->second;
      }
    }
    return std::nullopt;
  }

  /// A directory and all its ancestors, independent of names. (Ends at a directory without search
  /// permission.)
  Result<std::vector<Identity>> up_from(PfsRef directory) {
    std::vector<Identity> all;
    PfsHandle held;
    for (PfsRef at = directory;;) {
      const auto attributes = pfs_.fstat(at);
      if (!attributes) {
        return std::unexpected(attributes.error());
      }
      if (!all.empty() && all.back() == identity_of(*attributes)) {
        return all;
      }
      all.push_back(identity_of(*attributes));
      auto above = pfs_.open(at, "..", O_PATH | O_DIRECTORY);
      if (!above && above.error().code == EACCES) {
        return all;
      }
      if (!above) {
        return std::unexpected(above.error());
      }
      held = std::move(*above);
      at = held;
    }
  }

  const config::JobConfig& config_;
  PfsIo& pfs_;
  const PfsRef root_;
  const InputDirectories& inputs_;
  std::vector<ResultsDirProblem> problems_;
};

// Opens for reading, which triggers an automount.
Result<PfsHandle> open_directory(const std::string& path, PfsIo& pfs) {
  auto there = pfs.open(no_directory, path, directory_flags);
  return !there && there.error().code == EACCES ? pfs.open(no_directory, path, passage_flags)
                                                : std::move(there);
}

// Goes up from the open directory `path` to the root of its mount.
Result<std::string> mount_root_above(PfsHandle directory, std::string path, PfsIo& pfs) {
  while (true) {
    const auto root = pfs.is_mount_root(directory);
    if (!root) {
      return std::unexpected(root.error());
    }
    if (*root) {
      return path;
    }
    if (path.size() <= 1) {
      return fail(ENOENT, "no mount is to be seen from here");
    }
    auto above = open_directory(path = directory_above(path), pfs);
    if (!above) {
      return std::unexpected(above.error());
    }
    directory = std::move(*above);
  }
}

}  // namespace

Result<std::string> mount_point_of(const std::string& results_dir, PfsIo& pfs) {
  std::string path = results_dir;
  auto there = open_directory(path, pfs);
  while (!there && there.error().code == ENOENT && path.size() > 1) {
    there = open_directory(path = directory_above(path), pfs);
  }
  if (!there) {
    return std::unexpected(there.error());
  }
  auto resolved = pfs.path_of(*there);
  return resolved ? mount_root_above(std::move(*there), std::move(*resolved), pfs) : resolved;
}

std::vector<std::string> mounts_below(const config::JobConfig& config) {
  std::error_code problem;
  const std::string top = std::filesystem::canonical(config.results_dir, problem);
  if (problem) {
    return {};
  }
  const std::string own = std::filesystem::canonical(config.mount_dir, problem);
  std::vector<std::string> below;
  for (const auto& point : mount_points_below(top)) {
    if (point != own && !point.starts_with(own + "/")) {
      below.push_back(point.substr(top == "/" ? 1 : top.size() + 1));
    }
  }
  return below;
}

namespace {

Status check_mount_root(const std::string& path, PfsIo& pfs) {
  const auto there = open_directory(path, pfs);
  const auto mounted = there ? pfs.is_mount_root(*there) : std::unexpected(there.error());
  if (mounted && *mounted) {
    return {};
  }
  if (!mounted && mounted.error().code != ENOENT) {
    return fail(mounted.error().code, path + ": " + describe(mounted.error()));
  }
  return fail(ESTALE, "nothing is mounted on " + path +
                          " any more, as it was when the job began (to export the results there "
                          "all the same: efs stop --keep --no-stage-out, then efs salvage --to)");
}

}  // namespace

Status check_mounted(const config::JobConfig& config, PfsIo& pfs) {
  return config.results_mount.empty() ? Status() : check_mount_root(config.results_mount, pfs);
}

Status check_mounted_below(const config::JobConfig& config, PfsIo& pfs,
                           const std::function<bool(const std::string& mount)>& is_used) {
  for (const auto& mount : config.mounts_below) {
    if (is_used(mount)) {
      EFS_TRY(check_mount_root(config.results_dir + "/" + mount, pfs));
    }
  }
  return {};
}

std::vector<ResultsDirProblem> check_results_dir(const config::JobConfig& config, PfsIo& pfs,
                                                 PfsRef root, const InputDirectories& inputs) {
  return ResultsDirCheck(config, pfs, root, inputs).run();
}

}  // namespace efs::stage
