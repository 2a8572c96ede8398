// SPDX-License-Identifier: BSD-3-Clause
#include "objects/store.hpp"

#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <random>

#include "unit/objects/arrays.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

/// Copies a part of an array element by element: the reference for hyperslabs.
std::string naive_part(const eo_array& array, const std::string& data, std::size_t item,
                       const std::uint64_t* start, const std::uint64_t* count) {
  const int ndim = array.ndim;
  std::uint64_t elements = 1;
  for (int i = 0; i < ndim; ++i) {
    elements *= count[i];
  }
  std::string part;
  for (std::uint64_t k = 0; k < elements; ++k) {
    std::uint64_t index[EO_MAX_NDIM] = {};
    std::uint64_t rest = k;
    for (int j = 0; j < ndim; ++j) {
      const int i = array.order == EO_C_ORDER ? ndim - 1 - j : j;
      index[i] = start[i] + rest % count[i];
      rest /= count[i];
    }
    std::uint64_t position = 0;
    for (int j = 0; j < ndim; ++j) {
      const int i = array.order == EO_C_ORDER ? j : ndim - 1 - j;
      position = position * array.shape[i] + index[i];
    }
    part += data.substr(position * item, item);
  }
  return part;
}

struct RandomPart {
  std::uint64_t start[EO_MAX_NDIM] = {};
  std::uint64_t count[EO_MAX_NDIM] = {};
  std::uint64_t elements = 1;
};

RandomPart random_part(const eo_array& array, std::mt19937_64& random) {
  RandomPart part;
  for (int i = 0; i < array.ndim; ++i) {
    part.start[i] = random() % (array.shape[i] + 1);
    part.count[i] = random() % (array.shape[i] - part.start[i] + 1);
    if (random() % 3 == 0) {
      part.start[i] = 0;
      part.count[i] = array.shape[i];
    }
    part.elements *= part.count[i];
  }
  return part;
}

std::string random_bytes(std::size_t size, std::mt19937_64& random) {
  std::string bytes(size, '\0');
  std::ranges::generate(bytes, [&] { return static_cast<char>(random()); });
  return bytes;
}

constexpr struct {
  const char* dtype;
  std::size_t item;
} types[] = {{"|b1", 1}, {"|i1", 1},   {"<i2", 2}, {">i4", 4},   {"<i8", 8},  {"|u1", 1},
             {"<u2", 2}, {">u4", 4},   {"<u8", 8}, {"<f2", 2},   {"<f4", 4},  {">f8", 8},
             {"<f8", 8}, {"<f16", 16}, {"<c8", 8}, {"<c16", 16}, {"<c32", 32}};

/// The path of an object's file.
std::string file_of(const TempStore& temp, const std::string& name) {
  return temp.path() + '/' + name + ".npy";
}

}  // namespace

TEST_CASE("every type and order is loaded and viewed as it was stored", "[objects]") {
  const auto with_seed = seed();
  INFO("seed " << with_seed);
  std::mt19937_64 random(with_seed);
  for (const auto* parent : {"/tmp", "/dev/shm"}) {
    const TempStore temp(parent);
    for (const auto& type : types) {
      for (const unsigned flags : {0U, EO_SYNC}) {
        for (const int order : {EO_C_ORDER, EO_FORTRAN_ORDER}) {
          eo_array array = array_of(type.dtype, {3, 5, 2}, order);
          std::string data = random_bytes(30 * type.item, random);
          array.data = data.data();
          REQUIRE(eo_store(temp.store, "a/b", &array, flags) == 0);
          std::string into(data.size(), '\0');
          array.data = into.data();
          REQUIRE(eo_load(temp.store, "a/b", nullptr, nullptr, &array) == 0);
          CHECK(into == data);
          eo_array view{};
          REQUIRE(eo_view(temp.store, "a/b", &view) == 0);
          CHECK(std::string(view.dtype) == type.dtype);
          CHECK(view.order == order);
          CHECK(view.ndim == 3);
          CHECK(view.shape[1] == 5);
          CHECK(reinterpret_cast<std::uintptr_t>(view.data) % 64 == 0);
          CHECK(std::memcmp(view.data, data.data(), data.size()) == 0);
          eo_release(&view);
          CHECK(view.data == nullptr);
        }
      }
    }
  }
}

