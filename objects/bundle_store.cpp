// SPDX-License-Identifier: BSD-3-Clause
// Bundles as stores.
#include <fcntl.h>
#include <unistd.h>

#include "objects/name.hpp"
#include "objects/store.hpp"

namespace efs::objects {

namespace {

/// Bundles are in stores only: a version bundles its small arrays by itself.
Status check_place(const Store& store) {
  const bool version = store.unpublished || store.joined;
  return version || store.is_bundle()
             ? fail(EINVAL, "a version or a bundle cannot contain bundles",
                    "Store the arrays in the version; its small ones share a file")
             : Status();
}

std::unique_ptr<Store> made(const Store& store, std::string_view name) {
  auto bundle = std::make_unique<Store>();
  bundle->path = store.path + '/' + std::string(name) + std::string(bundle_suffix);
  return bundle;
}

}  // namespace

Result<std::unique_ptr<Store>> begin_bundle(const Store& store, std::string_view name) {
  EO_TRY(check_writable(store));
  EO_TRY(check_place(store));
  EO_TRY(check_name(name));
  auto root = open_directory(store.directory.get(), ".");
  if (!root) {
    return std::unexpected(std::move(root.error()));
  }
  auto entry = open_place(store, {name, bundle_suffix}, true);
  if (!entry) {
    return std::unexpected(std::move(entry.error()));
  }
  auto bundle = made(store, name);
  auto file = create_draft(entry->directory.get());
  if (!file) {
    return std::unexpected(std::move(file.error()));
  }
  // Both descriptors have one lock.
  Fd second(::fcntl(file->fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!second) {
    const int error = errno;
    ::unlinkat(entry->directory.get(), file->name.c_str(), 0);
    return fail(error);
  }
  bundle->bundle = std::make_shared<Bundle>(std::move(second));
  bundle->unpublished_bundle = std::make_unique<UnpublishedBundle>(
      UnpublishedBundle{std::move(*root), std::string(name), std::move(*entry), std::move(*file)});
  return bundle;
}

Result<std::unique_ptr<Store>> open_bundle(const Store& store, std::string_view name) {
  EO_TRY(check_place(store));
  EO_TRY(check_name(name));
  const auto entry = open_place(store, {name, bundle_suffix}, false);
  if (!entry) {
    return std::unexpected(entry.error());
  }
  auto file = open_file(entry->directory.get(), entry->name);
  if (!file) {
    return std::unexpected(std::move(file.error()));
  }
  auto bundle = made(store, name);
  auto opened = Bundle::open(std::move(*file));
  if (!opened) {
    return std::unexpected(std::move(opened.error()));
  }
  if (const auto& failure = (*opened)->failure()) {
    return std::unexpected(*failure);
  }
  bundle->bundle = std::move(*opened);
  bundle->writable = false;
  return bundle;
}

Status remove_bundle(const Store& store, std::string_view name) {
  EO_TRY(check_writable(store));
  EO_TRY(check_place(store));
  EO_TRY(check_name(name));
  return remove_file(store, {name, bundle_suffix});
}

Status commit_bundle(const Store& bundle, unsigned flags) {
  const UnpublishedBundle& place = *bundle.unpublished_bundle;
  EO_TRY(bundle.bundle->finish(false));
  return publish(place.root, place.name, place.entry, place.file, flags);
}

void abort_bundle(const Store& bundle) {
  const UnpublishedBundle& place = *bundle.unpublished_bundle;
  if (place.process == ::getpid()) {
    ::unlinkat(place.entry.directory.get(), place.file.name.c_str(), 0);
  }
}

}  // namespace efs::objects
