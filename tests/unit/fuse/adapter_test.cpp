// SPDX-License-Identifier: BSD-3-Clause
// Every callback replies once and is observed once, whatever the request.
#include "fuse/adapter.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fs/staging.hpp"
#include "fuse/convert.hpp"
#include "fuse/wire.hpp"
#include "support/containers.hpp"
#include "support/failing_new.hpp"
#include "support/kernel_end.hpp"
#include "support/no_threads.hpp"
#include "support/temp.hpp"

namespace {

using namespace efs;
using namespace std::string_view_literals;
using fuse::Operation;
using test::message_of;

struct Counted final : fuse::EventSink {
  void operation(const fuse::Event& event) override { ++seen[event.operation]; }

  std::map<Operation, unsigned> seen;
};

struct Mounted {
  explicit Mounted(std::optional<std::uint64_t> bytes = {}, bool is_observed = true)
      : capacity(bytes), observed(is_observed) {}

  std::optional<std::uint64_t> capacity;
  bool observed;
  Counted sink;
  test::TempDirectory directory{"/dev/shm"};
  UniqueFd metadata = directory.open();
  std::unique_ptr<Backend> backend = test::open_containers(directory.path(), capacity);
  std::unique_ptr<fs::Filesystem> filesystem =
      std::move(*fs::Filesystem::open(*backend, {.metadata_directory = metadata.get()}));
  fuse::Connection connection{.filesystem = *filesystem,
                              .backing = fuse::BackingTable(nullptr, fuse::ids_to_keep),
                              .observer = observed ? fuse::Observer({&sink}) : fuse::Observer({})};
  test::KernelEnd kernel{fuse::adapter_operations(), connection};
  std::uint64_t file = filesystem->make_node({}, fs::root_ino, "file", S_IFREG | 0666, 0)->ino;
  std::uint64_t directory_ino =
      filesystem->make_node({}, fs::root_ino, "directory", S_IFDIR | 0777, 0)->ino;
};

struct Sent {
  std::uint32_t opcode;
  Operation operation;
  test::Message arguments;
  bool of_file = false;  // false: a request for the root
};

std::vector<Sent> requests_of_names() {
  const auto link = fuse_link_in{.oldnodeid = 2};
  const auto rename = fuse_rename_in{.newdir = fs::root_ino};
  return {
      {FUSE_LOOKUP, Operation::lookup, message_of("file"sv)},
      {FUSE_LOOKUP, Operation::lookup, message_of("none"sv)},
      {FUSE_MKNOD, Operation::mknod, message_of(fuse_mknod_in{.mode = S_IFIFO | 0600}, "fifo"sv)},
      {FUSE_MKDIR, Operation::mkdir, message_of(fuse_mkdir_in{.mode = 0700}, "new"sv)},
      {FUSE_SYMLINK, Operation::symlink, message_of("symlink"sv, "target"sv)},
      {FUSE_READLINK, Operation::readlink, {}},
      {FUSE_LINK, Operation::link, message_of(link, "link"sv)},
      {FUSE_RENAME, Operation::rename, message_of(rename, "fifo"sv, "pipe"sv)},
      {FUSE_UNLINK, Operation::unlink, message_of("pipe"sv)},
      {FUSE_RMDIR, Operation::rmdir, message_of("new"sv)},
      {FUSE_OPENDIR, Operation::opendir, message_of(fuse_open_in{})},
      {FUSE_READDIR, Operation::readdir, message_of(fuse_read_in{.size = 4096})},
      {FUSE_READDIRPLUS, Operation::readdirplus, message_of(fuse_read_in{.size = 4096})},
      {FUSE_FSYNCDIR, Operation::fsyncdir, message_of(fuse_fsync_in{})},
      {FUSE_RELEASEDIR, Operation::releasedir, message_of(fuse_release_in{})},
  };
}

std::vector<Sent> requests_of_attributes() {
  const auto mode = fuse_setattr_in{.valid = FATTR_MODE, .mode = 0640};
  const auto size = fuse_getxattr_in{.size = 100};
  // without the extension of Linux 5.12
  const std::uint64_t value_size = 1;
  return {
      {FUSE_GETATTR, Operation::getattr, message_of(fuse_getattr_in{})},
      {FUSE_SETATTR, Operation::setattr, message_of(mode), true},
      {FUSE_STATFS, Operation::statfs, {}},
      {FUSE_SETXATTR, Operation::setxattr, message_of(value_size, "user.a"sv, 'v'), true},
      {FUSE_GETXATTR, Operation::getxattr, message_of(size, "user.a"sv), true},
      {FUSE_LISTXATTR, Operation::listxattr, message_of(size), true},
      {FUSE_REMOVEXATTR, Operation::removexattr, message_of("user.a"sv), true},
  };
}

std::vector<Sent> requests_of_data() {
  const auto create = fuse_create_in{.flags = O_CREAT | O_RDWR, .mode = S_IFREG | 0600};
  return {
      {FUSE_OPEN, Operation::open, message_of(fuse_open_in{.flags = O_RDWR}), true},
      {FUSE_CREATE, Operation::create, message_of(create, "created"sv)},
#if EFS_HAVE_PASSTHROUGH
      {FUSE_TMPFILE, Operation::tmpfile, message_of(create, "/"sv)},
#endif
      {FUSE_WRITE, Operation::write, message_of(fuse_write_in{.size = 1}, 'x'), true},
      {FUSE_READ, Operation::read, message_of(fuse_read_in{.size = 10}), true},
      {FUSE_LSEEK, Operation::lseek, message_of(fuse_lseek_in{.whence = SEEK_DATA}), true},
      {FUSE_FALLOCATE, Operation::fallocate, message_of(fuse_fallocate_in{.length = 10}), true},
      {FUSE_FSYNC, Operation::fsync, message_of(fuse_fsync_in{}), true},
      {FUSE_RELEASE, Operation::release, message_of(fuse_release_in{.flags = O_RDWR}), true},
  };
}

void check_one(Mounted& mounted, const Sent& sent) {
  INFO(fuse::name_of(sent.operation) << ", opcode " << sent.opcode);
  const auto& counter = mounted.connection.counters.of(sent.operation);
  const auto counted = counter.count.load();
  const auto seen = mounted.sink.seen[sent.operation];
  const auto replies =
      mounted.kernel.send(sent.opcode, sent.of_file ? mounted.file : fs::root_ino, sent.arguments);
  REQUIRE(replies.size() == 1);
  // The root is not a symbolic link. A store in memory has nothing to sync, so the kernel need not
  // ask again.
  const bool syncs = sent.opcode == FUSE_FSYNC || sent.opcode == FUSE_FSYNCDIR;
  CHECK(replies[0].error == (sent.opcode == FUSE_READLINK ? EINVAL : syncs ? ENOSYS : 0));
  CHECK(counter.count == counted + 1);
  CHECK(mounted.sink.seen[sent.operation] == seen + 1);
}

}  // namespace

