// SPDX-License-Identifier: BSD-3-Clause
// pMEMCPY's vocabulary on libefs-objects. A program that includes <pmemcpy/pmemcpy.h> compiles
// unchanged; its path is a store, and each id an object (.npy).
//
// alloc() makes a draft that all ranks fill with store(). The drafts of a PMEM get their names at
// munmap(), in the destructor, or else when MPI_Finalize begins; until then other programs find the
// old objects. Every rank calls mmap(), alloc(), munmap() and MPI_Finalize. A call that fails
// throws eo::Error. In MPI_Finalize it aborts the program instead, and the text is on stderr.
//
// MPI is used where the compiler finds mpi.h. PMEMCPY_NO_MPI leaves it out.
#ifndef PMEMCPY_PMEMCPY_HPP
#define PMEMCPY_PMEMCPY_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "efs_objects.hpp"
#if !defined(PMEMCPY_NO_MPI) && __has_include(<mpi.h>)
#define PMEMCPY_HAS_MPI 1
#include "efs_objects_mpi.h"
#endif

namespace pmemcpy {

/// The objects are .npy files, whatever the program asks for.
enum SerializerType { default_ };

namespace detail {

/// A part of an array in C order; numbers and strides count elements.
struct Part {
  std::vector<std::uint64_t> start, count, shape;

  Part(int ndims, const size_t* offsets, const size_t* counts)
      : start(offsets, offsets + ndims), count(counts, counts + ndims) {}
};

/// Copies the part from a whole array to contiguous memory.
inline void copy_out(const Part& part, std::size_t item, const char* whole, char* into) {
  const std::size_t ndim = part.shape.size();
  std::vector<std::uint64_t> at(ndim, 0);
  const std::size_t run = ndim == 0 ? 1 : static_cast<std::size_t>(part.count[ndim - 1]);
  for (const std::uint64_t n : part.count) {
    if (n == 0) {
      return;
    }
  }
  for (std::size_t d = ndim;; into += run * item) {
    std::size_t place = 0;
    for (std::size_t i = 0; i < ndim; ++i) {
      place = place * part.shape[i] + part.start[i] + at[i];
    }
    std::memcpy(into, whole + place * item, run * item);
    // The next run: the last dimension is the run itself.
    for (d = ndim < 2 ? 0 : ndim - 1; d > 0 && ++at[d - 1] == part.count[d - 1]; --d) {
      at[d - 1] = 0;
    }
    if (d == 0) {
      return;
    }
  }
}

/// The store of a PMEM and its unpublished drafts. MPI_COMM_SELF keeps it until MPI_Finalize, which
/// can come before the destructor of the PMEM.
class Session {
 public:
  explicit Session(const std::string& path) : store_(path) {}

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  ~Session() {
    for (auto& [id, draft] : drafts_) {
      discard(draft.made);
    }
  }

  eo::Store& store() { return store_; }

  void alloc(const std::string& id, const eo_array& array) {
    const auto found = drafts_.find(id);
    if (found != drafts_.end()) {
      discard(found->second.made);  // a second alloc begins again
      drafts_.erase(found);
    }
    eo_draft* made = nullptr;
    eo::check(create(id, array, &made));
    drafts_[id] = Draft{made, array};
  }

  /// The description of an unpublished draft; NULL if there is none.
  const eo_array* find(const std::string& id) const {
    const auto found = drafts_.find(id);
    return found != drafts_.end() ? &found->second.array : nullptr;
  }

  eo_draft* draft(const std::string& id) const { return drafts_.at(id).made; }

  /// Gives all drafts their names. Tries each; returns the first error.
  int publish() {
    int first = 0;
    for (auto& [id, draft] : drafts_) {
      const int error = publish(draft.made);
      first = first != 0 ? first : error;
    }
    drafts_.clear();
    return first;
  }

#ifdef PMEMCPY_HAS_MPI
  Session(const std::string& path, MPI_Comm comm) : store_(open(path, comm)) {
    MPI_Comm_dup(comm, &comm_);
  }

  /// Publishes the drafts of this session when MPI_Finalize begins.
  static void publish_at_finalize(const std::shared_ptr<Session>& session) {
    int keyval = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalizing, &keyval, nullptr);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, new std::shared_ptr<Session>(session));
    session->keyval_ = keyval;
  }

