// SPDX-License-Identifier: BSD-3-Clause
// efs clean: removes a dead instance, or a store without an instance. The manifest, the journal and
// the job file belong to the user. If root cleans, a child that has become the user inspects and
// removes the paths that these files name.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <iostream>
#include <optional>

#include "base/mounts.hpp"
#include "base/text.hpp"
#include "cli/cli.hpp"
#include "config/start_command.hpp"
#include "image/image.hpp"
#include "image/removal.hpp"
#include "image/salvage.hpp"

namespace efs::cli {
namespace {

// A store that does not exist holds nothing. A store that has lost another part than the journal
// may hold everything.
bool has_journal(const std::string& path) {
  const auto store = image::find_removable(path);
  return store && ::faccessat(store->metadata.get(), "journal", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

// Returns why the contents of an offline store must not be removed, or "".
std::string worth_keeping(image::Image& image) {
  if (image::is_brought_out(image)) {
    return {};
  }
  const auto& emptied = image.filesystem->recovery().emptied;
  if (const auto missing = image::what_is_missing(image); !missing.empty()) {
    return missing + "; its other contents are unknown";
  }
  if (!image.missing.empty() && !emptied.empty()) {
    return std::to_string(emptied.size()) +
           " files are in a missing backend: " + image.missing.front();
  }
  if (!emptied.empty()) {
    return std::to_string(emptied.size()) + " files have lost their containers, first /" +
           emptied.front();
  }
  const auto holdings = image::holdings_of(image);
  if (!holdings) {
    return describe(holdings.error());
  }
  const auto further = holdings->unsaved_files == 0 ? image::left_to_do(image) : 0;
  if (!further) {
    return describe(further.error());
  }
  if (*further > 0) {
    return std::to_string(*further) +
           " changes are not exported: directories to make, inputs to remove, or results that "
           "results-dir has lost";
  }
  if (holdings->unsaved_files == 0) {
    return {};
  }
  return std::to_string(holdings->unsaved_files) + " files and links (" +
         format_bytes(holdings->unsaved_bytes) + ") have no other copy";
}

// Returns the other commands for this store. A start on a store with losses would continue without
// the lost files, so the text recommends a salvage first.
std::string ways_out_of(const image::Image& image, const std::string& name) {
  const bool is_whole = image::what_is_missing(image).empty() && image.missing.empty() &&
                        (image.rebooted || image.filesystem->recovery().emptied.empty());
  if (!image.manifest_problem.empty()) {
    return "Export the results: efs salvage --to DIRECTORY " + name;
  }
  if (is_whole) {
    return "Export the results: efs salvage " +
           std::string(image.job_problem.empty() ? "" : "--to DIRECTORY ") + name +
           (config::is_of_batch_job(image.manifest.name)
                ? ""
                : "; or continue: " +
                      config::start_command(image.manifest.job_file, image.manifest.start_options));
  }
  return "See what is damaged: efs check-image " + name + "; export the rest: efs salvage " + name;
}

// `name`: the user's name for the store.
Status refuse_loss(const std::string& path, const std::string& name) {
  if (const auto contents = image::contents_without_journal(path); contents > 0) {
    return fail(ENOTEMPTY,
                name + " is not removed: " + std::to_string(contents) +
                    " containers have content, and their journal (meta/journal) is missing. "
                    "Restore the journal, or discard the containers: efs clean --force " +
                    name);
  }
  const std::string refused = name + " is not removed: ",
                    give_up = "; or discard it: efs clean --force " + name;
  auto image = image::open_image(path);
  if (!image && image.error().code == ENOENT && !has_journal(path)) {
    return {};
  }
  if (!image && image.error().code == EBUSY) {
    return fail(EBUSY, refused + describe(image.error()));
  }
  if (!image) {
    const bool is_newer = image.error().code == EPROTONOSUPPORT;
    return fail(ENOTEMPTY, refused + describe(image.error()) +
                               (is_newer ? "" : ". See what is damaged: efs check-image " + name) +
                               give_up);
  }
  const std::string why = worth_keeping(*image);
  return why.empty() ? Status{}
                     : fail(ENOTEMPTY, refused + why + ". " + ways_out_of(*image, name) + give_up);
}

bool is_in(const std::string& path, const std::string& directory) {
  return path.starts_with(directory + "/");
}

// Has another instance continued with the store of this one, which had nothing left to lose?
bool is_used_since(const image::Manifest& instance) {
  const auto store = image::find_removable(instance.store);
  if (!store || image::is_being_removed(store->metadata.get())) {
    return false;
  }
  const auto own = image::read_manifest(store->metadata.get());
  return !own || !image::was_over(instance, *own);
}

Status refuse_loss(const control::Instance& instance) {
  struct stat st{};
  const bool had_store =
      ::stat((instance.directory + "/" + image::manifest_name).c_str(), &st) == 0;
  const auto manifest = manifest_of(instance);
  // A stop had exported everything, and the process died before it removed the store. Only the
  // instance's manifest records this, not the store.
  if (manifest && manifest->left == image::ShutdownState::over && !is_used_since(*manifest)) {
    return {};
  }
  if (manifest && image::is_out_of_reach(*manifest, instance.directory)) {
    return fail(ENOTEMPTY,
                instance.name + " is not removed: " + image::out_of_reach_text(*manifest));
  }
  return had_store || manifest || image::find_store(instance.directory)
             ? refuse_loss(instance.directory, instance.name)
             : Status{};
}

// Returns a text about a store that has lost its journal; "" if its removal has only been
// interrupted.
std::string text_of_lost_store(const control::Instance& instance, const std::string& path) {
  const auto store = image::find_removable(path);
  if (store && image::is_being_removed(store->metadata.get())) {
    return {};
  }
  struct stat st{};
  if (!store && !is_in(path, instance.directory) && ::lstat(path.c_str(), &st) == 0) {
    return "its store " + path +
           " was not removed: its journal (meta/journal) is lost, and its contents are unknown. "
           "Remove it: rm -r " +
           as_word(path);
  }
  return "its store " + path + " was gone, with the results that were not exported";
}

// Returns a text about unsaved contents that no longer exist or cannot be removed; "": none.
std::string lost_with_store(const control::Instance& instance) {
  const auto manifest = manifest_of(instance);
  const bool began = ::faccessat(AT_FDCWD, (instance.directory + "/job.yaml").c_str(), F_OK,
                                 AT_SYMLINK_NOFOLLOW) == 0;
  if (!manifest &&
      (manifest.error().code == EPROTO || (manifest.error().code == ENOENT && began))) {
    return "the path of its store is unknown (" + describe(manifest.error()) +
           "): a store in memory is gone; a store on a disk is still there unless empty. List it: "
           "efs ls --instances; export it: efs salvage JOBFILE";
  }
  if (!manifest ||
      (manifest->left != image::ShutdownState::in_use &&
       manifest->left != image::ShutdownState::unsaved) ||
      has_journal(manifest->store)) {
    return {};
  }
  return text_of_lost_store(instance, manifest->store);
}

Status remove_directory(const UniqueFd& root, const std::string& path) {
  EFS_TRY(image::remove_content(root.get(), path));
  return ::rmdir(path.c_str()) == 0 ? Status{} : fail_errno(path);
}

// Removes a backend other than the first, if it exists, belongs to this user, and its manifest
// names this instance.
Status remove_member(const image::Manifest& manifest, unsigned place) {
  const std::string& path = manifest.members[place].path;
  const UniqueFd root(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st{};
  if (!root || ::fstat(root.get(), &st) != 0 || st.st_uid != ::geteuid()) {
    return {};
  }
  const auto own = image::recover_manifest(root.get());
  // The manifest is removed last. A backend without a readable manifest may belong to another
  // instance, or be damaged.
  if (!own && image::holds_contents(root.get())) {
    return fail(EEXIST, path + " holds containers of an unknown instance (" +
                            describe(own.error()) +
                            "): it was not removed. Check it, remove it (rm -r " + as_word(path) +
                            "), and run efs clean again");
  }
  const UniqueFd lock(::openat(root.get(), "lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(EBUSY, path + " is in use");
  }
  if (!own) {
    const auto gone = own.error().code == ENOENT ? image::remove_remnant(root.get(), path) : false;
    return gone ? Status{} : std::unexpected(gone.error());
  }
  if (own->name != manifest.name || own->store != manifest.store || own->place != place) {
    return {};
  }
  return remove_directory(root, path);
}

std::string state_of_store(const std::string& path) {
  const auto store = image::find_removable(path);
  return store ? control::state_of_manifest(store->metadata.get()) : "";
}

// Locks the store until it is removed, so that no start and no salvage uses it. Applies also with
// --force. `judged`: the state in which the store was found to be worthless. Another instance may
// have used the store since then and died.
Result<UniqueFd> lock_as_judged(const image::Directories& store, const std::string& judged) {
  auto lock = image::lock_store(store, image::Hold::to_change);
  if (lock && control::state_of_manifest(store.metadata.get()) != judged) {
    return fail(EBUSY, store.path + " has been used meanwhile, and is not removed; try again");
  }
  return lock;
}

// Removes the backends outside `directory`, which may be "". The first backend goes later: it leads
// to the others.
Status remove_members(const image::Manifest& manifest, const std::string& directory) {
  for (std::size_t place = manifest.members.size(); place-- > 1;) {
    if (directory.empty() || !is_in(manifest.members[place].path, directory)) {
      EFS_TRY(remove_member(manifest, static_cast<unsigned>(place)));
    }
  }
  return {};
}

// `path`: of the store; `manifest`: of the store; `directory`: of the instance, not removed here,
// or "". Calls `begin` when no other process can use the store any more.
Status remove_elsewhere(const std::string& directory, const std::string& path,
                        const image::Manifest& manifest, const std::string& judged,
                        const std::function<void()>& begin) {
  const auto store = image::find_removable(path);
  const bool own = store && store->owner == ::geteuid();
  const auto lock = own ? lock_as_judged(*store, judged) : Result<UniqueFd>(UniqueFd());
  if (!lock) {
    return std::unexpected(lock.error());
  }
  begin();
  if (manifest.made_mount_dir) {
    ::rmdir(manifest.mount_dir.c_str());
  }
  // Without the journal the other backends belong to no store. Record the removal before the
  // journal goes.
  if (own && manifest.members.size() > 1) {
    EFS_TRY(image::begin_removal(store->metadata.get()));
  }
  EFS_TRY(remove_members(manifest, directory));
  return !own || (!directory.empty() && is_in(path, directory))
             ? Status{}
             : remove_directory(store->root, store->path);
}

// Runs with the rights of the store's owner and follows no symbolic link of the owner.
Status remove_own_store(const std::string& path, bool force) {
  const auto store = image::find_removable(path);
  if (!store) {
    return std::unexpected(store.error());
  }
  if (store->owner != ::geteuid()) {
    return fail(EPERM, path + " belongs to user " + std::to_string(store->owner));
  }
  const std::string judged = control::state_of_manifest(store->metadata.get());
  if (!force && !image::is_being_removed(store->metadata.get())) {
    EFS_TRY(refuse_loss(store->path, store->path));
  }
  const auto manifest = image::recover_manifest(store->metadata.get());
  return remove_elsewhere("", store->path, manifest ? *manifest : image::Manifest(), judged, [] {});
}

// Removes a store whose instance directory is gone: a restart of the machine has emptied /run.
Result<std::string> clean_store(const std::string& path, bool force) {
  const auto store = image::find_removable(path);
  if (!store) {
    return std::unexpected(store.error());
  }
  return as_owner(store->owner, [&]() -> Result<std::string> {
    EFS_TRY(remove_own_store(path, force));
    return "";
  });
}

struct Target {
  std::string name;
  // nullopt: a store without an instance; `name` is its path
  std::optional<control::Instance> instance;
};

Result<Target> target_of(const std::string& which) {
  const auto instance = find_instance(which, Meant::dead);
  if (instance) {
    return Target{instance->name, *instance};
  }
  const auto store = instance.error().code == ENOENT ? store_of(which) : std::nullopt;
  if (!store) {
    return std::unexpected(instance.error());
  }
  if (const auto owner = instance_of_store(*store)) {
    return Target{owner->name, *owner};
  }
  return Target{*store, std::nullopt};
}

// Records the end before the removal. If the removal is interrupted, the next start or clean
// continues it, as after an interrupted stop. If the record cannot be written, the removal
// continues.
void record_over(const control::Instance& instance) {
  const UniqueFd directory(
      ::open(instance.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (directory) {
    (void)image::write_left(directory.get(), image::ShutdownState::over);
  }
}

// Fails if results would be lost, unless `force`. Returns the state of the store that was judged.
Result<std::string> judge_as_owner(const control::Instance& instance, bool force) {
  return as_owner(instance.owner, [&]() -> Result<std::string> {
    const auto manifest = manifest_of(instance);
    std::string state = manifest ? state_of_store(manifest->store) : "";
    if (!force) {
      EFS_TRY(refuse_loss(instance));
    }
    return state;
  });
}

// Removes the mount of the instance, and its store outside its directory.
Status remove_as_owner(const control::Instance& instance, const image::Manifest& manifest,
                       const std::string& judged, bool force) {
  if (const Status dropped = drop_mount(manifest, instance);
      !dropped && dropped.error().code != EBUSY) {
    return dropped;
  }
  const auto removed = as_owner(instance.owner, [&]() -> Result<std::string> {
    EFS_TRY(remove_elsewhere(instance.directory, manifest.store, manifest, judged, [&] {
      if (!force) {
        record_over(instance);
      }
    }));
    return "";
  });
  return removed ? Status{} : std::unexpected(removed.error());
}

}  // namespace

// Holds the lock from the judgement to the end: otherwise a start could use the store while it is
// removed.
Result<std::string> clean_instance(const control::Instance& instance, bool force) {
  if (instance.alive) {
    return fail(EBUSY, instance.name + " is running; stop it: efs stop " + instance.name);
  }
  end_silent_mount(instance);
  const auto held = control::lock_instance(instance);
  if (!held) {
    return std::unexpected(held.error());
  }
  // A start may have used the instance since the listing, and a stop may have kept it.
  if (control::state_of_manifest(held->directory.get()) != instance.state) {
    return fail(EBUSY, instance.name + " has been used meanwhile, and is not removed; try again");
  }
  const auto judged = judge_as_owner(instance, force);
  if (!judged) {
    return std::unexpected(judged.error());
  }
  const auto lost =
      as_owner(instance.owner, [&]() -> Result<std::string> { return lost_with_store(instance); });
  if (!lost) {
    return lost;
  }
  // Check this before any change: without its store the rest of the instance would be useless.
  if (::geteuid() != 0 && !mount_points_below(instance.directory).empty()) {
    return fail(
        EPERM,
        instance.name +
            " is not removed: only root can unmount its store in memory. As root, run: efs clean " +
            instance.name);
  }
  if (const auto manifest = manifest_of(instance)) {
    EFS_TRY(remove_as_owner(instance, *manifest, *judged, force));
  }
  EFS_TRY(control::discard(instance, *held));  // removes a mount and a directory entry of root
  return *lost;
}

namespace {

Result<std::vector<Target>> targets_of(const std::vector<std::string>& names) {
  std::vector<Target> targets;
  for (const auto& name : names) {
    auto target = target_of(name);
    if (!target) {
      return std::unexpected(target.error());
    }
    targets.push_back(std::move(*target));
  }
  return targets;
}

// `kept`: also the instances that were kept on purpose.
std::vector<Target> dead_targets(bool kept) {
  std::vector<Target> targets;
  for (const auto& instance : control::list_instances()) {
    if (instance.alive) {
      continue;
    }
    const auto manifest = manifest_of(instance);
    if (kept || !manifest || manifest->left != image::ShutdownState::kept) {
      targets.push_back({instance.name, instance});
    }
  }
  return targets;
}

// `lost`: the result of the removal.
Json document_of_removal(const std::string& name, const Result<std::string>& lost) {
  Json document{{"name", name}, {"removed", lost.has_value()}};
  if (!lost) {
    document.update({{"code", lost.error().code}, {"error", describe(lost.error())}});
  } else if (!lost->empty()) {
    document["lost"] = *lost;
  }
  return document;
}

void tell_removal(World& world, const std::string& name, const Result<std::string>& lost) {
  if (lost) {
    world.out << escaped(name) << ": removed" << (lost->empty() ? "" : "; " + printable(*lost))
              << "\n";
  } else {
    report(world, lost.error());
  }
}

}  // namespace

int clean(World& world, const CleanArguments& arguments) {
  const auto chosen =
      arguments.which.empty() ? dead_targets(arguments.kept) : targets_of(arguments.which);
  if (!chosen) {
    return report(world, chosen.error());
  }
  int code = exit_good;
  Json all = Json::array();
  for (const auto& target : *chosen) {
    const auto done = target.instance ? clean_instance(*target.instance, arguments.force)
                                      : clean_store(target.name, arguments.force);
    if (!done) {
      code = exit_failure;
    }
    all.push_back(document_of_removal(target.name, done));
    if (!world.json) {
      tell_removal(world, target.name, done);
    }
  }
  if (world.json) {
    print_document(world, {{"ok", code == exit_good}, {"exit", code}, {"instances", all}});
  } else if (chosen->empty()) {
    world.out << "nothing to remove\n";
  }
  return code;
}

}  // namespace efs::cli
