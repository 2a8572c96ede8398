// SPDX-License-Identifier: BSD-3-Clause
#include "objects/checkpoint/checkpoints.hpp"

#include <array>
#include <charconv>

#include "objects/name.hpp"

namespace efs::objects {

namespace {

struct Named {
  Strategy strategy;
  const char* name;
};

constexpr std::array strategies{
    Named{Strategy::copy, "copy"},      Named{Strategy::split, "split"},
    Named{Strategy::stage, "stage"},    Named{Strategy::snapshot, "snapshot"},
    Named{Strategy::automatic, "auto"},
};

Result<Strategy> strategy_of(std::string_view name) {
  for (const Named& known : strategies) {
    if (name == known.name) {
      return known.strategy;
    }
  }
  return fail(EINVAL, "the strategy " + printable(name) + " is unknown",
              "Use copy, split, stage, snapshot or auto");
}

/// Returns bytes per second.
Result<double> pace_of(std::string_view value) {
  double megabytes = 0;
  const char* const end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, megabytes);
  if (error != std::errc() || rest != end || !(megabytes >= 0) || megabytes > 1e9) {
    return fail(EINVAL, "the pace " + printable(value) + " is not a number of MB/s",
                "Use a number such as 1500, or 0 for no limit");
  }
  return megabytes * 1e6;
}

}  // namespace

const char* name_of(Strategy strategy) {
  for (const Named& known : strategies) {
    if (strategy == known.strategy) {
      return known.name;
    }
  }
  return "";
}

Status Checkpoints::check_process() const {
  return ::getpid() == process_
             ? Status()
             : fail(EINVAL, "the store was opened before fork()", "Open the store in the child");
}

Status Checkpoints::protect(std::string_view name, const eo_array& array) {
  EO_TRY(check_process());
  EO_TRY(check_name(name));
  auto shape = checked(array);
  if (!shape) {
    return std::unexpected(std::move(shape.error()));
  }
  if (array.data == nullptr && shape->bytes > 0) {
    return fail(EINVAL, "data is NULL");
  }
  const std::lock_guard lock(calls_);
  Protected memory{std::string(name), std::move(*shape), static_cast<char*>(array.data)};
  arrays_.insert_or_assign(memory.name, memory);
  return {};
}

Status Checkpoints::unprotect(std::string_view name) {
  EO_TRY(check_process());
  const std::lock_guard lock(calls_);
  const auto found = arrays_.find(name);
  if (found == arrays_.end()) {
    return fail(ENOENT, "the array is not protected", "Use a name of eo_protect");
  }
  arrays_.erase(found);
  return {};
}

Status Checkpoints::configure(std::string_view option, std::string_view value) {
  EO_TRY(check_process());
  const std::lock_guard lock(calls_);
  if (option == "strategy") {
    const auto strategy = strategy_of(value);
    strategy_ = strategy.value_or(strategy_);
    return strategy ? Status() : std::unexpected(strategy.error());
  }
  if (option == "pace") {
    const auto pace = pace_of(value);
    if (pace) {
      medium_.set_pace(*pace);
    }
    return pace ? Status() : std::unexpected(pace.error());
  }
  return fail(EINVAL, "the option is unknown", "Use strategy, fast or pace");
}

Status Checkpoints::checkpoint(const Store& store, std::string_view series, std::uint64_t n,
                               unsigned flags) {
  EO_TRY(check_process());
  EO_TRY(check_flags(flags));
  const std::lock_guard lock(calls_);
  auto version = begin(store, series, n);
  if (!version) {
    return std::unexpected(std::move(version.error()));
  }
  Job job(std::move(*version), flags);
  for (const auto& [name, array] : arrays_) {
    job.items().emplace_back().array = array;
  }
  return run(job, strategy_);
}

Status Checkpoints::run(Job& job, Strategy strategy) {
  for (Item& item : job.items()) {
    item.direct = item.array.shape.bytes;
  }
  used_ = strategy;
  EO_TRY(job.write_direct(medium_));
  return job.commit();
}

Status Checkpoints::wait() {
  return check_process();
}

Result<std::uint64_t> Checkpoints::restore(const Store& store, std::string_view series,
                                           std::uint64_t n) {
  EO_TRY(check_process());
  const std::lock_guard lock(calls_);
  std::vector<Protected> arrays;
  for (const auto& [name, array] : arrays_) {
    arrays.push_back(array);
  }
  return restore_arrays(store, series, n, arrays);
}

}  // namespace efs::objects
