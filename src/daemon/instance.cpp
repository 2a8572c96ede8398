// SPDX-License-Identifier: BSD-3-Clause
// The begin of an instance, by a start or by a takeover, and the end of the process.
#include "daemon/instance.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/memory.hpp"

namespace efs::daemon {

using control::Json;

namespace {

// The time for a fetch to end that a stop has cancelled.
constexpr auto patience_with_fetches = std::chrono::seconds(5);
// Clients that requested a stop from the predecessor repeat the request within moments.
constexpr auto patience_for_askers = std::chrono::seconds(10);
// The time for the starter to read the reason of a failure.
constexpr auto patience_with_starter = std::chrono::seconds(10);

JobStoreOptions store_options(const InstanceOptions& options) {
  return {.directory = options.directory,
          .privileged = options.mount.privileged,
          .takeover = options.takeovers > 0,
          .mount_flags = options.mount.flags,
          .root_mode = options.root_mode,
          .door = options.mount.door,
          .opens = options.opens};
}

}  // namespace

Instance::Instance(InstanceOptions options, SupervisorClient& supervisor, SlotClient& turns)
    : options_(std::move(options)),
      supervisor_(supervisor),
      turns_(turns),
      facts_{.config = options_.config,
             .directory = options_.directory,
             .supervisor = options_.supervisor,
             .takeovers = options_.takeovers},
      store_(options_.config, store_options(options_), supervisor),
      watchers_(options_.config, options_.directory, [this] { return status_->status_file(); }),
      contents_({.config = options_.config,
                 .transfers = transfers_,
                 .turns = turns,
                 .figures = options_.mount.figures}),
      mount_(options_.config, options_.mount, supervisor, stops_),
      transfers_({.config = options_.config,
                  .directory = options_.directory,
                  .store = store_,
                  .turns = turns,
                  .progress = progress_,
                  .figures = options_.mount.figures}),
      tasks_(stops_),
      stops_({.successor = facts_.is_successor(), .usual_deadline = options_.config.deadline},
             deadline_, progress_),
      deadline_(timers_,
                {.cut_export = [this] { progress_.time_is_up = true, progress_.cancel = true; },
                 .leave = [this] { leave_without_pfs(); },
                 .give_up =
                     [this] {
                       give_up_without_pfs();
                     }}) {}

// Destroy the server first: its destructor waits for its requests, which use the other members.
// After an exception in run() these requests must not wait for an end that never comes.
Instance::~Instance() {
  (void)stops_.enter(Event::destroyed);
  server_.reset();
  contents_.end_draining();
  (void)contents_.end_reading(Clock::time_point::max());
}

Status Instance::listen() {
  const bool drains = config::drains_results(options_.config);
  EFS_TRY(tasks_.open(options_.directory + "/tasks", facts_.is_successor(), drains));
  recorder_ = std::make_unique<JobRecorder>(JobRecorder::Parts{.facts = facts_,
                                                               .store = store_,
                                                               .mount = mount_,
                                                               .transfers = transfers_,
                                                               .tasks = tasks_.get(),
                                                               .progress = progress_,
                                                               .figures = options_.mount.figures});
  contents_.open(tasks_.get());
  std::vector<StatusSource*> sources{&transfers_, &watchers_, &store_, &mount_};
  std::ranges::copy(contents_.sources(), std::back_inserter(sources));
  status_ = std::make_unique<JobStatus>(JobStatus::Parts{.facts = facts_,
                                                         .stops = stops_,
                                                         .start = start_outcome_,
                                                         .progress = progress_,
                                                         .turns = turns_,
                                                         .tasks = tasks_.get(),
                                                         .buffer = store_,
                                                         .mount = mount_,
                                                         .sources = std::move(sources)});
  api_ = std::make_unique<ControlApi>(ControlApi::Parts{.facts = facts_,
                                                        .stops = stops_,
                                                        .start = start_outcome_,
                                                        .tasks = tasks_.get(),
                                                        .status = *status_,
                                                        .buffer = store_,
                                                        .transfers = transfers_,
                                                        .fetches = contents_.fetches(),
                                                        .mount = mount_});
  auto server = control::Server::listen(
      options_.directory + "/control.sock", options_.owner,
      [this](const Json& request, const control::Server::Progress& progress) {
        return api_->handle(request, progress);
      });
  if (!server) {
    return std::unexpected(server.error());
  }
  server_ = std::move(*server);
  return {};
}

int Instance::run() {
  note(Moment::begun);
  if (const auto noted = facts_.is_successor() ? noted_end() : std::nullopt) {
    // A worker records the end only after the unmount. If the filesystem is still mounted, another
    // process wrote the record: ignore it and remove nothing.
    if (const auto connection = supervisor_.resume();
        !connection && connection.error().code == ENOTCONN) {
      return finish(*noted);
    }
    log::error("event=manifest_contradicted left={} note=\"it is mounted\" action=\"goes on\"",
               image::name_of(noted->left));
    store_.record_end(image::ShutdownState::in_use);
  }
  if (const Status started = begin(); !started) {
    return facts_.is_successor() ? fail_takeover(started.error()) : fail_start(started.error());
  }
  while (!serve_until_stopped()) {
  }
  tear_down();
  close_socket();
  enter(Event::over);
  watchers_.close(0);
  return 0;
}

// Everything stays unchanged: the supervisor decides.
int Instance::fail_takeover(const Error& error) {
  log::error("event=takeover_failed reason=\"{}\"", describe(error));
  start_outcome_.fail(error);
  enter(Event::start_failed);
  watchers_.close(1);
  return 1;
}

int Instance::fail_start(const Error& error) {
  end_start();
  log::error("event=start_failed reason=\"{}\"", describe(error));
  give_back_what_was_kept();
  tear_down();
  start_outcome_.fail(error);
  enter(Event::start_failed);
  // If the starter is gone, the name becomes free at once.
  start_outcome_.await_told(Clock::now() + patience_with_starter);
  watchers_.close(1);
  close_socket();
  return 1;
}

std::optional<image::Manifest> Instance::noted_end() const {
  auto manifest = store_.earlier();
  if (!manifest || manifest->left == image::ShutdownState::in_use) {
    return {};
  }
  return std::move(*manifest);
}

// Completes the end of a predecessor that recorded its end, perhaps reported it, and died while it
// removed or left the store.
int Instance::finish(const image::Manifest& noted) {
  store_.keep(noted.left != image::ShutdownState::over);
  mount_.set_made_point(noted.made_mount_dir);
  log::warn("event=takeover takeovers={} predecessor=\"{}\" note=\"it had ended: its store is {}\"",
            options_.takeovers, options_.predecessor, store_.is_kept() ? "kept" : "removed");
  if (const Status opened = store_.open(); !opened) {
    log::error("event=takeover_failed reason=\"{}\"", describe(opened.error()));
    start_outcome_.fail(opened.error());
    enter(Event::start_failed);
    return 1;
  }
  if (noted.left == image::ShutdownState::unsaved) {
    const std::string text = "not all results are exported: the daemon died. They are in " +
                             store_.path() + "; the receipt lists them";
    Stopped outcome;
    outcome.staged_out = true;
    outcome.exit = 3;
    outcome.image = store_.path();
    outcome.summary = text + "\n";
    outcome.error = text;
    stops_.finish(StopRequest{}, std::move(outcome));
  }
  tear_down();
  close_socket();
  enter(Event::found_ended);
  return 0;
}

Status Instance::begin() {
  try {
    transfers_.inherit(facts_.is_successor());
    return facts_.is_successor() ? take_over() : start();
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  } catch (const std::exception& problem) {
    return fail(EIO, problem.what());
  }
}

Status Instance::start() {
  // A failed start must not remove the store of an earlier instance.
  const auto before = store_.earlier();
  store_.keep_in_any_case(before.has_value() || before.error().code != ENOENT);
  EFS_TRY(watchers_.open());
  if (before) {
    EFS_TRY(store_.check_reach(*before));
    EFS_TRY(mount_.drop_former(*before));
  }
  EFS_TRY(mount_.prepare_point());
  EFS_TRY(store_.open());
  if (before) {
    EFS_TRY(store_.refuse_second(*before));
  }
  store_.keep_in_any_case(store_.is_left());
  EFS_TRY(open_files());
  EFS_TRY(transfers_.import_inputs([this] { enter(Event::planned); }));
  end_start();  // the start makes no more calls to the PFS
  // The plan of a million inputs used this thread's arena. The threads that serve programs have
  // other arenas and would never reuse its memory.
  give_back_freed();
  open_session();
  EFS_TRY(mount_.mount());
  publish();
  note(Moment::running);
  enter(Event::mounted);
  return {};
}

Status Instance::take_over() {
  watchers_.open_later();
  store_.keep(true);  // until a stop decides otherwise
  EFS_TRY(store_.open());
  if (!store_.is_left()) {
    return fail(ENOENT, "the predecessor's store " + store_.path() + " is gone");
  }
  EFS_TRY(open_files());
  auto connection = supervisor_.resume();
  if (!connection && connection.error().code != ENOTCONN) {
    return std::unexpected(connection.error());
  }
  log::warn("event=takeover takeovers={} predecessor=\"{}\" mounted={}", options_.takeovers,
            options_.predecessor, connection.has_value());
  if (connection) {
    store_.correct_manifest();
  }
  open_session();
  if (!connection) {
    store_.files().close_all({.kind = fs::Owner::Kind::kernel});
    stops_.note_unmounted();
    if (!options_.stop_is_unusual) {
      stops_.go_on_alone_at(Clock::now() + patience_for_askers);
    }
    enter(Event::found_unmounted);
    return {};
  }
  const bool doubtful = tasks_.get().lost() != 0 ||
                        config::keeps_versions(options_.config);  // a drop leaves no trace
  transfers_.end_dead_fetches();
  EFS_TRY(mount_.resume(std::move(*connection), doubtful));
  publish();
  enter(Event::resumed);
  return {};
}

Status Instance::open_files() {
  const Status opened = store_.open_files(mount_.made_point());
  // also after a failure: the end of the start removes the directory
  mount_.set_made_point(mount_.made_point() || store_.made_mount_dir());
  EFS_TRY(opened);
  if (store_.is_left() && !facts_.is_successor() && options_.mount.figures != nullptr) {
    options_.mount.figures->history.continued = true;
  }
  return {};
}

void Instance::open_session() {
  mount_.open_session({.open = store_.buffer(),
                       .places = store_.places(),
                       .sinks = watchers_.sinks(),
                       .put_aside = contents_.put_aside()});
  contents_.begin(store_.files());
}

void Instance::publish() {
  store_.publish();
  mount_.publish();
  contents_.go_on(store_.files());
}

// A start on a kept store has failed before a program could change the store. Keeps the store for
// the next start.
void Instance::give_back_what_was_kept(bool in_a_hurry) {
  if (!mount_.has_session()) {
    store_.give_back(in_a_hurry);
  }
}

void Instance::tear_down() {
  mount_.abort();
  contents_.end_draining();
  tasks_.get().close(false);
  mount_.release_point();
  mount_.remove_point();
  // A stop may have left a fetch that hangs.
  if (!contents_.end_reading(Clock::now() + patience_with_fetches)) {
    end_with_fetches();
  }
  store_.close([this] { mount_.close_session(); });
}

void Instance::close_socket() const {
  ::unlink((options_.directory + "/control.sock").c_str());
}

void Instance::enter(Event event) {
  act_on(stops_.enter(event), event);
}

void Instance::act_on(const Step& step, Event event) {
  if (step.shows) {
    watchers_.poke();
  }
  if (step.logs) {
    log::info("event=state state={}", name_of(step.state));
  }
  if (step.kind == Step::Kind::impossible) {
    log::error("event=state_impossible state={} reason={}", name_of(step.state), name_of(event));
  }
}

void Instance::note(Moment moment) {
  if (options_.mount.figures != nullptr) {
    options_.mount.figures->history.note(moment);
  }
}

}  // namespace efs::daemon
