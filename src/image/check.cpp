// SPDX-License-Identifier: BSD-3-Clause
#include "image/check.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>

#include "base/text.hpp"
#include "fs/ledger_records.hpp"
#include "fs/moved.hpp"
#include "fs/namespace.hpp"
#include "fs/seal.hpp"
#include "image/check_extents.hpp"
#include "image/check_tree.hpp"
#include "image/contents.hpp"
#include "image/image.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::image {
namespace {

class Check {
 public:
  explicit Check(const Directories& store) : store_(store) { report_.path = store.path; }

  Result<CheckReport> run() {
    check_manifest();
    const auto replayed = replay();
    if (!replayed) {
      return std::unexpected(replayed.error());
    }
    if (!*replayed) {
      return std::move(report_);
    }
    check_names();
    check_containers();
    check_space();
    return std::move(report_);
  }

 private:
  void find(Severity severity, std::string object, std::string text) {
    report_.findings.push_back({severity, std::move(object), std::move(text)});
  }

  void check_manifest() {
    auto manifest = read_manifest(store_.metadata.get());
    const std::string problem = manifest ? "" : "meta/" + describe(manifest.error());
    if (!manifest) {
      manifest = recover_manifest(store_.metadata.get());
    }
    if (!manifest) {
      return find(Severity::damage, "manifest", problem + ": the job is unknown");
    }
    if (!problem.empty()) {
      find(Severity::damage, "manifest",
           problem +
               "; its previous version is good. Export the results, and repair it: efs salvage "
               "--to DIR");
    }
    if (const auto job = job_of(store_.metadata.get(), *manifest); !job) {
      find(Severity::damage, "job file",
           "meta/" + describe(job.error()) +
               ": its rules are lost. Export all files that the job made or changed: efs salvage "
               "--to DIR; or continue: efs start JOBFILE");
    } else {
      capacity_ = declared_capacity(*job);
    }
    rebooted_ = manifest->boot_id != boot_id();
    manifest_ = std::move(*manifest);
    if (rebooted_) {
      find(Severity::note, "manifest", "the machine was restarted since it was last in use");
    }
  }

  /// Returns the capacity of all backends together; nullopt if a backend declares none.
  static std::optional<std::uint64_t> declared_capacity(const config::JobConfig& job) {
    std::uint64_t sum = 0;
    for (const auto& backend : job.backends) {
      if (!backend.capacity) {
        return {};
      }
      sum += *backend.capacity;
    }
    return sum;
  }

  // Programs may exceed an advisory capacity by writes through passthrough, and the job file of a
  // later start may declare a smaller one.
  void check_space() {
    if (capacity_ && own_bytes_ > *capacity_) {
      find(Severity::note, "space",
           "the containers have " + format_bytes(own_bytes_) +
               ", and the job file declares a capacity of " + format_bytes(*capacity_) +
               ": nothing new can be written");
    }
  }

  // Returns false if no namespace could be replayed. EPROTONOSUPPORT if a newer efs wrote it.
  Result<bool> replay() {
    struct stat st{};
    if (::fstatat(store_.metadata.get(), "journal.new", &st, AT_SYMLINK_NOFOLLOW) == 0) {
      find(Severity::leftover, "journal.new", "a snapshot that was not finished");
    }
    const auto end = replay_names(store_, manifest_, rebooted_, names_);
    if (!end && end.error().code == EPROTONOSUPPORT) {
      return fail(EPROTONOSUPPORT, store_.path + ": " + describe(end.error()));
    }
    if (!end) {
      find(Severity::damage, "journal", describe(end.error()));
      return false;
    }
    if (end->version != store::journal_version) {
      find(Severity::note, "journal",
           "it has format " + std::to_string(end->version) +
               "; a start or --repair makes it format " + std::to_string(store::journal_version));
    }
    if (end->skipped != 0) {
      find(Severity::note, "journal",
           "it has records of a newer efs that this one skips, " + std::to_string(end->skipped) +
               " in number; the next snapshot drops them");
    }
    journal_damaged_ = is_damaged(*end, rebooted_);
    report_.records = end->records;
    report_.journal_bytes = end->size;
    if (end->cut_short && !rebooted_) {
      find(
          Severity::damage, "journal",
          "it is cut short: it ends at " + std::to_string(end->size) + " bytes, among its records");
    }
    report_end(*end);
    return true;
  }

