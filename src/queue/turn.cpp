// SPDX-License-Identifier: BSD-3-Clause
#include "queue/turn.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

namespace efs::queue {
namespace {

constexpr double slowest_look = 10;   // seconds
constexpr double longest_left = 1e8;  // seconds
// seconds below least-rate after which the slot goes to the next ticket
constexpr double slow_for_long = 60;
// tickets whose owners are checked after a grant
constexpr std::size_t cleaned_at_grant = 16;
constexpr std::size_t near_the_front = 2;  // multiple of the slots
// bytes: smaller transfers do not measure the rate
constexpr std::uint64_t least_measured = 1u << 20;
constexpr double weight_of_new = 0.3;  // weight of the last transfer in the measured rate

std::minstd_rand& random_numbers() {
  thread_local std::minstd_rand random(std::random_device{}());
  return random;
}

// Keeps waiters from polling all at once.
double jittered(double seconds) {
  return seconds * std::uniform_real_distribution(0.8, 1.2)(random_numbers());
}

}  // namespace

Result<Turn> Turn::draw(const std::string& path, const Request& request, const System& system) {
  auto directory = Directory::open(path, true, system);
  if (!directory) {
    return std::unexpected(directory.error());
  }
  auto settings = directory->settings();
  if (!settings) {
    return std::unexpected(settings.error());
  }
  Turn turn(std::make_unique<Directory>(std::move(*directory)), *settings);
  EFS_TRY(turn.directory_->with_mutex([&] { return turn.draw_number(request); }, 30));
  return turn;
}

Turn::~Turn() {
  release();
}

// Locks the number's byte before the file exists: other processes may remove a file whose byte is
// not locked.
Status Turn::draw_number(const Request& request) {
  State state = directory_->state();
  for (const auto direction : {Direction::in, Direction::out}) {
    for (const auto& entry : directory_->list(direction)) {
      state.next = std::max(state.next, entry.number + 1);
    }
  }
  ticket_ = {.number = state.next,
             .direction = request.direction,
             .job = request.job,
             .node = request.node,
             .uid = request.uid,
             .bytes = request.bytes};
  if (!directory_->lock_ticket(ticket_.number)) {
    return fail_errno("queue " + directory_->path() + "/locks");
  }
  ++state.next;
  directory_->save(state);
  EFS_TRY(write_file());
  ticket_.drawn = now_;
  if (request.seconds_left > 0) {
    ticket_.deadline =
        now_ + static_cast<Nanoseconds>(std::min(request.seconds_left, longest_left) * 1e9);
  }
  return write_file();
}

Status Turn::write_file() {
  if (!file_) {
    file_.reset(::openat(directory_->fd(), ticket_name(ticket_).c_str(),
                         O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  }
  const std::string line = encode(ticket_);
  if (!file_ ||
      ::pwrite(file_.get(), line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) {
    return fail_errno("queue " + directory_->path() + "/" + ticket_name(ticket_));
  }
  sign_of_life();
  return {};
}

// The file server's clock is the only clock that all nodes share. Its stamp on our file gives the
// current time.
void Turn::sign_of_life() {
  const timespec now[2] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW},
                           {.tv_sec = 0, .tv_nsec = UTIME_NOW}};
  struct stat st{};
  if (::futimens(file_.get(), now) == 0 && ::fstat(file_.get(), &st) == 0) {
    now_ = to_ns(st.st_mtim);
  }
  last_sign_ = directory_->now();
}

View Turn::poll() {
  if (!directory_ || view_.standing == Standing::unserialised) {
    return view_;
  }
  return view_.standing == Standing::granted ? poll_holding() : poll_waiting();
}

View Turn::go_ahead(std::string reason) {
  view_ = {.standing = Standing::unserialised,
           .slots = view_.slots,
           .wait = 0,
           .next_look = 3600,
           .reason = std::move(reason)};
  release();
  return view_;
}

View Turn::poll_holding() {
  if (waited() > settings_.longest_hold) {
    return go_ahead("held its turn for longer than longest-hold");
  }
  if (is_too_slow()) {
    return go_ahead("moved less than least-rate for a minute");
  }
  if (seconds_since(last_sign_) >= settings_.heartbeat * 0.9) {
    (void)write_file();
  }
  view_.next_look = settings_.heartbeat;
  return view_;
}

// A burst counts for later: the holder is too slow only if, since some moment at least that long
// ago, its average was below the rate at every poll.
bool Turn::is_too_slow() {
  const double seconds = seconds_since(fast_.when);
  const bool began_anew = ticket_.done < fast_.count;
  if (settings_.least_rate <= 0 || began_anew ||
      static_cast<double>(ticket_.done - fast_.count) >= settings_.least_rate * seconds) {
    fast_ = {.when = directory_->now(), .count = ticket_.done};
    return false;
  }
  return seconds >= slow_for_long;
}

// Polls without the mutex first, so that waiters without a free slot block no other process. This
// view may be out of date. So a waiter that could take a slot looks again under the mutex, while no
// other process draws or takes.
View Turn::poll_waiting() {
  if (waited() > settings_.longest_wait) {
    return go_ahead("waited for longer than longest-wait");
  }
  if (seconds_since(last_sign_) >= settings_.heartbeat * 0.9) {
    sign_of_life();
  }
  const Status looked = look_and([this] {
    return directory_->with_mutex([this] { return look_and([this] { return take(); }); });
  });
  if (!looked && looked.error().code != EBUSY) {
    return go_ahead(describe(looked.error()));
  }
  if (view_.standing == Standing::granted) {
    clean_after_grant();
  }
  view_.next_look = view_.standing == Standing::granted ? settings_.heartbeat : pause_after_look();
  return view_;
}

Status Turn::look_and(const std::function<Status()>& take) {
  const auto first = look();
  if (!first) {
    return std::unexpected(first.error());
  }
  return *first ? take() : Status{};
}

// Later waiters poll less often, unless the queue moves so fast that they could miss their grant.
double Turn::pause_after_look() {
  double pause =
      settings_.poll * (1 + static_cast<double>(view_.ahead) / std::max(1U, view_.slots));
  if (last_look_.count > view_.ahead) {
    pause = std::min(pause, seconds_since(last_look_.when) * view_.ahead /
                                static_cast<double>(last_look_.count - view_.ahead) / 2);
  }
  last_look_ = {.when = directory_->now(), .count = view_.ahead};
  return jittered(std::max(settings_.poll, std::min({pause, slowest_look, settings_.heartbeat})));
}

// Returns whether this ticket may take a slot. Tests few locks, however many tickets wait. The next
// poll finds a dead ticket at the front; random checks find the others eventually.
Result<bool> Turn::look() {
  if (auto settings = directory_->settings()) {
    settings_ = *settings;  // keep the old settings if the file is invalid
  }
  view_.slots = ticket_.direction == Direction::in ? settings_.slots_in : settings_.slots_out;
  const auto entries = directory_->list(ticket_.direction);
  if (std::ranges::none_of(entries,
                           [this](const Entry& entry) { return entry.number == ticket_.number; })) {
    EFS_TRY(restore());
  }
  auto ahead = those_ahead(entries);
  ahead.erase(ahead.begin(),
              std::ranges::find_if(ahead, [this](const Ticket& ticket) { return counts(ticket); }));
  view_.ahead = static_cast<std::uint32_t>(ahead.size());
  if (is_first(ahead)) {
    return true;
  }
  remove_dead_among(entries, 1);
  view_.wait = estimate(entries, std::move(ahead));
  return false;
}

// If the server lost our lock, another process may have removed our ticket. The position is still
// ours if the lock can be acquired again.
Status Turn::restore() {
  if (!directory_->lock_ticket(ticket_.number)) {
    return fail(ESTALE, "its ticket was lost");
  }
  file_.reset();
  return write_file();
}

void Turn::remove_if_dead(const Entry& entry) const {
  if (entry.number != ticket_.number && !directory_->is_alive(entry.number)) {
    directory_->remove(entry.name);
  }
}

void Turn::remove_dead_among(const std::vector<Entry>& entries, std::size_t some) const {
  const std::size_t first = entries.empty() ? 0 : random_numbers()() % entries.size();
  for (std::size_t i = 0; i < std::min(some, entries.size()); ++i) {
    remove_if_dead(entries[(first + i) % entries.size()]);
  }
}

void Turn::clean_after_grant() const {
  const auto entries = directory_->list(ticket_.direction);
  for (const auto& entry : entries) {
    if (entry.holds) {
      remove_if_dead(entry);
    }
  }
  remove_dead_among(entries, cleaned_at_grant);
}

// Returns the waiters before this ticket, in order. Some may have died since the listing.
std::vector<Ticket> Turn::those_ahead(const std::vector<Entry>& entries) {
  std::vector<Ticket> ahead;
  for (const auto& entry : entries) {
    if (entry.holds || entry.number == ticket_.number ||
        !can_go_before(settings_, entry.number, ticket_)) {
      continue;
    }
    auto known = known_.find(entry.number);
    if (known == known_.end()) {
      const auto ticket = directory_->read(entry);
      if (!ticket || ticket->drawn == 0) {
        continue;  // not completely drawn yet
      }
      known = known_.emplace(entry.number, *ticket).first;
    }
    if (goes_before(settings_, known->second, ticket_)) {
      ahead.push_back(known->second);
    }
  }
  std::ranges::sort(
      ahead, [this](const Ticket& a, const Ticket& b) { return goes_before(settings_, a, b); });
  return ahead;
}

// Returns whether this ticket would take a free slot. Removes the ticket of a dead process.
bool Turn::counts(const Ticket& ticket) {
  const Entry entry{.number = ticket.number, .holds = false, .name = ticket_name(ticket)};
  if (!directory_->is_alive(ticket.number)) {
    directory_->remove(entry.name);
    return false;
  }
  if (directory_->silence(entry, now_) <= settings_.stale_after) {
    return true;
  }
  sign_of_life();  // our own time may be out of date
  return directory_->silence(entry, now_) <= settings_.stale_after;
}

// The caller has checked that the first of `ahead` counts.
bool Turn::is_first(const std::vector<Ticket>& ahead) {
  if (ahead.size() >= near_the_front * view_.slots) {
    return false;
  }
  std::size_t free = 0;
  for (unsigned slot = 0; slot < view_.slots && free <= ahead.size(); ++slot) {
    free += directory_->slot_is_held(ticket_.direction, slot) ? 0 : 1;
  }
  std::size_t live = ahead.empty() ? 0 : 1;
  for (std::size_t i = 1; i < ahead.size() && live < free; ++i) {
    live += counts(ahead[i]) ? 1 : 0;
  }
  return may_take(live, free);
}

Status Turn::take() {
  for (unsigned slot = 0; slot < view_.slots; ++slot) {
    if (directory_->lock_slot(ticket_.direction, slot)) {
      return take(slot);
    }
  }
  return {};
}

Status Turn::take(unsigned slot) {
  const std::string waiting = ticket_name(ticket_);
  ticket_.slot = static_cast<int>(slot);
  sign_of_life();
  ticket_.granted = now_;
  if (::renameat(directory_->fd(), waiting.c_str(), directory_->fd(),
                 ticket_name(ticket_).c_str()) != 0) {
    const auto problem = fail_errno("queue " + directory_->path() + "/" + waiting);
    ticket_.slot = -1;
    directory_->unlock_slot(ticket_.direction, slot);
    return problem;
  }
  view_ = {.standing = Standing::granted, .slots = view_.slots, .wait = 0};
  since_ = directory_->now();
  fast_ = {.when = since_, .count = ticket_.done};
  known_.clear();
  (void)write_file();  // for the readers of the queue
  return {};
}

double Turn::estimate(const std::vector<Entry>& entries, std::vector<Ticket> ahead) const {
  std::vector<Holder> holders;
  for (const auto& entry : entries) {
    if (entry.holds) {
      if (const auto ticket = directory_->read(entry)) {
        holders.push_back({.ticket = *ticket,
                           .left = estimate_left(*ticket, now_, directory_->silence(entry, now_))});
      }
    }
  }
  ahead.push_back(ticket_);
  return estimate_wait(holders, ahead, view_.slots, directory_->state().rate(ticket_.direction));
}

void Turn::release() {
  if (!directory_) {
    return;
  }
  const double seconds = waited();
  directory_->remove(ticket_name(ticket_));
  if (ticket_.slot >= 0) {
    directory_->unlock_slot(ticket_.direction, static_cast<unsigned>(ticket_.slot));
  }
  if (view_.standing == Standing::granted && ticket_.done >= least_measured && seconds > 0) {
    save_rate(static_cast<double>(ticket_.done) / seconds);
  }
  file_.reset();
  directory_.reset();
}

// The rate stays unchanged if the mutex is not free soon.
void Turn::save_rate(double measured) const {
  (void)directory_->with_mutex([&]() -> Status {
    State state = directory_->state();
    double& rate = state.rate(ticket_.direction);
    rate = rate > 0 ? (1 - weight_of_new) * rate + weight_of_new * measured : measured;
    directory_->save(state);
    return {};
  });
}

Result<Turn> acquire(const std::string& directory, const Request& request,
                     const std::function<bool(const View&)>& waiting, const System& system) {
  auto turn = Turn::draw(directory, request, system);
  if (!turn) {
    return turn;
  }
  while (true) {
    const View view = turn->poll();
    if (view.standing != Standing::waiting) {
      return turn;
    }
    if (!waiting(view)) {
      return fail(ECANCELED, "cancelled while it waited for a turn");
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(view.next_look));
  }
}

}  // namespace efs::queue
