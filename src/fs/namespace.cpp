// SPDX-License-Identifier: BSD-3-Clause
#include "fs/namespace.hpp"

#include <linux/fs.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "fs/acl.hpp"
#include "fs/ledger_records.hpp"

namespace efs::fs {
namespace {

constexpr std::uint64_t largest_file = std::numeric_limits<std::int64_t>::max();

std::unexpected<Error> impossible(const char* what) {
  return fail(EPROTO, std::string("record does not fit the namespace: ") + what);
}

// False for names that no request can have: only a damaged or forged journal has them.
bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

bool is_file_type(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK: return true;
    default: return false;
  }
}

// True if the directory exists, is not removed, and the text can be a name in it.
bool may_hold(const Inode* directory, const std::string& name) {
  return directory != nullptr && directory->nlink != 0 && is_name(name);
}

// The inode of the record, in no directory yet.
std::unique_ptr<Inode> new_inode(const MakeNode& r) {
  const bool nameless = r.name.empty();
  auto inode = std::make_unique<Inode>();
  inode->ino = r.ino;
  inode->rdev = r.rdev;
  inode->mode = r.mode;
  inode->uid = r.uid;
  inode->gid = r.gid;
  inode->atime = r.atime;
  inode->mtime = r.mtime;
  inode->ctime = r.ctime;
  inode->btime = r.btime;
  inode->dirty = r.dirty != 0;
  inode->had_name = !nameless;
  inode->nlink = nameless ? 0 : 1;
  if (inode->is_directory()) {
    inode->nlink = nameless ? 0 : 2;
    inode->parent = r.parent;
    inode->directory = std::make_unique<Directory>();
    inode->directory->set_own_name(r.name);
  }
  if (!r.target.empty()) {
    inode->more().target = r.target;
  }
  if (!r.xattrs.empty()) {
    inode->more().xattrs = r.xattrs;
  }
  inode->settled = r.staged >= 2 && !inode->dirty;
  return inode;
}

// True if the sizes fit in a struct stat, and the extents are not too many, sound, in order,
// without overlap, and in [begin, end).
bool is_sound(const SetContent& r) {
  constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();
  if (r.size > largest || r.physical > largest || r.begin > r.end ||
      r.extents.size() > SetContent::most_extents) {
    return false;
  }
  std::uint64_t from = r.begin;
  for (const auto& one : r.extents) {
    if (!one.is_sound() || one.offset < from || one.end() > r.end) {
      return false;
    }
    from = one.end();
  }
  return true;
}

void touch(Inode& directory, FileTime time) {
  directory.mtime = directory.ctime = time;
}

}  // namespace

Namespace::Namespace(mode_t mode, uid_t uid, gid_t gid, FileTime now) {
  auto root = std::make_unique<Inode>();
  root->ino = root->parent = root_ino;
  root->mode = S_IFDIR | (mode & 07777);
  root->uid = uid;
  root->gid = gid;
  root->atime = root->mtime = root->ctime = root->btime = now;
  root->nlink = 2;
  root->lookups = 1;
  root->directory = std::make_unique<Directory>();
  inodes_.emplace(root_ino, std::move(root));
}

Inode* Namespace::find(std::uint64_t ino) const {
  const auto it = inodes_.find(ino);
  return it == inodes_.end() ? nullptr : it->second.get();
}

Inode* Namespace::directory(std::uint64_t ino) const {
  Inode* inode = find(ino);
  return inode != nullptr && inode->is_directory() ? inode : nullptr;
}

Result<Inode*> Namespace::child(const Inode& parent, const std::string& name) const {
  if (!parent.is_directory()) {
    return fail(ENOTDIR);
  }
  const auto* entry = parent.directory->find(name);
  if (entry == nullptr) {
    return fail(ENOENT);
  }
  return find(entry->ino);
}

bool Namespace::is_within(std::uint64_t ino, std::uint64_t ancestor) const {
  for (const Inode* at = find(ino); at != nullptr; at = find(at->parent)) {
    if (at->ino == ancestor) {
      return true;
    }
    if (at->ino == root_ino) {
      return false;
    }
  }
  return false;
}

