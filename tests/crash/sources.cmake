# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  conversion_test.cpp
  crash_test.cpp
  enumeration.cpp
  flush_proof.cpp
  flush_test.cpp
  killed_store_test.cpp
  scenarios.cpp
  staging_test.cpp
  unsettled_test.cpp
)