  // Reports what lies behind the last good record.
  void report_end(const store::ReplayEnd& end) {
    const std::string behind = "the data behind record " + std::to_string(end.sequence) +
                               " does not verify",
                      good = "; the " + std::to_string(end.records) + " records before it are good";
    if (end.settled) {
      find(Severity::damage, "journal",
           behind + ", and good records follow: it was damaged after it had reached the medium" +
               good);
    } else if (end.followed && !rebooted_) {
      find(Severity::damage, "journal",
           behind + ", and good records follow: it was damaged, or put together of parts" + good);
    } else if (end.spoilt && !rebooted_) {
      find(Severity::damage, "journal", behind + ", and was whole once: it was damaged" + good);
    } else if (end.incomplete) {
      find(Severity::damage, "journal",
           "it ends at record " + std::to_string(end.sequence) + ", and had all up to " +
               std::to_string(end.complete_to) +
               ": it is damaged, cut short, or older than its store; the " +
               std::to_string(end.records) +
               " records before that are good; the files of the others are unknown");
    } else if (end.torn) {
      find(Severity::leftover, "journal",
           behind + ": power loss or a kill cut a record short, or damage" + good);
    }
  }

  void check_names() {
    Tree tree = check_tree(names_);
    for (auto& [object, text] : tree.damage) {
      find(Severity::damage, std::move(object), std::move(text));
    }
    report_.files = tree.files;
    report_.directories = tree.directories;
    report_.others = tree.others;
    paths_ = std::move(tree.paths);
  }

  void check_containers() {
    auto backends = open_backends(store_, manifest_, true);
    if (!backends) {
      return find(Severity::damage, "data", describe(backends.error()));
    }
    compare_contents(*backends->backend);
    std::set<std::uint64_t> there;
    const Status placed = fs::place_moved(names_, *backends->backend);
    const Status listed =
        placed ? backends->backend->for_each([&](std::uint64_t id) { there.insert(id); }) : placed;
    if (!listed) {
      return find(Severity::damage, "data", describe(listed.error()));
    }
    for (const auto& missing : backends->missing) {
      find(Severity::damage, "backend", missing);
    }
    report_.containers = there.size();
    for (const auto id : there) {
      check_container(*backends->backend, id);
    }
    if (made_ahead_ > 0) {
      find(Severity::note, "containers",
           std::to_string(made_ahead_) +
               " that no file uses are empty: the daemon makes some ahead" +
               (journal_damaged_ ? "" : "; a start removes them"));
    }
    check_files(*backends->backend, there);
    check_extents(*backends->backend, there);
  }

  void compare_contents(Backend& backend) {
    auto changed = changed_contents(store_.metadata.get(), manifest_, backend);
    if (changed) {
      changed_ = std::move(*changed);
    } else {
      find(Severity::damage, "contents", describe(changed.error()));
    }
  }

  // Reports the files that have no container in `there`.
  void check_files(Backend& backend, const std::set<std::uint64_t>& there) {
    names_.for_each([&](fs::Inode& inode) {
      if (!inode.is_regular() || inode.nlink == 0 || there.contains(inode.ino)) {
        return;
      }
      if (rebooted_ && has_content(inode)) {
        find(Severity::leftover, paths_[inode.ino],
             "a clean file without its container; the PFS has it, and a start imports it again");
      } else {
        find(Severity::damage, paths_[inode.ino],
             "its container " + std::to_string(inode.ino) +
                 (is_there(backend, inode.ino) ? " is not a regular file" : " is missing"));
      }
    });
  }

  void check_extents(Backend& backend, const std::set<std::uint64_t>& there) {
    const auto place_of = [&](std::uint64_t ino) {
      return there.contains(ino) ? std::optional(backend.place_of(ino)) : std::nullopt;
    };
    for (const auto& shared : find_shared_bytes(names_, place_of)) {
      find(Severity::damage, name_of_inode(shared.ino),
           "its content and that of " + name_of_inode(shared.other) +
               " are in the same place, at byte " + std::to_string(shared.device) +
               " of the device");
    }
  }

  std::string name_of_inode(std::uint64_t ino) const {
    const auto path = paths_.find(ino);
    return path != paths_.end() ? path->second : "inode " + std::to_string(ino);
  }

  static bool is_there(Backend& backend, std::uint64_t id) {
    const auto st = backend.attributes(id);
    return st || st.error().code == EUCLEAN;
  }

