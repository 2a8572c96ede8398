// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/request_loop.hpp"

#include <algorithm>
#include <utility>

#include "base/cpu_binding.hpp"
#include "base/log.hpp"
#include "base/slow_work.hpp"
#include "base/thread.hpp"

namespace efs::fuse {

using Got = RequestReader::Got;

namespace {

constexpr unsigned smallest_crowd = 8;
constexpr unsigned largest_crowd = 4096;

}  // namespace

// A thread of the loop. When slow work begins in a request, the thread gives the lead to another
// one.
class RequestLoop::Worker final : public SlowWorkListener {
 public:
  Worker(RequestLoop& loop, std::unique_ptr<RequestReader> its_reader)
      : reader(std::move(its_reader)), loop_(loop) {}

  void slow_work_begins() override {
    pass();
    if (!leads) {
      return;
    }
    loop_.leave_caller();
    if (loop_.hand_over()) {
      leads = false;
    }
  }

  // Receives a request, and marks this thread before the queue loses the request.
  Got receive() {
    turn_ = turn_ | 1U;
    const Got got = reader->receive();
    if (got != Got::request) {
      pass();
    }
    return got;
  }

  // The request is handled, or its slow work begins.
  void pass() { turn_ = (turn_ + 1) & ~std::uint64_t{1}; }

  // odd: it has received a request that is not passed
  std::uint64_t turn() const { return turn_; }

  const std::unique_ptr<RequestReader> reader;
  const std::thread::id thread = std::this_thread::get_id();
  bool leads = false;

