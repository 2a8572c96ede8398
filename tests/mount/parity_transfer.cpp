// SPDX-License-Identifier: BSD-3-Clause
// Copying inside the kernel, direct and synchronous I/O, advice.
#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "parity.hpp"

namespace parity {
namespace {

constexpr Case cases[] = {
    {"copy-file-range",
     [](Ctx& c) {
       c.put("from", pattern(3000));
       c.put("to", "head");
       const int from = c.open("from", O_RDONLY);
       const int to = c.open("to", O_RDWR);
       off_t in = 100;
       off_t out = 10;
       c.call("with offsets", ::copy_file_range(from, &in, to, &out, 500, 0));
       c.line("offsets " + std::to_string(in) + " " + std::to_string(out));
       c.content("to");
       c.call("own offsets", ::copy_file_range(from, nullptr, to, nullptr, 5000, 0));
       c.call("at end", ::copy_file_range(from, nullptr, to, nullptr, 10, 0));
       c.content("to");
       in = 5000;
       c.call("past end", ::copy_file_range(from, &in, to, nullptr, 10, 0));
       c.call("bad flags", ::copy_file_range(from, nullptr, to, nullptr, 10, 1));
     },
     anyone},
    {"copy-file-range-errors",
     [](Ctx& c) {
       c.put("file", pattern(3000));
       const int fd = c.open("file", O_RDWR);
       off_t in = 0;
       off_t out = 100;
       c.call("overlap", ::copy_file_range(fd, &in, fd, &out, 500, 0));
       out = 1000;
       c.call("same file apart", ::copy_file_range(fd, &in, fd, &out, 500, 0));
       c.content("file");
       const int append = c.open("file", O_WRONLY | O_APPEND);
       c.call("to append", ::copy_file_range(fd, nullptr, append, nullptr, 10, 0));
       const int reader = c.open("file", O_RDONLY);
       c.call("to reader", ::copy_file_range(fd, nullptr, reader, nullptr, 10, 0));
       const int dir = c.open(".", O_RDONLY);
       c.call("from directory", ::copy_file_range(dir, nullptr, fd, nullptr, 10, 0));
     },
     anyone},
    {"sendfile",
     [](Ctx& c) {
       c.put("from", pattern(3000));
       const int from = c.open("from", O_RDONLY);
       const int to = c.open("to", O_RDWR | O_CREAT);
       off_t at = 1000;
       c.call("file to file", ::sendfile(to, from, &at, 500));
       c.line("offset " + std::to_string(at));
       c.content("to");
       int ends[2];
       c.must("pipe", ::pipe(ends));
       c.call("file to pipe", ::sendfile(ends[1], from, nullptr, 700));
       c.read(ends[0], 700);
       c.call("seek", ::lseek(from, 0, SEEK_CUR));
       c.call("to append", ::sendfile(c.open("to", O_WRONLY | O_APPEND), from, nullptr, 5));
     },
     anyone},
    {"splice",
     [](Ctx& c) {
       c.put("from", pattern(3000));
       const int from = c.open("from", O_RDONLY);
       const int to = c.open("to", O_RDWR | O_CREAT);
       int ends[2];
       c.must("pipe", ::pipe(ends));
       loff_t in = 50;
       loff_t out = 20;
       c.call("file to pipe", ::splice(from, &in, ends[1], nullptr, 2000, 0));
       c.call("pipe to file", ::splice(ends[0], nullptr, to, &out, 2000, 0));
       c.line("offsets " + std::to_string(in) + " " + std::to_string(out));
       c.content("to");
       c.call("file to pipe", ::splice(from, nullptr, ends[1], nullptr, 100, SPLICE_F_MOVE));
       c.call("pipe to file", ::splice(ends[0], nullptr, to, nullptr, 100, SPLICE_F_MOVE));
       c.content("to");
       c.call("file to file", ::splice(from, nullptr, to, nullptr, 100, 0));
     },
     anyone},
    {"direct-io",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT | O_DIRECT);
       void* block = std::aligned_alloc(4096, 8192);
       std::fill_n(static_cast<char*>(block), 8192, 'd');
       c.call("write aligned", ::pwrite(fd, block, 8192, 0));
       c.call("read aligned", ::pread(fd, block, 8192, 4096));
       c.call("read across end", ::pread(fd, block, 8192, 8192));
       c.content("file");
     },
     anyone},
    {"direct-io-unaligned",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT | O_DIRECT);
       char* block = static_cast<char*>(std::aligned_alloc(4096, 8192));
       std::fill_n(block, 8192, 'd');
       c.call("write", ::pwrite(fd, block + 1, 100, 3));
       c.call("read", ::pread(fd, block + 3, 50, 7));
       c.content("file");
     },
     anyone},
    {"direct-io-mixed-with-cached",
     [](Ctx& c) {
       c.put("file", std::string(16384, 'c'));
       const int cached = c.open("file", O_RDWR);
       c.pread(cached, 16384, 0);
       const int direct = c.open("file", O_RDWR | O_DIRECT);
       void* block = std::aligned_alloc(4096, 4096);
       std::fill_n(static_cast<char*>(block), 4096, 'd');
       c.call("direct write", ::pwrite(direct, block, 4096, 4096));
       c.pread(cached, 16384, 0);
       c.pwrite(cached, "cached", 8192);
       c.call("direct read", ::pread(direct, block, 4096, 8192));
       c.line(show({static_cast<char*>(block), 10}));
     },
     anyone},
    {"direct-io-asynchronous",
     [](Ctx& c) {
       // Other processes read through the cache all the time. After a write has returned, a read
       // shows its data.
       constexpr std::size_t size = 640U << 10U;
       auto* stop = static_cast<std::atomic<bool>*>(
           ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
       auto* block = static_cast<char*>(std::aligned_alloc(4096, size));
       c.put("file", std::string(size, '-'));
       const int direct = c.open("file", O_RDWR | O_DIRECT), cached = c.open("file", O_RDONLY);
       aio_context_t context = 0;
       c.must("io_setup", ::syscall(SYS_io_setup, 1, &context));
       std::vector<pid_t> readers(2);
       for (pid_t& reader : readers) {
         reader = c.start([&] {
           std::string data(size, ' ');
           const int fd = c.get("file", O_RDONLY);
           while (!*stop) {
             (void)!::pread(fd, data.data(), size, 0);
           }
         });
       }
       int old = 0;
       std::string data(size, ' ');
       for (int i = 0; i < 300; ++i) {
         const char now = static_cast<char>('a' + i % 26);
         std::fill_n(block, size, now);
         iocb write{};
         write.aio_lio_opcode = IOCB_CMD_PWRITE;
         write.aio_fildes = static_cast<std::uint32_t>(direct);
         write.aio_buf = reinterpret_cast<std::uintptr_t>(block);
         write.aio_nbytes = size;
         iocb* writes = &write;
         io_event done{};
         c.must("io_submit", ::syscall(SYS_io_submit, context, 1, &writes));
         c.must("io_getevents", ::syscall(SYS_io_getevents, context, 1, 1, &done, nullptr));
         c.must("read", ::pread(cached, data.data(), size, 0));
         old += done.res != static_cast<std::int64_t>(size) ||
                        data.find_first_not_of(now) != std::string::npos
                    ? 1
                    : 0;
       }
       *stop = true;
       for (const pid_t reader : readers) {
         c.finish(reader);
       }
       c.line("old data behind a complete write: " + std::to_string(old));
     },
     anyone},
    {"direct-io-under-a-mapping",
     [](Ctx& c) {
       constexpr std::size_t size = 1U << 20U;
       c.put("file", std::string(size, 'c'));
       const int fd = c.open("file", O_RDWR), direct = c.open("file", O_RDWR | O_DIRECT);
       auto* map =
           static_cast<char*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
       auto* block = static_cast<char*>(std::aligned_alloc(4096, size));
       std::fill_n(block, size, 'd');
       map[5000] = 'm';
       c.call("direct read", ::pread(direct, block, 8192, 0));
       c.line("it sees the store: " + std::string(1, block[5000]));
       std::fill_n(block, size, 'd');
       map[8192] = 'm';
       c.call("direct write", ::pwrite(direct, block, size / 2, 0));
       c.line("the mapping sees it: " + std::string({map[0], map[5000], map[8192], map[size / 2]}));
       c.call("punch", ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192));
       c.line("and the hole: " + std::to_string(static_cast<int>(map[5000])));
       off_t in = size / 2, out = 0;
       c.call("copy_file_range", ::copy_file_range(fd, &in, fd, &out, 4096, 0));
       c.line("and the copy: " + std::string(1, map[0]));
       c.call("direct read", ::pread(direct, block, size, 0));
       c.check("all agree", std::equal(block, block + size, map));
     },
     anyone},
    {"sync-writes",
     [](Ctx& c) {
       for (const int flag : {O_SYNC, O_DSYNC}) {
         const int fd = c.open("file", O_RDWR | O_CREAT | O_APPEND | flag);
         c.write(fd, "synchronous");
         c.content("file");
       }
     },
     anyone},
    {"fsync-kinds",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.write(fd, "data");
       c.call("fsync", ::fsync(fd));
       c.call("fdatasync", ::fdatasync(fd));
       c.call("syncfs", ::syncfs(fd));
       c.call("sync_file_range", ::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
       c.call("sync_file_range bad", ::sync_file_range(fd, 0, 0, 0x80));
       c.call("sync_file_range negative", ::sync_file_range(fd, -1, 0, 0));
       const int reader = c.open("file", O_RDONLY);
       c.call("fsync reader", ::fsync(reader));
       const int dir = c.open(".", O_RDONLY);
       c.call("fsync dir", ::fsync(dir));
       c.call("fdatasync dir", ::fdatasync(dir));
       c.call("syncfs dir", ::syncfs(dir));
       c.call("fsync path", ::fsync(c.open("file", O_PATH)));
     },
     anyone},
    {"fadvise-readahead",
     [](Ctx& c) {
       c.put("file", pattern(100000));
       const int fd = c.open("file", O_RDONLY);
       for (const int advice :
            {POSIX_FADV_NORMAL, POSIX_FADV_SEQUENTIAL, POSIX_FADV_WILLNEED, POSIX_FADV_DONTNEED}) {
         c.call("fadvise " + std::to_string(advice), ::posix_fadvise(fd, 0, 0, advice));
       }
       c.content("file");
     },
     anyone},
    {"readahead",
     [](Ctx& c) {
       c.put("file", "x"), c.call("readahead", ::readahead(c.open("file", O_RDONLY), 0, 1));
     },
     anyone},
};

}  // namespace

std::span<const Case> transfer_cases() {
  return cases;
}

}  // namespace parity
