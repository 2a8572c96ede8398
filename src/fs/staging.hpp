// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The interface of staging to the file system: fills unnamed containers, publishes whole files, and
// walks the namespace for exports. Works with and without a mount.

#include <sys/stat.h>
#include <atomic>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/backend.hpp"
#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "fs/inode_numbers.hpp"
#include "fs/known_directories.hpp"
#include "ledger/files.hpp"

namespace efs::fs {

class Filesystem;
class KernelView;
struct Inode;
struct MakeNode;
struct Place;
struct Replace;
struct SetStaging;

/// The version of a PFS file at its import. A stage-out compares it with the present version.
using Origin = ledger::FileVersion;
using ledger::is_same_file;

using ledger::GoneInput;
using ledger::Keep;
using ledger::PfsName;
using ledger::ResultName;
using ledger::SavedCopy;
using ledger::Side;

/// A result that efs removed from the buffer, and that has its name no more.
struct DroppedResult {
  std::string path;
  std::uint64_t size = 0;
  Nanoseconds mtime = 0;
  bool was_sent = false;  // false: the buffer had the only copy (drop_unsent())
};

struct StagedAttributes {
  mode_t mode = 0;  // permission bits
  uid_t uid = 0;
  gid_t gid = 0;
  Nanoseconds atime = 0;
  Nanoseconds mtime = 0;
};

/// A file of which the buffer has all but the content. The content is on the PFS until it is
/// fetched, and the container is a hole meanwhile.
struct Remote {
  Origin version;             // of the PFS file: only this version may become the content
  std::string source;         // an absolute path, or one relative to root-dir
  bool background = false;    // is to be fetched even if no program opens it
  std::int32_t priority = 0;  // among these
  bool accepts = false;       // another version of the PFS file may become the content, too
  std::uint64_t room = 0;     // bytes that the content takes
  // gives its room to other files when it is full; no room is kept for the content meanwhile
  bool evictable = false;
  bool is_here = false;  // of an evictable file: the container has the content
  // The container may have the content although it is not here: the record of that may not be
  // durable, or an earlier worker may have died before it emptied the container.
  bool is_full = false;
  std::string failure{};  // why the last fetch by this process failed, for people; not recorded
};

/// The container of a file, open for reading and writing. It stays open as long as this or a copy.
struct OpenContainer {
  std::uint64_t ino = 0;
  std::shared_ptr<Container> container;
};

/// A filled file before its publication. `path` is relative to the root.
struct StagedFile {
  std::uint64_t ino = 0;
  std::string path;
  StagedAttributes attributes;  // for publish_files(): the container already has these times
  Origin origin;
  std::map<std::string, std::string> xattrs{};
  std::optional<Remote> remote{};  // for publish_files(): the container is a hole
};

/// Returns true after the deadline of work on many names. Called by several threads.
using IsOver = std::function<bool()>;
/// A walk over fewer names ignores IsOver: it takes milliseconds.
inline constexpr std::size_t many_names = 16384;

/// The content of an item in the buffer.
struct BufferedContent {
  unsigned place = 0;    // backend index of a regular file's content
  bool settled = false;  // clean, and the content survives power loss
  // why a regular file's content is unreadable (then its size is unknown, and 0 here) or lost
  // (lost_its_content()); "": no known reason
  std::string unreadable{};
  bool remote = false;          // the content is not here: see Remote
  std::string fetch_failure{};  // of a remote file: Remote::failure
  bool accepts_change = false;  // of a remote file: Remote::accepts
  bool pinned = false;          // see Staging::set_pinned()
  // the number of a container that has moved between backends (fs/moved.hpp); 0: that of the file
  std::uint64_t container = 0;
  bool evictable = false;       // of a remote file: Remote::evictable
  std::string remote_source{};  // of a remote file: Remote::source
};

/// The group of an item, for a stage-out (result_attributes.hpp).
struct ItemGroup {
  bool handed_down = false;  // the parent has the set-group-ID bit and the same group
  // Set if no program chose the group: the group that a new file of the owner gets without a
  // set-group-ID directory. results-group also sets it.
  std::optional<gid_t> plain{};
  bool is_asked = false;
};

/// One name of the namespace in the result of walk().
struct WalkItem {
  std::string path;  // relative to the root ("a/b"); the root itself is left out
  std::uint64_t ino = 0;
  struct stat attributes{};
  std::string target;  // of a symbolic link
  std::map<std::string, std::string> xattrs{};
  ledger::NameEntry pfs{};  // its versions on the PFS; pfs.replaced: by walk()
  BufferedContent content{};
  ItemGroup group{};
  Keep keep = Keep::by_rule;  // its own, or that of the nearest ancestor that has one
  std::string keep_path;      // the path of the item that has `keep`; "" for the root

