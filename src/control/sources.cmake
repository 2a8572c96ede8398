# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  asking.cpp
  client.cpp
  end_watch.cpp
  fields.cpp
  instances.cpp
  protocol.cpp
  replies.cpp
  requests.cpp
  server.cpp
)
