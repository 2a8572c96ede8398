// SPDX-License-Identifier: BSD-3-Clause
// Drafts of objects.
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdio>
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

/// Opens, validates and maps the file of a draft of another process.
Status open_existing(Draft& draft) {
  const int directory = draft.entry.directory.get();
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  Fd fd(::openat(directory, draft.file.name.c_str(), flags));
  if (!fd) {
    return fail(errno == ENOENT ? ESTALE : errno);
  }
  EO_TRY(check_alive(fd.get()));
  auto object = read_object(std::move(fd));
  if (!object) {
    return std::unexpected(std::move(object.error()));
  }
  auto mapping = Mapping::of(object->fd.get(), static_cast<std::size_t>(object->size), true);
  if (!mapping) {
    return std::unexpected(std::move(mapping.error()));
  }
  draft.file.fd = std::move(object->fd);
  draft.header = std::move(object->header);
  draft.mapping = std::move(*mapping);
  return {};
}

/// Returns 16 hexadecimal digits of a name: a token is bound to it.
std::string mark_of(std::string_view name) {
  char text[32];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(::XXH3_64bits(name.data(), name.size())));
  return text;
}

}  // namespace

Result<std::unique_ptr<Draft>> create(const Store& store, std::string_view name,
                                      const eo_array& array) {
  EO_TRY(check_writable(store));
  EO_TRY(check_directory(store));
  EO_TRY(check_name(name));
  auto shape = checked(array);
  if (!shape) {
    return std::unexpected(std::move(shape.error()));
  }
  auto root = open_directory(store.directory.get(), ".");
  if (!root) {
    return std::unexpected(std::move(root.error()));
  }
  auto entry = open_place(store, {name, object_suffix}, true);
  if (!entry) {
    return std::unexpected(std::move(entry.error()));
  }
  auto draft = std::make_unique<Draft>();
  draft->name = name;
  draft->path = store.path + '/' + draft->name + std::string(object_suffix);
  draft->root = std::move(*root);
  draft->entry = std::move(*entry);
  draft->header.shape = std::move(*shape);
  draft->small = store.bundle;
  draft->written = store.written;
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

Status publish(Draft& draft, unsigned flags) {
  const auto closed = JoinsClosed::of(draft.joins);
  if (!closed) {
    return std::unexpected(closed.error());
  }
  draft.mapping = {};
  auto status = publish(draft.root, draft.name, draft.entry, draft.file, flags);
  if (status && draft.written) {
    draft.written->set(draft.name, std::nullopt);
  }
  if (status && draft.small) {
    draft.small->erase(draft.name);
  }
  if (draft.joins) {
    ::unlinkat(draft.entry.directory.get(), draft.joins.name.c_str(), 0);
  }
  return status;
}

void discard(const Draft& draft) {
  if (draft.joined || draft.process != ::getpid()) {
    return;
  }
  const int directory = draft.entry.directory.get();
  ::unlinkat(directory, draft.file.name.c_str(), 0);
  if (draft.joins) {
    ::unlinkat(directory, draft.joins.name.c_str(), 0);
  }
}

Result<std::string> token(Draft& draft) {
  if (draft.joined) {
    return fail(EINVAL, "this process has joined the draft", "Use the token that it joined with");
  }
  std::string number(token_of(draft.file.name));
  if (!draft.joins) {
    auto joins = create_join_file(draft.entry.directory.get(), number);
    if (!joins) {
      return std::unexpected(std::move(joins.error()));
    }
    draft.joins = std::move(*joins);
  }
  return number + '-' + mark_of(draft.name);
}

Result<std::unique_ptr<Draft>> join_draft(const Store& store, std::string_view name,
                                          std::string_view token) {
  EO_TRY(check_writable(store));
  EO_TRY(check_directory(store));
  EO_TRY(check_name(name));
  const std::string_view number = token.substr(0, token.find('-'));
  if (!is_token(number) || token.substr(number.size()) != '-' + mark_of(name)) {
    return fail(EINVAL, "the token is not one of a draft of this object",
                "Use the token of eo_draft_token and the same name");
  }
  auto entry = open_place(store, {name, object_suffix}, false);
  if (!entry) {
    return std::unexpected(std::move(entry.error()));
  }
  auto joined = open_join_file(entry->directory.get(), number);
  if (!joined) {
    return std::unexpected(std::move(joined.error()));
  }
  auto draft = std::make_unique<Draft>();
  draft->name = name;
  draft->path = store.path + '/' + draft->name + std::string(object_suffix);
  draft->file.name = draft_name(number);
  draft->entry = std::move(*entry);
  EO_TRY(open_existing(*draft));
  EO_TRY(enter(*joined));
  draft->joined = std::move(*joined);
  return draft;
}

Status leave_draft(const Draft& draft, unsigned flags) {
  EO_TRY(check_flags(flags));
  if (!draft.joined) {
    return fail(EINVAL, "this process has not joined the draft",
                "Call eo_publish or eo_discard in the process that created it");
  }
  if ((flags & EO_SYNC) != 0) {
    EO_TRY(sync_data(draft.file.fd.get()));
  }
  return leave(draft.joined, draft.entry.directory.get());
}

}  // namespace efs::objects
