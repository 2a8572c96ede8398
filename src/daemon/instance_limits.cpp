// SPDX-License-Identifier: BSD-3-Clause
// What the mount of an instance may do per second.
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "config/keys.hpp"
#include "daemon/instance.hpp"
#include "daemon/requests.hpp"

namespace efs::daemon {

using control::Json;

namespace {

constexpr std::array limit_names{std::pair{"read", fuse::Limited::read},
                                 std::pair{"write", fuse::Limited::write},
                                 std::pair{"ops", fuse::Limited::operations}};

std::optional<std::uint64_t> control::requests::Limit::* field_of(fuse::Limited what) {
  switch (what) {
    case fuse::Limited::read: return &control::requests::Limit::read;
    case fuse::Limited::write: return &control::requests::Limit::write;
    default: return &control::requests::Limit::ops;
  }
}

// The bounds of a limit are those of its key.
Status fits_job_file(const std::string& name, std::uint64_t rate) {
  const auto read = config::parse_setting("limit-" + name, std::to_string(rate));
  return read ? Status() : std::unexpected(read.error());
}

}  // namespace

// Limits may change while programs run. Whether there are any may not: the kernel uses the same I/O
// path for the whole life of the mount, also under a successor.
bool Instance::has_limits() const {
  const config::JobConfig& config = options_.config;
  return config.limit_read > 0 || config.limit_write > 0 || config.limit_ops > 0;
}

fuse::Limits& Instance::limits() const {
  return options_.figures != nullptr ? options_.figures->limits : own_limits_;
}

void Instance::set_first_limits() {
  if (options_.takeovers > 0 && options_.figures != nullptr) {
    return;
  }
  limits().of(fuse::Limited::read) = options_.config.limit_read;
  limits().of(fuse::Limited::write) = options_.config.limit_write;
  limits().of(fuse::Limited::operations) = options_.config.limit_ops;
}

Json Instance::shown_limits() const {
  Json shown = Json::object();
  for (const auto& [name, what] : limit_names) {
    shown[name] = limits().of(what).load();
  }
  shown["delayed"] = limits().delayed.load();
  return shown;
}

Json Instance::handle_limit(const control::requests::Limit& request) {
  if (!has_limits()) {
    return control::error_line(
        {EOPNOTSUPP,
         options_.config.name +
             " has no limits, so the kernel may serve its I/O without the daemon; start it with "
             "limit-read, limit-write or limit-ops in the job file"});
  }
  std::array<std::optional<std::uint64_t>, fuse::limited_count> rates;
  for (const auto& [name, what] : limit_names) {
    const auto& rate = request.*field_of(what);
    const Status fits = rate.value_or(0) == 0 ? Status() : fits_job_file(name, *rate);
    if (!fits) {
      return control::error_line(fits.error(), 2);
    }
    rates[static_cast<std::size_t>(what)] = rate;
  }
  for (const auto& [name, what] : limit_names) {
    const auto rate = rates[static_cast<std::size_t>(what)];
    if (rate && limits().of(what).exchange(*rate) != *rate) {
      session_->rate_changed(what);
    }
  }
  return control::result_line({{"limits", shown_limits()}});
}

}  // namespace efs::daemon
