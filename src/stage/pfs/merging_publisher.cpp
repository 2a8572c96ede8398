// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/merging_publisher.hpp"

#include <map>
#include <optional>
#include <utility>

#include "base/mutex.hpp"
#include "stage/pfs/merge.hpp"

namespace efs::stage {
namespace {

class MergingPublisher final : public Publisher {
 public:
  MergingPublisher(Nanoseconds since, std::span<const fs::Origin> own) : since_(since) {
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

  NameRule rule_for(const struct stat*) const override { return {}; }

  Status publish(PfsIo& pfs, const Naming& naming, const AboutToName& about_to) override {
    return pfs.as_one_call("publish", naming.names.to,
                           [&](PfsIo& calls) { return merge(calls, naming.names, about_to); });
  }

  Status remove(PfsIo& pfs, const InputRemoval& removal) override {
    return pfs.as_one_call("remove", removal.name,
                           [&](PfsIo& calls) { return remove_seen(calls, removal); });
  }

  bool is_shared(PfsIo& pfs, PfsRef at, const std::string& name,
                 const struct stat& there) override {
    return !is_own(pfs, at, name, there);
  }

 private:
  using Identity = std::pair<dev_t, ino_t>;
  using Birth = std::optional<Nanoseconds>;  // nullopt if the PFS does not keep birth times

  /// A file that this node has exported. Inode numbers are reused: the birth time distinguishes a
  /// later file with the same number, size and mtime.
  struct Version {
    std::uint64_t size = 0;
    Nanoseconds mtime = 0;
    Birth birth{};
    // for exports of an earlier process; changes with each name that the file gains or loses
    std::optional<Nanoseconds> ctime{};
    bool is_shared = false;
  };

  Status merge(PfsIo& pfs, const Rename& names, const AboutToName& about_to) {
    const auto& [at, from, to] = names;
    const auto ours = pfs.lstat(at, from);
    if (!ours) {
      return std::unexpected(ours.error());
    }
    const auto birth = birth_of(pfs, at, from, *ours);
    if (!birth) {
      return std::unexpected(birth.error());
    }
    const auto there = pfs.lstat(at, to);
    if (!there && there.error().code != ENOENT) {
      return std::unexpected(there.error());
    }
    // This node treats files that it has exported before as files from before the start.
    if (there) {
      keep_old(pfs, at, to, *there);
    }
    const bool own = there && is_own(pfs, at, to, *there);
    if (own) {
      about_to_lose(pfs, at, to, *there);
    }
    const auto placed = rename_merging(pfs, names, since_, own ? &*there : nullptr, about_to);
    if (!placed) {
      return std::unexpected(placed.error());
    }
    if (own) {
      forget(*there);
    }
    record_placed(*ours, *birth, *placed);
    return {};
  }

  Status remove_seen(PfsIo& pfs, const InputRemoval& removal) {
    const auto& [at, name, seen, claimant] = removal;
    keep_old(pfs, at, name, seen);
    if (is_own(pfs, at, name, seen)) {
      about_to_lose(pfs, at, name, seen);
    }
    EFS_TRY(remove_over(pfs, at, name, seen, claimant));
    forget(seen);
    return {};
  }

  static Result<Birth> birth_of(PfsIo& pfs, PfsRef at, const std::string& name,
                                const struct stat& seen) {
    const auto birth = pfs.birth(at, name, seen);
    if (birth) {
      return *birth;
    }
    return birth.error().code == EOPNOTSUPP ? Result<Birth>(Birth())
                                            : std::unexpected(birth.error());
  }

  static bool has_data_of(const struct stat& st, const Version& known) {
    return known.size == static_cast<std::uint64_t>(st.st_size) && known.mtime == to_ns(st.st_mtim);
  }

  /// The version of this file that this node has exported.
  std::optional<Version> exported(const struct stat& st) {
    MutexLock lock(mutex_);
    const auto found = own_.find({st.st_dev, st.st_ino});
    return found == own_.end() ? std::nullopt : std::optional(found->second);
  }

  /// True only if that is certain.
  bool is_own(PfsIo& pfs, PfsRef at, const std::string& name, const struct stat& st) {
    const auto known = exported(st);
    if (!known || known->is_shared || !has_data_of(st, *known)) {
      return false;
    }
    if (!known->birth && !known->ctime) {
      return true;
    }
    const auto birth = birth_of(pfs, at, name, st);
    if (!birth) {
      return false;
    }
    if (known->birth) {
      return *birth == known->birth;
    }
    if (*birth) {
      return **birth <= *known->ctime;  // a later file with this number has a later birth time
    }
    return st.st_nlink > 1 || *known->ctime == to_ns(st.st_ctim);
  }

  /// Another name for a shared file does not make the file this node's. (An own file with one name
  /// is a new file with the same number.)
  void record_placed(const struct stat& st, Birth birth, Placed placed) {
    MutexLock lock(mutex_);
    Version& known = own_[{st.st_dev, st.st_ino}];
    const bool stays_shared = known.is_shared && st.st_nlink > 1;
    known = {.size = static_cast<std::uint64_t>(st.st_size),
             .mtime = to_ns(st.st_mtim),
             .birth = birth,
             .is_shared = placed == Placed::shared || stays_shared};
  }

  /// A file from before the start is about to lose one of several names, which changes its ctime.
  /// This node still treats the other names as old.
  void keep_old(PfsIo& pfs, PfsRef at, const std::string& name, const struct stat& seen) {
    if (seen.st_nlink == 1 || to_ns(seen.st_ctim) >= since_) {
      return;
    }
    const auto birth = birth_of(pfs, at, name, seen);
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

  /// A file that this node has exported is about to lose one of several names. That changes its
  /// ctime, which is then useless for the other names.
  void about_to_lose(PfsIo& pfs, PfsRef at, const std::string& name, const struct stat& seen) {
    if (seen.st_nlink == 1) {
      return;
    }
    const auto birth = birth_of(pfs, at, name, seen);
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

  /// This node has removed a name of a file that it had exported. If it was the last name, a new
  /// file may get the number.
  void forget(const struct stat& seen) {
    MutexLock lock(mutex_);
    if (seen.st_nlink == 1) {
      own_.erase({seen.st_dev, seen.st_ino});
    }
  }

  const Nanoseconds since_;
  Mutex mutex_;                                             // rank 90 (leaf): guards own_
  std::map<Identity, Version> own_ EFS_GUARDED_BY(mutex_);  // the exports of this node
};

}  // namespace

std::unique_ptr<Publisher> merging_publisher(Nanoseconds since, std::span<const fs::Origin> own) {
  return std::make_unique<MergingPublisher>(since, own);
}

}  // namespace efs::stage
