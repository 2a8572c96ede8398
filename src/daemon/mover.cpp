// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/mover.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <iterator>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"

namespace efs::daemon {
namespace {

constexpr int lower_priority = 15;  // as of Tasks: a thirtieth of a program's weight
constexpr unsigned near_high = 5;   // percent: a tier is nearly full
// of one call: between two calls the rate is kept, and a stop ends the moves
constexpr std::size_t most_files = 64;
constexpr std::uint64_t most_bytes = 64U << 20;
constexpr unsigned generation = 256;  // looks until a file that is not seen is forgotten

Nanoseconds monotonic() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             Mover::Clock::now().time_since_epoch())
      .count();
}

/// Whether a program was there. The file is tried again.
bool is_usual(int code) {
  return code == EBUSY || code == ESTALE || code == ENOENT;
}

std::size_t same_way(std::span<const TierMove> moves) {
  const auto end = std::ranges::find_if(moves, [&](const TierMove& move) {
    return move.from != moves.front().from || move.to != moves.front().to;
  });
  return static_cast<std::size_t>(end - moves.begin());
}

std::size_t batch_of(std::span<const TierMove> moves) {
  std::uint64_t bytes = moves.front().bytes;
  std::size_t count = 1;
  while (count < std::min(moves.size(), most_files) && bytes + moves[count].bytes <= most_bytes) {
    bytes += moves[count++].bytes;
  }
  return count;
}

std::uint64_t bytes_of(std::span<const TierMove> moves) {
  std::uint64_t bytes = 0;
  for (const auto& move : moves) {
    bytes += move.bytes;
  }
  return bytes;
}

bool gives_any(const std::vector<std::uint64_t>& bytes) {
  return std::ranges::any_of(bytes, [](std::uint64_t some) { return some > 0; });
}

Mover::Clock::duration rest_after(Mover::Clock::time_point begin) {
  return std::max<Mover::Clock::duration>(10 * (Mover::Clock::now() - begin), Mover::rest);
}

}  // namespace

Mover::Mover(Parts parts)
    : its_(parts),
      rules_(its_.config.tiers),
      figures_(its_.figures != nullptr ? *its_.figures : own_figures_),
      rate_(rules_.max_rate),
      seen_(rules_.order.size()) {}

Mover::~Mover() {
  end();
}

void Mover::begin() {
  const MutexLock lock(mutex_);
  progress_.cancel = false;
  auto thread = start_thread([this] { work(); });
  if (!thread) {
    log::warn("event=tiers_off reason=\"{}\"", describe(thread.error()));
    return;
  }
  serves_ = true;
  thread_ = std::move(*thread);
}

void Mover::end() {
  std::jthread ended;  // joined without the lock
  const MutexLock lock(mutex_);
  serves_ = false;
  progress_.cancel = true;
  changed_.notify_all();
  ended = std::move(thread_);
}

void Mover::work() noexcept {
  ::setpriority(PRIO_PROCESS, 0, lower_priority);
  mutex_.lock();
  while (serves_) {
    mutex_.unlock();
    const auto pause = round();
    mutex_.lock();
    const auto until = Clock::now() + pause;
    while (serves_ && changed_.wait_until(mutex_, until)) {
    }
  }
  mutex_.unlock();
}

Mover::Clock::duration Mover::round() noexcept try {
  return look_and_move();
} catch (const std::exception&) {  // no memory: tried again after a rest

  return longest_rest;
}

Mover::Clock::duration Mover::look_and_move() {
  const auto begin = Clock::now();
  std::vector<Tier> tiers = look();
  std::erase_if(left_alone_, [&](const auto& one) { return one.second <= begin; });
  is_vain_ = false;
  const auto bytes = bytes_down(rules_, tiers);
  if (gives_any(bytes)) {
    go_down(tiers, bytes);
  } else {
    set_error(0, "");
  }
  const bool may_go_up = is_vain_ ? is_below_low(tiers.front()) : !gives_any(bytes);
  if (rules_.promote == config::Promote::on_open && may_go_up && begin >= next_look_up_) {
    go_up(tiers);
    next_look_up_ = Clock::now() + rest_after(begin);
  }
  if (is_vain_) {
    return rest_after(begin);
  }
  // A look at all files takes the namespace's lock.
  const Clock::duration took = Clock::now() - begin;
  return std::max<Clock::duration>(took, is_any_near(tiers) ? look_if_scarce : look_if_ample);
}

