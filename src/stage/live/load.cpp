// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/load.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <ranges>

#include "base/mutex.hpp"
#include "base/text.hpp"
#include "config/paths.hpp"
#include "stage/live/live_transfer.hpp"
#include "stage/pfs/coarse_mtime.hpp"
#include "stage/plan/hard_links.hpp"
#include "stage/plan/placement.hpp"
#include "stage/resume/resume.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::stage {
namespace {

/// Ignores ctime, because a chmod or a new link on the PFS does not change the content. Ignores the
/// device, whose number may change when the PFS is mounted again. For a changed and exported file
/// only the copy in results-dir counts.
bool has_version(const fs::WalkItem& item, const fs::Origin& version) {
  const auto& known = item.pfs.on_pfs();
  return !item.pfs.dirty && known && known->inode == version.inode && known->size == version.size &&
         known->mtime == version.mtime;
}

bool is_whole(const fs::WalkItem& item) {
  return item.pfs.parts.empty() && item.content.unreadable.empty() && !item.content.remote;
}

/// The buffer as stage_in() sees it during a load. It keeps published files unnamed until all are
/// complete.
class LoadBuffer final : public ImportSink {
 public:
  explicit LoadBuffer(fs::Staging& staging) : staging_(staging) {}

  /// Frees the files without a name.
  ~LoadBuffer() override {
    for (const auto& file : files_) {
      staging_.abandon(file.ino);
    }
  }

  Result<fs::OpenContainer> begin_open_file_at(unsigned place) override {
    return staging_.begin_open_file_at(place);
  }

  Result<fs::OpenContainer> adopt_file(Container& other) override {
    return staging_.adopt_file(other);
  }

  void abandon(std::uint64_t ino) override { staging_.abandon(ino); }

  std::size_t publish_files(std::span<const fs::StagedFile> files, Status& failed) override {
    const MutexLock lock(mutex_);
    files_.insert(files_.end(), files.begin(), files.end());
    failed = {};
    return files.size();
  }

  /// Load::publish() makes them.
  Status link_files(const std::string&, std::span<const std::string>) override { return {}; }

  Status make_directory(const std::string&, const fs::StagedAttributes&) override { return {}; }

  Status make_symlink(const std::string&, const std::string&,
                      const fs::StagedAttributes&) override {
    return {};
  }

  Status set_xattrs(const std::string& path,
                    const std::map<std::string, std::string>& xattrs) override {
    const MutexLock lock(mutex_);
    if (!xattrs.empty()) {
      xattrs_[path] = xattrs;
    }
    return {};
  }

  Status record_directory(const std::string& path, std::uint64_t version) override {
    const MutexLock lock(mutex_);
    versions_[path] = version;
    return {};
  }

  /// Empty, because the plan already leaves out the files in the buffer.
  Result<std::vector<fs::WalkItem>> look(const Plan&) override {
    return std::vector<fs::WalkItem>();
  }

  /// The whole files that need their names; the caller now owns them.
  std::vector<fs::StagedFile> take() {
    const MutexLock lock(mutex_);
    return std::exchange(files_, {});
  }

  /// The extended attributes of directories, by path.
  std::map<std::string, std::map<std::string, std::string>> take_xattrs() {
    const MutexLock lock(mutex_);
    return std::exchange(xattrs_, {});
  }

  std::map<std::string, std::uint64_t> take_versions() {
    const MutexLock lock(mutex_);
    return std::exchange(versions_, {});
  }

 private:
  fs::Staging& staging_;
  Mutex mutex_;  // rank 90 (leaf)
  std::vector<fs::StagedFile> files_ EFS_GUARDED_BY(mutex_);
  std::map<std::string, std::map<std::string, std::string>> xattrs_ EFS_GUARDED_BY(mutex_);
  std::map<std::string, std::uint64_t> versions_ EFS_GUARDED_BY(mutex_);
};

class Load : LiveTransfer {
 public:
  Load(const LiveArguments& with, const LoadRequest& request)
      : LiveTransfer(with), request_(request) {}

  ~Load() {
    for (const auto& file : files_) {
      staging_.abandon(file.ino);
    }
  }

  LoadReport run() {
    const auto started = std::chrono::steady_clock::now();
    auto plan = planned();
    if (plan && has_turn(data_of(*plan)) && !plan->entries.empty()) {
      if (request_.part.whole()) {
        load_all(*plan);
      } else {
        load_part(*plan);
      }
    }
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return std::move(report_);
  }

