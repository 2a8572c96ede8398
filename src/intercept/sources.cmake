# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  copy.cpp
  descriptors.cpp
  far_descriptor.cpp
  fault_handler.cpp
  file.cpp
  hooks_data.cpp
  hooks_descriptors.cpp
  hooks_processes.cpp
  mount.cpp
  own_process.cpp
  serve.cpp
  settings.cpp
  statistics.cpp
)
