// SPDX-License-Identifier: BSD-3-Clause
#include "base/user.hpp"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>

namespace efs {
namespace {

constexpr std::uint64_t bit(int capability) {
  return std::uint64_t{1} << capability;
}

Status set_capabilities(std::uint64_t permitted, std::uint64_t effective) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> data{};
  for (std::size_t i = 0; i < 2; ++i) {
    data.at(i).permitted = static_cast<std::uint32_t>(permitted >> (32 * i));
    data.at(i).effective = static_cast<std::uint32_t>(effective >> (32 * i));
  }
  return ::syscall(SYS_capset, &header, data.data()) == 0 ? Status{} : fail_errno("capset");
}

/// Returns those capabilities of `wanted` that this root process has: a container may have removed
/// some.
std::uint64_t if_permitted(std::uint64_t wanted) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> data{};
  if (::syscall(SYS_capget, &header, data.data()) != 0) {
    return 0;
  }
  return wanted & (data[0].permitted | std::uint64_t{data[1].permitted} << 32);
}

}  // namespace

Result<User> find_user(const std::string& who) {
  unsigned number = 0;
  const auto [end, problem] = std::from_chars(who.data(), who.data() + who.size(), number);
  const bool numeric = problem == std::errc{} && end == who.data() + who.size();
  const passwd* entry = numeric ? ::getpwuid(number) : ::getpwnam(who.c_str());
  if (entry != nullptr) {
    return User{entry->pw_uid, entry->pw_gid, entry->pw_name, entry->pw_dir};
  }
  if (numeric) {
    return User{number, number, who, {}};
  }
  return fail(ENOENT, "there is no user " + who);
}

Result<gid_t> find_group(const std::string& which) {
  unsigned number = 0;
  const auto [end, problem] = std::from_chars(which.data(), which.data() + which.size(), number);
  if (problem == std::errc{} && end == which.data() + which.size()) {
    return number;
  }
  const group* entry = ::getgrnam(which.c_str());
  if (entry == nullptr) {
    return fail(ENOENT, "there is no group " + which);
  }
  return entry->gr_gid;
}

Status become(const User& user, bool for_good) {
  if (::geteuid() != 0) {
    return {};
  }
  if (user.uid == 0) {
    // The last two are for trusted.* and file capabilities of staged files. Without them the
    // process would not see these attributes.
    const auto keep =
        if_permitted(bit(CAP_DAC_OVERRIDE) | bit(CAP_DAC_READ_SEARCH) | bit(CAP_CHOWN) |
                     bit(CAP_FOWNER) | bit(CAP_FSETID) | bit(CAP_SYS_ADMIN) | bit(CAP_SETFCAP));
    return set_capabilities(keep, keep);
  }
  if (::initgroups(user.name.c_str(), user.gid) != 0 ||
      ::setresgid(user.gid, user.gid, user.gid) != 0 ||
      ::setresuid(user.uid, user.uid, user.uid) != 0) {
    return fail_errno("cannot become user " + user.name);
  }
  if (for_good) {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  }
  return {};
}

Status become_keeper(const User& user) {
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (user.uid != 0 || ::geteuid() != 0) {
    return become(user, true);
  }
  if (::setresgid(0, 0, 0) != 0 || ::setresuid(0, 0, 0) != 0) {
    return fail_errno("cannot become root");
  }
  const auto keep = if_permitted(bit(CAP_DAC_OVERRIDE));
  return set_capabilities(keep, keep);
}

bool may_mount() {
  return if_permitted(bit(CAP_SYS_ADMIN)) != 0;
}

Status drop_privilege(const User& user) {
  if (::geteuid() != 0) {
    return {};
  }
  if (user.uid != 0 && (::setresgid(0, user.gid, 0) != 0 || ::setresuid(0, user.uid, 0) != 0)) {
    return fail_errno("cannot take the file rights of " + user.name);
  }
  return limit_effective(user.uid);
}

Status limit_effective(uid_t uid) {
  const auto effective =
      bit(CAP_SYS_ADMIN) | if_permitted(uid == 0 ? bit(CAP_DAC_OVERRIDE) | bit(CAP_FOWNER) : 0);
  // Permitted, but not in effect: a successor of the worker is forked with these; see become().
  const auto later = if_permitted(
      bit(CAP_SETUID) | bit(CAP_SETGID) | bit(CAP_DAC_OVERRIDE) | bit(CAP_FOWNER) |
      (uid == 0 ? bit(CAP_DAC_READ_SEARCH) | bit(CAP_CHOWN) | bit(CAP_FSETID) | bit(CAP_SETFCAP)
                : 0));
  return set_capabilities(effective | later, effective);
}

}  // namespace efs
