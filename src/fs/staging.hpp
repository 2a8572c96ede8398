#pragma once
// What staging may do with the file system: fill containers that have no name yet, publish them
// whole, and walk the namespace to bring results out. Works whether or not the file system is
// mounted.

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "fs/inode_numbers.hpp"
#include "fs/known_directories.hpp"

namespace efs::fs {

class Filesystem;
struct Inode;
struct MakeNode;
struct Place;
struct Replace;
struct SetStaging;

/// The version of a PFS file as it was staged in: what a stage-out compares to see that it is still
/// the same.
struct Origin {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;  // bytes
  Nanoseconds mtime = 0;
  // 0: of a copy that another node may have, too: no version of it is known
  Nanoseconds ctime = 0;
  // of a copy that is about to get its name, which moves it: the rest tells
  static constexpr Nanoseconds any_ctime = -1;
  bool operator==(const Origin&) const = default;
};

/// By all that does not move when the file gets another name, or a PFS is mounted again: a hard
/// link to it is not another version.
bool is_same_file(const Origin& a, const Origin& b);

/// What a user said of a name while the job ran (efs set); for a directory it holds for all below
/// that says nothing itself.
enum class Keep : std::uint8_t { by_rule = 0, temporary = 1, persistent = 2 };

/// What is known of something that was staged in and is not there under its name any more.
struct GoneInput {
  mode_t type = 0;              // S_IFMT
  Origin origin;                // of a file
  std::optional<Origin> saved;  // the copy of that name in results-dir
  bool linked = false;
  Keep keep = Keep::by_rule;
  std::string target;     // of a symbolic link
  bool unloaded = false;  // not the job took the name away, but an unload: it is not missed
};

struct StagedAttributes {
  mode_t mode = 0;  // permission bits
  uid_t uid = 0;
  gid_t gid = 0;
  Nanoseconds atime = 0;
  Nanoseconds mtime = 0;
};

/// A file whose container stays open as long as this lives.
struct HeldFile {
  std::uint64_t ino = 0;
  int fd = -1;                  // for reading and writing
  std::shared_ptr<void> holds;  // what keeps `fd` open
};

/// A filled file on its way to a name. `path` is relative to the root.
struct StagedFile {
  std::uint64_t ino = 0;
  std::string path;
  StagedAttributes attributes;  // for publish_files(): the container has these times already
  Origin origin;
  std::map<std::string, std::string> xattrs{};
};

/// Has the time passed that work on many names has? Called by several threads.
using IsOver = std::function<bool()>;
/// Fewer names than these are listed in any case: that takes milliseconds.
inline constexpr std::size_t many_names = 16384;

/// One name of the namespace, as walk() reports it.
struct WalkItem {
  std::string path;  // relative to the root: "a/b"; the root itself is not reported
  std::uint64_t ino = 0;
  struct stat attributes{};
  std::string target;  // of a symbolic link
  std::map<std::string, std::string> xattrs{};
  // content, attributes or name may differ from what was staged in (true for new files)
  bool dirty = false;
  // present where the inode was staged in (and still has the name it was given)
  std::optional<Origin> origin;
  bool linked = false;  // with an origin: the PFS had several names of it
  // where nobody has changed it since it was staged in, under whatever name: the size and mtime
  // that it must have
  std::optional<Origin> content{};
  bool settled = false;       // clean, and its content survives power loss
  bool saved_linked = false;  // that copy has several names, or had: its ctime says nothing
  // present where an unload or a stage-out brought it to results-dir (under this name)
  std::optional<Origin> saved;
  // the other name of it under which an unload or stage-out brought this very version of a file out
  std::string copy_path{};
  std::optional<Origin> copy{};  // as that was
  // by walk(): the file or link that was staged in under this name, where the job put this in its
  // place
  std::shared_ptr<const GoneInput> replaced{};
  Keep keep = Keep::by_rule;       // its own, or of the nearest directory above that has one
  std::string keep_path;           // whose; "" for the root's
  unsigned place = 0;              // of the backend, where the content of a regular file lies
  bool group_handed_down = false;  // the directory above has the set-group-ID bit, and this group
  // Of a stage-out (result_attributes.hpp). No program chose its group: what a new file of its
  // owner gets where no directory hands one down. And: results-group chose it.
  std::optional<gid_t> plain_group{};
  bool group_is_asked = false;
  // why nothing of a regular file's content can be read (its size is unknown, and 0 here), or is
  // left (lost_its_content()); "": nothing says so
  std::string unreadable{};
  // only these parts of it were loaded ("0+4096,8192+100"); "": it is whole
  std::string parts;
};

/// What is known of those who can write to a file at this moment.
struct Writers {
  // to be compared later: grows with each open for writing and each change of attributes
  std::uint64_t edits = 0;
  std::uint32_t open = 0;  // opens for writing that the kernel has not released
  // `open` is no count: it was opened before this process took over, and nobody knows whether it
  // was closed
  bool from_before = false;
  bool possible = true;  // somebody may write, or nothing proves that nobody can
};

/// Which of what is known of an inode a name on the PFS concerns: what it came in as, or what it
/// was brought out as, too.
enum class Side : std::uint8_t { inputs, both };

struct PfsName {
  std::string path;
  std::optional<Origin> version{};  // that it has; none: what it is about to get is nobody's yet
  // whose it is: who has the name by now may have got it since; 0: who has it
  std::uint64_t by = 0;
};

/// What a name of the buffer is called in results-dir; none: the same.
using ResultName = std::function<std::string(const std::string&)>;

/// What a published name may take the place of.
enum class Over : std::uint8_t { nothing, clean, anything };

/// Thread-safe: any number of threads may call any member at once.
class Staging {
 public:
  explicit Staging(Filesystem& filesystem) : filesystem_(filesystem) {}

