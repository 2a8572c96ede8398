// SPDX-License-Identifier: BSD-3-Clause
#include "fs/change_watch.hpp"

#include <linux/fs.h>

#include <string>

#include "fs/namespace.hpp"

namespace efs::fs {
namespace {

/// Visits a record.
class TellOfNames {
 public:
  TellOfNames(ChangeWatch& watch, const Namespace& names) : watch_(watch), names_(names) {}

  void operator()(const MakeNode& made) const {
    if (!made.name.empty() && !S_ISDIR(made.mode)) {
      watch_.named(made.ino, made.parent, made.name);
    }
  }

  void operator()(const MakeRemote& made) const { (*this)(static_cast<const MakeNode&>(made)); }

  void operator()(const Link& linked) const {
    watch_.named(linked.ino, linked.parent, linked.name);
  }

  void operator()(const Replace& replaced) const {
    watch_.named(replaced.ino, replaced.parent, replaced.name);
  }

  void operator()(const Rename& renamed) const {
    tell(renamed.new_parent, renamed.new_name);
    if ((renamed.flags & RENAME_EXCHANGE) != 0) {
      tell(renamed.parent, renamed.name);
    }
  }

  void operator()(const auto&) const {}

 private:
  void tell(std::uint64_t parent, const std::string& name) const {
    const Inode* directory = names_.find(parent);
    const auto* entry = directory == nullptr ? nullptr : directory->directory->find(name);
    const Inode* inode = entry == nullptr ? nullptr : names_.find(entry->ino);
    if (inode == nullptr) {
      return;
    }
    if (inode->is_directory()) {
      watch_.moved(parent, name);
    } else {
      watch_.named(inode->ino, parent, name);
    }
  }

  ChangeWatch& watch_;
  const Namespace& names_;
};

}  // namespace

void tell_of_names(ChangeWatch& watch, const Namespace& names, const Record& record) {
  std::visit(TellOfNames(watch, names), record);
}

}  // namespace efs::fs
