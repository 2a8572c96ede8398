// SPDX-License-Identifier: BSD-3-Clause
// Every class of efs_objects.hpp, in a directory.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <efs_objects.hpp>
#include <vector>

#define HOLDS(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      std::fprintf(stderr, "%d: not %s\n", __LINE__, #condition); \
      std::exit(1);                                               \
    }                                                             \
  } while (0)

namespace {

/// The error of a call that must fail, and a word that its text must have.
template <typename Call>
int error_of(Call call, const char* word) {
  try {
    call();
  } catch (const eo::Error& error) {
    HOLDS(std::strstr(error.what(), word) != nullptr);
    return error.code().value();
  }
  return 0;
}

void values(eo::Store& store) {
  store.store("dt", 0.125);
  HOLDS(store.load<double>("dt") == 0.125);
  store.store("steps", std::uint64_t{1} << 40, eo::sync);
  HOLDS(store.load<std::uint64_t>("steps") == std::uint64_t{1} << 40);
  store.store("text", std::string("a\0b", 3));
  HOLDS(store.load<std::string>("text") == std::string("a\0b", 3));
  store.store("literal", "four");
  HOLDS(store.load<std::string>("literal") == "four");
  store.store("yes", true);
  HOLDS(store.load<bool>("yes"));
  store.store("z", std::complex<float>(1, -2));
  HOLDS(store.load<std::complex<float>>("z").imag() == -2);
  HOLDS(error_of([&] { store.load<float>("dt"); }, "dt") == EINVAL);
  HOLDS(error_of([&] { store.load<double>("nosuch"); }, "nosuch.npy") == ENOENT);
}

void ranges(eo::Store& store) {
  const std::vector<double> u{0, 1, 2, 3, 4, 5};
  const int rows = 2;
  const int columns = 3;
  store.store("u", u);
  HOLDS(store.load<std::vector<double>>("u") == u);
  store.store("grid", u, {rows, columns});
  HOLDS(store.info("grid").extents == (std::vector<std::uint64_t>{2, 3}));
  HOLDS(store.load<std::vector<double>>("grid") == u);
  store.store("line", u, {6});
  HOLDS(store.info("line").extents.size() == 1);
  store.store("turned", u.data(), eo::Shape::fortran(rows, columns));
  HOLDS(store.view<double>("turned")(1, 2) == 5 && store.view<double>("turned")(1, 0) == 1);
  HOLDS(store.view<double>("grid")(1, 0) == 3);
  std::array<double, 6> all{};
  store.load("grid", all);
  HOLDS(all[5] == 5);
  std::array<double, 5> few{};
  HOLDS(error_of([&] { store.load("grid", few); }, "6 elements and the range 5") == EINVAL);
  HOLDS(error_of([&] { store.store("bad", u, {2, 2}); }, "4 elements") == EINVAL);
  float matrix[2][3] = {{1, 2, 3}, {4, 5, 6}};
  store.store("matrix", matrix);
  std::memset(matrix, 0, sizeof matrix);
  store.load("matrix", matrix);
  HOLDS(matrix[1][0] == 4 && store.info("matrix").extents.size() == 2);
  double part[2] = {};
  store.load("grid", part, {0, 1}, {2, 1});
  HOLDS(part[0] == 1 && part[1] == 4);
  HOLDS(error_of([&] { store.load("grid", part, {0}, {2}); }, "2 numbers") == EINVAL);
  HOLDS(error_of([&] { store.load("turned", part, {1, 0}, {1, 2}); }, "order") == EINVAL);
  store.load("turned", part, {1, 0}, eo::Shape::fortran(1, 2));
  HOLDS(part[0] == 1 && part[1] == 3);
#ifdef __cpp_lib_span
  store.store("span", std::span(u).subspan(2));
  std::vector<double> four(4);
  std::span<double> into(four);
  store.load("span", into);
  HOLDS(four[0] == 2);
#endif
}

void views_and_drafts(eo::Store& store) {
  eo::View<double> view = store.view<double>("u");
  store.store("u", std::vector<double>(6, 9.0));
  double sum = 0;
  for (const double value : view) {
    sum += value;
  }
  HOLDS(sum == 15 && view.size() == 6);
  HOLDS(error_of([&] { store.view<int>("u"); }, "<f8") == EINVAL);
  {
    eo::Draft<int> lost = store.create<int>("lost", {10});
    lost[3] = 4;
  }
  HOLDS(error_of([&] { store.view<int>("lost"); }, "lost") == ENOENT);
  eo::Draft<int> draft = store.create<int>("made", {4, 2});
  const int row[2] = {7, 8};
  draft.put({3, 0}, {1, 2}, row);
  HOLDS(error_of([&] { draft.put({3}, {1}, row); }, "2 numbers") == EINVAL);
  draft[0] = 1;
  eo::Draft<int> moved = std::move(draft);
  moved.publish(eo::sync);
  HOLDS(store.load<std::vector<int>>("made") == (std::vector<int>{1, 0, 0, 0, 0, 0, 7, 8}));
}

void versions(eo::Store& store) {
  for (std::uint64_t n = 1; n <= 3; ++n) {
    eo::Version version = store.begin("run", n);
    version.store("n", n);
    version.commit(n == 3 ? eo::sync : eo::Flags::none);
  }
  {
    eo::Version aborted = store.begin("run", 4);
    aborted.store("n", 4);
  }
  HOLDS(store.version("run").load<std::uint64_t>("n") == 3);
  HOLDS(store.version("run", 1).load<std::uint64_t>("n") == 1);
  eo::Version busy = store.begin("run", 5);
  eo::Draft<float> draft = busy.create<float>("late", {1});
  HOLDS(error_of([&] { busy.commit(); }, "commit") == EBUSY);
  draft.publish();
  busy.commit();
  store.keep("run", 1);
  HOLDS(error_of([&] { store.version("run", 3); }, "run") == ENOENT);
  HOLDS(store.version("run").list() == std::vector<std::string>{"late"});
}

void bundles(eo::Store& store) {
  eo::Version bundle = store.begin_bundle("many");
  for (int i = 0; i < 100; ++i) {
    bundle.store("n" + std::to_string(i), i);
  }
  bundle.commit();
  eo::Store many = store.bundle("many");
  HOLDS(many.list().size() == 100 && many.load<int>("n42") == 42);
  {
    eo::Version aborted = store.begin_bundle("many");
    aborted.store("n42", 0);
  }
  HOLDS(store.bundle("many").load<int>("n42") == 42);
  store.remove_bundle("many");
  HOLDS(error_of([&] { store.bundle("many"); }, "many") == ENOENT);
}

void checkpoints(eo::Store& store) {
  std::vector<double> u(20000, 1.0);
  int step = 1;
  store.configure("strategy", "copy");
  store.protect("u", u);
  store.protect("step", step);
  store.persisted_hint("u");
  store.checkpoint("ck", 1, eo::sync);
  u.assign(u.size(), 2.0);
  step = 2;
  store.checkpoint("ck", 2);
  store.wait();
  u.assign(u.size(), 0.0);
  HOLDS(store.restore("ck") == 2 && step == 2 && u.back() == 2.0);
  HOLDS(store.restore("ck", 1) == 1 && step == 1 && u.back() == 1.0);
  HOLDS(store.newest("ck") == 2);
  store.version("ck").verify();
  store.remove_version("ck", 2);
  HOLDS(store.newest("ck") == 1);
  store.unprotect("u");
  store.unprotect("step");
  HOLDS(error_of([&] { store.restore("nosuch"); }, "nosuch") == ENOENT);
}

/// A type with the members of std::mdspan that the header uses.
struct Mdspan {
  using layout_type = void;

