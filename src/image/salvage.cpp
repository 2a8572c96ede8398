// SPDX-License-Identifier: BSD-3-Clause
#include "image/salvage.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "fs/ledger_log.hpp"
#include "fs/placed_file.hpp"
#include "fs/staging.hpp"
#include "image/contents.hpp"
#include "stage/buffer.hpp"
#include "stage/export/removed_inputs.hpp"
#include "stage/export/selection.hpp"
#include "stage/export/stage_out.hpp"
#include "stage/forwarding_source.hpp"
#include "stage/live/drop.hpp"
#include "stage/live/inventory.hpp"
#include "stage/pfs/merge.hpp"
#include "stage/pfs/merging_publisher.hpp"
#include "stage/pfs/opened_directories.hpp"
#include "stage/pfs/paced_pfs.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::image {
namespace {

/// The buffer of an offline store, without changed contents. `all`: treats every file as if no copy
/// existed elsewhere.
class ImageBuffer final : public stage::ForwardingSource {
 public:
  /// `elsewhere`: the target is not results-dir, so copies in results-dir do not count.
  ImageBuffer(stage::ExportSource& inner, const std::map<std::uint64_t, std::string>& changed,
              bool all, bool elsewhere)
      : ForwardingSource(inner), changed_(changed), all_(all), elsewhere_(elsewhere) {}

  Result<fs::OpenContainer> open_container(std::uint64_t ino) override {
    const auto changed = changed_.find(ino);
    if (changed == changed_.end()) {
      return inner_.open_container(ino);
    }
    return fail(EUCLEAN, "container " + std::to_string(ino) +
                             " is not what it was when the instance was left: " + changed->second +
                             ". To export it all the same, remove meta/" + contents_name +
                             " of the store");
  }

  Result<std::vector<fs::WalkItem>> walk() override {
    auto items = inner_.walk();
    if (items && all_) {
      for (auto& item : *items) {
        item.pfs.dirty = true;
        item.pfs.saved.reset();
        item.keep = fs::Keep::by_rule;
        item.pfs.origin.reset();
      }
    } else if (items && elsewhere_) {
      for (auto& item : *items) {
        item.pfs.dirty = item.pfs.dirty || item.pfs.saved;
      }
    }
    return items;
  }

  std::vector<fs::WalkItem> gone() override {
    return all_ ? std::vector<fs::WalkItem>() : inner_.gone();
  }

  /// Does not change the store: the next start records the exported files (Booking::salvaged()).
  std::map<std::string, Error> revoke(std::span<const fs::PfsName>, fs::Side,
                                      const fs::ResultName&) override {
    return {};
  }

 private:
  const std::map<std::uint64_t, std::string>& changed_;
  const bool all_;
  const bool elsewhere_;
};

// Propagate deletions only to the job's own results-dir, and only if no new file of the job can
// have been lost.
bool may_remove(const Image& image, const SalvageOptions& options) {
  const auto& met = image.filesystem->recovery();
  const bool is_whole = met.emptied.empty() && !met.emptied_before && met.lost.empty() &&
                        met.unlisted.empty() && what_is_missing(image).empty();
  return options.to.empty() && !image.rebooted && image.missing.empty() && is_whole;
}

// Only a container tells which backend its file was in.
std::string lost_reason(const Image& image) {
  const auto& unlisted = image.filesystem->recovery().unlisted;
  if (!unlisted.empty()) {
    return "its container was not found, and not all containers can be listed: " + unlisted;
  }
  if (image.missing.empty()) {
    return image.rebooted ? "power loss took its content before the first fsync"
                          : "its content was removed from the store";
  }
  std::string reason = "its content was in a backend that is gone";
  for (const auto& missing : image.missing) {
    reason += "; " + missing;
  }
  return reason;
}

stage::ReceiptEntry failed_entry(const std::string& path, const std::string& reason) {
  stage::ReceiptEntry entry;
  entry.path = path;
  entry.action = stage::Action::failed;
  entry.reason = reason;
  return entry;
}

// The file is not a result of the job; its loss is a failure only if `all` asks for it.
stage::ReceiptEntry input_without_content(const Image& image, const std::string& path, bool all) {
  auto entry = failed_entry(
      path, lost_reason(image) + "; it was unchanged: the PFS has it as it was staged in");
  if (!all) {
    entry.action = stage::Action::skipped;
  }
  return entry;
}

// The records are checksummed. Programs wrote the containers directly, so no checksum covers their
// content.
void vouch(const Image& image, stage::Receipt& receipt, const std::vector<fs::WalkItem>& items,
           bool all) {
  std::map<std::string_view, const fs::WalkItem*> known;
  for (const auto& item : items) {
    known[item.path] = &item;
  }
  for (auto& entry : receipt.entries) {
    if (entry.action != stage::Action::staged_out && entry.action != stage::Action::kept) {
      continue;
    }
    const fs::WalkItem& item = *known.at(entry.path);
    entry.evidence = S_ISREG(item.attributes.st_mode) ? "as-found" : "verified";
  }
  const auto& met = image.filesystem->recovery();
  if (const auto missing = what_is_missing(image); !missing.empty()) {
    receipt.entries.push_back(failed_entry(".", missing + ": it had names that are lost"));
  }
  for (const auto& path : met.emptied) {
    receipt.entries.push_back(failed_entry(path, lost_reason(image)));
  }
  for (const auto& path : met.dropped) {
    if (!image.rebooted) {
      receipt.entries.push_back(input_without_content(image, path, all));
    }
  }
  stage::settle(receipt);
}

std::string note_of(const Image& image) {
  const auto& recovery = image.filesystem->recovery();
  std::string note = "salvaged from " + image.directories.path + ": " +
                     std::to_string(recovery.journal.records) + " records verified";
  if (recovery.journal.torn) {
    note += "; the data behind the last of them does not verify and was left out";
  }
  if (const auto missing = what_is_missing(image); !missing.empty()) {
    note += "; " + missing + ": files may be missing here";
  }
  note +=
      image.rebooted
          ? "; the machine was restarted since: content that was not synced may be older or in part"
          : "; the machine was not restarted since: content is as the programs left it";
  for (const auto& missing : image.missing) {
    note += "; backend " + missing;
  }
  for (const auto& problem : {image.manifest_problem, image.contents_problem}) {
    if (!problem.empty()) {
      note += "; " + problem;
    }
  }
  if (!image.job_problem.empty()) {
    note += "; " + image.job_problem +
            "; without the job's rules, all that it made or changed counts as a result";
  }
  if (image.rebooted && !recovery.dropped.empty()) {
    note +=
        "; " + std::to_string(recovery.dropped.size()) +
        " clean files were left out, as power loss may have taken their content (the PFS has them)";
  }
  return note;
}

}  // namespace

