# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  api.cpp
  draft.cpp
  files.cpp
  leftovers.cpp
  name.cpp
  npy.cpp
  result.cpp
  slab.cpp
  store.cpp
  version.cpp
)
