// SPDX-License-Identifier: BSD-3-Clause
#include "fs/filesystem.hpp"
#include "base/file_clock.hpp"
#include "support/containers.hpp"
#include "support/log_lines.hpp"
#include "support/open_handles.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <thread>

#include "support/staged_file.hpp"
#include "support/temp.hpp"

using namespace efs;
using fs::Filesystem;

namespace {

struct FilesystemScene {
  test::TempDirectory directory{"/dev/shm"};
  UniqueFd metadata;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Filesystem> filesystem;

  FilesystemScene() : metadata(directory.open()) { open(); }

  void open() {
    filesystem.reset();
    backend = test::open_containers(directory.path());
    filesystem = std::move(*Filesystem::open(*backend, {.metadata_directory = metadata.get()}));
  }

  std::uint64_t file(const std::string& name) {
    return filesystem->make_node({}, fs::root_ino, name, S_IFREG | 0644, 0)->ino;
  }
};

std::size_t containers(const FilesystemScene& scene) {
  std::size_t count = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(scene.directory.path() + "/data")) {
    if (entry.is_regular_file()) {
      ++count;
    }
  }
  return count;
}

}  // namespace

TEST_CASE("an unlinked file lives until the kernel forgets it, and then its space is free") {
  FilesystemScene scene;
  const auto ino = scene.file("f");
  REQUIRE(scene.filesystem->unlink({}, fs::root_ino, "f"));
  const std::string data = "still here";
  REQUIRE(scene.filesystem->write({}, ino, std::as_bytes(std::span(data)), 0) == data.size());
  CHECK(scene.filesystem->getattr(ino)->attributes.st_nlink == 0);
  CHECK(containers(scene) == 1);
  CHECK(scene.filesystem->forget(ino, 1).gone);
  CHECK(containers(scene) == 0);
  CHECK(scene.filesystem->getattr(ino).error().code == ENOENT);
}

TEST_CASE("servable: regular files with a name and without privilege, as they are") {
  FilesystemScene scene;
  Filesystem& files = *scene.filesystem;
  const auto plain = scene.file("plain"), with_bits = scene.file("with bits"),
             unlinked = scene.file("unlinked"), vanished = scene.file("without its container");
  const auto directory = files.make_node({}, fs::root_ino, "directory", S_IFDIR | 0755, 0)->ino;
  const auto symlink = files.make_symlink({}, fs::root_ino, "symlink", "plain")->ino;
  const auto nameless = files.make_nameless({}, fs::root_ino, 0644)->ino;
  REQUIRE(files.setattr({}, with_bits, {.mode = 04755}));
  REQUIRE(files.unlink({}, fs::root_ino, "unlinked"));
  REQUIRE(scene.backend->remove(vanished));
  const std::string data = "of plain";
  REQUIRE(files.write({}, plain, std::as_bytes(std::span(data)), 0) == data.size());
  const auto found = files.servable({fs::root_ino, plain, with_bits, unlinked, vanished, directory,
                                     symlink, nameless, nameless + 1000});
  REQUIRE(found.size() == 1);
  CHECK(found.front().ino == plain);
  std::string read(data.size(), ' ');
  CHECK(::pread(*found.front().container->descriptor(), read.data(), read.size(), 0) ==
        static_cast<ssize_t>(read.size()));
  CHECK(read == data);
  CHECK(files.servable({}).empty());
}

TEST_CASE("recovery frees what had no name and keeps the rest") {
  FilesystemScene scene;
  scene.file("kept");
  scene.file("gone");
  REQUIRE(scene.filesystem->setxattr({}, scene.filesystem->lookup(fs::root_ino, "kept")->ino,
                                     "user.a", "value", 0));
  REQUIRE(scene.filesystem->unlink({}, fs::root_ino, "gone"));
  CHECK(containers(scene) == 2);
  scene.open();
  CHECK(containers(scene) == 1);
  const auto kept = scene.filesystem->lookup(fs::root_ino, "kept");
  REQUIRE(kept);
  CHECK(scene.filesystem->getxattr(kept->ino, "user.a") == "value");
  CHECK(scene.filesystem->lookup(fs::root_ino, "gone").error().code == ENOENT);
}

