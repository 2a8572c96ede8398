# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  boot.cpp
  checksum.cpp
  cpu_binding.cpp
  door_memory.cpp
  durability.cpp
  file_clock.cpp
  file_lock.cpp
  json_text.cpp
  line_file.cpp
  log.cpp
  memory.cpp
  memory_bound.cpp
  mount_table.cpp
  mounts.cpp
  open_files.cpp
  parallel_for.cpp
  result.cpp
  slow_work.cpp
  socket.cpp
  standard_fds.cpp
  text.cpp
  timer_thread.cpp
  user.cpp
  with_timeout.cpp
)
