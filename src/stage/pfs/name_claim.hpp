// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A claim to a name on the PFS. Only the holder of the claim may give or remove the name; other
// nodes and jobs wait.
//
// A claim is a symbolic link in the directory of the name. Every PFS lets only one of several
// clients create it. So efs needs no lock service and no lock file, and open files are not
// affected. (Over NFS a rename over a file that this client has open is two calls, and between them
// the name does not exist.) The link's target names its claimant: the partial that is to get the
// name. No PFS removes the claims of a dead client. A process that continues with the same partial
// still has the claim, and efs removes the leftovers of a store together with their claims
// (leftovers.hpp). No process removes the claim of another claimant.

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// The prefix of claim names. Their suffix is that of partials, so that no stage-in imports them.
inline constexpr std::string_view claim_prefix = ".efs-claim-";

class NameClaim {
 public:
  /// Claims `name` in the open directory `at` for `claimant`: the name of a partial that no other
  /// process uses. EALREADY, with the claim and its claimant, if another claimant does not release
  /// the name within `moment`; the caller should try again after all other results (Patience).
  /// Otherwise any error of the PFS. If the PFS has no symbolic links, the claim is a file whose
  /// content is the claimant.
  static Result<NameClaim> take(PfsIo& pfs, PfsRef at, const std::string& name,
                                const std::string& claimant,
                                std::chrono::milliseconds moment = std::chrono::milliseconds(10));
  /// Releases the claim unless give_back() has. Ignores errors.
  ~NameClaim();
  /// Releases the claim. An error names the claim that stays. It blocks other nodes and jobs until
  /// the next stage-out of this store removes it.
  Status give_back();
  NameClaim(NameClaim&& other) noexcept;
  NameClaim& operator=(NameClaim&&) = delete;
  NameClaim(const NameClaim&) = delete;
  NameClaim& operator=(const NameClaim&) = delete;

 private:
  NameClaim(PfsIo& pfs, PfsRef at, std::string claim, std::string claimant)
      : pfs_(&pfs), at_(at), claim_(std::move(claim)), claimant_(std::move(claimant)) {}

  bool is_lost(PfsIo& pfs) const;

  PfsIo* pfs_;  // null: moved away
  PfsRef at_;
  std::string claim_, claimant_;
};

/// The claimant of a claim, read from the claim's name in `at`.
Result<std::string> claimant_of(PfsIo& pfs, PfsRef at, const std::string& claim);

/// True if take() failed because another claimant has the claim.
inline bool is_held(const Error& error) {
  return error.code == EALREADY;
}

/// The final error after the last try: EBUSY, with advice.
Error given_up(const Error& held);

/// Runs `work` under a claim. If the claim cannot be released, the error of the work says so too;
/// if the work succeeded, the log says so.
Status under_claim(PfsIo& pfs, PfsRef at, const std::string& name, const std::string& claimant,
                   const std::function<Status()>& work);

}  // namespace efs::stage
