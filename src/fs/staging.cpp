// SPDX-License-Identifier: BSD-3-Clause
#include "fs/staging.hpp"

#include <fcntl.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "base/parallel_for.hpp"
#include "fs/acl.hpp"
#include "fs/filesystem.hpp"
#include "fs/ledger_records.hpp"
#include "fs/removal_reserve.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {
namespace {

Result<OpenContainer> held(std::uint64_t ino, Result<std::shared_ptr<Container>> container) {
  if (!container) {
    return std::unexpected(container.error());
  }
  return OpenContainer{.ino = ino, .container = std::move(*container)};
}

bool hands_down_group(const Inode* parent, const Inode& inode) {
  return parent != nullptr && (parent->mode & S_ISGID) != 0 && parent->gid == inode.gid;
}

std::unexpected<Error> out_of_time() {
  return fail(ECANCELED, "there was no time to list the files");
}

}  // namespace

Result<Inode*> Staging::inode_at(const std::string& path) const {
  filesystem_.mutex_.assert_held_shared();
  const auto place = locate(path);
  return place ? filesystem_.names_.child(*place->parent, place->name)
               : std::unexpected(place.error());
}

Result<Place> Staging::locate(const std::string& path) const {
  filesystem_.mutex_.assert_held_shared();
  const std::size_t slash = path.rfind('/');
  const std::size_t size = slash == std::string::npos ? 0 : slash;
  Place place{.parent = nullptr, .name = path.substr(slash == std::string::npos ? 0 : slash + 1)};
  if (!is_component(place.name) || slash == 0) {
    return fail(EINVAL, path + ": not a path below the mount point");
  }
  const auto parent =
      known_directories_.find(filesystem_.names_, std::string_view(path).substr(0, size), path);
  if (!parent) {
    return std::unexpected(parent.error());
  }
  place.parent = *parent;
  return place;
}

MakeNode staged_node(const Place& place, std::uint64_t ino, mode_t type, const StagedAttributes& a,
                     FileTime now) {
  MakeNode node;
  node.ino = ino;
  node.parent = place.parent->ino;
  node.mode = type | (a.mode & 07777);
  node.uid = a.uid;
  node.gid = a.gid;
  node.atime = a.atime;
  node.mtime = a.mtime;
  node.ctime = node.btime = now;
  node.dirty = 0;
  node.name = place.name;
  return node;
}

std::map<std::string, std::string> take_bulky_xattrs(MakeNode& node) {
  // the names and numbers of the record want room too
  constexpr std::size_t most = store::Journal::max_payload / 2;
  std::size_t bytes = 0;
  for (const auto& [name, value] : node.xattrs) {
    bytes += name.size() + value.size();
  }
  return bytes <= most ? std::map<std::string, std::string>() : std::exchange(node.xattrs, {});
}

// Several at once: who makes many files would otherwise wait, for each, behind those who publish
// theirs.
Result<std::uint64_t> Staging::new_number() {
  constexpr std::uint64_t ahead = 32;
  MutexLock lock(numbers_mutex_);
  if (numbers_.empty()) {
    WriteLock namespace_lock(filesystem_.mutex_);
    const auto taken = filesystem_.new_numbers(ahead);
    if (!taken) {
      return std::unexpected(taken.error());
    }
    numbers_ = *taken;
  }
  return numbers_.next++;
}

Result<OpenContainer> Staging::begin_open_file() {
  const auto place = filesystem_.backend_.place_for({});
  if (!place) {
    return std::unexpected(place.error());
  }
  return begin_open_file_at(*place);
}

Result<OpenContainer> Staging::begin_open_file_at(unsigned place) {
  filesystem_.free_removed_if(SpaceAccount::noticeable);
  const auto ino = new_number();
  if (!ino) {
    return std::unexpected(ino.error());
  }
  auto container = filesystem_.backend_.create_at(*ino, place, CachePolicy::closed);
  if (!container) {
    return std::unexpected(container.error());
  }
  return OpenContainer{.ino = *ino, .container = std::move(*container)};
}

Result<OpenContainer> Staging::adopt_file(Container& other) {
  const auto ino = new_number();
  if (!ino) {
    return std::unexpected(ino.error());
  }
  return held(*ino, filesystem_.backend_.adopt(*ino, other));
}

