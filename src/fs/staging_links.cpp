// SPDX-License-Identifier: BSD-3-Clause
// Further names of an imported file.
#include <new>
#include <ranges>
#include <utility>
#include <vector>

#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {

Status Staging::link_files(const std::string& existing, std::span<const std::string> names,
                           Over over) {
  std::uint64_t ino = 0;
  std::vector<LinkedName> changed;  // names that lead elsewhere now
  std::vector<Filesystem::Reaped> reaped;
  changed.reserve(names.size());
  reaped.reserve(names.size());
  const auto link_all = [&]() -> Status {
    WriteLock lock(filesystem_.mutex_);
    const auto place = locate(existing);
    const auto first = place ? filesystem_.names_.child(*place->parent, place->name)
                             : std::unexpected(place.error());
    if (!first) {
      return fail(first.error().code, existing + ": not in the buffer");
    }
    if (!(*first)->is_regular() || !(*first)->extra || !(*first)->extra->origin ||
        !is_one_of((*first)->extra->origin_path, existing)) {
      return fail(ESTALE, existing + ": is not what was staged in");
    }
    ino = (*first)->ino;
    Status failed;
    for (const auto& name : names) {
      auto linked = link_one(ino, name, over);
      failed = linked ? Status() : std::unexpected(linked.error());
      if (!linked) {
        break;
      }
      if (linked->replaced != 0) {
        reaped.push_back(filesystem_.withdraw(linked->replaced));
      }
      changed.push_back(std::move(*linked));
    }
    if (Status booked = book_names(ino, names.first(changed.size())); !booked) {
      take_back_links(changed);
      return booked;
    }
    return failed;
  };
  Status done = link_all();
  for (const auto& one : reaped) {
    filesystem_.remove_container(one);
  }
  KernelView* kernel = filesystem_.kernel_;
  if (kernel == nullptr) {
    return done;
  }
  for (const auto& one : reaped) {
    if (one.gone) {
      kernel->let_go(one.container);
    }
  }
  for (const auto& one : changed) {
    kernel->name_changed(one.parent, one.name);
  }
  kernel->attributes_changed(ino);
  return done;
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
    SetStaging staging = staging_of(*filesystem_.names_.find(ino));
    for (const auto& path : names) {
      EFS_TRY(forget_name(path));
      if (!is_one_of(staging.origin_path, path)) {
        staging.origin_path += '\0' + path;
      }
    }
    return filesystem_.commit(0, staging);
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
  const auto there = filesystem_.names_.child(*place->parent, place->name);
  if (there) {
    const auto item = item_of({.inode = *there, .path = path, .keep_path = {}});
    EFS_TRY(may_replace(**there, item.dirty, over, path));
    linked.replaced = (*there)->ino;
  }
  EFS_TRY(filesystem_.commit(0,
                             Replace{.ino = ino,
                                     .parent = place->parent->ino,
                                     .time = filesystem_.clock_.now(),
                                     .name = place->name},
                             there ? 0 : removal_reserve(place->name)));
  return linked;
}

}  // namespace efs::fs
