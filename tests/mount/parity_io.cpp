// Reading, writing, truncating, seeking, copying.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <random>

#include "parity.hpp"

namespace parity {
namespace {

constexpr off_t giga = off_t{1} << 30;

/// Random reads, writes and truncations through two descriptors; every read is recorded.
void random_io(const Ctx& c, unsigned seed) {
  std::minstd_rand random(seed);
  const int fds[2] = {c.get("file", O_RDWR | O_CREAT), c.get("file", O_RDWR)};
  const int append = c.get("file", O_WRONLY | O_APPEND);
  for (int step = 0; step < 400; ++step) {
    const int fd = fds[random() % 2];
    const off_t offset = static_cast<off_t>(random() % 200000);
    const std::size_t length = random() % 20000;
    switch (random() % 8) {
      case 0: c.call("truncate", ::ftruncate(fd, offset)); break;
      case 1: c.write(append, pattern(length % 3000, step)); break;
      case 2:
      case 3:
      case 4: c.pwrite(fd, pattern(length, step), offset); break;
      default: c.pread(fd, length, offset); break;
    }
  }
  c.stat("file");
  c.content("file");
}

constexpr Case cases[] = {
    {"io-random-1", [](Ctx& c) { random_io(c, 1); }, anyone},
    {"io-random-2", [](Ctx& c) { random_io(c, 2); }, anyone},
    {"io-random-3", [](Ctx& c) { random_io(c, 3); }, anyone},
    {"read-at-and-past-eof",
     [](Ctx& c) {
       c.put("file", "0123456789");
       const int fd = c.open("file", O_RDONLY);
       c.read(fd, 4);
       c.read(fd, 100);
       c.read(fd, 100);
       c.pread(fd, 5, 8);
       c.pread(fd, 5, 10);
       c.pread(fd, 5, 1000000);
       c.pread(fd, 0, 3);
       c.pread(fd, 5, -1);
       c.pread(fd, 5, INT64_MAX);
       c.call("seek", ::lseek(fd, 0, SEEK_CUR));
     },
     anyone},
    {"write-past-eof-hole",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.pwrite(fd, "end", 10000);
       c.fstat("file", fd);
       c.content("file");
       c.pwrite(fd, "mid", 5000);
       c.content("file");
       c.call("seek past end", ::lseek(fd, 20000, SEEK_SET));
       c.write(fd, "tail");
       c.content("file");
     },
     anyone},
    {"zero-length",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.write(fd, "");
       c.pwrite(fd, "", 5000);
       c.stat("file");
       c.read(fd, 0);
       c.pread(c.open(".", O_RDONLY), 0, 0);
       c.call("writev of nothing", ::writev(fd, nullptr, 0));
     },
     anyone},
    {"read-write-wrong-mode",
     [](Ctx& c) {
       c.put("file", "data");
       const int reader = c.open("file", O_RDONLY);
       const int writer = c.open("file", O_WRONLY);
       c.write(reader, "x");
       c.pwrite(reader, "x", 0);
       c.read(writer, 1);
       c.pread(writer, 1, 0);
       c.call("ftruncate reader", ::ftruncate(reader, 0));
       c.content("file");
     },
     anyone},
    {"read-write-directory",
     [](Ctx& c) {
       const int fd = c.open(".", O_RDONLY);
       c.read(fd, 10);
       c.pread(fd, 10, 0);
       c.write(fd, "x");
       c.call("ftruncate", ::ftruncate(fd, 0));
       c.call("truncate", ::truncate(".", 0));
     },
     anyone},
    {"readv-writev",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       char one[] = "one";
       char two[] = "twotwo";
       char empty[] = "";
       const iovec out[] = {{one, 3}, {empty, 0}, {two, 6}};
       c.call("writev", ::writev(fd, out, 3));
       c.call("pwritev", ::pwritev(fd, out, 3, 20));
       c.content("file");
       char a[5] = {};
       char b[50] = {};
       const iovec in[] = {{a, 5}, {b, 50}};
       c.call("preadv", ::preadv(fd, in, 2, 0));
       c.line(show({a, 5}) + show({b, 30}));
       c.call("preadv at end", ::preadv(fd, in, 2, 29));
       c.call("preadv count over the limit", ::preadv(fd, std::vector<iovec>(1025, in[0]).data(), 1025, 0));
       c.call("pwritev2 append", ::pwritev2(fd, out, 3, 0, RWF_APPEND));
       c.call("pwritev2 dsync", ::pwritev2(fd, out, 3, 0, RWF_DSYNC));
       c.call("pwritev2 bad flag", ::pwritev2(fd, out, 3, 0, 0x40000000));
       c.content("file");
     },
     anyone},
    {"bad-buffer",
     [](Ctx& c) {
       c.put("file", "0123456789");
       const int fd = c.open("file", O_RDWR);
       void* bad = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       c.call("read", ::read(fd, bad, 4));
       c.call("write", ::write(fd, bad, 4));
       c.content("file");
     },
     anyone},
    {"large-offset-sparse",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       for (const off_t at : {2 * giga - 2, 4 * giga - 2, 5 * giga, 3000 * giga}) {
         c.pwrite(fd, "data", at);
         c.fstat("file", fd);
         c.pread(fd, 10, at - 3);
       }
       c.pread(fd, 10, 3 * giga);
       c.call("truncate", ::ftruncate(fd, 4 * giga));
       c.pread(fd, 10, 4 * giga - 4);
       c.call("seek end", ::lseek(fd, 0, SEEK_END));
     },
     anyone},
    {"large-offset-limit",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.pwrite(fd, "x", INT64_MAX);
       c.pwrite(fd, "xy", INT64_MAX - 1);
       c.pwrite(fd, "x", -1);
       c.call("ftruncate negative", ::ftruncate(fd, -1));
       c.call("seek max", ::lseek(fd, INT64_MAX, SEEK_SET));
       c.write(fd, "x");
       c.call("seek over max", ::lseek(fd, 1, SEEK_CUR));
       c.fstat("file", fd);
       c.call("ftruncate max", ::ftruncate(fd, INT64_MAX));
       c.fstat("file", fd);
     },
     anyone},
    {"rlimit-fsize",
     [](Ctx& c) {
       ::signal(SIGXFSZ, SIG_IGN);
       const rlimit limit{10000, 10000};
       c.must("setrlimit", ::setrlimit(RLIMIT_FSIZE, &limit));
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.pwrite(fd, "inside", 0);
       c.pwrite(fd, "across the limit", 9995);
       c.pwrite(fd, "beyond", 10000);
       c.call("ftruncate beyond", ::ftruncate(fd, 10001));
       c.call("fallocate beyond", ::fallocate(fd, 0, 0, 20000));
       c.call("ftruncate", ::ftruncate(fd, 10000));
       c.fstat("file", fd);
     },
     anyone},
    {"large-write-and-read",
     [](Ctx& c) {
       const std::string data = pattern(9 * 1024 * 1024 + 17);
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.write(fd, data);
       c.pread(fd, data.size() + 100, 0);
       c.pread(fd, 3000000, 4000001);
       c.in_child([&] { c.content("file"); });
     },
     anyone},
    {"small-writes",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       const std::string data = pattern(20000);
       for (std::size_t at = 0; at < data.size(); at += 7) {
         c.must("write", ::write(fd, data.data() + at, std::min<std::size_t>(7, data.size() - at)));
       }
       c.content("file");
     },
     anyone},
    {"write-seen-by-other-descriptor",
     [](Ctx& c) {
       const int writer = c.open("file", O_RDWR | O_CREAT);
       const int reader = c.open("file", O_RDONLY);
       for (int i = 0; i < 20; ++i) {
         c.pwrite(writer, "round " + std::to_string(i), i * 1000);
         c.pread(reader, 20, i * 1000);
         c.fstat("reader", reader);
       }
     },
     anyone},
    {"write-seen-by-other-process",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       c.write(fd, "first");
       c.in_child([&] { c.content("file"), c.put("file", "second by another"); });
       c.fstat("file", fd);
       c.pread(fd, 100, 0);
     },
     anyone},
    {"append-two-descriptors",
     [](Ctx& c) {
       const int one = c.open("file", O_WRONLY | O_CREAT | O_APPEND);
       const int two = c.open("file", O_RDWR | O_APPEND);
       c.write(one, "a1 ");
       c.write(two, "b1 ");
       c.write(one, "a2 ");
       c.call("offset one", ::lseek(one, 0, SEEK_CUR));
       c.call("offset two", ::lseek(two, 0, SEEK_CUR));
       c.call("seek", ::lseek(one, 0, SEEK_SET));
       c.write(one, "a3 ");
       c.pwrite(two, "b2", 0);
       c.content("file");
       c.call("truncate", ::truncate("file", 2));
       c.write(one, "after");
       c.content("file");
     },
     anyone},
    {"append-and-plain",
     [](Ctx& c) {
       const int plain = c.open("file", O_RDWR | O_CREAT);
       const int append = c.open("file", O_WRONLY | O_APPEND);
       c.write(plain, "plain");
       c.write(append, "+append");
       c.write(plain, "PLAIN");
       c.content("file");
     },
     anyone},
    {"truncate-shrink-extend",
     [](Ctx& c) {
       c.put("file", pattern(20000));
       for (const off_t size : {20000, 12345, 5000, 5001, 4096, 16384, 1, 0, 100, 0}) {
         c.call("truncate " + std::to_string(size), ::truncate("file", size));
         c.stat("file");
         c.content("file");
       }
     },
     anyone},
    {"truncate-shrink-then-extend-zeros",
     [](Ctx& c) {
       for (const off_t cut : {0, 1, 4095, 4096, 4097, 7000}) {
         c.put("file", std::string(10000, 'x'));
         const int fd = c.open("file", O_RDWR);
         c.pread(fd, 10000, 0);
         c.call("shrink", ::ftruncate(fd, cut));
         c.call("extend", ::ftruncate(fd, 10000));
         c.content("file");
         c.pwrite(fd, "y", 12000);
         c.content("file");
       }
     },
     anyone},
    {"truncate-then-write-past-end",
     [](Ctx& c) {
       c.put("file", std::string(5000, 'x'));
       c.call("truncate", ::truncate("file", 10));
       c.pwrite(c.open("file", O_WRONLY), "y", 4999);
       c.content("file");
     },
     anyone},
    {"truncate-errors",
     [](Ctx& c) {
       c.dir("dir");
       c.put("file", "data");
       c.must("mkfifo", ::mkfifo("fifo", 0600));
       c.must("symlink", ::symlink("file", "link"));
       c.call("dir", ::truncate("dir", 0));
       c.call("none", ::truncate("none", 0));
       c.call("negative", ::truncate("file", -1));
       c.call("fifo", ::truncate("fifo", 0));
       c.call("below a file", ::truncate("file/x", 0));
       c.call("slash", ::truncate("file/", 0));
       c.call("by link", ::truncate("link", 2));
       c.content("file");
       c.must("chmod", ::chmod("file", 0400));
       c.call("read-only mode", ::truncate("file", 1));
       c.content("file");
     },
     anyone},
    {"truncate-open-elsewhere",
     [](Ctx& c) {
       c.put("file", "0123456789");
       const int fd = c.open("file", O_RDWR);
       c.read(fd, 5);
       c.call("truncate", ::truncate("file", 3));
       c.fstat("file", fd);
       c.read(fd, 5);
       c.write(fd, "W");
       c.content("file");
     },
     anyone},
    {"seek",
     [](Ctx& c) {
       c.put("file", "0123456789");
       const int fd = c.open("file", O_RDWR);
       c.call("past end", ::lseek(fd, 100, SEEK_SET));
       c.read(fd, 5);
       c.call("end", ::lseek(fd, -3, SEEK_END));
       c.read(fd, 5);
       c.call("before start", ::lseek(fd, -11, SEEK_END));
       c.call("negative", ::lseek(fd, -1, SEEK_SET));
       c.call("current", ::lseek(fd, -2, SEEK_CUR));
       c.call("bad whence", ::lseek(fd, 0, 77));
       c.stat("file");
     },
     anyone},
    {"seek-data-hole-plain",
     [](Ctx& c) {
       c.put("file", "0123456789");
       c.put("empty");
       for (const char* name : {"file", "empty"}) {
         const int fd = c.open(name, O_RDWR);
         for (const off_t at : {0, 5, 9, 10, 11, -1}) {
           c.call("data from " + std::to_string(at), ::lseek(fd, at, SEEK_DATA));
           c.call("hole from " + std::to_string(at), ::lseek(fd, at, SEEK_HOLE));
         }
       }
     },
     anyone},
    {"seek-data-hole-sparse",
     [](Ctx& c) {
       const int fd = c.open("file", O_RDWR | O_CREAT);
       const off_t mega = 1 << 20;
       c.pwrite(fd, std::string(4096, 'x'), 4 * mega);
       c.pwrite(fd, std::string(4096, 'x'), 8 * mega);
       c.call("extend", ::ftruncate(fd, 16 * mega));
       for (const off_t at : {off_t{0}, 4 * mega, 4 * mega + 4096, 6 * mega, 8 * mega + 1, 9 * mega, 16 * mega}) {
         c.call("data from " + std::to_string(at), ::lseek(fd, at, SEEK_DATA));
         c.call("hole from " + std::to_string(at), ::lseek(fd, at, SEEK_HOLE));
       }
     },
     anyone},
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
       for (const int advice : {POSIX_FADV_NORMAL, POSIX_FADV_SEQUENTIAL, POSIX_FADV_WILLNEED, POSIX_FADV_DONTNEED}) {
         c.call("fadvise " + std::to_string(advice), ::posix_fadvise(fd, 0, 0, advice));
       }
       c.content("file");
     },
     anyone},
    {"readahead", [](Ctx& c) { c.put("file", "x"), c.call("readahead", ::readahead(c.open("file", O_RDONLY), 0, 1)); },
     anyone},
};

}  // namespace

std::span<const Case> io_cases() { return cases; }

}  // namespace parity
