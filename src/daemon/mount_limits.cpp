// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/mount_limits.hpp"

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/keys.hpp"

namespace efs::daemon {

using control::Json;

namespace {

using Rates = control::requests::Limit;

struct Name {
  const char* name;
  fuse::Limited what;
  std::optional<std::uint64_t> Rates::* rate;
};

constexpr std::array limit_names{Name{"read", fuse::Limited::read, &Rates::read},
                                 Name{"write", fuse::Limited::write, &Rates::write},
                                 Name{"ops", fuse::Limited::operations, &Rates::ops}};

// The bounds of a limit are those of its key.
Status fits_job_file(const std::string& name, std::uint64_t rate) {
  const auto read = config::parse_setting("limit-" + name, std::to_string(rate));
  return read ? Status() : std::unexpected(read.error());
}

}  // namespace

MountLimits::MountLimits(const config::JobConfig& config, fuse::Limits* kept, bool successor)
    : config_(config), limits_(kept != nullptr ? *kept : own_) {
  if (successor && kept != nullptr) {
    return;
  }
  limits_.of(fuse::Limited::read) = config.limit_read;
  limits_.of(fuse::Limited::write) = config.limit_write;
  limits_.of(fuse::Limited::operations) = config.limit_ops;
}

bool MountLimits::any() const {
  return config_.limit_read > 0 || config_.limit_write > 0 || config_.limit_ops > 0;
}

fuse::Limits* MountLimits::of_session() {
  return any() ? &limits_ : nullptr;
}

control::replies::Limits MountLimits::shown() const {
  return {.read = limits_.of(fuse::Limited::read).load(),
          .write = limits_.of(fuse::Limited::write).load(),
          .ops = limits_.of(fuse::Limited::operations).load(),
          .delayed = limits_.delayed.load()};
}

Json MountLimits::change(const Rates& request, const std::function<void(fuse::Limited)>& changed) {
  if (!any()) {
    return control::error_line(
        {EOPNOTSUPP,
         config_.name +
             " has no limits, so the kernel may serve its I/O without the daemon; start it with "
             "limit-read, limit-write or limit-ops in the job file"});
  }
  for (const auto& one : limit_names) {
    const auto& rate = request.*one.rate;
    const Status fits = rate.value_or(0) == 0 ? Status() : fits_job_file(one.name, *rate);
    if (!fits) {
      return control::error_line(fits.error(), 2);
    }
  }
  for (const auto& one : limit_names) {
    const auto& rate = request.*one.rate;
    if (rate && limits_.of(one.what).exchange(*rate) != *rate) {
      changed(one.what);
    }
  }
  return control::result_line({{"limits", to_json(shown())}});
}

}  // namespace efs::daemon