bool Mover::is_below_low(const Tier& tier) const {
  return used_of(tier.space) <= level_of(tier.space, rules_.low);
}

// Programs fill and empty the tiers while a plan is carried out.
bool Mover::is_still_wanted(const TierMove& move) const {
  const std::vector<Tier> tiers = look();
  if (move.to < move.from) {
    return is_below_low(tiers[move.to]) && !gives_any(bytes_down(rules_, tiers));
  }
  const bool is_last = move.to + 1 == tiers.size();
  return bytes_down(rules_, tiers)[move.from] > 0 &&
         (is_last || used_of(tiers[move.to].space) <= level_of(tiers[move.to].space, rules_.high));
}

bool Mover::is_any_near(std::span<const Tier> tiers) const {
  const unsigned near = rules_.high - std::min(near_high, rules_.high);
  const auto above = tiers.first(tiers.size() - 1);
  return std::ranges::any_of(
      above, [&](const Tier& tier) { return used_of(tier.space) > level_of(tier.space, near); });
}

std::vector<Tier> Mover::look() const {
  std::vector<Tier> tiers;
  for (std::size_t tier = 0; tier < rules_.order.size(); ++tier) {
    tiers.push_back({.space = its_.transfers.space_of(place_of(tier))});
  }
  return tiers;
}

std::vector<MoveCandidate> Mover::files_in(std::size_t tier) {
  auto files = its_.transfers.move_candidates(place_of(tier));
  std::erase_if(files, [&](const MoveCandidate& file) { return left_alone_.contains(file.ino); });
  return files;
}

void Mover::go_down(std::vector<Tier>& tiers, const std::vector<std::uint64_t>& bytes) {
  std::size_t first = tiers.size();
  for (std::size_t tier = tiers.size(); tier-- > 0;) {
    if (bytes[tier] > 0) {
      tiers[tier].files = files_in(tier);
      first = tier;
    }
  }
  const auto moves = moves_down(rules_, tiers);
  is_vain_ = carry_out(moves) == 0;
  if (!is_vain_) {
    failure_.clear();
  }
  const char* const usual = moves.empty() ? "no lower tier has room for a file of it that may move"
                                          : "programs use its files";
  set_error(first, !is_vain_ ? "" : failure_.empty() ? usual : failure_);
}

void Mover::go_up(std::vector<Tier>& tiers) {
  for (std::size_t tier = 1; tier < tiers.size(); ++tier) {
    tiers[tier].files = files_in(tier);
    note_seen(tier, tiers[tier].files);
  }
  if (++looks_ % generation == 0) {
    for (auto& seen : seen_) {
      seen.before = std::exchange(seen.now, {});
    }
  }
  const auto moves = moves_up(rules_, tiers);
  (void)carry_out(moves);
  forget(moves);
}

void Mover::note_seen(std::size_t tier, std::vector<MoveCandidate>& files) {
  Seen& seen = seen_[tier];
  std::vector<std::uint64_t> here;
  for (auto& file : files) {
    file.was_used = file.was_used && (std::ranges::binary_search(seen.now, file.ino) ||
                                      std::ranges::binary_search(seen.before, file.ino));
    here.push_back(file.ino);
  }
  std::ranges::sort(here);
  std::vector<std::uint64_t> all;
  std::ranges::set_union(seen.now, here, std::back_inserter(all));
  seen.now = std::move(all);
}

// A file that comes to the tier again was not opened there.
void Mover::forget(std::span<const TierMove> moves) {
  for (const auto& move : moves) {
    std::erase(seen_[move.from].now, move.ino);
    std::erase(seen_[move.from].before, move.ino);
  }
}

std::uint64_t Mover::carry_out(std::span<const TierMove> moves) {
  std::uint64_t moved = 0;
  while (!moves.empty() && !progress_.cancel) {
    const std::size_t count = same_way(moves);
    moved += move_group(moves.first(count));
    moves = moves.subspan(count);
  }
  return moved;
}

