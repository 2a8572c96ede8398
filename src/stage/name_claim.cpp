#include "stage/name_claim.hpp"

#include <cerrno>
#include <exception>
#include <thread>
#include <utility>

#include "base/checksum.hpp"
#include "base/log.hpp"
#include "stage/partial.hpp"

namespace efs::stage {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int most_tries_to_release = 3;
constexpr auto pause_between_tries = std::chrono::milliseconds(5);

std::string claim_to(const std::string& name) { return std::string(claim_prefix) + name_digest(name) + partial_suffix; }

bool has_no_links(int code) { return code == EPERM || code == EOPNOTSUPP || code == ENOSYS; }

struct Made {
  Status status;
  bool is_directory = false;
};

Made make(PfsIo& pfs, int at, const std::string& claim, const std::string& claimant) {
  Status linked = pfs.symlink(claimant, at, claim);
  if (!linked && has_no_links(linked.error().code)) return {.status = pfs.mkdir(at, claim, 0700), .is_directory = true};
  // Left by who was killed at the same, or the answer to the call was lost.
  if (const auto holder = !linked && linked.error().code == EEXIST ? pfs.readlink(at, claim) : fail(ENOENT); holder && *holder == claimant) return {};
  return {.status = std::move(linked)};
}

}  // namespace

Result<NameClaim> NameClaim::take(PfsIo& pfs, int at, const std::string& name, const std::string& claimant, std::chrono::milliseconds patience) {
  std::string claim = claim_to(name);
  const auto end = Clock::now() + patience;
  while (true) {
    const Made made = make(pfs, at, claim, claimant);
    if (made.status) return NameClaim(pfs, at, std::move(claim), made.is_directory);
    if (made.status.error().code != EEXIST) return std::unexpected(made.status.error());
    if (Clock::now() >= end) break;
    std::this_thread::sleep_for(pause_between_tries);
  }
  const auto holder = pfs.readlink(at, claim);
  return fail(EBUSY, "another node or job is about to give or to take this name, and does not come to an end: " + claim + " in the same directory is its claim" + (holder ? ", of " + *holder : "") +
                         "; where that is dead, remove it, and try again");
}

NameClaim::NameClaim(NameClaim&& other) noexcept : pfs_(std::exchange(other.pfs_, nullptr)), at_(other.at_), claim_(std::move(other.claim_)), is_directory_(other.is_directory_) {}

NameClaim::~NameClaim() {
  try {
    (void)give_back();
  } catch (const std::exception&) {}  // no memory
}

Status NameClaim::give_back() {
  if (pfs_ == nullptr) return {};
  PfsIo& pfs = *std::exchange(pfs_, nullptr);
  Status released;
  for (int tries = 0; tries < most_tries_to_release; ++tries) {
    released = is_directory_ ? pfs.rmdir(at_, claim_) : pfs.unlink(at_, claim_);
    if (released || released.error().code == ENOENT) return {};
  }
  return fail(released.error().code, left_behind(claim_, released.error()));
}

Status under_claim(PfsIo& pfs, int at, const std::string& name, const std::string& claimant, const std::function<Status()>& work) {
  auto claim = NameClaim::take(pfs, at, name, claimant);
  if (!claim) return std::unexpected(claim.error());
  Status done = work();
  const Status given_back = claim->give_back();
  if (given_back) return done;
  if (done) log::warn("event=claim_left name=\"{}\" reason=\"{}\"", name, given_back.error().what);
  else done.error().what = describe(done.error()) + "; " + given_back.error().what;
  return done;
}

}  // namespace efs::stage
