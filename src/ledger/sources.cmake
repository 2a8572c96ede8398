# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  files.cpp
  ledger.cpp
  names.cpp
  stale_names.cpp
  version.cpp
)
