# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  allocator.c
  ask.c
  directives.c
  epilog.c
  holders.c
  in_job.c
  job.c
  job_file.c
  keep.c
  licence.c
  memory.c
  notice.c
  options.c
  output.c
  patience.c
  prolog.c
  run.c
  site.c
  slurmd.c
  spank_efs.c
  task.c
  text.c
  unsaved.c
  watch.c
)
