# SPDX-License-Identifier: BSD-3-Clause
# All libraries that efs links. `make deps` installs them.
set(EFS_PREFIX "/opt/efs-deps" CACHE PATH "where `make deps` built what the distribution has too old")
set(ENV{PKG_CONFIG_PATH} "${EFS_PREFIX}/lib/pkgconfig:$ENV{PKG_CONFIG_PATH}")
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
pkg_check_modules(fuse3 REQUIRED IMPORTED_TARGET fuse3>=3.10)
pkg_check_modules(pmem REQUIRED IMPORTED_TARGET libpmem)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)

add_library(efs-spdlog INTERFACE)
target_link_libraries(efs-spdlog INTERFACE spdlog::spdlog)
add_library(efs::spdlog ALIAS efs-spdlog)
