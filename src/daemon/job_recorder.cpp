// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/job_recorder.hpp"

#include <unistd.h>

#include <algorithm>
#include <unordered_set>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "daemon/report_files.hpp"
#include "report/report.hpp"
#include "stage/export/missed_names.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/plan/results_dir.hpp"

namespace efs::daemon {

using control::replies::Stopped;

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

stage::JobCounters JobRecorder::job_counters() {
  const fuse::Counters& counters = its_.figures->counters;
  stage::JobCounters record{.opens = counters.opens,
                            .passthrough_opens = counters.passthrough_opens,
                            .read_bytes = counters.read_bytes,
                            .written_bytes = counters.written_bytes,
                            .requests = counters.requests(),
                            .errors = counters.errors(),
                            .daemon_reason = {}};
  record.daemon_reason = its_.mount.daemon_reason();
  return record;
}

stage::MissedInputs JobRecorder::missed_inputs(std::chrono::milliseconds time) {
  const auto& missed = its_.figures->usage.missed;
  fs::Staging staging(its_.store.files());
  std::vector<MissedName> names;
  for (const auto& [parent, name] : missed.all()) {
    auto path = is_of_efs(name) ? std::nullopt : staging.path_below(parent, name);
    if (path && !staging.find(*path)) {
      names.push_back({.path = *path, .source = config::source_of(config_, *path)});
    }
  }
  std::ranges::sort(names, {}, &MissedName::path);
  const auto twice = std::ranges::unique(names, {}, &MissedName::path);
  names.erase(twice.begin(), twice.end());
  stage::MissedInputs found;
  if (!names.empty()) {
    found = ask_root_dir(config_.root_dir, std::move(names), stage::pace_of(config_), time);
  }
  found.not_kept = missed.not_kept();
  found.named = found.files.size();
  const auto most = std::min(stage::JobRecord::most_named, found.files.size());
  std::ranges::stable_sort(found.files, is_larger);
  found.files.resize(most);
  return found;
}

// The mount is gone, so no request adds a sample.
stage::JobSpace JobRecorder::job_space() {
  const Space now = its_.store.space();
  stage::JobSpace space{.capacity = now.capacity, .samples = its_.figures->history.space.all()};
  space.samples.push_back({.time = wall_clock(), .used = now.used});
  return space;
}

stage::JobRecord JobRecorder::record_of_job(const stage::Receipt& receipt,
                                            const StopRequest& request) {
  stage::JobRecord record;
  record.job_file = config_.source;
  record.root_dir = config_.root_dir;
  record.takeovers = its_.facts.takeovers;
  record.transfers = its_.tasks.transfers(most_transfers, record.unlisted_transfers);
  record.slowest_inputs = its_.transfers.slowest_inputs();
  if (its_.figures == nullptr) {
    return record;
  }
  record.phases = its_.figures->history.phases(
      receipt.staged_in ? receipt.staged_in->bytes - receipt.staged_in->bytes_reused : 0,
      receipt.totals.bytes_staged_out);
  record.counters = job_counters();
  record.space = job_space();
  record.continued = its_.figures->history.continued;
  if (!record.continued) {
    record.unopened = unopened_in(receipt, its_.figures->usage.opened, config_);
  }
  record.missed = missed_inputs(time_for(request, patience_with_missed));
  return record;
}

// A stop does not fail for the sake of the record.
void JobRecorder::add_record(stage::Receipt& receipt, const StopRequest& request) try {
  receipt.record = record_of_job(receipt, request);
} catch (const std::bad_alloc&) {
  log::warn("event=report_not_written reason=\"out of memory\"");
}

bool JobRecorder::write_receipt(const stage::Receipt& receipt, Stopped& outcome) {
  std::string note = receipt.note.empty() ? "" : receipt.note + "\n";
  if (config_.results_dir.empty()) {
    outcome.summary = stage::describe(receipt, stage::names_shown_without_receipt) + note;
    return true;
  }
  const std::string path = config_.results_dir + "/" + stage::receipt_name(config_.name);
  // each node has its own receipt: no merge
  stage::PacedPfs plain = its_.transfers.paced_pfs(its_.progress.cancel);
  Status there = stage::check_mounted(config_, plain);
  if (there) {
    there = stage::write_receipt(receipt, path, plain, its_.transfers.options().partial_tag);
  }
  std::size_t names = stage::names_shown;
  if (there) {
    outcome.receipt_file = path;
    // remove the receipt of an earlier stop, which would contradict this one
    ::unlink((its_.facts.directory + "/receipt.json").c_str());
  } else {
    note += "The receipt could not be written: " + escaped(path) + ": " +
            printable(describe(there.error())) + "\n";
    if (!write_second_receipt(receipt, outcome, note)) {
      names = stage::names_shown_without_receipt;
    }
  }
  outcome.summary = stage::describe(receipt, names) + note;
  return there.has_value();
}

bool JobRecorder::write_second_receipt(const stage::Receipt& receipt, Stopped& outcome,
                                       std::string& note) {
  const std::string path = its_.facts.directory + "/receipt.json";
  if (!stage::write_receipt(receipt, path, stage::posix_pfs())) {
    return false;
  }
  outcome.receipt_file = path;
  note += "Meanwhile it is here: " + escaped(path) + "\n";
  return true;
}

// A stop does not fail for the sake of the report.
void JobRecorder::write_report(const stage::Receipt& receipt, const StopRequest& request,
                               Stopped& outcome) try {
  const auto& config = config_;
  const std::string receipt_file = config.results_dir + "/" + stage::receipt_name(config.name);
  // results-dir may be absent: then the receipt is elsewhere
  if (config.results_dir.empty() || outcome.receipt_file != receipt_file) {
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
                    .partial_tag = its_.transfers.options().partial_tag,
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
    outcome.report_file = path;
  }
} catch (const std::bad_alloc&) {
  log::warn("event=report_not_written reason=\"out of memory\"");
}

}  // namespace efs::daemon
