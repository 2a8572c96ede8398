#pragma once
// POSIX rules over the namespace, the journal and a backend. The doors (FUSE, staging, control)
// hold no policy of their own. One operation per file in ops/. Permissions are the kernel's
// (default_permissions), names and attributes are ours, data lies in containers whose number is the
// inode's.

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backends/backend.hpp"
#include "base/file_clock.hpp"
#include "base/memory.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "fs/container_pool.hpp"
#include "fs/mapped_file.hpp"
#include "fs/namespace.hpp"
#include "fs/reply_cache.hpp"
#include "fs/room.hpp"
#include "fs/seal.hpp"
#include "store/journal.hpp"

namespace efs::fs {

class KernelView;

/// Who asks, and by which request of the kernel (0: none). Valid for the time of the request.
struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  std::uint64_t request = 0;
  bool resent = false;  // a predecessor of this process may have carried it out: see ReplyCache
  mode_t umask = 0;     // of operations that make something
  std::function<bool(gid_t)> in_group = {};  // supplementary groups; costs something; empty: none

  /// May he keep setgid of this group? (Root, or a member.)
  bool belongs_to(gid_t group) const {
    return uid == 0 || gid == group || (in_group && in_group(group));
  }
};

/// The mode after a write: setuid and executable setgid fall; setgid without group execution stays
/// for a caller of the file's group.
mode_t mode_without_privilege(const Caller& caller, const Inode& inode);

/// What the kernel may remember of an inode.
struct Entry {
  std::uint64_t ino = 0;
  struct stat attributes{};
  FileTime birth;
  bool may_change_unseen = false;  // opened read-write once: a mapping may move its times
  bool may_change_now = false;     // ... and open read-write just now
};

/// A request to change attributes: only what is present changes.
struct AttributeChange {
  std::optional<mode_t> mode;
  std::optional<uid_t> uid;
  std::optional<gid_t> gid;
  std::optional<std::uint64_t> size;
  std::optional<FileTime> atime, mtime;  // stamp_now: now
  // nothing is given: chown(-1, -1), or a write that takes privilege bits away
  bool touch = false;
  // setuid, executable setgid and capabilities go (HANDLE_KILLPRIV_V2)
  bool clear_privilege = false;
};

/// Thread-safe. Every member answers with the errno that POSIX names; a change that was answered is
/// in the journal.
class Filesystem {
 public:
  /// The ordering rules of src/store/README.md, in each place where this class or its journal keeps
  /// one. All hold; the crash tests break one at a time, to see that they would notice. (R5 is the
  /// medium's rename: they break it there.)
  struct Rules {
    bool settle_after_sync = true;    // R1, in settle
    bool sync_before_dirty = true;    // R1, in settle_before
    bool book_unchanged = true;       // R1, in book_settled
    bool stop_at_damage = true;       // R2
    bool free_after_durable = true;   // R3
    bool free_after_reader = true;    // R3, in reap
    bool free_unknown = true;         // R4, in match_containers
    bool reserve_numbers = true;      // R4, in new_number
    bool sync_before_replace = true;  // R6
  };

  struct Options {
    int metadata_directory = -1;                      // where the journal lives; borrowed
    std::shared_ptr<store::Medium> medium = nullptr;  // or what stands in its place
    mode_t root_mode = 0755;
    uid_t uid = 0;  // owner of the root
    gid_t gid = 0;
    // bytes of journal below which no snapshot is made: what a successor replays while programs
    // wait
    std::uint64_t smallest_compaction = 8u << 20;
    // the machine went down since the store was written (recovery only)
    bool after_power_loss = false;
    bool read_only = false;  // a look at an image: nothing is changed, changes answer EROFS
    // recovery for a mount that lives: the kernel knows inodes, and sends again what was not
    // answered
    bool takeover = false;
    store::InstanceId instance = {};  // of the store: a journal of another one is refused, EUCLEAN
    // the last record that the journal must have: one that ends before it is refused, EUCLEAN
    std::uint64_t journal_to = 0;
    Rules rules = {};
    AccessTimes access_times = AccessTimes::relative;
    std::uint64_t segment_size = MappedFile::default_segment_size;  // bytes: see MappedFile
    // the same for each place of the backend; empty: one for all
    std::vector<std::uint64_t> segment_sizes = {};
    /// The place of the backend that policy has for a new file of this path ("a/b"); called under
    /// the namespace lock. Empty, or nullopt: the backend's own choice.
    std::function<std::optional<unsigned>(const std::string& path)> place_of_new = {};
  };

