// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/watchers.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace efs::daemon {
namespace {

using Json = nlohmann::json;

namespace replies = control::replies;

replies::Recording figure(const LineFile& file) {
  replies::Recording recording{.file = file.path(), .error = {}, .lost_lines = {}};
  if (const Status status = file.failure(); !status) {
    recording.error = describe(status.error());
  }
  if (const auto lost = file.lost(); lost > 0) {
    recording.lost_lines = lost;
  }
  return recording;
}

// The last report about a file.
struct Told {
  bool failed = false;
  std::uint64_t lost = 0;
};

void tell(LineFile* file, Told& told) {
  if (file == nullptr) {
    return;
  }
  if (!file->has_thread()) {
    file->flush();
  }
  const Status status = file->failure();
  if (!status && !told.failed) {
    if (file->is_open()) {
      log::warn("event=event_file_ended file=\"{}\" reason=\"{}\"", file->path(),
                describe(status.error()));
    } else {
      log::warn("event=event_file_not_opened file=\"{}\" reason=\"{}\" note=\"efs retries\"",
                file->path(), describe(status.error()));
    }
  }
  told.failed = !status;
  const auto lost = file->lost();
  if (lost > told.lost) {
    log::warn(
        "event=event_file_lost_lines file=\"{}\" lines={} note=\"its file system is too slow, or "
        "hangs\"",
        file->path(), lost - told.lost);
  }
  told.lost = lost;
}

struct StatusPlace {
  std::string path;
  mode_t mode;
};

// A status file that the job file names is for a scheduler, which may run as another user.
StatusPlace status_place(const config::JobConfig& config, const std::string& directory) {
  if (config.status_file.empty()) {
    return {.path = directory + "/status.json", .mode = 0600};
  }
  return {.path = config.status_file, .mode = 0644};
}

}  // namespace

Result<std::unique_ptr<Watchers>> Watchers::open(const config::JobConfig& config,
                                                 const std::string& directory,
                                                 StatusFile::Snapshot snapshot) {
  std::unique_ptr<LineFile> trace, access;
  if (!config.trace.empty()) {
    auto file = LineFile::open(config.trace, fuse::Trace::header);
    if (!file) {
      return fail(file.error().code, "trace " + describe(file.error()));
    }
    trace = std::move(*file);
  }
  if (!config.access_log.empty()) {
    auto file = LineFile::open(config.access_log, "", config.access_log_size);
    if (!file) {
      return fail(file.error().code, "access-log " + describe(file.error()));
    }
    access = std::move(*file);
  }
  std::unique_ptr<Watchers> watchers(new Watchers);
  watchers->watch(std::move(trace), std::move(access));
  const auto [path, mode] = status_place(config, directory);
  auto status = StatusFile::open(path, std::move(snapshot), watchers->every_second(), mode);
  if (!status) {
    return fail(status.error().code, "status-file " + describe(status.error()));
  }
  watchers->status_ = std::move(*status);
  return watchers;
}

std::unique_ptr<Watchers> Watchers::open_later(const config::JobConfig& config,
                                               const std::string& directory,
                                               StatusFile::Snapshot snapshot) {
  std::unique_ptr<Watchers> watchers(new Watchers);
  watchers->watch(
      config.trace.empty() ? nullptr : LineFile::open_later(config.trace, fuse::Trace::header),
      config.access_log.empty()
          ? nullptr
          : LineFile::open_later(config.access_log, "", config.access_log_size));
  const auto [path, mode] = status_place(config, directory);
  watchers->status_ =
      StatusFile::open_later(path, std::move(snapshot), watchers->every_second(), mode);
  return watchers;
}

void Watchers::watch(std::unique_ptr<LineFile> trace, std::unique_ptr<LineFile> access) {
  trace_file_ = std::move(trace);
  access_file_ = std::move(access);
  if (trace_file_) {
    trace_ = std::make_unique<fuse::Trace>(*trace_file_);
  }
  if (access_file_) {
    access_log_ = std::make_unique<fuse::AccessLog>(*access_file_);
  }
}

