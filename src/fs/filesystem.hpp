// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Implements POSIX rules over the namespace, the journal and a backend. Its callers (FUSE, staging,
// control) have no policy of their own. ops/ has one operation a file. The kernel checks
// permissions (default_permissions). The file system keeps names and attributes. Data are in
// containers whose number is the inode's (after a move between backends: fs/moved.hpp).

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backends/backend.hpp"
#include "backends/virtual_device.hpp"
#include "base/door_memory.hpp"
#include "base/file_clock.hpp"
#include "base/memory.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "fs/append_room.hpp"
#include "fs/change_watch.hpp"
#include "fs/completed_requests.hpp"
#include "fs/container_pool.hpp"
#include "fs/emptied_files.hpp"
#include "fs/event_room.hpp"
#include "fs/free_zeros.hpp"
#include "fs/mapped_file.hpp"
#include "fs/namespace.hpp"
#include "fs/open_table.hpp"
#include "fs/put_off_removals.hpp"
#include "fs/quiet_files.hpp"
#include "fs/removals.hpp"
#include "fs/room_maker.hpp"
#include "fs/seal.hpp"
#include "fs/snapshot_schedule.hpp"
#include "fs/space_account.hpp"
#include "store/journal.hpp"

namespace efs::fs {

class Acl;
class KernelView;

/// The caller of a request, and the number of the kernel's request (0: none). Valid during the
/// request.
struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  std::uint64_t request = 0;
  bool resent = false;  // an earlier worker may have carried it out: see CompletedRequests
  mode_t umask = 0;     // for operations that make a file
  Owner owner = {};     // of what the request opens
  // looks up supplementary groups, at a cost; empty: none
  std::function<bool(gid_t)> in_group = {};

  /// True if the caller may keep a setgid bit of this group (root or a member).
  bool belongs_to(gid_t group) const {
    return uid == 0 || gid == group || (in_group && in_group(group));
  }
};

/// The mode after a write: without setuid and executable setgid. setgid without group execution
/// stays if the caller is in the file's group.
mode_t mode_without_privilege(const Caller& caller, const Inode& inode);

/// The attributes of an inode that the kernel may cache.
struct Entry {
  std::uint64_t ino = 0;
  struct stat attributes{};
  FileTime birth;
  bool may_change_unseen = false;  // was opened read-write: a mapping may change its times
  bool may_change_now = false;     // ... and is open read-write now
  bool written_now = false;        // is open for writing now
  bool is_new = false;             // lookup() gave the kernel its first reference
};

/// A request to change attributes. Absent members stay unchanged.
struct AttributeChange {
  std::optional<mode_t> mode;
  std::optional<uid_t> uid;
  std::optional<gid_t> gid;
  std::optional<std::uint64_t> size;
  std::optional<FileTime> atime, mtime;  // stamp_now: now
  // no attribute is given: chown(-1, -1), or a write that clears privilege bits
  bool touch = false;
  // Only `mtime` is set, and the kernel reports it: its write cache has the file's times. This
  // follows a write, which marked the file dirty, or a change of names, which leaves it clean.
  bool reported = false;
  // clears setuid, executable setgid and capabilities (HANDLE_KILLPRIV_V2)
  bool clear_privilege = false;
};

/// True if a client that intercepts may no longer rely on what it knows of the file: see
/// Options::door.
bool changes_epoch(const AttributeChange& change);
/// The same for a mode of fallocate(2).
bool makes_holes(int mode);
/// True for the extended attribute whose file a write must take it from.
bool is_privilege(std::string_view xattr);

/// The error of an operation that needs the content of a remote file (fs::Remote), or would move or
/// change one: the caller waits until the content was fetched, and tries again. No other error of a
/// Filesystem has this code, and no program may get it.
inline constexpr int not_here_code = EREMOTE;

std::unexpected<Error> not_here();

/// Thread-safe. Errors are those that POSIX names. When a change returns success it is in the
/// journal.
class Filesystem final : private QuietFiles {
 public:
  /// Switches for the ordering rules of src/store/README.md, one for each place where this class or
  /// its journal enforces a rule. All are on. The crash tests switch one off at a time to prove
  /// that they detect it. (R5 concerns the medium's rename; the tests break it there.)
  struct Rules {
    bool settle_after_sync = true;    // R1, in settle
    bool sync_before_dirty = true;    // R1, in settle_before
    bool sync_before_fetched = true;  // R1, in Staging::end_fetch
    bool sync_before_moved = true;    // R1, in Staging::end_move
    bool book_unchanged = true;       // R1, in book_settled
    bool stop_at_damage = true;       // R2
    bool free_after_durable = true;   // R3
    bool free_after_reader = true;    // R3, in reap
    bool free_unknown = true;         // R4, in match_containers
    bool reserve_numbers = true;      // R4, in new_number
    bool sync_before_replace = true;  // R6
  };

  struct Options {
    int metadata_directory = -1;                      // has the journal; borrowed
    std::shared_ptr<store::Medium> medium = nullptr;  // or another medium instead
    mode_t root_mode = 0755;
    uid_t uid = 0;  // owner of the root
    gid_t gid = 0;
    // bytes of journal below which no snapshot is made; a successor replays them while programs
    // wait
    std::uint64_t smallest_compaction = 8u << 20;
    // the machine went down since the store was written (recovery only)
    bool after_power_loss = false;
    bool read_only = false;  // opens an offline store for reading: changes fail with EROFS
    // recovery for a live mount: the kernel has references and repeats unanswered requests
    bool takeover = false;
    // the store's id: the journal of another store is rejected with EUCLEAN
    store::InstanceId instance = {};
    // the last record that the journal must have: a shorter journal is rejected with EUCLEAN
    std::uint64_t journal_to = 0;
    Rules rules = {};
    AccessTimes access_times = AccessTimes::relative;
    std::uint64_t segment_size = MappedFile::default_segment_size;  // bytes: see MappedFile
    // the same for each backend; empty: one value for all
    std::vector<std::uint64_t> segment_sizes = {};
    /// Returns the backend index that policy chooses for a new file of this path ("a/b"). Called
    /// under the namespace lock. Empty function or nullopt: the backend chooses.
    std::function<std::optional<unsigned>(const std::string& path)> place_of_new = {};
    // Is told of a change that makes untrue what a client that intercepts knows of a file, before
    // the operation returns; null: nobody asks. Must outlive this object
    DoorMemory* door = nullptr;
    // The open files, in memory that a takeover inherits; null: in memory of this object. Must
    // outlive this object
    OpenTable* opens = nullptr;
  };