  bool due_for_export() const { return pfs.due_for_export(attributes.st_mode); }
};

/// The present writers of a file.
struct Writers {
  // for a later comparison: incremented by each open for writing and each change of attributes
  std::uint64_t edits = 0;
  std::uint32_t open = 0;  // opens for writing without a release
  bool possible = true;    // a program can write, or there is no proof that none can
};

/// Which existing files a published name may replace.
enum class Over : std::uint8_t { nothing, clean, anything };

/// Thread-safe: any number of threads may call any member at once.
class Staging {
 public:
  explicit Staging(Filesystem& filesystem) : filesystem_(filesystem) {}

  /// Makes a regular file without a name, with an empty container, which is open. Abandoned files
  /// disappear with the instance. Destroy the OpenContainer before abandon(); its space counts as
  /// used until then.
  Result<OpenContainer> begin_open_file();
  /// The same on backend number `place` (Backend::create_at()).
  Result<OpenContainer> begin_open_file_at(unsigned place);

  /// The same with a hard link to `other` as its container (Backend::adopt()).
  Result<OpenContainer> adopt_file(Container& other);

  /// Opens the container of an existing file.
  Result<OpenContainer> open_container(std::uint64_t ino, CachePolicy policy = CachePolicy::closed);

  // Contents that are not here yet (staging_remote.cpp).

  /// The bytes of a running fetch that the container has: they need no reserved room any more.
  class Arrived {
   public:
    explicit Arrived(const Filesystem& filesystem);

    ~Arrived() { forget(); }

    Arrived(const Arrived&) = delete;
    Arrived& operator=(const Arrived&) = delete;

    /// Thread-safe.
    void add(std::uint64_t bytes);
    void forget();

   private:
    const std::shared_ptr<std::atomic<std::uint64_t>> all_;  // Filesystem::arrived_
    std::atomic<std::uint64_t> bytes_{0};
  };

  /// A remote file whose content may be written to its container now.
  struct Fetch {
    Remote remote;
    FileTime atime, mtime;  // those of the file
    OpenContainer file;     // empty
    std::shared_ptr<Arrived> arrived;
  };

  /// Begins, or begins anew, to fetch the content of a remote file. nullopt: its content is here.
  /// ESTALE: the file has lost its name. One fetch of a file at a time.
  Result<std::optional<Fetch>> begin_fetch(std::uint64_t ino);
  /// False if the file has lost its name, or its content is here.
  bool is_remote(std::uint64_t ino) const;
  /// The container has the whole content: makes the content durable and then known as the file's.
  /// The file is clean, with its times. ESTALE as above.
  Status end_fetch(const Fetch& fetch);

  /// The content will be this version of the PFS file: the file gets its size and mtime, and
  /// `fetch`, too. `room`: as Remote::room. Requires Remote::accepts. ENOSPC: the store has no room
  /// for it. ESTALE as above. Call it with an empty container.
  Status accept_version(Fetch& fetch, const Origin& version, std::uint64_t room);

  /// Records why a fetch of the file has failed, for people. Without effect if it is here.
  void note_fetch_failure(std::uint64_t ino, std::string why);

  /// The remote files with a name, or those of them with Remote::background.
  struct RemoteFile {
    std::uint64_t ino = 0;
    std::int32_t priority = 0;
  };

  std::vector<RemoteFile> remote_files(bool background_only) const;

  /// The directory of an imported file that still has the name of its import; 0: another file.
  std::uint64_t directory_of(std::uint64_t ino) const;

  struct SiblingFile {
    std::string name;
    std::uint64_t ino = 0;
    std::uint64_t size = 0;  // of a remote file; 0: another file
  };

  /// The regular files of a directory in the order in which readdir lists them; none if it is gone.
  std::vector<SiblingFile> files_in(std::uint64_t directory) const;
  /// The path of a file with one name, for people; "": it has no name.
  std::string path_of(std::uint64_t ino) const;

