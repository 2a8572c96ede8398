// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/export_plan.hpp"

#include <algorithm>
#include <utility>

#include "stage/copy/transfer.hpp"
#include "stage/export/leftovers.hpp"
#include "stage/export/renaming.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/pfs/spelling.hpp"

namespace efs::stage {
namespace {

// results; with fewer, hiding their directory costs more calls than it saves
constexpr std::size_t well_filled_from = 4;

/// A result may itself be named "x.efs-partial"; the partial of x then needs another name.
std::unordered_set<std::string_view> names_like_partials(const std::vector<fs::WalkItem>& all) {
  std::unordered_set<std::string_view> names;
  for (const auto& item : all) {
    if (item.path.ends_with(partial_suffix)) {
      names.insert(item.path);
    }
  }
  return names;
}

}  // namespace

void ExportPlan::list(std::vector<const fs::WalkItem*> items,
                      const std::vector<fs::WalkItem>& all) {
  const auto elders = move_twins_back(items, all);
  const std::size_t twins_from = items.size() - elders.size();
  const auto reserved = names_like_partials(all);
  FirstNames first_names;
  firsts_.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    Outgoing& out = add_outgoing(*items[i], first_names);
    if (i >= twins_from) {
      out.elder = elders[i - twins_from];
    }
    describe_outgoing(out, reserved);
  }
  settle_refused();
}

std::uint64_t ExportPlan::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& out : firsts_) {
    bytes += out.data;
  }
  return bytes;
}

/// Adds it to the further names, if the file has another name in results-dir or among the results
/// before.
Outgoing& ExportPlan::add_outgoing(const fs::WalkItem& item, FirstNames& first_names) {
  const Outgoing* first = nullptr;
  if (S_ISREG(item.attributes.st_mode) && item.attributes.st_nlink > 1) {
    const auto known = first_names.find(item.ino);
    first = known != first_names.end() ? known->second
            : item.pfs.copy            ? &brought_before(item)
                                       : nullptr;
  }
  if (first != nullptr) {
    first_of_.push_back(first);
  }
  Outgoing& out = first != nullptr ? further_names_.emplace_back() : firsts_.emplace_back();
  if (item.attributes.st_nlink > 1) {
    first_names.try_emplace(item.ino, first != nullptr ? first : &out);
  }
  out.item = &item;
  return out;
}

/// `reserved`: of names_like_partials().
void ExportPlan::describe_outgoing(Outgoing& out,
                                   const std::unordered_set<std::string_view>& reserved) const {
  const auto& item = *out.item;
  const std::string& tag = options_.partial_tag;
  out.name = leaf_of(item.path);
  const std::string partial = item.path + tag + partial_suffix;
  out.partial = partial_name(out.name, tag, reserved.contains(partial) || buffer_.has(partial));
  out.entry.path = item.path;
  out.entry.bytes =
      S_ISREG(item.attributes.st_mode) ? static_cast<std::uint64_t>(item.attributes.st_size) : 0;
  out.entry.mtime = to_ns(item.attributes.st_mtim);
  out.data = data_of(item.attributes);
}

void ExportPlan::settle_refused() {
  for (auto* list : {&firsts_, &further_names_}) {
    for (auto& out : *list) {
      if (const auto file = own_file(out.item->path); !file.empty()) {
        out.settle(Action::failed, file +
                                       " has this name: give the result another one, or export "
                                       "it elsewhere with efs salvage --to");
      }
      if (auto why = buffer_.refusal(out.item->path); !why.empty()) {
        out.settle(Action::conflict, std::move(why));
      }
    }
  }
}

/// The name under which an earlier unload or stage-out has exported the file; results-dir may
/// still have that copy.
const Outgoing& ExportPlan::brought_before(const fs::WalkItem& item) {
  fs::WalkItem& there = items_before_.emplace_back();
  there.path = item.pfs.copy_path;
  there.pfs.saved = item.pfs.copy;
  Outgoing& out = before_.emplace_back();
  out.item = &there;
  out.name = leaf_of(there.path);
  out.settle(Action::kept).is_of_before = true;
  return out;
}

std::vector<fs::PfsName> ExportPlan::names_to_give(
    const std::vector<DirectoryToMake>& directories) const {
  std::vector<fs::PfsName> names;
  for (const auto* list : {&firsts_, &further_names_}) {
    for (const auto& out : *list) {
      if (out.is<outgoing::Waiting>()) {
        names.push_back({.path = out.item->path});
      }
    }
  }
  for (const auto& directory : directories) {
    if (directory.apply_attributes) {
      names.push_back({.path = directory.item->path});
    }
  }
  return names;
}

std::string ExportPlan::own_file(const std::string& path) const {
  if (path == options_.receipt_name) {
    return "the receipt";
  }
  const std::string whole = config_.results_dir + "/" + path;
  for (const auto& [file, what] : {std::pair{&config_.status_file, "the job's status file"},
                                   {&config_.log_file, "the job's log"},
                                   {&config_.access_log, "the job's access log"},
                                   {&config_.trace, "the job's trace"}}) {
    if (whole == *file) {
      return what;
    }
  }
  return {};
}

bool ExportPlan::uses(const std::string& mount, const std::vector<DirectoryToMake>& directories,
                      const std::vector<fs::WalkItem>& removed) const {
  const auto is_in = [&](const std::string& path) {
    return path.starts_with(mount) && (path.size() == mount.size() || path[mount.size()] == '/');
  };
  const auto goes_in = [&](const Outgoing& out) {
    return is_in(out.item->path);
  };
  return std::ranges::any_of(firsts_, goes_in) || std::ranges::any_of(further_names_, goes_in) ||
         std::ranges::any_of(directories,
                             [&](const DirectoryToMake& one) { return is_in(one.item->path); }) ||
         std::ranges::any_of(removed, is_in, &fs::WalkItem::path);
}

std::unordered_set<std::string> ExportPlan::well_filled(
    const std::vector<DirectoryToMake>& directories) const {
  const auto results = results_by_directory();
  std::unordered_set<std::string_view> above;
  for (const auto& directory : directories) {
    above.insert(parent_view(directory.item->path));
  }
  std::unordered_set<std::string> filled;
  for (const auto& directory : directories) {
    const std::string& path = directory.item->path;
    const auto count = results.find(path);
    if (count == results.end() || count->second < well_filled_from || above.contains(path)) {
      continue;
    }
    if (can_hide(path)) {
      filled.insert(path);
    }
  }
  return filled;
}

bool ExportPlan::can_hide(const std::string& path) const {
  const std::string hidden =
      join(parent_of(path), partial_name(leaf_of(path), options_.partial_tag));
  return is_hidden_directory(hidden) && !buffer_.has(hidden);
}

/// The number of results directly in each directory, without those of twins().
std::unordered_map<std::string_view, std::size_t> ExportPlan::results_by_directory() const {
  std::unordered_map<std::string_view, std::size_t> results;
  for (const auto& out : firsts_) {
    if (out.is<outgoing::Waiting>() && out.elder == nullptr) {
      ++results[parent_view(out.item->path)];
    }
  }
  return results;
}

std::span<Outgoing> ExportPlan::apart_from_twins() {
  const auto first =
      std::ranges::find_if(firsts_, [](const Outgoing& out) { return out.elder != nullptr; });
  return std::span(firsts_).first(static_cast<std::size_t>(first - firsts_.begin()));
}

std::span<Outgoing> ExportPlan::twins() {
  return firsts().subspan(apart_from_twins().size());
}

}  // namespace efs::stage