  void check_container(Backend& backend, std::uint64_t id) {
    const std::string object = "container " + std::to_string(id);
    auto st = backend.attributes(id);
    if (!st) {
      return find(Severity::damage, object, describe(st.error()));
    }
    count_space(*st);
    if (!is_own_file(id, *st, object)) {
      return;
    }
    const auto opened = backend.open(id);
    if (!opened && backend.ownership(id) == Ownership::another) {
      return find(Severity::damage, paths_.contains(id) ? paths_[id] : object,
                  describe(opened.error()));
    }
    const fs::Inode* inode = names_.find(id);
    if (inode == nullptr) {
      return check_unknown(id, *st, object);
    }
    if (!has_file(*inode, object) || !is_as_left(backend, *inode, *st, object)) {
      return;
    }
    if (!opened) {
      return record_unopened(backend, *inode, object, opened.error());
    }
    check_sharers(*st, object);
  }

  void count_space(const struct stat& st) {
    report_.bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
    // a shared container belongs to the cache, not to the job
    if (st.st_nlink == 1) {
      own_bytes_ += static_cast<std::uint64_t>(st.st_blocks) * 512;
    }
  }

  // The checks below return false if they reported the container.

  bool is_own_file(std::uint64_t id, const struct stat& st, const std::string& object) {
    if (st.st_ino == 0) {
      return true;  // no file
    }
    if (const auto [twin, first] = inodes_.try_emplace({st.st_dev, st.st_ino}, id); !first) {
      find(Severity::damage, object,
           "is container " + std::to_string(twin->second) +
               " under another name: two files would share their content");
      return false;
    }
    if (st.st_uid != store_.owner) {
      find(Severity::damage, object, "belongs to user " + std::to_string(st.st_uid));
      return false;
    }
    return true;
  }

  bool has_file(const fs::Inode& inode, const std::string& object) {
    if (!inode.is_regular()) {
      find(Severity::leftover, object, "belongs to something that has no content");
      return false;
    }
    if (inode.nlink == 0) {
      find(Severity::leftover, object,
           "of a file that had been removed, and was still open, or not freed yet");
      return false;
    }
    return true;
  }

  bool is_as_left(Backend& backend, const fs::Inode& inode, const struct stat& st,
                  const std::string& object) {
    if (const auto wrong = contradiction(inode, st); !wrong.empty()) {
      record_contradiction(inode, object + " is not what was staged in: " + wrong,
                           backend.durability());
      return false;
    }
    if (const auto how = changed_.find(inode.container()); how != changed_.end()) {
      find(Severity::damage, paths_[inode.ino],
           object + " is not what it was when the instance was left: " + how->second);
      return false;
    }
    return true;
  }

  // Reports a container that no record names.
  void check_unknown(std::uint64_t id, const struct stat& st, const std::string& object) {
    const std::string bytes = std::to_string(st.st_size) + " bytes)";
    if (st.st_size == 0 && (id < names_.next_unused() || journal_damaged_)) {
      ++made_ahead_;
    } else if (id >= names_.next_unused() && !rebooted_) {
      find(Severity::damage, object,
           "has a number above the last of the journal (" + bytes +
               ": the journal is older than its store, or cut short; the files of the missing "
               "records are lost");
    } else if (journal_damaged_) {
      find(Severity::damage, object,
           "no record names it (" + bytes +
               ": of a file whose records are lost, or of a stage-in or a load that was not "
               "finished. Export it: efs salvage --lost");
    } else {
      find(Severity::leftover, object,
           "no record names it (" + bytes + ": a stage-in or a load that was not finished");
    }
  }

  void record_unopened(Backend& backend, const fs::Inode& inode, const std::string& object,
                       const Error& error) {
    if (rebooted_ && backend.ownership(inode.ino) == Ownership::unfinished) {
      record_emptied(inode, object);
    } else {
      find(Severity::damage, paths_[inode.ino], describe(error));
    }
  }

  void record_emptied(const fs::Inode& inode, const std::string& object) {
    const std::string& path = paths_[inode.ino];
    find(Severity::leftover, path,
         object + " is empty: power loss came before the file's first fsync; a start " +
             (has_content(inode) ? "drops the name, and imports it again if it is an input"
                                 : "creates it empty, and the stop reports it"));
    if (!has_content(inode)) {
      report_.emptied.push_back(path);
    }
  }

  void record_contradiction(const fs::Inode& inode, const std::string& what,
                            Durability durability) {
    const bool is_doubtful =
        rebooted_ && !inode.settled && durability != Durability::volatile_memory;
    if (is_doubtful) {
      find(Severity::leftover, paths_[inode.ino],
           what +
               ": power loss came before it was on the medium; a start drops the name, and imports "
               "it again");
    } else {
      find(Severity::damage, paths_[inode.ino], what);
    }
  }