  // Contents that give their room to others (staging_evict.cpp).

  /// A clean file with one name that no program has open just now.
  struct EvictionCandidate {
    std::uint64_t ino = 0;
    std::string path;         // its name when it was imported or exported
    std::uint64_t bytes = 0;  // that its content takes
    FileTime since;           // when its container changed last
    bool was_used = false;    // was opened since the last call
    bool is_input = false;    // false: a result that was exported
    // of an input whose content came by a fetch: what the PFS has
    std::optional<Remote> remote{};
  };

  /// Whether the job file lets the content leave. `remote`: as EvictionCandidate::remote; null:
  /// none. Called under the namespace lock.
  using MayLeave =
      std::function<bool(const std::string& path, bool is_input, const Remote* remote)>;

  /// Whole inputs whose contents are here, and results of which results-dir has a copy. Those whose
  /// contents the cache shares are left out.
  std::vector<EvictionCandidate> eviction_candidates(const MayLeave& may_leave = {});
  /// Makes the file remote: only `remote` has its content from here on, until it is fetched again.
  /// The same checks as of drop_unused(), and its size must be that of `remote.version`. The
  /// container keeps its room until free_evicted(). The caller has asked the PFS for that version.
  Status evict_unused(const std::string& path, std::uint64_t ino, const Remote& remote);
  /// The checks of evict_unused() without the eviction.
  Status check_evictable(const std::string& path, std::uint64_t ino, const Remote& remote);
  /// Makes these evictions durable and frees their room. Returns the number of bytes. Repeatable:
  /// an error may come after some were freed.
  Result<std::uint64_t> free_evicted(std::span<const std::uint64_t> inos);

  // Contents that move between backends (staging_move.cpp).

  /// A regular file of one backend that could move: it has a content here, and no program has it
  /// open just now.
  struct MoveCandidate {
    std::uint64_t ino = 0;
    std::string path;         // one of its names
    std::uint64_t bytes = 0;  // that its content takes
    FileTime since;           // when its content was read or changed last, as far as known
    bool was_used = false;    // was opened since the last call
  };

  /// The files in backend number `place` that no user has pinned, in no order.
  std::vector<MoveCandidate> move_candidates(unsigned place);

  /// Whether a pinned file stays (EPERM), or moves because a user asks for it.
  enum class Pins : std::uint8_t { hold, give_way };

  /// A move that has begun: the content is to be copied from `source` to `target`.
  struct Move {
    std::string path;
    std::uint64_t ino = 0;
    unsigned place = 0;        // to which it moves
    struct stat before{};      // of the source
    std::uint64_t edits = 0;   // of the file, before the copy
    bool is_reserved = false;  // a program has reserved space for the whole file
    Pins pins = Pins::hold;
    std::shared_ptr<Container> source;
    OpenContainer target;
  };

  /// nullopt: the content is in that backend already, or not in the buffer. EBUSY: a program may
  /// have the file open or mapped, or the cache shares it. EPERM: see stage::move_files(). ENOSPC.
  /// End it with end_move() or abandon_move().
  Result<std::optional<Move>> begin_move(const std::string& path, unsigned place,
                                         Pins pins = Pins::give_way);
  /// The target has the whole content, and is as durable as its backend makes it. From the return
  /// on the content is in the other backend, also for a recovery, and the room of the former one is
  /// free or soon will be. EBUSY or ESTALE: a program was there meanwhile; the file stays as it is.
  Status end_move(Move move);
  void abandon_move(Move move);

  /// A pinned file stays in its backend and keeps its content, until it is unpinned: no tier, and
  /// no full buffer moves or evicts it. Of a regular file. ENOENT.
  Status set_pinned(const std::string& path, bool pinned);

  struct RemoteTotals {
    std::uint64_t files = 0, bytes = 0;
  };

  RemoteTotals remote_totals() const;

  /// As Filesystem::secure().
  Status secure(std::span<const std::uint64_t> inos);

  /// Frees an unpublished file of begin_open_file() or adopt_file().
  void abandon(std::uint64_t ino);

  /// Gives each file its name and attributes by one journal record. The file is then visible, whole
  /// and clean. The files appear one after the other. Requires: the containers have the data and
  /// the times. EEXIST if a name exists, ENOENT if the parent is missing. Returns the number of
  /// published files. If it is not all, sets `failed` to the error of the next file.
  std::size_t publish_files(std::span<const StagedFile> files, Status& failed);

