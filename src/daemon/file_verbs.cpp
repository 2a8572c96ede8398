// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/file_verbs.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "control/replies.hpp"
#include "daemon/requests.hpp"
#include "fs/staging.hpp"
#include "stage/live/inventory.hpp"
#include "stage/live/names.hpp"

namespace efs::daemon {
namespace {

using control::Json;
namespace replies = control::replies;
namespace requests = control::requests;
constexpr std::size_t items_per_line = 1000;  // of a listing

/// The title of a task for people.
std::string headline(const std::vector<std::string>& names) {
  std::string text = names.front().empty() ? "." : names.front();
  if (names.size() > 1) {
    text += " and " + std::to_string(names.size() - 1) + " more";
  }
  return text;
}

Status check_backend(const config::JobConfig& config, const std::string& id) {
  if (id.empty() ||
      std::ranges::any_of(config.backends, [&](const auto& known) { return known.id == id; })) {
    return {};
  }
  return fail(EINVAL, "the job file has no backend " + id.substr(0, 100));
}

// The number of the backend to which contents are to move.
Result<unsigned> place_to_move_to(const config::JobConfig& config, Backend& backend,
                                  const std::string& id) {
  if (backend.places() < 2) {
    return fail(EINVAL, "the job has one backend only: its files have nowhere to move");
  }
  if (const auto found = config::find_backend(config, id); found && *found < backend.places()) {
    return static_cast<unsigned>(*found);
  }
  std::string known;
  for (const auto& one : config.backends) {
    known += (known.empty() ? "" : ", ") + one.id;
  }
  return fail(EINVAL, "the job file has no backend " + id.substr(0, 100) + "; it has: " + known);
}

// The existing paths that the names stand for.
Result<std::vector<std::string>> paths_for(const std::vector<std::string>& names,
                                           fs::Staging& staging) {
  std::vector<std::string> paths;
  for (const auto& name : names) {
    if (staging.find(name)) {
      paths.push_back(name);  // a directory covers all present and future files below it
      continue;
    }
    const auto items = stage::items_of(staging, name);
    if (!items) {
      return std::unexpected(items.error());
    }
    for (const auto& item : *items) {
      paths.push_back(item.path);
    }
  }
  return paths;
}

Json not_ready() {
  return control::error_line({EAGAIN, "the instance is not ready, or has ended; see efs status"});
}

/// The result lines of a request for a task, and of any other.
Json line_of(const Result<std::uint64_t>& task) {
  return task ? to_json(replies::TaskStarted{.task = *task}) : control::error_line(task.error());
}

Json line_of(const Status& done) {
  return done ? control::result_line() : control::error_line(done.error());
}

}  // namespace

Json FileVerbs::handle(const std::string& verb, const Json& request,
                       const control::Server::Progress& progress) {
  if (verb == requests::WaitTask::verb) {
    return wait_task(requests::from_json<requests::WaitTask>(request), progress);
  }
  if (verb == requests::Cancel::verb) {
    return line_of(its_.tasks.cancel(requests::from_json<requests::Cancel>(request).task));
  }
  if (verb == requests::WaitInputs::verb) {
    return wait_inputs(requests::from_json<requests::WaitInputs>(request), progress);
  }
  if (verb == requests::List::verb) {
    return list(requests::from_json<requests::List>(request), progress);
  }
  Json answer;
  const bool used =
      its_.buffer.use([&](const OpenBuffer& buffer) { answer = handle_in(buffer, verb, request); });
  return used ? answer : not_ready();
}

Json FileVerbs::handle_in(const OpenBuffer& buffer, const std::string& verb, const Json& request) {
  if (verb == requests::Load::verb) {
    return load(requests::from_json<requests::Load>(request));
  }
  if (verb == requests::Unload::verb) {
    return unload(requests::from_json<requests::Unload>(request));
  }
  if (verb == requests::Fetch::verb) {
    return fetch(buffer, requests::from_json<requests::Fetch>(request));
  }
  if (verb == requests::Move::verb) {
    return move(buffer, requests::from_json<requests::Move>(request));
  }
  if (verb == requests::Explain::verb) {
    return explain(buffer, requests::from_json<requests::Explain>(request));
  }
  if (verb == requests::Set::verb) {
    return set(buffer, requests::from_json<requests::Set>(request));
  }
  if (verb == requests::Pin::verb) {
    return pin(buffer, requests::from_json<requests::Pin>(request));
  }
  if (verb == requests::Limit::verb) {
    return its_.mount.change_limits(requests::from_json<requests::Limit>(request));
  }
  return control::error_line({EINVAL, "unknown verb \"" + verb.substr(0, 100) + "\""}, 2);
}

// Converts the paths of a request to names in the buffer.
Result<std::vector<std::string>> FileVerbs::names_in(const std::vector<std::string>& paths) const {
  EFS_TRY(check_paths(paths));
  std::vector<std::string> names;
  for (const auto& path : paths) {
    auto name = stage::buffer_name(its_.config, path);
    if (!name) {
      return std::unexpected(name.error());
    }
    names.push_back(std::move(*name));
  }
  return names;
}

Result<std::vector<std::string>> FileVerbs::names_of_task(const std::vector<std::string>& paths,
                                                          const std::string& backend) const {
  auto names = names_in(paths);
  if (names) {
    EFS_TRY(check_backend(its_.config, backend));
  }
  return names;
}

Json FileVerbs::load(const requests::Load& request) {
  auto names = names_of_task(request.paths, request.backend);
  if (!names) {
    return control::error_line(names.error(), 2);
  }
  auto what = load_of(request, std::move(*names));
  if (!what) {
    return control::error_line(what.error(), 2);
  }
  std::string text = headline(what->names);
  return line_of(its_.tasks.start(
      TaskKind::load, std::move(text),
      [&transfers = its_.transfers, what = std::move(*what)](stage::Progress& progress) {
        return transfers.load(what, progress);
      }));
}

Json FileVerbs::unload(const requests::Unload& request) {
  auto names = names_of_task(request.paths, request.backend);
  if (!names) {
    return control::error_line(names.error(), 2);
  }
  if (its_.config.results_dir.empty()) {
    return control::error_line(
        {EINVAL, "the job file names no results-dir: nothing can be unloaded"}, 2);
  }
  auto what = unload_of(request, std::move(*names));
  if (!what) {
    return control::error_line(what.error(), 2);
  }
  std::string text = headline(what->names);
  return line_of(its_.tasks.start(
      TaskKind::unload, std::move(text),
      [&transfers = its_.transfers, what = std::move(*what)](stage::Progress& progress) {
        return transfers.unload(what, progress);
      }));
}

Json FileVerbs::fetch(const OpenBuffer& buffer, const requests::Fetch& request) {
  const auto names = names_in(request.paths);
  if (!names) {
    return control::error_line(names.error(), 2);
  }
  const auto items = items_in(buffer, *names);
  if (!items) {
    return control::error_line(items.error());
  }
  FetchControl::Request what;
  std::set<std::uint64_t> known;  // a file may have several names
  for (const auto& item : *items) {
    if (!S_ISREG(item.attributes.st_mode) || !known.insert(item.ino).second) {
      continue;
    }
    if (item.content.remote) {
      what.files.push_back(
          {.ino = item.ino, .size = static_cast<std::uint64_t>(item.attributes.st_size)});
    } else {
      ++what.already;
    }
  }
  its_.fetches.prepare(what.files.size());
  return line_of(its_.tasks.start(
      TaskKind::fetch, headline(*names),
      [&fetches = its_.fetches, what = std::move(what)](stage::Progress& progress) {
        return fetches.fetch_files(what, progress);
      }));
}

Json FileVerbs::move(const OpenBuffer& buffer, const requests::Move& request) {
  const auto names = names_in(request.paths);
  if (!names) {
    return control::error_line(names.error(), 2);
  }
  const auto place = place_to_move_to(its_.config, buffer.backend, request.to);
  if (!place) {
    return control::error_line(place.error(), 2);
  }
  fs::Staging staging(buffer.files);
  auto paths = paths_for(*names, staging);
  if (!paths) {
    return control::error_line(paths.error());
  }
  MoveRequest what{.names = std::move(*paths), .place = *place};
  return line_of(its_.tasks.start(
      TaskKind::move, headline(*names),
      [&transfers = its_.transfers, what = std::move(what)](stage::Progress& progress) {
        return transfers.move(what, progress);
      }));
}

Json FileVerbs::wait_inputs(const requests::WaitInputs& request,
                            const control::Server::Progress& progress) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_of(request.timeout_ms);
  while (its_.buffer.use([](const OpenBuffer&) {})) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    const auto now = its_.fetches.await_background(std::clamp<std::chrono::milliseconds>(
        left, std::chrono::milliseconds(0), progress_interval));
    if (now.is_ending) {
      return control::error_line({ESHUTDOWN, "the instance is being stopped"});
    }
    if (now.is_over || left.count() <= 0) {
      replies::BackgroundInputs answer{.left = now.left, .failed = now.failed, .last_error = {}};
      if (!now.last_error.empty()) {
        answer.last_error = now.last_error;
      }
      return to_json(answer);
    }
    const std::string state = "fetching inputs: " + std::to_string(now.left) + " are left";
    if (!progress({{"state", state}})) {
      return control::error_line({EPIPE, "the client is gone"});
    }
  }
  return not_ready();
}

