// SPDX-License-Identifier: BSD-3-Clause
// libefs-objects for C++17: the calls of efs_objects.h with owners, types and exceptions.
//
//   eo::Store store("results");
//   store.store("u", u);                         // a scalar, a string, a contiguous range, an
//   mdspan auto v = store.load<std::vector<double>>("u"); eo::View<double> view =
//   store.view<double>("u"); eo::Version version = store.begin("run", 7); version.store("u", u);
//   version.commit(eo::sync);                    // without it the destructor aborts
//
// A failed call throws eo::Error. Each class owns what it names: it can be moved and not copied.
// A moved-from object can only be destroyed or assigned.
#ifndef EFS_OBJECTS_HPP
#define EFS_OBJECTS_HPP

#include <array>
#include <cerrno>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "efs_objects.h"
#if __has_include(<version>)
#include <version>
#endif
#ifdef __cpp_lib_span
#include <span>
#endif
#ifdef __cpp_lib_mdspan
#include <mdspan>
#endif

namespace eo {

/// A failed call. code() is the errno; what() is the text of eo_error().
class Error : public std::system_error {
 public:
  explicit Error(int error) : Error(error, eo_error()) {}

  Error(int error, const std::string& text)
      : std::system_error(error, std::generic_category()), text_(text) {}

  const char* what() const noexcept override { return text_.what(); }

 private:
  std::runtime_error text_;  // its copy cannot throw
};

/// Throws if a C call returned an error.
inline void check(int error) {
  if (error != 0) {
    throw Error(error);
  }
}

enum class Flags : unsigned { none = 0, sync = EO_SYNC };
inline constexpr Flags sync = Flags::sync;  // durable when the call returns
inline constexpr std::uint64_t latest = EO_LATEST;

/// Numbers of elements in each dimension, from integers or a vector. C order unless fortran().
struct Shape {
  template <typename... N, typename = std::enable_if_t<(std::is_integral_v<N> && ...)>>
  Shape(N... n) : extents{static_cast<std::uint64_t>(n)...} {}

  Shape(std::vector<std::uint64_t> n) : extents(std::move(n)) {}

  template <typename... N>
  static Shape fortran(N... n) {
    Shape shape(n...);
    shape.order = EO_FORTRAN_ORDER;
    return shape;
  }

  /// The number of elements.
  std::size_t size() const {
    std::size_t product = 1;
    for (const std::uint64_t extent : extents) {
      product *= static_cast<std::size_t>(extent);
    }
    return product;
  }

