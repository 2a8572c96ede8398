# Thin front of CMake. `make help` lists the targets.
BUILD  ?= build
PRESET ?= release
EFS_PREFIX ?= /opt/efs-deps
export EFS_PREFIX
JOBS   ?= $(shell nproc)

.PHONY: help deps demo-deps slurm-deps configure build check check-fast bench demo install clean

help:
	@echo "make deps     install what efs needs (Debian 12 or 13, as root)"
	@echo "make slurm-deps  the same, and what the Slurm plugin and its tests need"
	@echo "make build    build into build/: programs in build/bin, libraries in build/lib"
	@echo "make check    deps, build, and all tests"
	@echo "make demo     deps, build, and a real job through efs"
	@echo "make bench    the figures: the mount against its backing tmpfs, staging against cp"
	@echo "make install  install below PREFIX (default /usr/local)"

deps:
	@cmake/deps.sh

demo-deps:
	@cmake/deps.sh --demo

slurm-deps:
	@cmake/deps.sh --slurm

configure:
	@cmake --preset $(PRESET) -B $(BUILD) -DEFS_PREFIX=$(EFS_PREFIX) >/dev/null

build: deps configure
	@cmake --build $(BUILD) -j $(JOBS)

check: build
	@tests/run-all.sh $(BUILD)

demo: demo-deps configure
	@cmake --build $(BUILD) -j $(JOBS) --target efs-programs
	@conf/demo/run.sh $(BUILD)/bin

bench: build
	@bench/run.sh $(BUILD)

install: build
	@cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))

clean:
	rm -rf build build-*
