// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The namespace in memory: inodes and directories. Only apply() changes it. Independent of journal,
// containers and locks.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "fs/inode.hpp"
#include "fs/record.hpp"
#include "ledger/files.hpp"
#include "ledger/ledger.hpp"

namespace efs::fs {

/// A record with the inode's present attributes. A caller changes some of its fields.
SetAttributes attributes_of(const Inode& inode);

/// Not thread-safe: guarded by Filesystem's namespace lock.
class Namespace {
 public:
  /// Makes a namespace with a root directory (inode 1) with these attributes.
  Namespace(mode_t mode, uid_t uid, gid_t gid, FileTime now);

  Inode* find(std::uint64_t ino) const;
  /// The inode of a name in a directory. Errors: ENOENT, ENOTDIR.
  Result<Inode*> child(const Inode& directory, const std::string& name) const;

  Inode& root() const { return *find(root_ino); }

  /// Assigns an inode number that was never used.
  std::uint64_t next_ino() { return next_ino_++; }

  /// The number that next_ino() would assign.
  std::uint64_t next_unused() const { return next_ino_; }

  /// Carries out a record. Fails (EPROTO, no change) only if the record is impossible in this
  /// state: a bug in a live request, a damaged journal in a recovery. If it throws
  /// (std::bad_alloc), programs see no change, and the record can be applied again.
  Status apply(const Record& record);

  /// Makes room in the large tables for this record. apply() then allocates at most a few times the
  /// size of the record. If it throws std::bad_alloc, nothing has changed.
  void make_room(const Record& record);

  /// The snapshot: emits records that rebuild this state from an empty namespace with the same
  /// root.
  void snapshot(const std::function<void(const Record&)>& emit) const;

  /// Removes an inode without a name.
  void destroy(std::uint64_t ino);

  /// Calls visit for every name, in no order.
  void for_each_name(const std::function<void(const Inode& parent, const std::string& name,
                                              Inode& inode)>& visit) const;

  /// The same with each name's path ("a/b"). Visits a directory before its entries.
  void for_each_path(const std::function<void(const std::string& path, Inode& inode)>& visit) const;

  /// Calls visit for every inode, also those without a name.
  void for_each(const std::function<void(Inode&)>& visit) const;

  /// Inodes without a name (open when they lost their last name).
  std::vector<std::uint64_t> orphans() const;

  /// Marks all inodes as inherited, because the number of the kernel's references is unknown: no
  /// count then reaches zero, see Inode::inherited. Every dirty file may be mapped for writing.
  void inherit_references();

  /// The copies of all files on the PFS, and the removed inputs.
  const ledger::Files& files() const { return files_; }

  /// Removed inputs, by the path of their import, unless another file was imported there later.
  const std::map<std::string, GoneInput>& gone() const { return files_.gone(); }

  /// A record with the inode's present staging data. Callers change one or two fields.
  SetStaging staging_of(const Inode& inode) const;

  /// The changes of this store to the names of results-dir.
  const ledger::Ledger& ledger() const { return ledger_; }

  std::size_t size() const { return inodes_.size(); }

  /// The number of remote files, and their bytes.
  std::uint64_t remote_files() const { return remote_files_; }

  std::uint64_t remote_bytes() const { return remote_bytes_; }

  /// The bytes that their contents will take.
  std::uint64_t remote_room() const { return remote_room_; }

  /// The bytes of the evictable files in this directory and below, also of those that are here.
  std::uint64_t evictable_bytes_below(const Inode& directory) const;
  /// The remote files in this directory and below. `any`: the search ends in the first directory
  /// with one.
  std::vector<std::uint64_t> remote_below(const Inode& directory, bool any = false) const;

  /// The path of `name` in `directory`, relative to the root ("a/b").
  std::string path_of(const Inode& directory, const std::string& name) const;

  /// Grows with each rename of a directory. Paths known before the rename are then invalid.
  std::uint64_t directory_renames() const { return directory_renames_; }

  /// False if `efs set` has set no class for any directory.
  bool has_kept_directories() const { return has_kept_directories_; }

  /// Is `ino` the directory `ancestor`, or below it?
  bool is_within(std::uint64_t ino, std::uint64_t ancestor) const;

 private:
  Status apply_one(const MakeNode& record);
  Status apply_one(const Link& record);
  Status apply_one(const Unlink& record);
  Status apply_one(const Rename& record);
  Status apply_one(const SetAttributes& record);
  Status apply_one(const SetXattr& record);
  Status apply_one(const RemoveXattr& record);
  Status apply_one(const UsedInodes& record);
  Status apply_one(const NextCookie& record);
  Status apply_one(const SetStaging& record);
  Status apply_one(const Replace& record);
  Status apply_one(const Settled& record);
  Status apply_one(const Gone& record);
  Status apply_one(const SetContent& record);
  Status apply_one(const LostWrites& record);
  Status apply_one(const MakeRemote& record);
  Status apply_one(const Fetched& record);
  Status apply_one(const Evicted& record);
  Status apply_one(const Moved& record);
  Status apply_one(const Pinned& record);
  Status apply_one(const NewVersion& record);

  template <typename Event>
    requires std::is_constructible_v<ledger::Event, const Event&>
  Status apply_one(const Event& event) {
    ledger_.apply(event);
    return {};
  }

  /// `remote`: null if the content is here.
  Status make(const MakeNode& record, std::unique_ptr<Remote> remote);
  /// Calls `visit` with each inode below that is no directory. Ends with the directory in which it
  /// returns false.
  void visit_below(const Inode& directory, const std::function<bool(const Inode&)>& visit) const;
  void end_remote(Inode& inode);
  /// Counts a file that is remote from now on.
  void begin_remote(const Inode& inode);

  // These records concern requests and not names; Filesystem handles them.
  Status apply_one(const NewConnection&) { return {}; }

  Status apply_one(const Answered&) { return {}; }

  /// The directories and inodes of a rename. `target`: the inode of the new name; null: none.
  struct RenamedNames {
    Inode& from;
    Inode& to;
    Inode& source;
    Inode* target;
  };

  /// The two ways of a rename. EPROTO without a change if the record is impossible.
  Status exchange(const Rename& record, const RenamedNames& names);
  Status move_over(const Rename& record, const RenamedNames& names);
  Inode* directory(std::uint64_t ino) const;
  /// True if a new inode can have this number.
  bool is_new_number(std::uint64_t ino) const;
  /// True if a new entry with this name and cookie can be made; null: no directory.
  static bool is_free(const Inode* directory, const std::string& name, std::uint64_t cookie);
  void lose_name(Inode& inode, Inode& parent, FileTime time);
  void remember_if_last(const Inode& inode);
  void hand_over_class(Inode& inode, const Inode& replaced);
  void record_keep(const Inode& inode);
  void moved(Inode& inode, Inode& from, Inode& to, std::string new_name, FileTime time);

  std::unordered_map<std::uint64_t, std::unique_ptr<Inode>> inodes_;
  std::uint64_t next_ino_ = root_ino + 1;
  std::uint64_t directory_renames_ = 0;
  std::uint64_t remote_files_ = 0, remote_bytes_ = 0, remote_room_ = 0;
  bool has_kept_directories_ = false;
  ledger::Files files_;
  ledger::Ledger ledger_;
};

}  // namespace efs::fs