  /// The findings of a recovery. Paths are relative to the root.
  struct Recovery {
    bool found = false;  // there was a journal
    store::ReplayEnd journal;
    // files that were open without a name: freed, except those that a takeover keeps
    std::uint64_t nameless = 0;
    std::uint64_t unknown_containers = 0;  // containers without a record: freed
    // files whose container power loss took before the first fsync: now empty; sorted
    std::vector<std::string> emptied;
    bool emptied_before = false;  // a recovery made files empty that are still as it left them
    bool sync_failed = false;     // a sync of this store has failed before
    // containers have numbers that this journal has not assigned, without a power loss: the store
    // had a later journal
    bool not_the_last = false;
    // clean files whose content may be incomplete; the PFS has them
    std::vector<std::string> dropped;
    // files without a container, without a power loss: the names stay and reads fail; sorted
    std::vector<std::string> lost;
    // why some containers could not be listed, if the recovery continues without them; "": all were
    // listed
    std::string unlisted;
  };

  /// Opens the file system of the store's journal. Without a journal makes a new file system, or
  /// fails with ENOENT if `read_only`.
  static Result<std::unique_ptr<Filesystem>> open(Backend& backend, const Options& options);
  ~Filesystem() override;

  // Names gives the kernel one reference
  Result<Entry> lookup(std::uint64_t parent, const std::string& name);

  struct Forgotten {
    bool gone = false;  // the inode was freed with the last reference
    // the inode has no name and its references are from an earlier worker: ask the kernel
    bool ask = false;
  };

  /// Drops references.
  Forgotten forget(std::uint64_t ino, std::uint64_t count);
  /// Call it when the kernel reports that it does not know the inode.
  Forgotten forget_all(std::uint64_t ino);
  /// Inodes without a name that the kernel may know from an earlier worker. `told`: leaves out
  /// inodes that a pending reply may still tell the kernel: for these its answer proves nothing.
  std::vector<std::uint64_t> inherited_orphans(bool told) const;
  /// Call it after the kernel was asked about them. Makes a snapshot if most of the journal
  /// concerns freed inodes. Otherwise a series of workers that die soon would replay more and more
  /// records.
  void compact_inherited();
  /// True if the inode exists, and for a regular file also its content.
  bool exists(std::uint64_t ino) const;
  /// Records a new connection: request numbers start again. Call it before the first request of a
  /// new mount.
  Status new_connection();
  Result<Entry> make_node(const Caller& caller, std::uint64_t parent, const std::string& name,
                          mode_t mode, dev_t rdev);
  /// Makes a regular file without a name (O_TMPFILE). link() may give it one; otherwise it is freed
  /// with the last reference.
  Result<Entry> make_nameless(const Caller& caller, std::uint64_t parent, mode_t mode);
  Result<Entry> make_symlink(const Caller& caller, std::uint64_t parent, const std::string& name,
                             const std::string& target);
  Result<Entry> link(const Caller& caller, std::uint64_t ino, std::uint64_t new_parent,
                     const std::string& new_name);
  Status unlink(const Caller& caller, std::uint64_t parent, const std::string& name);
  /// Removes the name if it leads to `ino`; otherwise ESTALE. For a file whose creation fails.
  Status unlink_only(std::uint64_t parent, const std::string& name, std::uint64_t ino);
  Status rmdir(const Caller& caller, std::uint64_t parent, const std::string& name);

  /// A name in a directory. Borrows the name for the call.
  struct NameIn {
    std::uint64_t parent;
    const std::string& name;
  };

  /// `flags`: those of renameat2(2).
  Status rename(const Caller& caller, const NameIn& from, const NameIn& to, unsigned flags);
  Result<std::string> readlink(std::uint64_t ino);

  struct DirectoryItem {
    std::string name;
    std::uint64_t ino = 0;
    mode_t type = 0;           // S_IFMT bits
    std::uint64_t cookie = 0;  // the next call continues after this
    bool known = false;        // the kernel has a reference
  };

  /// Returns up to `most` entries after `cookie`, including "." and "..", the newest first. 0
  /// starts a walk and updates atime if due. A walk ends even if programs make and rename files
  /// meanwhile.
  Result<std::vector<DirectoryItem>> readdir(std::uint64_t ino, std::uint64_t cookie,
                                             std::size_t most);
  /// The attributes of an entry of readdir(), with a reference as of lookup(). ENOENT if it has
  /// lost its last name meanwhile.
  Result<Entry> introduce(std::uint64_t ino);

  // Attributes
  Result<Entry> getattr(std::uint64_t ino);
  Result<Entry> setattr(const Caller& caller, std::uint64_t ino, const AttributeChange& change);
  Result<std::string> getxattr(std::uint64_t ino, const std::string& name);
  Result<std::vector<std::string>> listxattr(std::uint64_t ino);
  Status setxattr(const Caller& caller, std::uint64_t ino, const std::string& name,
                  const std::string& value, int flags);
  Status removexattr(const Caller& caller, std::uint64_t ino, const std::string& name);

  // Data
  struct Opened {
    std::uint64_t handle = 0;  // of the open, for release()
    // the kernel may do the I/O on the descriptor of container()
    bool passthrough = false;
    // a mapping may change times from now on: the kernel must drop its cached attributes
    bool attributes_go_stale = false;
  };

