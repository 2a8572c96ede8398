// SPDX-License-Identifier: BSD-3-Clause
// Allocation: fallocate, holes, block counts, statfs.
#include <linux/falloc.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "parity.hpp"

namespace parity {
namespace {

/// One fallocate on a file of 10000 bytes.
void allocate(const Ctx& c, int mode, off_t offset, off_t length) {
  const int fd = c.get("file", O_RDWR | O_CREAT | O_TRUNC);
  const std::string data = pattern(10000);
  c.must("write", ::pwrite(fd, data.data(), data.size(), 0));
  c.call("fallocate mode " + std::to_string(mode) + " offset " + std::to_string(offset) +
             " length " + std::to_string(length),
         ::fallocate(fd, mode, offset, length));
  c.fstat("file", fd);
  c.content("file");
  ::close(fd);
}

void allocate_everywhere(const Ctx& c, int mode) {
  static constexpr std::pair<off_t, off_t> ranges[] = {
      {0, 4096},     {4096, 4096}, {100, 200}, {5000, 20000}, {20000, 10}, {0, 100000},
      {10000, 4096}, {0, 0},       {-1, 10},   {0, -1},       {3000, 5000}};
  for (const auto& [offset, length] : ranges) {
    allocate(c, mode, offset, length);
  }
}

constexpr Case cases[] = {
    {"fallocate-plain", [](Ctx& c) { allocate_everywhere(c, 0); }, anyone},
    {"fallocate-keep-size", [](Ctx& c) { allocate_everywhere(c, FALLOC_FL_KEEP_SIZE); }, anyone},
    {"fallocate-punch-hole",
     [](Ctx& c) { allocate_everywhere(c, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE); }, anyone},
    {"fallocate-punch-hole-without-keep-size",
     [](Ctx& c) { allocate(c, FALLOC_FL_PUNCH_HOLE, 0, 4096); }, anyone},
    {"fallocate-zero-range", [](Ctx& c) { allocate_everywhere(c, FALLOC_FL_ZERO_RANGE); }, anyone},
    {"fallocate-zero-range-keep-size",
     [](Ctx& c) { allocate_everywhere(c, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE); }, anyone},
    {"fallocate-collapse-insert",
     [](Ctx& c) {
       allocate(c, FALLOC_FL_COLLAPSE_RANGE, 0, 4096);
       allocate(c, FALLOC_FL_INSERT_RANGE, 0, 4096);
       allocate(c, FALLOC_FL_UNSHARE_RANGE, 0, 4096);
       allocate(c, 0x1000, 0, 4096);
     },
     anyone},
    {"fallocate-errors",
     [](Ctx& c) {
       c.put("file", "data");
       c.call("reader", ::fallocate(c.open("file", O_RDONLY), 0, 0, 10));
       c.call("directory", ::fallocate(c.open(".", O_RDONLY), 0, 0, 10));
       c.call("closed", ::fallocate(999, 0, 0, 10));
       c.must("mkfifo", ::mkfifo("fifo", 0600));
       c.call("fifo", ::fallocate(c.open("fifo", O_RDWR), 0, 0, 10));
       const int append = c.open("file", O_WRONLY | O_APPEND);
       c.call("append", ::fallocate(append, 0, 0, 100));
       c.call("overflow", ::fallocate(append, 0, INT64_MAX, 2));
       c.stat("file");
     },
     anyone},
    {"posix-fallocate",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.call("posix_fallocate", ::posix_fallocate(fd, 100, 10000));
       c.content("file");
       c.call("again", ::posix_fallocate(fd, 0, 10));
       c.call("bad", ::posix_fallocate(fd, -1, 10));
       c.fstat("file", fd);
     },
     anyone},
    {"blocks-of-sparse-file",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       const auto report = [&](const char* what) {
         struct stat st{};
         c.must("fstat", ::fstat(fd, &st));
         c.check(std::string(what) + ": any blocks", st.st_blocks > 0);
         c.check(std::string(what) + ": fewer bytes than size", st.st_blocks * 512 < st.st_size);
       };
       report("empty");
       c.call("extend", ::ftruncate(fd, 100 << 20));
       report("extended");
       c.pwrite(fd, "data", 50 << 20);
       report("written");
       c.call("shrink", ::ftruncate(fd, 0));
       report("cut");
       c.pwrite(fd, pattern(1 << 20), 0);
       report("full");
       c.call("fallocate", ::fallocate(fd, 0, 0, 2 << 20));
       report("allocated");
       c.call("punch", ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20));
       report("punched");
     },
     anyone},
    {"blksize",
     [](Ctx& c) {
       c.put("file", "x");
       struct stat st{};
       c.must("stat", ::stat("file", &st));
       c.check("a power of two of at least 512",
               st.st_blksize >= 512 && (st.st_blksize & (st.st_blksize - 1)) == 0);
     },
     anyone},
    {"statfs",
     [](Ctx& c) {
       c.put("file", "x");
       for (const char* path : {".", "file", "none", "file/x"}) {
         struct statfs fs{};
         if (c.call("statfs " + std::string(path), ::statfs(path, &fs)) != 0) {
           continue;
         }
         c.check("block size", fs.f_bsize > 0 && fs.f_frsize > 0);
         c.check("free <= blocks", fs.f_bfree <= fs.f_blocks);
         c.check("available <= free", fs.f_bavail <= fs.f_bfree);
         c.check("free inodes <= inodes", fs.f_ffree <= fs.f_files);
         c.line("name length " + std::to_string(fs.f_namelen));
       }
       struct statvfs fs{};
       c.call("fstatvfs", ::fstatvfs(c.open("file", O_RDONLY), &fs));
       c.line("name max " + std::to_string(fs.f_namemax));
       c.line("pathconf name max " + std::to_string(::pathconf(".", _PC_NAME_MAX)));
       c.line("pathconf path max " + std::to_string(::pathconf(".", _PC_PATH_MAX)));
     },
     anyone},
    {"statfs-counts-space",
     [](Ctx& c) {
       struct statfs before{};
       struct statfs after{};
       std::int64_t taken = 0;
       // within the overhead of a file besides its data
       const auto is_right = [&] {
         return taken >= (4 << 20) && taken < (8 << 20);
       };
       // On a disk, other processes allocate and free space meanwhile, so several tries are needed.
       for (int i = 0; i < 10 && !is_right(); ++i) {
         c.must("statfs", ::statfs(".", &before));
         c.put("file" + std::to_string(i), pattern(4 << 20));
         c.must("statfs", ::statfs(".", &after));
         taken = static_cast<std::int64_t>(before.f_bfree - after.f_bfree) * before.f_bsize;
       }
       c.line("total " + std::string(before.f_blocks == after.f_blocks ? "same" : "changed"));
       c.line("taken " + std::string(is_right() ? "what was written" : std::to_string(taken)));
     },
     anyone},
};

}  // namespace

std::span<const Case> space_cases() {
  return cases;
}

}  // namespace parity