Result<Holdings> holdings_of(Image& image) {
  fs::Staging staging(*image.filesystem);
  auto items = staging.walk();
  if (!items) {
    return std::unexpected(items.error());
  }
  Holdings holdings;
  for (const auto& item : *items) {
    if (!S_ISREG(item.attributes.st_mode)) {
      continue;
    }
    ++holdings.files;
    holdings.bytes += static_cast<std::uint64_t>(item.attributes.st_size);
  }
  const auto selection = stage::select_outgoing(image.config, *items);
  for (const auto* item : selection.outgoing) {
    ++holdings.unsaved_files;
    if (S_ISREG(item->attributes.st_mode)) {
      holdings.unsaved_bytes += static_cast<std::uint64_t>(item->attributes.st_size);
    }
  }
  for (const auto& entry : selection.settled) {
    if (entry.action != stage::Action::failed) {
      continue;  // changed, and only partly in the buffer
    }
    ++holdings.unsaved_files;
    holdings.unsaved_bytes += entry.bytes;
  }
  return holdings;
}

Result<std::uint64_t> left_to_do(Image& image) {
  const config::JobConfig& config = image.config;
  fs::Staging staging(*image.filesystem);
  const auto items = staging.walk();
  if (!items) {
    return std::unexpected(items.error());
  }
  const bool in_place = config::has_results_in_place(config);
  const auto removed = stage::removed_inputs(config, staging.gone());
  auto count = static_cast<std::uint64_t>(
      std::ranges::count_if(removed, [&](const auto& item) { return in_place || item.pfs.saved; }));
  count += static_cast<std::uint64_t>(std::ranges::count_if(
      stage::select_outgoing(config, *items).directories, &stage::DirectoryToMake::reported));
  for (const auto& item : *items) {
    struct stat st{};
    if (item.pfs.is_exported() &&
        ::lstat((config.results_dir + "/" + config::result_path(config, item.path)).c_str(), &st) !=
            0) {
      ++count;
    }
  }
  return count;
}

Status list_names(Image& image, const std::function<void(const nlohmann::json&)>& tell) {
  const auto items = fs::Staging(*image.filesystem).walk();
  if (!items) {
    return std::unexpected(items.error());
  }
  for (const auto& item : *items) {
    tell(stage::inventory_entry(image.config, item));
  }
  return {};
}

std::string receipt_name_of(Image& image, const SalvageOptions& options) {
  fs::Staging staging(*image.filesystem);
  const std::string& job = image.manifest.name;
  std::string name = stage::salvage_receipt_name(job);
  if (options.to.empty()) {
    return name;
  }
  for (unsigned n = 2; staging.find(name); ++n) {
    name = stage::salvage_receipt_name(job + "." + std::to_string(n));
  }
  return name;
}