  /// Opens a file for the caller's owner. The owner calls release() once for each successful open,
  /// or dies: see close_all(). A repeated request gets the open that it has made before, if there
  /// is one. ENFILE: too many files are open. `just_made`: the same request has made the file, and
  /// that cannot be undone if open() fails, so optional work of the daemon's path is left out.
  Result<Opened> open(const Caller& caller, std::uint64_t ino, int flags, bool just_made = false);

  /// See OpenTable.
  void note_daemon_path(std::uint64_t handle) { opens_.note_daemon_path(handle); }

  /// Returns false, without effect, for a handle that is not open: the release is a repeated one.
  bool release(std::uint64_t handle);
  /// The owner has died: releases all that it has open. Its programs may outlive it, and write to
  /// containers that they have open.
  void close_all(const Owner& owner) EFS_EXCLUDES(mutex_);

  /// For counts and visits.
  const OpenTable& open_files() const { return opens_; }

  /// The container of an open file, for passthrough. EIO if the container is missing, because a
  /// program would take ENOENT for a missing name.
  Result<std::shared_ptr<Container>> container(std::uint64_t ino) const override;
  /// Files that a program may have mapped for writing, according to the counted opens.
  std::vector<std::uint64_t> may_be_mapped() const;
  /// Files that a program may have open for writing. Includes those.
  std::vector<std::uint64_t> open_for_writing() const;

  /// True if the counted opens prove, at no cost, that no program can write to the file, by an open
  /// or a mapping. False if they do not.
  bool is_counted_quiet(std::uint64_t ino) const EFS_EXCLUDES(mutex_);

  // Files whose content is not here (remote.cpp). All that needs a content, or would change or move
  // such a file, fails with not_here_code.

  /// The remote files that rename() of these names would wait for.
  std::vector<std::uint64_t> remote_in_rename(const NameIn& from, const NameIn& to,
                                              unsigned flags) const EFS_EXCLUDES(mutex_);
  /// False if the evictable files in a directory that this rename moves take more than half of the
  /// buffer: they might never be here together.
  bool fit_at_once(const NameIn& from, const NameIn& to, unsigned flags) const EFS_EXCLUDES(mutex_);

  bool is_remote(std::uint64_t ino) const EFS_EXCLUDES(mutex_);

  /// False: no file is remote, and none will be, unless staging publishes one. Takes no lock.
  bool has_remote() const { return has_remote_; }

  /// True if every walk of a directory must reach the worker, because it changes the access time.
  bool every_walk_counts() const { return options_.access_times == AccessTimes::strict; }

  /// True if a read by such an open would change the access time. It must then reach the worker.
  bool read_moves_atime(std::uint64_t ino, int flags) const;
  /// `flags`: those of the open; O_NOATIME leaves atime unchanged.
  Result<std::size_t> read(std::uint64_t ino, std::span<std::byte> into, std::uint64_t offset,
                           int flags = 0);
  Result<std::size_t> write(const Caller& caller, std::uint64_t ino,
                            std::span<const std::byte> from, std::uint64_t offset);
  /// Inode::carries_privilege(); true also if there is no such inode.
  bool carries_privilege(std::uint64_t ino) const EFS_EXCLUDES(mutex_);
  /// Records that a write of data failed which a program believes written: the kernel reports the
  /// error to one of the programs that sync or close the file. Call it before the reply. A stop, by
  /// any later process too, names the file as failed, until a program truncates it to nothing.
  /// Returns true at the first call for a file. If the journal cannot have the record, the file
  /// system is read-only from then on, and only this process knows. Does not throw.
  bool record_lost_write(std::uint64_t ino) EFS_EXCLUDES(mutex_);
  Status allocate(const Caller& caller, std::uint64_t ino, int mode, std::uint64_t offset,
                  std::uint64_t length);
  Result<std::uint64_t> seek(std::uint64_t ino, std::uint64_t offset, int whence);
  Status fsync(std::uint64_t ino, bool data_only);
  Status fsync_metadata();

  /// True if no sync of this store has work to do, for its whole life.
  bool needs_no_sync() const { return is_volatile(backend_); }

  /// The last record that is known to survive all that the store survives; 0: none.
  std::uint64_t durable_records() const;
  struct statvfs statfs();

  /// Carries out an operation of this class for a program. If it fails with ENOSPC, frees the space
  /// that removed files still hold, or that a RoomMaker finds, and tries again.
  template <typename Operation>
  auto with_room(Operation operation) -> decltype(operation()) {
    constexpr int most_tries = 20;
    // Read before the operation: another thread may free the space between its failure and here.
    auto before = times_freed_.load();
    auto done = operation();
    for (int tries = 0; tries < most_tries && !done && done.error().code == ENOSPC; ++tries) {
      const bool is_freed = free_removed() || times_freed_ != before;
      if (!is_freed && !await_release() && !await_removed() && !make_room(0)) {
        break;
      }
      before = times_freed_.load();
      done = operation();
    }
    return done;
  }

  /// The room ahead of appends. It is given back after the last close.
  AppendRoom& room() { return room_; }

  /// Waits for some milliseconds if a removed file counts as open, because the kernel may delay the
  /// RELEASE of a closed file. Returns false at once if there is none.
  bool await_release() EFS_EXCLUDES(mutex_);
  /// Returns when the space of all removed files that no program has open is free. Syncs the
  /// journal first if R3 requires it, and closes the kernel's registrations. False if no file was
  /// removed since the last call.
  bool free_removed() EFS_EXCLUDES(mutex_, sync_mutex_, freeing_);

  /// The same, if the pending space is at least this fraction of the available space.
  void free_removed_if(std::uint64_t part) EFS_EXCLUDES(mutex_, sync_mutex_, freeing_) {
    if (space_.owes(part)) {
      free_removed();
    }
  }

