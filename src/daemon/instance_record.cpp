// SPDX-License-Identifier: BSD-3-Clause
// The record of a job in its receipt, and the report beside the receipt.
#include <algorithm>
#include <unordered_set>

#include "base/log.hpp"
#include "daemon/instance.hpp"
#include "report/report.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::daemon {

using control::Json;

namespace {

constexpr std::size_t most_transfers = 100;
constexpr auto patience_with_missed = std::chrono::seconds(3);

bool is_larger(const stage::JobFile& a, const stage::JobFile& b) {
  return a.bytes != b.bytes ? a.bytes > b.bytes : a.path < b.path;
}

/// The resources to which inputs belong: for each the one that names it, or contains it most
/// deeply.
class ByResource {
 public:
  explicit ByResource(const config::JobConfig& config) : config_(config) {
    counts_.resize(std::min(most_resources, config.resources.size()));
  }

  void add(const stage::JobFile& file) {
    std::size_t deepest = counts_.size(), length = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      const auto& resource = config_.resources[i];
      const auto place = config::place_of(config_, resource);
      const bool is_deeper = deepest == counts_.size() || place.size() >= length;
      if (is_deeper && contains(resource, place, file.path)) {
        deepest = i, length = place.size();
      }
    }
    if (deepest < counts_.size()) {
      ++counts_[deepest].files;
      counts_[deepest].bytes += file.bytes;
    }
  }

  std::vector<stage::UnopenedResource> take() {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      const auto& resource = config_.resources[i];
      const std::size_t root = config_.root_dir.size() + 1;
      counts_[i].path = resource.path.size() > root ? resource.path.substr(root) : "";
      counts_[i].line = resource.line;
    }
    std::erase_if(counts_, [](const auto& one) { return one.files == 0; });
    std::ranges::stable_sort(counts_, std::greater{}, &stage::UnopenedResource::bytes);
    counts_.resize(std::min(stage::JobRecord::most_named, counts_.size()));
    return std::move(counts_);
  }

 private:
  // a longer list is made by a program, and would take time for each input
  static constexpr std::size_t most_resources = 64;

  static bool contains(const config::Resource& resource, std::string_view place,
                       std::string_view path) {
    if (resource.is_list) {
      return false;
    }
    for (; !path.empty(); path = stage::parent_view(path)) {
      if (path == place || (resource.is_glob && config::glob_match(place, path))) {
        return true;
      }
    }
    return place.empty();
  }

  const config::JobConfig& config_;
  std::vector<stage::UnopenedResource> counts_;  // of the first resources, in their order
};

stage::UnopenedInputs unopened_in(const stage::Receipt& receipt, const fuse::OpenedFiles& opened,
                                  const config::JobConfig& config) {
  ByResource resources(config);
  stage::UnopenedInputs found;
  std::unordered_set<std::uint64_t> seen;  // a file may have several names
  for (const auto& entry : receipt.entries) {
    if (entry.input == 0 || !seen.insert(entry.input).second) {
      continue;
    }
    ++found.of_files;
    found.of_bytes += entry.bytes;
    if (opened.contains(entry.input)) {
      continue;
    }
    ++found.files;
    found.bytes += entry.bytes;
    found.largest.push_back({.path = entry.path, .bytes = entry.bytes});
    resources.add(found.largest.back());
  }
  // Inputs that the job has changed or removed have no entry here.
  if (receipt.staged_in) {
    found.of_files = std::max(found.of_files, receipt.staged_in->files);
    found.of_bytes = std::max(found.of_bytes, receipt.staged_in->bytes);
  }
  const auto most = std::min(stage::JobRecord::most_named, found.largest.size());
  std::ranges::partial_sort(found.largest, found.largest.begin() + static_cast<long>(most),
                            is_larger);
  found.largest.resize(most);
  found.resources = resources.take();
  return found;
}

bool is_of_efs(const std::string& name) {
  return stage::is_receipt_name(name) || stage::is_report_name(name) ||
         name.ends_with(stage::partial_suffix);
}

/// Asks root-dir for names, those of one directory together.
class RootDir {
 public:
  RootDir(const std::string& root_dir, stage::PfsIo& pfs)
      : pfs_(pfs), root_(pfs.open(AT_FDCWD, root_dir, stage::passage_flags)) {}

  /// The attributes of a regular file or directory; nullopt if there is none.
  std::optional<struct stat> look(const std::string& path) {
    const std::string parent = stage::parent_of(path);
    if (!root_) {
      return std::nullopt;
    }
    if (!directory_ || parent != open_) {
      directory_ = pfs_.open_beneath(root_->get(), parent, stage::passage_flags);
      open_ = parent;
    }
    const auto found = *directory_ ? pfs_.lstat((*directory_)->get(), stage::leaf_of(path))
                                   : std::unexpected((*directory_).error());
    const bool is_input = found && (S_ISREG(found->st_mode) || S_ISDIR(found->st_mode));
    return is_input ? std::optional(*found) : std::nullopt;
  }

 private:
  stage::PfsIo& pfs_;
  const Result<UniqueFd> root_;
  std::optional<Result<UniqueFd>> directory_;
  std::string open_;  // its path
};

}  // namespace

void Instance::note(Moment moment) {
  if (options_.figures != nullptr) {
    options_.figures->history.note(moment);
  }
}

// The samples are for the report, so an instance without a thread for them is as good.
void Instance::sample_space() {
  if (options_.figures == nullptr || !options_.config.report) {
    return;
  }
  auto sampler = TimerThread::start_varying(Clock::now(), [this]() -> Clock::duration {
    return options_.figures->history.space.add(
        {.time = wall_clock(), .used = store_.backend->space().used});
  });
  if (sampler) {
    sampler_ = std::move(*sampler);
  }
}

