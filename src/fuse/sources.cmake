# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  access_log.cpp
  adapter.cpp
  backing.cpp
  connection.cpp
  convert.cpp
  counters.cpp
  handlers/attributes.cpp
  handlers/data.cpp
  handlers/names.cpp
  leader_placement.cpp
  limits.cpp
  mapped_pages.cpp
  name_table.cpp
  negotiation.cpp
  observer.cpp
  registration_batch.cpp
  request.cpp
  request_loop.cpp
  session.cpp
  trace.cpp
  upkeep.cpp
  usage.cpp
)