  static constexpr std::size_t rank() { return 2; }

  double* data_handle() const { return data; }

  std::size_t extent(std::size_t i) const { return extents[i]; }

  std::size_t stride(std::size_t i) const { return strides[i]; }

  double* data;
  std::size_t extents[2];
  std::size_t strides[2];
};

// protect() takes memory that restore() can write.
using eo::detail::is_read_only;
static_assert(is_read_only<eo::View<double>>() && is_read_only<const std::vector<int>>());
static_assert(is_read_only<std::string_view>() && is_read_only<const char*>());
static_assert(is_read_only<const double>() && is_read_only<const double[2][3]>());
static_assert(!is_read_only<double>() && !is_read_only<double[2][3]>());
static_assert(!is_read_only<std::vector<int>>() && !is_read_only<Mdspan>());

void mdspans(eo::Store& store) {
  double memory[6] = {0, 1, 2, 3, 4, 5};
  store.store("right", Mdspan{memory, {2, 3}, {3, 1}});
  HOLDS(store.view<double>("right")(1, 0) == 3);
  store.store("left", Mdspan{memory, {2, 3}, {1, 2}});
  HOLDS(store.view<double>("left")(1, 0) == 1);
  HOLDS(error_of([&] { store.store("gaps", Mdspan{memory, {2, 2}, {3, 1}}); }, "contiguous") ==
        EINVAL);
  double into[6] = {};
  Mdspan loaded{into, {2, 3}, {1, 2}};
  store.load("left", loaded);
  HOLDS(into[5] == 5);
  HOLDS(error_of([&] { store.load("right", loaded); }, "order") == EINVAL);
#ifdef __cpp_lib_mdspan
  std::mdspan<double, std::dextents<std::size_t, 2>> span(memory, 3, 2);
  store.store("mdspan", span);
  const bool last = store.view<double>("mdspan").mdspan<2>()[2, 1] == 5;
  HOLDS(last);
  std::puts("mdspan");
#endif
}

}  // namespace

int main(int, char** arguments) {
  eo::Store store(arguments[1]);
  values(store);
  ranges(store);
  views_and_drafts(store);
  versions(store);
  bundles(store);
  checkpoints(store);
  mdspans(store);
  for (const std::string& name : store.list()) {
    std::puts(name.c_str());
  }
}
