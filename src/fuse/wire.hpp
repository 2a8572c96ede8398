// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the kernel's FUSE protocol has and older headers lack (include/uapi/linux/fuse.h,
// kernel 6.9).

#include <cstddef>
#include <cstdint>

namespace efs::fuse {

/// Set in the number of a request that is sent again to the successor of a daemon that had read it.
inline constexpr std::uint64_t resent_bit = std::uint64_t{1} << 63;
/// Notification: send again what was read and not answered.
inline constexpr std::int32_t notify_resend = 7;
/// INIT flag: the kernel knows that notification.
inline constexpr std::uint64_t has_resend = std::uint64_t{1} << 39;

/// What a program may write by one request, bytes, and so the most that a request can have, with
/// room for what stands before it.
inline constexpr std::uint32_t largest_write = 1U << 20U;
inline constexpr std::size_t largest_request = largest_write + 4096;

}  // namespace efs::fuse
