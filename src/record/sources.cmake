# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  events.cpp
  job_file.cpp
  selection.cpp
  summary.cpp
  tree.cpp
)