  /// Ends the use of MPI. Deletes the attribute, so that MPI_Finalize does nothing.
  void leave_mpi() {
    if (comm_ == MPI_COMM_NULL) {
      return;
    }
    MPI_Comm_free(&comm_);
    int keyval = keyval_;
    MPI_Comm_delete_attr(MPI_COMM_SELF, keyval);
    MPI_Comm_free_keyval(&keyval);
  }

 private:
  /// All ranks open the store, or all fail.
  static eo::Store open(const std::string& path, MPI_Comm comm) {
    eo_storage* opened = nullptr;
    const int error = eo_mpi_agree(comm, eo_open(path.c_str(), &opened));
    if (error != 0) {
      eo_close(opened);
      throw eo::Error(error);
    }
    return eo::Store(opened);
  }

  static int finalizing(MPI_Comm, int, void* attribute, void*) {
    const std::unique_ptr<std::shared_ptr<Session>> session(
        static_cast<std::shared_ptr<Session>*>(attribute));
    if ((*session)->comm_ == MPI_COMM_NULL) {
      return MPI_SUCCESS;
    }
    const int error = (*session)->publish();
    MPI_Comm_free(&(*session)->comm_);
    if (error != 0) {
      std::fprintf(stderr, "pmemcpy: %s\n", eo_error());
      MPI_Abort(MPI_COMM_WORLD, 1);  // not every MPI passes an error of this function on
    }
    return MPI_SUCCESS;
  }

  bool alone() const { return comm_ == MPI_COMM_NULL; }

  int create(const std::string& id, const eo_array& array, eo_draft** made) {
    return alone() ? eo_create(store_.get(), id.c_str(), &array, made)
                   : eo_mpi_create(comm_, store_.get(), id.c_str(), &array, made);
  }

  int publish(eo_draft* made) {
    return alone() ? eo_publish(made, 0) : eo_mpi_publish(comm_, made, 0);
  }

  void discard(eo_draft* made) {
    if (alone()) {
      eo_discard(made);
    } else {
      eo_mpi_discard(comm_, made);
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int keyval_ = MPI_KEYVAL_INVALID;
#else

 private:
  int create(const std::string& id, const eo_array& array, eo_draft** made) {
    return eo_create(store_.get(), id.c_str(), &array, made);
  }

  static int publish(eo_draft* made) { return eo_publish(made, 0); }

  static void discard(eo_draft* made) { eo_discard(made); }
#endif

  struct Draft {
    eo_draft* made;
    eo_array array;
  };

  eo::Store store_;
  std::map<std::string, Draft> drafts_;  // in one order on all ranks
};

}  // namespace detail

class PMEM {
 public:
  explicit PMEM(SerializerType = default_) : unwinding_(std::uncaught_exceptions()) {}

  PMEM(const PMEM&) = delete;
  PMEM& operator=(const PMEM&) = delete;

  /// Publishes, unless an exception passes: then other ranks may never arrive.
  ~PMEM() {
    if (std::uncaught_exceptions() > unwinding_) {
      return;
    }
    try {
      munmap();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "pmemcpy: %s\n", error.what());
    }
  }

  /// Opens the store of one process.
  void mmap(const std::string& path) {
    munmap();
    session_ = std::make_shared<detail::Session>(path);
  }

#ifdef PMEMCPY_HAS_MPI
  /// Opens a store for all ranks of a communicator.
  void mmap(const std::string& path, MPI_Comm comm) {
    munmap();
    session_ = std::make_shared<detail::Session>(path, comm);
    detail::Session::publish_at_finalize(session_);
  }
#endif

  /// Publishes what alloc() made, and closes the store.
  void munmap() {
    if (!session_) {
      return;
    }
    const std::shared_ptr<detail::Session> session = std::move(session_);
    session_.reset();
    const int error = session->publish();
    const std::string text = error != 0 ? eo_error() : "";
#ifdef PMEMCPY_HAS_MPI
    session->leave_mpi();
#endif
    if (error != 0) {
      throw eo::Error(error, text);
    }
  }

  /// Creates an array that store() fills by parts; its elements are 0.
  template <typename T>
  void alloc(const std::string& id, int ndims, const size_t* dims, SerializerType = default_) {
    session().alloc(id, describe<T>(nullptr, ndims, dims));
  }

