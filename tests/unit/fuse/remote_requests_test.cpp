// SPDX-License-Identifier: BSD-3-Clause
// Requests for a file whose content is not here: those that need it are put aside and handled again
// after the fetch, and the others are answered at once.
#include <fcntl.h>
#include <linux/fs.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fs/staging.hpp"
#include "fuse/adapter.hpp"
#include "fuse/connection.hpp"
#include "fuse/put_aside.hpp"
#include "fuse/wire.hpp"
#include "support/containers.hpp"
#include "support/kernel_end.hpp"
#include "support/staged_file.hpp"
#include "support/temp.hpp"

namespace {

using namespace efs;
using namespace std::string_view_literals;
using test::message_of;

struct SentMessage {
  std::uint32_t opcode;
  std::uint64_t ino;
  test::Message arguments;
};

struct RemoteFile {
  RemoteFile() {
    connection.put_aside = aside.get();
    ino = add("file");
    REQUIRE(filesystem->make_node({}, fs::root_ino, "d", S_IFDIR | 0777, 0));
    below = add("d/below");
  }

  std::uint64_t add(const std::string& path) {
    const auto file = staging.begin_open_file();
    REQUIRE(file);
    const fs::Origin version{.device = 1, .inode = file->ino, .size = 4};
    REQUIRE(test::publish_file(staging, *backend,
                               {.ino = file->ino,
                                .path = path,
                                .attributes = {.mode = 0666},
                                .origin = version,
                                .remote = fs::Remote{.version = version, .source = path}}));
    return file->ino;
  }

  void fetch(std::uint64_t file) {
    const auto begun = staging.begin_fetch(file);
    REQUIRE(begun);
    REQUIRE(*begun);
    REQUIRE((*begun)->file.container->write(std::as_bytes(std::span("four", 4)), 0) == 4);
    REQUIRE(staging.end_fetch(**begun));
  }

  /// Handles the requests again that do not wait any more.
  std::vector<test::KernelEnd::Reply> go_on() {
    std::vector<test::KernelEnd::Reply> all;
    test::Message bytes(fuse::largest_request);
    for (auto taken = aside->take(bytes); taken.size > 0; taken = aside->take(bytes)) {
      for (auto& reply : kernel.send_again(
               {bytes.begin(), bytes.begin() + static_cast<long>(taken.size)}, taken.error)) {
        all.push_back(std::move(reply));
      }
      if (taken.locks) {
        aside->handled();
      }
    }
    return all;
  }

  std::vector<SentMessage> needing() const {
    const fuse_setattr_in mode{.valid = FATTR_MODE, .mode = 0640};
    const fuse_setattr_in size{.valid = FATTR_SIZE, .size = 1};
    const std::uint64_t value_size = 1;
    const fuse_rename2_in exchange{.newdir = fs::root_ino, .flags = RENAME_EXCHANGE};
    return {{FUSE_OPEN, ino, message_of(fuse_open_in{.flags = O_RDONLY})},
            {FUSE_OPEN, ino, message_of(fuse_open_in{.flags = O_RDWR})},
            {FUSE_SETATTR, ino, message_of(mode)},
            {FUSE_SETATTR, ino, message_of(size)},
            {FUSE_SETXATTR, ino, message_of(value_size, "user.a"sv, 'v')},
            {FUSE_LINK, fs::root_ino, message_of(fuse_link_in{.oldnodeid = ino}, "link"sv)},
            {FUSE_RENAME2, fs::root_ino, message_of(exchange, "d"sv, "file"sv)},
            {FUSE_RENAME, fs::root_ino,
             message_of(fuse_rename_in{.newdir = fs::root_ino}, "file"sv, "moved"sv)}};
  }

  test::TempDirectory directory{"/dev/shm"};
  UniqueFd metadata = directory.open();
  std::unique_ptr<Backend> backend = test::open_containers(directory.path(), {});
  std::unique_ptr<fs::Filesystem> filesystem =
      std::move(*fs::Filesystem::open(*backend, {.metadata_directory = metadata.get()}));
  fs::Staging staging{*filesystem};
  std::vector<std::uint64_t> wanted;
  std::unique_ptr<fuse::PutAside> aside =
      std::move(*fuse::PutAside::make([this](std::uint64_t file) { wanted.push_back(file); }));
  fuse::Connection connection{.filesystem = *filesystem,
                              .backing = fuse::BackingTable(nullptr, fuse::ids_to_keep),
                              .observer = fuse::Observer({})};
  test::KernelEnd kernel{fuse::adapter_operations(), connection};
  std::uint64_t ino = 0, below = 0;
};

}  // namespace