 private:
  void failed(const std::string& path, Error error) {
    if (!report_.failure) {
      report_.failure = StageFailure{path, std::move(error)};
    }
  }

  bool has_turn(std::uint64_t bytes) {
    const Status turn = wait_for_turn(bytes);
    if (!turn) {
      failed("", turn.error());
    }
    return turn.has_value();
  }

  /// The resource that a name of the request stands for.
  config::Resource requested(const std::string& name) {
    config::Resource resource;
    const std::string source = config::source_of(config_, name);
    if (source != name) {
      resource.as = name;
    }
    resource.path = source.empty()
                        ? config_.root_dir
                        : (config_.root_dir == "/" ? "" : config_.root_dir) + "/" + source;
    resource.is_glob = config::has_wildcard(name) && resource.as.empty() &&
                       !pfs_.lstat(no_directory, resource.path);
    resource.reusable = is_reusable(resource.path);
    return resource;
  }

  static Error first_of(const std::vector<PlanProblem>& problems) {
    const auto& first = problems.front();
    const auto more = problems.size() - 1;
    const bool missing =
        first.reason.starts_with("does not exist") || first.reason.starts_with("no file");
    return {missing ? ENOENT : EINVAL,
            first.path + ": " + first.reason +
                (more > 0 ? " (and " + std::to_string(more) + " more)" : "")};
  }

  /// The plan, after all checks; nullopt if a check has failed.
  std::optional<Plan> planned() {
    config::JobConfig config = config_;
    config.resources.clear();
    config.results_dir.clear();
    for (const auto& name : request_.names) {
      config.resources.push_back(requested(name));
    }
    auto plan = make_plan(config, pfs_);
    if (!plan) {
      failed("", plan.error());
      return std::nullopt;
    }
    if (!plan->problems.empty()) {
      failed("", first_of(plan->problems));
      return std::nullopt;
    }
    if (!request_.part.whole() && !only_one_file(*plan)) {
      return std::nullopt;
    }
    leave_out_what_is_there(*plan);
    if (report_.failure || !fits(*plan)) {
      return std::nullopt;
    }
    return std::move(*plan);
  }

  /// True if a resource of the job file that contains the path is reusable.
  bool is_reusable(const std::string& path) const {
    return std::ranges::any_of(config_.resources, [&](const config::Resource& r) {
      return r.reusable && (r.is_glob ? config::glob_match(r.path.substr(1), path.substr(1))
                                      : config::is_within(path, r.path));
    });
  }

  bool only_one_file(const Plan& plan) {
    if (plan.files != 1 || request_.names.size() != 1 ||
        plan.entries.back().path != request_.names.front()) {
      failed("", {EINVAL, "a part can be loaded of one regular file only"});
      return false;
    }
    if (auto part = clipped(request_.part, plan.entries.back().size); !part) {
      failed(plan.entries.back().path, part.error());
      return false;
    }
    return true;
  }

  void leave_out_what_is_there(Plan& plan) {
    std::erase_if(plan.entries, [&](const PlanEntry& entry) { return is_there(entry); });
    group_links(plan.entries);
    sum_up(plan);
  }

  /// True if the buffer already has the entry. An entry that must not be replaced is a failure.
  bool is_there(const PlanEntry& entry) {
    auto found = staging_.find(entry.path);
    if (!found) {
      // The parent is not a directory, or the container cannot be read: publishing would fail as
      // well.
      if (found.error().code != ENOENT) {
        failed(entry.path, found.error());
      }
      return false;
    }
    switch (entry.type) {
      case EntryType::directory: return is_directory_there(entry, *found);
      case EntryType::symlink: return is_link_there(entry, *found);
      case EntryType::file: break;
    }
    return is_file_there(entry, *found);
  }

  bool is_directory_there(const PlanEntry& entry, const fs::WalkItem& found) {
    if (!S_ISDIR(found.attributes.st_mode)) {
      failed(entry.path, {ENOTDIR, "is in the buffer and is not a directory"});
    }
    return true;
  }

  bool is_link_there(const PlanEntry& entry, const fs::WalkItem& found) {
    if (!S_ISLNK(found.attributes.st_mode) || found.target != entry.target) {
      failed(entry.path, {EEXIST, "is in the buffer and leads elsewhere; remove it there first"});
    }
    return ++report_.already, true;
  }

