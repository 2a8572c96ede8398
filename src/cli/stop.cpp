// SPDX-License-Identifier: BSD-3-Clause
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

#include "base/mounts.hpp"
#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/holders.hpp"
#include "config/start_command.hpp"
#include "control/asking.hpp"
#include "control/end_watch.hpp"
#include "image/manifest.hpp"

namespace efs::cli {

namespace replies = control::replies;

namespace {

// The instance to stop, in its state before the stop.
struct Seen {
  std::string mount;  // "": unknown
  Json status;
  pid_t supervisor = 0;  // unchanged while the instance lives; 0: like mount
};

// Returns the mount point without symbolic links, as the kernel lists it in /proc. Resolves only
// the parent: the last component is the mount itself, which may be dead.
Seen seen_of(const control::Instance& instance) {
  Json status = status_of(instance);
  const auto job = replies::from_json<replies::Identity>(status);
  const std::filesystem::path mount = job.mount;
  constexpr int longest = 2;  // seconds
  std::error_code problem = std::make_error_code(std::errc::timed_out);
  const auto parent = !mount.empty() && answers(mount.parent_path(), longest)
                          ? std::filesystem::canonical(mount.parent_path(), problem)
                          : std::filesystem::path();
  return {.mount = mount.empty() || problem ? mount.string() : (parent / mount.filename()).string(),
          .status = std::move(status),
          .supervisor = job.supervisor_pid};
}

// Returns the errno of an answer; 0 if the request succeeded.
int code_of(const Json& answer) {
  return replies::is_success(answer) ? 0 : replies::from_json<replies::Failure>(answer).code;
}

Error busy_error(const std::string& mount, const replies::StopFailed& answer) {
  std::string text = printable(answer.failure.error, answer.failure.lines);
  if (!mount.empty()) {
    const auto holders = holders_of(mount);
    for (const auto& holder : holders) {
      text += "\n  " + escaped(holder);
    }
    text += holders.empty() ? "\n  by a process that has left it since, or that you may not "
                              "inspect: of another user, or in another mount namespace"
                            : "";
  }
  if (answer.summary) {
    text += "\nMeanwhile, of files without a writer: " + printable(*answer.summary, true);
  }
  return {EBUSY,
          text + (text.ends_with('\n') ? "" : "\n") +
              "End them (or leave the directory, unmount, detach) and run efs stop again; nothing "
              "was lost",
          true};
}

// A second mount of the same file system would keep it alive, and the daemon would wait for its
// end: a bind mount, or a batch job's view of its own mount. (Mounts in other namespaces are
// invisible here.)
Status refuse_second_place(const std::string& mount) {
  const auto others = mount.empty() ? std::vector<std::string>{} : other_places_of(mount);
  if (others.empty()) {
    return {};
  }
  return fail(EBUSY, mount + " is mounted at a second place, " + others.front() +
                         ". Unmount it there (umount " + others.front() +
                         ") and run efs stop again; in a batch job that has its own view of the "
                         "mount, the end of the job does it");
}

bool was_cut_short(const replies::Stopped& answer) {
  return answer.time_was_up.value_or(false);
}

bool has_conflicts(const replies::Stopped& answer) {
  return answer.conflicts.value_or(0) > 0;
}

std::string ways_out(const std::string& instance, bool conflict, bool is_unreadable) {
  const std::string name = config::instance_argument(instance);
  return "The other results are still in the buffer" +
         std::string(is_unreadable ? ", except unreadable ones" : "") +
         ". Remove the cause, then run: efs stop " + name +
         (conflict ? "\nTo resolve a conflict, move the other version away. To drop the job's "
                     "file: efs set temporary PATH (not for a directory: its files would be "
                     "dropped, too; restore its attributes on the PFS, or set the job's). To "
                     "export elsewhere: efs stop --deadline 60 " +
                         name + ", then efs salvage " + name + " --to DIRECTORY"
                   : "") +
         "\nTo discard the results: efs stop --no-stage-out " + name + "\n";
}

// `answer` has an image.
std::string ways_on(const std::string& instance, const Json& status,
                    const replies::Stopped& answer) {
  const std::string name = config::instance_argument(instance);
  const std::string again =
      config::is_of_batch_job(instance) ? "" : "; or continue: " + start_command(status);
  if (answer.all_back.value_or(false)) {
    return "All results are exported; the image " + escaped(*answer.image) +
           " stays. Remove it: efs clean " + name + escaped(again) + "\n";
  }
  return std::string(was_cut_short(answer) ? "Time was up. " : "") +
         "The other results are in the image " + escaped(*answer.image) +
         ". Export them: efs salvage " + name +
         (has_conflicts(answer)
              ? ", when the other version is moved away; or elsewhere, with --to DIRECTORY"
              : "") +
         escaped(again) + "\n";
}

// Joins the lines of `summary`, without their indentation, behind `text`; both together are short.
std::string with_lines_of(const std::string& summary, std::string text) {
  constexpr std::size_t longest = 1500;
  for (std::size_t at = 0; at < summary.size() && text.size() < longest;) {
    const auto end = std::min(summary.find('\n', at), summary.size());
    const auto first = std::min(summary.find_first_not_of(' ', at), end);
    if (first < end) {
      text +=
          (text.empty() || text.ends_with(": ") ? "" : "; ") + summary.substr(first, end - first);
    }
    at = end + 1;
  }
  return text.size() > longest ? text.substr(0, longest) + "..." : text;
}

// A short reason for a nonzero exit code, because the receipt of many files follows it.
std::string short_error(const replies::Stopped& answer) {
  const std::string image = answer.image.value_or("");
  std::string start;
  if (answer.all_back.value_or(false)) {
    start = "all results are exported; the image " + image + " stays: ";
  } else if (answer.image) {
    start = std::string(was_cut_short(answer) ? "time was up; " : "") +
            "the other results are in the image " + image + ": ";
  }
  const std::string text = with_lines_of(answer.summary.value_or(""), start);
  return text.empty() ? "not all results are exported" : text;
}

std::string over_text(const std::string& name) {
  return name +
         " is over: another process stopped it, or its daemon died before it could answer. See the "
         "receipt and its log. Remove what is left: efs clean " +
         name;
}

std::string why_not(const control::Instance& instance) {
  const std::string& name = instance.name;
  const Json status = status_of(instance);
  const std::string left = status.value("left", ""), again = start_command(status),
                    store = status.value("store", instance.directory + "/store");
  if (left == image::name_of(image::ShutdownState::over)) {
    return over_text(name);
  }
  if (config::is_of_batch_job(name) && !status.contains("damaged")) {
    return name +
           " does not run any more: " + status.value("error", "all its results are exported") +
           ". " + ways_on_from(status);
  }
  if (status.contains("damaged")) {
    return "the daemon of " + name + " is gone, and " + status.value("damaged", "") + ". " +
           ways_on_from(status);
  }
  if (left == image::name_of(image::ShutdownState::kept)) {
    return name + " has been stopped, and its buffer was kept in " + store +
           ": all its results are exported. Continue: " + again +
           "; export the buffer: efs salvage " + name +
           " --all --to DIRECTORY; remove it: efs clean " + name;
  }
  if (left == image::name_of(image::ShutdownState::salvaged)) {
    return "the daemon of " + name +
           " is gone, and efs salvage has exported its results; the image " + store +
           " is left. Remove it: efs clean " + name + "; continue: " + again;
  }
  const std::string why =
      left == "unsaved"
          ? " has been stopped, and not all results are exported. They are in " + store
          : " is gone; its buffer may still be below " + store;
  return (left == "unsaved" ? "" : "the daemon of ") + name + why + ". Continue: " + again +
         "; export the results: efs salvage " + name + "; discard it: efs clean --force " + name;
}

Stopped failed_stop(World& world, const Error& error) {
  return {world.json ? int{exit_failure} : report(world, error), error_document(error)};
}

// Handles a worker that recorded the end and died before it answered. Its successor had nothing
// left to do.
Stopped stopped_untold(World& world, const control::Instance& instance, bool keep) {
  struct stat st{};
  const bool cleared = ::lstat((instance.directory + "/" + image::manifest_name).c_str(), &st) != 0;
  const std::string text = cleared ? over_text(instance.name) : why_not(instance);
  if (!keep || status_of(instance).value("state", "") != "kept") {
    return failed_stop(world, {ESRCH, text});
  }
  if (!world.json) {
    world.out << text << "\n";
  }
  return {exit_good, {{"ok", true}, {"exit", exit_good}, {"summary", text}}};
}

struct Asked {
  Result<Json> answer;
  bool is_gone = false;     // the intended instance
  bool is_at_rest = false;  // it has ended; the answer is the outcome of another client's stop
};

// `seen`: the supervisor before the stop. `json`: the answer becomes a JSON document.
Json stop_request(const StopArguments& arguments, pid_t seen, bool json) {
  return to_json(control::requests::Stop{
      .supervisor =
          static_cast<std::uint64_t>(arguments.supervisor != 0 ? arguments.supervisor : seen),
      .stage_out = arguments.stage_out,
      .keep = arguments.keep,
      .cut_off = arguments.cut_off,
      .merge = arguments.merge,
      .receipt = json && !arguments.brief,
      .deadline = arguments.deadline});
}

Asked ask_to_stop(World& world, const control::Instance& instance, const StopArguments& arguments,
                  pid_t seen) {
  Asked asked{.answer =
                  ask_until_answered(world, instance, stop_request(arguments, seen, world.json))};
  const auto& answer = asked.answer;
  asked.is_gone =
      answer ? code_of(*answer) == ESRCH
             : control::is_lost(answer.error().code) && !control::is_alive(instance.directory);
  if (arguments.end == nullptr || !*arguments.end) {
    return asked;
  }
  const auto could_wait = [](const Json& told) {
    return code_of(told) != EAGAIN && code_of(told) != ENOMEM;
  };
  if (auto told = asked.is_gone ? (*arguments.end)->receive() : fail(EBUSY);
      told && could_wait(*told)) {
    asked.answer = std::move(told);
    asked.is_at_rest = true;
  }
  return asked;
}

// The mount was busy, but no process that this user may inspect has it now. Usually a program that
// only looked at it (df, a monitor) was slow, or a descriptor was on its way between programs.
bool was_only_looked_at(const std::string& mount, const Asked& asked) {
  return asked.answer && code_of(*asked.answer) == EBUSY &&
         !replies::from_json<replies::StopFailed>(*asked.answer).summary && !mount.empty() &&
         holders_of(mount, 1).empty();
}

constexpr std::chrono::seconds longest_look{5};
constexpr std::chrono::milliseconds pause_between_looks{100};

// Asks again, for a short time, while nothing that this user could end keeps the mount busy.
Asked ask_while_looked_at(World& world, const control::Instance& instance,
                          const StopArguments& arguments, const Seen& seen) {
  const auto until = std::chrono::steady_clock::now() + longest_look;
  Asked asked = ask_to_stop(world, instance, arguments, seen.supervisor);
  while (arguments.deadline == 0 && was_only_looked_at(seen.mount, asked) &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(pause_between_looks);
    asked = ask_to_stop(world, instance, arguments, seen.supervisor);
  }
  if (arguments.end != nullptr) {
    arguments.end->reset();
  }
  return asked;
}

// For an instance that exits without waiting for the PFS, after its deadline.
constexpr std::chrono::seconds longest_farewell{2};
// For any other: it frees its store. Only a hung file system, of its log for example, takes longer.
constexpr std::chrono::minutes longest_end{1};

// Reports an answer of the daemon that is no outcome of a stop.
Stopped not_stopped(World& world, const std::string& mount, const Asked& asked,
                    const control::EndWatch& end) {
  const auto answer = replies::from_json<replies::StopFailed>(*asked.answer);
  if (answer.failure.code == EBUSY) {
    Stopped busy = failed_stop(world, busy_error(mount, answer));
    if (answer.summary) {
      busy.document["summary"] = *answer.summary;
    }
    return busy;
  }
  // the caller's next step must find the instance ended
  if (answer.ended && !asked.is_at_rest) {
    (void)end.wait(longest_end);
  }
  return failed_stop(world, answer.failure.as_error());
}

// Waits for the end of an instance that has answered. If a call to the PFS holds its processes,
// says so.
void await_end(World& world, const std::string& name, const control::EndWatch& end, bool is_at_rest,
               replies::Stopped& answer) {
  if (answer.lingers && !end.wait(longest_farewell) && answer.summary) {
    *answer.summary +=
        "Its processes are still there: a call to the PFS blocks them. They end when the PFS "
        "answers.\n";
  } else if (!answer.kept && !answer.lingers && !is_at_rest && !end.wait(longest_end)) {
    world.err << "efs: " << escaped(name)
              << ": the stop is complete, but its processes are still there. They free its store, "
                 "or the file system of its mount point, log or status file does not answer. They "
                 "end by themselves, and the name is free then.\n";
  }
}

// Prints the outcome, for which the answer must have a summary. `before`: the status of the
// instance before the stop.
void print_outcome(World& world, const std::string& name, const Json& before,
                   const replies::Stopped& answer) {
  (answer.exit.value_or(0) == 0 ? world.out : world.err) << printable(*answer.summary, true);
  if (answer.receipt_file) {
    world.out << "receipt: " << escaped(*answer.receipt_file) << "\n";
  }
  if (answer.report_file) {
    world.out << "report: " << escaped(*answer.report_file) << "\n";
  }
  if (answer.kept) {
    world.err << ways_out(name, has_conflicts(answer), answer.unreadable.value_or(0) > 0);
  }
  if (answer.image) {
    world.err << ways_on(name, before, answer);
  }
  if (!answer.unmatched.is_null()) {
    world.out << printable(answer.unmatched.value("text", "")) << "\n";
  }
}

// Removes what a dead instance left. Its unsaved contents are dropped.
int drop_remains(World& world, const control::Instance& instance) {
  const auto gone = clean_instance(instance, true);
  if (!gone) {
    return report(world, gone.error());
  }
  if (world.json) {
    print_document(world,
                   {{"ok", true}, {"exit", exit_good}, {"staged_out", false}, {"removed", true}});
  } else {
    world.out << escaped(instance.name) << ": its daemon was gone; "
              << (gone->empty() ? "what it left is removed, and unexported results are dropped"
                                : printable(*gone))
              << "\n";
  }
  return exit_good;
}

control::Instance with_absolute_directory(control::Instance instance) {
  std::error_code gone;
  if (auto directory = std::filesystem::absolute(instance.directory, gone); !gone) {
    instance.directory = std::move(directory);
  }
  return instance;
}

}  // namespace

Stopped stop_instance(World& world, const control::Instance& given,
                      const StopArguments& arguments) {
  control::Instance instance = with_absolute_directory(given);
  const Seen seen = seen_of(instance);
  if (const Status single = refuse_second_place(seen.mount); !single) {
    return failed_stop(world, single.error());
  }
  // otherwise this process would keep the mount busy
  if (::chdir("/") != 0) {
    return failed_stop(world, {errno, "/"});
  }
  const control::EndWatch end(instance.directory, seen.supervisor);
  Asked asked = ask_while_looked_at(world, instance, arguments, seen);
  if (!asked.answer && asked.is_gone) {
    instance.alive = false;
    return stopped_untold(world, instance, arguments.keep);
  }
  if (!asked.answer) {
    return failed_stop(world, asked.answer.error());
  }
  Json& document = *asked.answer;
  if (!replies::is_success(document)) {
    return not_stopped(world, seen.mount, asked, end);
  }
  auto answer = replies::from_json<replies::Stopped>(document);
  const int code = answer.exit.value_or(0);
  if (code != 0 && !answer.error) {
    document["error"] = short_error(answer);
  }
  await_end(world, instance.name, end, asked.is_at_rest, answer);
  if (answer.summary) {
    document["summary"] = *answer.summary;
  }
  if (!world.json && answer.summary) {
    print_outcome(world, instance.name, seen.status, answer);
  }
  return {code, std::move(document)};
}

int stop(World& world, const StopArguments& arguments) {
  auto instance = find_instance(arguments.which);
  if (!instance) {
    return report(world, instance.error());
  }
  // a kept instance is removed only by efs clean
  const bool was_kept = !instance->alive && status_of(*instance).value("state", "") == "kept";
  if (!instance->alive && !arguments.stage_out && !arguments.keep && !was_kept) {
    return drop_remains(world, *instance);
  }
  if (!instance->alive) {
    return report(world, {ESRCH, why_not(*instance)});
  }
  const Stopped stopped = stop_instance(world, *instance, arguments);
  if (world.json) {
    print_document(world, stopped.document);
  }
  return stopped.code;
}

}  // namespace efs::cli