  /// Gives further names to a file that was imported as `existing`: one inode, clean under all
  /// names. Each name may replace files as `over` permits, see publish_over(). After an error the
  /// names before the failed one exist.
  Status link_files(const std::string& existing, std::span<const std::string> names, Over over);

  /// Makes a directory or a symbolic link, clean. An existing directory gets the attributes.
  Status make_directory(const std::string& path, const StagedAttributes& attributes);
  Status make_symlink(const std::string& path, const std::string& target,
                      const StagedAttributes& attributes);

  /// Sets all extended attributes of a directory before the mount. The directory stays clean.
  Status set_xattrs(const std::string& path, const std::map<std::string, std::string>& xattrs);

  /// Records the version of an imported directory's attributes on the PFS. walk() returns it as
  /// origin.size. Without effect if the path is not an imported directory. The root takes
  /// root-dir's group and extended attributes.
  Status set_root(gid_t gid, const std::map<std::string, std::string>& xattrs);
  Status record_directory(const std::string& path, std::uint64_t version);

  /// True if the file lost its content by power loss before the first fsync, as a recovery of this
  /// store found, and no program has changed it since.
  bool lost_its_content(const WalkItem& item) const;

  /// Removes an unused name, before the mount, for a file that is imported again. ENOTEMPTY as
  /// rmdir(2).
  Status remove(const std::string& path);

  /// As set_saved(), after the unmount, when no program can change the file.
  Status mark_saved(const std::string& path, const Origin& copy, bool in_place,
                    const GoneInput* replaced = nullptr);

  /// Records that results-dir has a copy of some version of this file under that name, which a
  /// stage-out may replace. The file stays dirty. Without effect for a clean file.
  Status record_copy(const std::string& path, const Origin& copy, bool in_place,
                     const GoneInput* replaced = nullptr);

  /// The same for the file `ino`, even if the file or its name has changed since the copy. Call it
  /// before the copy gets its name (any_ctime), which also keeps the former version, and again
  /// afterwards.
  Status record_named(std::uint64_t ino, const std::string& path, const Origin& copy, bool in_place,
                      const GoneInput* replaced);

  /// Marks the file changed, because results-dir has another content under this name. ENOENT if the
  /// name leads to another inode by now.
  Status mark_changed(std::uint64_t ino, const std::string& path);

  /// Lists the whole namespace, or `below` and its content: parents before children, names in byte
  /// order. ENOENT, ENOTDIR if `below` does not exist. ECANCELED after `is_over` returns true; with
  /// many names the walk calls it repeatedly.
  Result<std::vector<WalkItem>> walk(const std::string& below = {}, const IsOver& is_over = {});

  /// The items of walk() for those `paths` that exist, in their order.
  Result<std::vector<WalkItem>> look(std::span<const std::string> paths);
  /// Every name, in no order, at a fraction of the cost of walk().
  std::vector<std::string> names() const;
  /// The items of walk(), without the classes of `efs set`, for files that are not known to have
  /// changed since the import and for which `wanted` is true. `renamed`: the name differs from that
  /// of the import.
  Result<std::vector<WalkItem>> unchanged(
      const std::function<bool(const std::string& path, bool renamed)>& wanted);

  /// The imported names that were removed or renamed, by path, with type, origin, saved, keep and
  /// target. `ino` is set if the file exists under another name, otherwise 0. Leaves out names that
  /// staging removed. With `unloaded` it includes names that an unload removed after the export of
  /// another version. As durable as names.
  std::vector<WalkItem> gone(bool unloaded = false);
  /// Drops the records that these paths were imported.
  Status forget_gone(const std::vector<std::string>& paths);
  /// Drops the records of exported copies under these names. Keeps the records of imports.
  Status forget_copies(const std::vector<std::string>& paths);

  /// Call it before other files get these versions under these PFS names. Inodes that were imported
  /// or exported under such a name and have another name now lose that record. An inode without
  /// another record becomes dirty, so that it is exported if it gets the name back. Durable on
  /// return. Returns the names whose records could not be dropped, with the error: the caller must
  /// not write to those.
  std::map<std::string, Error> revoke(std::span<const PfsName> names, Side side,
                                      const ResultName& called = {});