  bool is_file_there(const PlanEntry& entry, const fs::WalkItem& found) {
    if (!S_ISREG(found.attributes.st_mode)) {
      return failed(entry.path,
                    {EISDIR, "is in the buffer and is not a regular file; remove it there first"}),
             true;
    }
    const bool same = has_version(found, entry.origin);
    if (same && is_whole(found)) {
      return ++report_.already, true;
    }
    // more parts or the whole file replace parts or an unreadable file
    if (!same) {
      check_replaceable(entry, found);
    }
    return false;
  }

  /// Fails the load if the request does not permit it to replace this file of another version.
  void check_replaceable(const PlanEntry& entry, const fs::WalkItem& found) {
    if (!request_.replace) {
      failed(entry.path,
             {EEXIST, found.pfs.dirty
                          ? "is in the buffer and differs from the PFS; --replace --force would "
                            "drop what is there"
                          : "is in the buffer in another version than the PFS has; use --replace"});
    } else if (found.pfs.dirty && !request_.force) {
      failed(
          entry.path,
          {EBUSY, "was changed in the buffer; unload it first, or drop the change with --force"});
    }
  }

  /// The space that the data of an entry take.
  static std::uint64_t needed_by(const PlanEntry& entry) {
    return entry.link_to.empty() ? rounded(std::min(entry.size, entry.allocated)) : 0;
  }

  /// The same for the requested part of a file that takes `whole`.
  std::uint64_t needed_by_part(std::uint64_t whole) const {
    return request_.part.length == 0 ? whole : std::min(whole, request_.part.length);
  }

  bool find_places(Plan& plan) {
    const auto available = staging_.available_by_place();
    for (auto& entry : plan.entries) {
      entry.needed = needed_by(entry);
    }
    if (!request_.part.whole()) {
      plan.entries.back().needed = needed_by_part(plan.entries.back().needed);
    }
    const auto named = config::find_backend(config_, request_.backend);
    place_entries(config_, plan, Rooms(available.begin(), available.end()),
                  named ? std::optional(static_cast<unsigned>(*named)) : std::nullopt);
    if (plan.problems.empty()) {
      return true;
    }
    failed("", {ENOSPC, plan.problems.front().reason});
    return false;
  }

  bool fits(Plan& plan) {
    std::uint64_t needed = 0;
    for (const auto& entry : plan.entries) {
      needed += needed_by(entry);
    }
    if (!request_.part.whole()) {
      needed = needed_by_part(needed);
    }
    if (config_.backends.size() > 1) {
      return find_places(plan);
    }
    auto available = staging_.available_bytes();
    if (available) {
      *available -= std::min(*available, staging_.reserved_bytes());
    }
    if (!available || needed <= *available) {
      return true;
    }
    failed("",
           {ENOSPC, format_bytes(needed) + " are to be loaded and the buffer takes " +
                        format_bytes(*available) + " more; unload with --remove, or load less"});
    return false;
  }

  fs::Over over() const {
    return !request_.replace ? fs::Over::nothing
           : request_.force  ? fs::Over::anything
                             : fs::Over::clean;
  }

  void load_all(const Plan& plan) {
    if (const Status done = disown_others(config_, plan, staging_); !done) {
      return failed("", done.error());
    }
    LoadBuffer buffer(staging_);
    StageReport staged = stage_in(plan, buffer, pfs_, options_, progress_);
    if (!staged.ok()) {
      return failed(staged.failure->path, std::move(staged.failure->error));
    }
    directory_xattrs_ = buffer.take_xattrs();
    directory_versions_ = buffer.take_versions();
    files_ = buffer.take();
    std::ranges::sort(files_, std::greater{}, &fs::StagedFile::path);
    publish(plan);
  }

  /// A name that this load gave.
  struct Published {
    std::string path;
    std::uint64_t ino = 0;
    bool in_place_of = false;  // it replaced another file, which no longer exists
    std::optional<std::uint64_t> bytes = std::nullopt;  // of a file
  };

  /// Call it after the name was given. Does not throw, because give_names() has reserved the
  /// memory: an unrecorded name would not be taken back.
  void note(Published given) {
    if (given.bytes) {
      ++report_.files;
      report_.bytes += *given.bytes;
    }
    published_.push_back(std::move(given));
  }

