// SPDX-License-Identifier: BSD-3-Clause
// efs record: runs a program on the PFS, and writes the job file that it needs.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "cli/child_program.hpp"
#include "cli/cli.hpp"
#include "cli/preload.hpp"
#include "record/events.hpp"
#include "record/job_file.hpp"
#include "record/selection.hpp"
#include "record/summary.hpp"
#include "record/tree.hpp"
#include "recorder/recording.h"
#include "stage/export/receipt.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::cli {
namespace {

namespace stdfs = std::filesystem;

constexpr std::size_t largest_job_file = std::size_t{1} << 20;  // efs-job(5)

// Memory that the recorded processes map (recorder/recording.h). Only touched pages take memory.
class SharedRecording {
 public:
  SharedRecording() = default;
  SharedRecording(const SharedRecording&) = delete;
  SharedRecording& operator=(const SharedRecording&) = delete;

  ~SharedRecording() {
    if (address_ != MAP_FAILED) {
      ::munmap(address_, capacity);
    }
  }

  Status open() {
    // A program that truncates the memory must not kill efs.
    constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    fd_ = UniqueFd(::memfd_create("efs-recording", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd_ || ::ftruncate(fd_.get(), capacity) != 0 ||
        ::fcntl(fd_.get(), F_ADD_SEALS, seals) != 0) {
      return fail(errno, "cannot create the memory of the recording");
    }
    address_ = ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (address_ == MAP_FAILED) {
      return fail(errno, "cannot map the memory of the recording");
    }
    auto* head = static_cast<efs_recording*>(address_);
    head->magic = EFS_RECORDING_MAGIC;
    head->capacity = capacity;
    head->used = sizeof *head;
    return {};
  }

  // The name by which other processes of this user open it.
  std::string path() const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_.get());
  }

  record::Recording read() const {
    return record::read_recording({static_cast<const std::byte*>(address_), capacity});
  }

 private:
  static constexpr std::size_t capacity = std::size_t{64} << 20;
  UniqueFd fd_;
  void* address_ = MAP_FAILED;
};

struct Roots {
  std::string named;     // absolute
  std::string resolved;  // without links
};

Result<Roots> find_root(const std::string& directory) {
  std::error_code problem;
  const auto resolved = stdfs::canonical(directory.empty() ? "." : directory, problem);
  if (problem) {
    return fail(problem.value(), directory + ": " + problem.message());
  }
  if (!stdfs::is_directory(resolved, problem)) {
    return fail(ENOTDIR, directory + " is not a directory: name the PFS directory of the job");
  }
  if (resolved == "/") {
    return fail(EINVAL, "/ cannot be root-dir: name the PFS directory of the job with --pfs");
  }
  std::string named = directory.empty() ? resolved.string()
                                        : stdfs::absolute(directory).lexically_normal().string();
  while (named.ends_with('/')) {
    named.pop_back();
  }
  return Roots{.named = std::move(named), .resolved = resolved.string()};
}

Status refuse_existing(const RecordArguments& arguments) {
  struct stat st{};
  if (!arguments.force && ::lstat(arguments.output.c_str(), &st) == 0) {
    return fail(EEXIST, arguments.output +
                            " exists. Name another file with -o, or replace it with --force");
  }
  return {};
}

Status write_new(const std::string& text, const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) {
    return fail(errno, path + ": " + std::strerror(errno));
  }
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd.get(), text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR) {
      const int problem = errno;
      ::unlink(path.c_str());
      return fail(problem, path + ": " + std::strerror(problem));
    }
    at += n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  return {};
}

Status write_output(const std::string& text, const RecordArguments& arguments) {
  if (!arguments.force) {
    return write_new(text, arguments.output);
  }
  constexpr mode_t mode = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
  const Status written =
      stage::write_beside_results(text, arguments.output, mode, stage::posix_pfs());
  return written ? written
                 : fail(written.error().code, arguments.output + ": " + describe(written.error()));
}

// The end of a recording, for both forms of output.
struct Outcome {
  int program = exit_good;
  Status written;
  Json document = Json::object();
  std::string text;
};

Json document_of(const record::Summary& summary, const record::Sizes& sizes) {
  return {{"inputs", summary.inputs.size()},
          {"results", summary.results.size()},
          {"temporaries", summary.temporaries.size()},
          {"outside", summary.outside_read.size() + summary.outside_written.size()},
          {"input_bytes", sizes.inputs},
          {"result_bytes", sizes.results},
          {"temporary_bytes", sizes.temporaries}};
}

