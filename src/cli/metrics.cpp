// SPDX-License-Identifier: BSD-3-Clause
// efs metrics: the figures of efs status for a monitoring system. docs/metrics.md lists the
// families.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <set>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/listen_address.hpp"
#include "cli/scrape_request.hpp"
#include "cli/scrape_server.hpp"
#include "stage/export/receipt.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::cli {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

struct Sample {
  std::string suffix;  // "_bucket"
  Labels labels;
  double value = 0;
};

struct FamilyName {
  const char* name;  // without _total
  const char* type;
  const char* unit;  // "": none
  const char* help;
  const char* pointer;  // into the status of an instance; "": collected by a function
};

// The order is that of docs/metrics.md.
constexpr std::array families{
    FamilyName{"efs_up", "gauge", "", "Whether the daemon of the instance answers.", ""},
    FamilyName{"efs_instance_info", "gauge", "", "1, with facts about the instance as labels.", ""},
    FamilyName{"efs_state", "gauge", "", "1 for the present state of the instance.", ""},
    FamilyName{"efs_start_time_seconds", "gauge", "seconds",
               "Start of the instance, in seconds since 1970.", "/since"},
    FamilyName{"efs_capacity_bytes", "gauge", "bytes", "Capacity of the buffer.", "/capacity"},
    FamilyName{"efs_used_bytes", "gauge", "bytes", "Space in use in the buffer.", "/used"},
    FamilyName{"efs_available_bytes", "gauge", "bytes", "Space that new data can take.",
               "/available"},
    FamilyName{"efs_backend_info", "gauge", "",
               "1, with the durability class of one of several backends as a label.", ""},
    FamilyName{"efs_backend_capacity_bytes", "gauge", "bytes",
               "Capacity of one of several backends.", ""},
    FamilyName{"efs_backend_used_bytes", "gauge", "bytes", "Space in use in a backend.", ""},
    FamilyName{"efs_backend_available_bytes", "gauge", "bytes",
               "Space that new data can take in a backend.", ""},
    FamilyName{"efs_passthrough", "gauge", "",
               "Whether the kernel reads and writes the data itself.", ""},
    FamilyName{"efs_read_only", "gauge", "", "Whether the store has failed.", "/read_only"},
    FamilyName{"efs_writeback", "gauge", "", "Whether the kernel collects writes.", "/writeback"},
    FamilyName{"efs_takeovers", "counter", "", "Workers that died and were replaced.",
               "/takeovers"},
    FamilyName{"efs_takeover_possible", "gauge", "", "Whether a dead worker can be replaced.",
               "/takeover"},
    FamilyName{"efs_request_duration_seconds", "histogram", "seconds",
               "Times of the requests that reached the daemon, by operation.", ""},
    FamilyName{"efs_request_errors", "counter", "", "Requests that failed, by operation.", ""},
    FamilyName{"efs_request_longest_seconds", "gauge", "seconds",
               "The longest request, by operation.", ""},
    FamilyName{"efs_request_shortest_seconds", "gauge", "seconds",
               "The shortest request, by operation.", ""},
    FamilyName{"efs_opens", "counter", "", "Opens of files, by the path of their I/O.", ""},
    FamilyName{"efs_open_files", "gauge", "", "Files that are open now, by their owner.", ""},
    FamilyName{"efs_joined_callers", "counter", "",
               "How often the daemon began to serve on the CPU of a bound caller.",
               "/counters/joined_callers"},
    FamilyName{"efs_limit_read", "gauge", "", "Bytes that programs may read per second; 0: all.",
               "/limits/read"},
    FamilyName{"efs_limit_write", "gauge", "", "Bytes that programs may write per second; 0: all.",
               "/limits/write"},
    FamilyName{"efs_limit_operations", "gauge", "",
               "Requests that may be served per second; 0: all.", "/limits/ops"},
    FamilyName{"efs_delayed_requests", "counter", "", "Requests that waited for a limit.",
               "/limits/delayed"},
    FamilyName{"efs_read_bytes", "counter", "bytes",
               "Bytes that the daemon read for programs; passthrough reads are not counted.",
               "/counters/read_bytes"},
    FamilyName{"efs_written_bytes", "counter", "bytes",
               "Bytes that the daemon wrote for programs; passthrough writes are not counted.",
               "/counters/written_bytes"},
    FamilyName{"efs_intercept_clients", "gauge", "", "Programs that intercept now.",
               "/intercept/clients_now"},
    FamilyName{"efs_intercept_programs", "counter", "", "Programs that have intercepted so far.",
               "/intercept/totals/clients"},
    FamilyName{"efs_intercept_reads", "counter", "",
               "Reads that programs served themselves (interception).", "/intercept/totals/reads"},
    FamilyName{"efs_intercept_read_bytes", "counter", "bytes", "Bytes of these reads.",
               "/intercept/totals/read_bytes"},
    FamilyName{"efs_intercept_writes", "counter", "",
               "Writes that programs served themselves (interception).",
               "/intercept/totals/writes"},
    FamilyName{"efs_intercept_written_bytes", "counter", "bytes", "Bytes of these writes.",
               "/intercept/totals/written_bytes"},
    FamilyName{"efs_intercept_kernel_calls", "counter", "",
               "Calls that these programs left to the kernel.", "/intercept/totals/kernel_calls"},
    FamilyName{"efs_transfer_done_bytes", "gauge", "bytes",
               "Bytes of the current or last stage-in or stage-out that are copied.",
               "/bytes_done"},
    FamilyName{"efs_transfer_planned_bytes", "gauge", "bytes",
               "All bytes of that stage-in or stage-out.", "/bytes_total"},
    FamilyName{"efs_transfer_done_files", "gauge", "", "Files of it that are copied.",
               "/files_done"},
    FamilyName{"efs_transfer_planned_files", "gauge", "", "All files of it.", "/files_total"},
    FamilyName{"efs_transfer_left_seconds", "gauge", "seconds",
               "Estimate of the time that it needs.", "/eta_seconds"},
    FamilyName{"efs_transfer_start_time_seconds", "gauge", "seconds",
               "Its start, in seconds since 1970.", "/started"},
    FamilyName{"efs_turn_waiting", "gauge", "", "Whether the instance waits for a turn at the PFS.",
               ""},
    FamilyName{"efs_turn_ahead", "gauge", "", "Jobs that have a turn or wait before it.",
               "/turn/ahead"},
    FamilyName{"efs_staged_in_files", "gauge", "", "Inputs that were staged in.",
               "/staged_in/files"},
    FamilyName{"efs_staged_in_bytes", "gauge", "bytes", "Bytes of these inputs.",
               "/staged_in/bytes"},
    FamilyName{"efs_staged_in_reused_files", "gauge", "",
               "Inputs that came from the cache of the node.", "/staged_in/files_reused"},
    FamilyName{"efs_staged_in_reused_bytes", "gauge", "bytes", "Bytes of these inputs.",
               "/staged_in/bytes_reused"},
    FamilyName{"efs_staged_in_read_bytes", "gauge", "bytes", "Bytes that were read from the PFS.",
               "/staged_in/bytes_read"},
    FamilyName{"efs_staged_in_away_files", "gauge", "", "Inputs that stayed removed.",
               "/staged_in/files_away"},
    FamilyName{"efs_staged_in_skipped_files", "gauge", "", "Inputs that were skipped.",
               "/staged_in/skipped"},
    FamilyName{"efs_changed_files", "gauge", "", "Files that a stop would export (--changed).",
               "/changed_files"},
    FamilyName{"efs_changed_bytes", "gauge", "bytes", "Bytes of these files (--changed).",
               "/changed_bytes"},
    FamilyName{"efs_drained_files", "counter", "",
               "Results that went home while the job ran, once for each time.", "/drain/drained"},
    FamilyName{"efs_drained_bytes", "counter", "bytes", "Bytes of these results.",
               "/drain/drained_bytes"},
    FamilyName{"efs_drain_failures", "counter", "", "Results that could not go, at each attempt.",
               "/drain/failures"},
    FamilyName{"efs_drain_dropped_files", "counter", "",
               "Files of old versions that were dropped from the buffer (key keep).",
               "/drain/dropped"},
    FamilyName{"efs_drain_dropped_bytes", "counter", "bytes", "Bytes of these files.",
               "/drain/dropped_bytes"},
    FamilyName{"efs_drain_unsent_files", "counter", "",
               "Files of old versions that were dropped and never sent (key to-pfs).",
               "/drain/unsent"},
    FamilyName{"efs_drain_unsent_bytes", "counter", "bytes", "Bytes of these files.",
               "/drain/unsent_bytes"},
    FamilyName{"efs_drain_due_files", "gauge", "", "Results with drain that are not home.",
               "/drain/due"},
    FamilyName{"efs_fetched_files", "counter", "", "Inputs that were fetched while the job ran.",
               "/fetch/fetched"},
    FamilyName{"efs_fetched_bytes", "counter", "bytes", "Bytes of these inputs.",
               "/fetch/fetched_bytes"},
    FamilyName{"efs_fetch_failures", "counter", "", "Fetches that failed.", "/fetch/failures"},
    FamilyName{"efs_remote_files", "gauge", "", "Inputs whose contents are not here.",
               "/fetch/remote"},
    FamilyName{"efs_remote_bytes", "gauge", "bytes", "Bytes of these inputs.",
               "/fetch/remote_bytes"},
    FamilyName{"efs_fetch_running", "gauge", "", "Inputs that are being fetched.",
               "/fetch/running"},
    FamilyName{"efs_fetch_waiting", "gauge", "", "Operations of programs that wait for an input.",
               "/fetch/waiting"},
    FamilyName{"efs_evicted_files", "counter", "", "Contents that left the full buffer.",
               "/evict/evicted"},
    FamilyName{"efs_evicted_bytes", "counter", "bytes", "Bytes of these contents.",
               "/evict/evicted_bytes"},
    FamilyName{"efs_tier_used_bytes", "gauge", "bytes", "Bytes in use in a tier.", ""},
    FamilyName{"efs_tier_moved_in_files", "counter", "",
               "Contents that moved into a tier by themselves.", ""},
    FamilyName{"efs_tier_moved_in_bytes", "counter", "bytes", "Bytes of these contents.", ""},
    FamilyName{"efs_tier_moved_out_files", "counter", "",
               "Contents that moved out of a tier by themselves.", ""},
    FamilyName{"efs_tier_moved_out_bytes", "counter", "bytes", "Bytes of these contents.", ""},
    FamilyName{"efs_tasks", "gauge", "", "Loads, unloads, fetches and moves, by kind and state.",
               ""}};