  /// Drops the export records of all names for which `is_elsewhere` is true, because results now go
  /// to another path.
  Status forget_saved(const std::function<bool(const std::string&)>& is_elsewhere);

  /// Bytes that the buffer can still take, without the journal's reserve.
  Result<std::uint64_t> available_bytes();
  /// The part of it that contents may take which no program has asked for yet: half of what exceeds
  /// a tenth of the capacity.
  std::uint64_t room_to_spare();
  /// The bytes that are kept for contents which are not here yet.
  std::uint64_t reserved_bytes() const;
  /// The same for each of several backends.
  std::vector<std::uint64_t> available_by_place();

  // While programs run (staging_live.cpp). Members that change a name notify the kernel after they
  // have released the lock.

  /// The path of a name in the directory with this inode; the name need not exist. nullopt if the
  /// inode is not a directory.
  std::optional<std::string> path_below(std::uint64_t directory, const std::string& name) const;
  /// The item of this name, without its content.
  Result<WalkItem> find(const std::string& path);
  /// As publish_files(), but replaces an existing file in one step as `over` permits. Programs that
  /// have the old file open keep it. EEXIST if the name exists, EBUSY if that file is dirty or open
  /// for writing, EISDIR. `parts`: see WalkItem.
  Status publish_over(const StagedFile& file, Over over, const std::string& parts = {});
  /// Makes a directory and returns its number; 0 if it exists. An existing directory keeps its
  /// attributes.
  Result<std::uint64_t> add_directory(const std::string& path, const StagedAttributes& attributes,
                                      const std::map<std::string, std::string>& xattrs = {});
  /// Sets times and mode of a directory of add_directory() after names were made in it, unless a
  /// program has changed them since.
  Status settle_directory(const std::string& path, const StagedAttributes& attributes);
  /// Returns the inode number.
  Result<std::uint64_t> add_symlink(const std::string& path, const std::string& target,
                                    const StagedAttributes& attributes);

  /// The present writers of the file. `possible` is false only with a proof. Either every open for
  /// writing is released and none can have left a mapping. Or the kernel grants a read lease on the
  /// container, which it does only while no process has the container open or mapped for writing.
  Result<Writers> writers(std::uint64_t ino);
  /// Makes the kernel write back the data of the file that it holds, for a copy of a file that
  /// programs may be writing to. Call it from a thread that serves no requests.
  void write_back(std::uint64_t ino);
  /// See Filesystem.
  bool is_counted_quiet(std::uint64_t ino) const;
  /// True if a process is proved to have the container open for writing. False if that is unknown.
  bool is_written(std::uint64_t ino);
  Result<std::uint64_t> edits(std::uint64_t ino);
  /// The number of inodes.
  std::size_t count();
  Result<struct stat> attributes(std::uint64_t ino);

  /// Records that results-dir has the file in version `copy` and marks the file clean. Returns
  /// false without a change if its edits are no longer `edits` or it no longer has that name.
  /// `in_place`: the copy has replaced the file's origin. `replaced`: the value of walk(); later
  /// files of this name then recognise the copy as this job's.
  Result<bool> set_saved(std::uint64_t ino, const std::string& path, std::uint64_t edits,
                         const SavedCopy& copy);
  /// Removes a regular file's name if the file is clean and not open for writing; otherwise EBUSY.
  Status remove_clean(const std::string& path);
  /// Removes the name of the regular file `ino`, as the last one, if the file is clean, its
  /// exported copy under this name is `copy`, and a proof exists that no program has it open or
  /// mapped. The proof and the removal are one step. EBUSY: no proof, or not clean; ESTALE: another
  /// file or copy; EMLINK: the file has further names.
  Status drop_unused(const std::string& path, std::uint64_t ino, const Origin& copy);
  /// The checks of drop_unused() without the removal.
  Status check_unused(const std::string& path, std::uint64_t ino, const Origin& copy);

  /// A file that leaves the buffer; its size and mtime are for the receipt.
  struct UnsentFile {
    std::string path;
    std::uint64_t ino = 0;
    std::uint64_t size = 0;
    Nanoseconds mtime = 0;
    std::optional<std::uint64_t> edits{};  // those that it must have; nullopt: any
  };

  /// A file that no program has opened for writing, renamed or removed since its `edits`.
  struct UnchangedFile {
    std::string path;
    std::uint64_t ino = 0;
    std::uint64_t edits = 0;
  };

