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

std::unexpected<Error> refused(int code) {
  return code == ESTALE ? fail(ESTALE, "the PFS has another version")
                        : with_context(fail(code).error(), "on the PFS");
}

class Evict : LiveTransfer {
 public:
  Evict(const LiveArguments& with, Refusals& refusals) : LiveTransfer(with), refusals_(refusals) {}

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
    const bool may_inputs = std::ranges::any_of(config_.resources, [](const auto& resource) {
      return resource.evict == config::Evict::when_full;
    });
    auto all = staging_.eviction_candidates(
        [&](const std::string& path, bool is_input, const fs::Remote* remote) {
          return is_input ? may_inputs && may_leave(path, remote)
                          : config::evicts_result(config_, path);
        });
    std::ranges::sort(all, {}, [](const Candidate& one) {
      return std::tuple(one.was_used, one.since.seconds, one.since.nanoseconds, one.ino);
    });
    return all;
  }

  /// An input to which an export gives another name needs its content.
  bool may_leave(const std::string& path, const fs::Remote* remote) const {
    return (remote != nullptr ? remote->evictable : config::evicts_input(config_, path)) &&
           config::result_path(config_, path) == path;
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
    if (const int known = refusals_.of(candidate, Refusals::Clock::now()); known != 0) {
      return refused(known);
    }
    const auto remote = home_of(candidate);
    EFS_TRY(remote);
    EFS_TRY(staging_.check_evictable(candidate.path, candidate.ino, *remote));
    EFS_TRY(ask_about(candidate, *remote));
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
    const auto known = !item || item->ino != candidate.ino ? std::nullopt
                       : candidate.is_input                ? item->pfs.origin
                                                           : item->pfs.saved;
    if (!known) {
      return fail(ESTALE, "a program has removed or replaced it");
    }
    if (known->ctime == 0 || known->ctime == fs::Origin::any_ctime) {
      return fail(ESTALE, "the version of its copy is not known");
    }
    return fs::Remote{
        .version = *known,
        .source = candidate.is_input
                      ? config::source_of(config_, candidate.path)
                      : config_.results_dir + "/" + config::result_path(config_, candidate.path)};
  }

  Status ask_about(const Candidate& candidate, const fs::Remote& remote) {
    // A content that came by a fetch was compared without the ctime, as a chmod or a new link does
    // not change the content.
    const bool was_staged = candidate.is_input && !candidate.remote;
    const auto answer =
        ask(remote, candidate.remote ? ledger::Ctime::ignored : ledger::Ctime::counts, was_staged);
    EFS_TRY(answer);
    if (*answer != 0) {
      refusals_.note(candidate, *answer, Refusals::Clock::now());
      return refused(*answer);
    }
    return {};
  }

  /// 0: the PFS has the version; a code: it does not. The open makes a network file system look at
  /// the file anew.
  Result<int> ask(const fs::Remote& remote, ledger::Ctime ctime, bool was_staged) {
    const auto root = pfs_.open(no_directory, config_.root_dir, passage_flags);
    const auto file =
        root ? open_source(pfs_, *root, remote.source, O_RDONLY | O_NONBLOCK | O_NOCTTY)
             : std::unexpected(root.error());
    const auto now = file ? pfs_.fstat(*file) : std::unexpected(file.error());
    ++progress_.files_done;  // the PFS has answered
    if (!now && (!root || !is_answer(now.error().code))) {
      ++failures_;
      return with_context(now.error(), "on the PFS");
    }
    failures_ = 0;
    if (!now) {
      return now.error().code;
    }
    if (was_staged && now->st_nlink > 1) {
      return EMLINK;  // the next start would copy it again
    }
    return S_ISREG(now->st_mode) && is_version(remote.version, ledger::version_of(*now), ctime)
               ? 0
               : ESTALE;
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

  Refusals& refusals_;
  Eviction done_;
  std::vector<std::uint64_t> taken_;  // evicted, but not yet freed
  std::uint64_t taken_bytes_ = 0;
  unsigned failures_ = 0;
};

}  // namespace

int Refusals::of(const Candidate& file, Clock::time_point now) {
  const auto known = known_.find(file.ino);
  if (known == known_.end()) {
    return 0;
  }
  if (now < known->second.until && file.since == known->second.since) {
    return known->second.code;
  }
  known_.erase(known);
  return 0;
}

void Refusals::note(const Candidate& file, int code, Clock::time_point now) {
  if (known_.size() >= most) {
    std::erase_if(known_, [&](const auto& one) { return now >= one.second.until; });
  }
  if (known_.size() < most) {
    known_[file.ino] = {.since = file.since, .code = code, .until = now + lasting};
  }
}

Eviction evict(const LiveArguments& with, std::uint64_t bytes, Refusals& refusals) {
  return Evict(with, refusals).make_room(bytes);
}

}  // namespace efs::stage
