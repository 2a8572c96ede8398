#pragma once
// The namespace in memory: inodes and directories, changed only by apply(). Knows no journal, no
// container, no lock.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "fs/inode.hpp"
#include "fs/record.hpp"

namespace efs::fs {

/// The record that leaves an inode's attributes as they are: where a change of some of them starts.
SetAttributes attributes_of(const Inode& inode);

/// Not thread-safe: guarded by Filesystem's namespace lock.
class Namespace {
 public:
  /// A root directory (inode 1) with these attributes.
  Namespace(mode_t mode, uid_t uid, gid_t gid, FileTime now);

  Inode* find(std::uint64_t ino) const;
  /// The inode of a name in a directory: ENOENT, ENOTDIR.
  Result<Inode*> child(const Inode& directory, const std::string& name) const;

  Inode& root() const { return *find(root_ino); }

  /// An inode number that was never used.
  std::uint64_t next_ino() { return next_ino_++; }

  /// The one that next_ino() would give.
  std::uint64_t next_unused() const { return next_ino_; }

  /// Carries out a record. Total: it fails (EPROTO, no change) only where the record cannot follow
  /// from this state, which on a live request is a bug and in recovery a damaged journal. What
  /// throws (std::bad_alloc) has changed nothing that programs see, and can be applied again.
  Status apply(const Record& record);

  /// After this, apply() of such a record allocates no more than a few times what the record holds:
  /// the large tables have room for it. Throws std::bad_alloc, and then nothing has changed.
  void make_room(const Record& record);

  /// Records that rebuild this state from an empty namespace of the same root: the snapshot.
  void snapshot(const std::function<void(const Record&)>& emit) const;

  /// Removes an inode that has no name any more.
  void destroy(std::uint64_t ino) { inodes_.erase(ino); }

  /// Calls visit for every name, in no order.
  void for_each_name(const std::function<void(const Inode& parent, const std::string& name,
                                              Inode& inode)>& visit) const;

  /// The same with each name's path ("a/b"), a directory before what is in it.
  void for_each_path(const std::function<void(const std::string& path, Inode& inode)>& visit) const;

  /// Calls visit for every inode, also those without a name.
  void for_each(const std::function<void(Inode&)>& visit) const;

  /// Numbers of inodes without a name (open when their last name went).
  std::vector<std::uint64_t> orphans() const;

  /// The kernel has references, nobody knows how many: none is counted down to its end, see
  /// Inode::inherited. Nor is it known what is open for writing, but that it is among the dirty.
  void inherit_references();

  /// By the paths that they were staged in under, unless something was staged in there again. What
  /// lives on under another name is not among them: its inode says where it came from.
  const std::map<std::string, GoneInput>& gone() const { return gone_; }

  std::size_t size() const { return inodes_.size(); }

  /// The path of `name` in `directory`, relative to the root: "a/b".
  std::string path_of(const Inode& directory, const std::string& name) const;

  /// Grows with each rename of a directory: what was known of paths is true no more.
  std::uint64_t directory_renames() const { return directory_renames_; }

  /// False: `efs set` has said nothing of any directory.
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

  // About requests, not about names: Filesystem's business.
  Status apply_one(const NewConnection&) { return {}; }

  Status apply_one(const Answered&) { return {}; }

  Inode* directory(std::uint64_t ino) const;
  void lose_name(Inode& inode, Inode& parent, FileTime time);
  void remember_if_last(const Inode& inode);
  void hand_over_class(Inode& inode, const Inode& replaced);
  void note_keep(const Inode& inode);
  void came_in(const Inode& inode);
  void moved(Inode& inode, Inode& from, Inode& to, std::string new_name, FileTime time);

  std::unordered_map<std::uint64_t, std::unique_ptr<Inode>> inodes_;
  std::uint64_t next_ino_ = root_ino + 1;
  std::uint64_t directory_renames_ = 0;
  bool has_kept_directories_ = false;
  std::map<std::string, GoneInput> gone_;
};

/// The record that leaves what staging keeps of an inode as it is; callers change a field or two.
SetStaging staging_of(const Inode& inode);

/// What is to be known of `path`, one of the names that the inode was staged in under, when it is
/// gone.
GoneInput gone_input_of(const Inode& inode, const std::string& path);
Gone gone_record_of(const std::string& path, const GoneInput& input);

}  // namespace efs::fs
