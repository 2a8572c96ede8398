#pragma once
// POSIX access control lists (withdrawn standard POSIX.1e draft 17, acl(5)) in the form in which
// Linux keeps them as extended attributes (linux/posix_acl_xattr.h, little-endian). The kernel
// checks permissions against them; what they do to modes is done here. Pure functions.

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
  /// EINVAL where the bytes are no complete list: owner, group and other once each, a mask where
  /// there are named entries, entries in the order of their tags.
  static Result<Acl> parse(const std::string& value);
  std::string format() const;

  /// Does it say no more than a mode can?
  bool is_minimal() const;
  /// `mode` with the permission bits that this list stands for: the group's are the mask's.
  mode_t mode_of(mode_t mode) const;
  /// chmod(2): owner, mask (or group, where there is none) and other become those of `mode`.
  void follow(mode_t mode);
  /// What a new file of this requested mode keeps of a default ACL: no right that `mode` does not
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

  /// The entry that the group bits of a mode stand for.
  Entry& group_class() { return find(mask) != nullptr ? *find(mask) : *find(group_object); }

  bool is_valid() const;

  std::vector<Entry> entries_;
};

}  // namespace efs::fs