TEST_CASE("each request is replied to, counted and observed once", "[fuse]") {
  Mounted mounted;
  for (const auto& requests : {requests_of_names(), requests_of_attributes(), requests_of_data()}) {
    for (const auto& sent : requests) {
      check_one(mounted, sent);
    }
  }
}

namespace {

/// The inodes that an answer to READDIRPLUS gives references to.
std::multiset<std::uint64_t> told(const test::Message& answer) {
  std::multiset<std::uint64_t> inodes;
  for (std::size_t at = 0; at < answer.size();) {
    fuse_direntplus entry{};
    std::memcpy(&entry, answer.data() + at, FUSE_NAME_OFFSET_DIRENTPLUS);
    if (entry.entry_out.nodeid != 0) {
      CHECK(entry.entry_out.attr.ino == entry.dirent.ino);
      CHECK(entry.entry_out.attr.mode >> 12 == entry.dirent.type);
      inodes.insert(entry.entry_out.nodeid);
    }
    at += FUSE_DIRENTPLUS_SIZE(&entry);
  }
  return inodes;
}

}  // namespace

TEST_CASE("a walk gives a reference to each inode once, whichever allocation fails", "[fuse]") {
  Mounted mounted({}, false);
  const test::NoThreads alone;
  const auto list = message_of(fuse_read_in{.size = 4096});
  const auto forget = [&](std::uint64_t ino) {
    mounted.kernel.send(FUSE_FORGET, ino, message_of(fuse_forget_in{.nlookup = 1}));
  };
  forget(mounted.file);
  forget(mounted.directory_ino);
  std::multiset<std::uint64_t> inodes;
  bool met = true;
  for (std::uint64_t n = 1; met; ++n) {
    mounted.kernel.fail_allocation(n);
    const auto replies = mounted.kernel.send(FUSE_READDIRPLUS, fs::root_ino, list);
    met = mounted.kernel.allocation_failed();
    REQUIRE(replies.size() == 1);
    if (replies[0].error == 0) {
      inodes.merge(told(replies[0].data));
    }
  }
  CHECK(inodes == std::multiset{mounted.file, mounted.directory_ino});
  CHECK(told(mounted.kernel.send(FUSE_READDIRPLUS, fs::root_ino, list)[0].data).empty());
  REQUIRE(mounted.filesystem->unlink({}, fs::root_ino, "file"));
  CHECK(mounted.filesystem->exists(mounted.file));
  forget(mounted.file);
  CHECK_FALSE(mounted.filesystem->exists(mounted.file));
}

