# SPDX-License-Identifier: BSD-3-Clause
"""efs for Spack. In a package repository of the site, this file is packages/efs/package.py.

efs has no public address yet: replace `git` by the place of your copy. To build a directory of
sources as it is, no address is needed: spack dev-build efs@main
"""
from spack.package import *

try:  # Spack 1.0 and later; before, spack.package has the class
    from spack_repo.builtin.build_systems.cmake import CMakePackage
except ImportError:
    pass


class Efs(CMakePackage):
    """Node-local POSIX file systems for batch jobs: the inputs are staged in from the parallel
    file system before a job starts, and its results are staged out when it ends."""

    git = "file:///srv/git/efs.git"

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("slurm", default=False, description="Build the Slurm plugin")
    variant("python", default=True, description="Provide the Python package of libefs-objects")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")

    # Passthrough needs libfuse 3.17. Older ones serve all data through the daemon.
    depends_on("libfuse@3.10:")
    depends_on("pmdk")
    depends_on("yaml-cpp")
    depends_on("cli11")
    depends_on("nlohmann-json")
    depends_on("spdlog")
    depends_on("xxhash")
    depends_on("slurm@22-05:24-11", when="+slurm")
    depends_on("python@3.9:", when="+python", type=("build", "run"))
    depends_on("py-numpy@1.20:", when="+python", type="run")

    extends("python", when="+python")

    conflicts("platform=darwin", msg="efs needs Linux")
    conflicts("%gcc@:11", msg="efs needs the C++23 of GCC 12")

    def cmake_args(self):
        args = [
            self.define("EFS_TESTS", False),
            # No libfuse of `make deps`: Spack's is used, and found by the run path of the wrapper.
            self.define("EFS_PREFIX", join_path(self.stage.path, "no-private-prefix")),
        ]
        if not self.spec.satisfies("+slurm"):
            args.append(self.define("SLURM_INCLUDE_DIR", False))
        if self.spec.satisfies("+python"):
            args.append(self.define("EFS_PYTHON_DIR", python_platlib))
        return args

    def setup_run_environment(self, env):
        env.prepend_path("PATH", self.prefix.sbin)