std::string Namespace::path_of(const Inode& directory, const std::string& name) const {
  std::vector<std::string_view> above;
  std::size_t size = name.size();
  for (const Inode* at = &directory; at != nullptr && at->ino != root_ino; at = find(at->parent)) {
    above.push_back(at->directory->own_name());
    size += above.back().size() + 1;
  }
  std::string path;
  path.reserve(size);
  for (auto component = above.rbegin(); component != above.rend(); ++component) {
    path.append(*component).push_back('/');
  }
  return path += name;
}

void Namespace::make_room(const Record& record) {
  std::uint64_t parent = 0;
  if (const auto* made = node_of(record)) {
    parent = made->parent;
  } else if (const auto* linked = std::get_if<Link>(&record)) {
    parent = linked->parent;
  } else if (const auto* renamed = std::get_if<Rename>(&record)) {
    parent = renamed->new_parent;
  } else if (const auto* replaced = std::get_if<Replace>(&record)) {
    parent = replaced->parent;
  }
  // others add no file to the table: a removal needs no memory for it
  if (node_of(record) != nullptr || std::holds_alternative<SetStaging>(record)) {
    files_.make_room();
  }
  if (parent == 0) {
    return ledger_.make_room();
  }
  efs::make_room(inodes_);
  if (Inode* inode = directory(parent)) {
    inode->directory->make_room();
  }
}

Status Namespace::apply(const Record& record) {
  return std::visit([this](const auto& one) { return apply_one(one); }, record);
}

bool Namespace::is_free(const Inode* directory, const std::string& name, std::uint64_t cookie) {
  return may_hold(directory, name) && directory->directory->find(name) == nullptr &&
         directory->directory->takes(cookie);
}

bool Namespace::is_new_number(std::uint64_t ino) const {
  return ino > root_ino && ino != ~std::uint64_t{0} && find(ino) == nullptr;
}

Status Namespace::apply_one(const MakeNode& r) {
  return make(r, nullptr);
}

Status Namespace::make(const MakeNode& r, std::unique_ptr<Remote> remote) {
  Inode* parent = directory(r.parent);
  const bool nameless = r.name.empty();
  if (!is_new_number(r.ino) || !is_file_type(r.mode)) {
    return impossible("make node");
  }
  if (S_ISLNK(r.mode) && r.target.empty()) {
    return impossible("symbolic link");
  }
  if (!nameless && !is_free(parent, r.name, r.cookie)) {
    return impossible("make node");
  }
  auto inode = new_inode(r);
  if (remote) {
    inode->more().remote = std::move(remote);
  }
  const auto made = inodes_.emplace(r.ino, std::move(inode)).first;
  try {
    files_.apply(event_of(r));
    if (!nameless) {
      files_.apply(ledger::FileNamed{r.ino});
      parent->directory->insert(r.name, r.ino, r.cookie);
    }
  } catch (...) {
    files_.apply(ledger::FileFreed{r.ino});
    inodes_.erase(made);
    throw;
  }
  if (!nameless) {
    if (made->second->is_directory()) {
      ++parent->nlink;
    }
    touch(*parent, r.ctime);
  }
  next_ino_ = std::max(next_ino_, r.ino + 1);
  return {};
}

Status Namespace::apply_one(const Link& r) {
  Inode* parent = directory(r.parent);
  Inode* inode = find(r.ino);
  if (inode == nullptr || inode->is_directory() || !is_free(parent, r.name, r.cookie)) {
    return impossible("link");
  }
  if (inode->nlink == 0) {
    files_.apply(ledger::FileNamed{r.ino});
  }
  parent->directory->insert(r.name, r.ino, r.cookie);
  ++inode->nlink;
  inode->had_name = true;
  inode->ctime = r.time;
  touch(*parent, r.time);
  return {};
}

// Reduces the link count. The caller removes or replaces the entry.
void Namespace::lose_name(Inode& inode, Inode& parent, FileTime time) {
  inode.ctime = time;
  if (inode.is_directory()) {
    inode.nlink = 0;
    --parent.nlink;
  } else {
    --inode.nlink;
  }
}

// Call it before an inode loses a name. This and FileNamed may run twice for one record: see
// apply().
void Namespace::remember_if_last(const Inode& inode) {
  if (inode.is_directory() || inode.nlink <= 1) {
    files_.apply(ledger::LastNameLost{ledger_node(inode)});
  }
}

