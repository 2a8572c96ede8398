// SPDX-License-Identifier: BSD-3-Clause
// The death of the process at every call to a store whose containers are no files: another process
// finds every finished step, and of the others at most one, with no container too many.
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/observed_backend.hpp"
#include "support/open_handles.hpp"
#include "support/store_kinds.hpp"
#include "support/temp.hpp"

namespace efs::killed_store_test {

using fs::Filesystem;
using fs::root_ino;

namespace {

/// Names with their contents; "directory" for a directory.
using State = std::map<std::string, std::string>;

/// A step of a job. While it runs, nothing is promised of its paths.
struct Step {
  std::set<std::string> paths;
  std::function<bool(Filesystem&)> run;
};

std::uint64_t ino_of(Filesystem& files, const std::string& path) {
  const auto item = fs::Staging(files).find(path);
  return item ? item->ino : 0;
}

Step create(const std::string& path, mode_t mode = S_IFREG | 0644) {
  return {{path}, [=](Filesystem& files) {
            const auto slash = path.rfind('/');
            const bool below = slash != std::string::npos;
            const auto made =
                files.make_node({}, below ? ino_of(files, path.substr(0, slash)) : root_ino,
                                below ? path.substr(slash + 1) : path, mode, 0);
            return made && (files.forget(made->ino, 1), true);
          }};
}

/// Opens, changes and closes the file.
Step change(const std::string& path, const std::function<bool(Filesystem&, std::uint64_t)>& work) {
  return {{path}, [=](Filesystem& files) {
            const auto ino = ino_of(files, path);
            if (!files.open({}, ino, O_RDWR)) {
              return false;
            }
            const bool done = work(files, ino);
            efs::test::release(files, ino, O_RDWR);
            return done;
          }};
}

Step write(const std::string& path, std::size_t size, char fill, std::uint64_t offset = 0) {
  return change(path, [=](Filesystem& files, std::uint64_t ino) {
    const std::string data(size, fill);
    return files.write({}, ino, std::as_bytes(std::span(data)), offset) == size;
  });
}

Step truncate(const std::string& path, std::uint64_t size) {
  return change(path, [=](Filesystem& files, std::uint64_t ino) {
    return files.setattr({}, ino, {.size = size}).has_value();
  });
}

Step punch(const std::string& path, std::uint64_t offset, std::uint64_t length) {
  return change(path, [=](Filesystem& files, std::uint64_t ino) {
    return files.allocate({}, ino, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length)
        .has_value();
  });
}

Step rename(const std::string& from, const std::string& to) {
  return {{from, to}, [=](Filesystem& files) {
            return files.rename({}, {root_ino, from}, {root_ino, to}, 0).has_value();
          }};
}

Step unlink(const std::string& path) {
  return {{path}, [=](Filesystem& files) {
            return files.unlink({}, root_ino, path).has_value();
          }};
}

Step stage(const std::string& path, std::size_t size, char fill) {
  return {{path}, [=](Filesystem& files) {
            fs::Staging staging(files);
            const std::string data(size, fill);
            const auto file = staging.begin_open_file();
            if (!file || file->container->write(std::as_bytes(std::span(data)), 0) != size ||
                !file->container->set_times(7, 8)) {
              return false;
            }
            const fs::StagedFile staged{.ino = file->ino,
                                        .path = path,
                                        .attributes = {.mode = 0644, .atime = 7, .mtime = 8},
                                        .origin = {.inode = 5, .size = size, .mtime = 8}};
            Status failed;
            return staging.publish_files({&staged, 1}, failed) == 1;
          }};
}

std::vector<Step> steps() {
  return {create("d", S_IFDIR | 0755),
          stage("input", 20'000, 'i'),
          create("d/a"),
          write("d/a", 9000, 'a'),
          write("d/a", 6000, 'b', 7000),
          create("b"),
          write("b", 30'000, 'c'),
          truncate("b", 10'001),
          write("b", 5000, 'd', 40'000),
          punch("b", 2000, 9000),
          write("input", 4096, 'j', 4096),
          create("over"),
          write("over", 5000, 'o'),
          rename("b", "over"),
          stage("again", 5000, 'k'),
          unlink("input"),
          create("last"),
          write("last", 12'345, 'l')};
}

State state_of(Filesystem& files) {
  State state;
  const auto items = fs::Staging(files).walk().value();
  for (const auto& item : items) {
    std::string& content = state[item.path];
    if (!S_ISREG(item.attributes.st_mode)) {
      content = "directory";
      continue;
    }
    content.resize(static_cast<std::size_t>(item.attributes.st_size));
    if (files.read(item.ino, std::as_writable_bytes(std::span(content)), 0) != content.size()) {
      content = "cannot be read";
    }
  }
  return state;
}

State without(State state, const std::set<std::string>& paths) {
  for (const auto& path : paths) {
    state.erase(path);
  }
  return state;
}

/// A store of its own, in a directory.
struct Store {
  explicit Store(
      const std::string& path, test::Observer observer = [](const char*, std::size_t) {})
      : metadata(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
        backend(
            std::make_unique<test::ObservedBackend>(test::in_slab.open(path), std::move(observer))),
        files(Filesystem::open(*backend, {.metadata_directory = metadata.get()}).value()) {}

  /// The state after no step, after the first, and so on.
  std::vector<State> run_all() {
    std::vector<State> states{state_of(*files)};
    for (const auto& step : steps()) {
      REQUIRE(step.run(*files));
      states.push_back(state_of(*files));
    }
    return states;
  }

  /// Every container has a name, and every block in use is a container's.
  void check_space() {
    std::set<std::uint64_t> named, found;
    std::uint64_t bytes = 0;
    const auto items = fs::Staging(*files).walk().value();
    for (const auto& item : items) {
      if (S_ISREG(item.attributes.st_mode)) {
        named.insert(item.ino);
      }
    }
    REQUIRE(backend->for_each([&](std::uint64_t id) {
      found.insert(id);
      bytes += static_cast<std::uint64_t>(backend->attributes(id)->st_blocks) * 512;
    }));
    CHECK(found == named);
    CHECK(backend->space().used == bytes);
  }

  UniqueFd metadata;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Filesystem> files;
};

/// Runs the steps in a child that is killed before call number n (from 1) to the store. `done`
/// counts the finished steps. Returns whether the child was killed.
bool killed_at(std::uint64_t n, const std::string& path, std::atomic<unsigned>& done) {
  done = 0;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::uint64_t calls = 0;
    bool counts = false;
    Store store(path, [&](const char*, std::size_t) {
      if (counts && ++calls == n) {
        ::kill(::getpid(), SIGKILL);
      }
    });
    counts = true;
    for (const auto& step : steps()) {
      if (!step.run(*store.files)) {
        ::_exit(1);
      }
      ++done;
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE((WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0));
  return WIFSIGNALED(status);
}

}  // namespace

TEST_CASE("killed at any call to a store without descriptors, the next process has every step",
          "[crash][stores]") {
  const test::TempDirectory top("/dev/shm");
  const std::string reference = top.path() + "/reference", path = top.path() + "/store";
  std::filesystem::create_directory(reference);
  const auto states = Store(reference).run_all();
  void* shared = ::mmap(nullptr, sizeof(std::atomic<unsigned>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto& done = *new (shared) std::atomic<unsigned>(0);
  const auto seed = test::seed();
  const test::Sample sample(seed);
  std::set<unsigned> interrupted;
  std::uint64_t n = 1 + sample.first;
  for (bool killed = true; killed; n += sample.step) {
    std::filesystem::create_directory(path);
    killed = killed_at(n, path, done);
    INFO("EFS_SAMPLE=" << sample.step << " EFS_TEST_SEED=" << seed << ": killed before call " << n
                       << ", after step " << done);
    {
      Store store(path);
      const std::set<std::string> open_paths =
          killed ? steps().at(done).paths : std::set<std::string>{};
      REQUIRE(
          (without(state_of(*store.files), open_paths) == without(states.at(done), open_paths)));
      store.check_space();
      // It can be used.
      REQUIRE(create("new").run(*store.files));
      REQUIRE(write("new", 7000, 'n').run(*store.files));
      CHECK((state_of(*store.files).at("new") == std::string(7000, 'n')));
    }
    interrupted.insert(done);
    std::filesystem::remove_all(path);
  }
  CHECK(n > steps().size());
  if (sample.step == 1) {
    CHECK(interrupted.size() > steps().size() / 2);
  }
  ::munmap(shared, sizeof(std::atomic<unsigned>));
}

}  // namespace efs::killed_store_test
