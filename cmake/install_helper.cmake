# SPDX-License-Identifier: BSD-3-Clause
# mount(8) looks for helpers only in /sbin. If mount.fuse.efs was installed elsewhere on the running
# system, this makes a link in /sbin. If that is not possible or not wanted, a message tells the
# user what to do. Requires EFS_SBINDIR: the directory of mount.fuse.efs, absolute or relative to
# the prefix.
if(IS_ABSOLUTE "${EFS_SBINDIR}")
  set(installed "${EFS_SBINDIR}/mount.fuse.efs")
else()
  set(installed "${CMAKE_INSTALL_PREFIX}/${EFS_SBINDIR}/mount.fuse.efs")
endif()
set(place /sbin/mount.fuse.efs)
set(todo "mount -t fuse.efs needs one more step, as root: ln -s ${installed} ${place}")
if(installed MATCHES "^(/usr)?/sbin/")
  # mount(8) finds it there.
elseif(NOT "$ENV{DESTDIR}" STREQUAL "")
  message(STATUS "On the target: ${todo}")
elseif(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr/local")
  message(STATUS "${todo}")  # a prefix of one's own is no wish to change /sbin
elseif(IS_SYMLINK ${place} OR NOT EXISTS ${place})
  set(target "")
  if(IS_SYMLINK ${place})
    file(READ_SYMLINK ${place} target)
  endif()
  if(target STREQUAL "" OR target MATCHES "^/usr/local/.*/mount\\.fuse\\.efs$")
    file(CREATE_LINK ${installed} ${place} RESULT result SYMBOLIC)
  else()
    set(result "it is a link to ${target}")
  endif()
  if(result STREQUAL "0")
    message(STATUS "Installing: ${place} -> ${installed}")
  else()
    message(STATUS "${place}: ${result}. ${todo}")
  endif()
else()
  message(STATUS "${place} is there and is not ours. To replace it, as root: ln -sf ${installed} ${place}")
endif()