  std::vector<std::uint64_t> extents;
  int order = EO_C_ORDER;
};

namespace detail {

template <typename T>
struct is_complex : std::false_type {};

template <typename T>
struct is_complex<std::complex<T>> : std::is_floating_point<T> {};

/// Types of elements: arithmetic types, std::complex, std::byte and enumerations. wchar_t and
/// other characters wider than a byte are refused: NumPy has no number like them.
template <typename T>
inline constexpr bool is_element = (std::is_arithmetic_v<T> && !std::is_same_v<T, wchar_t> &&
                                    !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>) ||
                                   std::is_enum_v<T> || is_complex<T>::value;

template <typename T>
constexpr char kind() {
  if constexpr (std::is_same_v<T, bool>) {
    return 'b';
  } else if constexpr (std::is_same_v<T, char> || std::is_same_v<T, std::byte>) {
    return 'u';  // bytes, whatever the sign of char
  } else if constexpr (std::is_enum_v<T>) {
    return kind<std::underlying_type_t<T>>();
  } else if constexpr (std::is_integral_v<T>) {
    return std::is_signed_v<T> ? 'i' : 'u';
  } else {
    return is_complex<T>::value ? 'c' : 'f';
  }
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
inline constexpr char native = '>';
#else
inline constexpr char native = '<';
#endif

/// The type as NumPy writes it, for eo_array.dtype.
template <typename T>
std::string dtype() {
  using Element = std::remove_cv_t<T>;
  static_assert(is_element<Element>, "the type is no number, byte or enumeration");
  return (sizeof(Element) == 1 ? '|' : native) + std::string(1, kind<Element>()) +
         std::to_string(sizeof(Element));
}

/// The description of memory. Throws EINVAL if the shape has too many dimensions.
template <typename T>
eo_array describe(const T* data, const Shape& shape) {
  eo_array array{};
  const std::string type = dtype<T>();
  type.copy(array.dtype, sizeof array.dtype - 1);
  if (shape.extents.size() > EO_MAX_NDIM) {
    throw Error(EINVAL, "the array has more than " + std::to_string(EO_MAX_NDIM) + " dimensions");
  }
  array.ndim = static_cast<int>(shape.extents.size());
  array.order = shape.order;
  for (std::size_t i = 0; i < shape.extents.size(); ++i) {
    array.shape[i] = shape.extents[i];
  }
  array.data = const_cast<std::remove_cv_t<T>*>(data);
  return array;
}

inline Shape shape_of(const eo_array& array) {
  Shape shape(std::vector<std::uint64_t>(array.shape, array.shape + array.ndim));
  shape.order = array.order;
  return shape;
}

template <typename R>
using pointer_of = decltype(std::data(std::declval<R&>()));

/// A contiguous range of elements: std::vector, std::array, std::span, a View.
template <typename R, typename = void>
inline constexpr bool is_range = false;
template <typename R>
inline constexpr bool
    is_range<R, std::void_t<pointer_of<R>, decltype(std::size(std::declval<R&>()))>> =
        is_element<std::remove_cv_t<std::remove_pointer_t<pointer_of<R>>>>;

template <typename R, typename = void>
inline constexpr bool can_resize = false;
template <typename R>
inline constexpr bool
    can_resize<R, std::void_t<decltype(std::declval<R&>().resize(std::size_t{}))>> = true;

/// std::mdspan and what has its members.
template <typename M, typename = void>
inline constexpr bool is_mdspan = false;
template <typename M>
inline constexpr bool
    is_mdspan<M, std::void_t<typename M::layout_type, decltype(std::declval<M&>().data_handle()),
                             decltype(std::declval<M&>().stride(0))>> = true;

template <typename T>
inline constexpr bool is_text =
    std::is_convertible_v<const T&, std::string_view> && !std::is_same_v<T, std::nullptr_t>;

/// Throws EINVAL unless start and count have one number for each dimension.
inline void check_part(const Shape& start, const Shape& count, std::size_t ndim) {
  if (start.extents.size() != ndim || count.extents.size() != ndim) {
    throw Error(EINVAL, "start and count need " + std::to_string(ndim) + " numbers each");
  }
}

/// Whether the strides are those of contiguous memory when the indices are visited in this order.
template <typename M>
bool has_strides(const M& m, int order) {
  std::size_t stride = 1;
  const std::size_t rank = M::rank();
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t d = order == EO_FORTRAN_ORDER ? i : rank - 1 - i;
    if (m.extent(d) > 1 && static_cast<std::size_t>(m.stride(d)) != stride) {
      return false;
    }
    stride *= static_cast<std::size_t>(m.extent(d));
  }
  return true;
}

template <typename M>
Shape shape_of_mdspan(const M& m) {
  std::vector<std::uint64_t> extents;
  for (std::size_t i = 0; i < M::rank(); ++i) {
    extents.push_back(static_cast<std::uint64_t>(m.extent(i)));
  }
  Shape shape(std::move(extents));
  if (!has_strides(m, EO_C_ORDER)) {
    if (!has_strides(m, EO_FORTRAN_ORDER)) {
      throw Error(EINVAL, "the mdspan is not contiguous. Copy it to a contiguous array");
    }
    shape.order = EO_FORTRAN_ORDER;
  }
  return shape;
}

/// Whether the program cannot write to the memory that the value describes.
template <typename T>
constexpr bool is_read_only() {
  if constexpr (is_mdspan<T>) {
    return std::is_const_v<std::remove_reference_t<decltype(*std::declval<T&>().data_handle())>>;
  } else if constexpr (is_range<T>) {
    return std::is_const_v<std::remove_pointer_t<pointer_of<T>>>;
  } else {
    return std::is_const_v<T> || is_text<T>;
  }
}

template <typename T, std::size_t... I>
Shape shape_of_array(std::index_sequence<I...>) {
  return Shape(std::extent_v<T, I>...);
}

/// The description of a value's memory.
template <typename T>
eo_array array_of(const T& value) {
  if constexpr (std::is_array_v<T> && !is_text<T>) {
    return describe(reinterpret_cast<const std::remove_all_extents_t<T>*>(&value),
                    shape_of_array<T>(std::make_index_sequence<std::rank_v<T>>()));
  } else if constexpr (is_text<T>) {
    const std::string_view text = value;
    return describe(text.data(), Shape(text.size()));
  } else if constexpr (is_mdspan<T>) {
    return describe(value.data_handle(), shape_of_mdspan(value));
  } else if constexpr (is_range<const T>) {
    return describe(std::data(value), Shape(std::size(value)));
  } else {
    return describe(&value, Shape());
  }
}

struct Close {
  void operator()(eo_storage* store) const noexcept { eo_close(store); }

