// SPDX-License-Identifier: BSD-3-Clause
// efs_objects_mpi.h for C++17: collective calls that throw eo::Error on every rank, or on none.
//
//   auto draft = eo::mpi::create<double>(comm, store, "u", {all_rows, columns});
//   draft.put({first_row, 0}, {rows, columns}, u.data());
//   draft.publish(eo::sync);
//
// Destructors discard and abort without communication, so an exception on one rank blocks no other
// rank here. The communicator outlives the objects that were made with it.
#ifndef EFS_OBJECTS_MPI_HPP
#define EFS_OBJECTS_MPI_HPP

#include "efs_objects.hpp"
#include "efs_objects_mpi.h"

namespace eo::mpi {

/// A draft that all ranks fill, each its own part.
template <typename T>
class Draft {
 public:
  Draft(MPI_Comm comm, eo_draft* draft, const Shape& shape)
      : comm_(comm), draft_(draft), ndim_(shape.extents.size()), size_(shape.size()) {}

  Draft(Draft&& from) noexcept
      : comm_(from.comm_),
        draft_(std::exchange(from.draft_, nullptr)),
        ndim_(from.ndim_),
        size_(from.size_) {}

  Draft& operator=(Draft&& from) noexcept {
    std::swap(comm_, from.comm_);
    std::swap(draft_, from.draft_);
    std::swap(ndim_, from.ndim_);
    std::swap(size_, from.size_);
    return *this;
  }

  ~Draft() { discard(); }

  /// The memory of the whole array; each rank writes its part.
  T* data() { return static_cast<T*>(eo_data(draft_)); }

  std::size_t size() const { return size_; }

  void put(const Shape& start, const Shape& count, const T* from) {
    detail::check_part(start, count, ndim_);
    check(eo_put(draft_, start.extents.data(), count.extents.data(), from));
  }

  /// Collective: gives the draft its name. The draft is gone, also when this throws.
  void publish(Flags flags = Flags::none) {
    check(eo_mpi_publish(comm_, std::exchange(draft_, nullptr), static_cast<unsigned>(flags)));
  }

  void discard() {
    if (draft_ != nullptr) {
      eo_mpi_discard(comm_, std::exchange(draft_, nullptr));
    }
  }

 private:
  MPI_Comm comm_;
  eo_draft* draft_;
  std::size_t ndim_;
  std::size_t size_;
};

namespace detail {

template <typename T>
Draft<T> create(MPI_Comm comm, eo_storage* store, const std::string& name, const Shape& shape) {
  const eo_array array = eo::detail::describe<T>(nullptr, shape);
  eo_draft* draft = nullptr;
  check(eo_mpi_create(comm, store, name.c_str(), &array, &draft));
  return Draft<T>(comm, draft, shape);
}

}  // namespace detail

/// Collective: creates a draft that all ranks fill.
template <typename T>
Draft<T> create(MPI_Comm comm, Store& store, const std::string& name, const Shape& shape) {
  return detail::create<T>(comm, store.get(), name, shape);
}

/// A version that all ranks fill: with objects of one rank (store()), or of all (create()).
class Version {
 public:
  Version(MPI_Comm comm, eo_storage* begun) : comm_(comm), store_(begun) {}

  Version(Version&& from) noexcept
      : comm_(from.comm_), store_(std::exchange(from.store_, nullptr)) {}

  Version& operator=(Version&& from) noexcept {
    std::swap(comm_, from.comm_);
    std::swap(store_, from.store_);
    return *this;
  }

  ~Version() { abort(); }

  /// Stores an object of this rank.
  template <typename T>
  void store(const std::string& name, const T& value, Flags flags = Flags::none) {
    const eo_array array = eo::detail::array_of(value);
    check(eo_store(store_, name.c_str(), &array, static_cast<unsigned>(flags)));
  }

  /// Collective: creates a draft that all ranks fill.
  template <typename T>
  Draft<T> create(const std::string& name, const Shape& shape) {
    return detail::create<T>(comm_, store_, name, shape);
  }

  /// Collective: publishes the version. The version is gone, also when this throws.
  void commit(Flags flags = Flags::none) {
    check(eo_mpi_commit(comm_, std::exchange(store_, nullptr), static_cast<unsigned>(flags)));
  }

  void abort() {
    if (store_ != nullptr) {
      eo_mpi_abort(comm_, std::exchange(store_, nullptr));
    }
  }

  eo_storage* get() const { return store_; }

 private:
  MPI_Comm comm_;
  eo_storage* store_;
};

/// Collective: begins version n of a series.
inline Version begin(MPI_Comm comm, Store& store, const std::string& series, std::uint64_t n) {
  eo_storage* begun = nullptr;
  check(eo_mpi_begin(comm, store.get(), series.c_str(), n, &begun));
  return Version(comm, begun);
}

/// Collective: the newest version that the series of every rank has.
inline std::uint64_t newest(MPI_Comm comm, Store& store, const std::string& series) {
  std::uint64_t n = 0;
  check(eo_mpi_latest(comm, store.get(), series.c_str(), &n));
  return n;
}

/// Collective: the newest checkpoint that every rank has, also a damaged one. The next is this + 1.
inline std::uint64_t newest_checkpoint(MPI_Comm comm, Store& store, const std::string& series) {
  char own[EO_MPI_MAX_SERIES];
  check(eo_mpi_own_series(comm, series.c_str(), own));
  return newest(comm, store, own);
}

/// Collective: writes each rank's protected memory as version n of a series of this rank.
inline void checkpoint(MPI_Comm comm, Store& store, const std::string& series, std::uint64_t n,
                       Flags flags = Flags::none) {
  check(eo_mpi_checkpoint(comm, store.get(), series.c_str(), n, static_cast<unsigned>(flags)));
}

inline void wait(MPI_Comm comm, Store& store) {
  check(eo_mpi_wait(comm, store.get()));
}

/// Collective: restores from version n, or from the newest that every rank has and finds good.
inline std::uint64_t restore(MPI_Comm comm, Store& store, const std::string& series,
                             std::uint64_t n = latest) {
  std::uint64_t found = 0;
  check(eo_mpi_restore(comm, store.get(), series.c_str(), n, &found));
  return found;
}

/// Collective: keeps the newest k checkpoints that every rank has, and newer ones.
inline void keep(MPI_Comm comm, Store& store, const std::string& series, unsigned k) {
  check(eo_mpi_keep(comm, store.get(), series.c_str(), k));
}

}  // namespace eo::mpi

#endif  // EFS_OBJECTS_MPI_HPP
