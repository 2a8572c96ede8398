// SPDX-License-Identifier: BSD-3-Clause
#include "control/replies.hpp"

#include "control/fields.hpp"
#include "control/status_reply.hpp"

namespace efs::control::replies {

using fields::Is;
using fields::Reader;
using fields::Writer;

namespace {

/// A reader of these has an error for a line without a valid field.
template <typename Reply>
constexpr bool is_lenient = std::same_as<Reply, Failure> || std::same_as<Reply, TaskStarted> ||
                            std::same_as<Reply, Counted> || std::same_as<Reply, BackgroundInputs>;

void result(bool ok, auto&& see) {
  see.constant("event", "result");
  see.constant("ok", ok);
}

}  // namespace

void fields_of(Is<Failure> auto& it, auto&& see) {
  result(false, see);
  see("code", it.code);
  see("error", it.error);
  see.flag("lines", it.lines);
  see("exit", it.exit);
}

void fields_of(Is<TaskStarted> auto& it, auto&& see) {
  result(true, see);
  see("task", it.task);
}

void fields_of(Is<Counted> auto& it, auto&& see) {
  result(true, see);
  see("count", it.count);
}

void fields_of(Is<BackgroundInputs> auto& it, auto&& see) {
  result(true, see);
  see("left", it.left);
  see("failed", it.failed);
  see("last_error", it.last_error);
}

void fields_of(Is<Turn> auto& it, auto&& see) {
  see("direction", it.direction);
  see("standing", it.standing);
  see("ahead", it.ahead);
  see("since", it.since);
  see("wait_seconds", it.wait_seconds);
  see("reason", it.reason);
}

void fields_of(Is<Loaded> auto& it, auto&& see) {
  see("files", it.files);
  see("already", it.already);
  see("bytes", it.bytes);
  see("seconds", it.seconds);
}

void fields_of(Is<Unloaded> auto& it, auto&& see) {
  see("summary", it.summary);
  see.write_only("receipt", it.receipt);
}

void fields_of(Is<UnmovedFile> auto& it, auto&& see) {
  see("path", it.path);
  see("reason", it.reason);
}

void fields_of(Is<Moved> auto& it, auto&& see) {
  see("moved", it.moved);
  see("moved_bytes", it.moved_bytes);
  see("unchanged", it.unchanged);
  see("stayed", it.stayed);
  see.unless_empty("stayed_first", it.stayed_first);
}

void fields_of(Is<TaskOutcome> auto& it, auto&& see) {
  see.constant("event", "result");
  see("ok", it.ok);
  if (!it.ok) {
    fields_of(it.failure, see);
  }
  see.part("files", it.loaded);
  see.part("summary", it.unloaded);
  see.part("moved", it.moved);
}

void fields_of(Is<Task> auto& it, auto&& see) {
  see("task", it.task);
  see("kind", it.kind);
  see("what", it.what);
  see("task_state", it.task_state);
  see("bytes_done", it.bytes_done);
  see("bytes_total", it.bytes_total);
  see("files_done", it.files_done);
  see("files_total", it.files_total);
  see("started", it.started);
  see("turn", it.turn);
  see("state", it.state);
  see("outcome", it.outcome);
}

void fields_of(Is<Stopped> auto& it, auto&& see) {
  result(true, see);
  see("staged_out", it.staged_out);
  see("exit", it.exit);
  see("time_was_up", it.time_was_up);
  see("conflicts", it.conflicts);
  see("replaced", it.replaced);
  see("unreadable", it.unreadable);
  see("summary", it.summary);
  see("error", it.error);
  see("receipt_file", it.receipt_file);
  see("report_file", it.report_file);
  see("unmatched", it.unmatched);
  see("image", it.image);
  see("all_back", it.all_back);
  see.flag("kept", it.kept);
  see.flag("lingers", it.lingers);
}

void fields_of(Is<StopFailed> auto& it, auto&& see) {
  fields_of(it.failure, see);
  see("summary", it.summary);
  see.flag("ended", it.ended);
}

// status_reply.hpp

void fields_of(Is<Progress> auto& it, auto&& see) {
  see("state", it.state);
  see("bytes_done", it.bytes_done);
  see("bytes_total", it.bytes_total);
  see("files_done", it.files_done);
  see("files_total", it.files_total);
  see("started", it.started);
  see("note", it.note);
  see("turn", it.turn);
  see("eta_seconds", it.eta_seconds);
}

void fields_of(Is<Identity> auto& it, auto&& see) {
  see("name", it.name);
  see("job_file", it.job_file);
  see("start_options", it.start_options);
  see("mount", it.mount);
  see("root_dir", it.root_dir);
  see("results_dir", it.results_dir);
  see("directory", it.directory);
  see("log", it.log);
  see("supervisor_pid", it.supervisor_pid);
  see("worker_pid", it.worker_pid);
  see("takeovers", it.takeovers);
  see("protocol", it.protocol);
  see("since", it.since);
}

void fields_of(Is<SkippedInput> auto& it, auto&& see) {
  see("path", it.path);
  see("reason", it.reason);
  see("vanished", it.vanished);
}

void fields_of(Is<StagedIn> auto& it, auto&& see) {
  see("files", it.files);
  see("bytes", it.bytes);
  see("bytes_read", it.bytes_read);
  see("files_reused", it.files_reused);
  see("bytes_reused", it.bytes_reused);
  see("files_away", it.files_away);
  see("skipped", it.skipped);
  see("skipped_first", it.skipped_first);
}

void fields_of(Is<Recording> auto& it, auto&& see) {
  see("file", it.file);
  see("error", it.error);
  see("lost_lines", it.lost_lines);
}

void fields_of(Is<OpenFiles> auto& it, auto&& see) {
  see("kernel", it.kernel);
  see("sessions", it.sessions);
}

void fields_of(Is<BackendFigures> auto& it, auto&& see) {
  see("id", it.id);
  see("description", it.description);
  see("capacity", it.capacity);
  see("used", it.used);
  see("available", it.available);
  see("durability", it.durability);
  see("journal", it.journal);
  see("new_files", it.new_files);
  see("io", it.io);
}

void fields_of(Is<Store> auto& it, auto&& see) {
  see("backend", it.backend);
  see("capacity", it.capacity);
  see("used", it.used);
  see("available", it.available);
  see("durability", it.durability);
  see("read_only", it.read_only);
  see("open_files", it.open_files);
  see.unless_empty("backends", it.backends);
}

void fields_of(Is<Limits> auto& it, auto&& see) {
  see("read", it.read);
  see("write", it.write);
  see("ops", it.ops);
  see("delayed", it.delayed);
}

void fields_of(Is<LimitsSet> auto& it, auto&& see) {
  result(true, see);
  see("limits", it.limits);
}

void fields_of(Is<InterceptClient> auto& it, auto&& see) {
  see("pid", it.pid);
  see("program", it.program);
  see("reads", it.reads);
  see("read_bytes", it.read_bytes);
  see("writes", it.writes);
  see("written_bytes", it.written_bytes);
  see("kernel_calls", it.kernel_calls);
  see("mapped_files", it.mapped_files);
}

void fields_of(Is<InterceptTotals> auto& it, auto&& see) {
  see("clients", it.clients);
  see("reads", it.reads);
  see("read_bytes", it.read_bytes);
  see("writes", it.writes);
  see("written_bytes", it.written_bytes);
  see("kernel_calls", it.kernel_calls);
}

void fields_of(Is<Intercept> auto& it, auto&& see) {
  see("clients_now", it.clients_now);
  see("clients", it.clients);
  see("totals", it.totals);
}

void fields_of(Is<Mount> auto& it, auto&& see) {
  see("io", it.io);
  see("io_reason", it.io_reason);
  see("writeback", it.writeback);
  see("takeover", it.takeover);
  see("takeover_reason", it.takeover_reason);
  see("limits", it.limits);
  see("counters", it.counters);
  see("intercept", it.intercept);
}

void fields_of(Is<Changed> auto& it, auto&& see) {
  see("changed_files", it.changed_files);
  see("changed_bytes", it.changed_bytes);
}

void fields_of(Is<Drain> auto& it, auto&& see) {
  see("drained", it.drained);
  see("drained_bytes", it.drained_bytes);
  see("failures", it.failures);
  see("due", it.due);
  see("last_error", it.last_error);
  see("dropped", it.dropped);
  see("dropped_bytes", it.dropped_bytes);
  see("unsent", it.unsent);
  see("unsent_bytes", it.unsent_bytes);
}

void fields_of(Is<Fetch> auto& it, auto&& see) {
  see("fetched", it.fetched);
  see("fetched_bytes", it.fetched_bytes);
  see("failures", it.failures);
  see("remote", it.remote);
  see("remote_bytes", it.remote_bytes);
  see("running", it.running);
  see("waiting", it.waiting);
  see("last_error", it.last_error);
}

void fields_of(Is<Evict> auto& it, auto&& see) {
  see("evicted", it.evicted);
  see("evicted_bytes", it.evicted_bytes);
  see("last_error", it.last_error);
}

void fields_of(Is<TierFigures> auto& it, auto&& see) {
  see("id", it.id);
  see("capacity", it.capacity);
  see("used", it.used);
  see("moved_in", it.moved_in);
  see("moved_in_bytes", it.moved_in_bytes);
  see("moved_out", it.moved_out);
  see("moved_out_bytes", it.moved_out_bytes);
  see("last_error", it.last_error);
}

void fields_of(Is<Status> auto& it, auto&& see) {
  result(true, see);
  fields_of(it.progress, see);
  fields_of(it.job, see);
  see("tasks", it.tasks);
  see("error", it.error);
  see.flag("given_up", it.given_up);
  see("staged_in", it.staged_in);
  see("status_file", it.status_file);
  see("trace", it.trace);
  see("access_log", it.access_log);
  see("lost_before", it.lost_before);
  see.part("capacity", it.store);
  see.part("io", it.mount);
  see("drain", it.drain);
  see("fetch", it.fetch);
  see("evict", it.evict);
  see.unless_empty("tiers", it.tiers);
  see.part("changed_files", it.changed);
}

void fields_of(Is<LeftStore> auto& it, auto&& see) {
  see("left", it.left);
  see("store", it.store);
  see("job_file", it.job_file);
  see("start_options", it.start_options);
  see("restarted", it.restarted);
}

void fields_of(Is<Remains> auto& it, auto&& see) {
  see("name", it.name);
  see("directory", it.directory);
  see("state", it.state);
  see("error", it.error);
  see("damaged", it.damaged);
  see.part("left", it.left_store);
  see.flag("lost", it.lost);
}

void fields_of(Is<Unreachable> auto& it, auto&& see) {
  see.constant("state", "unreachable");
  see("name", it.name);
  see("directory", it.directory);
  see("mount", it.mount);
  see("job_file", it.job_file);
  see("error", it.error);
}

Failure failure_of(const Error& error, int exit) {
  return {.code = error.code, .error = describe(error), .lines = error.lines, .exit = exit};
}

TaskOutcome failed_task(const Error& error, int exit) {
  return {.ok = false, .failure = failure_of(error, exit), .loaded = {}, .unloaded = {}};
}

void add_receipt(Json& line, Json receipt) {
  line["receipt"] = std::move(receipt);
}

bool is_success(const Json& line) {
  const auto ok = line.find("ok");
  return ok != line.end() && ok->is_boolean() && ok->get<bool>();
}

template <typename Reply>
Json to_json(const Reply& reply) {
  Json line = Json::object();
  fields_of(reply, Writer(line));
  return line;
}

template <typename Reply>
Reply from_json(const Json& line) {
  Reply reply;
  fields_of(reply, Reader(line, is_lenient<Reply> ? Reader::WrongType::ignored
                                                  : Reader::WrongType::refused));
  return reply;
}

template Json to_json(const Failure&);
template Json to_json(const TaskStarted&);
template Json to_json(const Counted&);
template Json to_json(const BackgroundInputs&);
template Json to_json(const LimitsSet&);
template Json to_json(const Task&);
template Json to_json(const Stopped&);
template Json to_json(const StopFailed&);
template Json to_json(const Progress&);
template Json to_json(const Status&);
template Json to_json(const Remains&);
template Json to_json(const Unreachable&);

template Failure from_json(const Json&);
template TaskStarted from_json(const Json&);
template Counted from_json(const Json&);
template BackgroundInputs from_json(const Json&);
template Task from_json(const Json&);
template Stopped from_json(const Json&);
template StopFailed from_json(const Json&);
template Progress from_json(const Json&);
template Identity from_json(const Json&);
template Status from_json(const Json&);
template LimitsSet from_json(const Json&);
template Remains from_json(const Json&);

}  // namespace efs::control::replies