Result<std::vector<fs::WalkItem>> FileVerbs::items_in(const OpenBuffer& buffer,
                                                      const std::vector<std::string>& names) {
  std::vector<fs::WalkItem> items;
  fs::Staging staging(buffer.files);
  for (const auto& name : names) {
    auto found = stage::items_of(staging, name);
    if (!found) {
      return std::unexpected(found.error());
    }
    std::ranges::move(*found, std::back_inserter(items));
  }
  return items;
}

// Streams the listing, so its length is not limited. Uses no file while a slow client reads it.
Json FileVerbs::list(const requests::List& request, const control::Server::Progress& progress) {
  Result<std::vector<fs::WalkItem>> items = fail(EAGAIN);
  Json refused;
  const bool used = its_.buffer.use([&](const OpenBuffer& buffer) {
    std::vector<std::string> names{""};
    if (!request.paths.empty()) {
      auto given = names_in(request.paths);
      if (!given) {
        refused = control::error_line(given.error(), 2);
        return;
      }
      names = std::move(*given);
    }
    items = items_in(buffer, names);
  });
  if (!used) {
    return not_ready();
  }
  if (!items) {
    return refused.is_null() ? control::error_line(items.error()) : refused;
  }
  for (std::size_t at = 0; at < items->size(); at += items_per_line) {
    const auto end = std::min(items->size(), at + items_per_line);
    Json part = Json::array();
    for (std::size_t i = at; i < end; ++i) {
      const fs::WalkItem& item = (*items)[i];
      part.push_back(stage::inventory_entry(its_.config, item));
      if (item.content.remote && its_.fetches.is_fetching(item.ino)) {
        part.back()["fetching"] = true;
      }
    }
    if (!progress({{"items", std::move(part)}, {"backends", its_.config.backends.size()}})) {
      return control::error_line({EPIPE, "the client is gone"});
    }
  }
  return to_json(replies::Counted{.count = items->size()});
}

