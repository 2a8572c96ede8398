# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  directory.cpp
  overview.cpp
  policy.cpp
  settings.cpp
  ticket.cpp
  turn.cpp
)
