// SPDX-License-Identifier: BSD-3-Clause
#include "stage/import/fetch.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "stage/copy/content.hpp"
#include "stage/pfs/coarse_mtime.hpp"
#include "stage/plan/follow.hpp"

namespace efs::stage {
namespace {

constexpr std::uint64_t smallest_huge = 2U << 20U;

/// Ends the copy when the file has lost its name.
class RemoteSink final : public ContentSink {
 public:
  RemoteSink(const fs::Staging& staging, fs::OpenContainer& file)
      : staging_(staging), ino_(file.ino), container_(*file.container) {}

  Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) const override {
    return staging_.is_remote(ino_) ? container_.write(from, offset) : fail(ESTALE);
  }

  Status truncate(std::uint64_t size) const override { return container_.truncate(size); }

  void start_writeback(std::uint64_t, std::uint64_t) const override {}

 private:
  const fs::Staging& staging_;
  const std::uint64_t ino_;
  Container& container_;
};

/// Ignores ctime, because a chmod or a new link does not change the content, and the device, whose
/// number may change when the PFS is mounted again.
bool is_version(const struct stat& now, const fs::Origin& planned) {
  return S_ISREG(now.st_mode) && now.st_ino == planned.inode &&
         static_cast<std::uint64_t>(now.st_size) == planned.size &&
         to_ns(now.st_mtim) == planned.mtime;
}

Result<struct stat> planned_version(PfsIo& pfs, PfsRef source, const fs::Origin& planned) {
  auto now = pfs.fstat(source);
  if (!now) {
    return with_context(now.error(), "reading its attributes on the PFS");
  }
  if (!is_version(*now, planned)) {
    return fail(EIO, "it has changed on the PFS since the job was planned");
  }
  return now;
}

/// Copies the file once. `is_same`: its ctime is the same as before.
Status copy_once(const fs::Staging::Fetch& fetch, PfsRef source, const FetchMeans& means,
                 bool& is_same) {
  const fs::Remote& remote = fetch.remote;
  const auto before = planned_version(means.pfs, source, remote.version);
  EFS_TRY(before);
  const auto allocated = static_cast<std::uint64_t>(before->st_blocks) * 512;
  // as a stage-in: huge pages for a file without holes
  if (remote.version.size >= smallest_huge && allocated >= remote.version.size) {
    EFS_TRY(fetch.file.container->truncate(remote.version.size));
  }
  fs::OpenContainer file = fetch.file;
  const PfsContent from(means.pfs, source);
  const RemoteSink to(means.staging, file);
  EFS_TRY(copy_data(
      {.source = from, .destination = to, .size = remote.version.size, .allocated = allocated},
      means.scratch, nullptr, means.progress));
  const auto after = planned_version(means.pfs, source, remote.version);
  EFS_TRY(after);
  is_same = to_ns(before->st_ctim) == to_ns(after->st_ctim);
  return {};
}

// A ctime alone may be of a chmod, or of a write whose mtime was set back: the second copy is of
// one version.
Status copy_content(const fs::Staging::Fetch& fetch, const FetchMeans& means) {
  const fs::Remote& remote = fetch.remote;
  const auto root = means.pfs.open(no_directory, means.root_dir, passage_flags);
  if (!root) {
    return with_context(root.error(), "opening root-dir");
  }
  const auto source =
      open_source(means.pfs, *root, remote.source, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!source) {
    return with_context(source.error(), "opening it on the PFS");
  }
  let_second_pass(remote.version, means.progress.cancel);
  bool is_same = false;
  EFS_TRY(copy_once(fetch, *source, means, is_same));
  if (!is_same) {
    EFS_TRY(fetch.file.container->truncate(0));
    EFS_TRY(copy_once(fetch, *source, means, is_same));
  }
  return is_same ? Status() : fail(EIO, "it is being changed on the PFS");
}

FetchOutcome outcome_of(const fs::Staging& staging, std::uint64_t ino, Error error,
                        const Progress& progress) {
  if (!staging.is_remote(ino)) {
    return {.kind = FetchOutcome::Kind::gone};
  }
  if (progress.cancel) {
    return {.kind = FetchOutcome::Kind::cancelled};
  }
  return {.kind = FetchOutcome::Kind::failed, .error = std::move(error)};
}

FetchOutcome fetch(std::uint64_t ino, const FetchMeans& means) {
  const auto begun = means.staging.begin_fetch(ino);
  if (!begun) {
    return outcome_of(means.staging, ino, begun.error(), means.progress);
  }
  if (!*begun) {
    return {};
  }
  Status done = copy_content(**begun, means);
  if (done && means.progress.cancel) {
    done = fail(ECANCELED);  // the end of the instance may not have waited for this fetch
  }
  if (!done) {
    (void)(*begun)->file.container->truncate(0);  // gives back its room
    return outcome_of(means.staging, ino, done.error(), means.progress);
  }
  // The content stays whatever comes now: the record may be in the journal.
  done = means.staging.end_fetch(**begun);
  if (done) {
    return {.kind = FetchOutcome::Kind::here, .bytes = (*begun)->remote.version.size};
  }
  return outcome_of(means.staging, ino, done.error(), means.progress);
}

}  // namespace

FetchOutcome fetch_content(std::uint64_t ino, const FetchMeans& means) {
  try {
    return fetch(ino, means);
  } catch (const std::exception& exception) {
    return {.kind = FetchOutcome::Kind::failed, .error = {ENOMEM, exception.what()}};
  }
}

}  // namespace efs::stage