std::string text_of(const record::Summary& summary, const record::Sizes& sizes) {
  return std::to_string(summary.inputs.size()) + " inputs (" + format_bytes(sizes.inputs) + "), " +
         std::to_string(summary.results.size()) + " results (" + format_bytes(sizes.results) +
         "), " + std::to_string(summary.temporaries.size()) + " temporary files";
}

// Returns why there is no event at all.
Error nothing_recorded(const std::string& program, int code) {
  if (code == exit_not_found || code == exit_cannot_run) {
    return {ENOENT, printable(program) + " was not run, and no job file is written"};
  }
  return {ENODATA,
          printable(program) +
              ": nothing was recorded, and no job file is written. efs record sees no "
              "program that is linked statically, has a sanitizer, clears its "
              "environment or gains privilege. Write the job file by hand, see efs-job(5)"};
}

void finish(const RecordArguments& arguments, const record::Recording& recording,
            const record::Run& run, Outcome& outcome) {
  if (recording.processes == 0) {
    outcome.written = std::unexpected(nothing_recorded(run.command.front(), run.exit_code));
    return;
  }
  const record::RealTree tree;
  const auto summary = record::summarize(recording.events, run.root, tree);
  const auto resources = record::choose_resources(summary, run.root, tree);
  const auto sizes = record::sizes_of(summary, resources);
  const std::string text =
      record::write_job_file(run, summary, resources, record::choose_rules(summary));
  outcome.written = write_output(text, arguments);
  outcome.document = document_of(summary, sizes);
  outcome.document["lost"] = recording.lost;
  outcome.document["job_file"] = arguments.output;
  outcome.document["too_large"] = text.size() > largest_job_file;
  outcome.text = text_of(summary, sizes);
  if (text.size() > largest_job_file) {
    outcome.text += "; LARGER THAN 1 MiB, which efs does not read: name directories, not files";
  }
  if (summary.inputs.empty() && summary.results.empty()) {
    outcome.text += "; a program that is linked statically was not seen";
  }
  if (recording.lost > 0) {
    outcome.text += "; NOT COMPLETE: " + std::to_string(recording.lost) + " events had no space";
  }
}

int report_outcome(World& world, const RecordArguments& arguments, Outcome outcome) {
  const int code = outcome.program != 0 ? outcome.program
                   : outcome.written    ? int{exit_good}
                                        : int{exit_not_saved};
  if (world.json) {
    outcome.document.update(
        {{"ok", code == exit_good}, {"exit", code}, {"program_exit", outcome.program}});
    if (!outcome.written) {
      outcome.document["error"] = describe(outcome.written.error());
    }
    print_document(world, outcome.document);
    return code;
  }
  if (!outcome.written) {
    return report(world, outcome.written.error(), code);
  }
  world.err << "efs: " << escaped(arguments.output) << ": " << outcome.text
            << (outcome.program == 0 ? "" : "; the program failed") << "\n";
  return code;
}

}  // namespace

int record_program(World& world, const RecordArguments& arguments,
                   const std::vector<std::string>& command) {
  const auto root = find_root(arguments.pfs);
  if (!root) {
    return report(world, root.error(), exit_usage);
  }
  if (const Status free = refuse_existing(arguments); !free) {
    return report(world, free.error(), exit_usage);
  }
  const auto library = find_preloaded_library("libefs-record.so", "efs record");
  if (!library) {
    return report(world, library.error());
  }
  SharedRecording shared;
  if (const Status opened = shared.open(); !opened) {
    return report(world, opened.error());
  }
  record::Run run{.job_file = arguments.output,
                  .command = command,
                  .directory = stdfs::current_path().string(),
                  .root_dir = root->named,
                  .root = root->resolved};
  ChildProgram child;
  const std::string recording = shared.path();
  const auto prepare = [&] {
    preload(*library);
    ::setenv(EFS_RECORDING_VARIABLE, recording.c_str(), 1);
  };
  if (const Status begun = child.start(command, prepare); !begun) {
    return report(world, begun.error(), exit_cannot_run);
  }
  Outcome outcome{.program = child.wait()};
  const auto recorded = shared.read();
  run.exit_code = outcome.program;
  run.lost = recorded.lost;
  finish(arguments, recorded, run, outcome);
  return report_outcome(world, arguments, std::move(outcome));
}

}  // namespace efs::cli
