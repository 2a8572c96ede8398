#include "queue/turn.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

namespace efs::queue {
namespace {

constexpr double slowest_look = 5;   // seconds
constexpr std::uint64_t least_measured = 1u << 20;  // bytes: what is smaller says nothing of the rate
constexpr double weight_of_new = 0.3;  // of the last transfer in the measured rate

// So that waiters do not look all at once.
double jittered(double seconds) {
  thread_local std::minstd_rand random(std::random_device{}());
  return seconds * std::uniform_real_distribution(0.8, 1.2)(random);
}

}  // namespace

Result<Turn> Turn::draw(const std::string& path, const Request& request) {
  auto directory = Directory::open(path, true);
  if (!directory) return std::unexpected(directory.error());
  auto settings = directory->settings();
  if (!settings) return std::unexpected(settings.error());
  Turn turn(std::make_unique<Directory>(std::move(*directory)), *settings);
  EFS_TRY(turn.directory_->with_mutex([&] { return turn.draw_number(request); }, 30));
  return turn;
}

Turn::~Turn() { release(); }

// The number's byte is locked before the file is there: a file whose byte is free belongs to nobody.
Status Turn::draw_number(const Request& request) {
  State state = directory_->state();
  for (const auto direction : {Direction::in, Direction::out})
    for (const auto& entry : directory_->list(direction)) state.next = std::max(state.next, entry.number + 1);
  ticket_ = {.number = state.next, .direction = request.direction, .job = request.job, .node = request.node, .uid = request.uid, .bytes = request.bytes, .deadline = request.deadline};
  if (!directory_->lock_ticket(ticket_.number)) return fail_errno("queue " + directory_->path() + "/locks");
  ++state.next;
  directory_->save(state);
  EFS_TRY(write_file());
  ticket_.drawn = now_;
  return write_file();
}

Status Turn::write_file() {
  if (!file_) file_.reset(::openat(directory_->fd(), ticket_name(ticket_).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  const std::string line = encode(ticket_);
  if (!file_ || ::pwrite(file_.get(), line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) return fail_errno("queue " + directory_->path() + "/" + ticket_name(ticket_));
  sign_of_life();
  return {};
}

// The file server's clock is the only one that all nodes share: its stamp on our file is what time it is.
void Turn::sign_of_life() {
  const timespec now[2] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW}, {.tv_sec = 0, .tv_nsec = UTIME_NOW}};
  struct stat st {};
  if (::futimens(file_.get(), now) == 0 && ::fstat(file_.get(), &st) == 0) now_ = to_ns(st.st_mtim);
  last_sign_ = std::chrono::steady_clock::now();
}

View Turn::poll() {
  if (!directory_ || view_.standing == Standing::unserialised) return view_;
  return view_.standing == Standing::granted ? poll_holding() : poll_waiting();
}

View Turn::go_ahead(std::string reason) {
  view_ = {.standing = Standing::unserialised, .slots = view_.slots, .wait = 0, .next_look = 3600, .reason = std::move(reason)};
  release();
  return view_;
}

View Turn::poll_holding() {
  if (waited() > settings_.longest_hold) return go_ahead("held its turn for longer than longest-hold");
  if (std::chrono::duration<double>(std::chrono::steady_clock::now() - last_sign_).count() >= settings_.heartbeat * 0.9) (void)write_file();
  view_.next_look = settings_.heartbeat;
  return view_;
}

View Turn::poll_waiting() {
  if (waited() > settings_.longest_wait) return go_ahead("waited for longer than longest-wait");
  if (std::chrono::duration<double>(std::chrono::steady_clock::now() - last_sign_).count() >= settings_.heartbeat * 0.9) sign_of_life();
  const Status looked = directory_->with_mutex([this] { return look(); });
  if (!looked && looked.error().code != EBUSY) return go_ahead(describe(looked.error()));
  view_.next_look = view_.standing == Standing::granted ? settings_.heartbeat : jittered(std::min(slowest_look, settings_.poll * (1 + view_.ahead)));
  return view_;
}

// Under the mutex.
Status Turn::look() {
  if (auto settings = directory_->settings()) settings_ = *settings;  // a broken one: as it was
  const auto entries = directory_->list(ticket_.direction);
  remove_dead(entries);
  if (std::ranges::none_of(entries, [this](const Entry& entry) { return entry.number == ticket_.number; })) {
    // A server that lost our lock let somebody take us for dead. Our place is still ours if the lock can be had back.
    if (!directory_->lock_ticket(ticket_.number)) return fail(ESTALE, "its ticket was lost");
    file_.reset();
    EFS_TRY(write_file());
  }
  const auto ahead = those_ahead(entries);
  view_.slots = ticket_.direction == Direction::in ? settings_.slots_in : settings_.slots_out;
  std::vector<unsigned> free;
  for (unsigned slot = 0; slot < view_.slots; ++slot)
    if (!directory_->slot_is_held(ticket_.direction, slot)) free.push_back(slot);
  view_.ahead = static_cast<std::uint32_t>(ahead.size());
  if (!free.empty() && may_take(count_live(ahead, free.size()), free.size())) {
    for (const unsigned slot : free)
      if (directory_->lock_slot(ticket_.direction, slot)) return take(slot);
  }
  view_.wait = estimate(entries, ahead);
  return {};
}

void Turn::remove_dead(const std::vector<Entry>& entries) const {
  for (const auto& entry : entries)
    if (entry.number != ticket_.number && !directory_->is_alive(entry.number)) directory_->remove(entry.name);
}

// The waiters that go before this one, in their order; some may have died since the listing.
std::vector<Ticket> Turn::those_ahead(const std::vector<Entry>& entries) {
  std::vector<Ticket> ahead;
  for (const auto& entry : entries) {
    if (entry.holds || entry.number == ticket_.number) continue;
    auto known = known_.find(entry.number);
    if (known == known_.end()) {
      const auto ticket = directory_->read(entry);
      if (!ticket) continue;
      known = known_.emplace(entry.number, *ticket).first;
    }
    if (goes_before(settings_, known->second, ticket_)) ahead.push_back(known->second);
  }
  std::ranges::sort(ahead, [this](const Ticket& a, const Ticket& b) { return goes_before(settings_, a, b); });
  return ahead;
}

// How many of those ahead would take a slot if there is one; stops counting at `enough`.
std::size_t Turn::count_live(const std::vector<Ticket>& ahead, std::size_t enough) {
  std::size_t live = 0;
  for (const auto& ticket : ahead) {
    if (live >= enough) break;
    if (!directory_->is_alive(ticket.number)) continue;
    const Entry entry{.number = ticket.number, .holds = false, .name = ticket_name(ticket)};
    double silence = directory_->silence(entry, now_);
    if (silence > settings_.stale_after) {
      sign_of_life();  // our own clock may be what is old
      silence = directory_->silence(entry, now_);
    }
    if (silence <= settings_.stale_after) ++live;
  }
  return live;
}

Status Turn::take(unsigned slot) {
  const std::string waiting = ticket_name(ticket_);
  ticket_.slot = static_cast<int>(slot);
  sign_of_life();
  ticket_.granted = now_;
  if (::renameat(directory_->fd(), waiting.c_str(), directory_->fd(), ticket_name(ticket_).c_str()) != 0) {
    const auto problem = fail_errno("queue " + directory_->path() + "/" + waiting);
    ticket_.slot = -1;
    directory_->unlock_slot(ticket_.direction, slot);
    return problem;
  }
  view_ = {.standing = Standing::granted, .slots = view_.slots, .wait = 0};
  since_ = std::chrono::steady_clock::now();
  known_.clear();
  (void)write_file();  // what it says there is for those who look
  return {};
}

double Turn::estimate(const std::vector<Entry>& entries, std::vector<Ticket> ahead) const {
  std::vector<Ticket> holders;
  for (const auto& entry : entries)
    if (entry.holds)
      if (const auto ticket = directory_->read(entry)) holders.push_back(*ticket);
  ahead.push_back(ticket_);
  return estimate_wait(holders, ahead, view_.slots, directory_->state().rate(ticket_.direction));
}

void Turn::release() {
  if (!directory_) return;
  // Not waited for long: the lock goes with the descriptor, and the others clean up what we could not.
  (void)directory_->with_mutex([this]() -> Status {
    const double seconds = waited();
    if (view_.standing == Standing::granted && ticket_.done >= least_measured && seconds > 0) {
      State state = directory_->state();
      double& rate = state.rate(ticket_.direction);
      const double measured = static_cast<double>(ticket_.done) / seconds;
      rate = rate > 0 ? (1 - weight_of_new) * rate + weight_of_new * measured : measured;
      directory_->save(state);
    }
    return {};
  });
  directory_->remove(ticket_name(ticket_));
  file_.reset();
  directory_.reset();
}

Result<Turn> acquire(const std::string& directory, const Request& request, const std::function<bool(const View&)>& waiting) {
  auto turn = Turn::draw(directory, request);
  if (!turn) return turn;
  while (true) {
    const View view = turn->poll();
    if (view.standing != Standing::waiting) return turn;
    if (!waiting(view)) return fail(ECANCELED, "given up while waiting for a turn");
    std::this_thread::sleep_for(std::chrono::duration<double>(view.next_look));
  }
}

}  // namespace efs::queue
