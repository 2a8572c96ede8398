// SPDX-License-Identifier: BSD-3-Clause
// The control verbs for files while programs run: load, unload, wait-task, cancel, ls, explain,
// set.
#include <algorithm>

#include "base/text.hpp"
#include "daemon/instance.hpp"
#include "daemon/requests.hpp"
#include "fs/staging.hpp"
#include "stage/live/inventory.hpp"
#include "stage/live/load.hpp"
#include "stage/live/names.hpp"
#include "stage/live/unload.hpp"
#include "stage/options.hpp"

namespace efs::daemon {
namespace {

using control::Json;
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

Json outcome_of(const stage::LoadReport& report) {
  if (report.ok()) {
    return control::result_line({{"files", report.files},
                                 {"already", report.already},
                                 {"bytes", report.bytes},
                                 {"seconds", report.seconds}});
  }
  Error error = report.failure->error;
  error.what = describe(error);
  if (!report.failure->path.empty()) {
    error.what = report.failure->path + ": " + error.what;
  }
  return control::error_line(error);
}

Json outcome_of(const stage::Receipt& receipt, bool cancelled) {
  const int exit = stage::exit_code(receipt);
  Json line = exit == 0 ? control::result_line()
                        : control::error_line({cancelled ? ECANCELED : stage::error_code(receipt),
                                               stage::describe_unload(receipt), true},
                                              exit);
  line["summary"] = stage::describe_unload(receipt);
  line["receipt"] = stage::to_json(receipt);
  return line;
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

}  // namespace

Json Instance::handle_files(const std::string& verb, const Json& request,
                            const control::Server::Progress& progress) {
  if (verb == requests::WaitTask::verb) {
    return handle_wait_task(requests::from_json<requests::WaitTask>(request), progress);
  }
  if (verb == requests::Cancel::verb) {
    return handle_cancel(requests::from_json<requests::Cancel>(request));
  }
  if (verb == requests::List::verb) {
    return handle_ls(requests::from_json<requests::List>(request), progress);
  }
  const ReadLock using_files(files_in_use_);
  if (!ready_ || !filesystem_) {
    return control::error_line({EAGAIN, "the instance is not ready, or has ended; see efs status"});
  }
  if (verb == requests::Load::verb) {
    return handle_load(requests::from_json<requests::Load>(request));
  }
  if (verb == requests::Unload::verb) {
    return handle_unload(requests::from_json<requests::Unload>(request));
  }
  if (verb == requests::Explain::verb) {
    return handle_explain(requests::from_json<requests::Explain>(request));
  }
  if (verb == requests::Set::verb) {
    return handle_set(requests::from_json<requests::Set>(request));
  }
  if (verb == requests::Limit::verb) {
    return limits_.change(requests::from_json<requests::Limit>(request),
                          [this](fuse::Limited what) { session_->rate_changed(what); });
  }
  return control::error_line({EINVAL, "unknown verb \"" + verb.substr(0, 100) + "\""}, 2);
}

// Converts the paths of a request to names in the buffer.
Result<std::vector<std::string>> Instance::names_in(const std::vector<std::string>& paths) const {
  EFS_TRY(check_paths(paths));
  std::vector<std::string> names;
  for (const auto& path : paths) {
    auto name = stage::buffer_name(options_.config, path);
    if (!name) {
      return std::unexpected(name.error());
    }
    names.push_back(std::move(*name));
  }
  return names;
}

Json Instance::handle_load(const requests::Load& request) {
  auto names = names_in(request.paths);
  if (!names) {
    return control::error_line(names.error(), 2);
  }
  if (const Status known = check_backend(options_.config, request.backend); !known) {
    return control::error_line(known.error(), 2);
  }
  auto what = load_of(request, std::move(*names));
  if (!what) {
    return control::error_line(what.error(), 2);
  }
  std::string text = headline(what->names);
  const auto id = tasks_->start(
      TaskKind::load, std::move(text), [this, what = std::move(*what)](stage::Progress& progress) {
        fs::Staging staging(*filesystem_);
        stage::PacedPfs pfs = paced_pfs(progress.cancel);
        std::optional<SlotClient::Held> turn;
        stage::Options how = stage_options();
        how.beside_programs = true;
        how.wait_for_turn = turn_for(queue::Direction::in, progress, turn, {});
        return outcome_of(stage::load({.config = options_.config,
                                       .staging = staging,
                                       .pfs = pfs,
                                       .options = how,
                                       .progress = progress},
                                      what));
      });
  return id ? control::result_line({{"task", *id}}) : control::error_line(id.error());
}

Json Instance::handle_unload(const requests::Unload& request) {
  auto names = names_in(request.paths);
  if (!names) {
    return control::error_line(names.error(), 2);
  }
  if (const Status known = check_backend(options_.config, request.backend); !known) {
    return control::error_line(known.error(), 2);
  }
  if (options_.config.results_dir.empty()) {
    return control::error_line(
        {EINVAL, "the job file names no results-dir: nothing can be unloaded"}, 2);
  }
  auto what = unload_of(request, std::move(*names));
  if (!what) {
    return control::error_line(what.error(), 2);
  }
  std::string text = headline(what->names);
  const auto id = tasks_->start(TaskKind::unload, std::move(text),
                                [this, what = std::move(*what)](stage::Progress& progress) {
                                  return unload_now(what, progress, {});
                                });
  return id ? control::result_line({{"task", *id}}) : control::error_line(id.error());
}

// With a deadline, exports in the order of the job file.
Json Instance::unload_now(const stage::UnloadRequest& what, stage::Progress& progress,
                          const SlotLimits& limits) {
  fs::Staging staging(*filesystem_);
  stage::PacedPfs pfs = paced_pfs(progress.cancel, results_pfs());
  std::optional<SlotClient::Held> turn;
  stage::Options how = stage_options();
  how.beside_programs = !limits.end;
  how.by_rank = limits.end.has_value();
  how.wait_for_turn = turn_for(queue::Direction::out, progress, turn, limits);
  stage::Receipt receipt = stage::unload({.config = options_.config,
                                          .staging = staging,
                                          .pfs = pfs,
                                          .options = how,
                                          .progress = progress},
                                         what);
  receipt.retries = pfs.retried();
  if (stage::exit_code(receipt) != 0) {
    may_have_left_partials_ = true;
  }
  unloaded_.remember(receipt);
  return outcome_of(receipt, progress.cancel);
}

// For a task, which holds its turn until it ends.
std::function<Status(std::uint64_t)> Instance::turn_for(queue::Direction direction,
                                                        const stage::Progress& progress,
                                                        std::optional<SlotClient::Held>& turn,
                                                        SlotLimits limits) {
  return [this, direction, &progress, &turn, limits](std::uint64_t bytes) -> Status {
    auto taken = turns_.take(direction, bytes, progress, limits);
    if (!taken) {
      return std::unexpected(taken.error());
    }
    turn.emplace(std::move(*taken));
    return {};
  };
}

// Streams the listing, so its length is not limited. Holds no lock while a slow client reads it.
Json Instance::handle_ls(const requests::List& request, const control::Server::Progress& progress) {
  std::vector<fs::WalkItem> items;
  {
    const ReadLock using_files(files_in_use_);
    if (!ready_ || !filesystem_) {
      return control::error_line(
          {EAGAIN, "the instance is not ready, or has ended; see efs status"});
    }
    std::vector<std::string> names{""};
    if (!request.paths.empty()) {
      auto given = names_in(request.paths);
      if (!given) {
        return control::error_line(given.error(), 2);
      }
      names = std::move(*given);
    }
    fs::Staging staging(*filesystem_);
    for (const auto& name : names) {
      auto found = stage::items_of(staging, name);
      if (!found) {
        return control::error_line(found.error());
      }
      std::ranges::move(*found, std::back_inserter(items));
    }
  }
  for (std::size_t at = 0; at < items.size(); at += items_per_line) {
    const auto end = std::min(items.size(), at + items_per_line);
    Json part = Json::array();
    for (std::size_t i = at; i < end; ++i) {
      part.push_back(stage::inventory_entry(options_.config, items[i]));
    }
    if (!progress({{"items", std::move(part)}})) {
      return control::error_line({EPIPE, "the client is gone"});
    }
  }
  return control::result_line({{"count", items.size()}});
}

Json Instance::handle_explain(const requests::Explain& request) {
  const auto name = stage::buffer_name(options_.config, request.path);
  if (!name) {
    return control::error_line(name.error(), 2);
  }
  fs::Staging staging(*filesystem_);
  const auto item = staging.find(*name);
  const bool several = store_.backend->places() > 1;
  const unsigned place = item ? item->place : 0;
  const std::string where = several ? options_.config.backends.at(place).id + " " +
                                          store_.backend->at(place).description()
                                    : store_.backend->description();
  return control::result_line(
      stage::explain(options_.config, *name, staging, stage::posix_pfs(), where));
}

// Changes all names or none: all lookups come before the first change.
Json Instance::handle_set(const requests::Set& request) {
  const auto names = names_in(request.paths);
  if (!names) {
    return control::error_line(names.error(), 2);
  }
  const auto keep = class_of(request.file_class);
  if (!keep) {
    return control::error_line(keep.error(), 2);
  }
  if (*keep == fs::Keep::persistent && options_.config.results_dir.empty()) {
    return control::error_line(
        {EINVAL, "the job file names no results-dir: nothing can be persistent"});
  }
  fs::Staging staging(*filesystem_);
  const auto paths = paths_for(*names, staging);
  if (!paths) {
    return control::error_line(paths.error());
  }
  for (const auto& path : *paths) {
    if (const Status done = staging.set_keep(path, *keep); !done) {
      return control::error_line(done.error());
    }
  }
  return control::result_line({{"count", paths->size()}});
}

Json Instance::handle_wait_task(const requests::WaitTask& request,
                                const control::Server::Progress& progress) {
  const std::uint64_t id = request.task;
  const auto deadline = std::chrono::steady_clock::now() + timeout_of(request);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    const auto ended = tasks_->wait(id, std::clamp<std::chrono::milliseconds>(
                                            left, std::chrono::milliseconds(0), progress_interval));
    if (!ended) {
      return control::error_line(ended.error());
    }
    auto seen = tasks_->look(id);
    if (!seen) {
      return control::error_line(seen.error());
    }
    tell_turn(*seen);
    // The request itself succeeds in any case. The outcome tells whether the task succeeded.
    if (*ended || left.count() <= 0) {
      return control::result_line(std::move(*seen));
    }
    (*seen)["state"] =
        (*seen)["kind"].get<std::string>() + " " + (*seen)["task_state"].get<std::string>();
    if (!progress(std::move(*seen))) {
      return control::error_line({EPIPE, "the client is gone"});
    }
  }
}

Json Instance::handle_cancel(const requests::Cancel& request) {
  const Status done = tasks_->cancel(request.task);
  return done ? control::result_line() : control::error_line(done.error());
}

}  // namespace efs::daemon
