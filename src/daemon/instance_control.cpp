// The control verbs of an instance: status, wait, stop.
#include <unistd.h>

#include <algorithm>

#include "daemon/instance.hpp"

namespace efs::daemon {
namespace {

using control::Json;
constexpr auto progress_interval = std::chrono::milliseconds(250);

}  // namespace

Json Instance::handle(const Json& request, const control::Server::Progress& progress) {
  const auto verb = request.value("verb", "");
  if (verb == "status") return control::result_line(status_now());
  if (verb == "wait") return handle_wait(request.value("starter", false), progress);
  if (verb == "stop") return handle_stop(request, progress);
  return control::error_line({EINVAL, "unknown verb \"" + verb + "\": this daemon knows status, wait and stop"}, 2);
}

// Until the inputs are there, or the reason why not. `starter`: the instance is not wanted without him.
Json Instance::handle_wait(bool starter, const control::Server::Progress& progress) {
  std::unique_lock lock(mutex_);
  while (state_ == State::planning || state_ == State::staging_in) {
    changed_.wait_for(lock, progress_interval);
    lock.unlock();
    if (!progress(progress_now())) {
      if (starter) request_stop({.stage_out = false, .keep = keep_image_, .until = {}});  // ctrl-c, or worse, during `efs start`: nobody wants this instance any more
      return control::error_line({EPIPE, "the asker is gone"});
    }
    lock.lock();
  }
  if (state_ == State::failed) {
    failure_told_ = true;
    changed_.notify_all();
    return start_failure_;
  }
  lock.unlock();
  return control::result_line(status_now());
}

Json Instance::handle_stop(const Json& request, const control::Server::Progress& progress) {
  StopRequest wanted{.stage_out = request.value("stage_out", true), .keep = request.value("keep", false), .until = {}};
  if (const double seconds = request.value("deadline", 0.0); seconds > 0) {
    // The last writes still have to be made durable and named: begin to end before the end.
    const double margin = std::clamp(seconds / 10, std::min(1.0, seconds / 2), 10.0);
    wanted.until = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds - margin));
  }
  std::unique_lock lock(mutex_);
  const std::uint64_t before = stops_done_;
  lock.unlock();
  request_stop(wanted);
  lock.lock();
  while (stops_done_ == before && state_ != State::failed && state_ != State::ended) {
    changed_.wait_for(lock, progress_interval);
    if (stops_done_ != before) break;
    lock.unlock();
    (void)progress(progress_now());  // the stop goes on when the asker is gone
    lock.lock();
  }
  if (stops_done_ != before) {
    Json outcome = last_outcome_;
    if (!request.value("receipt", false)) outcome.erase("receipt");  // megabytes for many files, and it is in its file
    return outcome;
  }
  failure_told_ = true;
  changed_.notify_all();
  return state_ == State::failed ? control::error_line({ECANCELED, "stopped before the inputs were there; nothing is mounted"}) : control::result_line();
}

Json Instance::progress_now() {
  const stage::ProgressSnapshot p = progress_.snapshot();
  std::lock_guard lock(mutex_);
  return {{"state", name_of(state_)}, {"bytes_done", p.bytes_done}, {"bytes_total", p.bytes_total}, {"files_done", p.files_done}, {"files_total", p.files_total},
          {"started", static_cast<double>(p.started) / 1e9}};
}

Json Instance::status_now() {
  Json status = progress_now();
  const auto& config = options_.config;
  status["name"] = config.name;
  status["job_file"] = config.source;
  status["mount"] = config.mount_dir;
  status["results_dir"] = config.results_dir;
  status["directory"] = options_.directory;
  status["log"] = config.log_file.empty() ? options_.directory + "/efsd.log" : config.log_file;
  status["supervisor_pid"] = options_.supervisor;
  status["worker_pid"] = ::getpid();
  status["takeovers"] = 0;
  status["since"] = std::chrono::duration_cast<std::chrono::seconds>(started_.time_since_epoch()).count();
  std::lock_guard lock(mutex_);
  if (!ready_ || !store_.backend) return status;
  const Space space = store_.backend->space();
  status["backend"] = store_.backend->description();
  status["capacity"] = space.capacity;
  status["used"] = space.used;
  status["available"] = space.available;
  const bool passthrough = session_->passthrough();
  status["io"] = passthrough ? "passthrough" : "daemon";
  if (!passthrough)
    status["io_reason"] = options_.daemon_io                          ? "asked for (-o daemon-io)"
                          : !options_.privileged                      ? "not started by root"
                          : !store_.backend->offers_descriptor()      ? "the daemon counts the capacity"
                                                                      : "the kernel or libfuse offers no passthrough";
  const auto& c = session_->counters();
  status["counters"] = {{"requests", c.requests.load()}, {"opens", c.opens.load()}, {"passthrough_opens", c.passthrough_opens.load()}, {"read_bytes", c.read_bytes.load()}, {"written_bytes", c.written_bytes.load()}};
  return status;
}

}  // namespace efs::daemon
