// SPDX-License-Identifier: BSD-3-Clause
// The record of a job in its receipt, and the report beside the receipt.
#include <algorithm>
#include <unordered_set>

#include "base/log.hpp"
#include "daemon/instance.hpp"
#include "daemon/report_files.hpp"
#include "report/report.hpp"
#include "stage/export/missed_names.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::daemon {

using control::Json;

namespace {

constexpr std::size_t most_transfers = 100;
// The most time that a stop spends on each of the two tasks for the report.
constexpr auto patience_with_missed = std::chrono::milliseconds(3000);
constexpr auto patience_with_page = std::chrono::milliseconds(5000);
// With the time of a stop up, for the removal of an earlier page.
constexpr auto least_patience = std::chrono::milliseconds(500);

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

/// With a deadline, the results and the receipt have three quarters of the time that is left.
std::chrono::milliseconds time_for(const StopRequest& request, std::chrono::milliseconds most) {
  using std::chrono::milliseconds, std::chrono::duration_cast;
  if (!request.times.until) {
    return most;
  }
  const auto left = *request.times.until - std::chrono::steady_clock::now();
  return std::clamp(duration_cast<milliseconds>(left) / 4, milliseconds(0), most);
}

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

}  // namespace

void Instance::note(Moment moment) {
  if (options_.figures != nullptr) {
    options_.figures->history.note(moment);
  }
}

fuse::DueWork* Instance::space_samples() {
  if (options_.figures != nullptr && options_.config.report) {
    space_samples_ = std::make_unique<fuse::DueWork>([this]() -> Clock::duration {
      return options_.figures->history.space.add(
          {.time = wall_clock(), .used = store_.backend->space().used});
    });
  }
  return space_samples_.get();
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

stage::MissedInputs Instance::missed_inputs(std::chrono::milliseconds time) {
  const auto& missed = options_.figures->usage.missed;
  fs::Staging staging(*filesystem_);
  std::vector<MissedName> names;
  for (const auto& [parent, name] : missed.all()) {
    auto path = is_of_efs(name) ? std::nullopt : staging.path_below(parent, name);
    if (path && !staging.find(*path)) {
      names.push_back({.path = *path, .source = config::source_of(options_.config, *path)});
    }
  }
  std::ranges::sort(names, {}, &MissedName::path);
  const auto twice = std::ranges::unique(names, {}, &MissedName::path);
  names.erase(twice.begin(), twice.end());
  stage::MissedInputs found;
  if (!names.empty()) {
    found = ask_root_dir(options_.config.root_dir, std::move(names),
                         stage::pace_of(options_.config), time);
  }
  found.not_kept = missed.not_kept();
  found.named = found.files.size();
  const auto most = std::min(stage::JobRecord::most_named, found.files.size());
  std::ranges::stable_sort(found.files, is_larger);
  found.files.resize(most);
  return found;
}

// The mount is gone, so no request adds a sample.
stage::JobSpace Instance::job_space() {
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
  record.continued = options_.figures->history.continued;
  if (!record.continued) {
    record.unopened = unopened_in(receipt, options_.figures->usage.opened, options_.config);
  }
  record.missed = missed_inputs(time_for(request, patience_with_missed));
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
  if (config.results_dir.empty() || outcome.value("receipt_file", "") != receipt_file) {
    return;
  }
  const std::string name = stage::report_name(config.name);
  const std::string path = config.results_dir + "/" + name;
  const auto complain = [&](const std::string& reason) {
    log::warn("event=report_not_written file={} reason=\"{}\"", path, reason);
  };
  const auto is_result = [&](const std::string& it) {
    return std::ranges::any_of(
        receipt.entries, [&](const auto& one) { return one.path == it || one.placed_as == it; });
  };
  if (is_result(name) || is_result(stage::missed_names_name(config.name))) {
    return complain("a result has the name");
  }
  ReportFiles files{.directory = config.results_dir,
                    .job = config.name,
                    .partial_tag = stage_options().partial_tag,
                    .page = {},
                    .names = {}};
  auto time = time_for(request, patience_with_page);
  const bool is_late = time.count() <= 0;
  if (is_late) {
    time = least_patience;
  } else if (config.report) {
    files.page = report::to_html(report::make_report(receipt));
    files.names = stage::missed_names_text(receipt);
  }
  const Status written = write_report_files(std::move(files), stage::pace_of(config), time);
  if (!written) {
    complain(describe(written.error()));
  } else if (config.report && is_late) {
    complain("time was up");
  } else if (config.report) {
    outcome["report_file"] = path;
  }
} catch (const std::bad_alloc&) {
  log::warn("event=report_not_written reason=\"out of memory\"");
}

}  // namespace efs::daemon
