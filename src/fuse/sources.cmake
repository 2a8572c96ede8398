# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  access_log.cpp
  adapter.cpp
  backing.cpp
  convert.cpp
  counters.cpp
  mapped_pages.cpp
  name_table.cpp
  observed.cpp
  observer.cpp
  registration_batch.cpp
  reply.cpp
  request_loop.cpp
  session.cpp
  trace.cpp
)
