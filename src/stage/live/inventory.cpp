// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/inventory.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "stage/export/removed_inputs.hpp"
#include "stage/export/selection.hpp"

namespace efs::stage {
namespace {

using Json = nlohmann::json;

const char* type_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return "file";
    case S_IFDIR: return "directory";
    case S_IFLNK: return "symlink";
    default: return "special";
  }
}

const char* name_of(config::FileClass file_class) {
  return file_class == config::FileClass::persistent ? "persistent" : "temporary";
}

const char* staged(const fs::WalkItem& item) {
  if (item.pfs.is_exported()) {
    return "out";
  }
  return item.pfs.origin ? "in" : "no";
}

bool is_staged_type(mode_t mode) {
  return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode);
}

/// The effect of a stop on a name that no change or output rule concerns, in words.
std::string fate_of_unchanged(const fs::WalkItem& item) {
  if (item.pfs.saved) {
    return "is not staged out: an unload exported it and it has not changed since";
  }
  return S_ISDIR(item.attributes.st_mode)
             ? "is made at results-dir only where something goes into it: it has not "
               "changed since the stage-in"
             : "is not staged out: it has not changed since the stage-in";
}

/// The reason why a stop cannot or does not export the name; "" if it does.
std::string obstacle_to_export(const config::JobConfig& config, const fs::WalkItem& item,
                               config::FileClass file_class) {
  if (file_class != config::FileClass::temporary && !item.content.unreadable.empty()) {
    return "cannot be staged out: its content cannot be read from the buffer";
  }
  if (file_class == config::FileClass::temporary) {
    return "is dropped at the end: it is temporary";
  }
  if (!item.pfs.parts.empty()) {
    return "cannot be staged out: only parts of it were loaded";
  }
  if (config.results_dir.empty()) {
    return "cannot be staged out: the job file names no results-dir";
  }
  return {};
}

/// The effect of a stop on the file, in words.
std::string fate(const config::JobConfig& config, const fs::WalkItem& item,
                 config::FileClass file_class) {
  if (!is_staged_type(item.attributes.st_mode)) {
    return "is not staged out: a socket, FIFO or device";
  }
  const std::string path = config::result_path(config, item.path);
  const bool is_input = item.pfs.origin && !item.pfs.saved;
  if (!item.due_for_export() && !(is_input && path != item.path)) {
    return fate_of_unchanged(item);
  }
  if (auto obstacle = obstacle_to_export(config, item, file_class); !obstacle.empty()) {
    return obstacle;
  }
  std::string why = !item.due_for_export() ? "an output rule gives it another name there"
                    : item.pfs.origin ? "it was opened for writing, or changed, since the stage-in"
                                      : "it is new, or has a new name";
  if (item.pfs.saved) {
    why += "; results-dir has an earlier version of it";
  }
  return "is staged out to " + config.results_dir + "/" + path + ": " + why;
}

std::string writers_text(const fs::Writers& writers) {
  if (writers.open > 0) {
    return "open for writing (" + std::to_string(writers.open) +
           " times): an unload needs --as-is, and cannot be verified";
  }
  if (writers.possible) {
    return "may be mapped for writing: an unload needs --as-is, and cannot be verified";
  }
  return "no program can write to it now: an unload would be verified";
}

/// The writers of a file as a line for people, and as a member of `answer`; "" if the buffer does
/// not know them.
std::string record_writers(fs::Staging& staging, const fs::WalkItem& item, Json& answer) {
  if (!S_ISREG(item.attributes.st_mode) || item.content.remote) {
    return {};
  }
  const auto writers = staging.writers(item.ino);
  if (!writers) {
    return {};
  }
  // A successor knows what is open. The last member stays for programs that read it.
  answer["writers"] = {
      {"open", writers->open}, {"possible", writers->possible}, {"from_before_takeover", false}};
  return "  writers      " + writers_text(*writers) + "\n";
}

/// A line for each thing that the content lacks; a lost content is also a member of `answer`.
std::string record_lacking_content(fs::Staging& staging, const fs::WalkItem& item, Json& answer) {
  std::string text;
  if (staging.lost_its_content(item)) {
    answer["content_lost"] = true;
    text += "  content      power loss took it before the first fsync: the file is empty since\n";
  } else if (item.content.remote) {
    text +=
        "  content      not here: it is fetched from the PFS when a program opens the file, or by "
        "efs fetch\n";
    if (item.content.accepts_change) {
      text += "               changed: accept: in the version that the PFS has then\n";
    }
    if (!item.content.fetch_failure.empty()) {
      text +=
          "               the last fetch failed: " + printable(item.content.fetch_failure) + "\n";
    }
  } else if (!item.content.unreadable.empty()) {
    text += "  content      cannot be read from the buffer: " + printable(item.content.unreadable) +
            "\n";
  }
  if (!item.pfs.parts.empty()) {
    text += "  parts        only " + item.pfs.parts +
            " (offset+length) were loaded; the rest reads as zeros\n";
  }
  return text;
}