TEST_CASE("a nameless file takes a name, and a snapshot keeps what is open without one") {
  FilesystemScene scene;
  const auto ino = scene.filesystem->make_nameless({}, fs::root_ino, 0600)->ino;
  CHECK(scene.filesystem->getattr(ino)->attributes.st_nlink == 0);
  REQUIRE(scene.filesystem->link({}, ino, fs::root_ino, "named"));
  CHECK(scene.filesystem->getattr(ino)->attributes.st_nlink == 1);

  fs::Namespace names(0755, 0, 0, 1);
  fs::MakeNode node;
  node.ino = 9;
  node.mode = S_IFREG | 0644;
  REQUIRE(names.apply(node));
  fs::Namespace copy(0755, 0, 0, 1);
  names.snapshot([&](const fs::Record& record) { REQUIRE(copy.apply(record)); });
  CHECK(copy.orphans() == std::vector<std::uint64_t>{9});
  CHECK(copy.apply(fs::SetAttributes{9, S_IFREG | 0600, 0, 0, 0, 0, 0, 0}));
}

TEST_CASE("an entry of readdir is introduced once, with a reference") {
  FilesystemScene scene;
  const std::uint64_t ino = scene.file("file");
  REQUIRE(scene.filesystem->forget(ino, 1).gone == false);
  const auto known = [&] {
    return scene.filesystem->readdir(fs::root_ino, 0, 10)->back().known;
  };
  CHECK_FALSE(known());
  const auto entry = scene.filesystem->introduce(ino);
  REQUIRE(entry);
  CHECK(entry->ino == ino);
  CHECK(known());
  CHECK_FALSE(scene.filesystem->lookup(fs::root_ino, "file")->is_new);
  REQUIRE(scene.filesystem->unlink({}, fs::root_ino, "file"));
  CHECK_FALSE(scene.filesystem->introduce(ino));
  CHECK_FALSE(scene.filesystem->forget(ino, 1).gone);
  CHECK(scene.filesystem->forget(ino, 1).gone);
  CHECK_FALSE(scene.filesystem->introduce(ino));
}

TEST_CASE("readdir shows each name that stays once, whatever comes and goes meanwhile") {
  FilesystemScene scene;
  std::set<std::string> stable;
  for (int i = 0; i < 500; ++i) {
    stable.insert("s" + std::to_string(i));
    scene.file("s" + std::to_string(i));
    scene.file("t" + std::to_string(i));
  }
  std::multiset<std::string> seen;
  std::uint64_t cookie = 0;
  for (int round = 0;; ++round) {
    const auto items = scene.filesystem->readdir(fs::root_ino, cookie, 7);
    if (items->empty()) {
      break;
    }
    for (const auto& item : *items) {
      if (item.name[0] == 's') {
        seen.insert(item.name);
      }
      cookie = item.cookie;
    }
    if (round < 500) {
      REQUIRE(scene.filesystem->unlink({}, fs::root_ino, "t" + std::to_string(round)));
    }
    if (round < 200) {
      scene.file("new" + std::to_string(round));
    }
  }
  CHECK(seen == std::multiset<std::string>(stable.begin(), stable.end()));
}