  /// True if removed files hold space that programs may soon need. Call free_removed() then as soon
  /// as possible.
  bool owes_space() {
    return (removals_.any_running() || space_.owes(SpaceAccount::smallest)) &&
           space_.level() != SpaceAccount::Level::ample;
  }

  /// Removes the containers whose removal was put off. Any thread.
  void remove_put_off() EFS_EXCLUDES(mutex_);

  /// The number of those containers.
  std::size_t put_off() const { return put_off_.size(); }

  /// Housekeeping. Call it periodically from one thread. Syncs the journal on a page-cache file
  /// system, frees removed files whose record is durable, and records persisted content of staged
  /// files. Does nothing on a volatile store.
  void tend();
  /// Returns when every clean file survives power loss with its present content, and this is
  /// recorded. A failed sync is not repeated for its files: power loss may take them.
  Status settle();
  /// Returns when the present content of these files and all present names survive power loss as
  /// the store does. Call it before their copies replace older versions elsewhere. Does nothing on
  /// a volatile store.
  Status secure(std::span<const std::uint64_t> inos);

  /// True if fill_pool() has something to do. Takes no lock.
  bool pool_is_low() const { return pool_.is_low(); }

  /// Fills the container pool if it is low (ContainerPool::begin_fill()). Call it after the reply
  /// to a create. `prepare` gets the new containers before any create can use them. Without effect
  /// if the store is full. Does not throw.
  void fill_pool(const std::function<void(std::span<const ContainerPool::Ready>)>& prepare);
  /// Selects the inodes that are regular files with a name and permit passthrough at present. Opens
  /// their containers for reading, as far as descriptors are available.
  std::vector<ContainerPool::Ready> servable(const std::vector<std::uint64_t>& inodes) const;

  /// True if the medium has failed. Files can then be read and exported; changes fail with EROFS.
  bool failed() const { return broken_; }

  const Backend& backend() const { return backend_; }

  const Recovery& recovery() const { return recovery_; }

  /// Registers the receiver of changes of names that the kernel did not request; null: none. Must
  /// outlive its use.
  void attach(KernelView* kernel) { kernel_ = kernel; }

  /// Gives a full buffer a way to make room; null: none any more. `maker` outlives all requests.
  void use_room_maker(RoomMaker* maker) { room_maker_ = maker; }

  /// As RoomMaker::make_room().
  bool make_room(std::uint64_t bytes);

  bool has_room_maker() const { return room_maker_ != nullptr; }

  /// As RoomMaker::keep_reserve().
  void keep_reserve();

  /// Registers the sharer of containers of imported files, which is notified before one of them
  /// changes; null: none. Must outlive its use.
  void share_with(Sharer* sharer) { sharer_ = sharer; }

  /// Registers the receiver of changes that programs make; null: none. On return no call to the
  /// former one is in progress.
  void watch(ChangeWatch* watch) EFS_EXCLUDES(mutex_);

 private:
  friend class LedgerLog;
  friend class Staging;
  Filesystem(Backend& backend, const Options& options, std::unique_ptr<OpenTable> own_opens);

  Status recover();
  /// Returns the containers of the backend, sorted. Notes in recovery_ if some could not be listed.
  Status list_containers(std::vector<std::uint64_t>& containers);
  Status replay() EFS_REQUIRES(mutex_);
  void look_for_failed_sync();
  Status replay_one(const store::Record& stored) EFS_REQUIRES(mutex_);
  void rebuild_reserve() EFS_REQUIRES(mutex_);
  /// Gives back the room for appends that an earlier process left; a takeover inherits it.
  void settle_rooms() EFS_REQUIRES(mutex_);
  void settle_nameless(std::vector<std::uint64_t>& containers) EFS_REQUIRES(mutex_);
  /// Counts what the predecessor's clients have open.
  void inherit_opens() EFS_REQUIRES(mutex_);
  /// True if the counts of the inode's opens are exact.
  bool is_counted(const Inode& inode) const;
  bool has_its_names_only(const Inode& wanted) const EFS_REQUIRES_SHARED(mutex_);
  bool may_be_in_use(const Inode& nameless, bool has_container) const EFS_REQUIRES_SHARED(mutex_);
  enum class Finding : std::uint8_t;
  /// `there`: the containers, sorted.
  Finding finding_of(const Inode& inode, const std::vector<std::uint64_t>& there) const
      EFS_REQUIRES_SHARED(mutex_);
  Finding finding_without_container(const Inode& inode) const EFS_REQUIRES_SHARED(mutex_);
  Status match_containers(std::vector<std::uint64_t>& containers) EFS_REQUIRES(mutex_);
  std::vector<std::uint64_t> unknown_among(std::span<const std::uint64_t> containers) const
      EFS_REQUIRES_SHARED(mutex_);
  /// Removes containers without a record, the last of which has the highest number.
  void free_unknown(std::span<const std::uint64_t> unknown) EFS_REQUIRES(mutex_);
  Status look_for_later(const std::vector<std::uint64_t>& containers) EFS_REQUIRES(mutex_);
  Status fill_in(const std::vector<std::uint64_t>& missing) EFS_REQUIRES(mutex_);
  Status make_empty(std::span<const std::uint64_t> missing) EFS_REQUIRES(mutex_);
  Status make_empty(std::uint64_t ino, FileTime mark);
  Status finish_emptied() EFS_REQUIRES(mutex_);
  /// In byte order.
  std::vector<std::string> names_of(std::vector<std::uint64_t> inodes) const
      EFS_REQUIRES_SHARED(mutex_);
  Status drop_names(const std::vector<std::uint64_t>& inodes) EFS_REQUIRES(mutex_);
  /// The records that remove all names of these inodes.
  std::vector<Unlink> removals_of(std::span<const std::uint64_t> sorted) const
      EFS_REQUIRES_SHARED(mutex_);
  /// Without a journal only applies the record.
  Status commit_if_writable(const Record& record, std::int64_t reserve) EFS_REQUIRES(mutex_);
  /// Returns when every record so far survives power loss. Only a page-cache file system needs a
  /// sync for that. Then frees the containers that wait for it. Does not hold the namespace lock
  /// meanwhile.
  Status sync_journal();
  void free_released();
  /// Records a failed sync for later recoveries: a successful sync proves nothing any more.
  void record_failed_sync();
  /// Makes the file system read-only after a failed append.
  void record_failed_append(const Error& error) EFS_REQUIRES(mutex_);
  std::uint64_t durable_up_to() const EFS_REQUIRES_SHARED(mutex_);
  bool is_out_of_reach();
  /// Returns when the replayed records survive power loss, or when the file system is read-only.
  Status secure_journal() EFS_REQUIRES(mutex_);
  /// The commit point: appends the record to the journal, then applies it to the namespace. Only
  /// then may the worker reply. After an error nothing has changed. Does not throw. EROFS after the
  /// medium has failed.
  Status commit(std::uint64_t request, const Record& record, std::int64_t reserve = 0)
      EFS_REQUIRES(mutex_);

