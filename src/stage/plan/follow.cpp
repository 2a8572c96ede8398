// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/follow.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>

#include "config/paths.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

// True if `target`, the text of the link in `directory`, leads to `path` without another link.
bool leads_straight(PfsIo& pfs, const std::string& target, PfsRef directory,
                    const std::string& path) {
  std::filesystem::path said = target;
  if (said.is_relative()) {
    said = pfs.path_of(directory).value_or("") / said;
  }
  std::string straight = said.lexically_normal().string();
  if (straight.size() > 1 && straight.ends_with('/')) {
    straight.pop_back();
  }
  return straight == path;
}

/// The target as a path from the top of the mount, without "." and ".."; nullopt if it leaves the
/// mount.
std::optional<std::string> inside(const std::string& link, std::string_view target) {
  std::string at = parent_of(link);
  while (!target.empty()) {
    const auto end = std::min(target.find('/'), target.size());
    const std::string part(target.substr(0, end));
    target.remove_prefix(std::min(end + 1, target.size()));
    if (part.empty() || part == ".") {
      continue;
    }
    if (part != "..") {
      at = join(at, part);
    } else if (at.empty()) {
      return std::nullopt;
    } else {
      at = parent_of(at);
    }
  }
  return at;
}

std::string word_on(const config::JobConfig& config, const PlanEntry& entry,
                    const std::vector<PlanEntry>& entries) {
  constexpr const char* way_out = " ('follow: true' stages in what it leads to)";
  if (entry.target.starts_with('/')) {
    if (config::is_within(entry.target, config.mount_dir)) {
      return "";
    }
    return (config::is_within(entry.target, config.root_dir) ? "leads to the PFS, past the mount"
                                                             : "leads out of root-dir") +
           std::string(way_out);
  }
  const auto there = inside(entry.path, entry.target);
  if (!there) {
    return std::string("leads out of root-dir: on the mount it leads elsewhere") + way_out;
  }
  const bool is_input =
      there->empty() || std::ranges::binary_search(entries, *there, {}, &PlanEntry::path);
  return is_input ? ""
                  : "leads to what is not an input: on the mount it leads nowhere" +
                        std::string(way_out);
}

}  // namespace

bool is_gone(const Error& error) {
  const int code = error.code;
  return code == ENOENT || code == ESTALE || code == ENOTDIR || code == ELOOP;
}

namespace {

/// Opens the target only to look at it. `what`: the beginning of the message.
Result<PfsHandle> open_to_look(PfsIo& pfs, const Result<PfsHandle>& at, const std::string& path,
                               const std::string& what) {
  auto seen = at ? pfs.open(*at, leaf_of(path), O_PATH) : std::unexpected(at.error());
  if (seen) {
    return seen;
  }
  const int code = seen.error().code;
  if (code == ELOOP) {
    return fail(ELOOP, what + "leads in a circle");
  }
  return fail(code, what + (code == ENOENT ? "does not exist"
                                           : "cannot be read: " + describe(seen.error())));
}

/// False if a link of another user could lead root to this file.
bool may_lead_to(const Found& link, const struct stat& target) {
  return ::geteuid() != 0 || link.attributes.st_uid == 0 || link.attributes.st_uid == target.st_uid;
}

/// EINVAL if the target can be no input.
Status check_kind(const LinkTarget& target, const std::string& what) {
  if (target.path == "/") {
    return fail(EINVAL, what + "is the top of all directories");
  }
  if (!S_ISREG(target.attributes.st_mode) && !S_ISDIR(target.attributes.st_mode)) {
    return fail(EINVAL, what + "is neither a file nor a directory");
  }
  return {};
}

/// Opens the target, which shows that it is readable, and keeps a directory open.
Status open_target(PfsIo& pfs, PfsRef root, LinkTarget& target, const std::string& what) {
  const bool is_directory = S_ISDIR(target.attributes.st_mode);
  auto opened = open_source(pfs, root, target.path,
                            is_directory ? directory_flags : O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!opened) {
    return fail(opened.error().code, what + "is not readable: " + describe(opened.error()));
  }
  if (is_directory) {
    target.directory = std::move(*opened);
  }
  return {};
}

}  // namespace

Result<LinkTarget> follow(PfsIo& pfs, PfsRef root, const std::string& path, const Found& link) {
  const std::string what = "is a symbolic link to " + link.target + ", which ";
  const auto at = pfs.open_beneath(root, parent_of(path), passage_flags);
  const auto seen = open_to_look(pfs, at, path, what);
  if (!seen) {
    return std::unexpected(seen.error());
  }
  LinkTarget target;
  const auto attributes = pfs.fstat(*seen);
  if (!attributes) {
    return fail(attributes.error().code, what + "cannot be read: " + describe(attributes.error()));
  }
  target.attributes = *attributes;
  if (!may_lead_to(link, *attributes)) {
    return fail(EPERM, what + "belongs to another user: root does not follow it");
  }
  target.path = pfs.path_of(*seen).value_or("");
  if (!target.path.starts_with('/')) {
    return fail(ENOENT, what + "is not to be found from here");
  }
  if (::geteuid() == 0 && !leads_straight(pfs, link.target, *at, target.path)) {
    return fail(EPERM, what + "leads through further links: root does not follow it");
  }
  EFS_TRY(check_kind(target, what));
  EFS_TRY(open_target(pfs, root, target, what));
  return target;
}

std::string directory_of_source(const PlanEntry& entry) {
  const std::string& path = source_of(entry);
  const std::string directory = parent_of(path);
  return directory.empty() && path.starts_with('/') ? "/" : directory;
}

Result<PfsHandle> open_source(PfsIo& pfs, PfsRef root, const std::string& path, int flags) {
  if (!path.starts_with('/')) {
    return pfs.open_beneath(root, path, flags);
  }
  const auto top = pfs.open(no_directory, "/", passage_flags);
  if (!top) {
    return fail(top.error().code);
  }
  return pfs.open_beneath(*top, path.substr(1), flags);
}

std::vector<PlanNote> links_that_lead_out(const config::JobConfig& config,
                                          const std::vector<PlanEntry>& entries) {
  std::vector<PlanNote> notes;
  for (const auto& entry : entries) {
    if (entry.type != EntryType::symlink) {
      continue;
    }
    if (std::string word = word_on(config, entry, entries); !word.empty()) {
      notes.push_back({entry.path, entry.target, std::move(word)});
    }
  }
  return notes;
}

}  // namespace efs::stage