  /// What a recovery met. Paths are relative to the root.
  struct Recovery {
    bool found = false;  // there was a journal
    store::ReplayEnd journal;
    // files that were open without a name: freed, but for those that a takeover keeps
    std::uint64_t nameless = 0;
    std::uint64_t unknown_containers = 0;  // containers that no record knows: freed
    // power loss took the container before the first fsync: now empty; sorted
    std::vector<std::string> emptied;
    bool sync_failed = false;  // a sync of this store has failed before
    // containers have numbers that this journal has not given, and no power loss explains it: a
    // later one was there
    bool not_the_last = false;
    // clean, and nothing says that the content is whole: the PFS has it
    std::vector<std::string> dropped;
    // without a container, which no power loss explains: the names stay, and reading fails; sorted
    std::vector<std::string> lost;
    // why some containers could not be listed, where the recovery goes on without; "": all were
    std::string unlisted;
  };

  /// A new file system on an empty store, or, where the store has a journal, the one that it
  /// describes; ENOENT with `read_only` where it has none.
  static Result<std::unique_ptr<Filesystem>> open(Backend& backend, const Options& options);
  ~Filesystem();

  // Names
  // one reference for the kernel
  Result<Entry> lookup(std::uint64_t parent, const std::string& name);

  struct Forgotten {
    bool gone = false;  // the inode went with the last reference
    // it has no name, and its references were given by a predecessor: the kernel must be asked
    bool ask = false;
  };

  /// Gives references back.
  Forgotten forget(std::uint64_t ino, std::uint64_t count);
  /// The kernel says that it does not know the inode (any more).
  Forgotten forget_all(std::uint64_t ino);
  /// Inodes without a name that the kernel may know from a predecessor. `told`: without those that
  /// it may have to be told of yet, by an answer that is still to be given: that it does not know
  /// them says nothing.
  std::vector<std::uint64_t> inherited_orphans(bool told) const;
  /// To be called when the kernel was asked about them: a snapshot, where most of the journal is
  /// about what is gone. Else workers that die soon, one after the other, would replay more and
  /// more of it.
  void compact_inherited();
  /// And, of a regular file, its content.
  bool exists(std::uint64_t ino) const;
  /// A new connection: requests are numbered from the start again. Call before the first request of
  /// a new mount.
  Status new_connection();
  Result<Entry> make_node(const Caller& caller, std::uint64_t parent, const std::string& name,
                          mode_t mode, dev_t rdev);
  /// A regular file without a name (O_TMPFILE), which link() may give one; it goes with the last
  /// reference.
  Result<Entry> make_nameless(const Caller& caller, std::uint64_t parent, mode_t mode);
  Result<Entry> make_symlink(const Caller& caller, std::uint64_t parent, const std::string& name,
                             const std::string& target);
  Result<Entry> link(const Caller& caller, std::uint64_t ino, std::uint64_t new_parent,
                     const std::string& new_name);
  Status unlink(const Caller& caller, std::uint64_t parent, const std::string& name);
  Status rmdir(const Caller& caller, std::uint64_t parent, const std::string& name);
  Status rename(const Caller& caller, std::uint64_t parent, const std::string& name,
                std::uint64_t new_parent, const std::string& new_name, unsigned flags);
  Result<std::string> readlink(std::uint64_t ino);

  struct DirectoryItem {
    std::string name;
    std::uint64_t ino = 0;
    mode_t type = 0;           // S_IFMT bits
    std::uint64_t cookie = 0;  // read on behind this
  };

