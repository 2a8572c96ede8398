// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/merge.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/partial_name.hpp"

namespace efs::stage {
namespace {

constexpr int looking_flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
constexpr int most_looks = 2000;
constexpr const char* comparing = "comparing it with another node's";
constexpr const char* conflict_text =
    "another node or run of the job has exported a different file under this name; this one is "
    "kept in the buffer only";

constexpr const char* unreadable_text =
    "another node or run of the job has exported a file under this name that cannot be read and "
    "compared; this one is kept in the buffer only";

Result<bool> same_link(PfsIo& pfs, PfsRef at, const std::string& a, const std::string& b) {
  const auto first = pfs.readlink(at, a), second = pfs.readlink(at, b);
  if (!first || !second) {
    return fail((first ? second : first).error().code, comparing);
  }
  return *first == *second;
}

// Reads until `into` is full or the file ends.
Result<std::size_t> read_full(PfsIo& pfs, PfsRef file, std::span<std::byte> into,
                              std::uint64_t offset) {
  for (std::size_t done = 0;;) {
    const auto n = done < into.size() ? pfs.read(file, into.subspan(done), offset + done)
                                      : Result<std::size_t>(0);
    if (!n) {
      return fail(n.error().code, comparing);
    }
    if (*n == 0) {
      return done;
    }
    done += *n;
  }
}

// Compares the contents of two open files from their beginnings.
Result<bool> same_bytes_of_both(PfsIo& pfs, PfsRef first, PfsRef second) {
  std::vector<std::byte> left(1u << 20), right(left.size());
  for (std::uint64_t offset = 0;;) {
    const auto n = read_full(pfs, first, left, offset), m = read_full(pfs, second, right, offset);
    if (!n || !m) {
      return fail((n ? m : n).error().code, comparing);
    }
    if (*n != *m || std::memcmp(left.data(), right.data(), *n) != 0) {
      return false;
    }
    if (*n < left.size()) {
      return true;
    }
    offset += *n;
  }
}

Result<bool> same_file(PfsIo& pfs, PfsRef at, const std::string& a, const std::string& b) {
  const auto first = pfs.open(at, a, looking_flags), second = pfs.open(at, b, looking_flags);
  if (!first || !second) {
    return fail((first ? second : first).error().code, comparing);
  }
  const auto ours = pfs.xattrs(*first), theirs = pfs.xattrs(*second);
  if (!ours || !theirs) {
    return fail((ours ? theirs : ours).error().code, comparing);
  }
  if (*ours != *theirs) {
    return false;
  }
  return same_bytes_of_both(pfs, *first, *second);
}

// The partial that is to get a name, with the attributes that it had before the first comparison.
struct MergingPartial {
  const Rename& names;
  const struct stat& attributes;
};

// True if replacing the file `there` by the partial loses nothing but its time. `there`: the
// attributes of the file that has the name.
Result<bool> same_content(PfsIo& pfs, const MergingPartial& partial, const struct stat& there) {
  const auto& [at, from, to] = partial.names;
  const struct stat& ours = partial.attributes;
  if (ours.st_mode != there.st_mode || ours.st_uid != there.st_uid || ours.st_gid != there.st_gid) {
    return false;
  }
  if (S_ISLNK(ours.st_mode)) {
    return same_link(pfs, at, from, to);
  }
  return S_ISREG(ours.st_mode) && ours.st_size == there.st_size ? same_file(pfs, at, from, to)
                                                                : Result<bool>(false);
}

// A comparison or the wait for a claim may have taken minutes: checks that `from` is still this
// process's partial.
Status is_still(PfsIo& pfs, PfsRef at, const std::string& from, const struct stat& ours) {
  const auto now = pfs.lstat(at, from);
  if (!now) {
    return std::unexpected(now.error());
  }
  return now->st_ino == ours.st_ino && now->st_dev == ours.st_dev && now->st_size == ours.st_size
             ? Status()
             : fail(ESTALE, "its partial was replaced or changed by another process");
}

// True if it is the file that was seen and not a later file with the same inode number. New and
// removed links change its ctime.
bool is_seen(const struct stat& now, const struct stat& seen) {
  if (now.st_ino != seen.st_ino || now.st_dev != seen.st_dev) {
    return false;
  }
  return to_ns(now.st_ctim) == to_ns(seen.st_ctim) ||
         (now.st_nlink != seen.st_nlink && now.st_size == seen.st_size &&
          to_ns(now.st_mtim) == to_ns(seen.st_mtim));
}

// Reads the directory's attributes first: an NFS client uses cached names until it sees that the
// directory has changed.
Result<struct stat> look_anew(PfsIo& pfs, PfsRef at, const std::string& name) {
  if (const auto directory = pfs.fstat(at); !directory) {
    return std::unexpected(directory.error());
  }
  return pfs.lstat(at, name);
}

// The same, and the file has gained or lost no link. If a PFS keeps whole seconds, an NFS client
// may not see that a directory has changed, and may still find the file under a name that it has
// lost.
bool is_untouched(const struct stat& now, const struct stat& seen) {
  return now.st_ino == seen.st_ino && now.st_dev == seen.st_dev &&
         to_ns(now.st_ctim) == to_ns(seen.st_ctim) && now.st_nlink == seen.st_nlink;
}

Result<bool> is_file(PfsIo& pfs, PfsRef at, const std::string& name, const struct stat& seen) {
  const auto now = look_anew(pfs, at, name);
  if (!now && now.error().code != ENOENT) {
    return std::unexpected(now.error());
  }
  return now && is_seen(*now, seen);
}

Status give_new_name(PfsIo& pfs, const MergingPartial& partial,
                     const std::function<void()>& about_to) {
  EFS_TRY(is_still(pfs, partial.names.at, partial.names.from, partial.attributes));
  about_to();
  return rename_new(pfs, partial.names);
}

// The files that this node may replace whatever they contain: those from before `since`, and `own`
// (may be null).
struct Replaceable {
  Nanoseconds since = 0;
  const struct stat* own = nullptr;
};

// The file whose name a partial must get.
struct InTheWay {
  bool is_free = false;  // no file, or a file that this node may replace
  Result<bool> is_same = true;
};

InTheWay in_the_way(PfsIo& pfs, const MergingPartial& partial, const struct stat& there,
                    const Replaceable& may) {
  if ((may.own != nullptr && is_seen(there, *may.own)) || to_ns(there.st_ctim) < may.since) {
    return {.is_free = true};
  }
  return {.is_same = same_content(pfs, partial, there)};
}

// The error for a file that must not be replaced.
Error conflict_with(const Result<bool>& is_same) {
  if (is_same) {
    return {EEXIST, conflict_text};
  }
  return is_same.error().code == EACCES ? Error{EEXIST, unreadable_text} : is_same.error();
}

// The outcome of one look at a name. nullopt: it has changed meanwhile and must be looked at again.
using MergeOutcome = Result<std::optional<Placed>>;

// For a file that must not be replaced: its conflict, if it still has the name.
MergeOutcome refuse_conflict(PfsIo& pfs, const Rename& names, const struct stat& there,
                             const Result<bool>& is_same) {
  const auto stays = is_file(pfs, names.at, names.to, there);
  if (stays && !*stays) {
    return std::nullopt;
  }
  return std::unexpected(stays ? conflict_with(is_same) : stays.error());
}

// Gives the name. `there`: the attributes of the file that has it; null if there is none.
MergeOutcome give_merged_name(PfsIo& pfs, const MergingPartial& partial, const struct stat* there,
                              const InTheWay& found, const AboutToName& about_to) {
  const auto tell = [&] {
    if (about_to) {
      about_to(!found.is_free);
    }
  };
  // Also for an identical file: otherwise the other node would count the shared file as its own
  // and replace it later.
  const auto give = [&] {
    tell();
    return pfs.rename(partial.names.at, partial.names.from, partial.names.to);
  };
  const Status done = there != nullptr
                          ? rename_over(pfs, partial.names, partial.attributes, *there, give)
                          : give_new_name(pfs, partial, tell);
  if (done) {
    return found.is_free ? Placed::ours : Placed::shared;
  }
  if (done.error().code != EEXIST) {
    return std::unexpected(done.error());
  }
  return std::nullopt;
}

// For a name that the file `there` has.
MergeOutcome merge_with(PfsIo& pfs, const MergingPartial& partial, const struct stat& there,
                        const Replaceable& may, const AboutToName& about_to) {
  const struct stat& ours = partial.attributes;
  // a removal drops the file's link count before its name, and changes its ctime
  if (there.st_nlink == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::nullopt;
  }
  // The PFS has lost the reply to a link that was then repeated. rename(2) would keep both names.
  if (there.st_ino == ours.st_ino && there.st_dev == ours.st_dev) {
    EFS_TRY(pfs.unlink(partial.names.at, partial.names.from));
    return Placed::shared;
  }
  const auto found = in_the_way(pfs, partial, there, may);
  if (!found.is_same || !*found.is_same) {
    return refuse_conflict(pfs, partial.names, there, found.is_same);
  }
  return give_merged_name(pfs, partial, &there, found, about_to);
}

}  // namespace

Status rename_over(PfsIo& pfs, const Rename& names, const struct stat& ours,
                   const struct stat& seen, const std::function<Status()>& give) {
  const auto& [at, from, to] = names;
  return under_claim(pfs, at, to, from, [&]() -> Status {
    const auto now = look_anew(pfs, at, to);
    if (!now && now.error().code != ENOENT) {
      return std::unexpected(now.error());
    }
    if (!now || !is_untouched(*now, seen)) {
      return fail(EEXIST);
    }
    EFS_TRY(is_still(pfs, at, from, ours));
    return give();
  });
}

Result<Placed> rename_merging(PfsIo& pfs, const Rename& names, Nanoseconds since,
                              const struct stat* own, const AboutToName& about_to) {
  const auto ours = pfs.lstat(names.at, names.from);
  if (!ours) {
    return std::unexpected(ours.error());
  }
  const MergingPartial partial{.names = names, .attributes = *ours};
  for (int look = 0; look < most_looks; ++look) {
    const auto there = pfs.lstat(names.at, names.to);
    if (!there && there.error().code != ENOENT) {
      return std::unexpected(there.error());
    }
    const auto placed =
        there ? merge_with(pfs, partial, *there, {.since = since, .own = own}, about_to)
              : give_merged_name(pfs, partial, nullptr, {.is_free = true}, about_to);
    if (!placed) {
      return std::unexpected(placed.error());
    }
    if (*placed) {
      return **placed;
    }
  }
  return fail(EAGAIN,
              "other nodes of the job keep removing or replacing the file of this name; this one "
              "is kept in the buffer only");
}

std::vector<fs::Origin> saved_copies(std::span<const fs::WalkItem> items) {
  std::vector<fs::Origin> copies;
  for (const auto& item : items) {
    if (item.pfs.saved) {
      copies.push_back(*item.pfs.saved);
    }
  }
  return copies;
}

Status remove_over(PfsIo& pfs, PfsRef at, const std::string& name, const struct stat& seen,
                   const std::string& claimant) {
  return under_claim(pfs, at, name, claimant, [&]() -> Status {
    const auto now = look_anew(pfs, at, name);
    if (!now) {
      return std::unexpected(now.error());
    }
    if (!is_seen(*now, seen)) {
      return fail(EEXIST,
                  "it was replaced or changed since, perhaps by another node or job: it stays");
    }
    return pfs.unlink(at, name);
  });
}

Result<Nanoseconds> pfs_now(const std::string& directory) {
  // A file without a name if the file system supports that: a kill leaves nothing. Otherwise the
  // remainder has a name that no stage-in imports.
  UniqueFd fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  std::string name = directory + "/.efs-clock-XXXXXX" + partial_suffix;
  const bool is_named = !fd;
  if (is_named) {
    fd.reset(::mkostemps(name.data(), static_cast<int>(std::string_view(partial_suffix).size()),
                         O_CLOEXEC));
  }
  struct stat st{};
  if (!fd) {
    return fail_errno("results-dir " + directory);
  }
  const bool known = ::fstat(fd.get(), &st) == 0;
  if (is_named) {
    ::unlink(name.c_str());
  }
  if (!known) {
    return fail_errno("results-dir " + directory);
  }
  return to_ns(st.st_ctim);
}

}  // namespace efs::stage