TEST_CASE("scalars and empty arrays are arrays", "[objects]") {
  const TempStore temp;
  double value = 2.5;
  eo_array scalar = array_of("<f8", {}, EO_C_ORDER, &value);
  REQUIRE(eo_store(temp.store, "scalar", &scalar, 0) == 0);
  double loaded = 0;
  scalar.data = &loaded;
  REQUIRE(eo_load(temp.store, "scalar", nullptr, nullptr, &scalar) == 0);
  CHECK(loaded == value);
  eo_array empty = array_of("<f8", {3, 0, 2});
  REQUIRE(eo_store(temp.store, "empty", &empty, 0) == 0);
  REQUIRE(eo_load(temp.store, "empty", nullptr, nullptr, &empty) == 0);
  eo_array view{};
  REQUIRE(eo_view(temp.store, "empty", &view) == 0);
  CHECK(view.shape[1] == 0);
  eo_release(&view);
}

TEST_CASE("parts are those of a naive copy", "[objects]") {
  const auto with_seed = seed();
  INFO("seed " << with_seed);
  std::mt19937_64 random(with_seed);
  const TempStore temp("/dev/shm");
  for (int round = 0; round < 300; ++round) {
    const auto& type = types[random() % std::size(types)];
    eo_array array = array_of(type.dtype, {}, static_cast<int>(random() % 2));
    array.ndim = static_cast<int>(random() % 6);
    std::size_t bytes = type.item;
    for (int i = 0; i < array.ndim; ++i) {
      array.shape[i] = 1 + random() % 6;
      bytes *= array.shape[i];
    }
    std::string data = random_bytes(bytes, random);
    array.data = data.data();
    REQUIRE(eo_store(temp.store, "a", &array, 0) == 0);
    for (int part_round = 0; part_round < 5; ++part_round) {
      const RandomPart part = random_part(array, random);
      const std::string expected = naive_part(array, data, type.item, part.start, part.count);
      std::string got(part.elements * type.item, '\0');
      eo_array into = array;
      std::copy_n(part.count, array.ndim, into.shape);
      into.data = got.data();
      REQUIRE(eo_load(temp.store, "a", part.start, part.count, &into) == 0);
      CHECK(got == expected);
      // The same part is put into a draft of zeros, and loaded again.
      eo_draft* draft = nullptr;
      REQUIRE(eo_create(temp.store, "b", &array, &draft) == 0);
      REQUIRE(eo_put(draft, part.start, part.count, expected.data()) == 0);
      REQUIRE(eo_publish(draft, 0) == 0);
      std::ranges::fill(got, '\x55');
      REQUIRE(eo_load(temp.store, "b", part.start, part.count, &into) == 0);
      CHECK(got == expected);
      std::string all(bytes, '\x55');
      into = array;
      into.data = all.data();
      REQUIRE(eo_load(temp.store, "b", nullptr, nullptr, &into) == 0);
      CHECK(std::ranges::count(all, '\0') >=
            static_cast<std::ptrdiff_t>(all.size() - expected.size()));
    }
  }
}

TEST_CASE("long runs take system calls and short ones a mapping", "[objects]") {
  const TempStore temp;
  constexpr std::uint64_t rows = 6, columns = 20000;
  std::vector<double> data(rows * columns);
  std::iota(data.begin(), data.end(), 0.0);
  const eo_array array = array_of("<f8", {rows, columns});
  eo_draft* draft = nullptr;
  REQUIRE(eo_create(temp.store, "a", &array, &draft) == 0);
  for (const std::uint64_t width : {std::uint64_t{15000}, std::uint64_t{5000}}) {
    const std::uint64_t start[] = {0, width == 15000 ? 0U : 15000U};
    const std::uint64_t count[] = {rows, width};
    std::vector<double> part;
    for (std::uint64_t row = 0; row < rows; ++row) {
      const auto begin = data.begin() + static_cast<long>(row * columns + start[1]);
      part.insert(part.end(), begin, begin + static_cast<long>(width));
    }
    REQUIRE(eo_put(draft, start, count, part.data()) == 0);
  }
  const auto* const memory = static_cast<const double*>(eo_data(draft));
  CHECK(std::equal(data.begin(), data.end(), memory));
  REQUIRE(eo_publish(draft, EO_SYNC) == 0);
  const std::uint64_t start[] = {1, 1000};
  const std::uint64_t count[] = {3, 10000};
  std::vector<double> got(30000);
  eo_array into = array_of("<f8", {3, 10000}, EO_C_ORDER, got.data());
  REQUIRE(eo_load(temp.store, "a", start, count, &into) == 0);
  CHECK(got[0] == data[columns + 1000]);
  CHECK(got[29999] == data[3 * columns + 10999]);
}

