// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iostream>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/image_path.hpp"
#include "config/start_command.hpp"
#include "image/salvage.hpp"
#include "stage/export/unmatched.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/plan/results_dir.hpp"

namespace efs::cli {
namespace {

Result<image::Image> open_as_owner(const std::string& which, image::Hold hold) {
  auto path = image_path_as_owner(which);
  return path ? image::open_image(*path, hold) : std::unexpected(path.error());
}

std::string name_for_clean(const image::Image& image) {
  return instance_of_store(image.directories.path) ? image.manifest.name : image.directories.path;
}

std::string stays_until(const image::Image& image) {
  const bool is_roots = config::is_of_batch_job(image.manifest.name);
  return std::string("The image stays until") +
         (is_roots ? ", by root: efs clean " : ": efs clean ") +
         printable(config::instance_argument(name_for_clean(image))) + "\n";
}

std::string text_of(const image::Image& image, const image::Holdings& holdings) {
  const std::string left = std::to_string(holdings.unsaved_files) + " files and links, " +
                           format_bytes(holdings.unsaved_bytes),
                    missing = image::what_is_missing(image);
  return image.manifest.name + " (" + image.directories.path +
         "): " + std::to_string(holdings.files) + " files, " + format_bytes(holdings.bytes) +
         (image.manifest.left == image::ShutdownState::salvaged && holdings.unsaved_files == 0
              ? "; an earlier salvage has exported the results\n"
              : "; not exported: " + left + "\n") +
         (image.manifest_problem.empty()
              ? ""
              : image.manifest_problem + ": its earlier version is used\n") +
         (image.job_problem.empty()
              ? ""
              : image.job_problem +
                    ", which has the job's rules: all new and changed files count as results\n") +
         (missing.empty()
              ? ""
              : missing + ": names are missing; list their contents: efs salvage --lost --list " +
                    name_for_clean(image) + "\n");
}

// Rejects --to with the job's own directories: a salvage to --to does not compare inputs with their
// origin.
Status refuse_inputs(const image::Image& image, const std::string& to, bool all) {
  const auto& config = image.config;
  EFS_TRY(refuse_own_places(image, to));
  const bool results = is_same_directory(to, config.results_dir);
  if (results && !all) {
    return {};
  }
  if (!results && !is_same_directory(to, config.root_dir)) {
    return {};
  }
  return fail(EINVAL, "--to " + to + " is the job's " + (results ? "results-dir" : "root-dir") +
                          ": older versions could overwrite inputs there; name another directory");
}

// The receipt never overwrites a result of the same name. It may overwrite an input, for example an
// earlier receipt that was imported.
Status leave_receipt(const image::Image& image, const stage::Receipt& receipt,
                     const std::string& file, bool elsewhere) {
  if (!elsewhere) {
    EFS_TRY(stage::check_mounted(image.config, stage::posix_pfs()));
  }
  using stage::Action;
  constexpr std::array of_results{Action::staged_out, Action::kept, Action::failed,
                                  Action::conflict, Action::not_saved};
  const auto name_there = [&](const stage::ReceiptEntry& entry) {
    return !entry.placed_as.empty() ? entry.placed_as
           : elsewhere              ? entry.path
                                    : config::result_path(image.config, entry.path);
  };
  const auto is_result = [&](const stage::ReceiptEntry& entry) {
    return std::ranges::find(of_results, entry.action) != of_results.end() &&
           name_there(entry) == stage::leaf_of(file);
  };
  if (std::ranges::any_of(receipt.entries, is_result)) {
    return fail(EEXIST, "a result has this name");
  }
  return stage::write_receipt(receipt, file, stage::posix_pfs(),
                              stage::partial_tag_of(store::to_string(image.manifest.instance)));
}

// If all results were exported before, the records of a damaged journal are at best as new as
// results-dir.
Status refuse_older(const image::Image& image) {
  const image::ShutdownState left = image.manifest.left;
  const auto missing = image::what_is_missing(image);
  if (missing.empty() ||
      (left != image::ShutdownState::kept && left != image::ShutdownState::salvaged)) {
    return {};
  }
  const std::string& name = image.manifest.name;
  return fail(EUCLEAN, name + ": all its results were exported, and now " + missing +
                           ": the store may be older than results-dir, which was not changed. "
                           "Export elsewhere: efs salvage --to DIR " +
                           name);
}

// Invalidates the record of an earlier salvage, and for results-dir that of a stop --keep, before
// this salvage exports anything. Otherwise an incomplete or killed salvage would leave a wrong
// record. On a read-only medium there is no record to change, and nothing can remove the store
// either.
Status doubt_what_is_out(const image::Image& image, bool elsewhere) {
  const image::ShutdownState before = image.manifest.left;
  const bool in_doubt = before == image::ShutdownState::salvaged ||
                        (before == image::ShutdownState::kept && !elsewhere);
  const int metadata = image.directories.metadata.get();
  if (!in_doubt || (::faccessat(metadata, ".", W_OK, AT_EACCESS) != 0 && errno == EROFS)) {
    return {};
  }
  return image::write_left(metadata, image::ShutdownState::unsaved);
}

// The state "kept" of a stop --keep stays. If the record cannot be written, the store counts as one
// with unsaved contents.
void record_all_is_out(const image::Image& image) {
  (void)image::write_left(image.directories.metadata.get(),
                          image.manifest.left == image::ShutdownState::kept
                              ? image::ShutdownState::kept
                              : image::ShutdownState::salvaged);
}

// A retry cannot recover contents that the store itself has lost. (A missing backend may return.)
std::string text_of_lost(const image::Image& image, std::uint64_t files) {
  std::string text = files > 0 ? std::to_string(files) +
                                     " results are lost: their contents are gone from the store\n"
                               : "";
  if (!image::what_is_missing(image).empty()) {
    text +=
        "The journal has lost names. Restore the journal, or export their contents under numbers: "
        "efs salvage --lost --to "
        "DIR " +
        escaped(name_for_clean(image)) + "\n";
  }
  return text.empty() ? text
                      : text + "To discard the rest: efs clean --force " +
                            escaped(name_for_clean(image)) + "\n";
}

std::string text_of_salvage(const image::Image& image, stage::Receipt receipt, bool all) {
  const auto& met = image.filesystem->recovery();
  const std::uint64_t files =
      image.missing.empty() ? met.emptied.size() + (all && !image.rebooted ? met.dropped.size() : 0)
                            : 0;
  receipt.lost = files + (image::what_is_missing(image).empty() ? 0 : 1);
  const std::uint64_t left =
      receipt.totals.failed + receipt.totals.conflict + receipt.totals.not_saved;
  return stage::describe(receipt) +
         (left > 0 && receipt.lost > 0 ? text_of_lost(image, files) : "");
}

// If all is brought out, nothing counts as unsaved.
Result<image::Holdings> holdings_left_in(image::Image& image) {
  auto holdings = image::holdings_of(image);
  if (holdings && image::is_brought_out(image)) {
    holdings->unsaved_files = holdings->unsaved_bytes = 0;
  }
  return holdings;
}

Json answer_of(const image::Image& image, const image::Holdings& holdings) {
  return {{"ok", true},
          {"name", image.manifest.name},
          {"store", image.directories.path},
          {"left", image::name_of(image.manifest.left)},
          {"restarted", image.rebooted},
          {"files", holdings.files},
          {"bytes", holdings.bytes},
          {"unsaved_files", holdings.unsaved_files},
          {"unsaved_bytes", holdings.unsaved_bytes}};
}

int list_holdings(World& world, image::Image& image, const image::Holdings& holdings) {
  Json answer = answer_of(image, holdings);
  answer["items"] = Json::array();
  const Status listed = image::list_names(image, [&](const Json& item) {
    if (world.json) {
      answer["items"].push_back(item);
    } else {
      print_item(world.out, item, false);
    }
  });
  if (!listed) {
    return report(world, listed.error());
  }
  if (world.json) {
    print_document(world, answer);
  } else {
    world.out << printable(text_of(image, holdings), true);
  }
  return exit_good;
}

// A salvage to results-dir needs the manifest and the rules of the job.
Status refuse_unknown_job(const image::Image& image) {
  if (!image.manifest_problem.empty()) {
    return fail(EPROTO, image.manifest_problem +
                            ": the options of its last run are unknown, and with them which files "
                            "it may replace. Export elsewhere: efs salvage --to DIRECTORY " +
                            escaped(name_for_clean(image)));
  }
  if (image.job_problem.empty()) {
    return {};
  }
  return fail(EPROTO,
              image.job_problem +
                  ": its results and their names are unknown. Export all new and changed files "
                  "elsewhere: efs salvage --to DIRECTORY " +
                  config::instance_argument(name_for_clean(image)) +
                  (config::is_of_batch_job(image.manifest.name)
                       ? ""
                       : "; or continue: " + config::start_command(image.manifest.job_file,
                                                                   image.manifest.start_options)));
}

struct Destination {
  std::string to;
  bool elsewhere = false;  // not results-dir
};

// Reports why the image may not be brought out there, and returns the exit code.
std::expected<Destination, int> choose_destination(World& world, image::Image& image,
                                                   const SalvageArguments& arguments) {
  Destination chosen{.to = image.config.results_dir};
  if (!arguments.to.empty()) {
    const std::string to = std::filesystem::absolute(arguments.to).lexically_normal().string();
    if (const Status allowed = refuse_inputs(image, to, arguments.all); !allowed) {
      return std::unexpected(report(world, allowed.error(), exit_usage));
    }
    // --to means that the user vouches for the directory: skip the checks of mount points
    image.config.results_mount.clear(), image.config.mounts_below.clear();
    // Compares directories, not names: a salvage to results-dir is an export that checks for
    // conflicts.
    if (!is_same_directory(to, image.config.results_dir)) {
      return Destination{.to = to, .elsewhere = true};
    }
  }
  if (const Status known = refuse_unknown_job(image); !known) {
    return std::unexpected(report(world, known.error()));
  }
  if (chosen.to.empty()) {
    return std::unexpected(report(
        world, {EINVAL, "the job file names no results-dir: say where to with --to"}, exit_usage));
  }
  if (const Status allowed = refuse_older(image); !allowed) {
    return std::unexpected(report(world, allowed.error()));
  }
  return chosen;
}

struct BroughtOut {
  stage::Receipt receipt;
  int code = exit_good;
  std::string file;     // of the receipt
  std::string trouble;  // why there is no such file
  Json unmatched;       // the output rules without a file; null: none
};

BroughtOut bring_out(image::Image& image, const Destination& destination, bool all) {
  stage::Progress progress;
  const image::SalvageOptions options{.to = destination.elsewhere ? destination.to : "",
                                      .all = all};
  BroughtOut out{.receipt = image::salvage(image, options, progress)};
  out.code = stage::exit_code(out.receipt);
  out.file = destination.to + "/" + image::receipt_name_of(image, options);
  if (const Status written = leave_receipt(image, out.receipt, out.file, destination.elsewhere);
      !written) {
    out.trouble =
        "The receipt could not be written: " + out.file + ": " + describe(written.error());
    if (out.code == 0) {
      out.code = exit_failure;
    }
  }
  if (out.code == 0) {
    record_all_is_out(image);
  }
  out.unmatched = stage::unmatched_in(out.receipt, true);
  return out;
}

void add_outcome(Json& answer, const BroughtOut& out) {
  answer["ok"] = out.code == 0;
  answer["exit"] = out.code;
  answer["receipt"] = stage::to_json(out.receipt);
  if (out.trouble.empty()) {
    answer["receipt_file"] = out.file;
  }
  if (!out.unmatched.is_null()) {
    answer["unmatched"] = out.unmatched;
  }
}

void print_brought_out(World& world, const image::Image& image, const BroughtOut& out, bool all) {
  (out.code == 0 ? world.out : world.err)
      << printable(text_of_salvage(image, out.receipt, all) + out.receipt.note, true) << "\n";
  if (out.trouble.empty()) {
    world.out << "receipt: " << printable(out.file) << "\n";
  } else {
    world.err << printable(out.trouble, true) << "\n";
  }
  if (!out.unmatched.is_null()) {
    world.out << printable(out.unmatched.value("text", ""))
              << "; export all: efs salvage --all --to DIRECTORY "
              << config::instance_argument(name_for_clean(image)) << "\n";
  }
  if (out.code == 0) {
    world.out << stays_until(image);
  }
}

}  // namespace

int salvage(World& world, const SalvageArguments& arguments) {
  if (arguments.all && arguments.to.empty()) {
    return report(
        world,
        {EINVAL, "--all exports inputs, too: name another directory than results-dir with --to"},
        exit_usage);
  }
  auto image = open_as_owner(arguments.which,
                             arguments.list ? image::Hold::to_look : image::Hold::to_bring_out);
  if (!image) {
    return report(world, image.error());
  }
  const auto holdings = holdings_left_in(*image);
  if (!holdings) {
    return report(world, holdings.error());
  }
  if (arguments.list) {
    return list_holdings(world, *image, *holdings);
  }
  if (!world.json) {
    world.out << printable(text_of(*image, *holdings), true);
  }
  Json answer = answer_of(*image, *holdings);
  const auto destination = choose_destination(world, *image, arguments);
  if (!destination) {
    return destination.error();
  }
  if (const Status noted = doubt_what_is_out(*image, destination->elsewhere); !noted) {
    return report(world, noted.error());
  }
  const BroughtOut out = bring_out(*image, *destination, arguments.all);
  if (world.json) {
    add_outcome(answer, out);
    print_document(world, answer);
  } else {
    print_brought_out(world, *image, out, arguments.all);
  }
  return out.code;
}

}  // namespace efs::cli