TEST_CASE("the kernel gets the handle of an open, and a repeated open gets the same", "[fuse]") {
  Mounted mounted;
  const auto count = [&] {
    return mounted.filesystem->open_files().count([](const fs::OpenFile&) { return true; });
  };
  // The answer to CREATE begins with the entry.
  const auto handle_in = [](const test::Message& answer) {
    fuse_open_out open{};
    REQUIRE(answer.size() >= sizeof open);
    std::memcpy(&open, answer.data() + answer.size() - sizeof open, sizeof open);
    return open.fh;
  };
  const auto release = [&](std::uint64_t ino, std::uint64_t handle) {
    CHECK(mounted.kernel.send(FUSE_RELEASE, ino, message_of(fuse_release_in{.fh = handle}))
              .at(0)
              .error == 0);
  };
  constexpr std::uint64_t number = 1000;
  const auto open = message_of(fuse_open_in{.flags = O_RDWR});
  const auto first = mounted.kernel.send(FUSE_OPEN, mounted.file, open, number).at(0);
  const auto other = mounted.kernel.send(FUSE_OPEN, mounted.file, open).at(0);
  const auto again =
      mounted.kernel.send(FUSE_OPEN, mounted.file, open, number | fuse::resent_bit).at(0);
  CHECK(count() == 2);
  CHECK(handle_in(first.data) == handle_in(again.data));
  CHECK(handle_in(first.data) != handle_in(other.data));
  const auto create = fuse_create_in{.flags = O_CREAT | O_RDWR, .mode = S_IFREG | 0600};
  const auto made =
      mounted.kernel.send(FUSE_CREATE, fs::root_ino, message_of(create, "made"sv)).at(0);
  CHECK(count() == 3);
  release(mounted.file, handle_in(first.data));
  release(mounted.file, handle_in(first.data));  // its reply may have been lost
  CHECK(count() == 2);
  release(mounted.file, handle_in(other.data));
  release(mounted.filesystem->lookup(fs::root_ino, "made")->ino, handle_in(made.data));
  CHECK(count() == 0);
}

TEST_CASE("of a write of the kernel's own pages all bytes are stored, or it fails", "[fuse]") {
  constexpr std::uint32_t size = 64U << 10U;
  Mounted mounted(std::uint64_t{size} - 4096);
  const std::string bytes(size, 'x');
  const auto stored = [&](std::uint32_t flags) {
    fuse_write_in write{.size = size};
    write.write_flags = flags;
    test::Message message = message_of(write);
    const auto data = std::as_bytes(std::span(bytes));
    message.insert(message.end(), data.begin(), data.end());
    return mounted.kernel.send(FUSE_WRITE, mounted.file, message).at(0).error;
  };
  CHECK(stored(0) == 0);  // a short write, which a program sees
  CHECK(fs::Staging(*mounted.filesystem).find("file")->content.unreadable.empty());
  CHECK(stored(FUSE_WRITE_CACHE) == ENOSPC);
  CHECK_FALSE(fs::Staging(*mounted.filesystem).find("file")->content.unreadable.empty());
}