  /// The inode of the reply if an earlier worker has carried out a resent request. If a request has
  /// several records, only the last one has the request's number, so that an incomplete request is
  /// never taken for a complete one.
  std::optional<std::uint64_t> done_before(const Caller& caller) const EFS_REQUIRES_SHARED(mutex_) {
    return caller.resent ? completed_requests_.find(caller.request) : std::nullopt;
  }

  /// The reply to a request that made an inode or a name, with the kernel's reference; also after a
  /// takeover.
  Result<Entry> referenced(std::uint64_t ino) EFS_REQUIRES(mutex_);
  Status apply_appended(const Record& record) EFS_REQUIRES(mutex_);
  std::uint64_t reserve_for_removals() const EFS_REQUIRES_SHARED(mutex_);
  /// As commit(). After an error this process knows the event all the same.
  Status commit_event(const ledger::Event& event) EFS_REQUIRES(mutex_);
  /// Records that a later process does not know the events since then.
  void record_missed_events(Nanoseconds since) EFS_REQUIRES(mutex_);
  /// Tries again to record the events that the journal did not take.
  void record_missing_events() EFS_REQUIRES(mutex_);
  /// As commit(). On a full store the record takes the room that removals have in the journal.
  Status commit_at_any_room(const Record& record) EFS_REQUIRES(mutex_);
  /// Marks the events as incomplete if this journal may lack some.
  Status doubt_events() EFS_REQUIRES(mutex_);
  /// Moves the events of meta/placed to the journal.
  Status convert_placed() EFS_EXCLUDES(mutex_);
  Status commit_placed(std::span<const ledger::Event> events) EFS_REQUIRES(mutex_);
  /// Encodes the record to scratch_, and makes sure that apply() will find memory. ENOMEM, or
  /// throws std::bad_alloc.
  Status prepare_append(const Record& record) EFS_REQUIRES(mutex_);
  /// Appends the record in scratch_. On a full store it may shorten the journal first.
  Status append_with_room(std::uint64_t request, std::int64_t reserve) EFS_REQUIRES(mutex_);
  Status append(std::uint64_t request, std::int64_t reserve) EFS_REQUIRES(mutex_);
  void compact_if_due() EFS_REQUIRES(mutex_);
  /// Returns true if a snapshot replaced the journal. Logs a failure.
  bool compact_now() EFS_REQUIRES(mutex_);
  /// True if it replaced the journal of a full store by a shorter snapshot.
  bool shortened_for_room() EFS_REQUIRES(mutex_);
  bool saves_much() const EFS_REQUIRES_SHARED(mutex_);
  Status compact() EFS_REQUIRES(mutex_);
  Result<Inode*> inode(std::uint64_t ino) const EFS_REQUIRES_SHARED(mutex_);
  Result<Inode*> directory(std::uint64_t ino) const EFS_REQUIRES_SHARED(mutex_);
  Result<Inode*> regular(std::uint64_t ino) const EFS_REQUIRES_SHARED(mutex_);
  Status check_new_name(const Inode& parent, const std::string& name) const
      EFS_REQUIRES_SHARED(mutex_);
  static struct stat recorded_stat(const Inode& inode);
  template <typename Predicate>
  std::vector<std::uint64_t> regular_files(Predicate wanted) const EFS_EXCLUDES(mutex_);
  Result<bool> report_mtime(std::uint64_t ino, FileTime mtime) EFS_EXCLUDES(mutex_);
  Status set_times(std::uint64_t ino, const AttributeChange& change);

  void epoch_ends(std::uint64_t ino) {
    if (options_.door != nullptr) {
      options_.door->changed(ino);
    }
  }

  /// Marks a regular file dirty and gives its container this size.
  Status set_size(std::uint64_t ino, std::uint64_t size) EFS_EXCLUDES(mutex_);
  /// As commit_at_any_room(), of a record for which the journal and apply() need no memory.
  Status commit_without_memory(const LostWrites& record) EFS_REQUIRES(mutex_);
  /// Records that the file, which was truncated to nothing, lacks no writes any more. On a full
  /// store only this process knows, until a snapshot. Without effect if its number of lost writes
  /// is not that of `before` the truncation.
  Status forget_lost_writes(std::uint64_t ino, std::uint32_t before) EFS_EXCLUDES(mutex_);
  /// Commits the new attributes, then gives them to the container. Clears capabilities after a
  /// change of the owner.
  Status record_change(const Caller& caller, Inode& target, const AttributeChange& change)
      EFS_REQUIRES(mutex_);
  /// `just_taken`: the container of an inode that was made with it; null: any inode.
  Result<struct stat> stat_of(const Inode& inode,
                              const ContainerPool::Ready* just_taken = nullptr) const
      EFS_REQUIRES_SHARED(mutex_);
  Result<Entry> entry_of(const Inode& inode, const ContainerPool::Ready* just_taken = nullptr) const
      EFS_REQUIRES_SHARED(mutex_);
  /// As the container of a remote file will be. It is not asked, because a fetch changes it.
  static struct stat remote_stat_of(const Inode& inode);
  /// True if the file is remote and its container still has a content (Remote::is_full).
  bool is_full_remote(std::uint64_t ino) const EFS_EXCLUDES(mutex_);
  /// The container of the remote file is empty.
  void note_emptied(std::uint64_t ino) EFS_EXCLUDES(mutex_);
  /// Fails if the file is remote.
  Status check_here(std::uint64_t ino) const EFS_EXCLUDES(mutex_);
  /// Fails if the record would change or move a remote file.
  Status refuse_remote(const Record& record) const EFS_REQUIRES(mutex_);
  bool moves_remote(const Rename& record) const EFS_REQUIRES(mutex_);