Result<OpenContainer> Staging::open_container(std::uint64_t ino, CachePolicy policy) {
  EFS_TRY(filesystem_.check_here(ino));
  std::atomic<std::uint32_t>& count = filesystem_.held_;
  {
    // The lock excludes a punch of zeros, which changes the container's mtime for a moment.
    ReadLock lock(filesystem_.mutex_);
    ++count;
  }
  const std::shared_ptr<void> counted(nullptr, [&count](void*) { --count; });
  auto file = open_any_container(ino, policy);
  // An eviction may have come before the open. None comes after it: its lease would fail.
  EFS_TRY(filesystem_.check_here(ino));
  if (file) {
    using Counted = std::pair<std::shared_ptr<Container>, std::shared_ptr<void>>;
    const auto both = std::make_shared<Counted>(std::move(file->container), counted);
    file->container = std::shared_ptr<Container>(both, both->first.get());
  }
  return file;
}

Result<OpenContainer> Staging::open_any_container(std::uint64_t ino, CachePolicy policy) {
  return held(ino, filesystem_.backend_.open(ino, policy));
}

void Staging::abandon(std::uint64_t ino) {
  filesystem_.backend_.remove(ino);
}

std::size_t Staging::publish_files(std::span<const StagedFile> files, Status& failed) {
  // R1: settle() records later, for many files at once, that the data are on the medium. Until then
  // power loss removes the name. The PFS still has the data, and they are imported again.
  WriteLock lock(filesystem_.mutex_);
  std::size_t done = 0;
  for (failed = {}; done < files.size(); ++done) {
    // Returns the error instead of throwing. A caller that does not know which files are published
    // would free the containers of all.
    try {
      failed = publish_one(files[done]);
    } catch (const std::bad_alloc&) {
      failed = fail(ENOMEM);
    }
    filesystem_.being_published_ = 0;
    if (!failed) {
      break;
    }
    filesystem_.record_unsettled(files[done].ino);
  }
  // without a name; the caller abandons its container
  if (!failed) {
    (void)filesystem_.reap(files[done].ino);
  }
  return done;
}

Status Staging::publish_one(const StagedFile& file) {
  filesystem_.mutex_.assert_held();
  auto place = locate(file.path);
  if (!place) {
    return std::unexpected(place.error());
  }
  EFS_TRY(filesystem_.check_new_name(*place->parent, place->name));
  MakeNode node = staged_node(*place, file.ino, S_IFREG, file.attributes, filesystem_.clock_.now());
  node.staged = 1;
  node.origin = file.origin;
  node.origin_path = file.path;
  node.xattrs = file.xattrs;
  const auto bulky = take_bulky_xattrs(node);
  const auto record = [&]() -> Record {
    return file.remote ? Record(remote_node(node, *file.remote)) : Record(node);
  };
  if (bulky.empty()) {
    return filesystem_.commit(0, record(), removal_reserve(place->name));
  }
  // The name last, so that a journal that ends between these records shows no file without its
  // attributes.
  const Link link{.ino = file.ino,
                  .parent = node.parent,
                  .time = node.ctime,
                  .name = std::exchange(node.name, {})};
  EFS_TRY(filesystem_.commit(0, record()));
  filesystem_.being_published_ = file.ino;
  for (const auto& [name, value] : bulky) {
    EFS_TRY(filesystem_.commit(
        0, SetXattr{.ino = file.ino, .time = node.ctime, .name = name, .value = value}));
  }
  return filesystem_.commit(0, link, removal_reserve(place->name));
}

Status Staging::remove(const std::string& path) {
  std::uint64_t parent = 0;
  std::string name;
  bool directory = false;
  {
    WriteLock lock(filesystem_.mutex_);
    auto place = locate(path);
    if (!place) {
      return std::unexpected(place.error());
    }
    auto there = filesystem_.names_.child(*place->parent, place->name);
    if (!there) {
      return std::unexpected(there.error());
    }
    parent = place->parent->ino;
    name = place->name;
    directory = (*there)->is_directory();
    const bool last = directory || (*there)->nlink == 1;
    EFS_TRY(commit_change(*there,
                          filesystem_.names_.files().outdated(ledger_node(**there), path, last)));
  }
  return directory ? filesystem_.rmdir({}, parent, name) : filesystem_.unlink({}, parent, name);
}

