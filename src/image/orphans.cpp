// SPDX-License-Identifier: BSD-3-Clause
#include "image/orphans.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "fs/moved.hpp"
#include "fs/namespace.hpp"
#include "stage/export/stage_out.hpp"
#include "stage/export_source.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::image {
namespace {

// digits of the instance's number: stores of one job on several nodes may be exported to one place
constexpr std::size_t tag_length = 8;

/// Presents the containers as files of these names.
class LostBuffer final : public stage::RestingSource {
 public:
  LostBuffer(Backend& backend, std::vector<fs::WalkItem> items)
      : backend_(backend), items_(std::move(items)) {}

  Result<std::vector<fs::WalkItem>> walk() override { return items_; }

  Result<fs::OpenContainer> open_container(std::uint64_t ino) override {
    auto container = backend_.open(ino);
    if (!container) {
      return std::unexpected(container.error());
    }
    return fs::OpenContainer{.ino = ino, .container = std::move(*container)};
  }

 private:
  Backend& backend_;
  const std::vector<fs::WalkItem> items_;
};

// A parent directory; an existing one keeps its attributes.
fs::WalkItem directory_item(const std::string& path, uid_t owner) {
  fs::WalkItem item;
  item.path = path;
  item.attributes.st_mode = S_IFDIR | 0700;
  item.attributes.st_uid = owner;
  item.attributes.st_gid = ::getegid();
  item.keep = fs::Keep::temporary;
  return item;
}

// A container that is no file has no owner.
fs::WalkItem file_item(const std::string& directory, std::uint64_t id, uid_t owner,
                       const struct stat& attributes) {
  fs::WalkItem item;
  item.path = directory + "/" + std::to_string(id);
  item.ino = id;
  item.attributes = attributes;
  item.attributes.st_mode = S_IFREG | 0600;
  item.attributes.st_nlink = 1;
  if (attributes.st_ino == 0) {
    item.attributes.st_uid = owner;
    item.attributes.st_gid = ::getegid();
  }
  item.pfs.dirty = true;
  item.keep = fs::Keep::persistent;
  return item;
}

// Returns, in order, the containers whose file has no name. If the journal is damaged, a file
// without a name may have got one (again) in a record behind the damage. Unless the journal was
// replayed, no file has a name.
Result<std::vector<std::uint64_t>> nameless_containers(const HeldStore& held,
                                                       const Result<store::ReplayEnd>& replayed,
                                                       const fs::Namespace& names) {
  const bool damaged = replayed && is_damaged(*replayed, held.rebooted);
  std::vector<std::uint64_t> found;
  EFS_TRY(held.backend->for_each([&](std::uint64_t id) {
    const fs::Inode* inode = replayed ? names.find(id) : nullptr;
    if (inode == nullptr || (damaged && inode->nlink == 0)) {
      found.push_back(id);
    }
  }));
  std::ranges::sort(found);
  return found;
}

}  // namespace

Result<Orphans> find_orphans(const HeldStore& held) {
  Orphans lost;
  fs::Namespace names{0755, 0, 0, 0};
  const auto end = replay_names(held.directories, held.manifest, held.rebooted, names);
  if (!end && end.error().code == EPROTONOSUPPORT) {
    return fail(EPROTONOSUPPORT, held.directories.path + ": " + describe(end.error()));
  }
  if (!end) {
    lost.journal_problem = describe(end.error());
  }
  const std::string top = "lost+found",
                    own = top + "/" + held.manifest.name + "-" +
                          store::to_string(held.manifest.instance).substr(0, tag_length);
  if (end) {
    EFS_TRY(fs::place_moved(names, *held.backend));
  }
  const auto nameless = nameless_containers(held, end, names);
  if (!nameless) {
    return std::unexpected(nameless.error());
  }
  for (const auto id : *nameless) {
    const auto attributes = held.backend->attributes(id);
    if (!attributes) {
      return fail(attributes.error().code,
                  "container " + std::to_string(id) + ": " + describe(attributes.error()));
    }
    if (!S_ISREG(attributes->st_mode) || attributes->st_size == 0) {
      continue;
    }
    lost.bytes += static_cast<std::uint64_t>(attributes->st_size);
    lost.items.push_back(file_item(own, id, held.directories.owner, *attributes));
  }
  if (!lost.items.empty()) {
    lost.items.insert(lost.items.begin(), {directory_item(top, held.directories.owner),
                                           directory_item(own, held.directories.owner)});
  }
  return lost;
}

stage::Receipt salvage_orphans(const HeldStore& held, const Orphans& lost, const std::string& to,
                               stage::Progress& progress) {
  config::JobConfig config;
  config.name = held.manifest.name;
  config.results_dir = to;
  LostBuffer buffer(*held.backend, lost.items);
  stage::Receipt receipt = stage::stage_out(
      config, buffer, stage::posix_pfs(),
      {.partial_tag = stage::partial_tag_of(store::to_string(held.manifest.instance)),
       .has_a_past = true},
      progress);
  for (auto& entry : receipt.entries) {
    if (entry.action == stage::Action::staged_out || entry.action == stage::Action::kept) {
      entry.evidence = "as-found";
    }
  }
  // omit the parent directories
  std::erase_if(receipt.entries, [](const stage::ReceiptEntry& entry) {
    return entry.action == stage::Action::dropped;
  });
  receipt.note = "contents of " + held.directories.path + " that no record names" +
                 (lost.journal_problem.empty()
                      ? ""
                      : ": the journal cannot be read (" + lost.journal_problem + ")") +
                 "; named by container number; their content is not verified";
  receipt.way_out = "retry: efs salvage --lost --to DIR";
  stage::settle(receipt);
  return receipt;
}

}  // namespace efs::image
