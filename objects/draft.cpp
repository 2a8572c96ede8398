// SPDX-License-Identifier: BSD-3-Clause
// Drafts of objects.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "objects/name.hpp"
#include "objects/slab.hpp"
#include "objects/store.hpp"

namespace efs::objects {

namespace {

/// Reserves the space of a draft, writes its header and maps it.
Status reserve(Draft& draft) {
  const int fd = draft.file.fd.get();
  const std::string header = header_of(draft.header.shape);
  const auto size = static_cast<off_t>(header.size() + draft.header.shape.bytes);
  draft.header.offset = header.size();
  if (::ftruncate(fd, size) != 0) {
    return fail(errno);
  }
  // A store to a mapping of a full file system would be SIGBUS.
  int error = EINTR;
  while (error == EINTR) {
    error = ::posix_fallocate(fd, 0, size);
  }
  if (error != 0) {
    return fail(error);
  }
  EO_TRY(write_all(fd, header.data(), header.size(), 0));
  auto mapping = Mapping::of(fd, static_cast<std::size_t>(size), true);
  if (!mapping) {
    return std::unexpected(std::move(mapping.error()));
  }
  draft.mapping = std::move(*mapping);
  return {};
}

}  // namespace

Result<std::unique_ptr<Draft>> create(const Store& store, std::string_view name,
                                      const eo_array& array) {
  EO_TRY(check_writable(store));
  EO_TRY(check_name(name));
  auto shape = checked(array);
  if (!shape) {
    return std::unexpected(std::move(shape.error()));
  }
  auto root = open_directory(store.directory.get(), ".");
  if (!root) {
    return std::unexpected(std::move(root.error()));
  }
  auto entry = open_parent(root->get(), name, true);
  if (!entry) {
    return std::unexpected(std::move(entry.error()));
  }
  auto draft = std::make_unique<Draft>();
  draft->name = name;
  draft->path = store.path + '/' + draft->name + std::string(object_suffix);
  draft->root = std::move(*root);
  draft->entry = std::move(*entry);
  draft->header.shape = std::move(*shape);
  auto file = create_draft(draft->entry.directory.get());
  if (!file) {
    return std::unexpected(std::move(file.error()));
  }
  draft->file = std::move(*file);
  if (auto reserved = reserve(*draft); !reserved) {
    discard(*draft);
    return std::unexpected(std::move(reserved.error()));
  }
  return draft;
}

Status put(Draft& draft, const Part& part, const char* from) {
  const auto slab = Slab::of(draft.header.shape, part.start, part.count);
  if (!slab) {
    return std::unexpected(slab.error());
  }
  if (from == nullptr && slab->bytes() > 0) {
    return fail(EINVAL, "the memory is NULL");
  }
  const std::uint64_t offset = draft.header.offset;
  return slab->for_each([&](std::uint64_t array, std::uint64_t memory) {
    if (slab->run() >= shortest_call) {
      return write_all(draft.file.fd.get(), from + memory, slab->run(), offset + array);
    }
    std::memcpy(draft.mapping.data() + offset + array, from + memory, slab->run());
    return Status();
  });
}

void discard(const Draft& draft) {
  ::unlinkat(draft.entry.directory.get(), draft.file.name.c_str(), 0);
}

}  // namespace efs::objects