// The daemon has one more, without a bound, and leaves out those at the end that are empty.
constexpr std::size_t bounded_buckets = 23;

class Metrics {
 public:
  void add(std::string_view name, Labels labels, double value, std::string suffix = {}) {
    const auto found = std::ranges::find(families, name, &FamilyName::name);
    samples_.at(static_cast<std::size_t>(found - families.begin()))
        .push_back({.suffix = std::move(suffix), .labels = std::move(labels), .value = value});
  }

  std::string text(ScrapeFormat format) const;
  Json json() const;

 private:
  std::array<std::vector<Sample>, families.size()> samples_;
};

std::string number_text(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

// A label's value is UTF-8; a backslash, a quotation mark and a newline are escaped.
std::string label_text(const std::string& value) {
  std::string text;
  for (const char c : escaped(value)) {
    text += c == '\\' || c == '"' ? std::string{'\\', c} : std::string{c};
  }
  return text;
}

std::string sample_text(const std::string& name, const Sample& sample) {
  std::string text = name + sample.suffix + "{";
  for (const auto& [label, value] : sample.labels) {
    text += (text.back() == '{' ? "" : ",") + label + "=\"" + label_text(value) + "\"";
  }
  return text + "} " + number_text(sample.value) + "\n";
}

bool is_counter(const FamilyName& family) {
  return std::string_view(family.type) == "counter";
}

// The older format has no UNIT, and families a counter with its _total.
std::string Metrics::text(ScrapeFormat format) const {
  std::string text;
  for (std::size_t i = 0; i < families.size(); ++i) {
    const FamilyName& family = families.at(i);
    const std::string total = is_counter(family) ? "_total" : "";
    const std::string name = family.name + (format == ScrapeFormat::text ? total : std::string());
    text += "# HELP " + name + " " + family.help + "\n# TYPE " + name + " " + family.type + "\n";
    if (format == ScrapeFormat::openmetrics && family.unit[0] != '\0') {
      text += "# UNIT " + name + " " + family.unit + "\n";
    }
    for (const auto& sample : samples_.at(i)) {
      text += sample_text(family.name + total, sample);
    }
  }
  return format == ScrapeFormat::openmetrics ? text + "# EOF\n" : text;
}

Json Metrics::json() const {
  Json all = Json::array();
  for (std::size_t i = 0; i < families.size(); ++i) {
    const FamilyName& family = families.at(i);
    Json samples = Json::array();
    for (const auto& sample : samples_.at(i)) {
      Json labels = Json::object();
      for (const auto& [label, value] : sample.labels) {
        labels[label] = value;
      }
      samples.push_back(
          {{"suffix", sample.suffix}, {"labels", std::move(labels)}, {"value", sample.value}});
    }
    all.push_back({{"name", family.name},
                   {"type", family.type},
                   {"unit", family.unit},
                   {"help", family.help},
                   {"samples", std::move(samples)}});
  }
  return all;
}

/// The status of one instance, and where its figures go.
class Collector {
 public:
  Collector(const Json& status, Metrics& metrics, std::string instance)
      : status_(status),
        typed_(control::replies::from_json<control::replies::Status>(status)),
        metrics_(metrics),
        instance_(std::move(instance)) {}

  void collect() {
    collect_state();
    for (const auto& family : families) {
      if (family.pointer[0] != '\0') {
        add_number(family);
      }
    }
    collect_backends();
    collect_tiers();
    collect_requests();
    collect_tasks();
  }

 private:
  Labels labels(Labels more = {}) const {
    more.emplace(more.begin(), "instance", instance_);
    return more;
  }

  void add_number(const FamilyName& family) {
    const Json::json_pointer pointer(family.pointer);
    if (!status_.contains(pointer)) {
      return;
    }
    const Json& value = status_.at(pointer);
    if (value.is_boolean()) {
      metrics_.add(family.name, labels(), value.get<bool>() ? 1 : 0);
    } else if (value.is_number()) {
      metrics_.add(family.name, labels(), value.get<double>());
    }
  }

  void collect_state() {
    const std::string& state = typed_.progress.state;
    const bool is_up = typed_.job.worker_pid != 0;
    metrics_.add("efs_up", labels(), is_up ? 1 : 0);
    metrics_.add("efs_state", labels({{"state", state.empty() ? "?" : state}}), 1);
    if (!is_up) {
      return;
    }
    metrics_.add("efs_instance_info",
                 labels({{"mount", typed_.job.mount},
                         {"backend", typed_.store ? typed_.store->backend : ""},
                         {"durability", typed_.store ? typed_.store->durability : ""},
                         {"version", EFS_VERSION}}),
                 1);
    if (typed_.mount) {
      metrics_.add("efs_passthrough", labels(), typed_.mount->io == "passthrough" ? 1 : 0);
    }
    const auto& turn = typed_.progress.turn;
    metrics_.add("efs_turn_waiting", labels(), turn && turn->standing == "waiting" ? 1 : 0);
  }

  void collect_backends() {
    std::set<std::string> seen;  // a series that is there twice would cost the whole scrape
    const auto store = typed_.store.value_or(control::replies::Store{});
    for (const auto& one : store.backends) {
      if (!seen.insert(one.id).second) {
        continue;
      }
      const auto add = [&](const char* name, std::uint64_t bytes) {
        metrics_.add(name, labels({{"backend", one.id}}), static_cast<double>(bytes));
      };
      metrics_.add("efs_backend_info",
                   labels({{"backend", one.id}, {"durability", one.durability}}), 1);
      add("efs_backend_capacity_bytes", one.capacity);
      add("efs_backend_used_bytes", one.used);
      add("efs_backend_available_bytes", one.available);
    }
  }

  void collect_tiers() {
    std::set<std::string> seen;
    for (const auto& one : typed_.tiers) {
      if (!seen.insert(one.id).second) {
        continue;
      }
      const auto add = [&](const char* name, std::uint64_t value) {
        metrics_.add(name, labels({{"backend", one.id}}), static_cast<double>(value));
      };
      add("efs_tier_used_bytes", one.used);
      add("efs_tier_moved_in_files", one.moved_in);
      add("efs_tier_moved_in_bytes", one.moved_in_bytes);
      add("efs_tier_moved_out_files", one.moved_out);
      add("efs_tier_moved_out_bytes", one.moved_out_bytes);
    }
  }

  void collect_requests() {
    const Json counters = typed_.mount ? typed_.mount->counters : Json();
    if (counters.empty()) {
      return;
    }
    const Json operations = counters.value("operations", Json::object());
    for (const auto& [operation, figures] : operations.items()) {
      add_operation(operation, figures);
    }
    metrics_.add("efs_opens", labels({{"path", "passthrough"}}),
                 counters.value("passthrough_opens", 0.0));
    metrics_.add("efs_opens", labels({{"path", "daemon"}}), counters.value("daemon_opens", 0.0));
    metrics_.add("efs_open_files", labels({{"owner", "kernel"}}),
                 status_.value(Json::json_pointer("/open_files/kernel"), 0.0));
    metrics_.add("efs_open_files", labels({{"owner", "session"}}),
                 status_.value(Json::json_pointer("/open_files/sessions"), 0.0));
  }

  void add_operation(const std::string& operation, const Json& figures) {
    const auto of_operation = labels({{"operation", operation}});
    metrics_.add("efs_request_errors", of_operation, figures.value("errors", 0.0));
    metrics_.add("efs_request_longest_seconds", of_operation, figures.value("max_seconds", 0.0));
    metrics_.add("efs_request_shortest_seconds", of_operation, figures.value("min_seconds", 0.0));
    // The counters are read one by one while requests end: the histogram alone decides the count.
    double count = 0, bound = 1e-6;
    const auto histogram = figures.value("histogram_us", std::vector<std::uint64_t>{});
    for (std::size_t i = 0; i < bounded_buckets; ++i, bound *= 2) {
      count += i < histogram.size() ? static_cast<double>(histogram[i]) : 0;
      add_bucket(operation, number_text(bound), count);
    }
    if (histogram.size() > bounded_buckets) {
      count += static_cast<double>(histogram.back());
    }
    add_bucket(operation, "+Inf", count);
    metrics_.add("efs_request_duration_seconds", of_operation, figures.value("seconds", 0.0),
                 "_sum");
    metrics_.add("efs_request_duration_seconds", of_operation, count, "_count");
  }

  void add_bucket(const std::string& operation, const std::string& bound, double count) {
    metrics_.add("efs_request_duration_seconds", labels({{"operation", operation}, {"le", bound}}),
                 count, "_bucket");
  }

  void collect_tasks() {
    std::map<std::pair<std::string, std::string>, double> counts;
    for (const auto& task : typed_.tasks) {
      ++counts[{task.kind, task.task_state}];
    }
    for (const auto& [what, count] : counts) {
      metrics_.add("efs_tasks", labels({{"kind", what.first}, {"state", what.second}}), count);
    }
  }

  const Json& status_;  // for figures that have a pointer
  const control::replies::Status typed_;
  Metrics& metrics_;
  const std::string instance_;
};

Result<std::vector<control::Instance>> measured(const std::string& which) {
  if (which.empty()) {
    return control::list_instances();
  }
  auto instance = find_instance(which);
  return instance ? Result<std::vector<control::Instance>>({*instance})
                  : std::unexpected(instance.error());
}

/// The instances that did not answer lately. A listener does not ask them again at each scrape,
/// because each question takes seconds.
class SilentInstances {
 public:
  using Clock = std::chrono::steady_clock;

  /// Returns the instance's answer, or what is known of it. `patience`: of the question, in
  /// seconds.
  Json ask(const control::Instance& instance, bool changed, int patience) {
    const Key key{instance.directory, instance.state};  // a later start is another instance
    if (const auto found = all_.find(key);
        found != all_.end() && Clock::now() < found->second.until) {
      return found->second.status;
    }
    Json status = status_of(instance, changed, patience);
    if (status.value("state", "") == "silent") {
      all_[key] = {.status = status, .until = Clock::now() + pause};
    } else {
      all_.erase(key);
    }
    return status;
  }

 private:
  static constexpr auto pause = std::chrono::seconds(30);

  struct Silent {
    Json status;
    Clock::time_point until;
  };

  using Key = std::pair<std::string, std::string>;

  std::map<Key, Silent> all_;
};

// The instance answers, and its user controls it: an answer that makes no sense costs only itself.
void collect(World& world, const control::Instance& instance, const std::function<Json()>& ask,
             Metrics& metrics) {
  try {
    const Json status = ask();
    Collector(status, metrics, instance.name).collect();
  } catch (const std::exception& problem) {
    world.err << "efs: warning: no figures of " << printable(instance.name) << ": "
              << problem.what() << "\n";
  }
}

Result<Metrics> collect_all(World& world, const MetricsArguments& arguments,
                            SilentInstances& silent) {
  const auto instances = measured(arguments.which);
  if (!instances) {
    return std::unexpected(instances.error());
  }
  // Monitoring systems wait for ten seconds. Daemons that do not answer use up the time: those
  // that follow get a second each.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(soon);
  Metrics metrics;
  for (const auto& instance : *instances) {
    const bool is_late = std::chrono::steady_clock::now() >= end;
    const auto ask = [&] {
      return silent.ask(instance, arguments.changed, is_late ? 1 : soon);
    };
    collect(world, instance, ask, metrics);
  }
  return metrics;
}

int listen(World& world, const MetricsArguments& arguments) {
  const auto address = parse_listen_address(arguments.listen);
  if (!address) {
    return report(world, address.error(), exit_usage);
  }
  SilentInstances silent;
  return serve_metrics(world, *address, [&]() -> Result<ScrapeBodies> {
    const auto metrics = collect_all(world, arguments, silent);
    if (!metrics) {
      return std::unexpected(metrics.error());
    }
    return ScrapeBodies{.openmetrics = metrics->text(ScrapeFormat::openmetrics),
                        .text = metrics->text(ScrapeFormat::text)};
  });
}

}  // namespace

int metrics(World& world, const MetricsArguments& arguments) {
  constexpr mode_t readable = 0644;  // the monitoring system has another user
  if (!arguments.listen.empty()) {
    return listen(world, arguments);
  }
  SilentInstances silent;
  const auto metrics = collect_all(world, arguments, silent);
  if (!metrics) {
    return report(world, metrics.error());
  }
  if (!arguments.textfile.empty()) {
    const Status written = stage::write_beside_results(
        metrics->text(ScrapeFormat::text), arguments.textfile, readable, stage::posix_pfs());
    if (!written) {
      return report(world,
                    {written.error().code, arguments.textfile + ": " + describe(written.error())});
    }
  }
  if (world.json) {
    print_document(world, {{"ok", true}, {"exit", exit_good}, {"metrics", metrics->json()}});
  } else if (arguments.textfile.empty()) {
    world.out << metrics->text(ScrapeFormat::openmetrics);
  }
  return exit_good;
}

}  // namespace efs::cli
