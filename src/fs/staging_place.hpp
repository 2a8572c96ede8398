// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Declarations that the implementation files of Staging share.

#include <map>
#include <string>

#include "fs/filesystem.hpp"

namespace efs::fs {

struct Place {
  Inode* parent = nullptr;
  std::string name;
};

/// The record of a staged node under that name; it is clean.
MakeNode staged_node(const Place& place, std::uint64_t ino, mode_t type,
                     const StagedAttributes& attributes, FileTime now);

/// The same for a file whose content is not here.
MakeRemote remote_node(const MakeNode& node, const Remote& remote);

/// Takes the extended attributes out of the node where they are more than its record can hold: they
/// need records of their own, before it gets a name.
std::map<std::string, std::string> take_bulky_xattrs(MakeNode& node);

/// May a published file take the place of `there`? EISDIR, EEXIST, EBUSY.
Status may_replace(const Inode& there, bool dirty, Over over, const std::string& path);

}  // namespace efs::fs
