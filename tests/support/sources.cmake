# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  durable_calls.cpp
  failing_new.cpp
  hole_searches.cpp
  slab_backend.cpp
)