stage::JobCounters Instance::job_counters() {
  const fuse::Counters& counters = options_.figures->counters;
  stage::JobCounters record{.opens = counters.opens,
                            .passthrough_opens = counters.passthrough_opens,
                            .read_bytes = counters.read_bytes,
                            .written_bytes = counters.written_bytes,
                            .requests = counters.requests(),
                            .errors = counters.errors(),
                            .daemon_reason = {}};
  MutexLock lock(mutex_);
  if (session_ && !session_->passthrough()) {
    record.daemon_reason = why_daemon_io();
  }
  return record;
}

// Makes at most one call to the PFS for each name and one for each directory, and none after `end`.
stage::MissedInputs Instance::missed_inputs(Clock::time_point end) {
  const auto& missed = options_.figures->usage.missed;
  stage::MissedInputs found{.files = {}, .not_kept = missed.not_kept(), .unchecked = 0};
  fs::Staging staging(*filesystem_);
  std::vector<std::string> paths;
  for (const auto& [parent, name] : missed.all()) {
    auto path = is_of_efs(name) ? std::nullopt : staging.path_below(parent, name);
    if (path && !staging.find(*path)) {
      paths.push_back(std::move(*path));
    }
  }
  std::ranges::sort(paths);
  paths.erase(std::ranges::unique(paths).begin(), paths.end());
  if (paths.empty()) {
    return found;
  }
  stage::PacedPfs pfs = paced_pfs(progress_.cancel);
  RootDir root(options_.config.root_dir, pfs);
  for (const auto& path : paths) {
    if (Clock::now() >= end) {
      ++found.unchecked;
    } else if (const auto there = root.look(config::source_of(options_.config, path))) {
      found.files.push_back(
          {.path = path,
           .bytes = S_ISREG(there->st_mode) ? static_cast<std::uint64_t>(there->st_size) : 0});
    }
  }
  const auto most = std::min(stage::JobRecord::most_named, found.files.size());
  std::ranges::stable_sort(found.files, is_larger);
  found.files.resize(most);
  return found;
}

// Ends the samples: one thread at a time uses the series.
stage::JobSpace Instance::job_space() {
  sampler_.reset();
  const Space now = store_.backend->space();
  stage::JobSpace space{.capacity = now.capacity, .samples = options_.figures->history.space.all()};
  space.samples.push_back({.time = wall_clock(), .used = now.used});
  return space;
}

stage::JobRecord Instance::record_of_job(const stage::Receipt& receipt,
                                         const StopRequest& request) {
  stage::JobRecord record;
  record.job_file = options_.config.source;
  record.root_dir = options_.config.root_dir;
  record.takeovers = options_.takeovers;
  record.transfers = tasks_->transfers(most_transfers, record.unlisted_transfers);
  {
    MutexLock lock(mutex_);
    record.slowest_inputs = slowest_inputs_;
  }
  if (options_.figures == nullptr) {
    return record;
  }
  record.phases = options_.figures->history.phases(
      receipt.staged_in ? receipt.staged_in->bytes - receipt.staged_in->bytes_reused : 0,
      receipt.totals.bytes_staged_out);
  record.counters = job_counters();
  record.space = job_space();
  record.unopened = unopened_in(receipt, options_.figures->usage.opened, options_.config);
  auto end = Clock::now() + patience_with_missed;
  // with a deadline the results have the time
  if (request.until) {
    end = std::min(end, Clock::now() + (*request.until - Clock::now()) / 4);
  }
  record.missed = missed_inputs(end);
  return record;
}

// A stop does not fail for the sake of the record.
void Instance::add_record(stage::Receipt& receipt, const StopRequest& request) try {
  receipt.record = record_of_job(receipt, request);
} catch (const std::bad_alloc&) {
  log::warn("event=report_not_written reason=\"out of memory\"");
}

// A stop does not fail for the sake of the report.
void Instance::leave_report(const stage::Receipt& receipt, const StopRequest& request,
                            Json& outcome) try {
  const auto& config = options_.config;
  const std::string receipt_file = config.results_dir + "/" + stage::receipt_name(config.name);
  // results-dir may be absent: then the receipt is elsewhere
  if (!config.report || config.results_dir.empty() ||
      outcome.value("receipt_file", "") != receipt_file) {
    return;
  }
  const bool is_late = request.until && Clock::now() >= *request.until;
  const std::string name = stage::report_name(config.name);
  const bool is_taken = std::ranges::any_of(receipt.entries, [&](const auto& entry) {
    return entry.path == name || entry.placed_as == name;
  });
  const std::string path = config.results_dir + "/" + name;
  Status written = is_late    ? Status(fail(ETIME, "time was up"))
                   : is_taken ? Status(fail(EEXIST, "a result has the name"))
                              : Status();
  if (written) {
    stage::PacedPfs plain = paced_pfs(progress_.cancel);
    written = stage::write_beside_results(report::to_html(report::make_report(receipt)), path,
                                          S_IRUSR | S_IWUSR, plain, stage_options().partial_tag);
  }
  if (written) {
    outcome["report_file"] = path;
  } else {
    log::warn("event=report_not_written file={} reason=\"{}\"", path, describe(written.error()));
  }
} catch (const std::bad_alloc&) {
  log::warn("event=report_not_written reason=\"out of memory\"");
}

}  // namespace efs::daemon
