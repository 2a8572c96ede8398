// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/result_batches.hpp"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "stage/copy/strided_order.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::stage {
namespace {

// few batches: each costs two commits of the PFS' journal
constexpr std::size_t batch_files = 131072;
// such files are synced by their own thread as soon as they are written
constexpr std::uint64_t fsync_from = 8U << 20U;
// from so many other files of a batch on, one syncfs for all; it also waits for other users' data
constexpr std::size_t syncfs_from = 16;
constexpr std::size_t most_files = 64;
constexpr std::uint64_t most_bytes = 8U << 20U;

/// An exception of `work` fails the results of the task.
void guarded(std::span<Outgoing> task, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& exception) {
    for (auto& out : task) {
      if (out.is<outgoing::Settled>()) {
        continue;
      }
      const bool is_named = out.is<outgoing::Named>();
      out.settle(Action::failed, exception.what()).partial_left = !is_named;
    }
  }
}

}  // namespace

std::span<Outgoing> ResultBatches::take_batch(std::span<Outgoing>& rest) const {
  // With a deadline, the first results must be whole before the next begin.
  const std::uint64_t most = options_.by_rank ? options_.batch_bytes / 8 : options_.batch_bytes;
  std::size_t count = 0;
  for (std::uint64_t bytes = 0; count < rest.size() && count < batch_files && bytes < most;
       ++count) {
    bytes += rest[count].data;
  }
  const auto batch = rest.first(count);
  rest = rest.subspan(count);
  return batch;
}

void ResultBatches::run(std::span<Outgoing> results) {
  for (auto rest = results; !rest.empty();) {
    run_batch(take_batch(rest));
    // With a deadline, no time may be left after the last batch.
    if (options_.by_rank && !rest.empty()) {
      finish_held(results.first(results.size() - rest.size()));
    }
  }
}

/// Tries these results again.
void ResultBatches::finish_held(std::span<Outgoing> results) {
  std::vector<Outgoing*> held;
  for (auto& out : results) {
    if (out.is<outgoing::Written>()) {
      held.push_back(&out);
    }
  }
  if (!held.empty()) {
    finish(held, true);
  }
}

void ResultBatches::run_batch(std::span<Outgoing> batch) {
  // An exception between the tasks leaves no partial either.
  guarded(batch, [&] {
    choose_durability(batch);
    in_tasks(batch, [this](std::span<Outgoing> task) { writer_.write(task); });
    sync_partials(batch);
    if (reads_back_) {
      in_tasks(batch, [this](std::span<Outgoing> task) { writer_.verify(task); });
    }
    secure(batch);
    in_tasks(batch, [this](std::span<Outgoing> task) { publisher_.publish(task); });
  });
  writer_.remove_partials(batch);
  progress_.files_done += batch.size();
  guarded(batch, [&] {
    show_sets(batch);
    show_directories(batch);
  });
  writer_.remove_partials(batch);
  sync_names(batch);
}

/// The results of the batch that are in hidden directories, by directory.
std::map<std::string, std::vector<Outgoing*>> ResultBatches::by_hidden_directory(
    std::span<Outgoing> batch) const {
  std::map<std::string, std::vector<Outgoing*>> hidden;
  for (auto rest = batch; !rest.empty();) {
    std::string path = parent_of(rest.front().item->path);
    const auto end = std::ranges::find_if_not(
        rest, [&](const Outgoing& out) { return parent_view(out.item->path) == path; });
    const auto neighbours = rest.first(static_cast<std::size_t>(end - rest.begin()));
    rest = rest.subspan(neighbours.size());
    if (!tree_.is_hidden(path)) {
      continue;
    }
    auto& all = hidden[std::move(path)];
    for (auto& out : neighbours) {
      all.push_back(&out);
    }
  }
  return hidden;
}

/// Shows the sets (Options::sets) that are whole, and removes all of the others.
void ResultBatches::show_sets(std::span<Outgoing> batch) {
  for (const auto& path : options_.sets) {
    if (!tree_.is_hidden(path)) {
      continue;
    }
    std::vector<Outgoing*> results;
    for (auto& out : batch) {
      if (out.item->path.starts_with(path + "/")) {
        results.push_back(&out);
      }
    }
    if (const Status shown = show_set(path, results); !shown) {
      fail_set(path, results, shown.error());
    }
  }
}

