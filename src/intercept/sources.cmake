# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  copy.cpp
  descriptors.cpp
  fault_handler.cpp
  file.cpp
  hooks_data.cpp
  hooks_descriptors.cpp
  hooks_processes.cpp
  mount.cpp
  serve.cpp
  settings.cpp
  statistics.cpp
)