Json FileVerbs::explain(const OpenBuffer& buffer, const requests::Explain& request) {
  const auto name = stage::buffer_name(its_.config, request.path);
  if (!name) {
    return control::error_line(name.error(), 2);
  }
  fs::Staging staging(buffer.files);
  const auto item = staging.find(*name);
  const bool several = buffer.backend.places() > 1;
  const unsigned place = item ? item->content.place : 0;
  const std::string where =
      several ? its_.config.backends.at(place).id + " " + buffer.backend.at(place).description()
              : buffer.backend.description();
  Json answer = stage::explain(its_.config, *name, staging, stage::posix_pfs(), where);
  if (item && item->content.remote && its_.fetches.is_fetching(item->ino)) {
    answer["fetching"] = true;
    answer["text"] = answer.value("text", "") + "               it is being fetched now\n";
  }
  return control::result_line(std::move(answer));
}

// Changes all names or none: all lookups come before the first change.
Json FileVerbs::set(const OpenBuffer& buffer, const requests::Set& request) {
  const auto names = names_in(request.paths);
  if (!names) {
    return control::error_line(names.error(), 2);
  }
  const auto keep = class_of(request.file_class);
  if (!keep) {
    return control::error_line(keep.error(), 2);
  }
  if (*keep == fs::Keep::persistent && its_.config.results_dir.empty()) {
    return control::error_line(
        {EINVAL, "the job file names no results-dir: nothing can be persistent"});
  }
  fs::Staging staging(buffer.files);
  const auto paths = paths_for(*names, staging);
  if (!paths) {
    return control::error_line(paths.error());
  }
  for (const auto& path : *paths) {
    if (const Status done = staging.set_keep(path, *keep); !done) {
      return control::error_line(done.error());
    }
  }
  return to_json(replies::Counted{.count = paths->size()});
}

// A file that has lost its name meanwhile is left out.
Json FileVerbs::pin(const OpenBuffer& buffer, const requests::Pin& request) {
  const auto names = names_in(request.paths);
  if (!names) {
    return control::error_line(names.error(), 2);
  }
  const auto items = items_in(buffer, *names);
  if (!items) {
    return control::error_line(items.error());
  }
  fs::Staging staging(buffer.files);
  std::set<std::uint64_t> files;  // a file may have several names
  for (const auto& item : *items) {
    if (!S_ISREG(item.attributes.st_mode) || files.contains(item.ino)) {
      continue;
    }
    const Status done = item.content.pinned == request.pinned
                            ? Status()
                            : staging.set_pinned(item.path, request.pinned);
    if (!done && done.error().code != ENOENT) {
      return control::error_line({done.error().code, item.path + ": " + describe(done.error())});
    }
    if (done) {
      files.insert(item.ino);
    }
  }
  return to_json(replies::Counted{.count = files.size()});
}

Json FileVerbs::wait_task(const requests::WaitTask& request,
                          const control::Server::Progress& progress) {
  const std::uint64_t id = request.task;
  const auto deadline = std::chrono::steady_clock::now() + timeout_of(request.timeout_ms);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    const auto ended =
        its_.tasks.wait(id, std::clamp<std::chrono::milliseconds>(
                                left, std::chrono::milliseconds(0), progress_interval));
    if (!ended) {
      return control::error_line(ended.error());
    }
    auto seen = its_.tasks.look(id);
    if (!seen) {
      return control::error_line(seen.error());
    }
    its_.status.add_turn(*seen);
    // The request itself succeeds in any case. The outcome tells whether the task succeeded.
    if (*ended || left.count() <= 0) {
      return control::result_line(to_json(*seen));
    }
    seen->state = seen->kind + " " + seen->task_state;
    if (!progress(to_json(*seen))) {
      return control::error_line({EPIPE, "the client is gone"});
    }
  }
}

}  // namespace efs::daemon
