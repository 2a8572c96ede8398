// SPDX-License-Identifier: BSD-3-Clause
// Memory mappings.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "parity.hpp"

namespace parity {
namespace {

constexpr std::size_t page = 4096;
constexpr int both = PROT_READ | PROT_WRITE;

char* map(const Ctx& c, const char* what, int fd, std::size_t length, int protection = both,
          int flags = MAP_SHARED, off_t offset = 0) {
  void* address = ::mmap(nullptr, length, protection, flags, fd, offset);
  c.opened(what, address == MAP_FAILED ? -1 : 0);
  return address == MAP_FAILED ? nullptr : static_cast<char*>(address);
}

void store(char* at, std::string_view text) {
  if (at != nullptr) {
    std::memcpy(at, text.data(), text.size());
  }
}

void load(const Ctx& c, const char* at, std::size_t length) {
  c.line("mapped " + (at == nullptr ? "nothing" : show({at, length})));
}

constexpr Case cases[] = {
    {"mmap-shared-write",
     [](Ctx& c) {
       c.put("f", std::string(2 * page + 100, 'x'));
       const int fd = c.open("f", O_RDWR);
       char* at = map(c, "mmap", fd, 3 * page);
       store(at + 10, "stored");
       store(at + 2 * page + 90, "at the end");
       c.pread(fd, 20, 5);
       c.content("f");
       c.pwrite(fd, "written", page);
       load(c, at + page, 10);
       c.call("msync async", ::msync(at, 3 * page, MS_ASYNC));
       c.call("msync", ::msync(at, 3 * page, MS_SYNC));
       c.call("munmap", ::munmap(at, 3 * page));
       c.in_child([&] { c.content("f"); });
     },
     anyone},
    {"mmap-read-sees-writes",
     [](Ctx& c) {
       c.put("f", std::string(page, 'x'));
       char* at = map(c, "mmap", c.open("f", O_RDONLY), page, PROT_READ);
       load(c, at, 10);
       c.pwrite(c.open("f", O_WRONLY), "other descriptor", 0);
       load(c, at, 20);
       c.in_child([&] { c.pwrite(c.open("f", O_WRONLY), "other process", 0); });
       load(c, at, 20);
     },
     anyone},
    {"mmap-private",
     [](Ctx& c) {
       c.put("f", std::string(page, 'x'));
       const int fd = c.open("f", O_RDONLY);
       char* at = map(c, "mmap", fd, page, both, MAP_PRIVATE);
       store(at, "private");
       c.pread(fd, 10, 0);
       load(c, at, 10);
       c.call("msync", ::msync(at, page, MS_SYNC));
       c.content("f");
     },
     anyone},
    {"mmap-store-into-hole",
     [](Ctx& c) {
       constexpr std::size_t size = 1U << 20U;
       // Checks no more: the kernel's pages may be larger than those of the native file system.
       const auto look = [&](const std::string& when, std::initializer_list<std::size_t> stored) {
         const int reader = c.get("f", O_RDONLY);
         struct stat st{};
         c.must("stat", ::stat("f", &st));
         c.check(when + ": has blocks", st.st_blocks > 0);
         for (const std::size_t at : stored) {
           c.check(when + ": data at " + std::to_string(at),
                   ::lseek(reader, static_cast<off_t>(at), SEEK_DATA) == static_cast<off_t>(at));
         }
         ::close(reader);
       };
       const int fd = c.open("f", O_RDWR | O_CREAT);
       c.call("truncate", ::ftruncate(fd, size));
       char* at = map(c, "mmap", fd, size);
       look("before", {});
       store(at + size / 2, "stored");
       look("stored", {size / 2});
       store(at + size - 100, "stored later");
       look("stored once more", {size / 2, size - 100});
       ::close(fd);
       store(at + size / 2, "with the mapping alone");
       look("without a descriptor", {size / 2, size - 100});
       c.call("munmap", ::munmap(at, size));
       look("after", {size / 2, size - 100});
       c.content("f");
     },
     anyone},
    {"mmap-errors",
     [](Ctx& c) {
       c.put("f", std::string(page, 'x'));
       const int reader = c.open("f", O_RDONLY);
       const int writer = c.open("f", O_WRONLY);
       map(c, "shared write by reader", reader, page);
       map(c, "private write by reader", reader, page, both, MAP_PRIVATE);
       map(c, "read by writer", writer, page, PROT_READ);
       map(c, "write by writer", writer, page, PROT_WRITE);
       map(c, "private by writer", writer, page, PROT_READ, MAP_PRIVATE);
       map(c, "nothing", reader, 0, PROT_READ);
       map(c, "odd offset", reader, page, PROT_READ, MAP_SHARED, 100);
       map(c, "directory", c.open(".", O_RDONLY), page, PROT_READ);
       map(c, "path", c.open("f", O_PATH), page, PROT_READ);
       map(c, "exec", reader, page, PROT_READ | PROT_EXEC, MAP_PRIVATE);
       map(c, "shared validate", reader, page, PROT_READ, MAP_SHARED_VALIDATE);
       map(c, "sync", c.open("f", O_RDWR), page, both, MAP_SHARED_VALIDATE | MAP_SYNC);
       char* at = map(c, "read", reader, page, PROT_READ);
       c.call("mprotect to write", ::mprotect(at, page, both));
     },
     anyone},
    {"mmap-extended-file",
     [](Ctx& c) {
       const int fd = c.open("f", O_RDWR | O_CREAT);
       char* at = map(c, "mmap of the empty file", fd, 4 * page);
       c.call("extend", ::ftruncate(fd, 4 * page));
       load(c, at + 3 * page, 10);
       store(at + 3 * page, "stored");
       c.fstat("f", fd);
       c.content("f");
     },
     anyone},
    {"mmap-shrink-and-extend",
     [](Ctx& c) {
       c.put("f", std::string(3 * page, 'x'));
       const int fd = c.open("f", O_RDWR);
       char* at = map(c, "mmap", fd, 3 * page);
       load(c, at + 2 * page, 10);
       c.call("shrink", ::ftruncate(fd, page + 10));
       load(c, at + page, 20);
       c.call("extend", ::ftruncate(fd, 3 * page));
       load(c, at + page, 20);
       load(c, at + 2 * page, 10);
       store(at + 2 * page, "stored");
       c.content("f");
     },
     anyone},
    {"mmap-tail-beyond-end",
     [](Ctx& c) {
       c.put("f", "short");
       const int fd = c.open("f", O_RDWR);
       char* at = map(c, "mmap", fd, page);
       load(c, at, 20);
       store(at + 10, "beyond the end");
       c.fstat("f", fd);
       c.content("f");
     },
     anyone},
    {"mmap-tail-after-extension",
     [](Ctx& c) {
       c.put("f", "short");
       const int fd = c.open("f", O_RDWR);
       char* at = map(c, "mmap", fd, page);
       store(at + 10, "beyond the end");
       c.call("extend", ::ftruncate(fd, 50));
       c.content("f");
     },
     anyone},
    {"mmap-two-processes",
     [](Ctx& c) {
       c.put("f", std::string(page, '.'));
       const int fd = c.open("f", O_RDWR);
       char* at = map(c, "mmap", fd, page);
       const Gate to_child;
       const Gate to_parent;
       const pid_t pid = c.start([&] {
         char* mine = map(c, "mmap by the child", c.get("f", O_RDWR), page);
         store(mine, "child");
         to_parent.open();
         to_child.wait();
         load(c, mine, 20);
         store(mine + 12, "again");
         to_parent.open();
       });
       to_parent.wait();
       load(c, at, 20);
       store(at + 6, "parent");
       to_child.open();
       to_parent.wait();
       load(c, at, 20);
       c.finish(pid);
       c.content("f");
     },
     anyone},
    {"mmap-inherited",
     [](Ctx& c) {
       c.put("f", std::string(page, '.'));
       char* at = map(c, "mmap", c.open("f", O_RDWR), page);
       c.in_child([&] { store(at, "by the child"); });
       load(c, at, 20);
       c.content("f");
     },
     anyone},
    {"mmap-after-close-and-unlink",
     [](Ctx& c) {
       c.put("f", std::string(page, 'x'));
       c.must("link", ::link("f", "g"));
       const int fd = c.open("f", O_RDWR);
       char* at = map(c, "mmap", fd, page);
       c.must("close", ::close(fd));
       c.call("unlink", ::unlink("f"));
       store(at, "after close");
       c.content("g");
       c.call("unlink last", ::unlink("g"));
       store(at, "after unlink");
       load(c, at, 20);
       c.call("msync", ::msync(at, page, MS_SYNC));
     },
     anyone},
    {"mmap-survives-rename",
     [](Ctx& c) {
       c.put("f", std::string(page, 'x'));
       char* at = map(c, "mmap", c.open("f", O_RDWR), page);
       c.call("rename", ::rename("f", "g"));
       store(at, "after rename");
       c.content("g");
       c.put("h", "replacing");
       c.call("rename over", ::rename("h", "g"));
       load(c, at, 20);
       c.content("g");
     },
     anyone},
    {"mremap",
     [](Ctx& c) {
       c.put("f", pattern(8 * page));
       const int fd = c.open("f", O_RDWR);
       char* at = map(c, "mmap", fd, 2 * page);
       void* grown = ::mremap(at, 2 * page, 8 * page, MREMAP_MAYMOVE);
       c.opened("mremap", grown == MAP_FAILED ? -1 : 0);
       at = static_cast<char*>(grown);
       load(c, at, 8 * page);
       store(at + 7 * page, "stored");
       c.content("f");
     },
     anyone},
    {"mmap-offset",
     [](Ctx& c) {
       const int fd = c.open("f", O_RDWR | O_CREAT);
       const off_t far = off_t{5} << 30;
       c.call("extend", ::ftruncate(fd, far + page));
       char* at = map(c, "mmap", fd, page, both, MAP_SHARED, far);
       load(c, at, 10);
       store(at, "far");
       c.pread(fd, 10, far);
     },
     anyone},
    {"mmap-fallocate",
     [](Ctx& c) {
       c.put("f", std::string(4 * page, 'x'));
       const int fd = c.open("f", O_RDWR);
       char* at = map(c, "mmap", fd, 4 * page);
       load(c, at + page, 10);
       c.call("punch", ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page, 2 * page));
       load(c, at + page, 10);
       store(at + 2 * page, "in the hole");
       c.content("f");
     },
     anyone},
    {"madvise",
     [](Ctx& c) {
       c.put("f", std::string(4 * page, 'x'));
       const int fd = c.open("f", O_RDWR);
       char* at = map(c, "mmap", fd, 4 * page);
       store(at, "stored");
       c.call("dontneed", ::madvise(at, 4 * page, MADV_DONTNEED));
       load(c, at, 10);
       c.call("willneed", ::madvise(at, 4 * page, MADV_WILLNEED));
       c.call("remove", ::madvise(at, page, MADV_REMOVE));
       c.content("f");
     },
     anyone},
    {"mmap-beyond-4-gib",
     [](Ctx& c) {
       const off_t far = (off_t{5} << 30) + 4096;
       const int fd = c.open("f", O_RDWR | O_CREAT);
       c.call("extend", ::ftruncate(fd, far + 4096));
       auto* map =
           static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, far));
       c.check("mapped", map != MAP_FAILED);
       if (map == MAP_FAILED) {
         return;
       }
       map[17] = 'y';
       c.call("msync", ::msync(map, 4096, MS_SYNC));
       c.pread(fd, 20, far);
       c.pwrite(fd, "z", far + 18);
       c.line(show({map, 20}));
       c.stat("f");
     },
     anyone},
    {"mmap-and-file-io-random",
     [](Ctx& c) {
       const std::size_t size = 64 * page;
       const int fd = c.open("f", O_RDWR | O_CREAT);
       c.call("extend", ::ftruncate(fd, static_cast<off_t>(size)));
       char* at = map(c, "mmap", fd, size);
       unsigned state = 7;
       for (int step = 0; step < 300; ++step) {
         state = state * 1103515245U + 12345U;
         const std::size_t offset = (state >> 4U) % (size - 5000);
         const std::size_t length = (state >> 12U) % 5000 + 1;
         switch ((state >> 8U) % 4) {
           case 0: store(at + offset, pattern(length, state)); break;
           case 1: c.pwrite(fd, pattern(length, state), static_cast<off_t>(offset)); break;
           case 2: load(c, at + offset, length); break;
           default: c.pread(fd, length, static_cast<off_t>(offset)); break;
         }
       }
       c.call("msync", ::msync(at, size, MS_SYNC));
       c.content("f");
     },
     anyone},
    {"read-into-own-mapping",
     [](Ctx& c) {
       c.put("f", pattern(2 * page));
       const int fd = c.open("f", O_RDWR);
       char* at = map(c, "mmap", fd, 2 * page);
       c.call("read second page into the first", ::pread(fd, at, page, page));
       c.call("write first page to the second", ::pwrite(fd, at, 100, page + 50));
       c.content("f");
     },
     anyone},
};

}  // namespace

std::span<const Case> map_cases() {
  return cases;
}

}  // namespace parity
