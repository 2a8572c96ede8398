// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A backend that forwards to another one, and refuses to create when a test says so.

#include <atomic>
#include <functional>

#include "backends/backend.hpp"

namespace efs::test {

class FailingBackend final : public PlainBackend {
 public:
  explicit FailingBackend(Backend& real) : real_(real) {}

  /// The next `count` creates succeed; later ones fail with `code`. Negative: all succeed.
  void allow_creates(int count, int code = ENOSPC) { left_ = count, code_ = code; }

  int creates() const { return creates_; }

  /// Sets a function to run at the end of each sync_all(), which has not synced the function's
  /// effects.
  void after_sync_all(std::function<void()> run) { after_sync_all_ = std::move(run); }

  /// Sets a function to run after a container was opened.
  void after_open(std::function<void(std::uint64_t id)> run) { after_open_ = std::move(run); }

  /// Makes stored zeros take space, as on a tmpfs with huge pages.
  void let_zeros_take_space() { zeros_ = true; }

  Result<std::shared_ptr<Container>> create(std::uint64_t id, CachePolicy policy) override {
    ++creates_;
    if (left_ == 0) {
      return fail(code_);
    }
    if (left_ > 0) {
      --left_;
    }
    return real_.create(id, policy);
  }

  Result<std::shared_ptr<Container>> open(std::uint64_t id, CachePolicy policy) override {
    auto opened = real_.open(id, policy);
    if (after_open_) {
      after_open_(id);
    }
    return opened;
  }

  Result<std::shared_ptr<Container>> adopt(std::uint64_t id, Container& other) override {
    return real_.adopt(id, other);
  }

  Status label(std::uint64_t id) override { return real_.label(id); }

  Ownership ownership(std::uint64_t id) override { return real_.ownership(id); }

  bool may_be_written(std::uint64_t id) override { return real_.may_be_written(id); }

  bool may_be_open(std::uint64_t id) override { return real_.may_be_open(id); }

  bool is_written(std::uint64_t id) override { return real_.is_written(id); }

  std::optional<std::uint64_t> remove(std::uint64_t id) override { return real_.remove(id); }

  Result<struct stat> attributes(std::uint64_t id) override { return real_.attributes(id); }

  Status set_times(std::uint64_t id, std::optional<FileTime> atime,
                   std::optional<FileTime> mtime) override {
    return real_.set_times(id, atime, mtime);
  }

  Status sync_name(std::uint64_t id) override { return real_.sync_name(id); }

  Status sync_all() override {
    const Status done = real_.sync_all();
    if (after_sync_all_) {
      after_sync_all_();
    }
    return done;
  }

  Status for_each(const std::function<void(std::uint64_t id)>& visit) override {
    return real_.for_each(visit);
  }

  Space space() override { return real_.space(); }

  Status admit_writer() override { return real_.admit_writer(); }

  void look_again(bool only_if_full) override { real_.look_again(only_if_full); }

  void await_removed() override { real_.await_removed(); }

  Durability durability() const override { return real_.durability(); }

  bool offers_descriptor() const override { return real_.offers_descriptor(); }

  bool zeros_take_space() const override { return zeros_ || real_.zeros_take_space(); }

  std::string description() const override { return real_.description(); }

 private:
  Backend& real_;
  bool zeros_ = false;
  std::function<void()> after_sync_all_;
  std::function<void(std::uint64_t id)> after_open_;
  std::atomic<int> left_{-1};
  std::atomic<int> code_{ENOSPC};
  std::atomic<int> creates_{0};
};

}  // namespace efs::test