  /// True if the PFS has the content of the file.
  bool has_content(const fs::Inode& inode) const {
    return names_.files().has_content(fs::ledger_node(inode));
  }

  // A clean file must equal the version on the PFS, because no program has written to its
  // container. Other files have no version to compare with.
  std::string contradiction(const fs::Inode& inode, const struct stat& st) const {
    if (!names_.files().has_imported_content(fs::ledger_node(inode))) {
      return "";
    }
    const fs::Origin& origin = names_.files().of(inode.ino).imported->version;
    const auto* content = inode.content();
    const auto size = content != nullptr ? content->size : static_cast<std::uint64_t>(st.st_size);
    if (size != origin.size) {
      return "it has " + std::to_string(size) + " bytes instead of " + std::to_string(origin.size);
    }
    return content != nullptr || stage::same_or_coarser(st.st_mtim, to_timespec(origin.mtime))
               ? ""
               : "it has another mtime";
  }

  // A name outside the store belongs to the cache, which relies on sealed files only.
  void check_sharers(const struct stat& st, const std::string& object) {
    if (st.st_nlink == 1 || is_sealed(st)) {
      return;
    }
    find(Severity::note, object,
         "has " + std::to_string(st.st_nlink - 1) +
             " names outside of the store and no seal: programs that use them see what the job "
             "writes");
  }

  const Directories& store_;
  CheckReport report_;
  fs::Namespace names_{0755, 0, 0, 0};
  std::map<std::uint64_t, std::string> paths_;               // of inodes
  std::map<std::pair<dev_t, ino_t>, std::uint64_t> inodes_;  // containers -> their inode number
  Manifest manifest_;                                        // empty if it could not be read
  bool rebooted_ = false;
  // already reported; then unknown empty containers are no further evidence
  bool journal_damaged_ = false;
  std::uint64_t made_ahead_ = 0;  // containers
  std::uint64_t own_bytes_ = 0;
  std::optional<std::uint64_t> capacity_;         // bytes
  std::map<std::uint64_t, std::string> changed_;  // from changed_contents()
};

}  // namespace

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::note: return "note";
    case Severity::leftover: return "leftover";
    case Severity::damage: return "damage";
  }
  return "?";
}

Severity CheckReport::worst() const {
  Severity worst = Severity::note;
  for (const auto& finding : findings) {
    worst = std::max(worst, finding.severity);
  }
  return worst;
}

Result<CheckReport> check_image(const std::string& path) {
  auto store = find_own_store(path);
  if (!store) {
    return std::unexpected(store.error());
  }
  auto lock = lock_store(*store, Hold::to_look);
  if (!lock) {
    return std::unexpected(lock.error());
  }
  return Check(*store).run();
}

Status repair_image(const std::string& path) {
  auto store = find_own_store(path);
  if (!store) {
    return std::unexpected(store.error());
  }
  auto lock = lock_store(*store, Hold::to_change);
  if (!lock) {
    return std::unexpected(lock.error());
  }
  auto report = Check(*store).run();
  if (!report) {
    return std::unexpected(report.error());
  }
  if (report->worst() == Severity::damage) {
    return fail(EUCLEAN,
                store->path +
                    " is damaged, and efs cannot repair it. Export what is good: efs salvage " +
                    store->path);
  }
  if (!report->emptied.empty()) {
    return fail(EUCLEAN,
                store->path + ": power loss took the content of " + report->emptied.front() +
                    (report->emptied.size() > 1
                         ? " and of " + std::to_string(report->emptied.size() - 1) + " other files"
                         : "") +
                    ", and a repair would hide this. Instead: efs salvage " + store->path +
                    " or efs start");
  }
  const auto manifest = read_manifest(store->metadata.get());
  if (!manifest) {
    return std::unexpected(manifest.error());
  }
  auto backends = open_backends(*store, *manifest, false);
  if (!backends) {
    return std::unexpected(backends.error());
  }
  auto filesystem =
      fs::Filesystem::open(*backends->backend, {.metadata_directory = store->metadata.get(),
                                                .after_power_loss = manifest->boot_id != boot_id(),
                                                .instance = manifest->instance,
                                                .journal_to = manifest->journal_to});
  return filesystem ? Status{} : std::unexpected(filesystem.error());
}

}  // namespace efs::image
