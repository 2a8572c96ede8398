// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/instance.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/log.hpp"
#include "base/with_timeout.hpp"
#include "image/image.hpp"
#include "stage/options.hpp"
#include "stage/pfs/partial_name.hpp"

namespace efs::daemon {

using control::Json;

Instance::Instance(InstanceOptions options, SupervisorClient& supervisor, SlotClient& turns)
    : options_(std::move(options)),
      supervisor_(supervisor),
      turns_(turns),
      limits_(options_.config, options_.figures != nullptr ? &options_.figures->limits : nullptr,
              options_.takeovers > 0),
      throttle_(stage::pace_of(options_.config)),
      stops_({.successor = options_.takeovers > 0, .usual_deadline = options_.config.deadline},
             deadline_, progress_),
      deadline_(timers_,
                {.cut_export = [this] { progress_.time_is_up = true, progress_.cancel = true; },
                 .leave = [this] { leave_without_pfs(); },
                 .give_up =
                     [this] {
                       give_up_without_pfs();
                     }}) {}

// Destroy the server first: its requests use members that are declared after it, and its destructor
// waits for them. After an exception in run() these requests must not wait for an end that never
// comes.
Instance::~Instance() {
  (void)stops_.enter(Event::destroyed);
  server_.reset();
}

stage::Options Instance::stage_options() const {
  return {.workers = options_.config.workers,
          .transfer_size = options_.config.transfer_size,
          .partial_tag = stage::partial_tag_of(store::to_string(store_.instance)),
          .has_a_past = store_.left || may_have_left_partials_,
          .receipt_name = stage::receipt_name(options_.config.name),
          .placed = placed_.get(),
          .opened = opened_.get(),
          .cache = cache_.get()};
}

stage::PacedPfs Instance::paced_pfs(const std::atomic<bool>& cancel, stage::PfsIo& pfs) {
  return {pfs, stage::pace_of(options_.config), throttle_, cancel};
}

Status Instance::listen() {
  auto tasks = Tasks::open(options_.directory + "/tasks");
  if (!tasks) {
    return std::unexpected(tasks.error());
  }
  tasks_ = std::move(*tasks);
  tasks_->inherit(options_.takeovers > 0);
  unloaded_.inherit(options_.takeovers > 0);
  auto server = control::Server::listen(
      options_.directory + "/control.sock", options_.owner,
      [this](const Json& request, const control::Server::Progress& progress) {
        return handle(request, progress);
      });
  if (!server) {
    return std::unexpected(server.error());
  }
  server_ = std::move(*server);
  return {};
}

int Instance::run() {
  const bool successor = options_.takeovers > 0;
  note(Moment::begun);
  if (const auto noted = successor ? noted_end() : std::nullopt) {
    // A worker records the end only after the unmount. If the filesystem is still mounted, another
    // process wrote the record: ignore it and remove nothing.
    if (const auto connection = supervisor_.resume();
        !connection && connection.error().code == ENOTCONN) {
      return finish(*noted);
    }
    log::error("event=manifest_contradicted left={} note=\"it is mounted\" action=\"goes on\"",
               image::name_of(noted->left));
    record_left(image::ShutdownState::in_use);
  }
  const Status started = begin(successor);
  if (successor && !started) {
    log::error("event=takeover_failed reason=\"{}\"", describe(started.error()));
    fail_with(control::error_line(started.error()));
    close_watchers(1);
    return 1;  // everything stays unchanged: the supervisor decides
  }
  if (!started) {
    end_start();
    log::error("event=start_failed reason=\"{}\"", describe(started.error()));
    give_back_what_was_kept();
    tear_down();
    tell_failure(control::error_line(started.error()));
    close_watchers(1);
    close_socket();
    return 1;
  }
  while (!serve_until_stopped()) {
  }
  tear_down();
  close_socket();
  enter(Event::over);
  close_watchers(0);
  return 0;
}

std::optional<image::Manifest> Instance::noted_end() const {
  const UniqueFd directory(
      ::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  auto manifest = image::read_manifest(directory.get());
  if (!manifest || manifest->left == image::ShutdownState::in_use) {
    return {};
  }
  return std::move(*manifest);
}

// Completes the end of a predecessor that recorded its end, perhaps reported it, and died while it
// removed or left the store.
int Instance::finish(const image::Manifest& noted) {
  keep_image_ = noted.left != image::ShutdownState::over;
  made_mount_point_ = noted.made_mount_dir;
  log::warn("event=takeover takeovers={} predecessor=\"{}\" note=\"it had ended: its store is {}\"",
            options_.takeovers, options_.predecessor, keep_image_ ? "kept" : "removed");
  if (const Status opened = open_store(); !opened) {
    log::error("event=takeover_failed reason=\"{}\"", describe(opened.error()));
    fail_with(control::error_line(opened.error()));
    return 1;
  }
  if (noted.left == image::ShutdownState::unsaved) {
    const std::string text = "not all results are exported: the daemon died. They are in " +
                             store_.path + "; the receipt lists them";
    stops_.finish(StopRequest{}, control::result_line({{"staged_out", true},
                                                       {"exit", 3},
                                                       {"image", store_.path},
                                                       {"summary", text + "\n"},
                                                       {"error", text}}));
  }
  tear_down();
  close_socket();
  enter(Event::found_ended);
  return 0;
}

Status Instance::begin(bool successor) {
  try {
    return successor ? take_over() : start();
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  } catch (const std::exception& problem) {
    return fail(EIO, problem.what());
  }
}

void Instance::fail_with(Json failure) {
  {
    MutexLock lock(mutex_);
    start_failure_ = std::move(failure);
  }
  enter(Event::start_failed);
}

void Instance::tell_failure(Json failure) {
  fail_with(std::move(failure));
  MutexLock lock(mutex_);
  // Waits until the starter has read the reason. If the starter is gone, the name becomes free at
  // once.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!failure_told_ && !starter_is_gone_ && changed_.wait_until(mutex_, end)) {
  }
}

Status Instance::open_watchers() {
  auto watchers =
      Watchers::open(options_.config, options_.directory, [this] { return status_file_now(); });
  if (!watchers) {
    return std::unexpected(watchers.error());
  }
  MutexLock lock(mutex_);
  watchers_ = std::move(*watchers);
  return {};
}

void Instance::open_watchers_later() {
  auto watchers = Watchers::open_later(options_.config, options_.directory,
                                       [this] { return status_file_now(); });
  MutexLock lock(mutex_);
  watchers_ = std::move(watchers);
}

void Instance::tear_down() {
  if (session_thread_.joinable()) {
    // only after a failed start: nothing was written yet, and no program may delay the end
    supervisor_.abort();
    session_thread_.join();
  }
  tasks_->close(false);
  ready_ = false;
  housekeeper_.reset();
  mount_point_.reset();
  remove_mount_point();
  {
    const WriteLock users(files_in_use_);
    MutexLock lock(mutex_);  // no request may read these members while they are destroyed
    session_.reset();
    placed_.reset();
    filesystem_.reset();
    store_.backend.reset();
    store_.metadata.reset();
  }
  supervisor_.keep_store(keep_image_ || store_stays_);
  if (!keep_image_) {
    remove_store(store_);
  }
  // release the lock last: otherwise a start could use the store while it is removed
  store_.lock.reset();
}

std::vector<fuse::EventSink*> Instance::sinks() {
  MutexLock lock(mutex_);
  return watchers_->sinks();
}

// Skips the removal of an empty directory if its file system hangs.
void Instance::remove_mount_point() {
  if (!made_mount_point_) {
    return;
  }
  const auto remove = [path = options_.config.mount_dir] {
    ::rmdir(path.c_str());
  };
  if (!with_timeout(patience_with_trifles, remove)) {
    log::warn("event=mount_point_stays directory={} reason=\"its file system does not answer\"",
              options_.config.mount_dir);
  }
}

// Writes the last document of the status file, which reads the state of the instance. The file may
// be on a hanging file system.
void Instance::close_watchers(int code) {
  const auto in_any_case =
      TimerThread::start(Clock::now() + patience_with_trifles, [code] { ::_exit(code); });
  std::unique_ptr<Watchers> last;
  {
    MutexLock lock(mutex_);
    last.swap(watchers_);
  }
}

void Instance::close_socket() const {
  ::unlink((options_.directory + "/control.sock").c_str());
}

void Instance::enter(Event event) {
  act_on(stops_.enter(event), event);
}

void Instance::act_on(const Step& step, Event event) {
  if (step.shows) {
    MutexLock lock(mutex_);
    if (watchers_) {
      watchers_->poke();
    }
  }
  if (step.logs) {
    log::info("event=state state={}", name_of(step.state));
  }
  if (step.kind == Step::Kind::impossible) {
    log::error("event=state_impossible state={} reason={}", name_of(step.state), name_of(event));
  }
}

}  // namespace efs::daemon
