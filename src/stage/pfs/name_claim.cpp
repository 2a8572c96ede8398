// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/name_claim.hpp"

#include <fcntl.h>

#include <cerrno>
#include <exception>
#include <span>
#include <thread>
#include <utility>

#include "base/checksum.hpp"
#include "base/log.hpp"
#include "stage/pfs/partial_name.hpp"

namespace efs::stage {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int most_tries_to_release = 3;
constexpr auto between_looks = std::chrono::milliseconds(4);
constexpr std::size_t longest_claimant = 255;  // a name

std::string claim_to(const std::string& name) {
  return std::string(claim_prefix) + name_digest(name) + partial_suffix;
}

bool has_no_links(int code) {
  return code == EPERM || code == EOPNOTSUPP || code == ENOSYS;
}

// Not atomic: after a failure or a kill the claim may have no claimant.
Status make_file(PfsIo& pfs, PfsRef at, const std::string& claim, const std::string& claimant) {
  const auto file = pfs.open(at, claim, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
  if (!file) {
    return std::unexpected(file.error());
  }
  const auto written = pfs.write(*file, std::as_bytes(std::span(claimant)), 0);
  if (written && *written == claimant.size()) {
    return {};
  }
  (void)pfs.unlink(at, claim);
  return fail(written ? EIO : written.error().code);
}

Status make(PfsIo& pfs, PfsRef at, const std::string& claim, const std::string& claimant) {
  Status linked = pfs.symlink(claimant, at, claim);
  return !linked && has_no_links(linked.error().code) ? make_file(pfs, at, claim, claimant)
                                                      : linked;
}

}  // namespace

Result<std::string> claimant_of(PfsIo& pfs, PfsRef at, const std::string& claim) {
  auto target = pfs.readlink(at, claim);
  if (target || target.error().code != EINVAL) {
    return target;
  }
  const auto file = pfs.open(at, claim, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file) {
    return std::unexpected(file.error());
  }
  std::string text(longest_claimant, '\0');
  const auto n = pfs.read(*file, std::as_writable_bytes(std::span(text)), 0);
  if (!n) {
    return std::unexpected(n.error());
  }
  text.resize(*n);
  return text;
}

Result<NameClaim> NameClaim::take(PfsIo& pfs, PfsRef at, const std::string& name,
                                  const std::string& claimant, std::chrono::milliseconds moment) {
  // allocate first, so that no claim is left after std::bad_alloc
  std::string claim = claim_to(name), own = claimant;
  const auto end = Clock::now() + moment;
  for (bool is_first = true;; is_first = false, std::this_thread::sleep_for(between_looks)) {
    const Status made = make(pfs, at, claim, claimant);
    if (made) {
      return NameClaim(pfs, at, std::move(claim), std::move(own));
    }
    if (made.error().code != EEXIST) {
      return std::unexpected(made.error());
    }
    const auto theirs = claimant_of(pfs, at, claim);
    // A killed process with the same partial has left it, or the PFS has lost the reply to the
    // call.
    if (theirs && *theirs == claimant) {
      return NameClaim(pfs, at, std::move(claim), std::move(own));
    }
    // Not after a single check: this machine may have been suspended while the other one ran.
    if (!is_first && Clock::now() >= end) {
      return fail(EALREADY, claim + " in the same directory is its claim" +
                                (theirs ? ", of " + *theirs : ""));
    }
  }
}

Error given_up(const Error& held) {
  return {EBUSY, "another node or job has claimed this name, and does not finish: " + held.what +
                     "; if that process is dead, remove the claim, and try again"};
}

NameClaim::NameClaim(NameClaim&& other) noexcept
    : pfs_(std::exchange(other.pfs_, nullptr)),
      at_(other.at_),
      claim_(std::move(other.claim_)),
      claimant_(std::move(other.claimant_)) {}

NameClaim::~NameClaim() {
  try {
    (void)give_back();
  } catch (const std::exception&) {
  }  // out of memory
}

bool NameClaim::is_lost(PfsIo& pfs) const {
  const auto holder = claimant_of(pfs, at_, claim_);
  return holder ? *holder != claimant_ : holder.error().code == ENOENT;
}

Status NameClaim::give_back() {
  if (pfs_ == nullptr) {
    return {};
  }
  PfsIo& pfs = *std::exchange(pfs_, nullptr);
  Status released;
  for (int tries = 0; tries < most_tries_to_release; ++tries) {
    // The claim may be removed despite the error, and another claimant may have made a new one.
    if (tries > 0 && is_lost(pfs)) {
      return {};
    }
    released = pfs.unlink(at_, claim_);
    if (released || released.error().code == ENOENT) {
      return {};
    }
  }
  return fail(released.error().code, left_behind(claim_, released.error()));
}

Status under_claim(PfsIo& pfs, PfsRef at, const std::string& name, const std::string& claimant,
                   const std::function<Status()>& work) {
  auto claim = NameClaim::take(pfs, at, name, claimant);
  if (!claim) {
    return std::unexpected(claim.error());
  }
  Status done = work();
  const Status given_back = claim->give_back();
  if (given_back) {
    return done;
  }
  if (done) {
    log::warn("event=claim_left name=\"{}\" reason=\"{}\"", name, given_back.error().what);
  } else {
    done.error().what = describe(done.error()) + "; " + given_back.error().what;
  }
  return done;
}

}  // namespace efs::stage
