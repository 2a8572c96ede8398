// SPDX-License-Identifier: BSD-3-Clause
#include "objects/checkpoint/checkpoints.hpp"

#include <array>
#include <charconv>
#include <cstring>

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
  return in_its_process()
             ? Status()
             : fail(EINVAL, "the store was opened before fork()", "Open the store in the child");
}

Worker& Checkpoints::worker() {
  if (!worker_) {
    worker_ = std::make_unique<Worker>();
  }
  return *worker_;
}

void Checkpoints::post(std::function<void()> work) {
  posted_ = worker().post(std::move(work));
}

/// Waits for the checkpoint in the background; its failure stays for finish().
void Checkpoints::rest() {
  if (worker_) {
    worker_->wait(posted_);
  }
}

/// Waits until no background work reads the program's memory.
void Checkpoints::rest_from_memory() {
  if (used_ == Strategy::snapshot) {
    rest();
  }
  end_hints();
}

Status Checkpoints::finish() {
  rest();
  return std::exchange(outcome_, Status());
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
  rest_from_memory();
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
  rest_from_memory();
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
      rest();
      end_hints();
      medium_.set_pace(*pace);
    }
    return pace ? Status() : std::unexpected(pace.error());
  }
  if (option == "fast") {
    rest();
    return fast_.use(std::string(value));
  }
  return fail(EINVAL, "the option is unknown", "Use strategy, fast or pace");
}

Status Checkpoints::checkpoint(const Store& store, std::string_view series, std::uint64_t n,
                               unsigned flags) {
  EO_TRY(check_process());
  EO_TRY(check_flags(flags));
  const std::lock_guard lock(calls_);
  EO_TRY(finish());
  end_hints();
  auto version = begin(store, series, n);
  if (!version) {
    return std::unexpected(std::move(version.error()));
  }
  const auto job = std::make_shared<Job>(std::move(*version), flags);
  for (const auto& [name, array] : arrays_) {
    job->items().emplace_back().array = array;
  }
  Status prepared = fail(ENOTSUP);
  if (strategy_ != Strategy::automatic) {
    prepared = prepare(*job, strategy_);
  }
  for (std::size_t i = 0; strategy_ == Strategy::automatic && !prepared; ++i) {
    prepared = prepare(*job, automatic_order.at(i));
  }
  drop_hints();
  return prepared ? run(job) : prepared;
}

Status Checkpoints::prepare(Job& job, Strategy strategy) {
  if (strategy == Strategy::snapshot) {
    return prepare_snapshot(job);
  }
  adopt(job);
  std::uint64_t direct = UINT64_MAX;
  if (strategy == Strategy::stage) {
    direct = 0;
  } else if (strategy == Strategy::split) {
    direct = direct_share(job.bytes(), fast_rate_.value(), medium_.rate());
  }
  const std::uint64_t staged = job.place(direct, strategy != Strategy::copy);
  if (strategy != Strategy::copy) {
    EO_TRY(fast_.reserve(staged, true));
    job.stage_at(fast_.data());
  }
  used_ = strategy;
  return {};
}

void Checkpoints::copy_staged(Job& job) {
  for (const Item& item : job.items()) {
    if (item.rest() > 0) {
      const Moment begun = std::chrono::steady_clock::now();
      std::memcpy(item.staged, item.array.data + item.direct, item.rest());
      if (item.rest() >= granule_size) {
        fast_rate_.add(item.rest(), std::chrono::steady_clock::now() - begun);
      }
    }
  }
}

Status Checkpoints::run(const std::shared_ptr<Job>& job) {
  const Strategy strategy = used_;
  if (strategy == Strategy::copy) {
    EO_TRY(job->write_direct(medium_));
    return job->commit();
  }
  if (strategy == Strategy::split) {
    post([this, job] { outcome_ = job->background([&] { return job->write_direct(medium_); }); });
  }
  if (strategy != Strategy::snapshot) {
    copy_staged(*job);
    EO_TRY(finish());
  }
  post_rest(job);
  return {};
}

void Checkpoints::post_rest(const std::shared_ptr<Job>& job) {
  post([this, job] {
    outcome_ = job->background([&]() -> Status {
      EO_TRY(write_snapshot(*job));
      EO_TRY(job->write_staged(medium_));
      return job->commit();
    });
  });
}

Status Checkpoints::wait() {
  EO_TRY(check_process());
  const std::lock_guard lock(calls_);
  return finish();
}

void Checkpoints::close() noexcept {
  try {
    const Status status = wait();
    end_hints();
    drop_hints();
    if (!status) {
      report(Subject{"complete a checkpoint before the store is closed", "", ""}, status.error());
    }
  } catch (...) {
    report(Subject{"complete a checkpoint", "", ""}, Failure{ENOMEM, "", ""});
  }
}

Result<std::uint64_t> Checkpoints::restore(const Store& store, std::string_view series,
                                           std::uint64_t n) {
  EO_TRY(check_process());
  const std::lock_guard lock(calls_);
  rest();
  end_hints();
  std::vector<Protected> arrays;
  for (const auto& [name, array] : arrays_) {
    arrays.push_back(array);
  }
  return restore_arrays(store, series, n, arrays);
}

}  // namespace efs::objects
