// SPDX-License-Identifier: BSD-3-Clause
// open_beneath(): with openat2(2), and by the walk that takes its place under old kernels and in
// sandboxes. Both are given the same paths, and must give the same. openat2 gives 0: it does its
// work; else what a kernel without it gives, a filter for system calls, and a rename somewhere at
// the same time.
#include "stage/pfs/pfs_io.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <atomic>
#include <set>
#include <thread>

#include "stage/pfs/posix_handle.hpp"
#include "support/temp.hpp"
#include "support/without_openat2.hpp"
#include "unit/stage/opened.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using efs::stage::test::content_of;
using efs::stage::test::stat_of;
using efs::stage::test::write_file;
using efs::stage::test::stdfs::create_directories;
using efs::stage::test::stdfs::create_symlink;
using efs::stage::test::stdfs::exists;
using efs::test::with_openat2_failing;

TEST_CASE("open_beneath: a path that is longer than a system call takes", "[stage][pfs]") {
  const efs::test::TempDirectory top;
  const PfsHandle root = opened(top.path());
  const std::string name(200, 'n');
  std::string path;
  UniqueFd at(::dup(fd_of(root)));
  for (int depth = 0; depth < 60; ++depth) {
    REQUIRE(::mkdirat(at.get(), name.c_str(), 0755) == 0);
    at.reset(::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    path += (depth > 0 ? "/" : "") + name;
  }
  REQUIRE(path.size() > 2 * PATH_MAX);
  const auto made = posix_pfs().open_beneath(root, path + "/f", O_WRONLY | O_CREAT | O_EXCL, 0644);
  REQUIRE(made);
  CHECK(::faccessat(at.get(), "f", F_OK, 0) == 0);
  CHECK(posix_pfs().open_beneath(root, path, directory_flags));
  CHECK(posix_pfs().open_beneath(root, path + "/missing", O_RDONLY).error().code == ENOENT);
  REQUIRE(::symlinkat(".", at.get(), "link") == 0);
  CHECK(posix_pfs().open_beneath(root, path + "/link/f", O_RDONLY).error().code == ELOOP);
  CHECK(posix_pfs().open_beneath(root, path + "/../f", O_RDONLY).error().code == EXDEV);
}

namespace {

/// root/f, root/d/f and root/d/e/g; outside/secret beside root; and links.
struct BeneathScene {
  efs::test::TempDirectory top;
  const std::string root = top.path() + "/root", outside = top.path() + "/outside";
  PfsHandle at;

  BeneathScene() {
    for (const char* name : {"f", "d/f", "d/e/g"}) {
      write_file(root + "/" + name, "inside");
    }
    write_file(outside + "/secret", "outside");
    for (const auto& [name, target] :
         std::map<std::string, std::string>{{"to-f", "f"},
                                            {"to-d", "d"},
                                            {"to-here", "."},
                                            {"out", "../outside"},
                                            {"away", outside},
                                            {"to-secret", outside + "/secret"},
                                            {"d/up", ".."},
                                            {"d/up-and-out", "../../outside"},
                                            {"dangling", "../outside/made"},
                                            {"loop", "loop"}}) {
      create_symlink(target, root + "/" + name);
    }
    at = opened(root);
  }
};

/// 0, or the errno; the file is closed again.
int beneath(PfsRef root, const std::string& path, int flags = O_RDONLY, mode_t mode = 0) {
  const auto file = posix_pfs().open_beneath(root, path, flags, mode);
  return file ? 0 : file.error().code;
}

}  // namespace

TEST_CASE("what is beneath a directory is opened, with openat2 and without", "[stage][beneath]") {
  const int failing = GENERATE(0, ENOSYS, EPERM, EAGAIN);
  INFO("openat2 gives " << failing);
  with_openat2_failing(failing, [] {
    const BeneathScene scene;
    for (const char* path : {"", ".", "f", "d", "d/", "d/f", "d//f", "./d/f", "d/./f", "d/e",
                             "d/e/g", "d///e/./g", "d/e/."}) {
      INFO("path " << path);
      const auto file = posix_pfs().open_beneath(scene.at, path, O_RDONLY);
      REQUIRE(file);
      struct stat got{}, there{};
      REQUIRE(::fstat(fd_of(*file), &got) == 0);
      REQUIRE(::stat((scene.root + "/" + path).c_str(), &there) == 0);
      CHECK(got.st_ino == there.st_ino);
      CHECK((::fcntl(fd_of(*file), F_GETFD) & FD_CLOEXEC) != 0);
    }
    const mode_t before = ::umask(0);
    CHECK(beneath(scene.at, "d/e/new", O_WRONLY | O_CREAT | O_EXCL, 0640) == 0);
    ::umask(before);
    CHECK((stat_of(scene.root + "/d/e/new").st_mode & 07777) == 0640);
    CHECK(beneath(scene.at, "d/e/new", O_WRONLY | O_CREAT | O_EXCL, 0640) == EEXIST);
    CHECK(beneath(scene.at, "d/e/new", O_WRONLY | O_CREAT, 0640) == 0);
  });
}

TEST_CASE("what is not there, or is no directory, is told alike with openat2 and without",
          "[stage][beneath]") {
  const int failing = GENERATE(0, ENOSYS, EPERM, EAGAIN);
  INFO("openat2 gives " << failing);
  with_openat2_failing(failing, [] {
    const BeneathScene scene;
    const std::map<std::string, int> paths{{"none", ENOENT},
                                           {"none/f", ENOENT},
                                           {"d/none", ENOENT},
                                           {"d/none/f", ENOENT},
                                           {"f/x", ENOTDIR},
                                           {"f/", ENOTDIR},
                                           {"d/f/x", ENOTDIR},
                                           {"d/" + std::string(300, 'n'), ENAMETOOLONG},
                                           {std::string(300, 'n') + "/f", ENAMETOOLONG}};
    for (const auto& [path, code] : paths) {
      INFO("path " << path);
      CHECK(beneath(scene.at, path) == code);
    }
    CHECK(beneath(scene.at, "d/f", directory_flags) == ENOTDIR);
    CHECK(beneath(scene.at, "none/new", O_WRONLY | O_CREAT, 0600) == ENOENT);
    CHECK(beneath(PfsRef(), "f") == EBADF);
    CHECK(beneath(PfsRef(), "d/f") == EBADF);
  });
}

TEST_CASE("no path with .. and no absolute one is opened, with openat2 and without",
          "[stage][beneath]") {
  const int failing = GENERATE(0, ENOSYS, EPERM, EAGAIN);
  INFO("openat2 gives " << failing);
  with_openat2_failing(failing, [] {
    const BeneathScene scene;
    for (const std::string path :
         {"..", "../", "../outside", "../outside/secret", "../root/f", "d/..", "d/../f",
          "d/../../outside/secret", "./../outside/secret", "d/e/../..",
          "d/e/../../../outside/secret", "none/../f", "/", "/etc/passwd", "//f"}) {
      INFO("path " << path);
      for (const int flags : {O_RDONLY, O_PATH, directory_flags}) {
        CHECK(beneath(scene.at, path, flags) == EXDEV);
      }
    }
    CHECK(beneath(scene.at, scene.outside + "/secret") == EXDEV);
    CHECK(beneath(scene.at, "../outside/made", O_WRONLY | O_CREAT, 0600) == EXDEV);
    CHECK_FALSE(exists(scene.outside + "/made"));
    CHECK(beneath(scene.at, "...") == ENOENT);  // a name like others
    write_file(scene.root + "/..d/f..", "inside");
    CHECK(beneath(scene.at, "..d/f..") == 0);
  });
}

TEST_CASE("no symbolic link is passed, wherever it leads, with openat2 and without",
          "[stage][beneath]") {
  const int failing = GENERATE(0, ENOSYS, EPERM, EAGAIN);
  INFO("openat2 gives " << failing);
  with_openat2_failing(failing, [] {
    const BeneathScene scene;
    for (const std::string path : {"to-f", "to-d", "to-d/f", "to-d/e/g", "to-here/f", "out",
                                   "out/secret", "away", "away/secret", "to-secret", "d/up",
                                   "d/up/f", "d/up-and-out/secret", "dangling", "loop", "loop/f"}) {
      INFO("path " << path);
      const std::set<int> refused{ELOOP, ENOTDIR};
      CHECK(refused.contains(beneath(scene.at, path)));
      CHECK(refused.contains(beneath(scene.at, path, directory_flags)));
      CHECK(refused.contains(beneath(scene.at, path, O_WRONLY | O_TRUNC)));
      CHECK(refused.contains(beneath(scene.at, path, O_WRONLY | O_CREAT, 0600)));
    }
    CHECK_FALSE(exists(scene.outside + "/made"));
    CHECK(content_of(scene.outside + "/secret") == "outside");
    CHECK(content_of(scene.root + "/f") == "inside");
  });
}

// A thread replaces directories and files by links and restores them, as fast as possible.
TEST_CASE(
    "whenever a link takes a directory's or a file's place, nothing outside is opened, with "
    "openat2 and without",
    "[stage][beneath][race]") {
  const int failing = GENERATE(0, ENOSYS, EPERM, EAGAIN);
  const std::string place = GENERATE(as<std::string>{}, "d", "d/e", "d/e/g");
  INFO("openat2 gives " << failing << ", a link at " << place);
  with_openat2_failing(failing, [&] {
    const BeneathScene scene;
    for (const char* name : {"g", "e/g", "d/e/g"}) {
      write_file(scene.outside + "/" + name, "outside");
    }
    const std::string target = place == "d"     ? scene.outside + "/d"
                               : place == "d/e" ? scene.outside + "/e"
                                                : scene.outside + "/g";
    create_symlink(target, scene.root + "/link");
    std::atomic<bool> ended{false};
    std::thread other([&] {
      while (!ended) {
        (void)::renameat2(fd_of(scene.at), "link", fd_of(scene.at), place.c_str(), RENAME_EXCHANGE);
      }
    });
    int opened = 0, outside = 0;
    std::set<int> codes;
    for (int i = 0; i < 4000 || opened == 0 || codes.empty(); ++i) {
      const auto got = posix_pfs().open_beneath(scene.at, "d/e/g", O_RDONLY);
      char text[8] = {};
      if (!got) {
        codes.insert(got.error().code);
      } else if (++opened; ::pread(fd_of(*got), text, sizeof text - 1, 0) < 0 ||
                           std::string(text) != "inside") {
        ++outside;
      }
    }
    ended = true;
    other.join();
    CHECK(outside == 0);
    for (const int code : codes) {
      CHECK((code == ELOOP || code == ENOTDIR));
    }
  });
}

TEST_CASE("pfs: one sync for all is believed of file systems of which it is known, and of no other",
          "[stage][pfs]") {
  CHECK(posix_pfs().syncfs_reports_errors(opened("/dev/shm")));
  CHECK_FALSE(posix_pfs().syncfs_reports_errors(opened("/proc")));
}
