// SPDX-License-Identifier: BSD-3-Clause
// The cache of inputs: keys, damage, the order of eviction, concurrent use, and the death of a
// process.
#include "stage/import/cache.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <set>
#include <thread>

#include "backends/container_file.hpp"
#include "fs/seal.hpp"
#include "support/short_of_memory.hpp"
#include "support/temp.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

constexpr std::uint64_t mib = 1U << 20U;

CacheKey key_of(const std::string& path, std::uint64_t size, unsigned version = 1) {
  return {.path = path,
          .version = {.device = 7,
                      .inode = 100 + version,
                      .size = size,
                      .mtime = 5'000'000'000 + version,
                      .ctime = 6'000'000'000}};
}

constexpr Nanoseconds long_after = 100'000'000'000;

std::shared_ptr<Container> open_container(const std::string& path, int mode = O_RDWR) {
  return std::make_shared<ContainerFile>(UniqueFd(::open(path.c_str(), mode | O_CLOEXEC)), nullptr,
                                         false, false);
}

std::string link_of(const Container& container) {
  return "/proc/self/fd/" + std::to_string(container.descriptor().value());
}

/// A cache, and the containers of a job on the same file system.
struct Place {
  efs::test::TempDirectory top{"/dev/shm"};
  std::string store = top.path() + "/store";
  std::unique_ptr<Cache> cache;
  unsigned containers = 0;

  explicit Place(std::uint64_t capacity = 64 * mib) {
    stdfs::create_directory(store);
    cache = open(capacity);
  }

  std::unique_ptr<Cache> open(std::uint64_t capacity = 64 * mib) const {
    auto opened = Cache::open(top.path(), capacity);
    REQUIRE(opened);
    return std::move(*opened);
  }

  std::string directory() const { return top.path() + "/efs-cache-" + std::to_string(::geteuid()); }

  /// A container of a job's with this content.
  std::shared_ptr<Container> container(const std::string& content, std::string* name = nullptr) {
    const std::string path = store + "/" + std::to_string(++containers);
    write_file(path, content);
    if (name != nullptr) {
      *name = path;
    }
    return open_container(path);
  }

  /// Adds the container to the cache and removes it from the job's store.
  Status put(const CacheKey& key, const std::string& content) {
    std::string name;
    const auto offered = container(content, &name);
    const Status done = cache->offer(key, *offered, long_after);
    ::unlink(name.c_str());
    return done;
  }

  std::optional<std::string> get(const CacheKey& key) {
    const auto found = cache->find(key, [](Container&) { return false; });
    if (!found) {
      return std::nullopt;
    }
    return content_of(link_of(*found->container));
  }

  std::size_t names() const {
    std::size_t count = 0;
    for (const auto& entry : stdfs::directory_iterator(directory())) {
      count += entry.path().filename() != "state";
    }
    return count;
  }

  std::string data_of(const std::string& path) const {
    return directory() + "/" + entry_name(path);
  }
};

}  // namespace

TEST_CASE("cache entries say which content they are, whatever the path holds", "[cache]") {
  for (const std::string path :
       {"/a", "/with\nnewline", "/with space ", "/\xff\xfe", "/efs-cache-entry 1"}) {
    const CacheEntry entry{.key = {.path = path, .version = {1, 2, 3, -4, 5}}, .held = -4};
    CHECK(parse_entry(format_entry(entry)) == entry);
  }
  const std::string good = format_entry({.key = key_of("/a/b", 3), .held = 9});
  for (std::size_t length = 0; length < good.size(); ++length) {
    CHECK_FALSE(parse_entry(good.substr(0, length)));
  }
  CHECK_FALSE(parse_entry(good + "x"));
  CHECK_FALSE(parse_entry("efs-cache-entry 2" + good.substr(17)));
}

TEST_CASE("the cache gives what was put there, for its whole key only", "[cache]") {
  Place place;
  const CacheKey key = key_of("/pfs/a", 5);
  CHECK_FALSE(place.get(key));
  REQUIRE(place.put(key, "alpha"));
  CHECK(place.get(key) == "alpha");
  for (auto change : std::vector<std::function<void(CacheKey&)>>{
           [](auto& k) { k.path = "/pfs/b"; }, [](auto& k) { ++k.version.device; },
           [](auto& k) { ++k.version.inode; }, [](auto& k) { ++k.version.size; },
           [](auto& k) { ++k.version.mtime; },
           [](auto& k) {
             ++k.version.ctime;
           }}) {
    CacheKey other = key;
    change(other);
    CHECK_FALSE(place.get(other));
  }
  CHECK(place.get(key) == "alpha");
  // a new version takes the place of the old one
  REQUIRE(place.put(key_of("/pfs/a", 6, 2), "alpha2"));
  CHECK_FALSE(place.get(key));
  CHECK(place.get(key_of("/pfs/a", 6, 2)) == "alpha2");
  CHECK(place.names() == 2);
}

TEST_CASE("a file of another path under the same name is not given", "[cache]") {
  Place place;
  REQUIRE(place.put(key_of("/pfs/a", 5), "alpha"));
  // As if both paths had one hash.
  stdfs::rename(place.data_of("/pfs/a"), place.data_of("/pfs/b"));
  stdfs::rename(place.data_of("/pfs/a") + ".key", place.data_of("/pfs/b") + ".key");
  CHECK_FALSE(place.get(key_of("/pfs/b", 5)));
}

TEST_CASE("what was changed behind the cache's back is dropped", "[cache]") {
  Place place;
  const CacheKey key = key_of("/pfs/a", 5);
  const auto spoil = [&](const std::function<void(const std::string&)>& how) {
    REQUIRE(place.put(key, "alpha"));
    REQUIRE(place.get(key));
    how(place.data_of("/pfs/a"));
    CHECK_FALSE(place.get(key));
    CHECK(place.names() == 0);
  };
  spoil([](const std::string& data) { ::truncate(data.c_str(), 4); });
  spoil([](const std::string& data) { set_mtime(data, 77); });
  // unsealed: its job was about to write
  spoil([](const std::string& data) { ::chmod(data.c_str(), 0600); });
  spoil([](const std::string& data) { ::unlink(data.c_str()); });
  spoil([](const std::string& data) {
    ::unlink(data.c_str()), ::symlink("/etc/passwd", data.c_str());
  });
  REQUIRE(place.put(key, "alpha"));
  write_file(place.data_of("/pfs/a") + ".key", "rubbish");
  CHECK_FALSE(place.get(key));
}

TEST_CASE("a file that has just changed on the PFS is not kept", "[cache]") {
  Place place;
  const CacheKey key = key_of("/pfs/a", 5);
  const auto container = place.container("alpha");
  CHECK(place.cache->offer(key, *container, key.version.ctime + Cache::settling - 1).error().code ==
        EAGAIN);
  // by a clock that goes ahead of ours
  CHECK(place.cache->offer(key, *container, key.version.ctime - 1).error().code == EAGAIN);
  CHECK(place.names() == 0);
  CHECK(place.cache->offer(key, *container, key.version.ctime + Cache::settling));
}

TEST_CASE("the least recently used goes first, and nothing goes above the capacity", "[cache]") {
  Place place(3 * mib + mib / 2);
  const std::string content = random_text(mib, 1);
  const auto key = [](char name) {
    return key_of(std::string("/pfs/") + name, mib);
  };
  for (const char name : {'a', 'b', 'c'}) {
    REQUIRE(place.put(key(name), content));
  }
  REQUIRE(place.get(key('a')));
  REQUIRE(place.put(key('d'), content));
  CHECK(place.get(key('a')));
  CHECK_FALSE(place.get(key('b')));
  CHECK(place.get(key('c')));
  CHECK(place.get(key('d')));
  CHECK(place.put(key_of("/pfs/large", 4 * mib), random_text(4 * mib, 2)).error().code == EFBIG);
  CHECK(place.names() == 6);
  auto files = place.cache->list();
  REQUIRE(files);
  std::uint64_t sum = 0;
  for (const auto& file : *files) {
    sum += file.bytes;
  }
  CHECK(sum == 3 * mib);
  CHECK(files->front().key.path == "/pfs/a");
}

TEST_CASE("a container is in place in one job at a time", "[cache]") {
  Place place;
  const CacheKey key = key_of("/pfs/a", 5);
  REQUIRE(place.put(key, "alpha"));
  const std::string mine = place.store + "/mine";
  const auto link = [&](Container& found) {
    return ::linkat(AT_FDCWD, link_of(found).c_str(), AT_FDCWD, mine.c_str(), AT_SYMLINK_FOLLOW) ==
           0;
  };
  CHECK(place.cache->find(key, link)->adopted);
  CHECK(stat_of(mine).st_ino == stat_of(place.data_of("/pfs/a")).st_ino);
  CHECK(place.cache->list()->front().in_use);
  bool asked = false;
  const auto second = place.cache->find(key, [&](Container&) { return asked = true; });
  REQUIRE(second);
  CHECK_FALSE(asked);
  CHECK_FALSE(second->adopted);
  CHECK(Cache::still_whole(*second->container));
  ::unlink(mine.c_str());
  CHECK(place.cache->find(key, link)->adopted);
}

TEST_CASE("before its container is changed the cache gets a copy", "[cache]") {
  Place place;
  const std::string content = random_text(3 * mib, 3);
  const CacheKey key = key_of("/pfs/a", content.size());
  std::string name;
  const auto container = place.container(content, &name);
  REQUIRE(place.cache->offer(key, *container, long_after));
  CHECK(stat_of(name).st_nlink == 2);
  const auto reader = place.cache->find(key, [](Container&) { return false; });
  place.cache->part(*container, "/pfs/a");
  CHECK(stat_of(name).st_nlink == 1);
  REQUIRE(unseal(*container));
  // a reader that copies from the job's container detects the change
  CHECK_FALSE(Cache::still_whole(*reader->container));
  write_file(name, "changed");
  CHECK((place.get(key) == content));
  place.cache->part(*container, "/pfs/a");  // once more does nothing
  CHECK((place.get(key) == content));
}

TEST_CASE("an entry that has gone is not made again by parting", "[cache]") {
  Place place;
  const CacheKey key = key_of("/pfs/a", 5);
  const auto container = place.container("alpha");
  REQUIRE(place.cache->offer(key, *container, long_after));
  REQUIRE(place.cache->remove([](const CachedFile&) { return true; }));
  place.cache->part(*container, "/pfs/a");
  CHECK(place.names() == 0);
  REQUIRE(place.cache->offer(key, *container, long_after));
  REQUIRE(place.put(key_of("/pfs/a", 6, 2), "alpha2"));  // another version of the same path
  place.cache->part(*container, "/pfs/a");
  CHECK(place.get(key_of("/pfs/a", 6, 2)) == "alpha2");
}

TEST_CASE("what lies on another file system is kept as a copy", "[cache]") {
  Place place;
  const efs::test::TempDirectory elsewhere("/tmp");
  const std::string name = elsewhere.path() + "/container", content = random_text(mib + 17, 4);
  if (stat_of(elsewhere.path()).st_dev == stat_of(place.top.path()).st_dev) {
    SKIP("/tmp and /dev/shm are one file system");
  }
  write_file(name, content);
  ::truncate(name.c_str(), 5 * mib);
  set_mtime(name, 1'234'567'891'234'567'891);
  const auto container = open_container(name, O_RDONLY);
  const CacheKey key = key_of("/pfs/a", 5 * mib);
  REQUIRE(place.cache->offer(key, *container, long_after));
  CHECK((place.get(key) == content_of(name)));
  CHECK(place.cache->list()->front().bytes < 3 * mib);  // holes are kept
}

TEST_CASE("the cache is of one boot and of one user", "[cache]") {
  Place place;
  const CacheKey key = key_of("/pfs/a", 5);
  REQUIRE(place.put(key, "alpha"));
  write_file(place.directory() + "/keepsake", "not of the cache");
  write_file(place.directory() + "/state",
             "efs-cache 1 boot 00000000-0000-0000-0000-000000000000 used 00000000000000004096\n");
  CHECK_FALSE(place.get(key));
  CHECK(place.names() == 1);
  CHECK(stdfs::exists(place.directory() + "/keepsake"));
  ::chmod(place.directory().c_str(), 0750);
  CHECK(Cache::open(place.top.path(), mib).error().code == EPERM);
  stdfs::remove_all(place.directory());
  CHECK(Cache::open(place.top.path(), mib, false).error().code == ENOENT);
  stdfs::create_directory_symlink(place.store, place.directory());
  CHECK_FALSE(Cache::open(place.top.path(), mib));
  stdfs::remove(place.directory());
  if (::geteuid() != 0) {
    SKIP("the owner of a directory is changed by root only");
  }
  stdfs::create_directory(place.directory());
  ::chmod(place.directory().c_str(), 0700);
  REQUIRE(::chown(place.directory().c_str(), 12345, 12345) == 0);
  CHECK(Cache::open(place.top.path(), mib).error().code == EPERM);
}

TEST_CASE("halves that a process left are removed, and the count is put right", "[cache]") {
  Place place(3 * mib);
  const std::string content = random_text(mib, 1);
  REQUIRE(place.put(key_of("/pfs/a", mib), content));
  stdfs::remove(place.data_of("/pfs/a") + ".key");  // killed between the two names
  write_file(place.data_of("/pfs/b") + ".key",
             format_entry({.key = key_of("/pfs/b", 1), .held = 1}));
  REQUIRE(place.put(key_of("/pfs/c", mib), content));
  const auto files = place.cache->list();
  REQUIRE(files);
  CHECK(files->size() == 1);
  CHECK(place.names() == 2);
  REQUIRE(place.put(key_of("/pfs/d", mib), content));
  REQUIRE(place.put(key_of("/pfs/e", mib), content));
  CHECK(place.cache->list()->size() == 3);  // all three: what was left is not counted
}

TEST_CASE("entries are removed by path", "[cache]") {
  Place place;
  for (const std::string path : {"/pfs/a", "/pfs/b", "/other"}) {
    REQUIRE(place.put(key_of(path, 5), "alpha"));
  }
  const auto removed = place.cache->remove(
      [](const CachedFile& file) { return file.key.path.starts_with("/pfs/"); });
  REQUIRE(removed);
  CHECK(removed->files == 2);
  CHECK(place.get(key_of("/other", 5)));
  CHECK_FALSE(place.get(key_of("/pfs/a", 5)));
}

TEST_CASE("the cache gives up what nobody has in place, the oldest first", "[cache]") {
  Place place;
  const std::string content = random_text(mib, 1);
  const auto key = [](char name) {
    return key_of(std::string("/pfs/") + name, mib);
  };
  std::string name;
  const auto container = place.container(content, &name);
  REQUIRE(place.cache->offer(key('a'), *container, long_after));  // a job has it
  for (const char other : {'b', 'c', 'd'}) {
    REQUIRE(place.put(key(other), content));
  }
  CHECK(place.cache->idle_bytes(stat_of(place.store).st_dev) == 3 * mib);
  CHECK(place.cache->idle_bytes(stat_of("/proc").st_dev) == 0);
  place.cache->free_space(mib + 1);
  CHECK(place.get(key('a')));
  CHECK_FALSE(place.get(key('b')));
  CHECK_FALSE(place.get(key('c')));
  CHECK(place.get(key('d')));
}

TEST_CASE("several daemons at once: what is found is what was put there", "[cache]") {
  Place place(2 * mib);  // so small that entries go all the time
  const auto content = [](unsigned n) {
    return std::string(64U << 10U, static_cast<char>('a' + n));
  };
  std::atomic<unsigned> wrong{0}, hits{0}, puts{0};
  {
    std::vector<std::jthread> daemons;
    for (unsigned d = 0; d < 4; ++d) {
      daemons.emplace_back([&, d] {
        auto cache = Cache::open(place.top.path(), 2 * mib);
        for (unsigned i = 0; cache && i < 300; ++i) {
          const unsigned n = (i * 7 + d * 3) % 40;
          const CacheKey key = key_of("/pfs/" + std::to_string(n), 64U << 10U);
          const std::string name = place.store + "/" + std::to_string(d) + "-" + std::to_string(i);
          const auto link = [&](Container& found) {
            return ::linkat(AT_FDCWD, link_of(found).c_str(), AT_FDCWD, name.c_str(),
                            AT_SYMLINK_FOLLOW) == 0;
          };
          if (const auto found = (*cache)->find(key, link)) {
            ++hits;
            const std::string got = content_of(link_of(*found->container));
            if (found->adopted ? got != content(n)
                               : got != content(n) && Cache::still_whole(*found->container)) {
              ++wrong;
            }
            if (!found->adopted) {
              continue;
            }
            const auto mine = open_container(name);  // a job that writes
            (*cache)->part(*mine, key.path);
            if (!unseal(*mine) || mine->write(std::as_bytes(std::span("changed", 7)), 0) != 7) {
              ++wrong;
            }
            ::unlink(name.c_str());
          } else {
            write_file(name, content(n));
            const auto mine = open_container(name);
            if ((*cache)->offer(key, *mine, long_after)) {
              ++puts;
            }
            ::unlink(name.c_str());
          }
        }
      });
    }
  }
  CHECK(wrong == 0);
  CHECK(hits > 0);
  CHECK(puts > 0);
  std::uint64_t sum = 0;
  const auto files = place.cache->list().value();
  for (const auto& file : files) {
    sum += file.bytes;
  }
  CHECK(sum <= 2 * mib);
}

namespace {

// The bytes counted in `state`, and the bytes of all whole entries.
std::pair<std::uint64_t, std::uint64_t> counted_and_taken(const Place& place) {
  const std::string state = content_of(place.directory() + "/state"), key(key_suffix);
  std::uint64_t taken = 0;
  for (const auto& entry : stdfs::directory_iterator(place.directory())) {
    if (stdfs::exists(entry.path().string() + key)) {
      taken += static_cast<std::uint64_t>(stat_of(entry.path()).st_blocks) * 512;
    }
  }
  return {std::stoull(state.substr(state.find(" used ") + 6)), taken};
}

std::ptrdiff_t open_descriptors_here() {
  return std::distance(stdfs::directory_iterator("/proc/self/fd"), stdfs::directory_iterator{});
}

// Three files of a page in a cache that holds no more; the first is in place in a job's store.
struct FullCache {
  static constexpr std::uint64_t page = 4096;
  Place place{3 * page};
  std::shared_ptr<Container> in_place = place.container(content('a')),
                             offered = place.container(content('d'));

  FullCache() {
    REQUIRE(place.cache->offer(key('a'), *in_place, long_after));
    for (const char name : {'b', 'c'}) {
      REQUIRE(place.put(key(name), content(name)));
    }
    REQUIRE(is_shared());
  }

  bool is_shared() const {
    const auto st = in_place->attributes();
    return !st || st->st_nlink > 1;
  }

  static CacheKey key(char name) { return key_of(std::string("/pfs/") + name, page); }

  static std::string content(char name) { return std::string(page, name); }
};

struct CacheUse {
  const char* what;
  std::function<void(FullCache&)> work;
  std::function<bool(FullCache&)> done;  // so it is once it was done without a shortage
};

const CacheUse cache_uses[] = {
    {"find",
     [](FullCache& full) {
       (void)full.place.cache->find(full.key('b'), [](Container&) { return false; });
     },
     [](FullCache& full) {
       return full.place.get(full.key('b')) == full.content('b');
     }},
    {"offer",
     [](FullCache& full) {
       (void)full.place.cache->offer(full.key('d'), *full.offered, long_after);
     },
     [](FullCache& full) {
       return full.place.get(full.key('d')) == full.content('d');
     }},
    {"list", [](FullCache& full) { (void)full.place.cache->list(); },
     [](FullCache& full) {
       return full.place.cache->list()->size() == 3;
     }},
    {"part", [](FullCache& full) { full.place.cache->part(*full.in_place, "/pfs/a"); },
     [](FullCache& full) {
       return !full.is_shared();
     }},
    {"give up", [](FullCache& full) { full.place.cache->free_space(2 * full.page); },
     [](FullCache& full) {
       return !full.place.get(full.key('b')) && !full.place.get(full.key('c'));
     }},
    {"remove",
     [](FullCache& full) {
       (void)full.place.cache->remove(
           [](const CachedFile& file) { return file.key.path == "/pfs/c"; });
     },
     [](FullCache& full) {
       return !full.place.get(full.key('c'));
     }},
};

}  // namespace

TEST_CASE("the cache: every allocation of memory fails once, and for good",
          "[cache][faults][memory]") {
  for (const auto shortage : {efs::test::Shortage::once, efs::test::Shortage::for_good}) {
    for (const auto& use : cache_uses) {
      INFO(use.what);
      const auto allocations =
          efs::test::each_allocation_fails(shortage, [&](const auto& short_of_memory) {
            FullCache full;
            const auto descriptors = open_descriptors_here();
            short_of_memory([&] {
              try {
                use.work(full);
              } catch (const std::bad_alloc&) {
              }
            });
            REQUIRE(open_descriptors_here() == descriptors);
            // The count is never too low; otherwise the cache would exceed its capacity.
            const auto [counted, taken] = counted_and_taken(full.place);
            REQUIRE(counted >= taken);
            for (const char name : {'a', 'b', 'c', 'd'}) {
              REQUIRE(full.place.get(full.key(name)).value_or(full.content(name)) ==
                      full.content(name));
            }
            use.work(full);
            REQUIRE(use.done(full));
          });
      CHECK(allocations > 5);
    }
  }
}