  /// A new regular file without a name and its empty container. Abandoned files vanish with the
  /// instance.
  Result<std::uint64_t> begin_file();

  /// The same with its container open: one step instead of two, for many small files. Let go of it
  /// before abandon(): what was written into it counts as used from then on.
  Result<HeldFile> begin_open_file();
  /// Its content is to go to this place of the backend (Backend::create_at()).
  Result<HeldFile> begin_open_file_at(unsigned place);

  /// The same with the open file `fd` for its container, under one more name (Backend::adopt()).
  Result<HeldFile> adopt_file(int fd);

  /// The container of a file that is there; cheaper than a descriptor of the caller's own.
  Result<HeldFile> hold(std::uint64_t ino);

  /// As Filesystem::secure().
  Status secure(std::span<const std::uint64_t> inos);

  /// The container's descriptor, for reading (O_RDONLY) or filling (O_RDWR). Offsets are those of
  /// the file.
  Result<UniqueFd> open_container(std::uint64_t ino, int flags);

  /// Frees a file that begin_file() made and that was not published.
  void abandon(std::uint64_t ino);

  /// Gives the file its name and attributes: one journal record, after which it is visible, whole
  /// and clean. The data must be in the container. EEXIST if the name is taken, ENOENT if the
  /// parent is missing.
  Status publish_file(std::uint64_t ino, const std::string& path,
                      const StagedAttributes& attributes, const Origin& origin);

  /// The same for several files, which appear one after the other. Returns how many did; `failed`
  /// is set where that is not all of them, and says why the next one did not.
  std::size_t publish_files(std::span<const StagedFile> files, Status& failed);

  /// Further names of a file that was staged in as `existing`: one inode, clean under all of them.
  /// Each takes the place of what `over` allows, as in publish_over(). After an error those before
  /// the one it names are there.
  Status link_files(const std::string& existing, std::span<const std::string> names, Over over);

  /// A directory (an existing directory is given the attributes) or a symbolic link, likewise.
  Status make_directory(const std::string& path, const StagedAttributes& attributes);
  Status make_symlink(const std::string& path, const std::string& target,
                      const StagedAttributes& attributes);

  /// All extended attributes of a directory, before the mount; it stays clean.
  Status set_xattrs(const std::string& path, const std::map<std::string, std::string>& xattrs);

  /// Of a directory that was staged in: `version` stands for what the PFS has of its attributes,
  /// and comes back as origin.size of its item. Nothing where it was not, or is no directory any
  /// more. The root takes root-dir's group and extended attributes.
  Status set_root(gid_t gid, const std::map<std::string, std::string>& xattrs);
  Status note_directory(const std::string& path, std::uint64_t version);

  /// Power loss took its content before the first fsync, as a recovery of this store found, and no
  /// program has changed it since.
  bool lost_its_content(const WalkItem& item) const;

  /// Takes a name away that nobody may be using: before the mount, for what is staged in anew.
  /// ENOTEMPTY as rmdir(2).
  Status remove(const std::string& path);

  /// As set_saved(), after the unmount: nobody can have changed it.
  Status mark_saved(const std::string& path, const Origin& copy, bool in_place,
                    const GoneInput* replaced = nullptr);

  /// What results-dir has under that name is a copy of some version of this file: a stage-out may
  /// take its place. The file stays dirty; of a clean one nothing is noted.
  Status note_copy(const std::string& path, const Origin& copy, bool in_place,
                   const GoneInput* replaced = nullptr);

  /// The same of the file `ino`, whatever has become of it and of its name since it was copied:
  /// before the copy gets its name (any_ctime), when the version before stays known, too, and once
  /// it has it.
  Status note_named(std::uint64_t ino, const std::string& path, const Origin& copy, bool in_place,
                    const GoneInput* replaced);