  /// Finds names that programs made, and changes that they made, during the import. Runs before the
  /// first name appears.
  void look_again(const Plan& plan) {
    const auto already = report_.already;
    for (const auto& entry : plan.entries) {
      if (!report_.failure) {
        (void)is_there(entry);
      }
    }
    report_.already = already;
  }

  /// After a failed publish() removes all its names, except files that replaced others, and files
  /// and directories that a program has changed or filled.
  void take_back() {
    for (const auto& one : std::views::reverse(published_)) {
      if (one.in_place_of || !staging_.take_back(one.path, one.ino) || !one.bytes) {
        continue;
      }
      --report_.files;
      report_.bytes -= *one.bytes;
    }
    Error& error = report_.failure->error;
    if (report_.files > 0) {
      error.what =
          describe(error) + " (" + std::to_string(report_.files) + " other files were loaded)";
    }
  }

  /// Gives all names in quick succession: directories, links, files.
  void publish(const Plan& plan) {
    std::vector<const PlanEntry*> made;
    try {
      give_names(plan, made);
    } catch (const std::bad_alloc&) {
      failed("", {ENOMEM, "out of memory"});
    }
    if (report_.failure) {
      take_back();
    }
    if (options_.placed != nullptr && config::has_results_in_place(config_)) {
      forget_staged(plan, pfs_, staging_, *options_.placed);
    }
    // Children first: each new name has changed the times of its directory. Errors here are no
    // failure, because everything else is done.
    try {
      for (const auto* entry : std::views::reverse(made)) {
        (void)staging_.settle_directory(entry->path, entry->attributes);
      }
    } catch (const std::bad_alloc&) {
    }
  }

  /// `made` gets the new directories.
  void give_names(const Plan& plan, std::vector<const PlanEntry*>& made) {
    published_.reserve(plan.entries.size() + files_.size());
    made.reserve(plan.entries.size());
    look_again(plan);
    for (const auto& entry : plan.entries) {
      make(entry, made);
    }
    while (!report_.failure && !files_.empty()) {
      publish_one();
    }
    for (const auto& entry : plan.entries) {
      link_one(entry);
    }
  }

  /// A directory or a symbolic link.
  void make(const PlanEntry& entry, std::vector<const PlanEntry*>& made) {
    if (report_.failure || entry.type == EntryType::file) {
      return;
    }
    Published given{.path = entry.path};
    const bool is_directory = entry.type == EntryType::directory;
    const auto added =
        is_directory
            ? staging_.add_directory(entry.path, entry.attributes, directory_xattrs_[entry.path])
            : staging_.add_symlink(entry.path, entry.target, entry.attributes);
    if (!added) {
      return failed(entry.path, added.error());
    }
    if (*added == 0) {
      return;  // it existed before
    }
    if (is_directory) {
      record_directory(entry), made.push_back(&entry);
    }
    given.ino = *added;
    note(std::move(given));
  }

  /// Without this record a stage-out leaves the PFS's attributes unchanged.
  void record_directory(const PlanEntry& entry) {
    const auto version = directory_versions_.find(entry.path);
    if (version == directory_versions_.end() ||
        !staging_.record_directory(entry.path, version->second)) {
      return;
    }
    if (options_.placed != nullptr && config::has_results_in_place(config_)) {
      record_came_in(entry, staging_, *options_.placed);
    }
  }

  /// Publishes the last file of files_ and removes it from the list.
  void publish_one() {
    const fs::StagedFile& file = files_.back();
    Published given{.path = file.path,
                    .ino = file.ino,
                    .in_place_of = staging_.find(file.path).has_value(),
                    .bytes = file.origin.size};
    Status done = staging_.publish_over(file, over_of(file.path, file.origin), parts_);
    if (!done) {
      return failed(given.path, std::move(done.error()));
    }
    files_.pop_back();
    note(std::move(given));
  }

  /// A further name of a file that publish_one() has given its first.
  void link_one(const PlanEntry& entry) {
    if (entry.link_to.empty() || report_.failure) {
      return;
    }
    const auto first = staging_.find(entry.link_to);
    Published given{.path = entry.path,
                    .ino = first ? first->ino : 0,
                    .in_place_of = staging_.find(entry.path).has_value(),
                    .bytes = 0};
    auto done = staging_.link_files(entry.link_to, std::span(&entry.path, 1),
                                    over_of(entry.path, entry.origin));
    if (done) {
      note(std::move(given));
    } else {
      failed(entry.path, std::move(done.error()));
    }
  }