/// The effect of a stop on an input that the job removed; "" for other names.
std::string fate_of_gone(const config::JobConfig& config, const std::string& name,
                         fs::Staging& staging) {
  const auto gone = staging.gone();
  const auto item = std::ranges::find(gone, name, &fs::WalkItem::path);
  if (item == gone.end()) {
    return {};
  }
  auto inputs = removed_inputs(config, {*item});
  if (inputs.empty()) {
    return "it stays on the PFS: " + std::string(config.deletions == config::Deletions::ignore
                                                     ? "deletions are not propagated"
                                                     : "it is no persistent input");
  }
  const bool in_place = config::has_results_in_place(config);
  if (!in_place && !item->pfs.saved) {
    return "it stays on the PFS: results-dir has no copy of it";
  }
  if (const auto items = staging.walk(); items && !take_dropped(config, *items, inputs).empty()) {
    return "it stays on the PFS: its new name is temporary";
  }
  return "it is removed from " + config.results_dir + ", if it has not changed there";
}

Json absent(const config::JobConfig& config, const std::string& name, fs::Staging& staging,
            PfsIo& pfs) {
  const std::string there =
      (config.root_dir == "/" ? "" : config.root_dir) + "/" + config::source_of(config, name);
  const auto attributes = pfs.lstat(no_directory, there);
  Json answer{{"path", name}, {"in_buffer", false}, {"on_pfs", attributes.has_value()}};
  std::string text = escaped(name) + ": not in the buffer\n";
  if (attributes) {
    text += "  on the PFS   " + std::string(type_of(attributes->st_mode)) + ", " +
            format_bytes(static_cast<std::uint64_t>(attributes->st_size)) + ": " + escaped(there) +
            "\n  to get it    efs load " + escaped(name) + "\n";
  } else {
    text += "  on the PFS   no: " + escaped(there) + ": " + describe(attributes.error()) + "\n";
  }
  if (const auto fate = fate_of_gone(config, name, staging); !fate.empty()) {
    answer["at_stop"] = fate;
    text += "  state        it was staged in, and the job removed or renamed it\n  at the stop  " +
            printable(fate) + "\n";
  }
  answer["text"] = text;
  return answer;
}

}  // namespace

Json inventory_entry(const config::JobConfig& config, const fs::WalkItem& item) {
  Json entry{{"path", item.path},
             {"type", type_of(item.attributes.st_mode)},
             {"size", item.attributes.st_size},
             {"class", name_of(class_of(config, item))},
             {"dirty", item.due_for_export()},
             {"staged", staged(item)}};
  if (S_ISREG(item.attributes.st_mode) && item.content.place < config.backends.size()) {
    entry["backend"] = config.backends[item.content.place].id;
  }
  if (item.content.pinned) {
    entry["pinned"] = true;
  }
  if (item.content.remote) {
    entry["remote"] = true;
  }
  if (!item.content.fetch_failure.empty()) {
    entry["fetch_failure"] = item.content.fetch_failure;
  }
  if (!item.pfs.parts.empty()) {
    entry["parts"] = item.pfs.parts;
  }
  if (!item.content.unreadable.empty()) {
    entry["unreadable"] = item.content.unreadable;
  }
  if (!item.target.empty()) {
    entry["target"] = item.target;
  }
  return entry;
}

Json explain(const config::JobConfig& config, const std::string& name, fs::Staging& staging,
             PfsIo& pfs, const std::string& where) {
  const auto item = staging.find(name);
  if (!item) {
    return absent(config, name, staging, pfs);
  }
  std::string why;
  const config::FileClass file_class = class_of(config, *item, &why);
  Json answer = inventory_entry(config, *item);
  answer["in_buffer"] = true;
  answer["class_rule"] = why;
  answer["backend"] = where;
  if (S_ISREG(item->attributes.st_mode) && item->content.place < config.backends.size()) {
    answer["backend_id"] = config.backends[item->content.place].id;
  }
  answer["allocated"] = static_cast<std::uint64_t>(item->attributes.st_blocks) * 512;
  const std::string then = fate(config, *item, file_class);
  answer["at_stop"] = then;
  std::string text = (name.empty() ? "." : escaped(name)) + ": " +
                     type_of(item->attributes.st_mode) + ", " +
                     format_bytes(static_cast<std::uint64_t>(item->attributes.st_size)) + "\n";
  text += "  it is in     " + escaped(where) +
          (S_ISREG(item->attributes.st_mode)
               ? ", " + format_bytes(answer["allocated"].get<std::uint64_t>()) + " allocated"
               : "") +
          "\n";
  if (item->content.pinned) {
    text += "  pinned       it stays there and keeps its content, until efs unpin\n";
  }
  text += "  class        " + std::string(name_of(file_class)) + ": " + printable(why) + "\n";
  text += "  state        " + std::string(item->due_for_export() ? "dirty" : "clean") +
          (item->pfs.origin ? ", staged in from " + escaped(config.root_dir + "/" +
                                                            config::source_of(config, item->path))
                            : "") +
          "\n";
  text += record_lacking_content(staging, *item, answer);
  text += record_writers(staging, *item, answer);
  text += "  at the stop  it " + printable(then) + "\n";
  answer["text"] = text;
  return answer;
}

}  // namespace efs::stage
