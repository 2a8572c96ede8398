// SPDX-License-Identifier: BSD-3-Clause
#include "fs/acl.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace efs::fs {
namespace {

constexpr std::uint32_t version = 2;
constexpr std::size_t header_size = 4, entry_size = 8;  // bytes
constexpr std::uint32_t no_id = 0xffffffff;

}  // namespace

Result<Acl> Acl::parse(const std::string& value) {
  std::uint32_t found = 0;
  if (value.size() < header_size || (value.size() - header_size) % entry_size != 0) {
    return fail(EINVAL, "ACL of a wrong length");
  }
  std::memcpy(&found, value.data(), sizeof found);
  if (found != version) {
    return fail(EOPNOTSUPP, "ACL of an unknown version");
  }
  Acl acl;
  for (std::size_t at = header_size; at < value.size(); at += entry_size) {
    Entry entry;
    std::memcpy(&entry.tag, value.data() + at, 2);
    std::memcpy(&entry.permissions, value.data() + at + 2, 2);
    std::memcpy(&entry.id, value.data() + at + 4, 4);
    acl.entries_.push_back(entry);
  }
  if (!acl.is_valid()) {
    return fail(EINVAL, "ACL is not valid");
  }
  return acl;
}

bool Acl::is_valid(const Entry& entry) {
  return (entry.permissions & ~7) == 0 && (!is_named(entry) || entry.id != no_id);
}

bool Acl::may_follow(const Entry& before, const Entry& entry) {
  return before.tag < entry.tag || (before.tag == entry.tag && is_named(entry));
}

bool Acl::is_valid() const {
  const auto count = [&](Tag tag) {
    return std::count_if(entries_.begin(), entries_.end(),
                         [&](const Entry& e) { return e.tag == tag; });
  };
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!is_valid(entries_[i]) || (i > 0 && !may_follow(entries_[i - 1], entries_[i]))) {
      return false;
    }
  }
  const auto named = count(user) + count(group);
  return count(user_object) == 1 && count(group_object) == 1 && count(other) == 1 &&
         count(mask) <= 1 && (named == 0 || count(mask) == 1) &&
         named + 3 + count(mask) == static_cast<std::ptrdiff_t>(entries_.size());
}

std::string Acl::format() const {
  std::string value(header_size + entries_.size() * entry_size, '\0');
  std::memcpy(value.data(), &version, sizeof version);
  char* at = value.data() + header_size;
  for (const Entry& entry : entries_) {
    const std::uint32_t id = is_named(entry) ? entry.id : no_id;
    std::memcpy(at, &entry.tag, 2);
    std::memcpy(at + 2, &entry.permissions, 2);
    std::memcpy(at + 4, &id, 4);
    at += entry_size;
  }
  return value;
}

const Acl::Entry* Acl::find(Tag tag) const {
  const auto it =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.tag == tag; });
  return it == entries_.end() ? nullptr : &*it;
}

bool Acl::is_minimal() const {
  return entries_.size() == 3;
}

mode_t Acl::mode_of(mode_t mode) const {
  const Entry* group_bits = find(mask) != nullptr ? find(mask) : find(group_object);
  return (mode & ~static_cast<mode_t>(0777)) |
         static_cast<mode_t>(find(user_object)->permissions << 6 | group_bits->permissions << 3 |
                             find(other)->permissions);
}

void Acl::follow(mode_t mode) {
  find(user_object)->permissions = (mode >> 6) & 7;
  group_class().permissions = (mode >> 3) & 7;
  find(other)->permissions = mode & 7;
}

void Acl::restrict(mode_t mode) {
  find(user_object)->permissions &= (mode >> 6) & 7;
  group_class().permissions &= (mode >> 3) & 7;
  find(other)->permissions &= mode & 7;
}

}  // namespace efs::fs