namespace {

// Returns the job's configuration, changed for this target and selection.
config::JobConfig config_of(const Image& image, const SalvageOptions& options) {
  config::JobConfig config = image.config;
  if (!options.to.empty()) {
    config.results_dir = options.to;
    config.results_mount.clear();
    config.mounts_below.clear();
    config.in_place = false;
    for (auto& rule : config.outputs) {
      rule.as.clear();  // elsewhere, results keep their names of the buffer
    }
  }
  if (options.all) {
    config.resources.clear();
    config.outputs.clear();
  }
  if (!may_remove(image, options)) {
    config.deletions = config::Deletions::ignore;
  }
  return config;
}

// Opens the log of the names in results-dir; null if no other job can export to them.
Result<std::unique_ptr<stage::PlacedNames>> open_placed(const Image& image,
                                                        const SalvageOptions& options,
                                                        const config::JobConfig& config) {
  if (!options.to.empty() || !stage::may_meet_others(config)) {
    return nullptr;
  }
  Result<std::unique_ptr<fs::PlacedFile>> file = nullptr;
  fs::LedgerLog(*image.filesystem).read([&](const ledger::Ledger& before) {
    file = fs::PlacedFile::open(image.directories.metadata.get(), before);
  });
  if (!file) {
    return std::unexpected(file.error());
  }
  return std::make_unique<stage::PlacedNames>(std::move(*file), config.results_dir);
}

// Returns whether other nodes or jobs may export to the target too. The stores of several nodes may
// be exported to one directory that is not results-dir.
bool has_to_merge(const config::JobConfig& config, const SalvageOptions& options) {
  if (!options.to.empty()) {
    return config.nodes > 1;
  }
  return config.nodes > 1 || config.merge_since != 0 || config.merges;
}

// How the results get their names.
struct Publishing {
  Publishing(const config::JobConfig& config, const SalvageOptions& options,
             std::span<const fs::Origin> own)
      : merging(has_to_merge(config, options) ? stage::merging_publisher(config.merge_since, own)
                                              : nullptr),
        base(merging ? *merging : stage::replacing_publisher()),
        guarded(base),
        // the merge itself looks at files of other nodes
        chosen(config.nodes > 1 || config.merges ? base : guarded) {}

  std::unique_ptr<stage::Publisher> merging;
  stage::Publisher& base;
  stage::GuardedPublisher guarded;
  stage::Publisher& chosen;
};

// Returns the versions on the PFS that this job exported.
std::vector<fs::Origin> own_copies(const std::vector<fs::WalkItem>& items,
                                   const stage::PlacedNames* placed) {
  std::vector<fs::Origin> own = stage::saved_copies(items);
  if (placed != nullptr) {
    std::ranges::copy(placed->copies(), std::back_inserter(own));
  }
  return own;
}

}  // namespace

stage::Receipt salvage(Image& image, const SalvageOptions& options, stage::Progress& progress,
                       stage::PfsIo& pfs) {
  const config::JobConfig config = config_of(image, options);
  fs::Staging staging(*image.filesystem);
  stage::StagingBuffer buffer(staging, stage::Writers::refused);
  ImageBuffer contents(buffer, image.changed, options.all, !options.to.empty());
  const auto items = staging.walk();
  if (!items) {
    return stage::failed_receipt(config, "the buffer cannot be read: " + describe(items.error()));
  }
  const auto placed = open_placed(image, options, config);
  if (!placed) {
    return stage::failed_receipt(config, describe(placed.error()));
  }
  const auto opened = stage::OpenedDirectories::open(image.directories.metadata.get());
  const std::vector<fs::Origin> own = own_copies(*items, placed->get());
  const Publishing publishing(config, options, own);
  const stage::Pace pace = stage::pace_of(config);
  stage::Throttle throttle(pace);
  stage::PacedPfs paced(pfs, pace, throttle, progress.cancel);
  stage::Receipt receipt = stage::stage_out(
      config, contents, paced,
      {.workers = config.workers,
       .transfer_size = config.transfer_size,
       .partial_tag = stage::partial_tag_of(store::to_string(image.manifest.instance)),
       .has_a_past = true,
       .receipt_name = receipt_name_of(image, options),
       .placed = placed->get(),
       .publisher = &publishing.chosen,
       .opened = opened.get()},
      progress);
  receipt.retries = paced.retried();
  receipt.note = note_of(image);
  receipt.way_out = "retry: efs salvage";
  if (config.deletions != image.config.deletions) {
    receipt.note += "; inputs that the job removed were left where they are";
  }
  vouch(image, receipt, *items, options.all);
  stage::add_dropped(receipt, staging.dropped(), options.to.empty());
  return receipt;
}

}  // namespace efs::image