  /// The room of contents that are not here yet.
  std::uint64_t reserved_room() const EFS_REQUIRES_SHARED(mutex_) {
    const std::uint64_t arrived = *arrived_;
    return names_.remote_room() - std::min(names_.remote_room(), arrived);
  }

  /// ENOSPC if an operation that takes so many bytes would take reserved room; it may take `own` of
  /// it. Takes no lock while no file is remote.
  Status leaves_room(std::uint64_t bytes, std::uint64_t own = 0) const EFS_EXCLUDES(mutex_);
  Status leaves_room_behind(std::uint64_t ino, std::uint64_t offset, std::uint64_t bytes)
      EFS_EXCLUDES(mutex_);
  /// The same for the blocks of this range that the file lacks.
  Status leaves_room_for_blocks(std::uint64_t ino, std::uint64_t offset, std::uint64_t length)
      EFS_EXCLUDES(mutex_);
  Status admit_new_file() EFS_EXCLUDES(mutex_);

  void note_remote() EFS_REQUIRES(mutex_) { has_remote_ = names_.remote_files() > 0; }

  Result<struct stat> container_stat_of(const Inode& inode,
                                        const ContainerPool::Ready* just_taken) const
      EFS_REQUIRES_SHARED(mutex_);

  /// The remaining work for a freed inode.
  struct Reaped {
    bool gone = false;
    std::uint64_t container = 0;  // 0: none
    bool waits = false;           // until its record is durable: free_released() removes it
    std::uint64_t open = 0;       // the file, if only opens keep its space, and space is short
  };

  /// The state of a file before its sync.
  struct Unsettled {
    std::uint64_t ino = 0;
    std::uint64_t edits = 0;
  };

  /// Set if the inode is a clean file whose content is not known to be durable.
  std::optional<Unsettled> unsettled(const Inode& inode) const EFS_REQUIRES_SHARED(mutex_);
  /// Records the clean files among these synced files as durable, except those that a program could
  /// have changed meanwhile.
  Status book_settled(std::span<const Unsettled> synced) EFS_REQUIRES(mutex_);
  Status sync_and_book(std::span<const Unsettled> clean) EFS_EXCLUDES(mutex_);
  /// The files that must be synced before `moved` gets another name: a clean file that is not
  /// settled (all such files below a directory), because the PFS does not have the new name; and a
  /// file that `replaces` another (R6). `synced`: the files that the caller has already synced.
  std::vector<Unsettled> unsynced(const Inode& moved, bool replaces,
                                  std::span<const Unsettled> synced) const EFS_REQUIRES(mutex_);
  /// Adds the inode to `wanted` if it is a clean file that is not settled and not among `synced`.
  /// `anyway`: also a dirty file.
  void add_unsynced(const Inode& inode, bool anyway, std::span<const Unsettled> synced,
                    std::vector<Unsettled>& wanted) const EFS_REQUIRES(mutex_);
  /// Adds all clean files below the directory that are not settled.
  void add_unsynced_below(const Inode& directory, std::vector<Unsettled>& wanted) const
      EFS_REQUIRES(mutex_);
  /// May take as long as the medium needs to write the data.
  Status sync_containers(std::span<const Unsettled> files) EFS_EXCLUDES(mutex_);

  struct RenameStep {
    // not empty: nothing was done; the caller must sync these files first
    std::vector<Unsettled> sync_first;
    Reaped replaced;
  };

  struct RenameCall;

  struct RenamePair {
    Inode* source = nullptr;
    Inode* target = nullptr;  // the inode of the new name; null: none
  };

  Result<RenameStep> rename_unless_unsynced(const RenameCall& call,
                                            std::span<const Unsettled> synced) EFS_EXCLUDES(mutex_);
  Result<RenamePair> find_renamed(const RenameCall& call) const EFS_REQUIRES_SHARED(mutex_);
  Status check_no_loop(const RenameCall& call, const Inode& source, const Inode* target) const
      EFS_REQUIRES_SHARED(mutex_);
  /// As unsynced(), for both files of an exchange.
  std::vector<Unsettled> unsynced_by_rename(const RenameCall& call, const RenamePair& pair,
                                            std::span<const Unsettled> synced) const
      EFS_REQUIRES(mutex_);
  /// Bytes of journal space by which the space for later removals changes. `replaces`: the new name
  /// existed.
  static std::int64_t change_of_reserve(const RenameCall& call, bool replaces);
  /// `only`: fails with ESTALE if the name leads to another inode; 0: any.
  Status remove_name(const Caller& caller, const NameIn& at, bool directories,
                     std::uint64_t only = 0) EFS_EXCLUDES(mutex_);
  /// Frees an inode if the kernel has dropped its last reference. `all`: ignores the count.
  Forgotten free_forgotten(std::uint64_t ino, bool all) EFS_EXCLUDES(mutex_, sync_mutex_, freeing_);
  void touch_atime(std::uint64_t directory);
  Status set_acl(const Caller& caller, std::uint64_t ino, const std::string& name,
                 const std::string& value) EFS_REQUIRES(mutex_);
  Status set_default_acl(const Caller& caller, Inode& target, const std::string& name,
                         const std::string& value) EFS_REQUIRES(mutex_);
  Status set_access_acl(const Caller& caller, const Inode& target, const Acl& acl,
                        const std::string& value) EFS_REQUIRES(mutex_);
  /// Syncs the content that must be durable before this record is written.
  Status settle_before(const Record& record) EFS_REQUIRES(mutex_);
  /// Records that the inode is now clean and its content not known to be durable.
  void record_unsettled(std::uint64_t ino) EFS_REQUIRES(mutex_);
  Status mark_dirty(std::uint64_t request, Inode& inode) EFS_REQUIRES(mutex_);
  /// Call it before any change of a container's bytes, size or times, from the first open for
  /// writing on. On return no sharer relies on them. May copy the whole file.
  Status part_with_sharers(std::uint64_t ino) EFS_EXCLUDES(mutex_, parting_);
  /// Takes the seal, if there is one, off the open container. `staged_as`: the names of the import.
  Status unseal_container(std::uint64_t ino, Container& container, const std::string& staged_as)
      EFS_EXCLUDES(mutex_, parting_);
  enum class Closed : std::uint8_t {
    any,
    last_writer,  // of a file that may be punched
    last,         // of a file without a name
  };