TEST_CASE(
    "a walk of a directory ends, whatever is made and renamed on the way, and a name that is "
    "replaced is met once") {
  FilesystemScene scene;
  auto& fs = *scene.filesystem;
  const auto other = fs.make_node({}, fs::root_ino, "other", S_IFDIR | 0755, 0)->ino;
  for (int i = 0; i < 100; ++i) {
    scene.file("f" + std::to_string(i));
  }
  const auto rename = [&](std::uint64_t from, const std::string& name, std::uint64_t to,
                          const std::string& new_name) {
    REQUIRE(fs.rename({}, {from, name}, {to, new_name}, 0));
  };
  const std::vector<std::function<void(const std::string&, int)>> changes{
      [&](const std::string& name, int step) {
        rename(fs::root_ino, name, fs::root_ino, "r" + std::to_string(step));
      },
      [&](const std::string& name, int) {
        rename(fs::root_ino, name, fs::root_ino, "TEMP"),
            rename(fs::root_ino, "TEMP", fs::root_ino, name);
      },
      [&](const std::string& name, int) {
        rename(fs::root_ino, name, other, name), rename(other, name, fs::root_ino, name);
      },
      [&](const std::string&, int step) { scene.file("new" + std::to_string(step)); },
      // A program's way to replace a file: the name is there all the time.
      [&](const std::string& name, int step) {
        scene.file("tmp" + std::to_string(step)),
            rename(fs::root_ino, "tmp" + std::to_string(step), fs::root_ino, name);
      }};
  for (const auto& change : changes) {
    std::set<std::string> seen;
    const std::size_t there = fs.readdir(fs::root_ino, 0, 1000)->size();
    std::size_t met = 0;
    std::uint64_t cookie = 0;
    for (auto items = fs.readdir(fs::root_ino, 0, 7); !items->empty() && met <= 2 * there;
         items = fs.readdir(fs::root_ino, cookie, 7)) {
      for (const auto& item : *items) {
        ++met;
        cookie = item.cookie;
        seen.insert(item.name);
        if (item.type == S_IFREG) {
          change(item.name, static_cast<int>(met));
        }
      }
    }
    CHECK(met == there);
    CHECK(seen.size() == there);
  }
}

TEST_CASE("time stamps of the daemon and of the kernel are in the order of the events") {
  FilesystemScene scene;
  auto& fs = *scene.filesystem;
  const auto written = scene.file("written");
  FileTime last;
  std::vector<std::string> out_of_order;
  const auto next = [&](const char* what, std::uint64_t ino) {
    const FileTime now = fs.getattr(ino)->attributes.st_mtim;
    if (now < last) {
      out_of_order.emplace_back(what);
    }
    last = now;
  };
  for (int i = 0; i < 100; ++i) {
    const std::string number = std::to_string(i);
    // the second time the kernel's stamp is a fine one: the first was looked at
    for (int twice = 0; twice < 2; ++twice) {
      REQUIRE(fs.write({}, written, std::as_bytes(std::span("x", 1)), 0));
      next("write", written);
    }
    next("mkdir", fs.make_node({}, fs::root_ino, "d" + number, S_IFDIR | 0755, 0)->ino);
    const auto file = fs.make_node({}, fs::root_ino, "f" + number, S_IFREG | 0644, 0);
    next("create", file->ino);
    if (FileTime(file->attributes.st_mtim) < file->birth) {
      out_of_order.emplace_back("birth");
    }
    next("symlink", fs.make_symlink({}, fs::root_ino, "s" + number, "x")->ino);
  }
  CHECK(out_of_order == std::vector<std::string>{});
}

TEST_CASE("the first write-open marks a staged file dirty, a read-open does not") {
  FilesystemScene scene;
  fs::Staging staging(*scene.filesystem);
  const auto ino = test::begin_file(staging);
  REQUIRE(ino);
  CHECK(scene.filesystem->lookup(fs::root_ino, "in").error().code == ENOENT);
  REQUIRE(
      test::publish_file(staging, *scene.backend,
                         {.ino = *ino,
                          .path = "in",
                          .attributes = {.mode = 0640, .uid = 1, .gid = 2, .atime = 3, .mtime = 4},
                          .origin = {.size = 9}}));
  const auto item = [&] {
    return staging.walk()->front();
  };
  CHECK(item().path == "in");
  CHECK(to_ns(item().attributes.st_mtim) == 4);
  CHECK((item().attributes.st_mode & 07777) == 0640);
  CHECK_FALSE(item().pfs.dirty);
  REQUIRE(scene.filesystem->open({}, *ino, O_RDONLY));
  CHECK_FALSE(item().pfs.dirty);
  REQUIRE(scene.filesystem->open({}, *ino, O_WRONLY));
  CHECK(item().pfs.dirty);
  scene.open();
  CHECK(fs::Staging(*scene.filesystem).walk()->front().pfs.dirty);
}

