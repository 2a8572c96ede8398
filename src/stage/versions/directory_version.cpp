#include "stage/versions/directory_version.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "base/checksum.hpp"

namespace efs::stage {

Result<DirectoryAttributes> attributes_of(PfsIo& pfs, int fd) {
  const auto now = pfs.fstat(fd);
  auto xattrs = now ? pfs.xattrs(fd) : std::unexpected(now.error());
  if (!xattrs) return std::unexpected(xattrs.error());
  return DirectoryAttributes{.mode = now->st_mode & 07777U, .uid = now->st_uid, .gid = now->st_gid, .xattrs = std::move(*xattrs)};
}

std::uint64_t directory_version(const DirectoryAttributes& attributes) {
  Checksum sum;
  const auto add_number = [&](std::uint64_t number) { sum.update(std::as_bytes(std::span(&number, 1))); };
  const auto add_text = [&](const std::string& text) {
    add_number(text.size());
    sum.update(std::as_bytes(std::span(text)));
  };
  add_number(attributes.mode & 07777U);
  add_number(attributes.uid);
  add_number(attributes.gid);
  for (const auto& [name, value] : attributes.xattrs) {
    if (name.starts_with("trusted.")) continue;  // which only root sees, and a salvage may not be root's
    add_text(name);
    add_text(value);
  }
  return std::max<std::uint64_t>(sum.digest(), 1);
}

DirectoryMerge merge_directory(std::optional<std::uint64_t> known, std::uint64_t ours, std::uint64_t theirs) {
  if (theirs == ours) return DirectoryMerge::same;
  if (known == theirs) return DirectoryMerge::take_ours;
  return !known || known == ours ? DirectoryMerge::keep_theirs : DirectoryMerge::conflict;
}

}  // namespace efs::stage
