// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/export_records.hpp"

#include <optional>
#include <string>

#include "stage/versions/copy_version.hpp"

namespace efs::stage {

void ExportRecords::record_naming(const Outgoing& out, const PartialJob& job,
                                  const struct stat& copy, bool is_shared) {
  if (!out.entry.placed_as.empty()) {
    return;
  }
  (void)buffer_.named(*out.item, [&] { return coming_version(copy, is_shared); });
  if (placed_ == nullptr) {
    return;
  }
  const auto before = job.rule.over != nullptr ? Result<struct stat>(*job.rule.over)
                                               : pfs_.lstat(job.directory, out.name);
  (void)placed_->coming({.name = out.item->path, .own = buffer_.own_path(out.item->path)}, &copy,
                        before ? &*before : nullptr);
}

/// The file in results-dir under this name, if it is the exported copy.
Result<struct stat> ExportRecords::named_copy(const Outgoing& out, PfsRef directory) {
  auto now = pfs_.lstat(directory, out.name);
  const bool ours =
      !now || out.file.inode == 0 ||
      (now->st_ino == out.file.inode && static_cast<std::uint64_t>(now->st_size) == out.file.size);
  return ours ? now : fail(ESTALE, "another process has replaced or changed it");
}

void ExportRecords::record_named(Outgoing& out, PfsRef directory, bool is_theirs) {
  if (!out.entry.placed_as.empty()) {
    return;
  }
  std::optional<Result<struct stat>> copy;
  Status noted = buffer_.named(*out.item, [&]() -> Result<fs::Origin> {
    copy = named_copy(out, directory);
    if (!*copy) {
      return std::unexpected(copy->error());
    }
    return copy_version(pfs_, publisher_, directory, out.name, **copy);
  });
  if (placed_ != nullptr && !is_theirs) {
    if (!copy) {
      copy = named_copy(out, directory);
    }
    const Status kept =
        *copy ? record_placed(out, directory, **copy) : std::unexpected(copy->error());
    if (noted) {
      noted = kept;
    }
  }
  if (!noted) {
    out.entry.reason += (out.entry.reason.empty() ? "" : "; ") +
                        std::string("when it changes again, this version may be a conflict: ") +
                        describe(noted.error());
  }
}

Status ExportRecords::record_placed(const Outgoing& out, PfsRef directory,
                                    const struct stat& copy) {
  return placed_->placed({.name = out.item->path, .own = buffer_.own_path(out.item->path)}, &copy,
                         publisher_.is_shared(pfs_, directory, out.name, copy));
}

void ExportRecords::record_linked(const Outgoing& first, PfsRef directory) {
  const auto now = placed_ != nullptr && first.entry.placed_as.empty()
                       ? pfs_.lstat(directory, first.name)
                       : fail(ENOENT);
  const std::string own = buffer_.own_path(first.item->path);
  if (now &&
      placed_->look({.name = first.item->path, .own = own}, *now, false) == WhoseCopy::ours) {
    (void)record_placed(first, directory, *now);
  }
}

}  // namespace efs::stage