  /// Stores one value of this rank, at once. Numbers have their type; other types that can be
  /// copied byte by byte are bytes.
  template <typename T>
  void store(const std::string& id, const T& value) {
    if constexpr (is_bytes<T>) {
      objects().store(id, reinterpret_cast<const unsigned char*>(&value), sizeof(T));
    } else {
      objects().store(id, value);
    }
  }

  /// Stores a part of an array that alloc() made. EINVAL: there is none.
  template <typename T>
  void store(const std::string& id, const T* data, int ndims, const size_t* offsets,
             const size_t* dims_per_process) {
    const eo_array* array = session().find(id);
    if (array == nullptr) {
      throw eo::Error(EINVAL, "cannot store a part of " + id + ": call alloc() first");
    }
    check_type<T>(id, *array, ndims);
    const detail::Part part(ndims, offsets, dims_per_process);
    eo::check(eo_put(session().draft(id), part.start.data(), part.count.data(), data));
  }

  template <typename T>
  T load(const std::string& id) {
    T value{};
    load(id, value);
    return value;
  }

  template <typename T>
  void load(const std::string& id, T& value) {
    if constexpr (is_bytes<T>) {
      const eo_array into =
          eo::detail::describe(reinterpret_cast<unsigned char*>(&value), eo::Shape(sizeof(T)));
      eo::check(eo_load(objects().get(), id.c_str(), nullptr, nullptr, &into));
    } else {
      objects().load(id, value);
    }
  }

  /// Loads a part of an object, or of an array before it is published. Such an array has the parts
  /// that other ranks stored before a barrier.
  template <typename T>
  void load(const std::string& id, T* data, int ndims, const size_t* offsets,
            const size_t* dims_per_process) {
    const eo_array* array = session().find(id);
    if (array != nullptr) {
      check_type<T>(id, *array, ndims);
      copy_out(id, data, {ndims, offsets, dims_per_process});
      return;
    }
    objects().load(id, data, std::vector<std::uint64_t>(offsets, offsets + ndims),
                   std::vector<std::uint64_t>(dims_per_process, dims_per_process + ndims));
  }

  /// Sets the number of dimensions and the dimensions; dims has room for them.
  void load_dims(const std::string& id, int* ndims, size_t* dims) {
    const eo_array* array = session().find(id);
    const eo::Shape shape = array != nullptr ? eo::detail::shape_of(*array) : objects().info(id);
    *ndims = static_cast<int>(shape.extents.size());
    for (std::size_t i = 0; i < shape.extents.size(); ++i) {
      dims[i] = static_cast<size_t>(shape.extents[i]);
    }
  }

 private:
  template <typename T>
  static constexpr bool is_bytes =
      std::is_trivially_copyable_v<T> && !eo::detail::is_element<T> && !std::is_array_v<T> &&
      !eo::detail::is_range<T> && !eo::detail::is_text<T> && !std::is_pointer_v<T>;

  template <typename T>
  static eo_array describe(const T* data, int ndims, const size_t* dims) {
    return eo::detail::describe(data, std::vector<std::uint64_t>(dims, dims + ndims));
  }

  template <typename T>
  static void check_type(const std::string& id, const eo_array& array, int ndims) {
    if (ndims != array.ndim || eo::detail::dtype<T>() != array.dtype) {
      throw eo::Error(EINVAL, "cannot use a part of " + id + ": alloc() made it with " +
                                  std::to_string(array.ndim) + " dimensions of " + array.dtype);
    }
  }

  template <typename T>
  void copy_out(const std::string& id, T* data, detail::Part part) {
    const eo_array& array = *session().find(id);
    part.shape.assign(array.shape, array.shape + array.ndim);
    for (std::size_t i = 0; i < part.shape.size(); ++i) {
      if (part.start[i] > part.shape[i] || part.count[i] > part.shape[i] - part.start[i]) {
        throw eo::Error(EINVAL, "cannot load a part of " + id + ": it exceeds the array");
      }
    }
    detail::copy_out(part, sizeof(T), static_cast<const char*>(eo_data(session().draft(id))),
                     reinterpret_cast<char*>(data));
  }

  detail::Session& session() {
    if (!session_) {
      throw eo::Error(EINVAL, "no store is open: call mmap() first");
    }
    return *session_;
  }

  eo::Store& objects() { return session().store(); }

  std::shared_ptr<detail::Session> session_;
  int unwinding_;
};

}  // namespace pmemcpy

#endif  // PMEMCPY_PMEMCPY_HPP