TEST_CASE("a collected write that fails is recorded before the reply, whichever allocation fails",
          "[fuse]") {
  const auto message = message_of(fuse_write_in{.size = 1, .write_flags = FUSE_WRITE_CACHE}, 'x');
  const test::NoThreads alone;
  bool met = true;
  unsigned failed = 0;
  for (std::uint64_t n = 1; met; ++n) {
    INFO("allocation " << n);
    Mounted mounted;
    mounted.kernel.fail_allocation(n);
    const auto replies = mounted.kernel.send(FUSE_WRITE, mounted.file, message);
    met = mounted.kernel.allocation_failed();
    REQUIRE(replies.size() == 1);
    failed += replies[0].error != 0 ? 1 : 0;
    CHECK_FALSE(mounted.filesystem->failed());
    const auto later = fs::Filesystem::open(
        *mounted.backend, {.metadata_directory = mounted.metadata.get(), .read_only = true});
    REQUIRE(later);
    CHECK(fs::Staging(**later).find("file")->content.unreadable.empty() == (replies[0].error == 0));
  }
  CHECK(failed > 0);
}

TEST_CASE("a kernel that collects writes learns of no holes, and caches attributes", "[fuse]") {
  Mounted mounted;
  const auto seek = message_of(fuse_lseek_in{.whence = SEEK_DATA});
  fs::Entry open{.ino = mounted.file};
  open.attributes.st_mode = S_IFREG | 0644;
  open.may_change_unseen = open.may_change_now = open.written_now = true;
  open.attributes.st_blocks = 8;
  CHECK(fuse::attribute_timeout(fuse::as_cached(mounted.connection, open)) == fuse::keep_not);
  mounted.connection.writeback = true;
  CHECK(mounted.kernel.send(FUSE_LSEEK, mounted.file, seek).at(0).error == ENOSYS);
  CHECK(fuse::attribute_timeout(fuse::as_cached(mounted.connection, open)) == fuse::keep_for_ever);
  open.attributes.st_blocks = 0;
  const fs::Entry told = fuse::as_cached(mounted.connection, open);
  CHECK(told.attributes.st_blocks == 1);
  CHECK(fuse::attribute_timeout(told) == fuse::keep_briefly);
  open.written_now = false;  // its container is missing, and may come back
  CHECK(fuse::attribute_timeout(fuse::as_cached(mounted.connection, open)) == fuse::keep_not);
}

TEST_CASE("forgets are counted, and have no reply and no event", "[fuse]") {
  Mounted mounted;
  CHECK(mounted.kernel.send(FUSE_FORGET, mounted.file, message_of(fuse_forget_in{.nlookup = 1}))
            .empty());
  CHECK(mounted.kernel
            .send(FUSE_BATCH_FORGET, 0,
                  message_of(fuse_batch_forget_in{.count = 1},
                             fuse_forget_one{.nodeid = mounted.directory_ino, .nlookup = 1}))
            .empty());
  CHECK(mounted.connection.counters.of(Operation::forget).count == 2);
  CHECK(mounted.sink.seen.empty());
}

TEST_CASE("a request is replied to and counted once, whichever allocation fails", "[fuse]") {
  Mounted mounted;
  const test::NoThreads alone;
  const auto create = fuse_create_in{.flags = O_CREAT | O_RDWR, .mode = S_IFREG | 0600};
  const auto& counters = mounted.connection.counters;
  for (const auto& sent :
       {Sent{FUSE_READ, Operation::read, message_of(fuse_read_in{.size = fuse::largest_write}),
             true},
        Sent{FUSE_LOOKUP, Operation::lookup, message_of("file"sv)},
        Sent{FUSE_READDIR, Operation::readdir, message_of(fuse_read_in{.size = 4096})},
        Sent{FUSE_READDIRPLUS, Operation::readdirplus, message_of(fuse_read_in{.size = 4096})},
        Sent{FUSE_CREATE, Operation::create, message_of(create, "created"sv)}}) {
    bool met = true;
    for (std::uint64_t n = 1; met; ++n) {
      INFO(fuse::name_of(sent.operation) << ", allocation " << n);
      const auto counted = counters.of(sent.operation).count.load();
      mounted.kernel.fail_allocation(n);
      const auto replies = mounted.kernel.send(
          sent.opcode, sent.of_file ? mounted.file : fs::root_ino, sent.arguments);
      met = mounted.kernel.allocation_failed();
      REQUIRE(replies.size() == 1);
      CHECK(counters.of(sent.operation).count == counted + 1);
      // the daemon's reserve of memory is too small for the answer of a large read
      CHECK((sent.operation != Operation::read || replies[0].error == (met ? ENOMEM : 0)));
    }
  }
}