Status Staging::make_directory(const std::string& path, const StagedAttributes& attributes) {
  WriteLock lock(filesystem_.mutex_);
  auto place = locate(path);
  if (!place) {
    return std::unexpected(place.error());
  }
  if (auto there = filesystem_.names_.child(*place->parent, place->name)) {
    const Inode& dir = **there;
    if (!dir.is_directory()) {
      return fail(ENOTDIR, path + ": exists and is not a directory");
    }
    const bool is_so = !dir.dirty && (dir.mode & 07777) == (attributes.mode & 07777) &&
                       dir.uid == attributes.uid && dir.gid == attributes.gid &&
                       dir.mtime == FileTime(attributes.mtime);
    // a start on what an earlier instance left comes here for all directories, and the buffer may
    // be full
    if (is_so) {
      return {};
    }
    const std::string* acl = dir.xattr(access_acl_name);
    return filesystem_.commit(
        0, SetAttributes{dir.ino, S_IFDIR | (attributes.mode & 07777), attributes.uid,
                         attributes.gid, attributes.atime, attributes.mtime,
                         filesystem_.clock_.now(), 0, acl != nullptr ? *acl : std::string()});
  }
  MakeNode node = staged_node(*place, filesystem_.names_.next_ino(), S_IFDIR, attributes,
                              filesystem_.clock_.now());
  node.staged = 1;
  node.origin_path = path;
  return filesystem_.commit(0, node, removal_reserve(place->name));
}

Status Staging::set_xattrs(const std::string& path,
                           const std::map<std::string, std::string>& xattrs) {
  WriteLock lock(filesystem_.mutex_);
  auto place = locate(path);
  if (!place) {
    return std::unexpected(place.error());
  }
  auto there = filesystem_.names_.child(*place->parent, place->name);
  if (!there) {
    return std::unexpected(there.error());
  }
  return replace_xattrs(**there, xattrs);
}

Status Staging::set_root(gid_t gid, const std::map<std::string, std::string>& xattrs) {
  WriteLock lock(filesystem_.mutex_);
  const Inode& root = filesystem_.names_.root();
  SetAttributes record = attributes_of(root);
  record.gid = gid;
  if (root.gid != gid) {
    EFS_TRY(filesystem_.commit(0, record));
  }
  return replace_xattrs(root, xattrs);
}

Status Staging::replace_xattrs(const Inode& inode,
                               const std::map<std::string, std::string>& xattrs) {
  filesystem_.mutex_.assert_held();
  const auto now = inode.extra ? inode.extra->xattrs : std::map<std::string, std::string>();
  for (const auto& [name, value] : now) {
    if (!xattrs.contains(name)) {
      EFS_TRY(
          filesystem_.commit(0, RemoveXattr{.ino = inode.ino, .time = inode.ctime, .name = name}));
    }
  }
  for (const auto& [name, value] : xattrs) {
    if (const auto known = now.find(name); known == now.end() || known->second != value) {
      EFS_TRY(filesystem_.commit(
          0, SetXattr{.ino = inode.ino, .time = inode.ctime, .name = name, .value = value}));
    }
  }
  return {};
}

Status Staging::record_directory(const std::string& path, std::uint64_t version) {
  WriteLock lock(filesystem_.mutex_);
  const auto there = inode_at(path);
  EFS_TRY(there);
  const Inode& inode = **there;
  const Origin origin{.size = version};
  const auto& imported = filesystem_.names_.files().of(inode.ino).imported;
  if (!inode.is_directory() || !imported || !imported->names.contains(path) ||
      imported->version == origin) {
    return {};
  }
  SetStaging staging = filesystem_.names_.staging_of(inode);
  staging.origin = origin;
  return filesystem_.commit(0, staging);
}

Status Staging::make_symlink(const std::string& path, const std::string& target,
                             const StagedAttributes& attributes) {
  const auto made = new_symlink(path, target, attributes);
  return made ? Status() : std::unexpected(made.error());
}

Result<Staging::NewName> Staging::new_symlink(const std::string& path, const std::string& target,
                                              const StagedAttributes& attributes) {
  WriteLock lock(filesystem_.mutex_);
  auto place = locate(path);
  if (!place) {
    return std::unexpected(place.error());
  }
  EFS_TRY(filesystem_.check_new_name(*place->parent, place->name));
  MakeNode node = staged_node(*place, filesystem_.names_.next_ino(), S_IFLNK, attributes,
                              filesystem_.clock_.now());
  node.mode = S_IFLNK | 0777;
  node.target = target;
  node.staged = 1;
  node.origin_path = path;
  EFS_TRY(filesystem_.commit(0, node, removal_reserve(place->name)));
  return NewName{.parent = node.parent, .name = std::move(place->name), .ino = node.ino};
}

// `step` is in that directory: what `efs set` said of it, or of the nearest one above that it said
// something of.
void Staging::inherit_keep(const Inode* directory, std::string_view path, WalkStep& step) const {
  filesystem_.mutex_.assert_held_shared();
  while (filesystem_.names_.has_kept_directories()) {
    if (directory->keep() != Keep::by_rule) {
      step.keep = directory->keep();
      step.keep_path = path;
      return;
    }
    if (directory->ino == root_ino) {
      return;
    }
    directory = filesystem_.names_.find(directory->parent);
    const std::size_t slash = path.rfind('/');
    path = path.substr(0, slash == std::string_view::npos ? 0 : slash);
  }
}

