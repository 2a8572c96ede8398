#include "stage/pfs/merging_pfs.hpp"

#include <map>
#include <optional>
#include <utility>

#include "base/mutex.hpp"
#include "stage/pfs/forwarding_pfs.hpp"
#include "stage/pfs/merge.hpp"

namespace efs::stage {
namespace {

class MergingPfs final : public ForwardingPfs {
 public:
  MergingPfs(PfsIo& pfs, Nanoseconds since, std::span<const fs::Origin> own)
      : ForwardingPfs(pfs), since_(since) {
    for (const auto& one : own) {
      const bool is_known = one.ctime != 0 && one.ctime != fs::Origin::any_ctime;
      Version& known = own_[{one.device, one.inode}];
      const bool stays_shared =
          known.is_shared && known.size == one.size && known.mtime == one.mtime;
      known = {.size = one.size,
               .mtime = one.mtime,
               .ctime = is_known ? std::optional(one.ctime) : std::nullopt,
               .is_shared = one.ctime == 0 || stays_shared};
    }
  }

  Status rename_new(int at, const std::string& from, const std::string& to) override {
    return rename(at, from, to, {});
  }

  Status rename(int at, const std::string& from, const std::string& to,
                const AboutToName& about_to) override {
    const auto ours = real_.lstat(at, from);
    if (!ours) {
      return std::unexpected(ours.error());
    }
    const auto birth = birth_of(at, from, *ours);
    if (!birth) {
      return std::unexpected(birth.error());
    }
    const auto there = real_.lstat(at, to);
    if (!there && there.error().code != ENOENT) {
      return std::unexpected(there.error());
    }
    // What this node brought out before is as old to it as what was there at the start.
    if (there) {
      keep_old(at, to, *there);
    }
    const bool own = there && is_own(at, to, *there);
    if (own) {
      about_to_lose(at, to, *there);
    }
    const auto placed =
        rename_merging(real_, at, from, to, since_, own ? &*there : nullptr, about_to);
    if (!placed) {
      return std::unexpected(placed.error());
    }
    if (own) {
      forget(*there);
    }
    note_placed(*ours, *birth, *placed);
    return {};
  }

  Status remove(int at, const std::string& name, const struct stat& seen,
                const std::string& claimant) override {
    keep_old(at, name, seen);
    if (is_own(at, name, seen)) {
      about_to_lose(at, name, seen);
    }
    EFS_TRY(remove_over(real_, at, name, seen, claimant));
    forget(seen);
    return {};
  }

  bool is_shared(int at, const std::string& name, const struct stat& there) override {
    return !is_own(at, name, there);
  }

 private:
  using Identity = std::pair<dev_t, ino_t>;
  using Birth = std::optional<Nanoseconds>;  // nothing where the PFS does not keep it

  /// Of what a node has placed. Numbers are used again: its birth tells it from another file of its
  /// number, size and mtime.
  struct Version {
    std::uint64_t size = 0;
    Nanoseconds mtime = 0;
    Birth birth{};
    // of what an earlier process has placed; it moves with each name that a file gets and loses
    std::optional<Nanoseconds> ctime{};
    bool is_shared = false;
  };

  Result<Birth> birth_of(int at, const std::string& name, const struct stat& seen) {
    const auto birth = real_.birth(at, name, seen);
    if (birth) {
      return *birth;
    }
    return birth.error().code == EOPNOTSUPP ? Result<Birth>(Birth())
                                            : std::unexpected(birth.error());
  }

  /// Only what can be told for sure is.
  bool is_own(int at, const std::string& name, const struct stat& st) {
    Version known;
    {
      MutexLock lock(mutex_);
      const auto found = own_.find({st.st_dev, st.st_ino});
      if (found == own_.end()) {
        return false;
      }
      known = found->second;
    }
    if (known.is_shared || known.size != static_cast<std::uint64_t>(st.st_size) ||
        known.mtime != to_ns(st.st_mtim)) {
      return false;
    }
    if (!known.birth && !known.ctime) {
      return true;
    }
    const auto birth = birth_of(at, name, st);
    if (!birth) {
      return false;
    }
    if (known.birth) {
      return *birth == known.birth;
    }
    if (*birth) {
      return **birth <= *known.ctime;  // one that got the number later was made later
    }
    return st.st_nlink > 1 || *known.ctime == to_ns(st.st_ctim);
  }

  /// One more name of a file that is shared does not make it ours. (A file with one name that is
  /// ours is another one, with its number.)
  void note_placed(const struct stat& st, Birth birth, Placed placed) {
    MutexLock lock(mutex_);
    Version& known = own_[{st.st_dev, st.st_ino}];
    const bool stays_shared = known.is_shared && st.st_nlink > 1;
    known = {.size = static_cast<std::uint64_t>(st.st_size),
             .mtime = to_ns(st.st_mtim),
             .birth = birth,
             .is_shared = placed == Placed::shared || stays_shared};
  }

  /// What was there at the start is to lose one of several names, which moves its ctime: the others
  /// are as old as ever, to this node.
  void keep_old(int at, const std::string& name, const struct stat& seen) {
    if (seen.st_nlink == 1 || to_ns(seen.st_ctim) >= since_) {
      return;
    }
    const auto birth = birth_of(at, name, seen);
    if (!birth) {
      return;
    }
    const Version old{.size = static_cast<std::uint64_t>(seen.st_size),
                      .mtime = to_ns(seen.st_mtim),
                      .birth = *birth};
    MutexLock lock(mutex_);
    if (Version& known = own_[{seen.st_dev, seen.st_ino}]; !known.is_shared) {
      known = old;
    }
  }

  /// What this node has placed loses one of several names: its ctime, which moves then, tells
  /// nothing of the others any more.
  void about_to_lose(int at, const std::string& name, const struct stat& seen) {
    if (seen.st_nlink == 1) {
      return;
    }
    const auto birth = birth_of(at, name, seen);
    MutexLock lock(mutex_);
    const auto found = own_.find({seen.st_dev, seen.st_ino});
    if (found == own_.end()) {
      return;
    }
    if (birth) {
      found->second.birth = *birth, found->second.ctime.reset();
    } else {
      own_.erase(found);
    }
  }

  /// This node took a name from what it had placed: where that was the last one, its number is
  /// anybody's.
  void forget(const struct stat& seen) {
    MutexLock lock(mutex_);
    if (seen.st_nlink == 1) {
      own_.erase({seen.st_dev, seen.st_ino});
    }
  }

  const Nanoseconds since_;
  Mutex mutex_;                                             // rank 90 (leaf): guards own_
  std::map<Identity, Version> own_ EFS_GUARDED_BY(mutex_);  // what this node has placed
};

}  // namespace

std::unique_ptr<PfsIo> merging_pfs(Nanoseconds since, std::span<const fs::Origin> own, PfsIo& pfs) {
  return std::make_unique<MergingPfs>(pfs, since, own);
}

}  // namespace efs::stage