// Call it before an inode replaces another. Programs write a new version of a file and rename it
// over the old one; the class that the user has set for the name (efs set) still applies. A partly
// loaded file is temporary in any case.
void Namespace::hand_over_class(Inode& inode, const Inode& replaced) {
  if (replaced.keep() == Keep::by_rule || inode.keep() != Keep::by_rule) {
    return;
  }
  if (!files_.of(replaced.ino).parts.empty() && replaced.keep() == Keep::temporary) {
    return;
  }
  inode.more().keep = replaced.keep();
  record_keep(inode);
}

void Namespace::record_keep(const Inode& inode) {
  if (inode.is_directory() && inode.keep() != Keep::by_rule) {
    has_kept_directories_ = true;
  }
}

Status Namespace::apply_one(const Unlink& r) {
  Inode* parent = directory(r.parent);
  if (parent == nullptr || parent->directory->find(r.name) == nullptr) {
    return impossible("unlink");
  }
  Inode& inode = *find(parent->directory->find(r.name)->ino);
  if (inode.is_directory() && !inode.directory->empty()) {
    return impossible("unlink");
  }
  remember_if_last(inode);
  lose_name(inode, *parent, r.time);
  parent->directory->erase(r.name);
  touch(*parent, r.time);
  return {};
}

void Namespace::moved(Inode& inode, Inode& from, Inode& to, std::string new_name, FileTime time) {
  inode.ctime = time;
  if (!inode.is_directory()) {
    return;
  }
  ++directory_renames_;
  inode.parent = to.ino;
  inode.directory->set_own_name(std::move(new_name));
  --from.nlink;
  ++to.nlink;
}

Status Namespace::apply_one(const Rename& r) {
  Inode* from = directory(r.parent);
  Inode* to = directory(r.new_parent);
  if (from == nullptr || to == nullptr || from->directory->find(r.name) == nullptr) {
    return impossible("rename");
  }
  Inode& source = *find(from->directory->find(r.name)->ino);
  const auto* target = to->directory->find(r.new_name);
  if (!may_hold(to, r.new_name) || (target != nullptr && target->ino == source.ino)) {
    return impossible("rename");
  }
  if (source.is_directory() && is_within(to->ino, source.ino)) {
    return impossible("rename");
  }
  Inode* other = target == nullptr ? nullptr : find(target->ino);
  const RenamedNames names{.from = *from, .to = *to, .source = source, .target = other};
  EFS_TRY((r.flags & RENAME_EXCHANGE) != 0 ? exchange(r, names) : move_over(r, names));
  touch(*from, r.time);
  touch(*to, r.time);
  return {};
}

Status Namespace::exchange(const Rename& r, const RenamedNames& names) {
  const auto& [from, to, source, target] = names;
  std::string name = r.new_name, old_name = r.name;  // no allocation after the first change
  if (target == nullptr) {
    return impossible("exchange");
  }
  if (target->is_directory() && is_within(from.ino, target->ino)) {
    return impossible("exchange");
  }
  from.directory->replace(r.name, target->ino);
  to.directory->replace(r.new_name, source.ino);
  moved(source, from, to, std::move(name), r.time);
  moved(*target, to, from, std::move(old_name), r.time);
  return {};
}

Status Namespace::move_over(const Rename& r, const RenamedNames& names) {
  const auto& [from, to, source, replaced] = names;
  std::string name = r.new_name;  // no allocation after the first change
  if (replaced != nullptr && (replaced->is_directory() != source.is_directory() ||
                              (replaced->is_directory() && !replaced->directory->empty()))) {
    return impossible("rename");
  }
  if (replaced != nullptr) {
    remember_if_last(*replaced), hand_over_class(source, *replaced);
  }
  to.directory->take(*from.directory, r.name, r.new_name);
  if (replaced != nullptr) {
    lose_name(*replaced, to, r.time);
  }
  moved(source, from, to, std::move(name), r.time);
  return {};
}