  /// True for a regular file without further names and without a class of `efs set`, of which the
  /// PFS has no version that efs knows, and whose name was none that efs imported or exported.
  bool is_only_here(const std::string& path, std::uint64_t ino);
  /// Removes these names, of files for which is_only_here() is true, and with them the only copies.
  /// All checks and removals are one step for programs: without the proof that no program has any
  /// of them open or mapped, or if one of `newer` has changed, nothing is removed. If the process
  /// dies in between, some may stay. EBUSY: a matter of programs; ESTALE: another file; EMLINK: not
  /// only here. dropped() lists the files from then on.
  Status drop_unsent(std::span<const UnsentFile> files, std::span<const UnchangedFile> newer);
  /// The results that drop_unsent(), drop_unused() and remove_clean() removed, in byte order. As
  /// durable as names.
  std::vector<DroppedResult> dropped();
  /// The same as remove_clean() for a name of any type that a load has just made. ESTALE if the
  /// name no longer leads to `ino`; ENOTEMPTY as rmdir(2).
  Status take_back(const std::string& path, std::uint64_t ino);
  Status set_keep(const std::string& path, Keep keep);
  /// Makes the kernel look up all names again. Needed after an earlier worker died during a load or
  /// an unload, because it may not have notified the kernel of all changed names.
  /// (staging_invalidate.cpp)
  void invalidate_entries();

  /// The cost of all searches for directories by path, in steps from one directory to the next.
  std::uint64_t path_steps() const { return known_directories_.steps(); }

 private:
  /// A name in a walk, and the class that `efs set` gave to an ancestor.
  struct WalkStep {
    const Inode* inode;
    std::string path;
    Keep keep = Keep::by_rule;
    std::string keep_path;
    const Inode* parent = nullptr;  // the directory of the name
  };

  /// A new name, of which the kernel must be notified.
  struct NewName {
    std::uint64_t parent = 0;
    std::string name;
    std::uint64_t ino = 0;
  };

  Result<std::uint64_t> new_number();
  /// The file with this name, if its content may leave the buffer.
  Result<const Inode*> evictable_at(const std::string& path, std::uint64_t ino,
                                    const Remote& remote);
  /// Fails unless the content of the file may leave the buffer: see evict_unused().
  Status may_evict(const Inode& inode, const std::string& path, std::uint64_t ino,
                   const Remote& remote);
  /// Empties the container of an evicted file, if it still has the content. Returns the bytes that
  /// are free. The record of the eviction is durable.
  Result<std::uint64_t> empty_evicted(std::uint64_t ino);
  /// R3: returns when the records of all evictions survive power loss.
  Status make_eviction_durable();
  /// Fails unless the content of the file may move to that backend.
  Status may_move(const Inode& inode, const Move& move);
  /// Sets what a move knows of the file before its copy.
  Status look_before_move(Move& move);
  Status make_target(Move& move);
  /// Gives the copy its times, and makes it durable.
  Status secure_copy(const Move& move);
  /// Records that the target is the file's container. Its number is then that of the former one.
  Status switch_container(const Move& move);
  /// As open_container(), also of a remote file.
  Result<OpenContainer> open_any_container(std::uint64_t ino,
                                           CachePolicy policy = CachePolicy::closed);
  /// The directory that holds the last component of `path`, by the namespace alone. Under the
  /// namespace lock.
  Result<Place> locate(const std::string& path) const;
  /// The inode that the path leads to, likewise.
  Result<Inode*> inode_at(const std::string& path) const;
  Result<NewName> new_symlink(const std::string& path, const std::string& target,
                              const StagedAttributes& attributes);
  Status remove_name(const std::string& path, const std::function<Status(const Inode&)>& may);
  // Under the namespace lock.
  Status publish_one(const StagedFile& file);
  Result<WalkStep> start_of_walk(const std::string& below) const;
  void inherit_keep(const Inode* directory, std::string_view path, WalkStep& step) const;
  Result<std::vector<WalkStep>> steps_of(WalkStep start, const IsOver& is_over) const;
  using Children = std::vector<std::pair<std::string_view, std::uint64_t>>;
  static void list_children(const Inode& directory, Children& children);
  /// Adds a step for each of the children. They inherit the class of the directory's step.
  void push_children(const WalkStep& step, const Children& children,
                     std::vector<WalkStep>& stack) const;
  Result<std::vector<WalkItem>> items_of(const std::vector<WalkStep>& steps,
                                         const IsOver& is_over = {}) const;
  WalkItem gone_item(const std::string& path, const GoneInput& input) const;
  bool is_missing(const std::string& path) const;
  Status may_go(const Inode& inode, const std::string& path, std::uint64_t ino) const;
  Status may_drop(const Inode& inode, const std::string& path, std::uint64_t ino,
                  const Origin& copy);
  /// The inode's state under this name, without NameEntry::replaced.
  ledger::NameEntry entry_of(const Inode& inode, const std::string& path) const;
  /// Returns whether a name leads to the inode.
  ledger::LeadsTo leads_to(std::uint64_t ino) const;
  /// Records the change; null: of names only.
  Status commit_change(const Inode* inode, const ledger::Change& change);

