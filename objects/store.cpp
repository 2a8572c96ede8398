// SPDX-License-Identifier: BSD-3-Clause
#include "objects/store.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "objects/checksum.hpp"
#include "objects/name.hpp"
#include "objects/slab.hpp"

namespace efs::objects {

namespace {

/// Writes the bytes after those of the sum, and adds them to it, while they are in the cache.
Status write_and_add(int fd, std::string_view bytes, std::uint64_t offset, Checksum& sum) {
  constexpr std::size_t cached = 256U << 10U;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, cached);
    sum.add(part.data(), part.size());
    EO_TRY(write_all(fd, part.data(), part.size(), offset));
    offset += part.size();
    bytes.remove_prefix(part.size());
  }
  return {};
}

/// Writes the file of an array, with its checksum if `sum` is not NULL.
Status write_object(int fd, const Shape& shape, const void* data, Checksum* sum) {
  const std::string header = header_of(shape);
  const auto* const bytes = static_cast<const char*>(data);
  // The size comes first: the file system can then use large pages from the first write on.
  if (::ftruncate(fd, static_cast<off_t>(header.size() + shape.bytes)) != 0) {
    return fail(errno);
  }
  if (sum != nullptr) {
    EO_TRY(write_and_add(fd, header, 0, *sum));
    return write_and_add(fd, std::string_view(bytes, shape.bytes), header.size(), *sum);
  }
  EO_TRY(write_all(fd, header.data(), header.size(), 0));
  return write_all(fd, bytes, shape.bytes, header.size());
}

/// EINVAL unless the memory has the type and the order of the object.
Status check_same(const Shape& object, const Shape& memory) {
  if (object.dtype != memory.dtype) {
    const bool swapped = object.dtype.substr(1) == memory.dtype.substr(1);
    return fail(EINVAL,
                "the object has dtype " + object.dtype + ", the memory " + memory.dtype +
                    (swapped ? ", which is the other byte order" : ""),
                swapped ? "Load it as it is and swap the bytes" : "Load it with its own dtype");
  }
  if (object.ndim != memory.ndim) {
    return fail(EINVAL, "the object is " + text_of(object) + ", the memory " + text_of(memory));
  }
  if (object.ndim > 1 && object.fortran != memory.fortran) {
    return fail(EINVAL, "the object and the memory have different orders of the indices",
                "Load it in its own order; eo_info() has it");
  }
  return {};
}

Status copy_runs(const char* data, const Slab& slab, char* into) {
  return slab.for_each([&](std::uint64_t array, std::uint64_t part) {
    std::memcpy(into + part, data + array, slab.run());
    return Status();
  });
}

Status read_runs(const Object& object, const Slab& slab, char* into) {
  const std::uint64_t offset = object.header.offset;
  if (object.mapping) {
    return copy_runs(object.bytes() + offset, slab, into);
  }
  if (slab.run() >= shortest_call || slab.run() == slab.bytes()) {
    return slab.for_each([&](std::uint64_t array, std::uint64_t part) {
      return read_all(object.fd.get(), into + part, slab.run(), offset + array);
    });
  }
  const auto mapping = Mapping::of(object.fd.get(), offset + object.header.shape.bytes, false);
  if (!mapping) {
    return std::unexpected(mapping.error());
  }
  return copy_runs(mapping->data() + offset, slab, into);
}

/// Stores an array as a file of its own.
Status store_file(const Store& store, std::string_view name, const Shape& shape,
                  const eo_array& array, unsigned flags) {
  const auto entry = open_place(store, {name, object_suffix}, true);
  if (!entry) {
    return std::unexpected(entry.error());
  }
  const auto draft = create_draft(entry->directory.get());
  if (!draft) {
    return std::unexpected(draft.error());
  }
  // A version needs the checksum; its commit then does not read the file again.
  std::optional<Checksum> sum;
  if (store.written) {
    auto begun = Checksum::begin();
    if (begun) {
      sum = std::move(*begun);
    }
  }
  const int fd = draft->fd.get();
  if (auto written = write_object(fd, shape, array.data, sum ? &*sum : nullptr); !written) {
    ::unlinkat(entry->directory.get(), draft->name.c_str(), 0);
    return written;
  }
  EO_TRY(publish(store.directory, name, *entry, *draft, flags));
  if (store.written) {
    struct stat status{};
    const bool known = sum && ::fstat(fd, &status) == 0;
    store.written->set(name,
                       known ? std::optional(Written::of(status, sum->value())) : std::nullopt);
  }
  if (store.bundle) {
    store.bundle->erase(name);
  }
  return {};
}

Result<Object> open_object_file(const Store& store, std::string_view name) {
  const auto entry = open_place(store, {name, object_suffix}, false);
  if (!entry) {
    return std::unexpected(entry.error());
  }
  auto fd = open_file(entry->directory.get(), entry->name);
  return fd ? read_object(std::move(*fd)) : std::unexpected(std::move(fd.error()));
}