Status Namespace::apply_one(const SetAttributes& r) {
  Inode* inode = find(r.ino);
  if (inode == nullptr || (inode->mode & S_IFMT) != (r.mode & S_IFMT)) {
    return impossible("set attributes");
  }
  if (!r.access_acl.empty()) {
    inode->more().xattrs.insert_or_assign(access_acl_name, r.access_acl);
  } else if (inode->extra) {
    inode->extra->xattrs.erase(access_acl_name);
  }
  inode->mode = r.mode;
  inode->uid = r.uid;
  inode->gid = r.gid;
  inode->atime = r.atime;
  inode->mtime = r.mtime;
  inode->ctime = r.ctime;
  inode->dirty = r.dirty != 0;
  inode->settled = inode->settled && !inode->dirty;
  return {};
}

Status Namespace::apply_one(const SetXattr& r) {
  Inode* inode = find(r.ino);
  if (inode == nullptr) {
    return impossible("set xattr");
  }
  inode->more().xattrs.insert_or_assign(r.name, r.value);
  inode->ctime = r.time;
  return {};
}

Status Namespace::apply_one(const RemoveXattr& r) {
  Inode* inode = find(r.ino);
  if (inode == nullptr) {
    return impossible("remove xattr");
  }
  inode->more().xattrs.erase(r.name);
  inode->ctime = r.time;
  return {};
}

Status Namespace::apply_one(const UsedInodes& r) {
  next_ino_ = std::max(next_ino_, r.next);
  return {};
}

Status Namespace::apply_one(const NextCookie& r) {
  Inode* inode = directory(r.ino);
  if (inode == nullptr || r.next > Directory::most_cookie) {
    return impossible("next cookie");
  }
  inode->directory->set_next_cookie(r.next);
  return {};
}

Status Namespace::apply_one(const SetStaging& r) {
  Inode* inode = find(r.ino);
  if (inode == nullptr || r.keep > static_cast<std::uint8_t>(Keep::persistent) || r.saved > 2) {
    return impossible("set staging");
  }
  const auto keep = static_cast<Keep>(r.keep);
  if (keep != inode->keep()) {
    inode->more();  // no allocation after the first change
  }
  files_.apply(event_of(r));
  // A file that stays clean has the same content as before. The content of a file that becomes
  // clean is not known to be durable.
  inode->settled = inode->settled && !inode->dirty && r.dirty == 0;
  inode->dirty = r.dirty != 0;
  if (inode->extra) {
    inode->extra->keep = keep;
  }
  record_keep(*inode);
  return {};
}

Status Namespace::apply_one(const Replace& r) {
  Inode* parent = directory(r.parent);
  Inode* inode = find(r.ino);
  if (inode == nullptr || inode->is_directory() || !may_hold(parent, r.name)) {
    return impossible("replace");
  }
  const auto* there = parent->directory->find(r.name);
  Inode* replaced = there == nullptr ? nullptr : find(there->ino);
  if (replaced != nullptr && replaced->is_directory()) {
    return impossible("replace");
  }
  if (replaced != nullptr) {
    remember_if_last(*replaced), hand_over_class(*inode, *replaced);
  }
  files_.apply(ledger::FileNamed{r.ino});
  parent->directory->put(r.name, r.ino);
  if (replaced != nullptr) {
    lose_name(*replaced, *parent, r.time);
  }
  ++inode->nlink;
  inode->had_name = true;
  inode->ctime = r.time;
  touch(*parent, r.time);
  return {};
}

Status Namespace::apply_one(const Gone& r) {
  if (r.path.empty() || r.there > Gone::unloaded ||
      r.keep > static_cast<std::uint8_t>(Keep::persistent)) {
    return impossible("gone");
  }
  files_.apply(event_of(r));
  return {};
}

Status Namespace::apply_one(const SetContent& r) {
  Inode* inode = find(r.ino);
  if (inode == nullptr || !inode->is_regular() || !is_sound(r)) {
    return impossible("set content");
  }
  Extents extents;
  for (const auto& one : r.extents) {
    extents.map(one);
  }
  InodeExtra& extra = inode->more();
  auto fresh = extra.content ? nullptr : std::make_unique<Content>();
  Content& content = fresh ? *fresh : *extra.content;
  content.extents.replace(r.begin, r.end, std::move(extents));
  content.size = r.size;
  content.physical = r.physical;
  if (fresh) {
    extra.content = std::move(fresh);
  }
  inode->atime = r.atime;
  inode->mtime = r.mtime;
  inode->ctime = r.ctime;
  return {};
}

