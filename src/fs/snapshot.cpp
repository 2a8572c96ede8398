// SPDX-License-Identifier: BSD-3-Clause
// The records that rebuild a namespace, and the records with an inode's complete attributes or
// staging data.
#include <algorithm>
#include <span>
#include <unordered_set>

#include "fs/acl.hpp"
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

MakeNode make_node_of(const Inode& inode, std::uint64_t parent, const std::string& name,
                      std::uint64_t cookie) {
  MakeNode r{.ino = inode.ino,
             .parent = parent,
             .rdev = inode.rdev,
             .mode = inode.mode,
             .uid = inode.uid,
             .gid = inode.gid,
             .atime = inode.atime,
             .mtime = inode.mtime,
             .ctime = inode.ctime,
             .btime = inode.btime,
             .dirty = inode.dirty,
             .cookie = cookie,
             .name = name};
  if (inode.extra) {
    r.target = inode.extra->target;
    r.staged = inode.extra->origin.has_value() ? (inode.settled ? 2 : 1) : 0;
    if (r.staged != 0) {
      r.origin = *inode.extra->origin;
    }
    r.origin_path = inode.extra->origin_path;
  }
  return r;
}

// Of a changed file, what the PFS has is not its content.
bool has_remote_record(const Inode& inode) {
  return inode.is_remote() || (inode.extra && inode.extra->remote && !inode.dirty);
}

Record node_record_of(const Inode& inode, std::uint64_t parent, const std::string& name,
                      std::uint64_t cookie) {
  const MakeNode node = make_node_of(inode, parent, name, cookie);
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

void emit_extras(const Inode& inode, const std::function<void(const Record&)>& emit) {
  static const InodeExtra none;
  const InodeExtra& extra = inode.extra ? *inode.extra : none;
  if (has_remote_record(inode) && !inode.is_remote()) {
    emit(Fetched{inode.ino});
  }
  if (extra.keep != Keep::by_rule || extra.saved || !extra.parts.empty()) {
    emit(staging_of(inode));
  }
  // MakeNode has this flag only for imported files.
  if (inode.settled && !extra.origin) {
    emit(Settled{std::string(reinterpret_cast<const char*>(&inode.ino), sizeof inode.ino)});
  }
  if (inode.lost_writes > 0) {
    emit(LostWrites{.ino = inode.ino, .lacks = 1});
  }
  if (extra.content) {
    emit_content(inode, *extra.content, emit);
  }
  for (const auto& [key, value] : extra.xattrs) {
    emit(SetXattr{.ino = inode.ino, .time = inode.ctime, .name = key, .value = value});
  }
}

}  // namespace

SetStaging staging_of(const Inode& inode) {
  SetStaging r{.ino = inode.ino, .dirty = inode.dirty};
  if (!inode.extra) {
    return r;
  }
  const InodeExtra& extra = *inode.extra;
  r.keep = static_cast<std::uint8_t>(extra.keep);
  r.staged = extra.origin.has_value();
  r.origin = extra.origin.value_or(Origin{});
  r.origin_path = extra.origin_path;
  r.saved = !extra.saved ? 0 : extra.saved_as_staged ? 2 : 1;
  r.copy = extra.saved.value_or(Origin{});
  r.saved_path = extra.saved_path;
  r.parts = extra.parts;
  return r;
}

GoneInput gone_input_of(const Inode& inode, const std::string& path) {
  const InodeExtra& extra = *inode.extra;
  return {.type = inode.mode & S_IFMT,
          .origin = extra.origin.value_or(Origin{}),
          .saved = extra.saved && is_one_of(extra.saved_path, path) ? extra.saved : std::nullopt,
          .linked = extra.origin_path.contains('\0') || extra.saved_path.contains('\0'),
          .keep = extra.keep,
          .target = extra.target};
}

Gone gone_record_of(const std::string& path, const GoneInput& input) {
  return {.mode = input.type,
          .there = input.unloaded ? Gone::unloaded : Gone::removed,
          .keep = static_cast<std::uint8_t>(input.keep),
          .linked = input.linked,
          .saved = input.saved.has_value(),
          .origin = input.origin,
          .copy = input.saved.value_or(Origin{}),
          .path = path,
          .target = input.target};
}

void Namespace::snapshot(const std::function<void(const Record&)>& emit) const {
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
          emit(node_record_of(inode, parent.ino, name, entry.cookie));
          emit_extras(inode, emit);
          if (inode.is_directory()) {
            directories.push_back(&inode);
          }
          return true;
        });
  }
  // Files that are open without a name: later records may concern them.
  for (const auto ino : orphans()) {
    emit(node_record_of(*find(ino), find(ino)->parent, "", 0));
    emit_extras(*find(ino), emit);
  }
  emit_extras(root(), emit);
  emit(UsedInodes{next_ino_});
  // After the nodes: an imported node of the same name would remove the entry.
  for (const auto& [path, input] : gone_) {
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