TEST_CASE("whether a read moves the access time is known before") {
  FilesystemScene scene;
  const auto file = scene.filesystem->make_node({}, fs::root_ino, "f", S_IFREG | 0644, 0)->ino;
  // it is as old as the file
  for (const int flags : {O_RDONLY, O_RDWR}) {
    CHECK(scene.filesystem->read_moves_atime(file, flags));
  }
  for (const int flags : {O_RDONLY | O_NOATIME, O_WRONLY}) {
    CHECK_FALSE(scene.filesystem->read_moves_atime(file, flags));
  }
  FileTime soon = wall_time();
  soon.seconds += 3600;
  REQUIRE(scene.filesystem->setattr({}, file, {.atime = soon}));
  CHECK_FALSE(scene.filesystem->read_moves_atime(file, O_RDONLY));
}

TEST_CASE("a time that the kernel reports changes no clean file, unless it is another time") {
  FilesystemScene scene;
  fs::Staging staging(*scene.filesystem);
  const auto ino = test::begin_file(staging);
  REQUIRE(
      test::publish_file(staging, *scene.backend,
                         {.ino = *ino, .path = "in", .attributes = {.mode = 0644, .mtime = 5}}));
  fs::AttributeChange report{.mtime = FileTime(scene.filesystem->getattr(*ino)->attributes.st_mtim),
                             .reported = true};
  const std::uint64_t edits = *staging.edits(*ino);
  REQUIRE(scene.filesystem->setattr({}, *ino, report));
  CHECK_FALSE(staging.walk()->front().pfs.dirty);
  CHECK(*staging.edits(*ino) == edits);
  report.mtime->seconds += 7;
  REQUIRE(scene.filesystem->setattr({}, *ino, report));
  CHECK(staging.walk()->front().pfs.dirty);
  // of a changed file: without a record, and no unload calls the file unchanged
  const auto records = scene.filesystem->durable_records();
  const std::uint64_t changed = *staging.edits(*ino);
  report.mtime->seconds += 7;
  const auto entry = scene.filesystem->setattr({}, *ino, report);
  REQUIRE(entry);
  CHECK(FileTime(entry->attributes.st_mtim) == *report.mtime);
  CHECK(*staging.edits(*ino) != changed);
  CHECK(scene.filesystem->durable_records() == records);
}

TEST_CASE("a renamed input counts as new at its new place") {
  FilesystemScene scene;
  fs::Staging staging(*scene.filesystem);
  const auto ino = test::begin_file(staging);
  REQUIRE(test::publish_file(
      staging, *scene.backend,
      {.ino = *ino, .path = "in", .attributes = {.mode = 0644}, .origin = {.size = 9}}));
  REQUIRE(scene.filesystem->rename({}, {fs::root_ino, "in"}, {fs::root_ino, "out"}, 0));
  CHECK(staging.walk()->front().pfs.dirty);
  CHECK_FALSE(staging.walk()->front().pfs.origin.has_value());
}

TEST_CASE("setgid directories hand down their group, setuid falls with a write and a chown") {
  FilesystemScene scene;
  const auto dir =
      scene.filesystem->make_node({.uid = 1, .gid = 5}, fs::root_ino, "d", S_IFDIR | 02775, 0)->ino;
  const auto file = scene.filesystem->make_node({.uid = 1, .gid = 6}, dir, "f", S_IFREG | 04755, 0);
  CHECK(file->attributes.st_gid == 5);
  CHECK((scene.filesystem->make_node({.uid = 1, .gid = 6}, dir, "sub", S_IFDIR | 0755, 0)
             ->attributes.st_mode &
         S_ISGID) != 0);
  CHECK_FALSE(scene.filesystem->open({}, file->ino, O_RDWR)->passthrough);
  REQUIRE(scene.filesystem->write({.uid = 1, .gid = 5}, file->ino, std::as_bytes(std::span("x", 1)),
                                  0));
  CHECK((scene.filesystem->getattr(file->ino)->attributes.st_mode & 07777) == 0755);
  REQUIRE(scene.filesystem->setattr({}, file->ino, {.mode = 06755}));
  REQUIRE(scene.filesystem->setattr({}, file->ino, {.uid = 9}));
  CHECK((scene.filesystem->getattr(file->ino)->attributes.st_mode & 07777) == 0755);
}

