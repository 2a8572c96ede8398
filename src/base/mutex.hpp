// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Mutexes with clang's thread-safety annotations. The declaration of every mutex states its rank
// and the data that it guards. docs/dev/locks.md lists the ranks; threads acquire mutexes in
// ascending order only. clang's "Thread Safety Analysis" documents the attributes; other compilers
// ignore them.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define EFS_ANNOTATE(x) __attribute__((x))
#else
#define EFS_ANNOTATE(x)
#endif
#define EFS_GUARDED_BY(x) EFS_ANNOTATE(guarded_by(x))
#define EFS_REQUIRES(...) EFS_ANNOTATE(requires_capability(__VA_ARGS__))
#define EFS_REQUIRES_SHARED(...) EFS_ANNOTATE(requires_shared_capability(__VA_ARGS__))
#define EFS_EXCLUDES(...) EFS_ANNOTATE(locks_excluded(__VA_ARGS__))

// For a lambda converted to a std::function, write this after the parameters: the callee calls the
// lambda under the lock.

namespace efs {

/// How long this thread has waited so far for locks of other threads. During that time it waited
/// for no device and no file server.
inline thread_local std::chrono::nanoseconds waited_for_locks{0};

/// Calls `lock()` and counts the wait in waited_for_locks. An uncontended lock costs nothing extra.
template <typename Try, typename Lock>
void lock_counted(Try try_lock, Lock lock) {
  if (try_lock()) {
    return;
  }
  const auto since = std::chrono::steady_clock::now();
  lock();
  waited_for_locks += std::chrono::steady_clock::now() - since;
}

class EFS_ANNOTATE(capability("mutex")) Mutex {
 public:
  void lock() EFS_ANNOTATE(acquire_capability()) {
    lock_counted([this] { return mutex_.try_lock(); }, [this] { mutex_.lock(); });
  }

  void unlock() EFS_ANNOTATE(release_capability()) { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

/// A condition variable of a Mutex. The caller writes the predicate as a loop, so that the analysis
/// sees it under the lock: `while (!ready_) condition_.wait(mutex_);`
class Condition {
 public:
  void wait(Mutex& mutex) EFS_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  /// Returns false after `end`.
  template <typename Clock, typename Duration>
  bool wait_until(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& end)
      EFS_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const auto status = condition_.wait_until(lock, end);
    lock.release();
    return status == std::cv_status::no_timeout;
  }

  void notify_one() { condition_.notify_one(); }

  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

class EFS_ANNOTATE(capability("shared_mutex")) SharedMutex {
 public:
  void lock() EFS_ANNOTATE(acquire_capability()) {
    lock_counted([this] { return mutex_.try_lock(); }, [this] { mutex_.lock(); });
  }

  void unlock() EFS_ANNOTATE(release_capability()) { mutex_.unlock(); }

  /// Tells the analysis that the caller holds the mutex, where it cannot see this (in a callback).
  void assert_held() const EFS_ANNOTATE(assert_capability(this)) {}

  void assert_held_shared() const EFS_ANNOTATE(assert_shared_capability(this)) {}

  void lock_shared() EFS_ANNOTATE(acquire_shared_capability()) {
    lock_counted([this] { return mutex_.try_lock_shared(); }, [this] { mutex_.lock_shared(); });
  }

  void unlock_shared() EFS_ANNOTATE(release_shared_capability()) { mutex_.unlock_shared(); }

  bool try_lock() EFS_ANNOTATE(try_acquire_capability(true)) { return mutex_.try_lock(); }

  bool try_lock_shared() EFS_ANNOTATE(try_acquire_shared_capability(true)) {
    return mutex_.try_lock_shared();
  }

 private:
  std::shared_mutex mutex_;
};

/// Holds a Mutex for a scope.
class EFS_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) EFS_ANNOTATE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }

  ~MutexLock() EFS_ANNOTATE(release_capability()) { mutex_.unlock(); }

  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Holds a SharedMutex exclusively for a scope.
class EFS_ANNOTATE(scoped_lockable) WriteLock {
 public:
  explicit WriteLock(SharedMutex& mutex) EFS_ANNOTATE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }

  ~WriteLock() EFS_ANNOTATE(release_capability()) { mutex_.unlock(); }

  WriteLock(const WriteLock&) = delete;
  WriteLock& operator=(const WriteLock&) = delete;

 private:
  SharedMutex& mutex_;
};

/// Holds a SharedMutex shared for a scope.
class EFS_ANNOTATE(scoped_lockable) ReadLock {
 public:
  explicit ReadLock(SharedMutex& mutex) EFS_ANNOTATE(acquire_shared_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock_shared();
  }

  ~ReadLock() EFS_ANNOTATE(release_capability()) { mutex_.unlock_shared(); }

  ReadLock(const ReadLock&) = delete;
  ReadLock& operator=(const ReadLock&) = delete;

 private:
  SharedMutex& mutex_;
};

}  // namespace efs