/// Returns true if a process that joined this version may have stored the array, and it is a file.
bool is_file_of_other(const Store& store, std::string_view name) {
  if (!store.unpublished) {
    return false;
  }
  const std::scoped_lock lock(store.unpublished->mutex);
  if (!store.unpublished->joins) {
    return false;
  }
  const auto entry = open_place(store, {name, object_suffix}, false);
  return entry &&
         ::faccessat(entry->directory.get(), entry->name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

Status collect(int directory, const std::string& prefix, std::vector<std::string>& found) {
  const auto entries = list(directory);
  if (!entries) {
    return std::unexpected(entries.error());
  }
  for (const Listed& entry : *entries) {
    const std::string_view name = entry.name;
    if (entry.file && name.ends_with(object_suffix)) {
      const std::string_view stem = name.substr(0, name.size() - object_suffix.size());
      if (is_component(stem)) {
        found.push_back(prefix + std::string(stem));
      }
    } else if (entry.directory && is_component(name) &&
               std::ranges::count(prefix, '/') + 1 < max_depth) {
      const auto below = open_directory(directory, entry.name);
      if (below) {
        EO_TRY(collect(below->get(), prefix + entry.name + '/', found));
      } else if (below.error().code != ENOENT) {
        return std::unexpected(below.error());
      }
    }
  }
  return {};
}

}  // namespace

Status check_flags(unsigned flags) {
  return (flags & ~EO_SYNC) == 0 ? Status() : fail(EINVAL, "a flag is unknown", "Use 0 or EO_SYNC");
}

Status check_writable(const Store& store) {
  return store.writable ? Status()
                        : fail(EROFS, "the version or the bundle is published", "Begin a new one");
}

Status check_directory(const Store& store) {
  return store.is_bundle() ? fail(ENOTSUP, "a bundle has arrays only", "Use the store itself")
                           : Status();
}

Result<Entry> open_place(const Store& store, const Place& place, bool make) {
  auto entry = open_parent(store.directory.get(), place.name, make);
  if (entry) {
    entry->name += place.suffix;
  }
  return entry;
}

Result<std::unique_ptr<Store>> open_store(const char* directory) {
  auto store = std::make_unique<Store>();
  if (directory != nullptr) {
    store->path = directory;
  } else if (const char* mount = std::getenv("EFS_MOUNT"); mount != nullptr && *mount != '\0') {
    store->path = std::string(mount) + "/objects";
  } else {
    return fail(EINVAL, "EFS_MOUNT is not set",
                "Name a directory, or run the program under efs run");
  }
  if (store->path.empty()) {
    return fail(EINVAL, "the path is empty", "Name a directory");
  }
  EO_TRY(make_directories(store->path));
  auto opened = open_directory(AT_FDCWD, store->path);
  if (!opened) {
    return std::unexpected(std::move(opened.error()));
  }
  store->directory = std::move(*opened);
  store->checkpoints = new_checkpoints();
  sweep(store->directory.get());
  return store;
}

Status store_array(const Store& store, std::string_view name, const eo_array& array,
                   unsigned flags) {
  EO_TRY(check_flags(flags));
  EO_TRY(check_writable(store));
  EO_TRY(check_name(name));
  const auto shape = checked(array);
  if (!shape) {
    return std::unexpected(shape.error());
  }
  if (array.data == nullptr && shape->bytes > 0) {
    return fail(EINVAL, "data is NULL");
  }
  const bool small =
      store.is_bundle() || (store.bundle && shape->bytes <= max_small &&
                            !store.written->has(name) && !is_file_of_other(store, name));
  return small ? store.bundle->store(name, *shape, array.data, (flags & EO_SYNC) != 0)
               : store_file(store, name, *shape, array, flags);
}

Result<Object> open_object(const Store& store, std::string_view name) {
  EO_TRY(check_name(name));
  if (!store.bundle) {
    return open_object_file(store, name);
  }
  auto member = store.bundle->find(name);
  if (member || store.is_bundle()) {
    return member;
  }
  // The file of an object is readable although the bundle of the small ones is damaged.
  auto object = open_object_file(store, name);
  return !object && object.error().code == ENOENT ? std::move(member) : std::move(object);
}

Result<Object> read_object(Fd fd) {
  const auto head = read_head(fd.get(), max_preamble + max_header_text);
  if (!head) {
    return std::unexpected(head.error());
  }
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) {
    return fail(errno);
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  auto header = checked_header(*head, size);
  if (!header) {
    return std::unexpected(std::move(header.error()));
  }
  return Object{std::move(fd), std::move(*header), size, nullptr, 0};
}

Result<Header> checked_header(std::string_view head, std::uint64_t size) {
  auto header = parse_header(head);
  if (header && size < header->offset + header->shape.bytes) {
    return fail(EBADMSG, "the file has " + std::to_string(size) + " bytes, and " +
                             text_of(header->shape) + " needs " +
                             std::to_string(header->offset + header->shape.bytes));
  }
  return header;
}

Status load(const Store& store, std::string_view name, const Part& part, const eo_array& into) {
  const auto memory = checked(into);
  if (!memory) {
    return std::unexpected(memory.error());
  }
  const auto object = open_object(store, name);
  if (!object) {
    return std::unexpected(object.error());
  }
  const Shape& shape = object->header.shape;
  EO_TRY(check_same(shape, *memory));
  const auto slab = Slab::of(shape, part.start, part.count);
  if (!slab) {
    return std::unexpected(slab.error());
  }
  for (int i = 0; i < shape.ndim; ++i) {
    if (memory->dims[i] != slab->count(i)) {
      return fail(EINVAL, "the part has " + std::to_string(slab->count(i)) +
                              " elements in dimension " + std::to_string(i) + ", the memory " +
                              std::to_string(memory->dims[i]));
    }
  }
  if (into.data == nullptr && slab->bytes() > 0) {
    return fail(EINVAL, "data is NULL");
  }
  return read_runs(*object, *slab, static_cast<char*>(into.data));
}

Result<eo_array> view(const Store& store, std::string_view name) {
  const auto object = open_object(store, name);
  if (!object) {
    return std::unexpected(object.error());
  }
  const Header& header = object->header;
  if ((object->start + header.offset) % header.shape.alignment != 0) {
    return fail(EBADMSG, "the data in the file is not aligned",
                "Use eo_load, or store the object again");
  }
  eo_array array{};
  describe(header.shape, array);
  if (object->mapping) {
    array.data = const_cast<char*>(object->bytes()) + header.offset;
    array.mapping = new std::shared_ptr<const Mapping>(object->mapping);
    return array;
  }
  auto mapping = Mapping::of(object->fd.get(), header.offset + header.shape.bytes, false);
  if (!mapping) {
    return std::unexpected(std::move(mapping.error()));
  }
  array.mapped = mapping->size();
  array.mapping = mapping->release();
  array.data = static_cast<char*>(array.mapping) + header.offset;
  return array;
}

void release(eo_array& view) {
  if (view.mapped > 0) {
    ::munmap(view.mapping, view.mapped);
  } else {
    delete static_cast<std::shared_ptr<const Mapping>*>(view.mapping);
  }
  view.mapping = view.data = nullptr;
  view.mapped = 0;
}

Result<std::vector<std::string>> file_names(const Store& store) {
  std::vector<std::string> found;
  EO_TRY(collect(store.directory.get(), "", found));
  std::ranges::sort(found);
  return found;
}

Result<std::vector<std::string>> names(const Store& store) {
  if (!store.bundle) {
    return file_names(store);
  }
  auto found = store.bundle->names();
  if (found && !store.is_bundle()) {
    EO_TRY(collect(store.directory.get(), "", *found));
  }
  if (found) {
    std::ranges::sort(*found);
    const auto doubled = std::ranges::unique(*found);
    found->erase(doubled.begin(), doubled.end());
  }
  return found;
}

Status remove(const Store& store, std::string_view name) {
  EO_TRY(check_writable(store));
  EO_TRY(check_name(name));
  const bool erased = store.bundle && store.bundle->erase(name);
  if (store.is_bundle()) {
    return erased ? Status() : fail(ENOENT);
  }
  // A process that joined the version may have stored a file of that name, too.
  auto removed = remove_file(store, {name, object_suffix});
  if (store.written && removed) {
    store.written->remove(name);
  }
  return erased && !removed && removed.error().code == ENOENT ? Status() : removed;
}

Status remove_file(const Store& store, const Place& place) {
  const auto entry = open_place(store, place, false);
  if (!entry) {
    return std::unexpected(entry.error());
  }
  return ::unlinkat(entry->directory.get(), entry->name.c_str(), 0) == 0 ? Status() : fail(errno);
}

Status publish(const Fd& root, std::string_view name, const Entry& entry, const DraftFile& file,
               unsigned flags) {
  const bool sync = (flags & EO_SYNC) != 0;
  const int directory = entry.directory.get();
  Status status = sync ? sync_data(file.fd.get()) : check_writes(file.fd.get());
  if (status && ::renameat(directory, file.name.c_str(), directory, entry.name.c_str()) != 0) {
    status = fail(errno);
  }
  if (!status) {
    ::unlinkat(directory, file.name.c_str(), 0);
    return status;
  }
  return sync ? in_place(sync_parents(root.get(), name)) : status;
}

Status in_place(Status synced) {
  if (!synced) {
    Failure& failure = synced.error();
    failure.reason = "it is in its place, but may not survive a crash of the node: " +
                     (failure.reason.empty() ? std::strerror(failure.code) : failure.reason);
    failure.remedy = "Check the device of the file system";
  }
  return synced;
}

}  // namespace efs::objects
