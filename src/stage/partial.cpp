#include "stage/partial.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "base/checksum.hpp"
#include "fs/acl.hpp"
#include "stage/merge.hpp"
#include "stage/name_claim.hpp"
#include "stage/placed_names.hpp"
#include "stage/results_tree.hpp"

namespace efs::stage {
namespace {

constexpr std::size_t longest_name = 255;

/// The partial goes, as `error` says why; where it cannot, the error tells of it as well.
std::unexpected<Error> without_partial(const PartialJob& job, Error error, PfsIo& pfs) {
  const Status gone = pfs.unlink(job.directory, job.partial);
  if (!gone && gone.error().code != ENOENT) error.what = describe(error) + "; " + left_behind(job.partial, gone.error());
  return std::unexpected(std::move(error));
}

Status give_name(const PartialJob& job, const struct stat& partial, PfsIo& pfs, const AboutToName& about_to) {
  const std::string name = job.name.empty() ? leaf_of(job.item.path) : job.name;
  if (!job.is_new && job.over == nullptr) return pfs.rename(job.directory, job.partial, name, about_to);
  const auto tell = [&] { if (about_to) about_to(false); };
  if (!job.is_new) return rename_over(pfs, job.directory, job.partial, name, partial, *job.over, tell);
  tell();
  return pfs.rename_new(job.directory, job.partial, name);
}

Error not_named(const Error& error) {
  const bool is_directory = error.code == EISDIR || error.code == ENOTEMPTY;
  return told(error, is_directory ? "a directory has its name: move that away, and try again" : "giving it its name").error();
}

/// Owner, extended attributes, mode, times; the owner first, for changing it clears setuid bits and capabilities. Returns what
/// the PFS does not take, as set_xattrs().
Result<std::string> set_attributes(int fd, const fs::WalkItem& item, const struct stat& now, PfsIo& pfs) {
  const auto& wanted = item.attributes;
  bool owned = now.st_uid == wanted.st_uid && now.st_gid == wanted.st_gid;
  if (!owned) {
    auto done = pfs.chown(fd, wanted.st_uid, wanted.st_gid);
    if (!done && done.error().code != EPERM) return told(done.error(), "setting its owner");
    owned = done.has_value();
  }
  auto lost = set_xattrs(fd, item, pfs);
  if (!lost) return lost;
  const mode_t mode = safe_mode(wanted.st_mode, owned);
  if (mode != (now.st_mode & 07777U)) {
    if (auto done = pfs.chmod(fd, mode); !done) return told(done.error(), "setting its mode");
  }
  if (auto done = pfs.set_times(fd, to_ns(wanted.st_atim), to_ns(wanted.st_mtim)); !done) return told(done.error(), "setting its times");
  return lost;
}

bool same_version(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && to_ns(a.st_mtim) == to_ns(b.st_mtim);
}

/// Has the copy the size and the time of what the buffer holds? A PFS may keep whole seconds only.
bool has_stamp(const struct stat& copy, const struct stat& ours) {
  return copy.st_size == ours.st_size && same_or_coarser(copy.st_mtim, ours.st_mtim);
}

/// As set_attributes() leaves it.
bool same_mode(const struct stat& there, const struct stat& wanted) {
  const bool owned = there.st_uid == wanted.st_uid && there.st_gid == wanted.st_gid;
  return (there.st_mode & 07777U) == safe_mode(wanted.st_mode, owned);
}

/// Data and attributes into the new file `fd`.
Result<PartialFile> fill_partial(const PartialJob& job, int fd, Buffer& buffer, PfsIo& pfs, Scratch& scratch, Progress& progress) {
  if (is_foreign(job.item)) return fail(EUCLEAN, "its container is not what was staged in, though no program has changed it: somebody has exchanged it, or cut it short; the PFS has it");
  auto container = buffer.hold(job.item.ino);
  if (!container) return told(container.error(), "opening its container");
  auto before = posix_pfs().fstat(container->fd);
  if (!before) return told(before.error(), "reading its container");
  const auto size = static_cast<std::uint64_t>(before->st_size);
  Checksum sum;
  const CopyJob copy{.source = {posix_pfs(), container->fd}, .destination = {pfs, fd}, .size = size,
                     .allocated = static_cast<std::uint64_t>(before->st_blocks) * 512, .early_writeback = true};
  EFS_TRY(copy_data(copy, scratch, &sum, progress));
  auto after = posix_pfs().fstat(container->fd);
  EFS_TRY(buffer.confirm(job.item.ino, after && same_version(*before, *after)));
  auto written = pfs.fstat(fd);
  if (!written) return told(written.error(), "reading back its attributes");
  if (static_cast<std::uint64_t>(written->st_size) != size) {
    if (auto done = pfs.fsync(fd); !done) return told(done.error(), "fsync");  // a network's client tells only now that the server was full
    return fail(EIO, "the PFS has another size than was written");
  }
  if (job.inherits_acl && !job.item.xattrs.contains(fs::access_acl_name)) {
    auto done = pfs.remove_xattr(fd, fs::access_acl_name);
    if (!done && done.error().code != ENODATA && done.error().code != EOPNOTSUPP) return told(done.error(), "taking the directory's default ACL from it");
  }
  auto lost = set_attributes(fd, job.item, *written, pfs);
  if (!lost) return std::unexpected(lost.error());
  if (job.fsync || written->st_dev != job.synced) {
    if (auto done = pfs.fsync(fd); !done) return told(done.error(), "fsync");
  }
  return PartialFile{.inode = written->st_ino, .size = size, .checksum = sum.digest(), .lost = std::move(*lost)};
}

Result<PartialFile> write_file(const PartialJob& job, Buffer& buffer, PfsIo& pfs, Scratch& scratch, Progress& progress) {
  const auto& wanted = job.item.attributes;
  // Nobody who may not read the result may read its partial: where owner or group are still to be set, no one may.
  const bool ours = wanted.st_uid == ::geteuid() && wanted.st_gid == ::getegid();
  // Nor whom only the directory's default ACL names: a mode without group bits masks that.
  // The owner may write until it is done: who may not cannot set extended attributes, either.
  const mode_t mode = ours && !job.inherits_acl ? (wanted.st_mode & 0777U) | 0200U : 0600U;
  auto fd = make_afresh(pfs, job.directory, job.partial, [&] { return pfs.open(job.directory, job.partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode); });
  if (!fd) return told(fd.error(), "creating it");
  auto written = fill_partial(job, fd->get(), buffer, pfs, scratch, progress);
  if (written) return written;
  fd->reset();  // NFS only renames what is open: it would stay, and on a full server take the room that others need
  return without_partial(job, written.error(), pfs);
}

Result<PartialFile> write_link(const PartialJob& job, PfsIo& pfs) {
  const auto& wanted = job.item.attributes;
  auto made = make_afresh(pfs, job.directory, job.partial, [&] { return pfs.symlink(job.item.target, job.directory, job.partial); });
  if (!made) return told(made.error(), "creating the symbolic link");
  auto now = pfs.lstat(job.directory, job.partial);
  Status done = now ? Status() : std::unexpected(now.error());
  if (done && (now->st_uid != wanted.st_uid || now->st_gid != wanted.st_gid)) {
    done = pfs.chown_name(job.directory, job.partial, wanted.st_uid, wanted.st_gid);
    if (!done && done.error().code == EPERM) done = Status();
  }
  if (done) done = pfs.set_times_name(job.directory, job.partial, to_ns(wanted.st_atim), to_ns(wanted.st_mtim));
  if (done) return PartialFile{.inode = now->st_ino, .size = job.item.target.size(), .checksum = std::nullopt};
  return without_partial(job, told(done.error(), "setting the symbolic link's attributes").error(), pfs);
}

/// Of a symbolic link that was staged in, or of one that the job put something else in the place of.
constexpr const char* comparing_versions = "comparing it with what the PFS has";

bool is_target_of_origin(const std::string& target, const fs::WalkItem& item) {
  // Where another version of it was brought out since, it is that which must be there. (One of which no more is known than that it was
  // about to be may not be.)
  const auto is_out = [](const std::optional<fs::Origin>& copy) { return copy && copy->ctime != fs::Origin::any_ctime; };
  if (is_out(item.saved) || (item.replaced && is_out(item.replaced->saved))) return false;
  if (item.origin && S_ISLNK(item.attributes.st_mode)) return target == item.target;
  return item.replaced && S_ISLNK(item.replaced->type) && target == item.replaced->target;
}

/// ENOSPC is also ext4's word for a value that does not fit beside the others, whatever room there is. Where there is hardly any, it
/// is none: that passes.
bool has_room(int fd, PfsIo& pfs) {
  constexpr std::uint64_t hardly_any = 1U << 20U;  // bytes
  constexpr std::uint64_t few = 16;                // inodes
  const auto values = pfs.statvfs(fd);
  return values && values->f_bavail * values->f_frsize >= hardly_any && (values->f_files == 0 || values->f_favail >= few);
}

Result<std::uint64_t> hash_of(PfsIo& io, int fd, const fs::WalkItem& item, Scratch& scratch, const std::atomic<bool>& cancel) {
  return hash_data({io, fd}, static_cast<std::uint64_t>(item.attributes.st_size), scratch, cancel);
}

}  // namespace

Result<std::string> set_xattrs(int fd, const fs::WalkItem& item, PfsIo& pfs) {
  std::string lost;
  for (const auto& [name, value] : item.xattrs) {
    auto done = pfs.set_xattr(fd, name, value);
    if (done) continue;
    constexpr std::array refusals{EOPNOTSUPP, EPERM, EACCES, E2BIG, ERANGE};
    const bool refused = std::ranges::find(refusals, done.error().code) != refusals.end() || (done.error().code == ENOSPC && has_room(fd, pfs));
    if (!refused) return told(done.error(), "setting its extended attributes");
    lost += (lost.empty() ? "" : "; ") + name + ": " + describe(done.error());
  }
  return lost;
}

std::string partial_tag_of(const std::string& store) { return "." + store.substr(0, 12); }

std::string partial_name(const std::string& name, const std::string& tag, bool taken) {
  const std::string of = name + tag, partial = of + partial_suffix;
  if (!taken && partial.size() <= longest_name) return partial;
  return ".efs-" + to_hex(checksum(std::as_bytes(std::span(of)))) + partial_suffix;
}

std::string left_behind(const std::string& partial, const Error& error) { return "its partial " + partial + " stays behind: " + describe(error); }

std::string kept_name(const std::string& name, const std::string& job, unsigned n) {
  const std::string suffix = ".efs-" + job + (n > 1 ? "." + std::to_string(n) : "");
  return name.substr(0, longest_name - std::min(suffix.size(), longest_name - 1)) + suffix;
}

Result<PartialFile> write_partial(const PartialJob& job, Buffer& buffer, PfsIo& pfs, Scratch& scratch, Progress& progress) {
  return S_ISLNK(job.item.attributes.st_mode) ? write_link(job, pfs) : write_file(job, buffer, pfs, scratch, progress);
}

Status publish_partial(const PartialJob& job, const PartialFile& written, PfsIo& pfs, const AboutToPublish& about_to) {
  auto now = pfs.lstat(job.directory, job.partial);
  Status done = now ? Status() : Status(told(now.error(), "checking its partial"));
  if (done && (now->st_ino != written.inode || static_cast<std::uint64_t>(now->st_size) != written.size)) {
    // Another's file under our partial's name: it is not for us to remove.
    return fail(ESTALE, "its partial was replaced or changed by someone else");
  }
  if (done) done = give_name(job, *now, pfs, [&](bool is_shared) { if (about_to) about_to(*now, is_shared); });
  if (done || is_held(done.error()) || ((job.is_new || job.over != nullptr) && done.error().code == EEXIST)) return done;
  return without_partial(job, not_named(done.error()), pfs);
}

bool is_origin(const struct stat& now, const fs::WalkItem& item) {
  const auto is_now = [&](const std::optional<fs::Origin>& known, bool linked) {
    if (!known || known->ctime == 0) return false;
    linked = linked || known->ctime == fs::Origin::any_ctime;
    const fs::Origin version{.device = known->device, .inode = now.st_ino, .size = static_cast<std::uint64_t>(now.st_size),
                             .mtime = to_ns(now.st_mtim), .ctime = linked ? known->ctime : to_ns(now.st_ctim)};
    return version == *known;
  };
  // Of a result the ctime moves when we give its copy another name, or replace one that it has; and it may have had one then.
  const bool only_saved = !item.origin && !item.replaced;
  if (is_now(item.saved, item.linked || item.saved_linked || only_saved || now.st_nlink > 1) || is_now(item.origin, item.linked)) return true;
  return item.replaced && (is_now(item.replaced->saved, item.replaced->linked) || is_now(item.replaced->origin, item.replaced->linked));
}

bool same_or_coarser(const struct timespec& theirs, const struct timespec& ours) {
  return theirs.tv_sec == ours.tv_sec && (theirs.tv_nsec == ours.tv_nsec || theirs.tv_nsec == 0);
}

bool is_copy(const struct stat& now, const fs::Origin& copy) {
  return now.st_ino == copy.inode && static_cast<std::uint64_t>(now.st_size) == copy.size && to_ns(now.st_mtim) == copy.mtime;
}

bool is_untouched_copy(const struct stat& now, const fs::WalkItem& item) {
  const bool tells_nothing = item.linked || item.saved_linked || now.st_nlink > 1 || item.saved->ctime == 0 || item.saved->ctime == fs::Origin::any_ctime;
  return is_copy(now, *item.saved) && (tells_nothing || to_ns(now.st_ctim) == item.saved->ctime);
}

bool is_foreign(const fs::WalkItem& item) {
  if (!S_ISREG(item.attributes.st_mode) || !item.content) return false;
  return static_cast<std::uint64_t>(item.attributes.st_size) != item.content->size || !same_or_coarser(item.attributes.st_mtim, to_timespec(item.content->mtime));
}

namespace {

/// What this user brought out with a mode that keeps him from reading it has another one for the time of an open. EACCES where it is
/// not his.
Result<UniqueFd> open_own(int directory, const std::string& name, std::uint64_t inode, PfsIo& pfs) {
  auto fd = pfs.open_beneath(directory, name, O_RDONLY | O_NONBLOCK);
  if (fd || fd.error().code != EACCES) return fd;
  const auto now = pfs.lstat(directory, name);
  if (!now) return std::unexpected(now.error());
  if (!S_ISREG(now->st_mode) || now->st_ino != inode) return fail(ESTALE, "somebody has replaced it");
  if (now->st_uid != ::geteuid()) return fd;
  EFS_TRY(pfs.chmod_name(directory, name, (now->st_mode & 07777U) | S_IRUSR));
  fd = pfs.open_beneath(directory, name, O_RDONLY | O_NONBLOCK);
  EFS_TRY(pfs.chmod_name(directory, name, now->st_mode & 07777U));
  return fd;
}

}  // namespace

Status read_back(const PartialJob& job, const PartialFile& written, PfsIo& pfs, Scratch& scratch, const std::atomic<bool>& cancel) {
  auto fd = open_own(job.directory, job.partial, written.inode, pfs);
  if (!fd) return told(fd.error(), "reading it back");
  pfs.drop_cache(fd->get());
  auto sum = hash_data({pfs, fd->get()}, written.size, scratch, cancel);
  if (!sum) return told(sum.error(), "reading it back");
  if (*sum != *written.checksum) return fail(EIO, "reading it back: the PFS holds other data than were written");
  return {};
}

Status link_partial(int from_at, const std::string& from, const PartialJob& job, PfsIo& pfs, const AboutToName& about_to) {
  auto made = make_afresh(pfs, job.directory, job.partial, [&] { return pfs.link(from_at, from, job.directory, job.partial); });
  if (!made) return fail(made.error().code, "linking it: " + describe(made.error()));
  const auto now = pfs.lstat(job.directory, job.partial);
  auto done = now ? give_name(job, *now, pfs, about_to) : std::unexpected(now.error());
  if (done) return done;
  if (done.error().code == EEXIST && (job.is_new || job.over != nullptr)) done = fail(EEXIST, "somebody has changed, replaced or removed what had its name: the job's version is kept in the buffer only");
  const bool tells = done.error().code == EEXIST || is_held(done.error());
  return without_partial(job, tells ? done.error() : not_named(done.error()), pfs);
}

namespace {

/// A link, or a regular file, that is not known as the item's own.
Result<PfsCheck> compare(const fs::WalkItem& item, const Comparand& with, const struct stat& now, int directory, Buffer& buffer, PfsIo& pfs, Scratch& scratch, const std::atomic<bool>& cancel) {
  const bool owned = now.st_uid == item.attributes.st_uid && now.st_gid == item.attributes.st_gid;
  if (S_ISLNK(now.st_mode) && S_ISLNK(item.attributes.st_mode)) {
    const auto target = pfs.readlink(directory, with.name);
    if (!target) return told(target.error(), comparing_versions);
    if (*target == item.target && same_or_coarser(now.st_mtim, item.attributes.st_mtim)) return PfsCheck{.version = owned && !pfs.is_shared(directory, with.name, now) ? PfsVersion::same_content : PfsVersion::same_data};
  }
  if (!S_ISREG(now.st_mode) || !S_ISREG(item.attributes.st_mode) || !has_stamp(now, item.attributes) || !same_mode(now, item.attributes)) return PfsCheck{.version = PfsVersion::other};
  auto theirs = open_own(directory, with.name, now.st_ino, pfs);
  // The user may not read what is there: for all that he can tell it is another one.
  if (!theirs && theirs.error().code == EACCES) return PfsCheck{.version = PfsVersion::other};
  if (!theirs) return told(theirs.error(), comparing_versions);
  auto ours = buffer.hold(item.ino);
  if (!ours) return told(ours.error(), "opening its container");
  auto their_sum = hash_of(pfs, theirs->get(), item, scratch, cancel);
  auto our_sum = hash_of(posix_pfs(), ours->fd, item, scratch, cancel);
  if (!their_sum || !our_sum) return told(their_sum ? our_sum.error() : their_sum.error(), comparing_versions);
  if (*their_sum != *our_sum) return PfsCheck{.version = PfsVersion::other};
  auto attributes = pfs.xattrs(theirs->get());
  if (!attributes) return told(attributes.error(), comparing_versions);
  if (!with.to_origin && !item.saved && !item.xattrs.contains(fs::access_acl_name)) attributes->erase(fs::access_acl_name);
  // Another node's file is not taken for ours: ours goes in its place, so that neither node replaces it later.
  const auto compared = pfs.fstat(theirs->get());
  if (!compared) return told(compared.error(), comparing_versions);
  if (owned && *attributes == item.xattrs) return pfs.is_shared(directory, with.name, *compared) ? PfsCheck{.version = PfsVersion::same_data} : PfsCheck{.version = PfsVersion::same_content, .checksum = *our_sum};
  // What it lacks was set since, or is what the PFS does not take; what it has besides is another's, or was taken from ours since.
  const bool lacks_only = std::ranges::all_of(*attributes, [&](const auto& one) { return item.xattrs.contains(one.first) && item.xattrs.at(one.first) == one.second; });
  return PfsCheck{.version = lacks_only || !with.to_origin ? PfsVersion::same_data : PfsVersion::other};
}

Result<PfsCheck> check_there(const fs::WalkItem& item, const Comparand& with, const struct stat& now, int directory, Buffer& buffer, PfsIo& pfs, Scratch& scratch, const std::atomic<bool>& cancel) {
  const WhoseCopy whose = with.placed == nullptr ? WhoseCopy::unknown : with.placed->look({.name = item.path, .own = buffer.own_path(item.path)}, now, item.origin || item.replaced);
  if (whose == WhoseCopy::of_another_path) return PfsCheck{.version = PfsVersion::of_another_path};
  if (with.to_origin && (whose == WhoseCopy::ours || (is_unknown(whose) && is_origin(now, item)))) return PfsCheck{};
  if (with.to_origin && S_ISLNK(now.st_mode) && is_unknown(whose)) {
    const auto target = pfs.readlink(directory, with.name);
    if (!target) return told(target.error(), comparing_versions);
    if (is_target_of_origin(*target, item)) return PfsCheck{};
  }
  auto check = compare(item, with, now, directory, buffer, pfs, scratch, cancel);
  if (check) check->whose = whose;
  return check;
}

}  // namespace

Result<PfsCheck> check_version(const fs::WalkItem& item, const Comparand& with, int directory, Buffer& buffer, PfsIo& pfs, Scratch& scratch, const std::atomic<bool>& cancel) {
  auto now = pfs.lstat(directory, with.name);
  // Removed there since: nothing is lost by bringing it back.
  if (!now && now.error().code == ENOENT) return PfsCheck{};
  if (!now) return told(now.error(), comparing_versions);
  auto check = check_there(item, with, *now, directory, buffer, pfs, scratch, cancel);
  if (check) check->exists = true, check->seen = *now;
  return check;
}

}  // namespace efs::stage