  void operator()(eo_draft* draft) const noexcept { eo_discard(draft); }

  void operator()(eo_array* view) const noexcept {
    eo_release(view);
    delete view;
  }
};

}  // namespace detail

/// A read-only mapping of an object, without a copy: a contiguous range. It keeps its version of
/// the object when the name is replaced and when the store is closed.
template <typename T>
class View {
 public:
  using value_type = T;

  explicit View(std::unique_ptr<eo_array, detail::Close> mapped)
      : mapped_(std::move(mapped)), shape_(detail::shape_of(*mapped_)), size_(shape_.size()) {}

  const T* data() const { return static_cast<const T*>(mapped_->data); }

  std::size_t size() const { return size_; }

  bool empty() const { return size_ == 0; }

  const T* begin() const { return data(); }

  const T* end() const { return data() + size_; }

  const T& operator[](std::size_t i) const { return data()[i]; }

  const Shape& shape() const { return shape_; }

  /// The element at these indices, in the order of the object.
  template <typename... Index>
  const T& operator()(Index... index) const {
    const std::array<std::size_t, sizeof...(Index)> at{static_cast<std::size_t>(index)...};
    const bool fortran = shape_.order == EO_FORTRAN_ORDER;
    std::size_t place = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const std::size_t d = fortran ? at.size() - 1 - i : i;
      place = place * static_cast<std::size_t>(shape_.extents[d]) + at[d];
    }
    return data()[place];
  }

#ifdef __cpp_lib_mdspan
  /// The view as a std::mdspan of this rank; the object has this layout's order. EINVAL otherwise.
  template <std::size_t Rank, typename Layout = std::layout_right>
  auto mdspan() const {
    const int order = std::is_same_v<Layout, std::layout_left> ? EO_FORTRAN_ORDER : EO_C_ORDER;
    if (shape_.extents.size() != Rank || (Rank > 1 && shape_.order != order)) {
      throw Error(EINVAL, "the view has another rank or order than the mdspan");
    }
    std::array<std::size_t, Rank> extents{};
    for (std::size_t i = 0; i < Rank; ++i) {
      extents[i] = shape_.extents[i];
    }
    return std::mdspan<const T, std::dextents<std::size_t, Rank>, Layout>(data(), extents);
  }
#endif

 private:
  std::unique_ptr<eo_array, detail::Close> mapped_;
  Shape shape_;
  std::size_t size_;
};

/// An array before it has its name: a contiguous range that the program fills. The destructor
/// discards a draft that is not published.
template <typename T>
class Draft {
 public:
  using value_type = T;

  Draft(eo_draft* draft, const Shape& shape)
      : draft_(draft), ndim_(shape.extents.size()), size_(shape.size()) {}

  T* data() { return static_cast<T*>(eo_data(draft_.get())); }

  std::size_t size() const { return size_; }

  T* begin() { return data(); }

  T* end() { return data() + size_; }

  T& operator[](std::size_t i) { return data()[i]; }

  /// Copies the part that begins at start and has count elements in each dimension.
  void put(const Shape& start, const Shape& count, const T* from) {
    detail::check_part(start, count, ndim_);
    check(eo_put(draft_.get(), start.extents.data(), count.extents.data(), from));
  }

  /// Gives the draft its name. The draft is gone, also when this throws.
  void publish(Flags flags = Flags::none) {
    check(eo_publish(draft_.release(), static_cast<unsigned>(flags)));
  }

  void discard() { draft_.reset(); }

  eo_draft* get() const { return draft_.get(); }

 private:
  std::unique_ptr<eo_draft, detail::Close> draft_;
  std::size_t ndim_;
  std::size_t size_;
};

class Version;

/// A directory of objects.
class Store {
 public:
  /// Opens $EFS_MOUNT/objects, or this directory.
  Store() { open(nullptr); }

  explicit Store(const std::string& directory) { open(directory.c_str()); }

  /// Owns a store that a C call opened.
  explicit Store(eo_storage* owned) : store_(owned) {}

  /// Stores a scalar, a string (as bytes), an array, a contiguous range or an mdspan.
  template <typename T>
  void store(const std::string& name, const T& value, Flags flags = Flags::none) {
    put(name, detail::array_of(value), flags);
  }