namespace {

// user::rwx user:1000:rwx group::r-x mask::rwx other::r-x
std::string example_acl() {
  const unsigned char bytes[] = {2, 0,    0,   0,   1,   0,   7,  0, 255, 255, 255, 255, 2,   0,  7,
                                 0, 0xe8, 3,   0,   0,   4,   0,  5, 0,   255, 255, 255, 255, 16, 0,
                                 7, 0,    255, 255, 255, 255, 32, 0, 5,   0,   255, 255, 255, 255};
  return {reinterpret_cast<const char*>(bytes), sizeof bytes};
}

}  // namespace

TEST_CASE("a default ACL takes the umask's place, and mode and ACL agree also after recovery") {
  FilesystemScene scene;
  const auto dir = scene.filesystem->make_node({}, fs::root_ino, "d", S_IFDIR | 0755, 0)->ino;
  REQUIRE(scene.filesystem->setxattr({}, dir, "system.posix_acl_default", example_acl(), 0));
  const auto file = scene.filesystem->make_node({.umask = 077}, dir, "f", S_IFREG | 0660, 0);
  REQUIRE(file);
  CHECK((file->attributes.st_mode & 07777) == 0660);
  CHECK((scene.filesystem->make_node({.umask = 077}, fs::root_ino, "plain", S_IFREG | 0660, 0)
             ->attributes.st_mode &
         07777) == 0600);
  const auto sub = scene.filesystem->make_node({.umask = 077}, dir, "sub", S_IFDIR | 0777, 0)->ino;
  CHECK(scene.filesystem->getxattr(sub, "system.posix_acl_default") == example_acl());
  REQUIRE(scene.filesystem->setattr({}, file->ino, {.mode = 0640}));
  std::string expected = example_acl();
  expected[4 + 0 * 8 + 2] = 6;
  expected[4 + 3 * 8 + 2] = 4;
  expected[4 + 4 * 8 + 2] = 0;
  for (int round = 0; round < 2; ++round) {
    CHECK(scene.filesystem->getxattr(file->ino, "system.posix_acl_access") == expected);
    CHECK((scene.filesystem->getattr(file->ino)->attributes.st_mode & 07777) == 0640);
    scene.open();
  }
  REQUIRE(scene.filesystem->removexattr({}, file->ino, "system.posix_acl_access"));
  REQUIRE(scene.filesystem->removexattr({}, file->ino, "system.posix_acl_access"));
  CHECK(scene.filesystem->getxattr(file->ino, "system.posix_acl_access").error().code == ENODATA);
}

TEST_CASE("a snapshot keeps ACLs, far times and times of birth") {
  fs::Namespace names(0755, 0, 0, 1);
  fs::MakeNode node{.ino = 9, .parent = fs::root_ino, .mode = S_IFDIR | 0775, .name = "d"};
  node.mtime = timespec{.tv_sec = -62135596800, .tv_nsec = 7};
  node.btime = timespec{.tv_sec = 253402300799, .tv_nsec = 8};
  node.xattrs = {{"system.posix_acl_access", example_acl()},
                 {"system.posix_acl_default", example_acl()},
                 {"user.x", "v"}};
  REQUIRE(names.apply(node));
  fs::Namespace copy(0755, 0, 0, 1);
  names.snapshot([&](const fs::Record& record) { REQUIRE(copy.apply(record)); });
  const fs::Inode& there = *copy.find(9);
  CHECK(there.mtime == node.mtime);
  CHECK(there.btime == node.btime);
  REQUIRE(there.extra);
  CHECK(there.extra->xattrs == node.xattrs);
}

