// SPDX-License-Identifier: BSD-3-Clause
// Attributes, extended attributes, and the statistics of the file system.
#include <cerrno>
#include <string>
#include <utility>

#include "fuse/connection.hpp"
#include "fuse/convert.hpp"
#include "fuse/handlers/handlers.hpp"
#include "fuse/mapped_pages.hpp"

namespace efs::fuse::handle {
namespace {

// getxattr(2) and listxattr(2): size 0 asks for the size of the value.
void reply_value(Request& request, const std::string& value, std::size_t size) {
  if (size == 0) {
    request.reply_xattr_size(value.size());
  } else if (value.size() > size) {
    request.reply_error(ERANGE);
  } else {
    request.reply_buffer(std::as_bytes(std::span(value)));
  }
}

// True if it has replied: the mount has no extended attributes.
bool refused(Request& request) {
  if (request.connection().xattr) {
    return false;
  }
  request.reply_error(ENOSYS);
  return true;
}

}  // namespace

void getattr(Request& request, fuse_ino_t ino, fuse_file_info*) {
  request.observe({.ino = ino});
  request.reply_attr(ino == door_inode ? Door::entry() : attributes(request.connection(), ino));
}

#if EFS_HAVE_STATX
void statx(Request& request, fuse_ino_t ino, int, int, fuse_file_info*) {
  request.observe({.ino = ino});
  request.reply_statx(ino == door_inode ? Door::entry() : attributes(request.connection(), ino));
}
#endif

void setattr(Request& request, fuse_ino_t ino, struct stat* attributes, int to_set,
             fuse_file_info*) {
  const bool truncates = (to_set & FUSE_SET_ATTR_SIZE) != 0;
  request.observe({.ino = ino,
                   .size = truncates ? static_cast<std::uint64_t>(attributes->st_size) : 0,
                   .truncates = truncates});
  fs::Filesystem& filesystem = request.filesystem();
  const fs::AttributeChange change = to_change(*attributes, to_set);
  auto changed =
      filesystem.with_room([&] { return filesystem.setattr(request.caller(), ino, change); });
  if (!changed && needs_content(changed.error())) {
    return request.wait_for_content(ino);
  }
  Door& door = request.connection().door;
  if (fs::changes_epoch(change) && door.has_cached_pages(request.connection())) {
    return door.pages().store_then(
        ino, [changed = std::move(changed), request = std::move(request)]() mutable {
          request.reply_attr(changed);
        });
  }
  request.reply_attr(changed);
}

void statfs(Request& request, fuse_ino_t ino) {
  request.observe({.ino = ino});
  request.reply_statfs(request.filesystem().statfs());
}

void getxattr(Request& request, fuse_ino_t ino, const char* name, std::size_t size) {
  request.observe({.ino = ino, .name = name});
  if (refused(request)) {
    return;
  }
  const auto value = request.filesystem().getxattr(ino, name);
  if (!value) {
    return request.reply_error(value.error().code);
  }
  reply_value(request, *value, size);
}

void listxattr(Request& request, fuse_ino_t ino, std::size_t size) {
  request.observe({.ino = ino});
  if (refused(request)) {
    return;
  }
  const auto names = request.filesystem().listxattr(ino);
  if (!names) {
    return request.reply_error(names.error().code);
  }
  const bool is_root = request.caller().uid == 0;
  std::string list;
  for (const auto& name : *names) {
    if (is_root || !name.starts_with("trusted.")) {
      list.append(name).push_back('\0');
    }
  }
  reply_value(request, list, size);
}

void setxattr(Request& request, const Setxattr& attribute) {
  request.observe({.ino = attribute.ino, .name = attribute.name});
  if (refused(request)) {
    return;
  }
  fs::Filesystem& filesystem = request.filesystem();
  const Status set = filesystem.with_room([&] {
    return filesystem.setxattr(request.caller(), attribute.ino, attribute.name,
                               std::string(attribute.value, attribute.size), attribute.flags);
  });
  if (!set && needs_content(set.error())) {
    return request.wait_for_content(attribute.ino);
  }
  Door& door = request.connection().door;
  if (fs::is_privilege(attribute.name) && door.has_cached_pages(request.connection())) {
    return door.pages().store_then(
        attribute.ino, [set, request = std::move(request)]() mutable { request.reply(set); });
  }
  request.reply(set);
}

void removexattr(Request& request, fuse_ino_t ino, const char* name) {
  request.observe({.ino = ino, .name = name});
  if (refused(request)) {
    return;
  }
  const Status removed = request.filesystem().removexattr(request.caller(), ino, name);
  if (!removed && needs_content(removed.error())) {
    return request.wait_for_content(ino);
  }
  request.reply(removed);
}

}  // namespace efs::fuse::handle