/// The names in the directory are durable before it gets its own.
Status ResultBatches::show_set(const std::string& path, std::span<Outgoing* const> results) {
  std::set<std::string> directories{path};
  if (results.empty()) {
    return fail(ECANCELED, "there is nothing in it");
  }
  for (const auto* out : results) {
    const bool is_there =
        out->is<outgoing::Named>() || (out->straight && out->is<outgoing::Written>());
    if (!is_there || !out->held().empty()) {
      return fail(out->entry.code != 0 ? out->entry.code : ECANCELED,
                  out->item->path + " did not go" +
                      (out->entry.reason.empty() ? "" : ": " + out->entry.reason));
    }
    for (std::string above = parent_of(out->item->path); above != path; above = parent_of(above)) {
      directories.insert(above);
    }
  }
  EFS_TRY(tree_.sync(directories));
  EFS_TRY(tree_.show(path));
  for (auto* out : results) {
    if (std::exchange(out->straight, false) && out->is<outgoing::Written>()) {
      out->state = outgoing::Named{};
    }
  }
  return {};
}

void ResultBatches::fail_set(const std::string& path, std::span<Outgoing* const> results,
                             const Error& error) {
  for (auto* out : results) {
    out->straight = out->straight || out->is<outgoing::Named>();  // by its real name
    if (!out->is<outgoing::Settled>() || out->partial_left()) {
      writer_.remove_written(*out);
    }
    out->straight = false;
    out->settle(Action::failed, "its directory goes whole or not at all: " + describe(error));
    out->entry.code = error.code;
  }
  tree_.discard(path);
}

/// Shows the hidden directories of the batch. (Failed results in them must be removed before,
/// because they already have their real names.)
void ResultBatches::show_directories(std::span<Outgoing> batch) {
  for (const auto& [path, results] : by_hidden_directory(batch)) {
    const bool is_clean = std::ranges::none_of(
        results, [](const Outgoing* out) { return out->straight && out->partial_left(); });
    const Status shown = is_clean ? tree_.show(path)
                                  : fail(ENOTEMPTY, "incomplete files in it could not be removed");
    if (!shown) {
      log::warn(
          "event=directory_not_shown path=\"{}\" reason=\"{}\" note=\"its files are written once "
          "more, one by one\"",
          path, describe(shown.error()));
      write_openly(path, results);
      continue;
    }
    for (auto* out : results) {
      if (std::exchange(out->straight, false) && out->is<outgoing::Written>()) {
        out->state = outgoing::Named{};
      }
    }
  }
}

/// Writes each result with its own partial, in a directory that another process may have made
/// meanwhile.
void ResultBatches::write_openly(const std::string& path, std::span<Outgoing* const> results) {
  std::vector<Outgoing*> again;
  for (auto* out : results) {
    if (out->is<outgoing::Settled>()) {
      continue;
    }
    if (out->is<outgoing::Named>()) {
      out->straight = true;
    }
    writer_.remove_written(*out);
    again.push_back(out);
  }
  const Status made = tree_.unhide(path);
  for (auto* out : results) {
    out->straight = false;
  }
  for (auto* out : again) {
    if (!made) {
      failures_.fail_result(*out, made.error());
      continue;
    }
    progress_.bytes_done -= out->data;
    --progress_.files_done;  // the batch counts it
    try_again(*out, nullptr);
  }
}

void ResultBatches::try_again(Outgoing& out, const Outgoing* first) {
  out.state = outgoing::Waiting{};
  out.fsync = true;
  out.entry.code = 0;
  const std::string before = std::exchange(out.entry.reason, {});
  const std::span<Outgoing> one(&out, 1);
  guarded(one, [&] {
    if (first != nullptr && publisher_.link(out, *first)) {
      return;
    }
    writer_.write(one);
    if (reads_back_) {
      writer_.verify(one);
    }
    secure(one);
    publisher_.publish(one);
  });
  writer_.remove_partials(one);
  sync_names(one);
  const bool is_out = out.entry.action == Action::staged_out || out.entry.action == Action::kept;
  // its remainder still exists
  if (!is_out && before.contains(out.partial) && !out.entry.reason.contains(out.partial)) {
    out.entry.reason += "; before: " + before;
  }
  ++progress_.files_done;
}

void ResultBatches::choose_durability(std::span<Outgoing> batch) {
  const auto is_small = [](const Outgoing& out) {
    return out.data < fsync_from;
  };
  const auto small = static_cast<std::size_t>(std::ranges::count_if(batch, is_small));
  const bool each = small < syncfs_from || !tree_.sync_all_reports_errors();
  for (auto& out : batch) {
    out.fsync = each || !is_small(out);
  }
}