TEST_CASE("a part outside of the array is an error", "[objects]") {
  const TempStore temp;
  REQUIRE(store_filled(temp.store, "a", 1, 10) == 0);
  auto memory = filled(0, 10);
  for (const auto& [start, count, error] :
       std::initializer_list<std::tuple<std::uint64_t, std::uint64_t, int>>{
           {0, 10, 0},
           {10, 0, 0},
           {3, 7, 0},
           {3, 8, EINVAL},
           {11, 0, EINVAL},
           {0, 11, EINVAL},
           {UINT64_MAX, 2, EINVAL},
           {5, UINT64_MAX - 3, EINVAL}}) {
    eo_array into = array_of("<i4", {count}, EO_C_ORDER, memory.data());
    INFO(start << ' ' << count);
    const int got = eo_load(temp.store, "a", &start, &count, &into);
    CHECK((error == 0 ? got == 0 : got != 0));
  }
}

TEST_CASE("a wrong type, shape or order is refused", "[objects]") {
  const TempStore temp;
  double data[6] = {};
  eo_array array = array_of("<f8", {2, 3}, EO_C_ORDER, data);
  REQUIRE(eo_store(temp.store, "a", &array, 0) == 0);
  const auto load = [&](const eo_array& into) {
    return eo_load(temp.store, "a", nullptr, nullptr, &into);
  };
  CHECK(load(array_of("<f4", {2, 3}, EO_C_ORDER, data)) == EINVAL);
  CHECK(load(array_of(">f8", {2, 3}, EO_C_ORDER, data)) == EINVAL);
  CHECK(std::string(eo_error()).find("byte order") != std::string::npos);
  CHECK(load(array_of("<f8", {3, 2}, EO_C_ORDER, data)) == EINVAL);
  CHECK(load(array_of("<f8", {6}, EO_C_ORDER, data)) == EINVAL);
  CHECK(load(array_of("<f8", {2, 3}, EO_FORTRAN_ORDER, data)) == EINVAL);
  CHECK(load(array_of("<f8", {2, 3})) == EINVAL);
  CHECK(load(array) == 0);
  array.data = nullptr;
  CHECK(eo_store(temp.store, "a", &array, 0) == EINVAL);
  array.data = data;
  CHECK(eo_store(temp.store, "a", &array, 2) == EINVAL);
}

TEST_CASE("arguments of NULL are errors", "[objects]") {
  const TempStore temp;
  eo_array array{};
  CHECK(eo_open("/tmp", nullptr) == EINVAL);
  CHECK(eo_store(nullptr, "a", &array, 0) == EINVAL);
  CHECK(eo_store(temp.store, nullptr, &array, 0) == EINVAL);
  CHECK(eo_store(temp.store, "a", nullptr, 0) == EINVAL);
  CHECK(eo_load(temp.store, "a", nullptr, nullptr, nullptr) == EINVAL);
  CHECK(eo_view(temp.store, "a", nullptr) == EINVAL);
  CHECK(eo_info(temp.store, nullptr, &array) == EINVAL);
  CHECK(eo_list(temp.store, nullptr, nullptr) == EINVAL);
  CHECK(eo_remove(temp.store, nullptr) == EINVAL);
  CHECK(eo_create(temp.store, "a", &array, nullptr) == EINVAL);
  CHECK(eo_put(nullptr, nullptr, nullptr, nullptr) == EINVAL);
  CHECK(eo_publish(nullptr, 0) == EINVAL);
  CHECK(eo_data(nullptr) == nullptr);
  CHECK(eo_commit(nullptr, 0) == EINVAL);
  CHECK(eo_commit(temp.store, 0) == EINVAL);
  eo_close(nullptr);
  eo_discard(nullptr);
  eo_release(nullptr);
}

