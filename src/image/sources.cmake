# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  check.cpp
  check_extents.cpp
  check_tree.cpp
  contents.cpp
  image.cpp
  manifest.cpp
  orphans.cpp
  removal.cpp
  salvage.cpp
  sealed_text.cpp
)