TEST_CASE("reading a directory moves its atime once per change, and not where it is to stay") {
  FilesystemScene scene;
  const auto dir = scene.filesystem->make_node({}, fs::root_ino, "d", S_IFDIR | 0755, 0)->ino;
  const auto atime = [&] {
    return efs::FileTime(scene.filesystem->getattr(dir)->attributes.st_atim);
  };
  const auto born = atime();
  for (const FileClock clock; !(clock.now() > born);) {
  }  // the clock of files moves in steps
  REQUIRE(scene.filesystem->readdir(dir, 0, 10));
  const auto first = atime();
  CHECK(first > born);
  REQUIRE(scene.filesystem->readdir(dir, 0, 10));
  CHECK(atime() == first);
  scene.filesystem = nullptr;
  scene.filesystem =
      std::move(*Filesystem::open(*scene.backend, {.metadata_directory = scene.metadata.get(),
                                                   .access_times = AccessTimes::kept}));
  CHECK(atime() == first);
  REQUIRE(scene.filesystem->make_node({}, dir, "f", S_IFREG | 0644, 0));
  REQUIRE(scene.filesystem->readdir(dir, 0, 10));
  CHECK(atime() == first);
}

TEST_CASE(
    "only the first of several read-write opens makes remembered attributes stale, until all are "
    "closed") {
  FilesystemScene scene;
  const auto ino = scene.file("f");
  const auto now = [&] {
    return scene.filesystem->getattr(ino)->may_change_now;
  };
  CHECK_FALSE(scene.filesystem->open({}, ino, O_WRONLY)->attributes_go_stale);
  CHECK_FALSE(now());
  CHECK(scene.filesystem->open({}, ino, O_RDWR)->attributes_go_stale);
  CHECK_FALSE(scene.filesystem->open({}, ino, O_RDWR)->attributes_go_stale);
  test::release(*scene.filesystem, ino, O_RDWR);
  test::release(*scene.filesystem, ino, O_WRONLY);
  CHECK(now());
  test::release(*scene.filesystem, ino, O_RDWR);
  CHECK_FALSE(now());
  CHECK(scene.filesystem->getattr(ino)->may_change_unseen);
  CHECK(scene.filesystem->open({}, ino, O_RDWR)->attributes_go_stale);
}

TEST_CASE("an open that fails leaves no handle; a full table refuses opens", "[fs][opens]") {
  const auto opens = std::move(*fs::OpenTable::make(2));
  FilesystemScene scene;
  scene.filesystem.reset();
  const test::LogLines lines;
  scene.filesystem = std::move(*Filesystem::open(
      *scene.backend, {.metadata_directory = scene.metadata.get(), .opens = opens.get()}));
  CHECK(lines.have("event=opens_limited files=2 "));
  const auto ino = scene.filesystem->make_node({}, fs::root_ino, "f", S_IFREG | 0644, 0)->ino;
  const auto count = [&] {
    return opens->count([](const fs::OpenFile&) { return true; });
  };
  CHECK_FALSE(scene.filesystem->open({}, fs::root_ino, O_RDONLY));
  CHECK(count() == 0);
  const auto first = scene.filesystem->open({}, ino, O_RDONLY);
  REQUIRE(scene.filesystem->open({}, ino, O_WRONLY));
  CHECK(scene.filesystem->open({}, ino, O_WRONLY).error().code == ENFILE);
  CHECK(fs::Staging(*scene.filesystem).writers(ino)->open == 1);
  REQUIRE(scene.filesystem->release(first->handle));
  CHECK(scene.filesystem->open({}, ino, O_WRONLY));
  CHECK(count() == 2);
}

