// SPDX-License-Identifier: BSD-3-Clause
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "cli/image_path.hpp"
#include "image/orphans.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::cli {
namespace {

std::string text_of(const image::HeldStore& held, const image::Orphans& lost, std::uint64_t files) {
  return held.manifest.name + " (" + held.directories.path + "): " + std::to_string(files) +
         " contents that no name leads to, " + format_bytes(lost.bytes) +
         (lost.journal_problem.empty() ? ""
                                       : "; the journal cannot be read: " + lost.journal_problem) +
         "\n";
}

bool is_file(const fs::WalkItem& item) {
  return S_ISREG(item.attributes.st_mode);
}

Json listed(const image::Orphans& lost) {
  Json items = Json::array();
  for (const auto& item : lost.items) {
    if (is_file(item)) {
      items.push_back({{"path", item.path},
                       {"bytes", item.attributes.st_size},
                       {"mtime", to_ns(item.attributes.st_mtim)}});
    }
  }
  return items;
}

Result<image::HeldStore> hold_as_owner(const std::string& which, image::Hold hold) {
  const auto path = image_path_as_owner(which);
  return path ? image::hold_store(*path, hold) : std::unexpected(path.error());
}

void show_lost(World& world, Json answer, const image::Orphans& lost, bool list) {
  if (list) {
    answer["items"] = listed(lost);
  }
  if (world.json) {
    print_document(world, answer);
  } else if (list) {
    for (const auto& item : answer["items"]) {
      world.out << item["path"].get<std::string>() << "  " << format_bytes(item["bytes"]) << "\n";
    }
  }
}

// A file in the job's own places would go with them, or would be an input of its next run.
Status refuse_places_of_job(const image::HeldStore& held, const std::string& to) {
  EFS_TRY(refuse_own_places(held, to));
  const auto config = image::job_of(held.directories.metadata.get(), held.manifest);
  if (config && is_same_directory(to, config->root_dir)) {
    return fail(EINVAL, "--to " + to +
                            " is the job's root-dir: exported files would be inputs of the next "
                            "run; name another directory");
  }
  return {};
}

// Brings out to the directory `to` and reports the outcome; `answer` is the document of --json so
// far. Returns the exit code.
int bring_out_lost(World& world, const image::HeldStore& held, const image::Orphans& lost,
                   const std::string& to, Json answer) {
  stage::Progress progress;
  const auto receipt = image::salvage_orphans(held, lost, to, progress);
  int code = stage::exit_code(receipt);
  const std::string file = to + "/" + stage::salvage_receipt_name(held.manifest.name + ".lost");
  const Status written =
      stage::write_receipt(receipt, file, stage::posix_pfs(),
                           stage::partial_tag_of(store::to_string(held.manifest.instance)));
  if (!written && code == 0) {
    code = exit_failure;
  }
  if (world.json) {
    answer.update({{"ok", code == 0}, {"exit", code}, {"receipt", stage::to_json(receipt)}});
    if (written) {
      answer["receipt_file"] = file;
    }
    print_document(world, answer);
    return code;
  }
  (code == 0 ? world.out : world.err)
      << printable(stage::describe(receipt) + receipt.note, true) << "\n";
  if (written) {
    world.out << "receipt: " << printable(file) << "\n";
  } else {
    world.err << printable("The receipt could not be written: " + file + ": " +
                           describe(written.error()))
              << "\n";
  }
  return code;
}

}  // namespace

int salvage_orphans(World& world, const SalvageArguments& arguments) {
  if (arguments.to.empty() && !arguments.list) {
    return report(world,
                  {EINVAL, "--lost exports contents without names: name a directory with --to"},
                  exit_usage);
  }
  auto held = hold_as_owner(arguments.which,
                            arguments.list ? image::Hold::to_look : image::Hold::to_bring_out);
  if (!held) {
    return report(world, held.error());
  }
  const auto lost = image::find_orphans(*held);
  if (!lost) {
    return report(world, lost.error());
  }
  const auto files = static_cast<std::uint64_t>(std::ranges::count_if(lost->items, is_file));
  Json answer{{"ok", true},
              {"name", held->manifest.name},
              {"store", held->directories.path},
              {"lost_files", files},
              {"lost_bytes", lost->bytes}};
  if (!world.json) {
    world.out << printable(text_of(*held, *lost, files), true);
  }
  if (arguments.list || files == 0) {
    show_lost(world, std::move(answer), *lost, arguments.list);
    return exit_good;
  }
  const std::string to = std::filesystem::absolute(arguments.to).lexically_normal().string();
  if (const Status allowed = refuse_places_of_job(*held, to); !allowed) {
    return report(world, allowed.error(), exit_usage);
  }
  return bring_out_lost(world, *held, *lost, to, std::move(answer));
}

}  // namespace efs::cli
