// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/evict.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>
#include <vector>

#include "stage/plan/follow.hpp"

namespace efs::stage {
namespace {

using Candidate = fs::Staging::EvictionCandidate;

constexpr unsigned most_failures = 16;  // of the PFS, in a row
constexpr std::size_t batch = 64;       // files of one sync of the journal

/// True if the PFS says that there is no such file, or that it is not for this user.
bool is_answer(int code) {
  return code == ENOENT || code == ENOTDIR || code == EACCES || code == EPERM || code == ELOOP;
}

class Evict : LiveTransfer {
 public:
  explicit Evict(const LiveArguments& with) : LiveTransfer(with) {}

  Eviction make_room(std::uint64_t bytes) {
    for (auto& candidate : candidates()) {
      if (progress_.cancel || failures_ >= most_failures || done_.bytes >= bytes) {
        break;
      }
      take(candidate);
      if (taken_.size() >= batch || done_.bytes + taken_bytes_ >= bytes) {
        free_taken();
      }
    }
    free_taken();
    return std::move(done_);
  }

 private:
  std::vector<Candidate> candidates() {
    auto all = staging_.eviction_candidates();
    std::erase_if(all, [&](const Candidate& one) {
      return one.remote ? !one.remote->evictable || is_renamed(one.path)
                        : !config::evicts_result(config_, one.path);
    });
    std::ranges::sort(all, {}, [](const Candidate& one) {
      return std::tuple(one.was_used, one.since.seconds, one.since.nanoseconds, one.ino);
    });
    return all;
  }

  /// True if an export gives the input another name: it then needs the content.
  bool is_renamed(const std::string& path) const {
    return config::result_path(config_, path) != path;
  }

  void take(const Candidate& candidate) {
    const Status taken = try_to_take(candidate);
    if (taken) {
      taken_.push_back(candidate.ino);
      taken_bytes_ += candidate.bytes;
    } else {
      ++done_.stayed;
      done_.why = candidate.path + ": " + describe(taken.error());
    }
  }

  // The PFS comes last, because its answers cost most.
  Status try_to_take(const Candidate& candidate) {
    const auto remote = home_of(candidate);
    EFS_TRY(remote);
    EFS_TRY(staging_.check_evictable(candidate.path, candidate.ino, *remote));
    EFS_TRY(is_there(*remote, candidate.remote ? ledger::Ctime::ignored : ledger::Ctime::counts));
    if (progress_.cancel) {  // the PFS may have answered after the end of the instance
      return fail(ECANCELED, "cancelled");
    }
    return staging_.evict_unused(candidate.path, candidate.ino, *remote);
  }

  /// What the PFS should have of the file.
  Result<fs::Remote> home_of(const Candidate& candidate) {
    if (candidate.remote) {
      return *candidate.remote;
    }
    const auto item = staging_.find(candidate.path);
    if (!item || item->ino != candidate.ino || !item->pfs.saved) {
      return fail(ESTALE, "a program has removed or replaced it");
    }
    if (item->pfs.saved->ctime == 0 || item->pfs.saved->ctime == fs::Origin::any_ctime) {
      return fail(ESTALE, "the version of its copy is not known");
    }
    return fs::Remote{
        .version = *item->pfs.saved,
        .source = config_.results_dir + "/" + config::result_path(config_, candidate.path)};
  }

  // The open makes a network file system look at the file anew. A fetch compares in the same way,
  // and so ignores the ctime of an input: a chmod or a new link does not change the content.
  Status is_there(const fs::Remote& remote, ledger::Ctime ctime) {
    const auto root = pfs_.open(no_directory, config_.root_dir, passage_flags);
    const auto file =
        root ? open_source(pfs_, *root, remote.source, O_RDONLY | O_NONBLOCK | O_NOCTTY)
             : std::unexpected(root.error());
    const auto now = file ? pfs_.fstat(*file) : std::unexpected(file.error());
    ++progress_.files_done;  // the PFS has answered
    if (!now) {
      failures_ = is_answer(now.error().code) ? 0 : failures_ + 1;
      return with_context(now.error(), "on the PFS");
    }
    failures_ = 0;
    return S_ISREG(now->st_mode) && is_version(remote.version, ledger::version_of(*now), ctime)
               ? Status()
               : fail(ESTALE, "the PFS has another version");
  }

  void free_taken() {
    if (taken_.empty()) {
      return;
    }
    const auto freed = staging_.free_evicted(taken_);
    if (freed) {
      done_.files += taken_.size();
      done_.bytes += *freed;
    } else {
      done_.why = describe(freed.error());
      done_.is_unfinished = true;
    }
    taken_.clear();
    taken_bytes_ = 0;
  }

  Eviction done_;
  std::vector<std::uint64_t> taken_;  // evicted, but not yet freed
  std::uint64_t taken_bytes_ = 0;
  unsigned failures_ = 0;
};

}  // namespace

Eviction evict(const LiveArguments& with, std::uint64_t bytes) {
  return Evict(with).make_room(bytes);
}

}  // namespace efs::stage
