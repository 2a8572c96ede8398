// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Parts of the kernel's FUSE protocol that older headers lack (include/uapi/linux/fuse.h, kernel
// 6.9).

#include <cstddef>
#include <cstdint>

namespace efs::fuse {

/// Set in the number of a request that the kernel sends again because a dead daemon had read it.
inline constexpr std::uint64_t resent_bit = std::uint64_t{1} << 63;
/// Notification: the kernel shall send again the requests that were read and not answered.
inline constexpr std::int32_t notify_resend = 7;
/// INIT flag: the kernel supports this notification.
inline constexpr std::uint64_t has_resend = std::uint64_t{1} << 39;

/// The most bytes of one WRITE request, and the largest request, which includes room for the
/// headers.
inline constexpr std::uint32_t largest_write = 1U << 20U;
inline constexpr std::size_t largest_request = largest_write + 4096;

}  // namespace efs::fuse