  /// The whole file, or more parts, may replace parts of the same version without `replace`.
  fs::Over over_of(const std::string& path, const fs::Origin& origin) {
    auto there = staging_.find(path);
    const bool is_lacking = there && !is_whole(*there) && has_version(*there, origin);
    return is_lacking && over() == fs::Over::nothing ? fs::Over::clean : over();
  }

  void load_part(Plan& plan) {
    const PlanEntry entry = plan.entries.back();
    auto part = clipped(request_.part, entry.size);
    if (!part) {
      return failed(entry.path, part.error());
    }
    std::vector<Part> parts{*part};
    if (auto there = staging_.find(entry.path); there && has_version(*there, entry.origin)) {
      for (const auto& known : parts_of(there->pfs.parts)) {
        parts = united(std::move(parts), known);
      }
      // programs expect the whole content of a remote file
      if (there->content.remote) {
        parts = {{.offset = 0, .length = entry.size}};
      }
    }
    if (parts.size() != 1 || parts.front().length != entry.size) {
      parts_ = to_text(parts);
    }
    fs::StagedFile file{
        .ino = 0, .path = entry.path, .attributes = entry.attributes, .origin = entry.origin};
    files_.reserve(1);
    auto container = staging_.begin_open_file_at(entry.place);
    if (!container) {
      return failed(entry.path, container.error());
    }
    file.ino = container->ino;
    files_.push_back(std::move(file));
    const Status done = fill_parts(*container->container, entry, parts, files_.back());
    container->container.reset();
    if (!done) {
      return failed(entry.path, done.error());
    }
    plan.entries.pop_back();
    publish(plan);  // with their parent directories
    if (!report_.failure) {
      report_.bytes = progress_.bytes_done;
    }
  }

  Status fill_parts(Container& container, const PlanEntry& entry, const std::vector<Part>& parts,
                    fs::StagedFile& file) {
    std::uint64_t bytes = 0;
    for (const auto& part : parts) {
      bytes += part.length;
    }
    progress_.begin(1, bytes);
    let_second_pass(entry.origin, progress_.cancel);
    auto root = pfs_.open(no_directory, config_.root_dir, passage_flags);
    if (!root) {
      return std::unexpected(root.error());
    }
    auto source = pfs_.open_beneath(*root, entry.from(), O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (!source) {
      return std::unexpected(source.error());
    }
    Scratch scratch(options_.transfer_size);
    const PfsContent from(pfs_, *source);
    const ContainerContent to(container);
    for (const auto& part : parts) {
      EFS_TRY(copy_part({.source = from, .destination = to, .progress = progress_}, part, scratch));
    }
    EFS_TRY(container.truncate(entry.size));
    auto now = pfs_.fstat(*source);
    if (!now) {
      return std::unexpected(now.error());
    }
    if (now->st_ino != entry.origin.inode ||
        static_cast<std::uint64_t>(now->st_size) != entry.size ||
        to_ns(now->st_mtim) != entry.origin.mtime) {
      return fail(ESTALE, "changed while it was being read");
    }
    auto xattrs = pfs_.xattrs(*source);
    if (!xattrs) {
      return std::unexpected(xattrs.error());
    }
    file.xattrs = std::move(*xattrs);
    ++progress_.files_done;
    return {};
  }

  const LoadRequest& request_;
  // by path, of directories that have any
  std::map<std::string, std::map<std::string, std::string>> directory_xattrs_;
  std::map<std::string, std::uint64_t> directory_versions_;
  // unnamed files, whole or incomplete; the destructor frees them. By path, in reverse order
  std::vector<fs::StagedFile> files_;
  std::string parts_;  // of the one file of which a part is loaded
  std::vector<Published> published_;
  LoadReport report_;
};

}  // namespace

LoadReport load(const LiveArguments& with, const LoadRequest& request) {
  try {
    return Load(with, request).run();
  } catch (const std::exception& exception) {
    LoadReport report;
    report.failure = StageFailure{"", {ENOMEM, std::string("load: ") + exception.what()}};
    return report;
  }
}

}  // namespace efs::stage