std::uint64_t Mover::move_group(std::span<const TierMove> moves) {
  const std::size_t from = moves.front().from, to = moves.front().to;
  const KeptTier& out = figures_.tiers.at(from);
  const std::uint64_t bytes_before = out.out_bytes;
  std::uint64_t moved = 0;
  while (!moves.empty() && wait_for_rate(bytes_of(moves.first(batch_of(moves)))) &&
         (moved == 0 || is_still_wanted(moves.front()))) {
    const std::size_t count = batch_of(moves);
    moved += move_batch(moves.first(count));
    moves = moves.subspan(count);
  }
  if (moved > 0) {
    is_told_ = false;
    log::info("event=move from={} to={} files={} bytes={}", printable(id_of(from)),
              printable(id_of(to)), moved, out.out_bytes - bytes_before);
  }
  return moved;
}

std::uint64_t Mover::move_batch(std::span<const TierMove> moves) {
  std::vector<std::string> paths;
  for (const auto& move : moves) {
    paths.push_back(move.path);
  }
  const stage::Moves done = its_.transfers.move_files(paths, place_of(moves.front().to), progress_);
  KeptTier &from = figures_.tiers.at(moves.front().from), &to = figures_.tiers.at(moves.front().to);
  from.out_files += done.files, from.out_bytes += done.bytes;
  to.in_files += done.files, to.in_bytes += done.bytes;
  note_failures(moves, done);
  return done.files;
}

// A program that has a file open is no failure; the file is left alone all the same.
void Mover::note_failures(std::span<const TierMove> moves, const stage::Moves& done) {
  const auto until = Clock::now() + patience;
  for (const auto& failed : done.failed) {
    if (failed.error.code == ECANCELED) {
      continue;
    }
    if (const auto move = std::ranges::find(moves, failed.path, &TierMove::path);
        move != moves.end()) {
      left_alone_[move->ino] = until;
    }
    if (is_usual(failed.error.code)) {
      continue;
    }
    failure_ = failed.path + ": " + describe(failed.error);
    if (!std::exchange(is_told_, true)) {
      log::warn("event=move_failed path=\"{}\" to={} reason=\"{}\"", printable(failed.path),
                printable(id_of(moves.front().to)), printable(describe(failed.error)));
    }
  }
}

// False at the end.
bool Mover::wait_for_rate(std::uint64_t bytes) {
  const auto until = Clock::now() + std::chrono::nanoseconds(
                                        rules_.max_rate == 0 ? 0 : rate_.take(bytes, monotonic()));
  const MutexLock lock(mutex_);
  while (serves_ && Clock::now() < until) {
    (void)changed_.wait_until(mutex_, until);
  }
  return serves_;
}

void Mover::set_error(std::size_t tier, std::string why) {
  const MutexLock lock(mutex_);
  failing_ = tier;
  why_ = std::move(why);
}

const std::string& Mover::id_of(std::size_t tier) const {
  return its_.config.backends.at(rules_.order.at(tier)).id;
}

unsigned Mover::place_of(std::size_t tier) const {
  return static_cast<unsigned>(rules_.order.at(tier));
}

void Mover::add_status(control::replies::Status& status) {
  const auto backends =
      status.store ? status.store->backends : std::vector<control::replies::BackendFigures>();
  const MutexLock lock(mutex_);
  for (std::size_t tier = 0; tier < rules_.order.size(); ++tier) {
    const KeptTier& kept = figures_.tiers.at(tier);
    control::replies::TierFigures one{.id = id_of(tier),
                                      .moved_in = kept.in_files,
                                      .moved_in_bytes = kept.in_bytes,
                                      .moved_out = kept.out_files,
                                      .moved_out_bytes = kept.out_bytes};
    if (rules_.order[tier] < backends.size()) {
      const auto& its = backends[rules_.order[tier]];
      one.capacity = its.capacity;
      one.used = its.capacity - std::min(its.capacity, its.available);
    }
    if (!why_.empty() && failing_ == tier) {
      one.last_error = why_;
    }
    status.tiers.push_back(std::move(one));
  }
}

}  // namespace efs::daemon
