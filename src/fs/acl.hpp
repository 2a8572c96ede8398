// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// POSIX access control lists (withdrawn standard POSIX.1e draft 17, acl(5)) in the format of
// Linux's extended attributes (linux/posix_acl_xattr.h, little-endian). The kernel checks
// permissions against them. This code computes their effects on modes. Pure functions.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace efs::fs {

inline constexpr const char* access_acl_name = "system.posix_acl_access";
inline constexpr const char* default_acl_name = "system.posix_acl_default";

inline bool is_acl_name(const std::string& name) {
  return name == access_acl_name || name == default_acl_name;
}

class Acl {
 public:
  /// EINVAL if the bytes are not a valid list. A valid list has owner, group and other once each, a
  /// mask if it has named entries, and entries in the order of their tags.
  static Result<Acl> parse(const std::string& value);
  std::string format() const;

  /// True if a mode can express the whole list.
  bool is_minimal() const;
  /// `mode` with the permission bits of this list; the group's bits are the mask's.
  mode_t mode_of(mode_t mode) const;
  /// As chmod(2): sets owner, mask (or group, if there is no mask) and other from `mode`.
  void follow(mode_t mode);
  /// Limits a default ACL for a new file of the requested mode: removes rights that `mode` does not
  /// give.
  void restrict(mode_t mode);

 private:
  enum Tag : std::uint16_t {
    user_object = 1,
    user = 2,
    group_object = 4,
    group = 8,
    mask = 16,
    other = 32
  };

  struct Entry {
    std::uint16_t tag = 0, permissions = 0;
    std::uint32_t id = 0;
  };

  const Entry* find(Tag tag) const;

  Entry* find(Tag tag) { return const_cast<Entry*>(std::as_const(*this).find(tag)); }

  /// The entry that corresponds to the group bits of a mode.
  Entry& group_class() { return find(mask) != nullptr ? *find(mask) : *find(group_object); }

  static bool is_named(const Entry& entry) { return entry.tag == user || entry.tag == group; }

  static bool is_valid(const Entry& entry);
  /// True if `entry` may directly follow `before` in a list.
  static bool may_follow(const Entry& before, const Entry& entry);
  bool is_valid() const;

  std::vector<Entry> entries_;
};

}  // namespace efs::fs