  /// Up to `most` entries behind `cookie` (0: from the start, which moves atime where it is due),
  /// "." and ".." included, the newest first. A walk ends, whatever is made and renamed meanwhile.
  Result<std::vector<DirectoryItem>> readdir(std::uint64_t ino, std::uint64_t cookie,
                                             std::size_t most);

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
    // the kernel may do the I/O, on the descriptor of container()
    bool passthrough = false;
    // from now on a mapping may move times: what the kernel remembers of them must go
    bool attributes_go_stale = false;
  };

  /// Counts an open for writing: each open that succeeded is followed by one release() with the
  /// same flags. `just_made`: by the caller's own request, which cannot be undone if this fails:
  /// what the daemon's path can do without is left out.
  Result<Opened> open(const Caller& caller, std::uint64_t ino, int flags, bool just_made = false);
  void release(std::uint64_t ino, int flags);
  /// Of an open file that the kernel is to serve.
  /// EIO where it is gone: a program takes ENOENT for a missing name.
  Result<std::shared_ptr<Container>> container(std::uint64_t ino) const;
  /// Files that somebody may have mapped for writing, by what is known of their opens.
  std::vector<std::uint64_t> may_be_mapped() const;

  /// Must every walk of a directory reach the daemon, since it moves the access time?
  bool every_walk_counts() const { return options_.access_times == AccessTimes::strict; }

  /// Would a read by such an open move the access time? Then it must reach the daemon.
  bool read_moves_atime(std::uint64_t ino, int flags) const;
  /// `flags`: those of the open; O_NOATIME leaves atime alone.
  Result<std::size_t> read(std::uint64_t ino, std::span<std::byte> into, std::uint64_t offset,
                           int flags = 0);
  Result<std::size_t> write(const Caller& caller, std::uint64_t ino,
                            std::span<const std::byte> from, std::uint64_t offset);
  Status allocate(const Caller& caller, std::uint64_t ino, int mode, std::uint64_t offset,
                  std::uint64_t length);
  Result<std::uint64_t> seek(std::uint64_t ino, std::uint64_t offset, int whence);
  Status fsync(std::uint64_t ino, bool data_only);
  Status fsync_metadata();
  /// The last record of which is known that it survives whatever the store survives; 0: of none.
  std::uint64_t durable_records() const;
  struct statvfs statfs();

  /// Carries out an operation of this class for a program. Where it fails for want of space, and
  /// removed files hold some yet, that is freed and the operation is tried again.
  template <typename Operation>
  auto with_room(Operation operation) -> decltype(operation()) {
    constexpr int most_tries = 20;
    auto done = operation();
    for (int tries = 0; tries < most_tries && !done && done.error().code == ENOSPC; ++tries) {
      const auto before = times_freed_.load();
      const bool is_freed = free_removed() || times_freed_ != before;
      if (!is_freed && !await_release()) {
        break;
      }
      done = operation();
    }
    return done;
  }

  /// Waits for some milliseconds where a removed file counts as open: the kernel sends the RELEASE
  /// of a file that a program has closed when it likes. False, at once, where there is none.
  bool await_release() EFS_EXCLUDES(mutex_);
  /// Returns when the space of everything that was removed, and that no program has open, is free:
  /// the journal is synced first where R3 wants it, and the kernel's registrations are closed.
  /// False where nothing was removed since the last call.
  bool free_removed() EFS_EXCLUDES(mutex_, sync_mutex_, freeing_);

  /// The same where what is owed is at least this part of what is available.
  void free_removed_if(std::uint64_t part) EFS_EXCLUDES(mutex_, sync_mutex_, freeing_) {
    if (room_.owes(part)) {
      free_removed();
    }
  }

  /// Do removals owe space that a program may miss soon? Then free_removed() is due as soon as
  /// there is time.
  bool owes_space() { return room_.owes(Room::smallest) && room_.level() != Room::Level::ample; }

  /// Housekeeping, from time to time and from one thread: group commit on a page-cache file system,
  /// space of removed files whose record has become durable, staged content booked as being on the
  /// medium. Does nothing on a volatile store.
  void tend();
  /// The latter by itself: returns when every clean file would survive power loss as it is. What a
  /// failed one was about is not tried again: it stays among what power loss takes.
  Status settle();
  /// Returns when the content of these files, as it is now, and every name so far would survive
  /// power loss as the store does. For what is about to take the place of an older version
  /// elsewhere. Does nothing on a volatile store.
  Status secure(std::span<const std::uint64_t> inos);
  /// Makes containers ahead for creates to come, if it is time to (ContainerPool::begin_fill()).
  /// Call it after the reply to a create. `prepare` sees them before any create can. Without effect
  /// where the store is full. Throws nothing.
  void fill_pool(const std::function<void(std::span<const ContainerPool::Ready>)>& prepare);
  /// Of these inodes the regular files that have a name and may be given to the kernel for I/O, as
  /// they are now; with their containers, which are opened for reading, as far as there are
  /// descriptors for it.
  std::vector<ContainerPool::Ready> servable(const std::vector<std::uint64_t>& inodes) const;

  /// The medium has failed: what is there can be read and staged out, and changes are EROFS.
  bool failed() const { return broken_; }

  const Backend& backend() const { return backend_; }

  const Recovery& recovery() const { return recovery_; }

  /// Who is told of names that change without the kernel's asking; null: nobody. Must outlive its
  /// use.
  void attach(KernelView* kernel) { kernel_ = kernel; }

  /// Who shares containers of staged files, and is told before one of them is changed; null:
  /// nobody. Must outlive its use.
  void share_with(Sharer* sharer) { sharer_ = sharer; }

 private:
  friend class Staging;
  Filesystem(Backend& backend, const Options& options);

  Status recover();
  Status replay() EFS_REQUIRES(mutex_);
  Status replay_one(const store::Record& stored) EFS_REQUIRES(mutex_);
  void rebuild_reserve() EFS_REQUIRES(mutex_);
  void settle_nameless(std::vector<std::uint64_t>& containers) EFS_REQUIRES(mutex_);
  bool has_its_names_only(const Inode& wanted) const EFS_REQUIRES_SHARED(mutex_);
  Status match_containers(std::vector<std::uint64_t>& containers) EFS_REQUIRES(mutex_);
  Status look_for_later(const std::vector<std::uint64_t>& containers) EFS_REQUIRES(mutex_);
  Status fill_in(const std::vector<std::uint64_t>& missing) EFS_REQUIRES(mutex_);
  Status make_empty(std::uint64_t ino);
  /// In byte order.
  std::vector<std::string> names_of(std::vector<std::uint64_t> inodes) const
      EFS_REQUIRES_SHARED(mutex_);
  Status drop_names(const std::vector<std::uint64_t>& inodes) EFS_REQUIRES(mutex_);
  /// Returns when every record so far survives power loss (nothing to do but on a page-cache file
  /// system), then frees what waits for that. The namespace lock is not held meanwhile.
  Status sync_journal();
  void free_released();
  /// For whoever recovers after us: a sync that succeeds proves nothing any more.
  void note_failed_sync();
  /// The medium refused a record: read-only from now on.
  void note_failed_append(const Error& error) EFS_REQUIRES(mutex_);
  std::uint64_t durable_up_to() const EFS_REQUIRES_SHARED(mutex_);
  bool is_out_of_reach();
  /// Returns when what was replayed survives power loss, or when nothing will be changed any more.
  Status secure_journal() EFS_REQUIRES(mutex_);
  /// The line: the record is in the journal, then in the namespace; only then may it be answered.
  /// An error: nothing has happened. Throws nothing; EROFS once the medium has failed.
  Status commit(std::uint64_t request, const Record& record, std::int64_t reserve = 0)
      EFS_REQUIRES(mutex_);

  /// What a resent request has done already, if it has: the inode of its answer. Of several records
  /// of one request the last alone carries the request's number, so that half of it is never taken
  /// for the whole.
  std::optional<std::uint64_t> done_before(const Caller& caller) const EFS_REQUIRES_SHARED(mutex_) {
    return caller.resent ? reply_cache_.find(caller.request) : std::nullopt;
  }

  /// The answer of a request that made an inode or a name, with the kernel's reference; also after
  /// a takeover.
  Result<Entry> referenced(std::uint64_t ino) EFS_REQUIRES(mutex_);
  Status apply_appended(const Record& record) EFS_REQUIRES(mutex_);
  Status append(std::uint64_t request, std::int64_t reserve) EFS_REQUIRES(mutex_);
  void compact_if_due() EFS_REQUIRES(mutex_);
  /// Was the journal of a full store replaced by a snapshot that is shorter?
  bool shortened_for_room() EFS_REQUIRES(mutex_);
  bool saves_much() const EFS_REQUIRES_SHARED(mutex_);
  Status compact() EFS_REQUIRES(mutex_);
  Result<Inode*> inode(std::uint64_t ino) const EFS_REQUIRES_SHARED(mutex_);
  Result<Inode*> directory(std::uint64_t ino) const EFS_REQUIRES_SHARED(mutex_);
  Result<Inode*> regular(std::uint64_t ino) const EFS_REQUIRES_SHARED(mutex_);
  Status check_new_name(const Inode& parent, const std::string& name) const
      EFS_REQUIRES_SHARED(mutex_);
  static struct stat recorded_stat(const Inode& inode);
  Status set_times(std::uint64_t ino, const AttributeChange& change);
  /// `container`: the inode's, where the caller has it at hand.
  Result<struct stat> stat_of(const Inode& inode, Container* container = nullptr) const
      EFS_REQUIRES_SHARED(mutex_);
  Result<Entry> entry_of(const Inode& inode, Container* container = nullptr) const
      EFS_REQUIRES_SHARED(mutex_);

  /// What is left to do for an inode that is gone.
  struct Reaped {
    bool gone = false;
    std::uint64_t container = 0;  // 0: none
    bool waits = false;           // for its record to be durable: free_released() removes it
  };

  /// A file as it was when somebody began to sync it.
  struct Unsettled {
    std::uint64_t ino = 0;
    std::uint64_t edits = 0;
  };

  /// A clean file of which nothing says that its content is on the medium.
  std::optional<Unsettled> unsettled(const Inode& inode) const EFS_REQUIRES_SHARED(mutex_);
  /// Books the clean ones among these, which were synced, as being on the medium: those that nobody
  /// could change meanwhile.
  Status book_settled(std::span<const Unsettled> synced) EFS_REQUIRES(mutex_);
  Status sync_and_book(std::span<const Unsettled> clean) EFS_EXCLUDES(mutex_);
  /// What must be on the medium before `moved` gets another name, and is not known to be: a clean
  /// file that is not settled (in a directory: all such), for its new name is no other's; and a
  /// file that `replaces` another (R6). `synced`: what the caller has synced for this.
  std::vector<Unsettled> unsynced(const Inode& moved, bool replaces,
                                  std::span<const Unsettled> synced) const EFS_REQUIRES(mutex_);
  /// May take as long as the medium needs for their data.
  Status sync_containers(std::span<const Unsettled> files) EFS_EXCLUDES(mutex_);

  struct RenameStep {
    // not empty: nothing is done, these have to be synced before
    std::vector<Unsettled> sync_first;
    Reaped replaced;
  };

  Result<RenameStep> rename_unless_unsynced(const Caller& caller, std::uint64_t parent,
                                            const std::string& name, std::uint64_t new_parent,
                                            const std::string& new_name, unsigned flags,
                                            std::span<const Unsettled> synced) EFS_EXCLUDES(mutex_);
  Status remove_name(const Caller& caller, std::uint64_t parent, const std::string& name,
                     bool directories) EFS_EXCLUDES(mutex_);
  /// Of an inode whose references the kernel has given back; `all`: whatever was counted of them.
  Forgotten free_forgotten(std::uint64_t ino, bool all) EFS_EXCLUDES(mutex_, sync_mutex_, freeing_);
  void touch_atime(std::uint64_t directory);
  Status set_acl(const Caller& caller, std::uint64_t ino, const std::string& name,
                 const std::string& value) EFS_REQUIRES(mutex_);
  /// What must be on the medium before this record may be.
  Status settle_before(const Record& record) EFS_REQUIRES(mutex_);
  /// The inode is clean from now on; what it holds is not known to be on the medium.
  void note_unsettled(std::uint64_t ino) EFS_REQUIRES(mutex_);
  Status mark_dirty(std::uint64_t request, Inode& inode) EFS_REQUIRES(mutex_);
  /// Call before anything that changes a container's bytes, size or times, from the first open for
  /// writing on: nobody else relies on them when it returns. May copy the whole file.
  Status part_with_sharers(std::uint64_t ino) EFS_EXCLUDES(mutex_, parting_);
  enum class Closed : std::uint8_t {
    any,
    last_writer,  // of a file that may be punched
    last,         // of a file without a name
  };

  Closed count_release(std::uint64_t ino, int flags) EFS_EXCLUDES(mutex_);
  /// The part of open() that can fail. Throws nothing.
  Status prepare_open(const Caller& caller, std::uint64_t ino, bool becomes_dirty, bool writes)
      EFS_EXCLUDES(mutex_, parting_);
  /// Capabilities go, and what mode_without_privilege() takes away.
  Status clear_privilege(const Caller& caller, Inode& inode) EFS_REQUIRES(mutex_);
  Result<Entry> make_inode(const Caller& caller, const Inode& parent, const std::string& name,
                           mode_t mode, dev_t rdev) EFS_REQUIRES(mutex_);
  /// Where the content of a new file goes; `name` "": it has none.
  Result<unsigned> place_of_new(const Inode& parent, const std::string& name) EFS_REQUIRES(mutex_);
  /// An empty container with a number of its own, whose times are now by the clock that stamps it
  /// (stamp_now): from the pool, or a new one.
  Result<ContainerPool::Ready> take_container(unsigned place) EFS_REQUIRES(mutex_);

  /// The backend that holds this inode's container, of those that ours consists of.
  Backend& holder_of(std::uint64_t ino) const { return backend_.at(backend_.place_of(ino)); }

  /// The next `count` inode numbers, used from now on: the first of them.
  Result<std::uint64_t> reserve_numbers(std::size_t count) EFS_REQUIRES(mutex_);
  /// One for a container, or up to `most`. None of them was ever another container's, whatever
  /// became of that one: a removal that power loss takes back must not bring a stranger's bytes
  /// under this number, or the same number into another place.
  Result<InodeNumbers> new_numbers(std::uint64_t most = 1) EFS_REQUIRES(mutex_);
  /// Frees an inode that nobody can reach any more. Its container is the caller's to remove,
  /// without the lock (R3).
  Reaped reap(std::uint64_t ino) EFS_REQUIRES(mutex_);
  /// The same for one from which staging has just taken a name: see Inode::withdrawn.
  Reaped withdraw(std::uint64_t ino) EFS_REQUIRES(mutex_);
  /// The same for one that has just lost a name. The kernel gives back its last reference only
  /// after the answer, so while space is scarce the container goes now, if no program has it open.
  Reaped reap_unnamed(std::uint64_t ino, Room::Level level) EFS_REQUIRES(mutex_);
  /// Gives up the container of an inode that is out of reach, which stays for the kernel's
  /// references: ESTALE for who opens it (by O_PATH, or on the way here by its name, which the
  /// kernel then looks up again).
  Reaped free_unopened(Inode& inode) EFS_REQUIRES(mutex_);
  /// R3: a container that is to go waits in released_ on a page-cache file system.
  bool waits_for_journal(std::uint64_t ino) EFS_REQUIRES(mutex_);
  void remove_container(const Reaped& reaped) EFS_EXCLUDES(mutex_);

  /// Does the daemon know enough of this file to give back what is zero in it? It was made by this
  /// process, so that all its opens and reservations are known, and no space is reserved for it:
  /// posix_fallocate(3) promises that a later write finds room.
  bool may_punch(const Inode& inode) const EFS_REQUIRES_SHARED(mutex_) {
    return inode.is_regular() && inode.nlink > 0 && !inode.freed && !inode.reserved &&
           inode.ino >= first_own_;
  }

  /// The last writer has closed it. Gives back the pages of the file that are zero, where they take
  /// space, or leaves it for free_zeros_left(). Throws nothing.
  void free_zeros(std::uint64_t ino) EFS_EXCLUDES(mutex_);

  struct Zeros {
    bool freed = false;  // some
    bool left = false;   // there may be more
  };

  /// `tries`: to prove that no program can write, a millisecond apart.
  Zeros free_zeros_of(std::uint64_t ino, int tries) EFS_EXCLUDES(mutex_);
  /// Tries again with the files of which a close could not prove that no program can write, or had
  /// no time for. Was anything freed?
  bool free_zeros_left() EFS_EXCLUDES(mutex_);
  void leave_zeros(std::uint64_t ino) EFS_EXCLUDES(mutex_);
  /// The state of a file at which a proof was made that no program can write to it; none: no proof.
  std::optional<std::uint64_t> prove_no_writer(std::uint64_t ino, int tries) EFS_EXCLUDES(mutex_);

  struct Run {
    std::uint64_t offset = 0, length = 0;  // bytes
  };

  class ZeroPages;

  /// Of a file that no program could write to when it had so many edits: frees these pages, which
  /// were seen to be zero since. EAGAIN where that cannot be said any more.
  Status punch(std::uint64_t ino, std::uint64_t edits, MappedFile& content,
               std::span<const Run> zeros) EFS_EXCLUDES(mutex_);
  /// Gives back all that is zero. `proof`: prove_no_writer().
  Zeros punch_all(std::uint64_t ino, std::uint64_t proof) EFS_EXCLUDES(mutex_);

  /// Counts a removal that is on its way: who needs its space waits for it (free_removed()).
  class Removing;
  void wait_for_removals() const;
  /// Makes a regular file's content ready for a change; the daemon's own I/O path.
  Result<std::shared_ptr<MappedFile>> file(std::uint64_t ino);

  Backend& backend_;
  const Options options_;
  const std::shared_ptr<store::Medium> medium_;
  const FileClock clock_;
  Recovery recovery_;  // constant after open()

  Mutex sync_mutex_;  // rank 8: one sync of the journal at a time, so that one serves all who wait
  std::atomic<std::uint64_t> durable_{0};  // sequence up to which records survive power loss
  // the medium failed a sync or an append: nothing more is promised, so nothing is changed
  std::atomic<bool> broken_{false};
  std::atomic<KernelView*> kernel_{nullptr};
  std::atomic<Sharer*> sharer_{nullptr};
  Mutex parting_;  // rank 7: one container at a time is taken out of what is shared
  // rank 7: one thread at a time frees what was removed, so that the others find it free
  Mutex freeing_;

  // Rank 10: guards the namespace and the journal. Held for no I/O on file data, except the punch
  // of zeros, and for no reply to the kernel. A container is there before the record of its name
  // and goes after the record of its removal, that without the lock.
  mutable SharedMutex mutex_;
  Namespace names_ EFS_GUARDED_BY(mutex_);
  std::optional<store::Journal> journal_ EFS_GUARDED_BY(mutex_);
  // journal size, bytes, at which a snapshot is due
  std::uint64_t compact_at_ EFS_GUARDED_BY(mutex_) = 0;
  std::vector<std::byte> scratch_ EFS_GUARDED_BY(mutex_);
  SpareMemory spare_memory_ EFS_GUARDED_BY(mutex_);      // given back where apply() finds no other
  bool snapshot_failed_ EFS_GUARDED_BY(mutex_) = false;  // the last one, and the log has it
  // records, since the last snapshot that was made for their sake
  std::uint64_t refused_for_room_ EFS_GUARDED_BY(mutex_) = 0;

  struct Released {
    std::uint64_t sequence;  // of the journal when the last reference went
    std::uint64_t ino;
  };

  // files for free_zeros_left()
  std::unordered_set<std::uint64_t> zeros_left_ EFS_GUARDED_BY(mutex_);
  // inodes from here on were made by this process
  std::uint64_t first_own_ EFS_GUARDED_BY(mutex_) = 0;
  // containers that staging has in hand; it looks at their times without the namespace lock.
  // Counted up under it
  std::atomic<std::uint32_t> held_{0};
  // files that lost their last name, and are referenced
  std::unordered_set<std::uint64_t> unnamed_ EFS_GUARDED_BY(mutex_);
  // R3: containers that wait for their record, oldest first
  std::vector<Released> released_ EFS_GUARDED_BY(mutex_);
  // clean files whose content may not be on the medium
  std::vector<std::uint64_t> unsettled_ EFS_GUARDED_BY(mutex_);
  InodeNumbers numbers_
      EFS_GUARDED_BY(mutex_);  // that a record has reserved, and nobody has got yet
  // calls of settle() that have taken such files and not booked them yet
  unsigned settling_ EFS_GUARDED_BY(mutex_) = 0;
  unsigned tended_ = 0;
  ReplyCache reply_cache_ EFS_GUARDED_BY(mutex_);

  Room room_;
  // and truncations, that may have freed something or will
  std::atomic<std::uint64_t> removals_{0};
  std::atomic<std::uint64_t> freed_up_to_{0};  // removals_ when free_removed() was last begun
  std::atomic<std::uint64_t> times_freed_{0};  // how often it has ended
  std::atomic<std::uint32_t> removing_{0};     // see Removing

  ContainerPool pool_;  // rank 33

  Mutex files_mutex_;  // rank 30
  std::unordered_map<std::uint64_t, std::shared_ptr<MappedFile>> files_
      EFS_GUARDED_BY(files_mutex_);
};

}  // namespace efs::fs