  /// A further name, and the inode that had the name before; 0: none.
  struct LinkedName {
    std::uint64_t parent = 0;
    std::string name;
    std::uint64_t replaced = 0;
  };

  /// The inode that a file may replace under this name; 0: none. Errors as may_replace().
  Result<std::uint64_t> replaceable(const Place& place, const std::string& path, Over over) const;
  struct Links;
  /// The inode of a regular file that was imported under this name. ESTALE if the name has another
  /// one.
  Result<std::uint64_t> imported_file(const std::string& path) const;
  Status link_all(const std::string& existing, std::span<const std::string> names, Over over,
                  Links& links);
  static void tell_of_links(const Links& links, KernelView& kernel);
  Result<LinkedName> link_one(std::uint64_t ino, const std::string& path, Over over);
  void take_back_links(std::span<const LinkedName> links);
  Status book_names(std::uint64_t ino, std::span<const std::string> names);
  void let_go(std::uint64_t ino);
  /// Closes all descriptors of the file that no program needs.
  void close_unused(std::uint64_t ino);
  struct Unsent;
  bool is_only_here(const Inode& inode, const Inode& parent, const std::string& path) const;
  Result<Unsent> unsent(const UnsentFile& file);
  Status check_unchanged(std::span<const UnchangedFile> newer) const;
  Status remove_unsent(std::vector<Unsent>& leaving);
  void invalidate_names_in(std::uint64_t ino, KernelView& kernel);
  bool leads_to(const std::string& path, std::uint64_t ino) const;
  Status record_export(const Inode& inode, const std::string& path, const SavedCopy& copy);
  void find_replaced(std::vector<WalkItem>& items) const;
  using ItemsByPath = std::unordered_map<std::string_view, WalkItem*>;
  /// Sets `replaced` where the input has no name any more. Returns the items with the job's own
  /// names: an input that exists under another name may have had one of them.
  ItemsByPath find_replaced_gone(std::vector<WalkItem>& items) const;
  /// Sets `replaced` where the input exists under another name.
  void find_replaced_elsewhere(const ItemsByPath& own) const;

  using StaleNamesOf =
      std::function<ledger::StaleNames(std::uint64_t ino, const ledger::FileEntry& entry)>;
  /// Revokes the names that `stale` returns for each inode. Calls `done` after each of them.
  void revoke_all(const StaleNamesOf& stale,
                  const std::function<void(const ledger::StaleNames&, const Status&)>& done);
  Status complete_and_name(const MakeNode& node, const std::map<std::string, std::string>& bulky,
                           const std::string& parts, const Replace& replace, std::int64_t reserve);
  struct Published;
  /// Publishes by several records. `bulky`: attributes for records of their own; `old`: the inode
  /// to replace; 0: none.
  Status publish_in_steps(MakeNode& node, const std::map<std::string, std::string>& bulky,
                          const std::string& parts, std::uint64_t old, Published& published);
  WalkItem item_of(const WalkStep& step) const;
  Status replace_xattrs(const Inode& inode, const std::map<std::string, std::string>& xattrs);

  Filesystem& filesystem_;
  Mutex numbers_mutex_;  // rank 9: the namespace's lock is taken under it
  InodeNumbers numbers_
      EFS_GUARDED_BY(numbers_mutex_);           // for containers, of which there is none yet
  mutable KnownDirectories known_directories_;  // used under the namespace lock
};

}  // namespace efs::fs