Status Namespace::apply_one(const LostWrites& r) {
  Inode* inode = find(r.ino);
  if (inode == nullptr || !inode->is_regular() || r.lacks > 1) {
    return impossible("lost writes");
  }
  // A live request has counted before: see Filesystem::record_lost_write().
  inode->lost_writes = r.lacks == 0 ? 0 : std::max(inode->lost_writes, 1U);
  return {};
}

// A snapshot has a remote file as it is: also one without an origin, or a changed one that only
// lost its name.
Status Namespace::apply_one(const MakeRemote& r) {
  if (!S_ISREG(r.mode) || r.background > 1 || r.accepts > 1 || r.evictable > 1 ||
      r.version.size > largest_file || r.room > largest_file) {
    return impossible("make remote");
  }
  auto remote = std::make_unique<Remote>(Remote{.version = r.version,
                                                .source = r.source,
                                                .background = r.background != 0,
                                                .priority = r.priority,
                                                .accepts = r.accepts != 0,
                                                .room = r.room,
                                                .evictable = r.evictable != 0,
                                                .is_full = r.evictable != 0});
  EFS_TRY(make(r, std::move(remote)));
  begin_remote(*find(r.ino));
  return {};
}

Status Namespace::apply_one(const NewVersion& r) {
  Inode* inode = find(r.ino);
  if (inode == nullptr || !inode->is_remote() || !inode->extra->remote->accepts ||
      r.version.size > largest_file || r.room > largest_file) {
    return impossible("new version");
  }
  Remote& remote = *inode->extra->remote;
  remote_bytes_ += r.version.size - remote.version.size;
  remote_room_ += r.room - remote.room;
  remote.version = r.version;
  remote.room = r.room;
  if (ledger::FileEntry entry = files_.of(r.ino); entry.imported) {
    entry.imported->version = r.version;
    files_.apply(ledger::FileGiven{.id = r.ino, .entry = std::move(entry)});
  }
  inode->mtime = r.version.mtime;
  inode->ctime = r.time;
  return {};
}

Status Namespace::apply_one(const Evicted& r) {
  Inode* inode = find(r.ino);
  if (inode == nullptr || !inode->is_regular() || inode->dirty || inode->is_remote()) {
    return impossible("evicted");
  }
  inode->more().remote = std::make_unique<Remote>(
      Remote{.version = r.version, .source = r.source, .evictable = true, .is_full = true});
  inode->atime = r.atime;
  inode->mtime = r.mtime;
  inode->ctime = r.ctime;
  inode->extra->kept_time.reset();
  begin_remote(*inode);
  return {};
}

Status Namespace::apply_one(const Moved& r) {
  Inode* inode = find(r.ino);
  if (inode == nullptr || !inode->is_regular() || r.container == 0 ||
      find(r.container) != nullptr) {
    return impossible("moved");
  }
  next_ino_ = std::max(next_ino_, r.container + 1);
  inode->more().container = r.container;
  inode->extra->kept_time =
      InodeExtra::KeptTime{.shown = r.shown, .ctime = r.ctime, .mtime = r.mtime};
  return {};
}

Status Namespace::apply_one(const Pinned& r) {
  Inode* inode = find(r.ino);
  if (inode == nullptr || !inode->is_regular() || r.pinned > 1) {
    return impossible("pinned");
  }
  inode->more().pinned = r.pinned != 0;
  return {};
}

Status Namespace::apply_one(const Fetched& r) {
  Inode* inode = find(r.ino);
  if (inode == nullptr || !inode->is_remote()) {
    return impossible("fetched");
  }
  end_remote(*inode);
  files_.apply(ledger::FileCompleted{r.ino});  // of a removal that was not completed, the mark
  return {};
}

void Namespace::begin_remote(const Inode& inode) {
  const Remote& remote = *inode.extra->remote;
  ++remote_files_;
  remote_bytes_ += remote.version.size;
  remote_room_ += remote.room;
}

// What the PFS has of an evictable file is needed for its eviction.
void Namespace::end_remote(Inode& inode) {
  auto& remote = inode.extra->remote;
  --remote_files_;
  remote_bytes_ -= remote->version.size;
  remote_room_ -= remote->room;
  if (remote->evictable) {
    remote->is_here = true;
    remote->is_full = false;
  } else {
    remote.reset();
  }
}