  /// What results-dir has under this name is not what the file holds: it counts as changed. ENOENT
  /// where the name leads elsewhere by now.
  Status mark_changed(std::uint64_t ino, const std::string& path);

  /// The whole namespace, parents before children, names in byte order; or `below` and what is in
  /// it: ENOENT, ENOTDIR where there is none. ECANCELED once `is_over` says so: it is asked again
  /// and again, and only where there are many names.
  Result<std::vector<WalkItem>> walk(const std::string& below = {}, const IsOver& is_over = {});

  /// Of that, those of `paths` that are there (still), in their order.
  Result<std::vector<WalkItem>> look(std::span<const std::string> paths);
  /// Every name, in no order, at a fraction of what walk() costs.
  std::vector<std::string> names() const;
  /// Of walk(), without what `efs set` said, the `wanted` names of files whose content is what came
  /// in, for all that is known: under that very name, or (`renamed`) under another one.
  Result<std::vector<WalkItem>> unchanged(
      const std::function<bool(const std::string& path, bool renamed)>& wanted);

  /// What was staged in and is not there under that name any more, removed or renamed: by path,
  /// with type, origin, saved, keep and target; `ino` where it lives under another name, else 0.
  /// Not what a staging took away itself, but for what an unload took with `unloaded`: that of
  /// which it brought another version out before. Survives what names survive.
  std::vector<WalkItem> gone(bool unloaded = false);
  /// Lets these never have been staged in.
  Status forget_gone(const std::vector<std::string>& paths);
  /// What was brought to results-dir under these names is not there any more. That they were staged
  /// in stays.
  Status forget_copies(const std::vector<std::string>& paths);

  /// The PFS has, or is about to get, these versions under these names. What inodes that have other
  /// names by now came in as, or brought out, under them is there no more: they are dirty where
  /// nothing else is known of them, so that they are brought out should they get such a name back.
  /// Durable on return. The names of which that could not be noted, and why: nothing may go there.
  std::map<std::string, Error> revoke(std::span<const PfsName> names, Side side,
                                      const ResultName& called = {});

  /// What was brought out under such names, whoever has them now, counts as not brought out:
  /// results go elsewhere.
  Status forget_saved(const std::function<bool(const std::string&)>& is_elsewhere);

  /// Bytes that the buffer can still take (the journal's reserve left out).
  Result<std::uint64_t> available_bytes();
  /// The same for each place of the backend.
  std::vector<std::uint64_t> available_by_place();

  // While programs run (staging_live.cpp). What changes a name tells the kernel so, after the lock
  // is released.

  /// The name itself, without what is below it.
  Result<WalkItem> find(const std::string& path);
  /// As publish_files of one, but takes the place of what `over` allows, in one step: who has the
  /// old file open keeps it. EEXIST where the name is taken, EBUSY where that is dirty or open for
  /// writing, EISDIR. `parts`: see WalkItem.
  Status publish_over(const StagedFile& file, Over over, const std::string& parts = {});
  /// A directory, unless it is there; its number if it was made, or else 0. One that is there keeps
  /// its attributes.
  Result<std::uint64_t> add_directory(const std::string& path, const StagedAttributes& attributes,
                                      const std::map<std::string, std::string>& xattrs = {});
  /// Times and mode of a directory that add_directory made, after names were made in it; unless a
  /// program has changed them since.
  Status settle_directory(const std::string& path, const StagedAttributes& attributes);
  /// Returns its number.
  Result<std::uint64_t> add_symlink(const std::string& path, const std::string& target,
                                    const StagedAttributes& attributes);

  /// Who can write to the file now. Not possible: proved, either because every open for writing was
  /// released and none could have left a mapping behind, or because the kernel grants a read lease
  /// on the container, which it does only while nobody has it open or mapped for writing.
  Result<Writers> writers(std::uint64_t ino);
  /// Nobody can write to the file: proved by counting alone, at no cost. False where that does not
  /// tell.
  bool is_counted_quiet(std::uint64_t ino) const;
  /// Somebody has its container open for writing: a proof. False where that cannot be known.
  bool is_written(std::uint64_t ino);
  Result<std::uint64_t> edits(std::uint64_t ino);
  Result<struct stat> attributes(std::uint64_t ino);

  /// The file is at results-dir in `copy`'s version. It is clean from now on, if its edits are
  /// still `edits` and it still has that name: else false, and nothing changes. `in_place`: the
  /// copy has taken the place of its origin. `replaced`: what walk() said, so that this copy is
  /// known as ours to what the job puts there next.
  Result<bool> set_saved(std::uint64_t ino, const std::string& path, std::uint64_t edits,
                         const Origin& copy, bool in_place, const GoneInput* replaced = nullptr);
  /// Removes a regular file's name if it is clean and not open for writing: else EBUSY.
  Status remove_clean(const std::string& path);
  /// The same for what a load has just made, whatever it is, if the name still leads to `ino`: else
  /// ESTALE; ENOTEMPTY as rmdir(2).
  Status take_back(const std::string& path, std::uint64_t ino);
  Status set_keep(const std::string& path, Keep keep);
  /// A predecessor of this process died over a load or an unload, and nobody knows of which of its
  /// names it had told the kernel: that asks again for all. (staging_invalidate.cpp)
  void invalidate_entries();