TEST_CASE("requests that need the content have no reply before the fetch, and then the usual one",
          "[fuse][fetch]") {
  for (std::size_t i = 0; i < RemoteFile().needing().size(); ++i) {
    INFO(i);
    RemoteFile s;
    const SentMessage sent = s.needing()[i];
    CHECK(s.kernel.send(sent.opcode, sent.ino, sent.arguments).empty());
    CHECK(s.aside->waiting() == 1);
    REQUIRE_FALSE(s.wanted.empty());
    CHECK(s.go_on().empty());
    s.fetch(s.ino);
    s.fetch(s.below);
    s.aside->fetched(s.below, 0);
    s.aside->fetched(s.ino, 0);
    const auto replies = s.go_on();
    REQUIRE(replies.size() == 1);
    CHECK(replies[0].error == 0);
    CHECK(s.aside->waiting() == 0);
  }
}

TEST_CASE("a fetch that fails answers the requests that waited, and the next one tries again",
          "[fuse][fetch]") {
  for (const int error : {EIO, EINTR, ESTALE}) {
    RemoteFile s;
    const auto open = message_of(fuse_open_in{.flags = O_RDONLY});
    CHECK(s.kernel.send(FUSE_OPEN, s.ino, open).empty());
    s.aside->fetched(s.ino, error);
    const auto failed = s.go_on();
    REQUIRE(failed.size() == 1);
    CHECK(failed[0].error == error);
    CHECK(s.kernel.send(FUSE_OPEN, s.ino, open).empty());
    s.fetch(s.ino);
    s.aside->fetched(s.ino, 0);
    CHECK(s.go_on().at(0).error == 0);
    CHECK(s.filesystem->open_files().count([](const fs::OpenFile&) { return true; }) == 1);
  }
}

TEST_CASE("what does not need the content is answered at once", "[fuse][fetch]") {
  RemoteFile s;
  const auto answered = [&](std::uint32_t opcode, std::uint64_t ino, const test::Message& message) {
    const auto replies = s.kernel.send(opcode, ino, message);
    return replies.size() == 1 && replies[0].error == 0;
  };
  CHECK(answered(FUSE_LOOKUP, fs::root_ino, message_of("file"sv)));
  CHECK(answered(FUSE_GETATTR, s.ino, message_of(fuse_getattr_in{})));
  CHECK(answered(FUSE_LISTXATTR, s.ino, message_of(fuse_getxattr_in{.size = 100})));
  CHECK(answered(FUSE_READDIR, fs::root_ino, message_of(fuse_read_in{.size = 4096})));
  CHECK(answered(FUSE_STATFS, fs::root_ino, {}));
  const auto create = fuse_create_in{.flags = O_CREAT | O_RDWR, .mode = S_IFREG | 0600};
  CHECK(answered(FUSE_CREATE, fs::root_ino, message_of(create, "new"sv)));
  CHECK(answered(FUSE_RENAME, fs::root_ino,
                 message_of(fuse_rename_in{.newdir = fs::root_ino}, "new"sv, "file"sv)));
  CHECK(s.wanted.empty());
  CHECK(s.aside->waiting() == 0);
}

TEST_CASE("a rename of a directory waits for each remote file in it", "[fuse][fetch]") {
  RemoteFile s;
  const auto second = s.add("d/second");
  const auto rename = message_of(fuse_rename_in{.newdir = fs::root_ino}, "d"sv, "e"sv);
  CHECK(s.kernel.send(FUSE_RENAME, fs::root_ino, rename).empty());
  CHECK(s.wanted.size() == 2);  // both are fetched at once
  s.fetch(s.below);
  s.aside->fetched(s.below, 0);
  auto replies = s.go_on();
  s.fetch(second);
  s.aside->fetched(second, 0);
  for (auto& reply : s.go_on()) {
    replies.push_back(std::move(reply));
  }
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].error == 0);
  CHECK(s.staging.find("e/second"));
}

TEST_CASE("a request whose locks the kernel needs now does not wait, but its content comes",
          "[fuse][fetch]") {
  RemoteFile s;
  {
    const fuse::PutAside::Telling telling(s.aside.get(), true);
    const auto rename = message_of(fuse_rename_in{.newdir = fs::root_ino}, "file"sv, "moved"sv);
    const auto replies = s.kernel.send(FUSE_RENAME, fs::root_ino, rename);
    REQUIRE(replies.size() == 1);
    CHECK(replies[0].error == EAGAIN);
  }
  CHECK(s.wanted == std::vector<std::uint64_t>{s.ino});
  CHECK(s.aside->waiting() == 0);
}

TEST_CASE("without anything that fetches, such a request fails", "[fuse][fetch]") {
  RemoteFile s;
  s.connection.put_aside = nullptr;
  for (const SentMessage& sent : s.needing()) {
    const auto replies = s.kernel.send(sent.opcode, sent.ino, sent.arguments);
    REQUIRE(replies.size() == 1);
    CHECK(replies[0].error == EIO);
  }
}
