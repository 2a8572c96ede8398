// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Open files and directories of the PFS. Only the PfsIo that made a handle knows what is behind it.

#include <fcntl.h>

#include <type_traits>
#include <utility>

namespace efs::stage {

/// The part of a PfsIo that closes what it has opened. Thread-safe.
class PfsCloser {
 public:
  virtual ~PfsCloser() = default;

  /// Called once for each handle. No caller learns of an error; fsync reports lost data.
  virtual void close(int number) noexcept = 0;
};

/// Refers to an open file or directory without owning it, as a std::string_view refers to text:
/// cheap to copy, and valid as long as the PfsHandle is. By default it refers to none.
class PfsRef {
 public:
  constexpr PfsRef() = default;

  /// False if it refers to none.
  constexpr explicit operator bool() const { return number_ != none; }

 private:
  friend class PfsHandle;
  friend class PfsNumbers;

  static constexpr int none = -1;

  constexpr explicit PfsRef(int number) : number_(number) {}

  int number_ = none;
};

// Each read and write of a copy passes one on.
static_assert(sizeof(PfsRef) == sizeof(int) && std::is_trivially_copyable_v<PfsRef>);

/// Owns an open file or directory and closes it. Made by a PfsIo, which must outlive it. Move only;
/// not thread-safe.
class PfsHandle {
 public:
  PfsHandle() = default;

  PfsHandle(PfsHandle&& other) noexcept
      : ref_(std::exchange(other.ref_, {})), closer_(other.closer_) {}

  PfsHandle& operator=(PfsHandle other) noexcept {
    std::swap(ref_, other.ref_);
    std::swap(closer_, other.closer_);
    return *this;
  }

  ~PfsHandle() {
    if (ref_) {
      closer_->close(ref_.number_);
    }
  }

  explicit operator bool() const { return static_cast<bool>(ref_); }

  operator PfsRef() const { return ref_; }

 private:
  friend class PfsNumbers;

  PfsHandle(int number, PfsCloser& closer) : ref_(number), closer_(&closer) {}

  PfsRef ref_;
  PfsCloser* closer_ = nullptr;
};

/// For implementations of PfsIo only. They choose the number of a handle, from 0, and its meaning.
class PfsNumbers {
 public:
  static PfsHandle handle(int number, PfsCloser& closer) { return {number, closer}; }

  static constexpr PfsRef ref(int number) { return PfsRef(number); }

  static int number_of(PfsRef ref) { return ref.number_; }
};

/// In place of a directory, for an absolute path. Its number is AT_FDCWD.
inline constexpr PfsRef no_directory = PfsNumbers::ref(AT_FDCWD);

}  // namespace efs::stage