  /// What searches for directories by their paths cost so far: steps from one to the next.
  std::uint64_t path_steps() const { return known_directories_.steps(); }

 private:
  /// A name that a walk comes to, and what `efs set` said above it.
  struct WalkStep {
    const Inode* inode;
    std::string path;
    Keep keep = Keep::by_rule;
    std::string keep_path;
    const Inode* parent = nullptr;  // the directory that it was reached by
  };

  /// A name that was made, of which the kernel is to be told.
  struct NewName {
    std::uint64_t parent = 0;
    std::string name;
    std::uint64_t ino = 0;
  };

  Result<std::uint64_t> new_number();
  /// The directory that holds the last component of `path`, by the namespace alone. Under the
  /// namespace lock.
  Result<Place> locate(const std::string& path) const;
  Result<NewName> new_symlink(const std::string& path, const std::string& target,
                              const StagedAttributes& attributes);
  Status remove_name(const std::string& path, std::uint64_t only);
  // Under the namespace lock.
  Status publish_one(const StagedFile& file);
  Result<WalkStep> start_of_walk(const std::string& below) const;
  void inherit_keep(const Inode* directory, std::string_view path, WalkStep& step) const;
  Result<std::vector<WalkStep>> steps_of(WalkStep start, const IsOver& is_over) const;
  Result<std::vector<WalkItem>> items_of(const std::vector<WalkStep>& steps,
                                         const IsOver& is_over = {}) const;
  WalkItem gone_item(const std::string& path, const GoneInput& input) const;
  bool is_missing(const std::string& path) const;
  Status may_go(const Inode& inode, const std::string& path, std::uint64_t ino) const;
  // that the job took from it: it is about to end
  Status remember_further_names(const Inode& inode, const std::string& path);
  Status forget_name(const std::string& path);  // nothing that was staged in under it is missed
  // what the PFS has there is known still, and not missed
  Status note_unloaded(const Inode& inode, const std::string& path);

  /// A further name that was given, and which inode had it before; 0: none.
  struct LinkedName {
    std::uint64_t parent = 0;
    std::string name;
    std::uint64_t replaced = 0;
  };

  Result<LinkedName> link_one(std::uint64_t ino, const std::string& path, Over over);
  void take_back_links(std::span<const LinkedName> links);
  Status book_names(std::uint64_t ino, std::span<const std::string> names);
  void let_go(std::uint64_t ino);
  bool is_counted(const Inode& inode) const;
  bool leads_to(const std::string& path, std::uint64_t ino) const;
  void find_copy(const Inode& inode, WalkItem& item) const;
  Status remember_copies(const Inode& inode, const std::string& path);
  void keep_of_others(SetStaging& staging, const std::string& path) const;
  Status book_saved(const Inode& inode, const std::string& path, const Origin& copy, bool in_place,
                    const GoneInput* replaced);
  Status book_gone(bool linked, const std::string& path, const Origin& copy, bool in_place,
                   const GoneInput* replaced);
  Status note(const Inode& inode, const std::string& path, const Origin& copy, bool in_place);
  void find_replaced(std::vector<WalkItem>& items) const;

  /// Names that an inode is known by on the PFS and does not have.
  struct Claims {
    std::vector<std::string> staged, saved;

    bool empty() const { return staged.empty() && saved.empty(); }
  };
  struct Taken;
  bool is_stale(const Inode& inode, const std::string& name, const PfsName* taken,
                const Origin& known) const;
  Claims stale_claims(const Inode& inode, const Taken& taken) const;
  std::vector<std::uint64_t> those(const std::function<bool(const Inode&)>& wanted) const;
  Status give_up(const Inode& inode, const Claims& claims);
  Status complete_and_name(const MakeNode& node, const std::map<std::string, std::string>& bulky,
                           const std::string& parts, const Replace& replace, std::int64_t reserve);
  static bool has_content_that_came_in(const Inode& inode);
  WalkItem item_of(const WalkStep& step) const;
  Status replace_xattrs(const Inode& inode, const std::map<std::string, std::string>& xattrs);

  Filesystem& filesystem_;
  Mutex numbers_mutex_;  // rank 9: the namespace's lock is taken under it
  InodeNumbers numbers_
      EFS_GUARDED_BY(numbers_mutex_);           // for containers, of which there is none yet
  mutable KnownDirectories known_directories_;  // used under the namespace lock
};

}  // namespace efs::fs
