# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  advice.cpp
  html.cpp
  picture.cpp
  report.cpp
  text.cpp
)
