// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/report_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <span>

#include "base/with_timeout.hpp"
#include "report/report.hpp"
#include "stage/export/missed_names.hpp"
#include "stage/export/receipt.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::daemon {
namespace {

using Clock = std::chrono::steady_clock;

/// A PFS interface that borrows nothing of the instance. posix_pfs() is never destroyed.
class OwnPfs {
 public:
  explicit OwnPfs(stage::Pace pace)
      : throttle_(pace), pfs_(stage::posix_pfs(), without_retries(pace), throttle_, cancel_) {}

  stage::PfsIo& get() { return pfs_; }

  /// Ends a wait for the limits of the job file. Any thread.
  void cancel() { cancel_ = true; }

 private:
  static stage::Pace without_retries(stage::Pace pace) {
    pace.retries = 0;
    return pace;
  }

  std::atomic<bool> cancel_{false};
  stage::Throttle throttle_;
  stage::PacedPfs pfs_;
};

/// Asks root-dir for names, those of one directory together.
class RootDir {
 public:
  RootDir(const std::string& root_dir, stage::PfsIo& pfs)
      : pfs_(pfs), root_(pfs.open(stage::no_directory, root_dir, stage::passage_flags)) {}

  /// The attributes of a regular file or directory; nullopt if there is none.
  std::optional<struct stat> look(const std::string& path) {
    const std::string parent = stage::parent_of(path);
    if (!root_) {
      return std::nullopt;
    }
    if (!directory_ || parent != open_) {
      directory_ = pfs_.open_beneath(*root_, parent, stage::passage_flags);
      open_ = parent;
    }
    const auto found = *directory_ ? pfs_.lstat(**directory_, stage::leaf_of(path))
                                   : std::unexpected((*directory_).error());
    const bool is_input = found && (S_ISREG(found->st_mode) || S_ISDIR(found->st_mode));
    return is_input ? std::optional(*found) : std::nullopt;
  }

 private:
  stage::PfsIo& pfs_;
  const Result<stage::PfsHandle> root_;
  std::optional<Result<stage::PfsHandle>> directory_;
  std::string open_;  // its path
};

struct Question {
  std::string root_dir;
  std::vector<MissedName> names;
  Clock::time_point end;  // no call begins later
  OwnPfs pfs;
  stage::MissedInputs found;  // the answer, when the action has ended
};

void answer(Question& question) {
  RootDir root(question.root_dir, question.pfs.get());
  auto& found = question.found;
  for (const auto& [path, source] : question.names) {
    if (Clock::now() >= question.end) {
      ++found.unchecked;
    } else if (const auto there = root.look(source)) {
      found.files.push_back(
          {.path = path,
           .bytes = S_ISREG(there->st_mode) ? static_cast<std::uint64_t>(there->st_size) : 0});
    }
  }
}

struct Writing {
  ReportFiles files;
  OwnPfs pfs;
  Status outcome;
};

/// True if efs wrote the file: it belongs to this user and begins as such files do.
bool is_ours(stage::PfsIo& pfs, const std::string& path) {
  const auto file = pfs.open(stage::no_directory, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  const auto attributes = file ? pfs.fstat(*file) : std::unexpected(file.error());
  if (!attributes || !S_ISREG(attributes->st_mode) || attributes->st_uid != ::geteuid()) {
    return false;
  }
  std::array<char, 512> begin{};
  const auto length = pfs.read(*file, std::as_writable_bytes(std::span(begin)), 0);
  const std::string_view text(begin.data(), length ? *length : 0);
  return report::begins_page(text) || stage::begins_missed_names(text);
}

/// A symbolic link is replaced, and its target stays.
bool is_free(stage::PfsIo& pfs, const std::string& path) {
  const auto file = pfs.open(stage::no_directory, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  return !file && (file.error().code == ENOENT || file.error().code == ELOOP);
}

Status write_or_remove(Writing& writing, const std::string& name, const std::string& text) {
  const std::string path = writing.files.directory + "/" + name;
  stage::PfsIo& pfs = writing.pfs.get();
  if (!text.empty()) {
    if (!is_free(pfs, path) && !is_ours(pfs, path)) {
      return fail(EEXIST, path + " is not a report of efs: move it away");
    }
    return stage::write_beside_results(text, path, S_IRUSR | S_IWUSR, pfs,
                                       writing.files.partial_tag);
  }
  return is_ours(pfs, path) ? pfs.unlink(stage::no_directory, path) : Status();
}

}  // namespace

stage::MissedInputs ask_root_dir(const std::string& root_dir, std::vector<MissedName> names,
                                 const stage::Pace& pace, std::chrono::milliseconds time) {
  const std::size_t all = names.size();
  // a slow PFS answers a part of the question before the time is up
  const std::shared_ptr<Question> question(new Question{.root_dir = root_dir,
                                                        .names = std::move(names),
                                                        .end = Clock::now() + time * 3 / 4,
                                                        .pfs = OwnPfs(pace),
                                                        .found = {}});
  const bool answered = time.count() > 0 && with_timeout(time, [question] {
                          try {
                            answer(*question);
                          } catch (const std::bad_alloc&) {
                            question->found = {.files = {}, .unchecked = question->names.size()};
                          }
                        });
  if (answered) {
    return std::move(question->found);
  }
  question->pfs.cancel();
  return {.files = {}, .unchecked = all};
}

Status write_report_files(ReportFiles files, const stage::Pace& pace,
                          std::chrono::milliseconds time) {
  const std::shared_ptr<Writing> writing(
      new Writing{.files = std::move(files), .pfs = OwnPfs(pace), .outcome = {}});
  const bool answered = with_timeout(time, [writing] {
    try {
      const auto& its = writing->files;
      writing->outcome = write_or_remove(*writing, stage::report_name(its.job), its.page);
      const Status named = write_or_remove(*writing, stage::missed_names_name(its.job), its.names);
      if (writing->outcome) {
        writing->outcome = named;
      }
    } catch (const std::bad_alloc&) {
      writing->outcome = fail(ENOMEM);
    }
  });
  if (answered) {
    return std::move(writing->outcome);
  }
  writing->pfs.cancel();
  return fail(ETIME, "the PFS did not answer in time");
}

}  // namespace efs::daemon