void Namespace::destroy(std::uint64_t ino) {
  if (Inode* inode = find(ino); inode != nullptr && inode->is_remote()) {
    end_remote(*inode);
  }
  files_.apply(ledger::FileFreed{ino});
  inodes_.erase(ino);
}

void Namespace::visit_below(const Inode& directory,
                            const std::function<bool(const Inode&)>& visit) const {
  std::vector<const Inode*> todo{&directory};
  bool goes_on = true;
  while (goes_on && !todo.empty()) {
    const Inode& at = *todo.back();
    todo.pop_back();
    at.directory->for_each([&](const std::string&, const Directory::Entry& entry) {
      const Inode& inode = *find(entry.ino);
      if (inode.is_directory()) {
        todo.push_back(&inode);
      } else {
        goes_on = visit(inode) && goes_on;
      }
    });
  }
}

std::uint64_t Namespace::evictable_bytes_below(const Inode& directory) const {
  std::uint64_t bytes = 0;
  visit_below(directory, [&](const Inode& inode) {
    if (inode.extra && inode.extra->remote && inode.extra->remote->evictable) {
      bytes += inode.extra->remote->version.size;
    }
    return true;
  });
  return bytes;
}

std::vector<std::uint64_t> Namespace::remote_below(const Inode& directory, bool any) const {
  std::vector<std::uint64_t> found;
  if (remote_files_ > 0) {
    visit_below(directory, [&](const Inode& inode) {
      if (inode.is_remote()) {
        found.push_back(inode.ino);
      }
      return !any || found.empty();
    });
  }
  return found;
}

Status Namespace::apply_one(const Settled& r) {
  if (r.inodes.size() % sizeof(std::uint64_t) != 0) {
    return impossible("settled");
  }
  for (std::size_t at = 0; at < r.inodes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t ino = 0;
    std::memcpy(&ino, r.inodes.data() + at, sizeof ino);
    // Skips a file that was removed meanwhile, and a file that was changed after the sync.
    if (Inode* inode = find(ino); inode != nullptr && !inode->dirty) {
      inode->settled = true;
    }
  }
  return {};
}

void Namespace::for_each_name(
    const std::function<void(const Inode&, const std::string&, Inode&)>& visit) const {
  for (const auto& [ino, inode] : inodes_) {
    if (!inode->is_directory()) {
      continue;
    }
    inode->directory->for_each([&](const std::string& name, const Directory::Entry& entry) {
      visit(*inode, name, *find(entry.ino));
    });
  }
}

void Namespace::for_each_path(const std::function<void(const std::string&, Inode&)>& visit) const {
  std::vector<std::pair<const Inode*, std::string>> stack{{&root(), {}}};
  while (!stack.empty()) {
    const auto [directory, above] = std::move(stack.back());
    stack.pop_back();
    directory->directory->for_each([&](const std::string& name, const Directory::Entry& entry) {
      std::string path;
      path.reserve(above.size() + 1 + name.size());
      path = above;
      if (!above.empty()) {
        path += '/';
      }
      path += name;
      Inode& inode = *find(entry.ino);
      visit(path, inode);
      if (inode.is_directory()) {
        stack.emplace_back(&inode, std::move(path));
      }
    });
  }
}

void Namespace::for_each(const std::function<void(Inode&)>& visit) const {
  for (const auto& [ino, inode] : inodes_) {
    visit(*inode);
  }
}

std::vector<std::uint64_t> Namespace::orphans() const {
  std::vector<std::uint64_t> result;
  for (const auto& [ino, inode] : inodes_) {
    if (inode->nlink == 0) {
      result.push_back(ino);
    }
  }
  return result;
}

void Namespace::inherit_references() {
  constexpr std::uint64_t never_counted_down = std::uint64_t{1} << 62;
  for (const auto& [ino, inode] : inodes_) {
    inode->lookups = never_counted_down;
    inode->inherited = true;
    // A mapping outlives its open. A clean file has none: an open for writing makes a file dirty.
    inode->opened_read_write = inode->dirty;
  }
}

}  // namespace efs::fs