  Closed count_release(const OpenFile& file) EFS_EXCLUDES(mutex_);
  /// Frees what the file needs no longer after a close.
  void free_closed(std::uint64_t ino, Closed closed) EFS_EXCLUDES(mutex_);
  /// Records that a program may still write to the file, though its open is closed.
  void record_survivor(const OpenFile& file) EFS_EXCLUDES(mutex_);
  /// Adds the open to the table and sets the members of `opened` that say so.
  Status add_open(const Caller& caller, Inode& inode, int flags, Opened& opened)
      EFS_REQUIRES_SHARED(mutex_);
  /// The part of open() that can fail. Throws nothing.
  Status prepare_open(const Caller& caller, std::uint64_t ino, bool becomes_dirty, bool writes)
      EFS_EXCLUDES(mutex_, parting_);
  /// Removes capabilities and the bits that mode_without_privilege() clears.
  Status clear_privilege(const Caller& caller, Inode& inode) EFS_REQUIRES(mutex_);
  Result<Entry> make_inode(const Caller& caller, const Inode& parent, const std::string& name,
                           mode_t mode, dev_t rdev) EFS_REQUIRES(mutex_);
  /// The backend index for a new file; `name` "": a file without a name.
  Result<unsigned> place_of_new(const Inode& parent, const std::string& name) EFS_REQUIRES(mutex_);
  /// An empty container with its own number, from the pool or new. Its times are in the record
  /// (is_in_record()), or the present time of the clock that stamps it (stamp_now).
  Result<ContainerPool::Ready> take_container(unsigned place) EFS_REQUIRES(mutex_);
  /// Undoes take_container() for a file that was not made. Without effect for an empty `unused`.
  void give_back(ContainerPool::Ready unused) EFS_REQUIRES(mutex_);

  /// The one of several backends that holds this inode's container.
  Backend& holder_of(std::uint64_t ino) const { return backend_.at(backend_.place_of(ino)); }

  /// Reserves the next `count` inode numbers and returns the first.
  Result<std::uint64_t> reserve_numbers(std::size_t count) EFS_REQUIRES(mutex_);
  /// Reserves a number for a container, or up to `most`. No earlier container had any of these
  /// numbers. Otherwise, if power loss undid a removal, the number could get the bytes of another
  /// file, or exist on two backends.
  Result<InodeNumbers> new_numbers(std::uint64_t most = 1) EFS_REQUIRES(mutex_);
  /// Frees an unreachable inode. The caller must remove its container, without the lock (R3).
  Reaped reap(std::uint64_t ino) EFS_REQUIRES(mutex_);
  /// The same for an inode that has just lost a name by staging: see Inode::withdrawn.
  Reaped withdraw(std::uint64_t ino) EFS_REQUIRES(mutex_);
  /// The same for an inode that has just lost a name. The kernel drops its last reference only
  /// after the reply. So while space is scarce the container is removed now, if no program has it
  /// open.
  Reaped reap_unnamed(std::uint64_t ino, SpaceAccount::Level level) EFS_REQUIRES(mutex_);
  /// Call before a program may write by passthrough: the kernel then sends no request that could
  /// free space. If space is short, first counts the closes of removed files that another thread
  /// has received.
  void make_room_ahead() EFS_EXCLUDES(mutex_, sync_mutex_, freeing_);
  /// Waits until no sync by another process keeps the space of removed containers. Returns false at
  /// once if none was removed since the last call, or if the store is in memory.
  bool await_removed();
  bool has_open_removed() const EFS_EXCLUDES(mutex_);
  void reap_when_released(std::uint64_t ino, SpaceAccount::Level level) EFS_EXCLUDES(mutex_);
  /// Frees the container of an unreachable inode and keeps the inode for the kernel's references. A
  /// later open fails with ESTALE: by O_PATH, or by the name in a request that was already on its
  /// way; the kernel then looks up the name again.
  Reaped free_unopened(Inode& inode) EFS_REQUIRES(mutex_);
  /// R3: on a page-cache file system a container waits in released_ before its removal.
  bool waits_for_journal(std::uint64_t ino) EFS_REQUIRES(mutex_);
  /// Removes the container, now or later (KernelView::removes_later()).
  void remove_container(const Reaped& reaped) EFS_EXCLUDES(mutex_);
  void remove_container_now(const Reaped& reaped) EFS_EXCLUDES(mutex_);

  /// True if the file's zero pages may be freed. truncate(2) must have set its size: other files
  /// take no huge page for a few bytes, and zeros in them may be meant to reserve space.
  bool may_punch(const Inode& inode) const EFS_REQUIRES_SHARED(mutex_) {
    return owns_pages(inode) && inode.size_set;
  }

