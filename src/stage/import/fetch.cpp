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

/// Ends the copy when the file has lost its name.
class RemoteSink final : public ContentSink {
 public:
  RemoteSink(const fs::Staging& staging, const fs::Staging::Fetch& fetch)
      : staging_(staging),
        ino_(fetch.file.ino),
        container_(*fetch.file.container),
        arrived_(fetch.remote.room > 0 ? fetch.arrived.get() : nullptr) {}

  Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) const override {
    if (!staging_.is_remote(ino_)) {
      return fail(ESTALE);
    }
    auto written = container_.write(from, offset);
    if (written && arrived_ != nullptr) {
      arrived_->add(*written);
    }
    return written;
  }

  Status truncate(std::uint64_t size) const override { return container_.truncate(size); }

  void start_writeback(std::uint64_t, std::uint64_t) const override {}

 private:
  const fs::Staging& staging_;
  const std::uint64_t ino_;
  Container& container_;
  fs::Staging::Arrived* const arrived_;  // null: no room is reserved for the content
};

/// Ignores ctime, because a chmod or a new link does not change the content, and the device, whose
/// number may change when the PFS is mounted again.
bool is_version(const struct stat& now, const fs::Origin& planned) {
  return S_ISREG(now.st_mode) && now.st_ino == planned.inode &&
         static_cast<std::uint64_t>(now.st_size) == planned.size &&
         to_ns(now.st_mtim) == planned.mtime;
}

bool accepts(const fs::Remote& remote, const struct stat& now) {
  return remote.accepts && S_ISREG(now.st_mode);
}

Result<struct stat> version_now(PfsIo& pfs, PfsRef source) {
  auto now = pfs.fstat(source);
  return now ? now : with_context(now.error(), "reading its attributes on the PFS");
}

std::unexpected<Error> has_changed() {
  return fail(EIO, "it has changed on the PFS since the job was planned");
}

fs::Origin origin_of(const struct stat& st) {
  return {.device = st.st_dev,
          .inode = st.st_ino,
          .size = static_cast<std::uint64_t>(st.st_size),
          .mtime = to_ns(st.st_mtim),
          .ctime = to_ns(st.st_ctim)};
}

std::uint64_t allocated_in(const struct stat& st) {
  return static_cast<std::uint64_t>(st.st_blocks) * 512;
}

/// The version that the copy takes: that of the plan, or another one that the resource accepts.
Result<struct stat> begin_version(fs::Staging::Fetch& fetch, PfsRef source,
                                  const FetchMeans& means) {
  auto now = version_now(means.pfs, source);
  if (!now || is_version(*now, fetch.remote.version)) {
    return now;
  }
  if (!accepts(fetch.remote, *now)) {
    return has_changed();
  }
  constexpr std::uint64_t page = 4096;
  const std::uint64_t room = fetch.remote.evictable ? 0 : (data_of(*now) + page - 1) / page * page;
  const Status accepted = means.staging.accept_version(fetch, origin_of(*now), room);
  return accepted ? std::move(now) : Result<struct stat>(std::unexpected(accepted.error()));
}

/// Copies the file once. `is_same`: the version did not change meanwhile, and its ctime is the same
/// as before.
Status copy_once(fs::Staging::Fetch& fetch, PfsRef source, const FetchMeans& means, bool& is_same) {
  const auto before = begin_version(fetch, source, means);
  EFS_TRY(before);
  const fs::Origin& version = fetch.remote.version;
  let_second_pass(version, means.progress.cancel);
  const auto allocated = allocated_in(*before);
  // as a stage-in: huge pages for a file without holes
  if (version.size >= smallest_huge && allocated >= version.size) {
    EFS_TRY(fetch.file.container->truncate(version.size));
  }
  const PfsContent from(means.pfs, source);
  const RemoteSink to(means.staging, fetch);
  EFS_TRY(
      copy_data({.source = from, .destination = to, .size = version.size, .allocated = allocated},
                means.scratch, nullptr, means.progress));
  const auto after = version_now(means.pfs, source);
  EFS_TRY(after);
  if (!is_version(*after, version)) {
    is_same = false;
    return accepts(fetch.remote, *after) ? Status() : has_changed();
  }
  is_same = to_ns(before->st_ctim) == to_ns(after->st_ctim);
  return {};
}

// A ctime alone may be of a chmod, or of a write whose mtime was set back: the second copy is of
// one version.
Status copy_content(fs::Staging::Fetch& fetch, const FetchMeans& means) {
  const auto root = means.pfs.open(no_directory, means.root_dir, passage_flags);
  if (!root) {
    return with_context(root.error(), "opening root-dir");
  }
  const auto source =
      open_source(means.pfs, *root, fetch.remote.source, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!source) {
    return with_context(source.error(), "opening it on the PFS");
  }
  bool is_same = false;
  EFS_TRY(copy_once(fetch, *source, means, is_same));
  if (!is_same) {
    EFS_TRY(fetch.file.container->truncate(0));
    fetch.arrived->forget();
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
  auto begun = means.staging.begin_fetch(ino);
  if (!begun) {
    return outcome_of(means.staging, ino, begun.error(), means.progress);
  }
  if (!*begun) {
    return {};
  }
  const fs::Origin planned = (*begun)->remote.version;
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
    const fs::Origin& version = (*begun)->remote.version;
    return {.kind = FetchOutcome::Kind::here,
            .bytes = version.size,
            .has_changed = !(version == planned)};
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
