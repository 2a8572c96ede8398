# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  device_medium.cpp
  file_table.cpp
  instance_id.cpp
  journal.cpp
  medium.cpp
)