  /// Stores a contiguous range with another shape. EINVAL: the numbers of elements differ.
  template <typename Range, typename = std::enable_if_t<detail::is_range<const Range>>>
  void store(const std::string& name, const Range& range, const Shape& shape,
             Flags flags = Flags::none) {
    if (shape.size() != std::size(range)) {
      throw Error(EINVAL, "cannot store " + name + ": the shape has " +
                              std::to_string(shape.size()) + " elements and the range " +
                              std::to_string(std::size(range)));
    }
    put(name, detail::describe(std::data(range), shape), flags);
  }

  /// Stores the memory at a pointer.
  template <typename T>
  void store(const std::string& name, const T* data, const Shape& shape,
             Flags flags = Flags::none) {
    put(name, detail::describe(data, shape), flags);
  }

  /// Loads a whole object into a scalar, string, array, range or mdspan. A range that can be
  /// resized takes the size of the object; others must have it. Types must agree exactly.
  template <typename T>
  void load(const std::string& name, T& value) {
    eo_array into{};
    if constexpr (detail::is_range<T> && !std::is_array_v<T>) {
      const Shape shape = info(name);
      if constexpr (detail::can_resize<T>) {
        value.resize(shape.size());
      } else if (shape.size() != std::size(value)) {
        throw Error(EINVAL, "cannot load " + name + ": the object has " +
                                std::to_string(shape.size()) + " elements and the range " +
                                std::to_string(std::size(value)));
      }
      into = detail::describe(std::data(value), shape);
    } else {
      into = detail::array_of(value);
    }
    check(eo_load(get(), name.c_str(), nullptr, nullptr, &into));
  }

  /// Likewise, as the result: store.load<double>("dt"), store.load<std::vector<float>>("u").
  template <typename T>
  T load(const std::string& name) {
    T value{};
    load(name, value);
    return value;
  }

  /// Loads the part that begins at start and has count elements in each dimension. The order of
  /// count is that of the object: Shape::fortran(2, 3). EINVAL otherwise; the part is not turned.
  template <typename T>
  void load(const std::string& name, T* into, const Shape& start, const Shape& count) {
    const eo_array part = detail::describe(into, count);
    detail::check_part(start, count, info(name).extents.size());
    check(eo_load(get(), name.c_str(), start.extents.data(), count.extents.data(), &part));
  }

  /// Maps an object. EINVAL: its type is not T.
  template <typename T>
  View<T> view(const std::string& name) {
    std::unique_ptr<eo_array, detail::Close> mapped(new eo_array{});
    check(eo_view(get(), name.c_str(), mapped.get()));
    if (detail::dtype<T>() != mapped->dtype) {
      throw Error(EINVAL, "cannot view " + name + ": its type is " + mapped->dtype + ", not " +
                              detail::dtype<T>());
    }
    return View<T>(std::move(mapped));
  }

  /// The shape of an object, and with `dtype` its type.
  Shape info(const std::string& name, std::string* dtype = nullptr) {
    eo_array array{};
    check(eo_info(get(), name.c_str(), &array));
    if (dtype != nullptr) {
      *dtype = array.dtype;
    }
    return detail::shape_of(array);
  }

  /// The names of all objects, in byte order.
  std::vector<std::string> list() {
    struct Names {
      std::vector<std::string> found;
      bool failed = false;
    } names;

    check(eo_list(
        get(),
        [](const char* name, void* context) {
          auto& into = *static_cast<Names*>(context);
          try {
            into.found.emplace_back(name);
          } catch (...) {
            into.failed = true;
          }
          return 0;
        },
        &names));
    if (names.failed) {
      throw std::bad_alloc();
    }
    return std::move(names.found);
  }

  void remove(const std::string& name) { check(eo_remove(get(), name.c_str())); }

  /// Creates a draft; its elements are 0. Its space is reserved: a full file system throws here.
  template <typename T>
  Draft<T> create(const std::string& name, const Shape& shape) {
    const eo_array array = detail::describe<T>(nullptr, shape);
    eo_draft* draft = nullptr;
    check(eo_create(get(), name.c_str(), &array, &draft));
    return Draft<T>(draft, shape);
  }

  /// Begins version n of a series.
  Version begin(const std::string& series, std::uint64_t n);

  /// Opens a committed version read-only.
  Store version(const std::string& series, std::uint64_t n = latest) {
    eo_storage* opened = nullptr;
    check(eo_version(get(), series.c_str(), n, &opened));
    return Store(opened);
  }

  /// Removes all versions of a series but the newest k.
  void keep(const std::string& series, unsigned k) { check(eo_keep(get(), series.c_str(), k)); }