Result<Staging::WalkStep> Staging::start_of_walk(const std::string& below) const {
  filesystem_.mutex_.assert_held_shared();
  WalkStep step{
      .inode = &filesystem_.names_.root(), .path = below, .keep = Keep::by_rule, .keep_path = {}};
  if (step.path.ends_with('/')) {
    step.path.pop_back();
  }
  if (step.path.empty()) {
    inherit_keep(step.inode, {}, step);
    return step;
  }
  const std::string_view path = step.path;
  const std::size_t slash = path.rfind('/');
  const std::string_view above = path.substr(0, slash == std::string_view::npos ? 0 : slash);
  const auto parent = known_directories_.find(filesystem_.names_, above, below);
  const auto there =
      parent ? filesystem_.names_.child(
                   **parent, std::string(path.substr(above.empty() ? 0 : above.size() + 1)))
             : std::unexpected(parent.error());
  if (!there) {
    const int code = there.error().code;
    return fail(code == EINVAL ? ENOENT : code, below + ": not in the buffer");
  }
  step.parent = *parent;
  step.inode = *there;
  inherit_keep(*parent, above, step);
  return step;
}

ledger::NameEntry Staging::entry_of(const Inode& inode, const std::string& path) const {
  filesystem_.mutex_.assert_held_shared();
  return filesystem_.names_.files().entry_of(ledger_node(inode), path, leads_to(inode.ino));
}

// Returns the staging state of a name. `keep` and `keep_path` of `step` come from the directory
// above.
WalkItem Staging::item_of(const WalkStep& step) const {
  filesystem_.mutex_.assert_held_shared();
  const Inode& inode = *step.inode;
  const std::string& path = step.path;
  const auto attributes = filesystem_.stat_of(inode);
  WalkItem item{
      .path = path,
      .ino = inode.ino,
      .attributes = attributes ? *attributes : Filesystem::recorded_stat(inode),
      .target = {},
      .pfs = entry_of(inode, path),
      .content = {.place = inode.is_regular() ? filesystem_.backend_.place_of(inode.ino) : 0,
                  .settled = inode.settled},
      .group = {.handed_down = hands_down_group(step.parent, inode)},
      .keep = step.keep,
      .keep_path = step.keep_path};
  if (!attributes) {
    item.content.unreadable =
        "container " + std::to_string(inode.ino) + ": " + describe(attributes.error());
  } else if (inode.lost_writes > 0) {
    item.content.unreadable =
        "data that the kernel had collected could not be stored: it lacks some";
  } else if (lost_its_content(item)) {
    item.content.unreadable = "power loss took it before the first fsync: the file is empty";
  }
  if (!inode.extra) {
    return item;
  }
  const InodeExtra& extra = *inode.extra;
  if (extra.keep != Keep::by_rule) {
    item.keep = extra.keep, item.keep_path = path;
  }
  item.xattrs = extra.xattrs;
  item.content.remote = inode.is_remote();
  item.content.pinned = extra.pinned;
  item.content.container = extra.container;
  if (item.content.remote) {
    item.content.fetch_failure = extra.remote->failure;
    item.content.accepts_change = extra.remote->accepts;
    item.content.evictable = extra.remote->evictable;
    item.content.remote_source = extra.remote->source;
  }
  if (S_ISLNK(inode.mode)) {
    item.target = extra.target;
  }
  return item;
}

Result<std::vector<WalkItem>> Staging::walk(const std::string& below, const IsOver& is_over) {
  ReadLock lock(filesystem_.mutex_);
  auto start = start_of_walk(below);
  if (!start) {
    return std::unexpected(start.error());
  }
  const auto steps = steps_of(std::move(*start), is_over);
  if (!steps) {
    return std::unexpected(steps.error());
  }
  auto items = items_of(*steps, is_over);
  if (items) {
    find_replaced(*items);
  }
  return items;
}

Result<std::vector<WalkItem>> Staging::look(std::span<const std::string> paths) {
  ReadLock lock(filesystem_.mutex_);
  std::vector<WalkStep> steps;
  for (const auto& path : paths) {
    auto step = start_of_walk(path);
    if (!step) {
      continue;
    }
    step->path = path;
    steps.push_back(std::move(*step));
  }
  auto items = items_of(steps);
  if (items) {
    find_replaced(*items);
  }
  return items;
}