 private:
  RequestLoop& loop_;
  std::atomic<std::uint64_t> turn_{0};  // only its thread changes it
};

RequestLoop::RequestLoop(Options options, MakeReader make_reader, Housekeeping* housekeeping)
    : options_(options),
      make_reader_(std::move(make_reader)),
      housekeeping_(housekeeping),
      spin_(options.spin),
      placement_([](std::uint32_t thread) { return only_cpu_of(static_cast<pid_t>(thread)); }) {
  threads_.reserve(options.most_threads);
}

RequestLoop::~RequestLoop() = default;

void RequestLoop::run() {
  work(make_reader_());
  std::vector<std::jthread> others;  // joined at the end of this scope
  MutexLock lock(mutex_);
  others.swap(threads_);
}

void RequestLoop::work(std::unique_ptr<RequestReader> reader) {
  Worker worker(*this, std::move(reader));
  const ListenForSlowWork listen(worker);
  mutex_.lock();
  workers_.push_back(&worker);
  while (!ended_) {
    if (!leading_) {
      leading_ = worker.leads = true;
      mutex_.unlock();
      lead(worker);
      mutex_.lock();
    } else if (help_wanted_) {
      help_wanted_ = false;
      mutex_.unlock();
      help(worker);
      mutex_.lock();
    } else {
      ++sleeping_;
      while (!ended_ && leading_ && !help_wanted_) {
        wake_.wait(mutex_);
      }
      --sleeping_;
    }
  }
  std::erase(workers_, &worker);
  mutex_.unlock();
}

bool RequestLoop::has_received(const Worker& worker, std::uint64_t turn) {
  MutexLock lock(mutex_);
  return std::ranges::find(workers_, &worker) != workers_.end() && worker.turn() == turn;
}

bool RequestLoop::await_received(std::chrono::milliseconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  std::vector<std::pair<const Worker*, std::uint64_t>> awaited;
  {
    MutexLock lock(mutex_);
    for (Worker* worker : workers_) {
      if (worker->thread == std::this_thread::get_id()) {
        worker->pass();  // else two threads that await each other would wait for `longest`
      } else if (const std::uint64_t turn = worker->turn(); turn % 2 != 0) {
        awaited.emplace_back(worker, turn);
      }
    }
  }
  for (const auto& [worker, turn] : awaited) {
    while (has_received(*worker, turn)) {
      if (std::chrono::steady_clock::now() >= until) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

void RequestLoop::lead(Worker& worker) {
  unsigned in_a_row = 0;
  while (worker.leads) {
    Got got = worker.receive();
    if (got == Got::nothing) {
      in_a_row = 0;
      got = wait_for_request(worker);
    }
    if (got == Got::end) {
      return end();
    }
    if (got == Got::nothing) {
      continue;
    }
    if (options_.join_callers) {
      serve_on(placement_.next(worker.reader->caller()));
    }
    if (++since_housekeeping_ >= busy) {
      keep_house();
    }
    if (++in_a_row >= crowd_) {
      in_a_row = 0;
      call_helper();
    }
    handle(worker);
  }
}

void RequestLoop::serve_on(std::optional<unsigned> cpu) {
  if (cpu == bound_cpu()) {
    return;
  }
  if (!cpu) {
    unbind_from_cpu();
  } else if (bind_to_cpu(*cpu) && options_.joined != nullptr) {
    ++*options_.joined;
  }
}

// fuse/adapter.cpp replies if a handler throws. The exceptions here come after the reply.
void RequestLoop::handle(Worker& worker) noexcept {
  try {
    worker.reader->handle();
  } catch (const std::exception& problem) {
    log::warn("event=request_not_finished reason=\"{}\"", problem.what());
  }
  worker.pass();
}

// Receives beside the leader until the queue is empty. Unneeded help makes the leader call for help
// less often.
void RequestLoop::help(Worker& worker) {
  unsigned handled = 0;
  Got got{};
  while ((got = worker.receive()) == Got::request) {
    ++handled;
    handle(worker);
  }
  if (got == Got::end) {
    return end();
  }
  crowd_ = handled < 2 ? std::min(crowd_ * 2, largest_crowd) : smallest_crowd;
}

void RequestLoop::leave_caller() {
  if (bound_cpu()) {
    placement_.start_over();
    unbind_from_cpu();
  }
}

// A caller that computes on its CPU would hold up the next request, of whomever.
Got RequestLoop::wait_for_request(Worker& worker) {
  if (bound_cpu()) {
    if (worker.reader->wait(quiet)) {
      return Got::nothing;
    }
    leave_caller();
  }
  if (const auto spin = spin_.next(); spin.count() > 0) {
    const auto until = std::chrono::steady_clock::now() + spin;
    do {
      if (const Got got = worker.receive(); got != Got::nothing) {
        spin_.caught();
        return got;
      }
    } while (std::chrono::steady_clock::now() < until);
    spin_.missed();
  }
  if (housekeeping_ == nullptr || !housekeeping_->due()) {
    worker.reader->wait(-1);
  } else if (!worker.reader->wait(quiet)) {
    keep_house();
  }
  return Got::nothing;
}

void RequestLoop::keep_house() noexcept {
  since_housekeeping_ = 0;
  try {
    if (housekeeping_ != nullptr && housekeeping_->due()) {
      housekeeping_->run();
    }
  } catch (const std::exception& problem) {
    log::warn("event=housekeeping_failed reason=\"{}\"", problem.what());
  }
}

// True if a thread sleeps or could be started.
bool RequestLoop::somebody_free() {
  if (ended_) {
    return false;
  }
  if (sleeping_ > 0) {
    return true;
  }
  if (threads_.size() + 1 >= options_.most_threads) {
    return false;
  }
  const bool started = start_another();
  if (!started && !no_thread_) {
    log::warn("event=no_thread threads={} note=\"the existing threads serve\"",
              threads_.size() + 1);
  }
  no_thread_ = !started;
  return started;
}

// Makes the reader before the thread: without memory for a reader the thread could not serve.
bool RequestLoop::start_another() {
  try {
    auto thread =
        start_thread([this, reader = make_reader_()]() mutable { work(std::move(reader)); });
    if (thread) {
      threads_.push_back(std::move(*thread));
    }
    return thread.has_value();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Returns false if no other thread can lead. The caller then continues to lead, and requests wait
// for its slow work.
bool RequestLoop::hand_over() {
  {
    MutexLock lock(mutex_);
    if (!somebody_free()) {
      return false;
    }
    leading_ = false;
  }
  wake_.notify_one();
  return true;
}

void RequestLoop::call_helper() {
  {
    MutexLock lock(mutex_);
    if (help_wanted_ || !somebody_free()) {
      return;
    }
    help_wanted_ = true;
  }
  wake_.notify_one();
}

void RequestLoop::end() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
}

}  // namespace efs::fuse
