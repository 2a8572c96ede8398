# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  parity.cpp
  parity_acl.cpp
  parity_atime.cpp
  parity_attr.cpp
  parity_ctx.cpp
  parity_dir.cpp
  parity_io.cpp
  parity_link.cpp
  parity_lock.cpp
  parity_map.cpp
  parity_open.cpp
  parity_perm.cpp
  parity_privilege.cpp
  parity_race.cpp
  parity_rename.cpp
  parity_size.cpp
  parity_space.cpp
  parity_special.cpp
  parity_time.cpp
  parity_transfer.cpp
  parity_xattr.cpp
)
