# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  backends.cpp
  cache_place.cpp
  classify.cpp
  document.cpp
  effective.cpp
  expand.cpp
  glob.cpp
  keys.cpp
  load.cpp
  mount_options.cpp
  paths.cpp
  precedence.cpp
  problems.cpp
  read_file.cpp
  resources.cpp
  settings.cpp
  site.cpp
  sizes.cpp
  snapshot.cpp
  start_command.cpp
  surroundings.cpp
  validate.cpp
  values.cpp
  yaml_tree.cpp
)