std::function<void()> Watchers::every_second() const {
  if (!trace_file_ && !access_file_) {
    return {};
  }
  return [trace = trace_file_.get(), access = access_file_.get(), of_trace = Told(),
          of_access = Told()]() mutable {
    tell(trace, of_trace);
    tell(access, of_access);
  };
}

Watchers::~Watchers() = default;

std::vector<fuse::EventSink*> Watchers::sinks() const {
  std::vector<fuse::EventSink*> all;
  if (trace_) {
    all.push_back(trace_.get());
  }
  if (access_log_) {
    all.push_back(access_log_.get());
  }
  return all;
}

void Watchers::add_status(replies::Status& status) const {
  if (status_) {
    status.status_file = status_->path();
  }
  if (trace_file_) {
    status.trace = figure(*trace_file_);
  }
  if (access_file_) {
    status.access_log = figure(*access_file_);
  }
}

Json figures_of(const fuse::Counters& c) {
  Json operations = Json::object();
  for (std::size_t i = 0; i < fuse::operation_count; ++i) {
    const auto kind = static_cast<fuse::Operation>(i);
    const auto& o = c.of(kind);
    const std::uint64_t count = o.count.load(std::memory_order_relaxed);
    if (count == 0) {
      continue;
    }
    Json histogram = Json::array();
    for (const auto& bucket : o.histogram) {
      histogram.push_back(bucket.load(std::memory_order_relaxed));
    }
    while (!histogram.empty() && histogram.back() == 0) {
      histogram.erase(histogram.size() - 1);
    }
    const double total = static_cast<double>(o.nanoseconds.load(std::memory_order_relaxed)) / 1e9;
    operations[fuse::name_of(kind)] = {
        {"count", count},
        {"errors", o.errors.load(std::memory_order_relaxed)},
        {"seconds", total},
        {"mean_seconds", total / static_cast<double>(count)},
        {"min_seconds", static_cast<double>(o.shortest.load(std::memory_order_relaxed)) / 1e9},
        {"max_seconds", static_cast<double>(o.longest.load(std::memory_order_relaxed)) / 1e9},
        {"histogram_us", histogram}};
  }
  const std::uint64_t opens = c.opens.load(), passthrough = c.passthrough_opens.load();
  return {
      {"requests", c.requests()},
      {"errors", c.errors()},
      {"opens", opens},
      {"passthrough_opens", passthrough},
      {"daemon_opens", opens - std::min(opens, passthrough)},
      {"read_bytes", c.read_bytes.load()},
      {"written_bytes", c.written_bytes.load()},
      {"joined_callers", c.joined_callers.load()},
      {"operations", operations},
      {"note", "requests that reached the daemon; reads and writes of passthrough opens do not"}};
}

replies::Intercept figures_of(const fuse::Door& door) {
  constexpr std::size_t most_shown = 64;
  const fuse::DoorTotals& totals = door.totals();
  replies::Intercept all{.clients_now = door.clients().kept(),
                         .clients = {},
                         .totals = {.clients = totals.clients.load(),
                                    .reads = totals.reads.load(),
                                    .read_bytes = totals.read_bytes.load(),
                                    .writes = totals.writes.load(),
                                    .written_bytes = totals.written_bytes.load(),
                                    .kernel_calls = totals.kernel_calls.load()}};
  for (const auto& client : door.clients().list(most_shown)) {
    const DoorCounts& counts = client.counts;
    all.clients.push_back({.pid = client.pid,
                           .program = client.program,
                           .reads = counts.reads,
                           .read_bytes = counts.read_bytes,
                           .writes = counts.writes,
                           .written_bytes = counts.written_bytes,
                           .kernel_calls = counts.kernel_calls,
                           .mapped_files = counts.mapped_files});
  }
  return all;
}

replies::OpenFiles figures_of(const fs::OpenTable& opens) {
  replies::OpenFiles figures;
  opens.for_each([&](std::uint64_t, const fs::OpenFile& file) {
    ++(file.owner.kind == fs::Owner::Kind::kernel ? figures.kernel : figures.sessions);
  });
  return figures;
}

}  // namespace efs::daemon
