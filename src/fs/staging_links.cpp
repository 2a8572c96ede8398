// SPDX-License-Identifier: BSD-3-Clause
// Further names of an imported file.
#include <new>
#include <ranges>
#include <utility>
#include <vector>

#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fs/ledger_records.hpp"
#include "fs/removal_reserve.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {

/// The effects of link_files().
struct Staging::Links {
  std::uint64_t ino = 0;
  std::vector<LinkedName> changed;  // names that lead elsewhere now
  std::vector<Filesystem::Reaped> reaped;
};

Status Staging::link_files(const std::string& existing, std::span<const std::string> names,
                           Over over) {
  Links links;
  links.changed.reserve(names.size());
  links.reaped.reserve(names.size());
  Status done = link_all(existing, names, over, links);
  for (const auto& one : links.reaped) {
    filesystem_.remove_container(one);
  }
  if (KernelView* kernel = filesystem_.kernel_) {
    tell_of_links(links, *kernel);
  }
  return done;
}

void Staging::tell_of_links(const Links& links, KernelView& kernel) {
  for (const auto& one : links.reaped) {
    if (one.gone) {
      kernel.let_go(one.container);
    }
  }
  for (const auto& one : links.changed) {
    kernel.name_changed(one.parent, one.name);
  }
  kernel.attributes_changed(links.ino);
}

Result<std::uint64_t> Staging::imported_file(const std::string& path) const {
  filesystem_.mutex_.assert_held_shared();
  const auto place = locate(path);
  const auto first = place ? filesystem_.names_.child(*place->parent, place->name)
                           : std::unexpected(place.error());
  if (!first) {
    return fail(first.error().code, path + ": not in the buffer");
  }
  const auto& imported = filesystem_.names_.files().of((*first)->ino).imported;
  if (!(*first)->is_regular() || !imported || !imported->names.contains(path)) {
    return fail(ESTALE, path + ": is not what was staged in");
  }
  return (*first)->ino;
}

Status Staging::link_all(const std::string& existing, std::span<const std::string> names, Over over,
                         Links& links) {
  WriteLock lock(filesystem_.mutex_);
  const auto ino = imported_file(existing);
  EFS_TRY(ino);
  links.ino = *ino;
  Status failed;
  for (const auto& name : names) {
    auto linked = link_one(links.ino, name, over);
    failed = linked ? Status() : std::unexpected(linked.error());
    if (!linked) {
      break;
    }
    if (linked->replaced != 0) {
      links.reaped.push_back(filesystem_.withdraw(linked->replaced));
    }
    links.changed.push_back(std::move(*linked));
  }
  if (Status booked = book_names(links.ino, names.first(links.changed.size())); !booked) {
    take_back_links(links.changed);
    return booked;
  }
  return failed;
}

// Records the names after they exist, and only existing ones: a recorded name that is missing would
// count as removed by the job. If the process dies in between, they are the job's own names with
// the content on the PFS.
Status Staging::book_names(std::uint64_t ino, std::span<const std::string> names) {
  filesystem_.mutex_.assert_held();
  if (names.empty()) {
    return {};
  }
  try {
    const Inode& inode = *filesystem_.names_.find(ino);
    return commit_change(&inode, filesystem_.names_.files().linked(ledger_node(inode), names));
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

// Removes the new names, which would otherwise count as the job's own and be exported. A name that
// replaced another file stays, because the other file no longer exists.
void Staging::take_back_links(std::span<const LinkedName> links) {
  filesystem_.mutex_.assert_held();
  for (const auto& one : std::views::reverse(links)) {
    if (one.replaced == 0) {
      (void)filesystem_.commit(
          0, Unlink{.parent = one.parent, .time = filesystem_.clock_.now(), .name = one.name},
          -removal_reserve(one.name));
    }
  }
}

Result<Staging::LinkedName> Staging::link_one(std::uint64_t ino, const std::string& path,
                                              Over over) {
  filesystem_.mutex_.assert_held();
  const auto place = locate(path);
  if (!place) {
    return std::unexpected(place.error());
  }
  if (place->parent->nlink == 0) {
    return fail(ENOENT);
  }
  LinkedName linked{.parent = place->parent->ino, .name = place->name};
  const auto there = replaceable(*place, path, over);
  EFS_TRY(there);
  linked.replaced = *there;
  EFS_TRY(filesystem_.commit(0,
                             Replace{.ino = ino,
                                     .parent = place->parent->ino,
                                     .time = filesystem_.clock_.now(),
                                     .name = place->name},
                             linked.replaced != 0 ? 0 : removal_reserve(place->name)));
  return linked;
}

}  // namespace efs::fs