  /// True if pages without data may be taken from the file. This process must have made the file,
  /// so that all its reservations are known. fallocate(2) must not have reserved space,
  /// because posix_fallocate(3) promises that later writes find room.
  bool owns_pages(const Inode& inode) const EFS_REQUIRES_SHARED(mutex_) {
    return inode.is_regular() && inode.nlink > 0 && !inode.freed && !inode.reserved &&
           inode.ino >= first_own_;
  }

  // QuietFiles
  Result<std::shared_ptr<MappedFile>> file(std::uint64_t ino) override;
  bool is_closed(std::uint64_t ino) const override EFS_EXCLUDES(mutex_);
  bool is_closed_with_zeros(std::uint64_t ino) const override EFS_EXCLUDES(mutex_);
  Status while_open(std::uint64_t ino, const std::function<Status(MappedFile&)>& use) override
      EFS_EXCLUDES(mutex_);
  std::optional<std::uint64_t> prove_no_writer(std::uint64_t ino, int tries) override
      EFS_EXCLUDES(mutex_);
  Status punch(std::uint64_t ino, std::uint64_t proof, MappedFile& content,
               std::span<const Run> runs) override EFS_EXCLUDES(mutex_);
  void space_given_back(std::uint64_t ino) override;

  Backend& backend_;
  const Options options_;
  const std::shared_ptr<store::Medium> medium_;
  const std::unique_ptr<OpenTable> own_opens_;  // null: Options::opens
  OpenTable& opens_;                            // no lock
  std::atomic_flag opens_were_full_;            // and this was logged
  const FileClock clock_;
  Recovery recovery_;     // constant after open()
  EmptiedFiles emptied_;  // likewise

  // rank 8: one sync of the journal at a time, so that one sync serves all waiting threads
  Mutex sync_mutex_;
  std::atomic<std::uint64_t> durable_{0};  // sequence up to which records survive power loss
  // a sync or an append has failed: no more durability, so no more changes
  std::atomic<bool> broken_{false};
  std::atomic<bool> has_remote_{false};
  // bytes of running fetches (Staging::Arrived), which may outlive this object
  const std::shared_ptr<std::atomic<std::uint64_t>> arrived_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  // the file that gets its extended attributes before its name; 0: none
  std::uint64_t being_published_ EFS_GUARDED_BY(mutex_) = 0;
  std::atomic<KernelView*> kernel_{nullptr};
  std::atomic<RoomMaker*> room_maker_{nullptr};
  std::atomic<Sharer*> sharer_{nullptr};
  std::atomic<ChangeWatch*> watch_{nullptr};  // called under the namespace lock
  Mutex parting_;                             // rank 7: one container at a time is unshared
  // rank 7: one thread at a time frees removed files; the others then find the space free
  Mutex freeing_;
  // rank 7: a container of a remote file loses its content, and gets no other one meanwhile
  Mutex emptying_;

  // Rank 10: guards the namespace and the journal. A thread that holds it does no I/O on file data,
  // except to punch zeros, and sends no reply to the kernel. A container exists before the record
  // of its name, and its removal follows the record of that removal, without this lock.
  mutable SharedMutex mutex_;
  Namespace names_ EFS_GUARDED_BY(mutex_);
  std::optional<store::Journal> journal_ EFS_GUARDED_BY(mutex_);
  SnapshotSchedule snapshots_ EFS_GUARDED_BY(mutex_);
  std::vector<std::byte> scratch_ EFS_GUARDED_BY(mutex_);
  SpareMemory spare_memory_ EFS_GUARDED_BY(mutex_);  // freed if apply() finds no other memory

  struct Released {
    std::uint64_t sequence;  // of the journal when the last reference was dropped
    std::uint64_t ino;
  };

  // this process made the inodes from this number on
  std::uint64_t first_own_ EFS_GUARDED_BY(mutex_) = 0;
  // containers that staging uses. Staging reads their times without the namespace lock, but
  // increments this counter under the lock
  std::atomic<std::uint32_t> held_{0};
  // files that lost their last name, and are referenced
  std::unordered_set<std::uint64_t> unnamed_ EFS_GUARDED_BY(mutex_);
  // R3: containers that wait for a durable record, the oldest first
  std::vector<Released> released_ EFS_GUARDED_BY(mutex_);
  // clean files whose content may not be on the medium
  std::vector<std::uint64_t> unsettled_ EFS_GUARDED_BY(mutex_);
  InodeNumbers numbers_ EFS_GUARDED_BY(mutex_);  // reserved by a record and not yet used
  // running calls of settle() that have not yet recorded their files
  unsigned settling_ EFS_GUARDED_BY(mutex_) = 0;
  unsigned tended_ = 0;
  EventRoom event_room_ EFS_GUARDED_BY(mutex_);
  MissedEvents missed_events_ EFS_GUARDED_BY(mutex_);
  // files that lack no writes, although the journal says that they do: see forget_lost_writes()
  std::unordered_set<std::uint64_t> still_marked_ EFS_GUARDED_BY(mutex_);
  CompletedRequests completed_requests_ EFS_GUARDED_BY(mutex_);

  SpaceAccount space_;
  Removals removals_;  // a thread that needs their space waits for them: free_removed()
  std::atomic<std::uint64_t> freed_up_to_{0};  // removals_ when free_removed() was last begun
  std::atomic<std::uint64_t> times_freed_{0};  // how often free_removed() has ended
  std::atomic<std::uint64_t> awaited_{0};      // removals_ at the last await_removed()

  FreeZeros zeros_;
  AppendRoom room_;
  ContainerPool pool_;  // rank 33
  PutOffRemovals put_off_;

  Mutex files_mutex_;  // rank 30
  std::unordered_map<std::uint64_t, std::shared_ptr<MappedFile>> files_
      EFS_GUARDED_BY(files_mutex_);
};

}  // namespace efs::fs