std::vector<std::string> Staging::names() const {
  ReadLock lock(filesystem_.mutex_);
  std::vector<std::string> names;
  names.reserve(filesystem_.names_.size());
  filesystem_.names_.for_each_path(
      [&](const std::string& path, const Inode&) { names.push_back(path); });
  return names;
}

Result<std::vector<WalkItem>> Staging::unchanged(
    const std::function<bool(const std::string&, bool)>& wanted) {
  ReadLock lock(filesystem_.mutex_);
  const ledger::Files& files = filesystem_.names_.files();
  std::vector<WalkStep> steps;
  filesystem_.names_.for_each_path([&](const std::string& path, const Inode& inode) {
    if (inode.is_regular() && files.has_imported_content(ledger_node(inode)) &&
        wanted(path, !files.of(inode.ino).imported->names.contains(path))) {
      steps.push_back({.inode = &inode, .path = path, .keep_path = {}});
    }
  });
  std::ranges::sort(steps, {}, &WalkStep::path);
  return items_of(steps);
}

// Runs in parallel, because reading the attributes of many containers takes most of the time.
Result<std::vector<WalkItem>> Staging::items_of(const std::vector<WalkStep>& steps,
                                                const IsOver& is_over) const {
  filesystem_.mutex_.assert_held_shared();
  std::vector<WalkItem> items(steps.size());
  EFS_TRY(parallel_for(steps.size(), 1024, [&](std::size_t begin, std::size_t end) -> Status {
    if (steps.size() >= many_names && is_over && is_over()) {
      return out_of_time();
    }
    for (std::size_t i = begin; i < end; ++i) {
      items[i] = item_of(steps[i]);
    }
    return {};
  }));
  return items;
}

/// Returns the names in a directory in `children`, the last in byte order first.
void Staging::list_children(const Inode& directory, Children& children) {
  children.clear();
  directory.directory->for_each_after(0,
                                      [&](const std::string& name, const Directory::Entry& entry) {
                                        children.emplace_back(name, entry.ino);
                                        return true;
                                      });
  std::ranges::sort(children, std::greater{}, &Children::value_type::first);
}

void Staging::push_children(const WalkStep& step, const Children& children,
                            std::vector<WalkStep>& stack) const {
  filesystem_.mutex_.assert_held_shared();
  const bool says = step.inode->keep() != Keep::by_rule && step.inode->ino != root_ino;
  const Keep keep = says ? step.inode->keep() : step.keep;
  const std::string& keep_path = says ? step.path : step.keep_path;
  for (const auto& [name, child] : children) {
    stack.push_back({filesystem_.names_.find(child),
                     step.path.empty() ? std::string(name) : step.path + "/" + std::string(name),
                     keep, keep_path, step.inode});
  }
}

/// Parents before children, names in byte order, without the root.
Result<std::vector<Staging::WalkStep>> Staging::steps_of(WalkStep start,
                                                         const IsOver& is_over) const {
  filesystem_.mutex_.assert_held_shared();
  std::vector<WalkStep> steps;
  // Depth first with a stack of our own: a deep tree must not end the process.
  std::vector<WalkStep> stack{std::move(start)};
  Children children;
  while (!stack.empty()) {
    WalkStep step = std::move(stack.back());
    stack.pop_back();
    if (step.inode->is_directory()) {
      list_children(*step.inode, children);
      push_children(step, children, stack);
    }
    if (step.inode->ino != root_ino) {
      steps.push_back(std::move(step));
    }
    if (steps.size() % many_names == many_names - 1 && is_over && is_over()) {
      return out_of_time();
    }
  }
  return steps;
}

Result<std::uint64_t> Staging::available_bytes() {
  return filesystem_.backend_.space().available;
}

std::uint64_t Staging::reserved_bytes() const {
  const ReadLock lock(filesystem_.mutex_);
  return filesystem_.reserved_room();
}

std::uint64_t Staging::room_to_spare() {
  const Space space = filesystem_.backend_.space();
  return (space.available - std::min(space.available, space.capacity / 10)) / 2;
}

std::vector<std::uint64_t> Staging::available_by_place() {
  std::vector<std::uint64_t> available;
  for (unsigned place = 0; place < filesystem_.backend_.places(); ++place) {
    available.push_back(filesystem_.backend_.at(place).space().available);
  }
  return available;
}

Status Staging::secure(std::span<const std::uint64_t> inos) {
  return filesystem_.secure(inos);
}

}  // namespace efs::fs
