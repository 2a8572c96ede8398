// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "base/durability.hpp"
#include "base/mounts.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "cli/cli.hpp"
#include "cli/colour.hpp"
#include "cli/doctor.hpp"
#include "cli/screen.hpp"
#include "config/start_command.hpp"
#include "control/asking.hpp"
#include "image/manifest.hpp"

namespace efs::cli {

namespace replies = control::replies;

namespace {

replies::Remains dead(const control::Instance& instance, const std::string& why) {
  return {.name = instance.name, .directory = instance.directory, .state = "dead", .error = why};
}

// The instance is alive, or another command works on its remains, but no process answers.
replies::Remains silent(const control::Instance& instance, const std::string& why) {
  return {.name = instance.name,
          .directory = instance.directory,
          .state = "silent",
          .error = "it does not answer: " + why +
                   ". Its processes may be stopped, or an efs clean may run on it. Its log: " +
                   instance.directory + "/efsd.log"};
}

// Describes how an instance ended that was not kept, and where its data are.
std::string ending_of(image::ShutdownState left, const std::string& store) {
  if (left == image::ShutdownState::unsaved) {
    return "it was stopped, and not all results are exported. They are in " + store;
  }
  if (left == image::ShutdownState::salvaged) {
    return "efs salvage has exported its results; the image " + store + " is left";
  }
  return "its daemon is gone; its buffer may still be below " + store;
}

// The results of judge_own_manifest(); the text of the error follows `damaged_mark`.
constexpr std::string_view salvaged_mark = "s", damaged_mark = "d";

// Reads the store's own manifest, beside `manifest` of its instance.
Result<std::string> judge_own_manifest(const image::Manifest& manifest) {
  const UniqueFd metadata(
      ::open((manifest.store + "/meta").c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const auto own = image::read_manifest(metadata.get());
  if (!own) {
    return own.error().code == EPROTO
               ? std::string(damaged_mark) + manifest.store + "/meta/" + describe(own.error())
               : "";
  }
  return std::string(own->left == image::ShutdownState::salvaged && own->store == manifest.store &&
                             own->life == manifest.life
                         ? salvaged_mark
                         : "");
}

// A salvage records its result only in the store's own manifest; this copies the result to
// `manifest`. If the store's manifest is damaged, no start can continue the store; then this
// returns the error text, otherwise "". Reads with the owner's rights, because the owner may have
// put anything into the store.
std::string look_into_store(const control::Instance& instance, image::Manifest& manifest) {
  constexpr int longest = 2;  // seconds
  if (!answers(manifest.store, longest)) {
    return {};
  }
  const auto found = as_owner(instance.owner, [&] { return judge_own_manifest(manifest); });
  const bool may_be_out = manifest.left == image::ShutdownState::in_use ||
                          manifest.left == image::ShutdownState::unsaved;
  if (found && *found == salvaged_mark && may_be_out) {
    manifest.left = image::ShutdownState::salvaged;
  }
  return found && found->starts_with(damaged_mark) ? found->substr(damaged_mark.size()) : "";
}

replies::Remains what_is_left_of(const control::Instance& instance) {
  auto manifest = manifest_of(instance);
  const std::string damaged = manifest ? look_into_store(instance, *manifest)
                              : manifest.error().code == EPROTO ? describe(manifest.error())
                                                                : "";
  const bool kept = manifest && manifest->left == image::ShutdownState::kept;
  auto remains =
      dead(instance, ending_of(manifest ? manifest->left : image::ShutdownState::in_use,
                               manifest ? manifest->store : instance.directory + "/store"));
  if (kept) {
    remains.state = "kept";
    remains.error.reset();
  }
  if (!damaged.empty()) {
    remains.damaged = damaged;
  }
  if (manifest) {
    remains.left_store = {.left = image::name_of(manifest->left),
                          .store = manifest->store,
                          .job_file = manifest->job_file,
                          .start_options = manifest->start_options,
                          .restarted = manifest->boot_id != image::boot_id()};
  }
  return remains;
}

// Describes a store whose instance directory no longer exists. The store's own manifest is beside
// the journal.
replies::Remains what_is_left_in(const LostStore& store) {
  control::Instance led{.name = std::filesystem::path(store.path).filename().string(),
                        .directory = store.path + (store.first.empty() ? "/meta" : ""),
                        .owner = 0,
                        .alive = false};
  const auto manifest = manifest_of(led);
  if (manifest) {
    led.name = manifest->name;
  }
  auto remains =
      store.first.empty() && manifest
          ? what_is_left_of(led)
          : dead(led, store.first.empty()
                          ? "it cannot be read; see efs check-image " + as_word(store.path)
                          : without_journal(store.first) + "; rm -r " + as_word(store.path));
  remains.directory = store.path;
  remains.lost = true;
  return remains;
}

replies::Unreachable unreachable(const UnreachableInstance& instance) {
  return {.name = instance.name,
          .directory = instance.directory,
          .mount = instance.mount,
          .job_file = instance.job_file,
          .error = text_of(instance)};
}

// Adds the unreachable instances, and removes instances with the same directory from `others`.
void add_unreachable(Json& all, std::vector<control::Instance>& others) {
  for (const auto& instance : unreachable_instances("")) {
    all.push_back(to_json(unreachable(instance)));
    std::erase_if(others, [&](const control::Instance& other) {
      return other.directory == instance.directory;
    });
  }
}

Result<Json> ask_status(const control::Instance& instance, bool changed, int silence) {
  // longer than a successor needs to recover a million files
  constexpr int longest_takeover = 10;
  const std::chrono::seconds no_worker(std::min(silence, longest_takeover));
  return control::ask_until_answered(
      instance, to_json(control::requests::Status{.changed = changed}), silence, {}, no_worker);
}

}  // namespace

namespace {

bool is_salvaged(const replies::Remains& remains) {
  return remains.left_store &&
         remains.left_store->left == image::name_of(image::ShutdownState::salvaged);
}

// Only root can start and remove the instance of a batch job. The user salvages its results.
std::string ways_on_from_job(const replies::Remains& remains) {
  const std::string name = config::instance_argument(remains.name);
  const std::string remove =
      (::geteuid() == 0 ? "remove: efs clean " : "root removes it: efs clean ") + name;
  if (is_salvaged(remains)) {
    return remove;
  }
  if (remains.state == "kept") {
    return "export: efs salvage " + name + " --all --to DIRECTORY; " + remove;
  }
  return "export: efs salvage " + name + (::geteuid() == 0 ? "; " + remove : "");
}

}  // namespace

std::string ways_on_from(const replies::Remains& remains) {
  const std::string name = as_word(remains.lost ? remains.directory : remains.name);
  // A start cannot continue a store whose manifest is damaged.
  if (remains.damaged) {
    return "export: efs salvage --to DIRECTORY " + name + "; discard it: efs clean --force " + name;
  }
  if (!remains.lost && config::is_of_batch_job(remains.name)) {
    return ways_on_from_job(remains);
  }
  const std::string remove = "remove: efs clean " + name,
                    go_on = "continue: " + start_command(remains);
  if (is_salvaged(remains)) {
    return remove + "; " + go_on;
  }
  // a kept instance has no missing results, so a salvage needs --all
  return go_on + "; export: efs salvage " + name +
         (remains.state == "kept" ? " --all --to DIRECTORY; " : "; ") + remove;
}

std::string text_of_away(const replies::StagedIn& in) {
  return in.files_away == 0 ? ""
                            : "; " + std::to_string(in.files_away) +
                                  " that the job removed stay removed, efs load imports them";
}

Json status_of(const control::Instance& instance, bool changed, int silence) {
  if (!instance.alive) {
    return to_json(what_is_left_of(instance));
  }
  auto status = ask_status(instance, changed, silence);
  // on an error the instance may have ended meanwhile
  if (!status) {
    return to_json(control::is_alive(instance.directory)
                       ? silent(instance, describe(status.error()))
                       : what_is_left_of(instance));
  }
  status->erase("event");
  status->erase("ok");
  (*status)["name"] = instance.name;  // the daemon is the user's and may answer with another
  return *status;
}

namespace {

void print_counters(std::ostream& out, const Json& c) {
  const auto number = [&](const char* key) {
    return c.value(key, std::uint64_t{0});
  };
  out << "  requests " << number("requests") << " (" << number("errors") << " errors), opens "
      << number("opens") << " (" << number("passthrough_opens") << " passthrough)\n"
      << "  daemon   read " << format_bytes(number("read_bytes")) << ", written "
      << format_bytes(number("written_bytes"))
      << "; passthrough I/O is the kernel's and not counted\n";
}

void print_open_files(std::ostream& out, const replies::OpenFiles& open) {
  out << "  open     " << open.kernel << " files by the kernel, " << open.sessions
      << " by sessions\n";
}

// Nothing as long as no program intercepts.
void print_intercept(std::ostream& out, const replies::Intercept& intercept) {
  const replies::InterceptTotals& totals = intercept.totals;
  if (totals.clients == 0) {
    return;
  }
  out << "  intercept " << intercept.clients_now << " programs now, " << totals.clients
      << " in all; served themselves " << totals.reads << " reads ("
      << format_bytes(totals.read_bytes) << "), " << totals.writes << " writes ("
      << format_bytes(totals.written_bytes) << ")\n";
}

void print_limits(std::ostream& out, const replies::Limits& limits) {
  const auto rate = [](std::uint64_t value, bool bytes) {
    return value == 0 ? std::string("all")
                      : (bytes ? format_bytes(value) : std::to_string(value)) + "/s";
  };
  out << "  limits   read " << rate(limits.read, true) << ", write " << rate(limits.write, true)
      << ", requests " << rate(limits.ops, false) << "; " << limits.delayed << " waited\n";
}

// Returns how a store of this class becomes durable. A later daemon may name another class.
std::string durable_by(const std::string& name) {
  const auto durability = durability_named(name);
  return durability ? std::string("; ") + meaning_of(*durability) : "";
}

void print_backends(std::ostream& out, const replies::Store& store, const std::string& io) {
  for (const auto& one : store.backends) {
    out << "  backend  " << escaped(one.id) << ": " << escaped(one.description)
        << durable_by(one.durability) << "; used " << format_bytes(one.used) << " of "
        << format_bytes(one.capacity) << (one.io.value_or("") != io ? ", I/O by the daemon" : "")
        << (one.new_files ? "; new files" : "") << (one.journal ? "; the journal" : "") << "\n";
  }
  out << "  survives no more than " << escaped(store.durability) << " does, all together\n";
}

std::string wait_of(const replies::Turn& turn) {
  return "waits to stage " + escaped(turn.direction) + ", " + std::to_string(turn.ahead) +
         " ahead" + (turn.wait_seconds ? ", about " + format_seconds(*turn.wait_seconds) : "");
}

// Prints the name, the state and its reason, also of an instance that answers.
void print_state(std::ostream& out, const replies::Remains& s, bool colour) {
  const bool is_unsaved =
      s.left_store && s.left_store->left == image::name_of(image::ShutdownState::unsaved);
  const auto shown = [](const std::string& text) {
    return text.empty() ? "?" : escaped(text);  // names may contain any byte
  };
  out << shown(s.name) << ": " << painted(is_unsaved ? "stopped" : shown(s.state), colour) << "\n";
  if (s.error) {
    const std::string text = printable(*s.error, true);
    out << "  " << text << (text.ends_with('\n') ? "" : "\n");
  }
}

// Prints what a dead instance has left, and how to go on.
void print_remains(std::ostream& out, const replies::Remains& s) {
  if (s.left_store) {
    out << "  job file " << escaped(s.left_store->job_file) << "\n  store    "
        << escaped(s.left_store->store) << " (" << escaped(s.left_store->left)
        << (s.left_store->restarted ? "; the machine was restarted since" : "") << ")\n";
  }
  if (s.damaged) {
    out << "  damaged  " << escaped(*s.damaged) << "\n";
  }
  if (s.left_store || s.damaged) {
    out << "  " << escaped(ways_on_from(s)) << "\n";
  }
}

// Prints the failures that the instance has met, and whether a successor can replace its worker.
void print_troubles(std::ostream& out, const replies::Status& s) {
  if (s.lost_before) {
    out << "  before   " << escaped(*s.lost_before) << "\n";
  }
  if (s.store && s.store->read_only) {
    out << "  THE STORE HAS FAILED: files can be read and are staged out by efs stop, and nothing "
           "can be changed; the log says why\n";
  }
  if (s.job.takeovers > 0) {
    out << "  takeovers " << s.job.takeovers
        << " (its worker died and was replaced; the log says why)\n";
  }
  if (s.mount && !s.mount->takeover) {
    out << "  takeover none: " << escaped(s.mount->takeover_reason.value_or("")) << "\n";
  }
}

void print_places(std::ostream& out, const replies::Identity& job) {
  if (job.mount.empty()) {
    return;
  }
  out << "  mount    " << escaped(job.mount) << "\n  job file " << escaped(job.job_file) << "\n";
  if (!job.log.empty()) {
    out << "  log      " << escaped(job.log) << "\n";
  }
}

void print_storage(std::ostream& out, const replies::Status& s) {
  if (s.store && !s.store->backends.empty()) {
    print_backends(out, *s.store, s.mount ? s.mount->io : "");
  } else if (s.store) {
    out << "  backend  " << escaped(s.store->backend) << durable_by(s.store->durability) << "\n";
  }
  if (s.mount) {
    out << "  I/O      " << escaped(s.mount->io)
        << (s.mount->io_reason ? " (" + escaped(*s.mount->io_reason) + ")" : "") << "\n";
    if (s.mount->limits) {
      print_limits(out, *s.mount->limits);
    }
  }
  if (s.store) {
    out << "  used     " << format_bytes(s.store->used) << " of " << format_bytes(s.store->capacity)
        << "\n";
  }
  if (s.changed) {
    out << "  changed  " << s.changed->changed_files << " files, "
        << format_bytes(s.changed->changed_bytes) << ", which a stop exports\n";
  }
}

void print_inputs(std::ostream& out, const replies::StagedIn& in) {
  out << "  inputs   " << in.files << " files, " << format_bytes(in.bytes);
  if (in.bytes_reused > 0) {
    out << ", " << format_bytes(in.bytes_reused) << " of it from the cache";
  }
  if (in.skipped > 0) {
    out << ", " << in.skipped << " skipped (the receipt will name them)";
  }
  out << text_of_away(in) << "\n";
}

void print_turn(std::ostream& out, const replies::Turn& turn) {
  out << "  turn     "
      << (turn.standing == "waiting" ? wait_of(turn)
          : turn.standing == "holds" ? "has its turn"
                                     : "goes without a turn: " + escaped(turn.reason.value_or("")))
      << "\n";
}

// Prints a file to which the instance writes the operations of programs.
void print_recording(std::ostream& out, const char* what,
                     const std::optional<replies::Recording>& recording) {
  if (recording) {
    out << what << escaped(recording->file)
        << (recording->error ? " ended: " + escaped(*recording->error) : "") << "\n";
  }
}

// Prints how far a stage-in or a stage-out has come.
void print_moved(std::ostream& out, const replies::Progress& s) {
  if (s.state != "staging-in" && s.state != "staging-out") {
    return;
  }
  out << "  moved    " << format_bytes(s.bytes_done) << " of " << format_bytes(s.bytes_total)
      << (s.eta_seconds ? ", about " + format_seconds(*s.eta_seconds) + " left" : "") << "\n";
}

// Prints how many results went home while the job ran.
void print_drain(std::ostream& out, const replies::Drain& drain) {
  out << "  drain    " << drain.drained << " exports of results ("
      << format_bytes(drain.drained_bytes) << "), " << drain.due << " results are not home\n";
  if (drain.dropped > 0) {
    out << "           " << drain.dropped << " files of old versions dropped ("
        << format_bytes(drain.dropped_bytes) << ")\n";
  }
  if (drain.unsent > 0) {
    out << "           " << drain.unsent << " files of old versions dropped that were never sent ("
        << format_bytes(drain.unsent_bytes) << ")\n";
  }
  if (drain.last_error) {
    out << "           last error: " << printable(*drain.last_error) << "\n";
  }
}

// Prints how many contents of inputs are not here yet.
void print_fetch(std::ostream& out, const replies::Fetch& fetch) {
  out << "  remote   " << fetch.remote << " inputs are not here ("
      << format_bytes(fetch.remote_bytes) << "), " << fetch.running << " are being fetched, "
      << fetch.fetched << " were (" << format_bytes(fetch.fetched_bytes) << ")\n";
  if (fetch.waiting > 0) {
    out << "           " << fetch.waiting << " operations of programs wait\n";
  }
  if (fetch.last_error) {
    out << "           last error: " << printable(*fetch.last_error) << "\n";
  }
}

void print_evict(std::ostream& out, const replies::Evict& evict) {
  out << "  evicted  " << evict.evicted << " contents (" << format_bytes(evict.evicted_bytes)
      << ") left the full buffer\n";
  if (evict.last_error) {
    out << "           no more room can be made: " << printable(*evict.last_error) << "\n";
  }
}

void print_tiers(std::ostream& out, const std::vector<replies::TierFigures>& tiers) {
  for (const auto& tier : tiers) {
    out << "  tier     " << escaped(tier.id) << ": " << format_bytes(tier.used) << " of "
        << format_bytes(tier.capacity) << "; moved in " << tier.moved_in << " files ("
        << format_bytes(tier.moved_in_bytes) << "), out " << tier.moved_out << " ("
        << format_bytes(tier.moved_out_bytes) << ")\n";
    if (tier.last_error) {
      out << "           it is above `high`, and nothing can leave it: "
          << printable(*tier.last_error) << "\n";
    }
  }
}

void print_tasks(std::ostream& out, const std::vector<replies::Task>& tasks) {
  constexpr std::size_t shown_finished = 5;  // the last ones
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const auto& task = tasks[i];
    const bool is_running = task.task_state == "running";
    if (task.task_state != "pending" && !is_running && i + shown_finished < tasks.size()) {
      continue;
    }
    out << "  task     " << task.task << ": " << escaped(task.kind) << " of " << escaped(task.what)
        << ": " << printable(task.task_state);
    if (task.turn && task.turn->standing == "waiting") {
      out << ", " << wait_of(*task.turn);
    } else if (is_running) {
      out << ", " << format_bytes(task.bytes_done) << " of " << format_bytes(task.bytes_total);
    }
    out << "\n";
  }
}

// `document`: of status_of(), or of an unreachable instance. The parts that it lacks are not shown.
void print_status(std::ostream& out, const Json& document, bool colour) {
  const auto s = replies::from_json<replies::Status>(document);
  const auto remains = replies::from_json<replies::Remains>(document);
  print_state(out, remains, colour);
  print_remains(out, remains);
  print_troubles(out, s);
  print_places(out, s.job);
  print_storage(out, s);
  if (s.staged_in) {
    print_inputs(out, *s.staged_in);
  }
  if (s.progress.turn) {
    print_turn(out, *s.progress.turn);
  }
  if (s.mount && s.mount->counters.is_object()) {
    print_counters(out, s.mount->counters);
    print_open_files(
        out, s.store ? s.store->open_files.value_or(replies::OpenFiles{}) : replies::OpenFiles{});
  }
  if (s.mount && s.mount->intercept) {
    print_intercept(out, *s.mount->intercept);
  }
  print_recording(out, "  trace    ", s.trace);
  print_recording(out, "  accesses ", s.access_log);
  print_moved(out, s.progress);
  if (s.drain) {
    print_drain(out, *s.drain);
  }
  if (s.fetch) {
    print_fetch(out, *s.fetch);
  }
  if (s.evict) {
    print_evict(out, *s.evict);
  }
  print_tiers(out, s.tiers);
  print_tasks(out, s.tasks);
}

int show_all(World& world, const Json& all, bool one) {
  if (world.json) {
    print_document(world, one ? all.front() : all);
  } else {
    for (const auto& instance : all) {
      print_status(world.out, instance, world.colour);
    }
    if (all.empty()) {
      world.out << "no instance is running\n";
    }
  }
  const auto is_well = [](const Json& instance) {
    const std::string state = instance.value("state", "");
    return state != "dead" && state != "silent" && state != "unreachable";
  };
  return std::ranges::all_of(all, is_well) ? exit_good : exit_failure;
}

}  // namespace

namespace {

Result<Json> statuses_of(const std::string& which, int silence) {
  std::vector<control::Instance> shown;
  if (which.empty()) {
    shown = control::list_instances();
  } else {
    auto instance = find_instance(which);
    if (!instance) {
      return std::unexpected(instance.error());
    }
    shown.push_back(*instance);
  }
  Json all = Json::array();
  if (which.empty()) {
    add_unreachable(all, shown);
  }
  for (const auto& instance : shown) {
    all.push_back(status_of(instance, true, silence));
  }
  return all;
}

}  // namespace

int status(World& world, const std::string& which) {
  const auto all = statuses_of(which, patient);
  return all ? show_all(world, *all, !which.empty()) : report(world, all.error());
}

int watch_status(World& world, const std::string& which, double interval) {
  const auto frame = [&](const Screen& screen) -> Result<std::string> {
    const auto all = statuses_of(which, soon);
    if (!all) {
      return std::unexpected(all.error());
    }
    std::ostringstream text;
    World shown{text, world.err, false, world.json, world.colour};
    (void)show_all(shown, *all, !which.empty());
    const bool is_block = !screen.is_terminal && !world.json;
    // A blank line parts the blocks.
    return world.json ? text.str() : cut_to_screen(text.str(), screen) + (is_block ? "\n" : "");
  };
  return show_repeatedly(world, interval, frame);
}

int list_all(World& world) {
  Json all = Json::array();
  auto instances = control::list_instances();
  add_unreachable(all, instances);
  for (const auto& instance : instances) {
    all.push_back(status_of(instance));
  }
  for (const auto& store : stores_of_site_without_instance()) {
    all.push_back(to_json(what_is_left_in(store)));
  }
  return show_all(world, all, false);
}

}  // namespace efs::cli