TEST_CASE("a view keeps its version", "[objects]") {
  eo_array view{};
  {
    const TempStore temp;
    REQUIRE(store_filled(temp.store, "a", 1, 100000) == 0);
    REQUIRE(eo_view(temp.store, "a", &view) == 0);
    REQUIRE(store_filled(temp.store, "a", 2, 50) == 0);
    CHECK(value_of(temp.store, "a") == 2);
    REQUIRE(eo_remove(temp.store, "a") == 0);
    CHECK(value_of(temp.store, "a") == -1);
    CHECK(eo_remove(temp.store, "a") == ENOENT);
  }
  const auto* const data = static_cast<const std::int32_t*>(view.data);
  CHECK(std::all_of(data, data + 100000, [](std::int32_t value) { return value == 1; }));
  eo_release(&view);
}

TEST_CASE("damaged files are errors", "[objects]") {
  const TempStore temp;
  REQUIRE(store_filled(temp.store, "a", 1, 1000) == 0);
  const std::string file = file_of(temp, "a");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  CHECK(value_of(temp.store, "a") == -2);
  CHECK(std::string(eo_error()).find("needs") != std::string::npos);
  eo_array array{};
  CHECK(eo_info(temp.store, "a", &array) == EBADMSG);
  write_file(file, "");
  CHECK(eo_info(temp.store, "a", &array) == EBADMSG);
  std::filesystem::remove(file);
  std::filesystem::create_symlink("/etc/passwd", file);
  CHECK(eo_info(temp.store, "a", &array) == EBADMSG);
  std::filesystem::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  CHECK(eo_info(temp.store, "a", &array) == EBADMSG);
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  CHECK(eo_info(temp.store, "a", &array) == EBADMSG);
  CHECK(store_filled(temp.store, "a", 1, 10) == EISDIR);
  CHECK(drafts_in(temp.path()).empty());
}

TEST_CASE("data that is not aligned is loaded, not viewed", "[objects]") {
  const TempStore temp;
  const std::string text = "{'descr': '<i4', 'fortran_order': False, 'shape': (1,)}";
  std::string bytes("\x93NUMPY\x01\0", 8);
  bytes += static_cast<char>(text.size());
  bytes += '\0';
  bytes += text + std::string("\x2a\0\0\0", 4);
  REQUIRE((bytes.size() - 4) % 4 != 0);
  write_file(file_of(temp, "a"), bytes);
  eo_array view{};
  CHECK(eo_view(temp.store, "a", &view) == EBADMSG);
  std::int32_t value = 0;
  const eo_array into = array_of("<i4", {1}, EO_C_ORDER, &value);
  CHECK(eo_load(temp.store, "a", nullptr, nullptr, &into) == 0);
  CHECK(value == 42);
}

TEST_CASE("ten thousand objects are listed in order", "[objects]") {
  const TempStore temp("/dev/shm");
  std::vector<std::string> expected;
  for (int i = 0; i < 10000; ++i) {
    std::string name = "d" + std::to_string(i % 7) + "/";
    name += std::to_string(i * 37 % 10000);
    REQUIRE(store_filled(temp.store, name.c_str(), i, 1) == 0);
    expected.push_back(std::move(name));
  }
  std::ranges::sort(expected);
  write_file(temp.path() + "/README.txt", "not an object");
  write_file(temp.path() + "/.npy", "nor this");
  CHECK(names_of(temp.store) == expected);
  const auto stop = [](const char*, void* context) {
    return ++*static_cast<int*>(context) == 3 ? -7 : 0;
  };
  int calls = 0;
  CHECK(eo_list(temp.store, stop, &calls) == -7);
  CHECK(calls == 3);
}

TEST_CASE("a store is any directory", "[objects]") {
  const TempDirectory temp;
  ::setenv("EFS_MOUNT", temp.path().c_str(), 1);
  eo_storage* store = nullptr;
  REQUIRE(eo_open(nullptr, &store) == 0);
  CHECK(store_filled(store, "a", 3, 3) == 0);
  eo_close(store);
  CHECK(std::filesystem::exists(temp.path() + "/objects/a.npy"));
  ::unsetenv("EFS_MOUNT");
  CHECK(eo_open(nullptr, &store) == EINVAL);
  CHECK(std::string(eo_error()).find("EFS_MOUNT") != std::string::npos);
  CHECK(eo_open("", &store) == EINVAL);
  CHECK(eo_open((temp.path() + "/objects/a.npy").c_str(), &store) == ENOTDIR);
  REQUIRE(eo_open((temp.path() + "/x/y/z/").c_str(), &store) == 0);
  eo_close(store);
}

}  // namespace efs::objects_test
