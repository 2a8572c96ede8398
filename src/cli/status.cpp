// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <sstream>

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
namespace {

Json dead(const control::Instance& instance, const std::string& why) {
  return Json{{"name", instance.name},
              {"directory", instance.directory},
              {"state", "dead"},
              {"error", why}};
}

// The instance is alive, or another command works on its remains, but no process answers.
Json silent(const control::Instance& instance, const std::string& why) {
  return Json{
      {"name", instance.name},
      {"directory", instance.directory},
      {"state", "silent"},
      {"error", "it does not answer: " + why +
                    ". Its processes may be stopped, or an efs clean may run on it. Its log: " +
                    instance.directory + "/efsd.log"}};
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

Json what_is_left_of(const control::Instance& instance) {
  auto manifest = manifest_of(instance);
  const std::string damaged = manifest ? look_into_store(instance, *manifest)
                              : manifest.error().code == EPROTO ? describe(manifest.error())
                                                                : "";
  const bool kept = manifest && manifest->left == image::ShutdownState::kept;
  Json json = dead(instance, ending_of(manifest ? manifest->left : image::ShutdownState::in_use,
                                       manifest ? manifest->store : instance.directory + "/store"));
  if (kept) {
    json.erase("error");
  }
  if (!damaged.empty()) {
    json["damaged"] = damaged;
  }
  if (manifest) {
    json["state"] = kept ? "kept" : "dead";
    json["left"] = image::name_of(manifest->left);
    json["store"] = manifest->store;
    json["job_file"] = manifest->job_file;
    json["start_options"] = manifest->start_options;
    json["restarted"] = manifest->boot_id != image::boot_id();
  }
  return json;
}

// Describes a store whose instance directory no longer exists. The store's own manifest is beside
// the journal.
Json what_is_left_in(const LostStore& store) {
  control::Instance led{.name = std::filesystem::path(store.path).filename().string(),
                        .directory = store.path + (store.first.empty() ? "/meta" : ""),
                        .owner = 0,
                        .alive = false};
  const auto manifest = manifest_of(led);
  if (manifest) {
    led.name = manifest->name;
  }
  Json json =
      store.first.empty() && manifest
          ? what_is_left_of(led)
          : dead(led, store.first.empty()
                          ? "it cannot be read; see efs check-image " + as_word(store.path)
                          : without_journal(store.first) + "; rm -r " + as_word(store.path));
  json["directory"] = store.path;
  json["lost"] = true;
  return json;
}

Json unreachable(const UnreachableInstance& instance) {
  return Json{{"name", instance.name},         {"directory", instance.directory},
              {"state", "unreachable"},        {"mount", instance.mount},
              {"job_file", instance.job_file}, {"error", text_of(instance)}};
}

// Adds the unreachable instances, and removes instances with the same directory from `others`.
void add_unreachable(Json& all, std::vector<control::Instance>& others) {
  for (const auto& instance : unreachable_instances("")) {
    all.push_back(unreachable(instance));
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

// Only root can start and remove the instance of a batch job. The user salvages its results.
std::string ways_on_from_job(const Json& status) {
  const std::string name = config::instance_argument(status.value("name", "")),
                    left = status.value("left", "");
  const std::string remove =
      (::geteuid() == 0 ? "remove: efs clean " : "root removes it: efs clean ") + name;
  if (left == image::name_of(image::ShutdownState::salvaged)) {
    return remove;
  }
  if (status.value("state", "") == "kept") {
    return "export: efs salvage " + name + " --all --to DIRECTORY; " + remove;
  }
  return "export: efs salvage " + name + (::geteuid() == 0 ? "; " + remove : "");
}

}  // namespace

std::string ways_on_from(const Json& status) {
  const std::string name =
      as_word(status.value(status.value("lost", false) ? "directory" : "name", "?"));
  // A start cannot continue a store whose manifest is damaged.
  if (status.contains("damaged")) {
    return "export: efs salvage --to DIRECTORY " + name + "; discard it: efs clean --force " + name;
  }
  if (!status.value("lost", false) && config::is_of_batch_job(status.value("name", ""))) {
    return ways_on_from_job(status);
  }
  const std::string remove = "remove: efs clean " + name,
                    go_on = "continue: " + start_command(status);
  if (status.value("left", "") == image::name_of(image::ShutdownState::salvaged)) {
    return remove + "; " + go_on;
  }
  // a kept instance has no missing results, so a salvage needs --all
  return go_on + "; export: efs salvage " + name +
         (status.value("state", "") == "kept" ? " --all --to DIRECTORY; " : "; ") + remove;
}

std::string text_of_away(const Json& staged_in) {
  const auto files = staged_in.value("files_away", std::uint64_t{0});
  return files == 0 ? ""
                    : "; " + std::to_string(files) +
                          " that the job removed stay removed, efs load imports them";
}

Json status_of(const control::Instance& instance, bool changed, int silence) {
  if (!instance.alive) {
    return what_is_left_of(instance);
  }
  auto status = ask_status(instance, changed, silence);
  // on an error the instance may have ended meanwhile
  if (!status) {
    return control::is_alive(instance.directory) ? silent(instance, describe(status.error()))
                                                 : what_is_left_of(instance);
  }
  status->erase("event");
  status->erase("ok");
  (*status)["name"] = instance.name;  // the daemon is the user's and may answer with another
  return *status;
}

namespace {

// Escapes a text of the instance for display, because names in it may contain any byte.
std::string shown(const Json& json, const char* key, const char* otherwise = "") {
  return escaped(json.value(key, otherwise));
}

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

void print_open_files(std::ostream& out, const Json& open) {
  out << "  open     " << open.value("kernel", std::uint64_t{0}) << " files by the kernel, "
      << open.value("sessions", std::uint64_t{0}) << " by sessions\n";
}

// Nothing as long as no program intercepts.
void print_intercept(std::ostream& out, const Json& intercept) {
  const Json totals = intercept.value("totals", Json::object());
  const auto number = [&](const char* key) {
    return totals.value(key, std::uint64_t{0});
  };
  if (number("clients") == 0) {
    return;
  }
  out << "  intercept " << intercept.value("clients_now", std::uint64_t{0}) << " programs now, "
      << number("clients") << " in all; served themselves " << number("reads") << " reads ("
      << format_bytes(number("read_bytes")) << "), " << number("writes") << " writes ("
      << format_bytes(number("written_bytes")) << ")\n";
}

void print_limits(std::ostream& out, const Json& limits) {
  const auto rate = [&](const char* key, bool bytes) {
    const auto value = limits.value(key, std::uint64_t{0});
    return value == 0 ? std::string("all")
                      : (bytes ? format_bytes(value) : std::to_string(value)) + "/s";
  };
  out << "  limits   read " << rate("read", true) << ", write " << rate("write", true)
      << ", requests " << rate("ops", false) << "; " << limits.value("delayed", std::uint64_t{0})
      << " waited\n";
}

void print_backends(std::ostream& out, const Json& s) {
  for (const auto& one : s["backends"]) {
    out << "  backend  " << shown(one, "id") << ": " << shown(one, "description") << ", used "
        << format_bytes(one.value("used", std::uint64_t{0})) << " of "
        << format_bytes(one.value("capacity", std::uint64_t{0}))
        << (one.value("io", "") != s.value("io", "") ? ", I/O by the daemon" : "")
        << (one.value("new_files", false) ? "; new files" : "")
        << (one.value("journal", false) ? "; the journal" : "") << "\n";
  }
  out << "  survives no more than " << shown(s, "durability") << " does, all together\n";
}

std::string wait_of(const Json& turn) {
  std::string text = "waits to stage " + shown(turn, "direction") + ", " +
                     std::to_string(turn.value("ahead", 0U)) + " ahead";
  if (turn.contains("wait_seconds")) {
    text += ", about " + format_seconds(turn["wait_seconds"].get<double>());
  }
  return text;
}

// Prints the name, the state and its reason.
void print_state(std::ostream& out, const Json& s, bool colour) {
  const std::string state = s.value("left", "") == image::name_of(image::ShutdownState::unsaved)
                                ? "stopped"
                                : shown(s, "state", "?");
  out << shown(s, "name", "?") << ": " << painted(state, colour) << "\n";
  if (s.contains("error")) {
    const std::string text = printable(s["error"].get<std::string>(), true);
    out << "  " << text << (text.ends_with('\n') ? "" : "\n");
  }
}

// Prints what a dead instance has left, and how to go on.
void print_remains(std::ostream& out, const Json& s) {
  if (s.contains("left")) {
    out << "  job file " << shown(s, "job_file") << "\n  store    " << shown(s, "store") << " ("
        << shown(s, "left")
        << (s.value("restarted", false) ? "; the machine was restarted since" : "") << ")\n";
  }
  if (s.contains("damaged")) {
    out << "  damaged  " << shown(s, "damaged") << "\n";
  }
  if (s.contains("left") || s.contains("damaged")) {
    out << "  " << escaped(ways_on_from(s)) << "\n";
  }
}

// Prints the failures that the instance has met, and whether a successor can replace its worker.
void print_troubles(std::ostream& out, const Json& s) {
  if (s.contains("lost_before")) {
    out << "  before   " << shown(s, "lost_before") << "\n";
  }
  if (s.value("read_only", false)) {
    out << "  THE STORE HAS FAILED: files can be read and are staged out by efs stop, and nothing "
           "can be changed; the log says why\n";
  }
  if (const auto deaths = s.value("takeovers", 0U); deaths > 0) {
    out << "  takeovers " << deaths << " (its worker died and was replaced; the log says why)\n";
  }
  if (!s.value("takeover", true)) {
    out << "  takeover none: " << shown(s, "takeover_reason") << "\n";
  }
}

void print_places(std::ostream& out, const Json& s) {
  if (!s.contains("mount")) {
    return;
  }
  out << "  mount    " << shown(s, "mount") << "\n  job file " << shown(s, "job_file") << "\n";
  if (s.contains("log")) {
    out << "  log      " << shown(s, "log") << "\n";
  }
}

void print_storage(std::ostream& out, const Json& s) {
  if (s.contains("backends")) {
    print_backends(out, s);
  } else if (s.contains("backend")) {
    out << "  backend  " << shown(s, "backend") << "\n";
  }
  if (s.contains("io")) {
    out << "  I/O      " << shown(s, "io")
        << (s.contains("io_reason") ? " (" + shown(s, "io_reason") + ")" : "") << "\n";
  }
  if (s.contains("limits")) {
    print_limits(out, s["limits"]);
  }
  if (s.contains("capacity")) {
    out << "  used     " << format_bytes(s["used"].get<std::uint64_t>()) << " of "
        << format_bytes(s["capacity"].get<std::uint64_t>()) << "\n";
  }
  if (s.contains("changed_files")) {
    out << "  changed  " << s["changed_files"].get<std::uint64_t>() << " files, "
        << format_bytes(s["changed_bytes"].get<std::uint64_t>()) << ", which a stop exports\n";
  }
}

void print_inputs(std::ostream& out, const Json& in) {
  out << "  inputs   " << in.value("files", std::uint64_t{0}) << " files, "
      << format_bytes(in.value("bytes", std::uint64_t{0}));
  if (const auto reused = in.value("bytes_reused", std::uint64_t{0}); reused > 0) {
    out << ", " << format_bytes(reused) << " of it from the cache";
  }
  if (const auto skipped = in.value("skipped", std::uint64_t{0}); skipped > 0) {
    out << ", " << skipped << " skipped (the receipt will name them)";
  }
  out << text_of_away(in) << "\n";
}

void print_turn(std::ostream& out, const Json& turn) {
  const std::string standing = turn.value("standing", "");
  out << "  turn     "
      << (standing == "waiting" ? wait_of(turn)
          : standing == "holds" ? "has its turn"
                                : "goes without a turn: " + shown(turn, "reason"))
      << "\n";
}

// Prints the files to which the instance writes the operations of programs.
void print_recordings(std::ostream& out, const Json& s) {
  for (const char* key : {"trace", "access_log"}) {
    if (s.contains(key)) {
      out << "  " << (key[0] == 't' ? "trace    " : "accesses ") << shown(s[key], "file")
          << (s[key].contains("error") ? " ended: " + shown(s[key], "error") : "") << "\n";
    }
  }
}

// Prints how far a stage-in or a stage-out has come.
void print_moved(std::ostream& out, const Json& s) {
  const std::string state = s.value("state", "");
  if (state != "staging-in" && state != "staging-out") {
    return;
  }
  out << "  moved    " << format_bytes(s.value("bytes_done", std::uint64_t{0})) << " of "
      << format_bytes(s.value("bytes_total", std::uint64_t{0}))
      << (s.contains("eta_seconds")
              ? ", about " + format_seconds(s["eta_seconds"].get<double>()) + " left"
              : "")
      << "\n";
}

// Prints how many results went home while the job ran. Nothing if no rule has drain.
void print_drain(std::ostream& out, const Json& drain) {
  if (drain.empty()) {
    return;
  }
  out << "  drain    " << drain.value("drained", std::uint64_t{0}) << " results are home ("
      << format_bytes(drain.value("drained_bytes", std::uint64_t{0})) << "), "
      << drain.value("due", std::uint64_t{0}) << " are not\n";
  if (drain.contains("last_error")) {
    out << "           last error: " << shown(drain, "last_error") << "\n";
  }
}

void print_tasks(std::ostream& out, const Json& tasks) {
  constexpr std::size_t shown_finished = 5;  // the last ones
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Json& task = tasks[i];
    const std::string how = task.value("task_state", "");
    if (how != "pending" && how != "running" && i + shown_finished < tasks.size()) {
      continue;
    }
    out << "  task     " << task.value("task", 0) << ": " << shown(task, "kind") << " of "
        << shown(task, "what") << ": " << printable(how);
    const Json turn = task.value("turn", Json::object());
    if (turn.value("standing", "") == "waiting") {
      out << ", " << wait_of(turn);
    } else if (how == "running") {
      out << ", " << format_bytes(task.value("bytes_done", std::uint64_t{0})) << " of "
          << format_bytes(task.value("bytes_total", std::uint64_t{0}));
    }
    out << "\n";
  }
}

void print_status(std::ostream& out, const Json& s, bool colour) {
  print_state(out, s, colour);
  print_remains(out, s);
  print_troubles(out, s);
  print_places(out, s);
  print_storage(out, s);
  if (s.contains("staged_in")) {
    print_inputs(out, s["staged_in"]);
  }
  if (s.contains("turn")) {
    print_turn(out, s["turn"]);
  }
  if (s.contains("counters")) {
    print_counters(out, s["counters"]);
    print_open_files(out, s.value("open_files", Json::object()));
  }
  print_intercept(out, s.value("intercept", Json::object()));
  print_recordings(out, s);
  print_moved(out, s);
  print_drain(out, s.value("drain", Json::object()));
  print_tasks(out, s.value("tasks", Json::array()));
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
    all.push_back(what_is_left_in(store));
  }
  return show_all(world, all, false);
}

}  // namespace efs::cli
