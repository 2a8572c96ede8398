// SPDX-License-Identifier: BSD-3-Clause
// The records that rebuild a namespace, and the records with an inode's complete attributes or
// staging data.
#include <algorithm>
#include <span>
#include <unordered_set>

#include "fs/acl.hpp"
#include "fs/ledger_records.hpp"
#include "fs/namespace.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {

SetAttributes attributes_of(const Inode& inode) {
  const std::string* acl = inode.xattr(access_acl_name);
  return {inode.ino,   inode.mode,  inode.uid,
          inode.gid,   inode.atime, inode.mtime,
          inode.ctime, inode.dirty, acl == nullptr ? "" : *acl};
}

MakeRemote remote_node(const MakeNode& node, const Remote& remote) {
  return {node,
          remote.version,
          remote.source,
          static_cast<std::uint8_t>(remote.background),
          remote.priority,
          static_cast<std::uint8_t>(remote.accepts),
          remote.room,
          static_cast<std::uint8_t>(remote.evictable)};
}

namespace {

struct PlacedName {
  std::uint64_t parent = 0;
  const std::string& name;
  std::uint64_t cookie = 0;
};

MakeNode make_node_of(const Inode& inode, const ledger::FileEntry& entry, const PlacedName& at) {
  MakeNode r{.ino = inode.ino,
             .parent = at.parent,
             .rdev = inode.rdev,
             .mode = inode.mode,
             .uid = inode.uid,
             .gid = inode.gid,
             .atime = inode.atime,
             .mtime = inode.mtime,
             .ctime = inode.ctime,
             .btime = inode.btime,
             .dirty = inode.dirty,
             .cookie = at.cookie,
             .name = at.name};
  if (inode.extra) {
    r.target = inode.extra->target;
  }
  set_import(r, entry, inode.settled);
  return r;
}

// Of a changed file, what the PFS has is not its content.
bool has_remote_record(const Inode& inode) {
  return inode.is_remote() || (inode.extra && inode.extra->remote && !inode.dirty);
}

Record node_record_of(const Inode& inode, const ledger::FileEntry& entry, const PlacedName& at) {
  const MakeNode node = make_node_of(inode, entry, at);
  if (!has_remote_record(inode)) {
    return node;
  }
  return remote_node(node, *inode.extra->remote);
}

// In several records if one cannot have all extents. The first replaces what lies before them, and
// the last what lies behind.
void emit_content(const Inode& inode, const Content& content,
                  const std::function<void(const Record&)>& emit) {
  const std::vector<Extent> all = content.extents.list();
  SetContent r{.ino = inode.ino,
               .size = content.size,
               .physical = content.physical,
               .atime = inode.atime,
               .mtime = inode.mtime,
               .ctime = inode.ctime,
               .begin = 0,
               .end = 0,
               .extents = {}};
  for (std::size_t at = 0; at < all.size() || at == 0; at += SetContent::most_extents) {
    const auto part =
        std::span(all).subspan(at).first(std::min(SetContent::most_extents, all.size() - at));
    const bool is_last = at + part.size() == all.size();
    r.begin = r.end;
    r.end = is_last ? ~std::uint64_t{0} : part.back().end();
    r.extents.assign(part.begin(), part.end());
    emit(r);
  }
}

void emit_extras(const Inode& inode, const ledger::FileEntry& entry,
                 const std::function<void(const Record&)>& emit) {
  static const InodeExtra none;
  const InodeExtra& extra = inode.extra ? *inode.extra : none;
  if (has_remote_record(inode) && !inode.is_remote()) {
    emit(Fetched{inode.ino});
  }
  if (extra.keep != Keep::by_rule || entry.exported || !entry.parts.empty()) {
    emit(staging_of(inode, entry));
  }
  // MakeNode has this flag only for imported files.
  if (inode.settled && !entry.imported) {
    emit(Settled{std::string(reinterpret_cast<const char*>(&inode.ino), sizeof inode.ino)});
  }
  if (inode.lost_writes > 0) {
    emit(LostWrites{.ino = inode.ino, .lacks = 1});
  }
  if (extra.container != 0) {
    const auto kept = extra.kept_time.value_or(InodeExtra::KeptTime());
    emit(Moved{.ino = inode.ino,
               .container = extra.container,
               .shown = kept.shown,
               .ctime = kept.ctime,
               .mtime = kept.mtime});
  }
  if (extra.pinned) {
    emit(Pinned{.ino = inode.ino, .pinned = 1});
  }
  if (extra.content) {
    emit_content(inode, *extra.content, emit);
  }
  for (const auto& [key, value] : extra.xattrs) {
    emit(SetXattr{.ino = inode.ino, .time = inode.ctime, .name = key, .value = value});
  }
}

}  // namespace

SetStaging Namespace::staging_of(const Inode& inode) const {
  return fs::staging_of(inode, files_.of(inode.ino));
}

void Namespace::snapshot(const std::function<void(const Record&)>& emit) const {
  const auto emit_node = [&](const Inode& inode, const PlacedName& at) {
    const ledger::FileEntry& entry = files_.of(inode.ino);
    emit(node_record_of(inode, entry, at));
    emit_extras(inode, entry, emit);
  };
  std::vector<const Inode*> directories{&root()};
  // inodes with several names whose first name is emitted
  std::unordered_set<std::uint64_t> linked;
  for (std::size_t i = 0; i < directories.size(); ++i) {
    const Inode& parent = *directories[i];
    parent.directory->for_each_after(
        0, [&](const std::string& name, const Directory::Entry& entry) {
          const Inode& inode = *find(entry.ino);
          if (!inode.is_directory() && inode.nlink > 1 && !linked.insert(inode.ino).second) {
            emit(Link{.ino = inode.ino,
                      .parent = parent.ino,
                      .cookie = entry.cookie,
                      .time = inode.ctime,
                      .name = name});
            return true;
          }
          emit_node(inode, {parent.ino, name, entry.cookie});
          if (inode.is_directory()) {
            directories.push_back(&inode);
          }
          return true;
        });
  }
  // Files that are open without a name: later records may concern them.
  for (const auto ino : orphans()) {
    emit_node(*find(ino), {find(ino)->parent, "", 0});
  }
  emit_extras(root(), files_.of(root_ino), emit);
  emit(UsedInodes{next_ino_});
  // After the nodes: an imported node of the same name would remove the entry.
  for (const auto& [path, input] : gone()) {
    emit(gone_record_of(path, input));
  }
  ledger_.snapshot([&](const ledger::Event& event) {
    emit(std::visit([](const auto& one) -> Record { return one; }, event));
  });
  // Last, because the records above have changed their times.
  for (const Inode* directory : directories) {
    emit(NextCookie{.ino = directory->ino, .next = directory->directory->next_cookie()});
    emit(attributes_of(*directory));
  }
}

}  // namespace efs::fs
