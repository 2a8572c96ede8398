// SPDX-License-Identifier: BSD-3-Clause
// Restores memory from a version: all of it is verified before the memory changes.
#include <algorithm>
#include <cstring>

#include "objects/checkpoint/checkpoints.hpp"
#include "objects/name.hpp"

namespace efs::objects {

namespace {

eo_array memory_of(const Protected& array) {
  eo_array memory{};
  describe(array.shape, memory);
  memory.data = array.data;
  return memory;
}

/// Adds the name of the array to a failure.
std::unexpected<Failure> about(const Protected& array, const Failure& failure) {
  return fail(failure.code,
              "array " + printable(array.name) + ": " +
                  (failure.reason.empty() ? std::strerror(failure.code) : failure.reason),
              failure.remedy);
}

/// EINVAL unless the object has type, order and shape of the memory.
Status check_fits(const Store& version, const Protected& array) {
  const auto object = open_object(version, array.name);
  if (!object && object.error().code == ENOENT) {
    EO_TRY(check(version, nullptr));  // EBADMSG: it was in the version
    return about(array, {EINVAL, "it is not in the version",
                         "Restore another version, or protect only what the version has"});
  }
  if (!object) {
    return about(array, object.error());
  }
  const Shape& stored = object->header.shape;
  const Shape& memory = array.shape;
  if (stored.dtype == memory.dtype && stored.ndim == memory.ndim &&
      std::equal(stored.dims, stored.dims + stored.ndim, memory.dims) &&
      (stored.ndim < 2 || stored.fortran == memory.fortran)) {
    return {};
  }
  const auto order = [](const Shape& shape) {
    return shape.fortran ? " Fortran order" : " C order";
  };
  return fail(EINVAL,
              "array " + printable(array.name) + ": the version has " + text_of(stored) +
                  order(stored) + ", the memory is " + text_of(memory) + order(memory),
              "Protect memory of the same type and shape, or read the part with eo_load");
}

/// Verifies the version and the arrays. Changes no memory.
Status verify(const Store& version, const std::vector<Protected>& arrays) {
  if (arrays.empty()) {
    return fail(EINVAL, "no array is protected", "Call eo_protect before eo_restore");
  }
  for (const Protected& array : arrays) {
    EO_TRY(check_fits(version, array));
  }
  return check(version, nullptr);
}

Status copy_all(const Store& version, const std::vector<Protected>& arrays) {
  for (const Protected& array : arrays) {
    if (auto loaded = load(version, array.name, {}, memory_of(array)); !loaded) {
      Failure failure = std::move(loaded.error());
      failure.remedy = "The memory is partly restored: restore another version, or start again";
      return about(array, failure);
    }
  }
  return {};
}

/// Failures that another version may not have: the version is damaged, or is removed meanwhile.
bool is_damage(const Failure& failure) {
  return failure.code == EBADMSG || failure.code == ENOTSUP || failure.code == EIO;
}

}  // namespace

Result<std::uint64_t> restore_arrays(const Store& store, std::string_view series, std::uint64_t n,
                                     const std::vector<Protected>& arrays) {
  std::vector<std::uint64_t> candidates{n};
  if (n == EO_LATEST) {
    auto all = versions(store, series);
    if (!all) {
      return std::unexpected(std::move(all.error()));
    }
    candidates = std::move(*all);
    std::ranges::reverse(candidates);
  }
  std::vector<std::uint64_t> damaged;
  Failure first{ENOENT, "the series has no version", "Commit a version first"};
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto version = open_version(store, series, candidates[i]);
    const Status good = version ? verify(**version, arrays) : std::unexpected(version.error());
    if (good) {
      EO_TRY(copy_all(**version, arrays));
      for (const std::uint64_t skipped : damaged) {
        put_aside(store, series, skipped);
      }
      return candidates[i];
    }
    if (good.error().code == EBADMSG) {
      damaged.push_back(candidates[i]);
    }
    if (i == 0) {
      first = good.error();
    }
    if (version && !is_damage(good.error())) {
      return std::unexpected(good.error());
    }
  }
  return std::unexpected(std::move(first));
}

}  // namespace efs::objects