/// Runs `work` over the batch in parallel, in pieces of consecutive results. An exception fails the
/// results of its piece.
void ResultBatches::in_tasks(std::span<Outgoing> batch,
                             const std::function<void(std::span<Outgoing>)>& work) {
  std::vector<std::span<Outgoing>> tasks;
  // Several pieces for each thread: a pool that waits for the PFS grows after the first pieces.
  const std::size_t most = std::clamp<std::size_t>(
      batch.size() / (std::size_t{16} * WorkerPool::automatic_most), 1, most_files);
  while (!batch.empty()) {
    std::size_t count = 0;
    for (std::uint64_t bytes = 0; count < batch.size() && count < most && bytes < most_bytes;
         ++count) {
      bytes += batch[count].data;
    }
    tasks.push_back(batch.first(count));
    batch = batch.subspan(count);
  }
  // A directory accepts one new name at a time. Concurrent threads should work in different
  // directories.
  if (!options_.by_rank) {
    tasks = strided_order(tasks, WorkerPool::automatic_most);
  }
  pool_.run(tasks.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (const auto task : std::span(tasks).subspan(begin, end - begin)) {
      guarded(task, [&] { work(task); });
    }
  });
}

/// Step 2 for results without an fsync of their own. results-dir was opened before the writes, so
/// syncfs reports an error of their write-back. The error does not name a file, so it fails all of
/// them.
void ResultBatches::sync_partials(std::span<Outgoing> batch) {
  const auto waits = [](const Outgoing& out) {
    return out.is<outgoing::Written>() && !out.fsync;
  };
  if (std::ranges::none_of(batch, waits)) {
    return;
  }
  auto synced = tree_.sync_all();
  if (synced) {
    return;
  }
  for (auto& out : batch) {
    if (!waits(out)) {
      continue;
    }
    const Error error{synced.error().code, "making it durable: " + describe(synced.error())};
    failures_.fail_result(out, error).partial_left = true;
  }
}

/// With a deadline the stage-out does not wait here: the buffer's disk could use up the time.
void ResultBatches::secure(std::span<const Outgoing> batch) {
  std::vector<std::uint64_t> written;
  for (const auto& out : batch) {
    if (out.is<outgoing::Written>() && S_ISREG(out.item->attributes.st_mode)) {
      written.push_back(out.item->ino);
    }
  }
  if (const Status secured = options_.by_rank ? Status() : buffer_.secure(written); !secured) {
    log::warn(
        "event=buffer_not_secured files={} reason=\"{}\" note=\"exported results are good; after "
        "power loss the buffer may have less\"",
        written.size(), describe(secured.error()));
  }
}

template <typename Results>
void ResultBatches::sync_names_of(const Results& results) {
  std::set<std::string> directories;
  for (const Outgoing& out : results) {
    if (out.is<outgoing::Named>()) {
      directories.insert(parent_of(out.item->path));
    }
  }
  const Status synced = tree_.sync_with_made(directories);
  // if that fails, the records of these exports may not survive power loss
  if (options_.placed != nullptr && !directories.empty()) {
    (void)options_.placed->sync();
  }
  const std::string doubt = !synced ? describe(synced.error()) : directories_.not_durable();
  for (Outgoing& out : results) {
    const auto* named = std::get_if<outgoing::Named>(&out.state);
    if (named == nullptr) {
      continue;
    }
    if (doubt.empty()) {
      out.settle(named->there_already ? Action::kept : Action::staged_out,
                 std::move(out.entry.reason));
    } else {
      out.settle(Action::failed,
                 "it is there and whole, but its name may not survive a crash: " + doubt);
    }
  }
}

void ResultBatches::sync_names(std::span<Outgoing> batch) {
  sync_names_of(batch);
}

void ResultBatches::finish(std::span<Outgoing* const> held, bool goes_on) {
  pool_.run(held.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (auto* out : held.subspan(begin, end - begin)) {
      const std::span<Outgoing> one(out, 1);
      guarded(one, [&] {
        publisher_.publish(one);
        if (!goes_on && !out->held().empty()) {
          failures_.fail_held(*out);
        }
      });
      writer_.remove_partials(one);
    }
  });
  sync_names_of(held | std::views::transform([](Outgoing* out) -> Outgoing& { return *out; }));
}

}  // namespace efs::stage
