# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  api.cpp
  api_version.cpp
  bundle.cpp
  bundle_store.cpp
  check.cpp
  checksum.cpp
  crc32.cpp
  draft.cpp
  files.cpp
  joined.cpp
  leftovers.cpp
  manifest.cpp
  name.cpp
  npy.cpp
  result.cpp
  series.cpp
  slab.cpp
  store.cpp
  version.cpp
  written.cpp
  zip.cpp
)
