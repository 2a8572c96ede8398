# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  container_cache.cpp
  container_file.cpp
  devdax/content_changes.cpp
  devdax/content_store.cpp
  devdax/devdax.cpp
  devdax/device.cpp
  devdax/extent_allocator.cpp
  devdax/superblock.cpp
  fsdax.cpp
  virtual_device.cpp
)
