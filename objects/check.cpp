// SPDX-License-Identifier: BSD-3-Clause
// The comparison of a version with its manifest.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "objects/checksum.hpp"
#include "objects/manifest.hpp"
#include "objects/name.hpp"
#include "objects/store.hpp"

namespace efs::objects {

namespace {

std::unexpected<Failure> differs(const std::string& name, const std::string& reason) {
  return fail(EBADMSG, printable(name) + ": " + reason, "Use another version, or make it again");
}

Result<std::vector<Recorded>> read_manifest(const Store& version) {
  const auto file = open_file(version.directory.get(), manifest_name);
  if (!file) {
    return std::unexpected(file.error());
  }
  struct stat status{};
  if (::fstat(file->get(), &status) != 0) {
    return fail(errno);
  }
  if (static_cast<std::uint64_t>(status.st_size) > max_manifest) {
    return fail(EBADMSG, "the manifest is longer than 256 MiB");
  }
  const auto text = read_head(file->get(), static_cast<std::size_t>(status.st_size));
  return text ? parse_manifest(*text) : std::unexpected(text.error());
}

bool same(const Shape& a, const Shape& b) {
  return a.dtype == b.dtype && a.fortran == b.fortran && a.ndim == b.ndim &&
         std::equal(a.dims, a.dims + a.ndim, b.dims);
}

Status check_object(const Store& version, const Recorded& recorded) {
  const auto object = open_object(version, recorded.name);
  if (!object) {
    const Failure& failure = object.error();
    if (failure.code != ENOENT && failure.code != EBADMSG && failure.code != ENOTSUP) {
      return std::unexpected(failure);
    }
    return differs(recorded.name,
                   failure.code == ENOENT ? "the object is missing" : failure.reason);
  }
  if (!same(object->header.shape, recorded.shape)) {
    return differs(recorded.name, "the object is " + text_of(object->header.shape) +
                                      ", in the manifest " + text_of(recorded.shape));
  }
  if (object->size != recorded.size) {
    return differs(recorded.name, "the object has " + std::to_string(object->size) +
                                      " bytes, in the manifest " + std::to_string(recorded.size));
  }
  const auto sum = checksum(*object);
  if (!sum) {
    return std::unexpected(sum.error());
  }
  return *sum == recorded.checksum
             ? Status()
             : differs(recorded.name, "the checksum is not that of the manifest");
}

const Recorded* find(const std::vector<Recorded>& manifest, std::string_view name) {
  const auto found = std::ranges::lower_bound(manifest, name, {}, &Recorded::name);
  return found != manifest.end() && found->name == name ? &*found : nullptr;
}

Status check_one(const Store& version, const std::vector<Recorded>& manifest,
                 std::string_view name) {
  if (const Recorded* recorded = find(manifest, name)) {
    return check_object(version, *recorded);
  }
  const auto object = open_object(version, name);
  if (!object && object.error().code == ENOENT) {
    return std::unexpected(object.error());
  }
  return differs(std::string(name), "the object is not in the manifest");
}

Status check_all(const Store& version, const std::vector<Recorded>& manifest) {
  for (const Recorded& recorded : manifest) {
    EO_TRY(check_object(version, recorded));
  }
  const auto found = names(version);
  if (!found) {
    return std::unexpected(found.error());
  }
  for (const std::string& name : *found) {
    if (find(manifest, name) == nullptr) {
      return differs(name, "the object is not in the manifest");
    }
  }
  return {};
}

}  // namespace

bool is_readable(const Store& version) {
  return read_manifest(version) && !(version.bundle && version.bundle->failure());
}

Status check(const Store& version, const char* name) {
  if (version.writable || version.is_bundle()) {
    return fail(EINVAL, "the store is not a committed version", "Use the store of eo_version");
  }
  if (name != nullptr) {
    EO_TRY(check_name(name));
  }
  const auto manifest = read_manifest(version);
  if (!manifest) {
    return std::unexpected(manifest.error());
  }
  return name != nullptr ? check_one(version, *manifest, name) : check_all(version, *manifest);
}

}  // namespace efs::objects
