// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/selection.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "stage/copy/transfer.hpp"
#include "stage/export/unmatched.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

const char* why_temporary(const config::JobConfig& config, const fs::WalkItem& item) {
  const bool is_new_file = !item.pfs.origin && !S_ISDIR(item.attributes.st_mode);
  if (is_new_file && item.keep == fs::Keep::by_rule &&
      !config::has_output_rule(config, item.path)) {
    return no_rule_matches;
  }
  const bool by_rule = config::classify(config, item.path, item.pfs.origin.has_value()) ==
                       config::FileClass::temporary;
  return item.keep == fs::Keep::temporary && !by_rule ? "temporary: set while the job ran"
                                                      : "temporary by the job file";
}

/// The entry of a file with unreadable content. A changed file counts as a result that was not
/// exported; an unchanged one is only listed.
ReceiptEntry unreadable_entry(const fs::WalkItem& item) {
  const bool is_result = item.due_for_export();
  std::string reason = "its content cannot be read from the buffer: " + item.content.unreadable;
  if (!is_result) {
    reason += "; no program has changed it since it was " +
              std::string(item.pfs.saved ? "exported to results-dir" : "staged in");
  }
  ReceiptEntry entry =
      receipt_entry(item, is_result ? Action::failed : Action::skipped, std::move(reason));
  entry.code = is_result ? EIO : 0;
  entry.unreadable = true;
  return entry;
}

std::string home_of(const config::JobConfig& config, const fs::BufferedContent& content) {
  return content.remote_source.starts_with('/') ? content.remote_source
                                                : config.root_dir + "/" + content.remote_source;
}

/// The entry of a file whose content is not here. Its container is a hole, so it is never exported.
/// It is changed only for an export under another name, or of everything.
ReceiptEntry remote_entry(const config::JobConfig& config, const fs::WalkItem& item) {
  if (!item.due_for_export()) {
    return receipt_entry(item, Action::unchanged,
                         item.pfs.saved
                             ? "results-dir has it; its content has left the buffer"
                             : "its content is not here: no program uses it, and the PFS has it");
  }
  ReceiptEntry entry = receipt_entry(
      item, Action::failed,
      item.content.evictable
          ? "its content is not in the buffer; copy it from " + home_of(config, item.content)
          : "its content is not here: no program has opened it, and only the PFS has it, as it was "
            "when the job began");
  entry.code = EIO;
  return entry;
}

/// The entry of an item that is not exported; nullopt if it is.
std::optional<ReceiptEntry> entry_unless_outgoing(const config::JobConfig& config,
                                                  const fs::WalkItem& item) {
  const mode_t type = item.attributes.st_mode & S_IFMT;
  if (type != S_IFDIR && type != S_IFREG && type != S_IFLNK) {
    return receipt_entry(item, Action::skipped, "a socket, FIFO or device");
  }
  if (item.content.remote &&
      (!item.due_for_export() || class_of(config, item) == config::FileClass::persistent)) {
    return remote_entry(config, item);
  }
  if (!item.due_for_export()) {
    return item.content.unreadable.empty() ? receipt_entry(item, Action::unchanged, {})
                                           : unreadable_entry(item);
  }
  if (class_of(config, item) == config::FileClass::temporary) {
    return receipt_entry(item, Action::dropped, why_temporary(config, item));
  }
  if (!item.content.unreadable.empty()) {
    return unreadable_entry(item);
  }
  if (!item.pfs.parts.empty()) {
    return receipt_entry(
        item, Action::failed,
        "only parts of it were loaded (" + item.pfs.parts +
            "): the rest would be zeros; unload those parts, or make it temporary");
  }
  return std::nullopt;
}

bool is_unchanged_directory(const fs::WalkItem& item) {
  return S_ISDIR(item.attributes.st_mode) && !item.due_for_export() &&
         item.content.unreadable.empty();
}

/// Those of one directory become adjacent.
void order_outgoing(const config::JobConfig& config, std::vector<const fs::WalkItem*>& outgoing,
                    bool by_rank) {
  std::ranges::stable_sort(outgoing, {},
                           [](const fs::WalkItem* item) { return parent_view(item->path); });
  // With a deadline, small files go first, so that more files are exported in time.
  const auto rank = [&](const fs::WalkItem* item) {
    return std::pair(config::rank(config, item->path), data_of(item->attributes));
  };
  if (by_rank) {
    std::ranges::stable_sort(outgoing, {}, rank);
  }
}

}  // namespace

fs::ResultName result_names(const config::JobConfig& config) {
  return [&config](const std::string& path) {
    return config::result_path(config, path);
  };
}

config::FileClass class_of(const config::JobConfig& config, const fs::WalkItem& item,
                           std::string* why) {
  std::string reason;
  config::FileClass result =
      config::classify(config, item.path, item.pfs.origin.has_value(), reason);
  // A file that was exported in place counts as imported under its name there, and may also be a
  // result of the job.
  if (std::string as_new;
      result == config::FileClass::temporary && item.pfs.origin && item.pfs.saved &&
      !config::is_input(config, item.path) &&
      config::classify(config, item.path, false, as_new) == config::FileClass::persistent) {
    result = config::FileClass::persistent, reason = std::move(as_new);
  }
  if (item.keep != fs::Keep::by_rule) {
    result = item.keep == fs::Keep::persistent ? config::FileClass::persistent
                                               : config::FileClass::temporary;
    reason = item.keep_path == item.path ? "set while the job ran"
                                         : "set while the job ran, for /" + item.keep_path;
  }
  if (why != nullptr) {
    *why = std::move(reason);
  }
  return result;
}

Selection select_outgoing(const config::JobConfig& config, const std::vector<fs::WalkItem>& items,
                          bool by_rank) {
  Selection selection;
  std::unordered_set<std::string_view> results;  // dirty persistent directories
  std::unordered_set<std::string_view> needed;   // those and all parents of exported items
  const auto need = [&](std::string_view path) {
    for (; !path.empty() && needed.insert(path).second; path = parent_view(path)) {
    }
  };
  for (const auto& item : items) {
    if (is_unchanged_directory(item)) {
      continue;
    }
    if (auto entry = entry_unless_outgoing(config, item)) {
      selection.settled.push_back(std::move(*entry));
    } else if (S_ISDIR(item.attributes.st_mode)) {
      results.insert(item.path);
      need(item.path);
    } else {
      need(parent_view(item.path));
      selection.outgoing.push_back(&item);
    }
  }
  const bool same_place = config::has_results_in_place(config);
  for (const auto& item : items) {
    if (!S_ISDIR(item.attributes.st_mode) || !needed.contains(item.path)) {
      continue;
    }
    const bool is_result = results.contains(item.path);
    selection.directories.push_back(
        {.item = &item, .apply_attributes = is_result || !same_place, .reported = is_result});
  }
  // A dropped directory that is needed as a parent is made, so it must not be listed as lost.
  std::erase_if(selection.settled, [&](const ReceiptEntry& entry) {
    return entry.action == Action::dropped && needed.contains(entry.path);
  });
  order_outgoing(config, selection.outgoing, by_rank);
  return selection;
}

}  // namespace efs::stage