TEST_CASE("a chown clears the set-ID bits of all but directories, by the group before it") {
  FilesystemScene scene;
  auto& fs = *scene.filesystem;
  const fs::Caller owner{.uid = 1, .gid = 1, .in_group = [](gid_t group) {
                           return group == 7;
                         }};
  const auto mode_after = [&](mode_t type, mode_t mode, gid_t group) {
    const auto ino = fs.make_node({.uid = 1, .gid = group}, fs::root_ino, "n", type | mode, 0)->ino;
    REQUIRE(fs.setattr(owner, ino, {.gid = 7, .clear_privilege = !S_ISDIR(type)}));
    REQUIRE((S_ISDIR(type) ? fs.rmdir({}, fs::root_ino, "n") : fs.unlink({}, fs::root_ino, "n")));
    return fs.getattr(ino)->attributes.st_mode & 07777;
  };
  for (const mode_t type : {S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK}) {
    CHECK(mode_after(type, 06555, 1) == 0555);
    CHECK(mode_after(type, 02644, 1) == 02644);
    CHECK(mode_after(type, 02644, 9) == 0644);  // not the owner's group
  }
  CHECK(mode_after(S_IFDIR, 02755, 1) == 02755);
}

TEST_CASE("a stranger takes privilege bits away by a write only, not by a chown of nothing") {
  FilesystemScene scene;
  const auto ino = scene.file("f");
  const fs::AttributeChange nothing{.touch = true, .clear_privilege = true};
  const auto mode = [&] {
    return scene.filesystem->getattr(ino)->attributes.st_mode & 07777;
  };
  REQUIRE(scene.filesystem->setattr({}, ino, {.mode = 06755}));
  CHECK(scene.filesystem->setattr({.uid = 1, .gid = 1}, ino, nothing).error().code == EPERM);
  CHECK(mode() == 06755);
  REQUIRE(scene.filesystem->open({}, ino, O_WRONLY));
  REQUIRE(scene.filesystem->setattr({.uid = 1, .gid = 1}, ino, nothing));
  CHECK(mode() == 0755);
  test::release(*scene.filesystem, ino, O_WRONLY);
  REQUIRE(scene.filesystem->setattr({}, ino, {.mode = 06755}));
  CHECK(scene.filesystem->setattr({.uid = 1, .gid = 1}, ino, nothing).error().code == EPERM);
  REQUIRE(scene.filesystem->setattr({}, ino, nothing));
  CHECK(mode() == 0755);
}

TEST_CASE(
    "setgid without group execution falls for strangers, stays for members of the group, "
    "supplementary or not") {
  FilesystemScene scene;
  const auto ino = scene.file("f");
  const auto mode_after = [&](const fs::Caller& caller) {
    REQUIRE(scene.filesystem->setattr({}, ino, {.mode = 02666, .gid = 5}));
    REQUIRE(scene.filesystem->setattr({}, ino, {.mode = 02666}));
    REQUIRE(scene.filesystem->write(caller, ino, std::as_bytes(std::span("x", 1)), 0));
    return scene.filesystem->getattr(ino)->attributes.st_mode & 07777;
  };
  CHECK(mode_after({.uid = 1, .gid = 1}) == 0666);
  CHECK(mode_after({.uid = 1, .gid = 5}) == 02666);
  CHECK(mode_after({.uid = 1, .gid = 1, .in_group = [](gid_t group) {
                      return group == 5;
                    }}) == 02666);
  CHECK(mode_after({}) == 02666);
}

TEST_CASE("threads that create, rename and remove leave a namespace that adds up") {
  FilesystemScene scene;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&scene, t] {
      for (int i = 0; i < 300; ++i) {
        const std::string name = "t" + std::to_string(t) + "-" + std::to_string(i % 10);
        if (auto made = scene.filesystem->make_node({}, fs::root_ino, name, S_IFREG | 0644, 0)) {
          scene.filesystem->forget(made->ino, 1);
        }
        (void)scene.filesystem->rename({}, {fs::root_ino, name},
                                       {fs::root_ino, "shared" + std::to_string(i % 5)}, 0);
        if (i % 3 == 0) {
          (void)scene.filesystem->unlink({}, fs::root_ino, "shared" + std::to_string(i % 5));
        }
        (void)scene.filesystem->readdir(fs::root_ino, 0, 100);
      }
    });
  }
  threads.clear();
  CHECK(containers(scene) == scene.filesystem->readdir(fs::root_ino, 0, 1000)->size() - 2);
}
