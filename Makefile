# SPDX-License-Identifier: BSD-3-Clause
# Thin front of CMake. `make help` lists the targets.
BUILD  ?= build
PRESET ?= release
EFS_PREFIX ?= /opt/efs-deps
export EFS_PREFIX
JOBS   ?= $(shell nproc)

.PHONY: help deps demo-deps slurm-deps mpi-deps programs-deps criu-deps configure build check check-fast check-vm suites soak bench bench-interleaving demo install package rpm clean

help:
	@echo "make deps     install what efs needs (Debian 12 or 13, as root)"
	@echo "make slurm-deps  the same, and what the Slurm plugin and its tests need"
	@echo "make mpi-deps  the same, and MPI and gfortran for the tests of libefs-objects"
	@echo "make programs-deps  the same, and PMDK, memkind, bubblewrap and fish for the tests with them; make criu-deps: CRIU"
	@echo "make build    build into build/: programs in build/bin, libraries in build/lib"
	@echo "make check    deps, build, and all tests"
	@echo "make check-vm a guest of QEMU with persistent memory whose power is cut (Debian 13, as root; EFS_CUTS, EFS_SEED)"
	@echo "make suites   the public test suites pjdfstest and fsx, by cargo, for 'make check' to run"
	@echo "make tidy     clang-tidy over all sources, or over FILES (slow; not part of 'make check')"
	@echo "make soak     the tests that take long: a million entries, thousands of killed workers, every stage of an operation to die at, four hours of random operations (EFS_SOAK_SECONDS)"
	@echo "make demo     deps, build, and a real job through efs"
	@echo "make bench    the figures: the mount against its backing tmpfs, staging against cp"
	@echo "make bench-interleaving  three jobs and a slow file server: directly, uncoordinated, in turns"
	@echo "make install  install below PREFIX (default /usr/local), under DESTDIR where it is given"
	@echo "make package  a Debian package in build/package"
	@echo "make rpm      an RPM in build/package (needs rpmbuild)"

deps:
	@cmake/deps.sh

demo-deps:
	@cmake/deps.sh --demo

slurm-deps:
	@cmake/deps.sh --slurm

mpi-deps:
	@cmake/deps.sh --mpi

programs-deps:
	@cmake/deps.sh --programs

criu-deps:
	@cmake/deps.sh --criu

configure:
	@cmake --preset $(PRESET) -B $(BUILD) -DEFS_PREFIX=$(EFS_PREFIX) >/dev/null

build: deps configure
	@cmake --build $(BUILD) -j $(JOBS)

# Before the configuration, which looks for Slurm's headers. Without Slurm its plugin and tests are left out, and say so.
check: PRESET = ci
check: programs-deps-where-possible build
	@tests/run-all.sh $(BUILD)

.PHONY: slurm-deps-where-possible
slurm-deps-where-possible:
	@cmake/deps.sh --slurm || echo "Slurm cannot be installed here: its plugin and the tests of it are LEFT OUT"

# 15 seconds on a new machine. Without MPI or gfortran their tests are skipped.
.PHONY: mpi-deps-where-possible
mpi-deps-where-possible: slurm-deps-where-possible  # apt installs one set at a time
	@cmake/deps.sh --mpi || echo "MPI or gfortran cannot be installed here: the tests with them are SKIPPED"

.PHONY: programs-deps-where-possible
programs-deps-where-possible: mpi-deps-where-possible
	@cmake/deps.sh --programs || echo "PMDK, memkind, bubblewrap or fish cannot be installed here: the tests with them are SKIPPED"

# Versions that the declared results belong to.
suites:
	@cargo install --locked --root $(BUILD)/suites pjdfstest@0.2.2 fsx@0.3.2

# QEMU's guest: some minutes and some GiB, and packages that nothing else needs.
check-vm: build
	@tests/vm/build.sh $(BUILD)/vm $(BUILD)/bin
	@tests/vm/power_cut.py $(BUILD)/vm $(BUILD)/bin $(or $(EFS_CUTS),6) $(EFS_SEED)

# FILES='src/fs/seal.cpp ...' restricts it.
FILES ?= $(shell find src backends slurm-plugin -name '*.cpp')
.PHONY: tidy
tidy: deps
	@command -v clang-tidy-19 >/dev/null || apt-get install -qq -y --no-install-recommends clang-tidy-19 >/dev/null
	@cmake --preset debug -B build-tidy -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
	@printf '%s\n' $(FILES) | xargs -n 1 -P $(JOBS) clang-tidy-19 --quiet -p build-tidy

soak: build
	@for test in tests/soak/*.sh; do $$test $(BUILD)/bin || exit 1; done

demo: demo-deps configure
	@cmake --build $(BUILD) -j $(JOBS) --target efs-programs
	@conf/demo/run.sh $(BUILD)/bin

bench: build
	@bench/run.sh $(BUILD)

bench-interleaving: build
	@bench/interleaving.py $(BUILD) --svg $(BUILD)/interleaving.svg

install: build
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))

package: build
	@cd $(BUILD) && cpack -G DEB

# For the distribution of this machine: build it where it is to be installed.
rpm: configure
	@command -v rpmbuild >/dev/null || { echo "make rpm needs rpmbuild: install the package rpm or rpm-build" >&2; exit 1; }
	@cmake --build $(BUILD) -j $(JOBS) --target efs-programs all
	@cd $(BUILD) && cpack -G RPM

clean:
	rm -rf build build-*
