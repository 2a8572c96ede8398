#pragma once
// Of several nodes or jobs that would give or take one name on the PFS, one may, for as long as it
// has the claim to it.
//
// A claim is a symbolic link beside the name, which every PFS makes for one of several only: no
// service for locks is needed, nor a file that can be opened, and who has the name open stays what
// he is. (Over NFS a rename over a file that this client has open is two calls, between which
// nobody has the name.) It leads nowhere: its target is who made it, the name of the partial that
// is to get the name. No PFS gives a claim back for a client that died: who goes on with that
// partial has it still, and the leftovers of a store (leftovers.hpp) are removed with their claims.
// Nobody takes another's.

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// What names of claims begin with; they end as those of partials do, so that no stage-in takes
/// them for inputs.
inline constexpr std::string_view claim_prefix = ".efs-claim-";

class NameClaim {
 public:
  /// To `name` in the open directory `at`, for `claimant`: a partial's name, which nobody else is
  /// at work on. EALREADY, saying where it is and whose, where another has it and does not give it
  /// back in the moment that most need: to be tried again behind all else (Patience). Or any other
  /// error of the PFS. Where the PFS has no symbolic links, a file stands for it, with the claimant
  /// for its content.
  static Result<NameClaim> take(PfsIo& pfs, int at, const std::string& name,
                                const std::string& claimant,
                                std::chrono::milliseconds moment = std::chrono::milliseconds(10));
  /// Gives it back, if give_back() has not; without a word where that fails.
  ~NameClaim();
  /// An error says what stays, for the next stage-out of this store to remove, and is in everybody
  /// else's way.
  Status give_back();
  NameClaim(NameClaim&& other) noexcept;
  NameClaim& operator=(NameClaim&&) = delete;
  NameClaim(const NameClaim&) = delete;
  NameClaim& operator=(const NameClaim&) = delete;

 private:
  NameClaim(PfsIo& pfs, int at, std::string claim, std::string claimant)
      : pfs_(&pfs), at_(at), claim_(std::move(claim)), claimant_(std::move(claimant)) {}

  bool is_lost(PfsIo& pfs) const;

  PfsIo* pfs_;  // null: moved away
  int at_;
  std::string claim_, claimant_;
};

/// Who has made a claim, as its name in `at` says.
Result<std::string> claimant_of(PfsIo& pfs, int at, const std::string& claim);

/// Is this error one of take(), that another has the claim?
inline bool is_held(const Error& error) {
  return error.code == EALREADY;
}

/// The same, where it is given up: EBUSY, and what is to be done.
Error given_up(const Error& held);

/// Does `work` under a claim. Where the claim cannot be given back, the error of the work tells of
/// that as well; of work that is done the log does.
Status under_claim(PfsIo& pfs, int at, const std::string& name, const std::string& claimant,
                   const std::function<Status()>& work);

}  // namespace efs::stage