  /// The number of the newest committed version. ENOENT: there is none.
  std::uint64_t newest(const std::string& series) {
    std::uint64_t n = 0;
    check(eo_newest(get(), series.c_str(), &n));
    return n;
  }

  /// Removes one version of a series.
  void remove_version(const std::string& series, std::uint64_t n) {
    check(eo_remove_version(get(), series.c_str(), n));
  }

  /// Compares an object of a committed version, or all, with the manifest. EBADMSG: it differs.
  void verify(const std::string& name = {}) {
    check(eo_check(get(), name.empty() ? nullptr : name.c_str()));
  }

  /// Begins a bundle: many small arrays in one file NAME.npz, which commit() publishes.
  Version begin_bundle(const std::string& name);

  /// Opens a bundle read-only.
  Store bundle(const std::string& name) {
    eo_storage* opened = nullptr;
    check(eo_bundle(get(), name.c_str(), &opened));
    return Store(opened);
  }

  void remove_bundle(const std::string& name) { check(eo_remove_bundle(get(), name.c_str())); }

  /// Protects memory of the program: checkpoint() writes it and restore() fills it. The memory
  /// stays where it is until unprotect() or the end of the store.
  template <typename T>
  void protect(const std::string& name, T* data, const Shape& shape) {
    static_assert(!std::is_const_v<T>, "restore() writes to the memory");
    const eo_array array = detail::describe(data, shape);
    check(eo_protect(get(), name.c_str(), &array));
  }

  /// Likewise a scalar, an array, a contiguous range or an mdspan.
  template <typename T>
  void protect(const std::string& name, T& value) {
    static_assert(!detail::is_read_only<T>(), "restore() writes to the memory");
    const eo_array array = detail::array_of(value);
    check(eo_protect(get(), name.c_str(), &array));
  }

  void unprotect(const std::string& name) { check(eo_unprotect(get(), name.c_str())); }

  /// Sets an option of the checkpoints, such as "strategy".
  void configure(const std::string& option, const std::string& value) {
    check(eo_configure(get(), option.c_str(), value.c_str()));
  }

  /// Writes the protected memory as version n of a series; then the memory may change.
  void checkpoint(const std::string& series, std::uint64_t n, Flags flags = Flags::none) {
    check(eo_checkpoint(get(), series.c_str(), n, static_cast<unsigned>(flags)));
  }

  /// Says that an array will not change until the next checkpoint, which then is shorter.
  void persisted_hint(const std::string& name) { check(eo_persisted_hint(get(), name.c_str())); }

  /// Waits until the last checkpoint is whole and in its place.
  void wait() { check(eo_wait(get())); }

  /// Fills the protected memory from version n, or from the newest good one. Returns its number.
  std::uint64_t restore(const std::string& series, std::uint64_t n = latest) {
    std::uint64_t found = 0;
    check(eo_restore(get(), series.c_str(), n, &found));
    return found;
  }

  /// The store of the C calls; this object keeps it.
  eo_storage* get() const { return store_.get(); }

 protected:
  std::unique_ptr<eo_storage, detail::Close> store_;

 private:
  void open(const char* directory) {
    eo_storage* opened = nullptr;
    check(eo_open(directory, &opened));
    store_.reset(opened);
  }

  void put(const std::string& name, const eo_array& array, Flags flags) {
    check(eo_store(get(), name.c_str(), &array, static_cast<unsigned>(flags)));
  }
};

/// A version or a bundle that was begun: a store that is invisible until commit(). The destructor
/// aborts it.
class Version : public Store {
 public:
  explicit Version(eo_storage* begun) : Store(begun) {}

  /// Publishes the version. EBUSY: it has unpublished drafts; it then stays open. After any other
  /// failure it is gone.
  void commit(Flags flags = Flags::none) {
    const int error = eo_commit(get(), static_cast<unsigned>(flags));
    if (error != EBUSY) {
      static_cast<void>(store_.release());
    }
    check(error);
  }

  void abort() { store_.reset(); }
};

inline Version Store::begin(const std::string& series, std::uint64_t n) {
  eo_storage* begun = nullptr;
  check(eo_begin(get(), series.c_str(), n, &begun));
  return Version(begun);
}

inline Version Store::begin_bundle(const std::string& name) {
  eo_storage* begun = nullptr;
  check(eo_begin_bundle(get(), name.c_str(), &begun));
  return Version(begun);
}

}  // namespace eo

#endif  // EFS_OBJECTS_HPP
