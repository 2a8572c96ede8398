# SPDX-License-Identifier: BSD-3-Clause
# `make install`, the Debian package (`make package`) and the RPM (`make rpm`).

# libfuse. If it comes from the private prefix (cmake/deps.sh: the distribution's is too old for
# passthrough), the package contains it, as a shared library in lib/efs that only our programs
# search. It is not linked statically: a user can inspect a shared library, and can replace it by a
# newer one with the same SONAME without building efs again. Its licence (LGPL 2.1) requires this
# too. The library comes from Debian's source package and does not get the security updates of the
# installed distribution: a new libfuse needs a new package of efs.
get_filename_component(fuse_library_dir "${fuse3_LIBRARY_DIRS}" REALPATH)
get_filename_component(private_prefix "${EFS_PREFIX}" REALPATH)
set(EFS_BUNDLES_LIBFUSE OFF)
if(fuse3_LIBRARY_DIRS AND fuse_library_dir MATCHES "^${private_prefix}/")
  set(EFS_BUNDLES_LIBFUSE ON)
  # The run path also has the prefix of libfuse, after our own copy, so that an efsd copied out of
  # the build runs. The installation removes that entry.
  set(EFS_INSTALL_RPATH "$ORIGIN/../lib/efs;${fuse_library_dir}")
  # The build directory has it at the same place beside efsd, as a link.
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
  file(CREATE_LINK ${fuse_library_dir} ${CMAKE_BINARY_DIR}/lib/efs SYMBOLIC)
  file(GLOB fuse_sonames ${fuse_library_dir}/libfuse3.so.[0-9] ${fuse_library_dir}/libfuse3.so.[0-9][0-9])
  list(GET fuse_sonames 0 fuse_soname)
  get_filename_component(fuse_file ${fuse_soname} REALPATH)
  get_filename_component(fuse_soname ${fuse_soname} NAME)
  install(FILES ${fuse_file} DESTINATION lib/efs RENAME ${fuse_soname} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endif()

# Manual pages of all sections.
file(GLOB manual_pages CONFIGURE_DEPENDS man/*.[1-8])
foreach(page ${manual_pages})
  string(REGEX MATCH "[1-8]$" section ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()

configure_file(cmake/copyright.in ${CMAKE_BINARY_DIR}/copyright @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/copyright LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME efs)
set(CPACK_PACKAGE_CONTACT "The efs developers <efs@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "node-local POSIX file systems for batch jobs")
set(CPACK_PACKAGE_DESCRIPTION "Gives each batch job a POSIX file system of its own in the memory of the node, with
the job's inputs staged in from the parallel file system before it starts and its results staged out when it ends.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/package)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# The package depends on the libraries that the programs link. fuse3 provides fusermount3, which
# mounts for ordinary users.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${fuse_library_dir})
set(CPACK_DEBIAN_PACKAGE_DEPENDS fuse3)
# The Python package efs needs it.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS python3-numpy)

set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_VENDOR "The efs developers")
set(CPACK_RPM_PACKAGE_LICENSE BSD-3-Clause)
set(CPACK_RPM_PACKAGE_DESCRIPTION ${CPACK_PACKAGE_DESCRIPTION})
set(CPACK_RPM_PACKAGE_REQUIRES fuse3)
set(CPACK_RPM_PACKAGE_RELOCATABLE ON)
set(CPACK_RPM_SPEC_MORE_DEFINE "%global _build_id_links none")
# The package owns its files, and no directory that it shares with others. The generator leaves out
# /usr, /usr/bin, /usr/lib, /usr/include and /usr/share by itself.
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/sbin /usr/share/man)
foreach(directory ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_LIBDIR}/cmake ${EFS_PYTHON_DIR} lib/systemd/system
        lib/systemd/user share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d)
  get_filename_component(parent ${directory} DIRECTORY)
  list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/${directory} /usr/${parent})
endforeach()
foreach(section RANGE 1 8)
  list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/share/man/man${section})
endforeach()
# efsd alone uses the libfuse in lib/efs: the package neither offers it to other packages, nor
# requires the distribution's.
if(EFS_BUNDLES_LIBFUSE)
  string(APPEND CPACK_RPM_PACKAGE_LICENSE " AND LGPL-2.1-only")
  string(APPEND CPACK_RPM_SPEC_MORE_DEFINE "\n%global __provides_exclude_from ^/usr/lib/efs/.*$\n%global __requires_exclude ^libfuse3[.]so.*$")
endif()
include(CPack)
