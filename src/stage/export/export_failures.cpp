// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/export_failures.hpp"

#include <cerrno>
#include <string>

#include "stage/pfs/name_claim.hpp"

namespace efs::stage {
namespace {

bool is_full(const Error& error) {
  return error.code == ENOSPC || error.code == EDQUOT;
}

}  // namespace

void ExportFailures::record_full(const Error& error) {
  if (is_full(error)) {
    full_ = true;
  }
}

outgoing::Settled& ExportFailures::fail_result(Outgoing& out, const Error& error) {
  record_full(error);
  out.entry.code = error.code;
  if (error.code == ECANCELED) {
    return out.settle(Action::not_saved, progress_.why_cancelled());
  }
  auto& settled = out.settle(Action::failed, describe(error));
  settled.no_room = is_full(error);
  return settled;
}

void ExportFailures::fail_held(Outgoing& out) const {
  const Error error = given_up({EALREADY, out.held()});
  out.entry.code = error.code;
  const bool is_written = out.is<outgoing::Written>();
  auto& settled = progress_.cancel
                      ? out.settle(Action::not_saved, error.what + "; " + progress_.why_cancelled())
                      : out.settle(Action::failed, error.what);
  settled.partial_left = is_written;
}

outgoing::Settled& ExportFailures::fail_name(Outgoing& out, const Error& error) {
  if (error.code != EEXIST) {
    return fail_result(out, error);
  }
  out.entry.code = error.code;
  return out.settle(Action::conflict, describe(error));
}

bool ExportFailures::leave_untried(Outgoing& out) const {
  if (full_) {
    out.settle(Action::not_saved, "not tried: no space left in results-dir").no_room = true;
    return true;
  }
  if (progress_.cancel) {
    out.settle(Action::not_saved, std::string("not tried: ") + progress_.why_cancelled());
    out.entry.code = ECANCELED;
    return true;
  }
  return false;
}

}  // namespace efs::stage
