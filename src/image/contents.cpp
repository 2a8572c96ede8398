// SPDX-License-Identifier: BSD-3-Clause
#include "image/contents.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <string_view>
#include <system_error>

#include "fs/inode.hpp"
#include "image/sealed_text.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::image {
namespace {

struct Content {
  std::uint64_t container = 0, size = 0;  // bytes
  FileTime mtime;
  bool durable = false;
};

// An unchanged input is compared with its version on the PFS.
bool has_original(const fs::WalkItem& item) {
  return item.pfs.content.has_value() || item.content.remote;
}

std::string line_of(const Content& content) {
  return std::to_string(content.container) + " " + std::to_string(content.size) + " " +
         std::to_string(content.mtime.seconds) + " " + std::to_string(content.mtime.nanoseconds) +
         (content.durable ? " durable\n" : "\n");
}

template <typename Number>
bool take(std::string_view& line, Number& number) {
  const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (problem != std::errc{}) {
    return false;
  }
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  if (line.starts_with(' ')) {
    line.remove_prefix(1);
  }
  return true;
}

bool parse(std::string_view line, Content& content) {
  if (!take(line, content.container) || !take(line, content.size) ||
      !take(line, content.mtime.seconds) || !take(line, content.mtime.nanoseconds)) {
    return false;
  }
  content.durable = line == "durable";
  return content.durable || line.empty();
}

std::string difference(const Content& content, const struct stat& st) {
  if (static_cast<std::uint64_t>(st.st_size) != content.size) {
    return "it has " + std::to_string(st.st_size) + " bytes instead of " +
           std::to_string(content.size);
  }
  const bool is_same = fs::is_in_record(st.st_mtim, content.mtime) ||
                       stage::same_or_coarser(st.st_mtim, to_timespec(content.mtime));
  return is_same ? "" : "it was written to";
}

std::unexpected<Error> damaged_list() {
  return fail(EUCLEAN, std::string("meta/") + contents_name +
                           ", the list of the containers when the instance was left, is damaged; "
                           "nothing is compared");
}

// Returns the list that the manifest names; "" if there is none.
Result<std::string> listed_contents(int metadata, const Manifest& manifest) {
  if (manifest.contents.empty() || manifest.left == ShutdownState::in_use) {
    return std::string();
  }
  auto text = read_text(metadata, contents_name, largest_text);
  if (!text && text.error().code == ENOENT) {
    return std::string();
  }
  if (!text || checksum_of(*text) != manifest.contents) {
    return damaged_list();
  }
  return text;
}

// Calls `visit` for each line of the list, up to the checksum. Returns false at the first line that
// is damaged.
template <typename Visit>
bool for_each_content(std::string_view list, Visit visit) {
  while (!list.empty() && list.front() != '\n' && list.front() != '#') {
    const std::size_t end = std::min(list.find('\n'), list.size() - 1);
    Content content;
    if (!parse(list.substr(0, end), content)) {
      return false;
    }
    list.remove_prefix(end + 1);
    visit(content);
  }
  return true;
}

}  // namespace

Result<std::string> write_contents(int metadata, std::span<const fs::WalkItem> items) {
  std::map<std::uint64_t, const fs::WalkItem*> files;  // once for each file, for all its names
  for (const auto& item : items) {
    if (S_ISREG(item.attributes.st_mode) && !has_original(item) &&
        item.content.unreadable.empty()) {
      files.emplace(item.ino, &item);
    }
  }
  std::string text;
  for (const auto& [ino, item] : files) {
    const std::uint64_t moved = item->content.container;
    text += line_of({.container = moved != 0 ? moved : ino,
                     .size = static_cast<std::uint64_t>(item->attributes.st_size),
                     .mtime = item->attributes.st_mtim,
                     .durable = item->content.settled});
  }
  text = sealed(text);
  EFS_TRY(write_text(metadata, contents_name, text));
  return checksum_of(text);
}

void remove_contents(int metadata) {
  (void)::unlinkat(metadata, contents_name, 0);
}

Result<std::map<std::uint64_t, std::string>> changed_contents(int metadata,
                                                              const Manifest& manifest,
                                                              Backend& backend) {
  const auto list = listed_contents(metadata, manifest);
  if (!list) {
    return std::unexpected(list.error());
  }
  std::map<std::uint64_t, std::string> changed;
  const bool rebooted = manifest.boot_id != boot_id();
  const bool whole = for_each_content(*list, [&](const Content& content) {
    if (rebooted && !content.durable) {
      return;
    }
    const auto st = backend.attributes(content.container);
    if (!st || !S_ISREG(st->st_mode)) {
      return;  // other checks report missing containers
    }
    if (std::string how = difference(content, *st); !how.empty()) {
      changed.emplace(content.container, std::move(how));
    }
  });
  if (!whole) {
    return damaged_list();
  }
  return changed;
}

}  // namespace efs::image
