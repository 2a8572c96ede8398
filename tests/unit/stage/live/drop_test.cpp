// SPDX-License-Identifier: BSD-3-Clause
#include "stage/live/drop.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "ledger/version.hpp"
#include "stage/pfs/forwarding_pfs.hpp"
#include "stage/resume/resume.hpp"
#include "unit/stage/live_scene.hpp"

namespace efs::stage {
namespace {

/// A PFS that cannot tell what a name leads to.
class StatFails final : public ForwardingPfs {
 public:
  StatFails() : ForwardingPfs(posix_pfs()) {}

  Result<struct stat> fstat(PfsRef) override { return fail(EIO); }
};

/// Acts before a call of fstat(). `at`: the number of the call, from 1.
class ActsAtStat final : public ForwardingPfs {
 public:
  ActsAtStat(int at, std::function<void()> act)
      : ForwardingPfs(posix_pfs()), at_(at), act_(std::move(act)) {}

  Result<struct stat> fstat(PfsRef file) override {
    if (++calls == at_) {
      act_();
    }
    return ForwardingPfs::fstat(file);
  }

  int calls = 0;

 private:
  const int at_;
  const std::function<void()> act_;
};

struct DropScene : test::LiveScene {
  /// Writes files and exports them.
  void home(const std::vector<std::string>& names) {
    for (const auto& name : names) {
      buffer.write(name, "content of " + name);
    }
    const auto receipt = back({.names = names});
    REQUIRE(receipt.totals.staged_out == names.size());
  }

  std::vector<OldVersion::File> files_of(const std::vector<std::string>& names) const {
    std::vector<OldVersion::File> files;
    for (const auto& name : names) {
      files.push_back({.path = name, .ino = buffer.exists(name) ? buffer.ino(name) : 0});
    }
    return files;
  }

  /// Makes the directory "v" with these files.
  void make_version(const std::vector<std::string>& names) {
    auto& files = *buffer.filesystem;
    const auto directory = files.make_node({}, fs::root_ino, "v", S_IFDIR | 0755, 0)->ino;
    for (const auto& name : names) {
      buffer.write(name, "content of " + name);
      REQUIRE(files.rename({}, {fs::root_ino, name}, {directory, name}, 0));
    }
  }

  /// True if the buffer has all these files, or (`all` false) none of them.
  bool has(const std::vector<std::string>& names, bool all = true) const {
    return std::ranges::all_of(names, [&](const auto& name) { return buffer.exists(name) == all; });
  }

  Dropped drop(const std::vector<OldVersion>& versions, PfsIo& pfs = posix_pfs()) {
    return stage::drop({.config = config,
                        .staging = *buffer.staging,
                        .pfs = pfs,
                        .options = options,
                        .progress = progress},
                       versions);
  }

  /// The errno with which the version "v" of these files stays; 0: it was dropped.
  int refused(const std::vector<std::string>& files, PfsIo& pfs = posix_pfs()) {
    const auto dropped = drop({{.path = "v", .files = files_of(files)}}, pfs);
    if (dropped.stayed.empty()) {
      CHECK(dropped.entries.size() == files.size());
      return 0;
    }
    CHECK(dropped.entries.empty());
    CHECK(dropped.stayed.front().version == "v");
    for (const auto& file : files) {
      CHECK((buffer.exists(file) || file == "none"));
    }
    return dropped.stayed.front().why.code;
  }

  std::string result(const std::string& name) const { return config.results_dir + "/" + name; }

  Progress progress;
};

TEST_CASE("what is home is dropped from the buffer and stays at home", "[keep]") {
  DropScene it;
  it.home({"a", "b"});
  const auto a = it.buffer.ino("a"), b = it.buffer.ino("b");
  const auto dropped = it.drop({{.path = "v", .files = it.files_of({"a", "b"})}});
  (void)it.buffer.filesystem->forget(a, 1);  // as the kernel does when a name is gone
  (void)it.buffer.filesystem->forget(b, 1);
  CHECK(dropped.stayed.empty());
  REQUIRE(dropped.entries.size() == 2);
  CHECK(dropped.entries[0].path == "a");
  CHECK(dropped.entries[0].action == Action::kept);
  CHECK(dropped.entries[0].bytes == 12);
  CHECK(dropped.entries[0].reason.starts_with(removed_from_buffer));
  CHECK_FALSE((it.buffer.exists("a") || it.buffer.exists("b")));
  CHECK(it.out("a") == "content of a");
  CHECK(it.buffer.staging->gone().empty());
  CHECK(it.leaks_nothing());
  it.buffer.open();
  CHECK_FALSE(it.buffer.exists("a"));
  CHECK(it.buffer.staging->gone().empty());
}

TEST_CASE("a name that was dropped is this job's when it is made again", "[keep]") {
  DropScene it;
  it.config.existing = config::Existing::fail;
  it.home({"a"});
  REQUIRE(it.refused({"a"}) == 0);
  it.buffer.open();
  it.buffer.write("a", "again");
  CHECK(it.back({.names = {"a"}}).totals.staged_out == 1);
  CHECK(it.out("a") == "again");
}

TEST_CASE("a result that is not home stays", "[keep]") {
  DropScene it;
  it.buffer.write("new", "1");
  CHECK(it.refused({"new"}) == EBUSY);
  CHECK(it.refused({"none"}) == EBUSY);
  it.home({"a"});
  SECTION("changed") {
    it.buffer.write("a", "2");
    CHECK(it.refused({"a"}) == EBUSY);
  }
  SECTION("with other attributes") {
    REQUIRE(it.buffer.filesystem->setattr({}, it.buffer.ino("a"), {.mode = 0600}));
    CHECK(it.refused({"a"}) == EBUSY);
  }
  SECTION("under another name") {
    REQUIRE(it.buffer.filesystem->rename({}, {fs::root_ino, "a"}, {fs::root_ino, "b"}, 0));
    CHECK(it.refused({"b"}) == EBUSY);
  }
  CHECK(it.out("a") == "content of a");
}

TEST_CASE("an input stays", "[keep]") {
  DropScene it;
  REQUIRE(it.in({.names = {"d/a"}}).ok());
  CHECK(it.refused({"d/a"}) == EBUSY);
}

TEST_CASE("a file with several names stays", "[keep]") {
  DropScene it;
  it.home({"a"});
  REQUIRE(it.buffer.filesystem->link({}, it.buffer.ino("a"), fs::root_ino, "b"));
  CHECK(it.refused({"a"}) == EMLINK);
  REQUIRE(it.back({.names = {"b"}}).totals.failed == 0);
  CHECK(it.refused({"a"}) == EMLINK);
}

TEST_CASE("what is no regular file stays", "[keep]") {
  DropScene it;
  REQUIRE(it.buffer.filesystem->make_node({}, fs::root_ino, "dir", S_IFDIR | 0755, 0));
  CHECK(it.refused({"dir"}) == EMLINK);
}

TEST_CASE("a file that a program has open or mapped stays", "[keep]") {
  DropScene it;
  it.home({"a"});
  const auto ino = it.buffer.ino("a");
  SECTION("open for reading") {
    REQUIRE(it.buffer.filesystem->open({}, ino, O_RDONLY));
    CHECK(it.refused({"a"}) == EBUSY);
    efs::test::release(*it.buffer.filesystem, ino, O_RDONLY);
  }
  SECTION("its container is open in another process, or by passthrough") {
    std::string path;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(it.buffer.directory.path())) {
      struct stat st{};
      if (entry.is_regular_file() && ::stat(entry.path().c_str(), &st) == 0 && st.st_size == 12) {
        path = entry.path();
      }
    }
    UniqueFd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(reader);
    CHECK(it.refused({"a"}) == EBUSY);
    void* const memory = ::mmap(nullptr, 12, PROT_READ, MAP_SHARED, reader.get(), 0);
    REQUIRE(memory != MAP_FAILED);
    reader.reset();
    CHECK(it.refused({"a"}) == EBUSY);
    ::munmap(memory, 12);
  }
  CHECK(it.refused({"a"}) == 0);
}

TEST_CASE("a version of which results-dir has another one stays", "[keep]") {
  DropScene it;
  it.home({"a"});
  const std::string there = it.result("a");
  SECTION("removed") {
    REQUIRE(::unlink(there.c_str()) == 0);
    CHECK(it.refused({"a"}) == ENOENT);
  }
  SECTION("replaced") {
    const auto before = efs::test::file_text(there);
    std::ofstream(there + ".new") << before;
    REQUIRE(::rename((there + ".new").c_str(), there.c_str()) == 0);
    CHECK(it.refused({"a"}) == ESTALE);
  }
  SECTION("written in place, with its former times") {
    struct stat before{};
    REQUIRE(::stat(there.c_str(), &before) == 0);
    const UniqueFd file(::open(there.c_str(), O_WRONLY));
    REQUIRE(::pwrite(file.get(), "X", 1, 0) == 1);
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    REQUIRE(::futimens(file.get(), times) == 0);
    CHECK(it.refused({"a"}) == ESTALE);
  }
  SECTION("a directory has its name") {
    REQUIRE(::unlink(there.c_str()) == 0);
    REQUIRE(::mkdir(there.c_str(), 0755) == 0);
    CHECK(it.refused({"a"}) == ESTALE);
  }
  SECTION("no answer") {
    StatFails pfs;
    CHECK(it.refused({"a"}, pfs) == EIO);
  }
  SECTION("results-dir is gone") {
    REQUIRE(::rename(it.config.results_dir.c_str(), (it.config.results_dir + ".away").c_str()) ==
            0);
    CHECK(it.refused({"a"}) == ENOENT);
  }
  CHECK(it.buffer.read("a") == "content of a");
}

TEST_CASE("a version stays whole, and others go", "[keep]") {
  DropScene it;
  it.home({"a", "b", "c"});
  REQUIRE(::unlink(it.result("b").c_str()) == 0);
  const auto dropped = it.drop({{.path = "first", .files = it.files_of({"a", "b"})},
                                {.path = "second", .files = it.files_of({"c"})}});
  REQUIRE(dropped.stayed.size() == 1);
  CHECK(dropped.stayed.front().version == "first");
  CHECK(dropped.stayed.front().file == "b");
  CHECK((it.buffer.exists("a") && it.buffer.exists("b") && !it.buffer.exists("c")));
}

TEST_CASE("after a cancel nothing more is dropped", "[keep]") {
  DropScene it;
  it.home({"a"});
  it.progress.cancel = true;
  CHECK(it.refused({"a"}) == ECANCELED);
  CHECK(it.buffer.exists("a"));
}

TEST_CASE("the check and the removal are one step", "[keep]") {
  DropScene it;
  it.home({"a", "b"});
  auto& staging = *it.buffer.staging;
  const auto copy = [&](const char* name) {
    return *staging.find(name)->pfs.saved;
  };
  const auto a = it.buffer.ino("a");
  CHECK(staging.drop_unused("a", it.buffer.ino("b"), copy("a")).error().code == ESTALE);
  CHECK(staging.drop_unused("a", a, copy("b")).error().code == ESTALE);
  CHECK(staging.drop_unused("none", a, copy("a")).error().code == ENOENT);
  REQUIRE(it.buffer.filesystem->open({}, a, O_RDONLY));
  CHECK(staging.check_unused("a", a, copy("a")).error().code == EBUSY);
  CHECK(staging.drop_unused("a", a, copy("a")).error().code == EBUSY);
  efs::test::release(*it.buffer.filesystem, a, O_RDONLY);
  REQUIRE(staging.check_unused("a", a, copy("a")));
  CHECK(it.buffer.exists("a"));
  REQUIRE(staging.drop_unused("a", a, copy("a")));
  CHECK_FALSE(it.buffer.exists("a"));
  const auto known = copy("b");
  it.buffer.write("b", "2");
  CHECK(staging.drop_unused("b", it.buffer.ino("b"), known).error().code == EBUSY);
}

TEST_CASE("a version of which a program uses one file stays as a whole", "[keep]") {
  DropScene it;
  it.home({"a", "b", "c"});
  const auto ino = it.buffer.ino("c");
  auto& files = *it.buffer.filesystem;
  SECTION("before the look at results-dir, which is not asked then") {
    REQUIRE(files.open({}, ino, O_RDONLY));
    ActsAtStat pfs(1, [] {});
    CHECK(it.refused({"a", "b", "c"}, pfs) == EBUSY);
    CHECK(pfs.calls == 0);
  }
  SECTION("during it") {
    ActsAtStat pfs(3, [&] { REQUIRE(files.open({}, ino, O_RDONLY)); });
    CHECK(it.refused({"a", "b", "c"}, pfs) == EBUSY);
    CHECK(pfs.calls == 3);
    CHECK(it.progress.files_done == 3);  // so a large drop does not seem to stand
  }
  CHECK(it.has({"a", "b", "c"}));
  efs::test::release(files, ino, O_RDONLY);
  CHECK(it.refused({"a", "b", "c"}) == 0);
}

TEST_CASE("results-dir is asked for each file right before its removal", "[keep]") {
  DropScene it;
  it.home({"a", "b"});
  ActsAtStat pfs(4, [&] { std::ofstream(it.result("b")) << "theirs"; });
  const auto dropped = it.drop({{.path = "v", .files = it.files_of({"a", "b"})}}, pfs);
  REQUIRE(dropped.stayed.size() == 1);
  CHECK((dropped.stayed.front().file == "b" && dropped.stayed.front().why.code == ESTALE));
  CHECK(dropped.entries.size() == 1);
  CHECK((!it.buffer.exists("a") && it.buffer.read("b") == "content of b"));
}

TEST_CASE("a name that leads to another file by now stays", "[keep]") {
  DropScene it;
  it.home({"a", "b"});
  const auto chosen = it.files_of({"a"});
  auto& files = *it.buffer.filesystem;
  REQUIRE(files.unlink({}, fs::root_ino, "a"));
  it.home({"a"});
  const auto dropped = it.drop({{.path = "v", .files = chosen}});
  REQUIRE(dropped.stayed.size() == 1);
  CHECK(dropped.stayed.front().why.code == EBUSY);
  CHECK(it.buffer.exists("a"));
}

TEST_CASE("a version stays if a newer one has changed since the choice", "[keep]") {
  DropScene it;
  it.home({"1", "2", "3"});
  const OldVersion old{
      .path = "1",
      .files = it.files_of({"1"}),
      .newer = std::make_shared<const std::vector<OldVersion::File>>(it.files_of({"2", "3"}))};
  auto& files = *it.buffer.filesystem;
  const auto third = it.buffer.ino("3");
  bool is_written = false;
  SECTION("removed while the PFS is asked") {
    ActsAtStat pfs(1, [&] { REQUIRE(files.unlink({}, fs::root_ino, "3")); });
    REQUIRE(it.drop({old}, pfs).stayed.size() == 1);
    CHECK(it.buffer.read("1") == "content of 1");
    return;
  }
  SECTION("nothing changed") {
    CHECK(it.drop({old}).stayed.empty());
    return;
  }
  SECTION("removed") {
    REQUIRE(files.unlink({}, fs::root_ino, "3"));
  }
  SECTION("renamed") {
    REQUIRE(files.rename({}, {fs::root_ino, "3"}, {fs::root_ino, "4"}, 0));
  }
  SECTION("another file has its name") {
    REQUIRE(files.rename({}, {fs::root_ino, "2"}, {fs::root_ino, "3"}, 0));
  }
  SECTION("written") {
    is_written = true;
    REQUIRE(files.open({}, third, O_WRONLY));
    REQUIRE(files.setattr({}, third, {.size = 0}));
  }
  const auto dropped = it.drop({old});
  REQUIRE(dropped.stayed.size() == 1);
  CHECK(dropped.stayed.front().why.code == EBUSY);
  CHECK(it.buffer.read("1") == "content of 1");
  if (is_written) {
    efs::test::release(files, third, O_WRONLY);
  }
}

TEST_CASE("a directory that has changed stays", "[keep]") {
  DropScene it;
  it.config.outputs = {{.pattern = "v/tmp*", .file_class = config::FileClass::temporary},
                       {.pattern = "v*", .drain = std::chrono::seconds(0), .keep = 1}};
  it.make_version({"a", "b", "c", "tmp"});
  REQUIRE(it.back({.names = {"v/a", "v/b", "v/c"}}).totals.staged_out == 3);
  auto& files = *it.buffer.filesystem;
  SECTION("a file is not listed") {
    CHECK(it.refused({"v/a", "v/b"}) == EBUSY);
  }
  SECTION("a file is new") {
    it.buffer.write("d", "new");
    REQUIRE(files.rename({}, {fs::root_ino, "d"}, {it.buffer.ino("v"), "d"}, 0));
    CHECK(it.refused({"v/a", "v/b", "v/c"}) == EBUSY);
    CHECK(it.buffer.exists("v/d"));
    return;
  }
  SECTION("a program writes a file that is no result") {
    const auto ino = it.buffer.ino("v/tmp");
    REQUIRE(files.open({}, ino, O_WRONLY));
    CHECK(it.refused({"v/a", "v/b", "v/c"}) == EBUSY);
    efs::test::release(files, ino, O_WRONLY);
  }
  CHECK(it.has({"v/a", "v/b", "v/c"}));
  CHECK(it.refused({"v/a", "v/b", "v/c"}) == 0);
  CHECK(it.has({"v/a", "v/b", "v/c"}, false));
  CHECK(it.buffer.exists("v/tmp"));
}

TEST_CASE("in place, a start that resumes the job does not import what was dropped", "[keep]") {
  DropScene it;
  it.config.in_place = true;
  it.config.results_dir = it.config.root_dir;
  it.config.resources = {{.path = it.config.root_dir}};
  it.home({"a", "b"});
  REQUIRE(it.refused({"a"}) == 0);
  it.buffer.open();
  Plan plan;
  for (const auto* name : {"a", "b"}) {
    struct stat st{};
    REQUIRE(::stat(it.result(name).c_str(), &st) == 0);
    PlanEntry& entry = plan.entries.emplace_back();
    entry.path = name;
    entry.type = EntryType::file;
    entry.size = static_cast<std::uint64_t>(st.st_size);
    entry.origin = ledger::version_of(st);
  }
  const auto never = [](const std::string&) -> Result<bool> {
    return false;
  };
  auto away = stays_away(it.config, plan, *it.buffer.staging, false, never).value();
  REQUIRE(away.size() == 1);
  CHECK(away.front().path == "a");
  CHECK(stays_away(it.config, plan, *it.buffer.staging, true, never).value().empty());
  subtract(plan, it.buffer.staging->walk().value(), away);
  CHECK(std::ranges::none_of(plan.entries, [](const auto& one) { return one.path == "a"; }));
  std::ofstream(it.result("a")) << "a later version from elsewhere";
  struct stat st{};
  REQUIRE(::stat(it.result("a").c_str(), &st) == 0);
  plan.entries = {PlanEntry{}};
  plan.entries.front().path = "a";
  plan.entries.front().type = EntryType::file;
  plan.entries.front().origin = ledger::version_of(st);
  CHECK(stays_away(it.config, plan, *it.buffer.staging, false, never).value().empty());
}

struct UnsentScene : DropScene {
  UnsentScene() {
    config.outputs = {{.pattern = "v*", .drain = std::chrono::seconds(0), .keep = 1}};
    for (const char* name : {"v1", "v2"}) {
      buffer.write(name, "content of " + std::string(name));
    }
  }

  /// The errno with which "v1" stays while "v2" is newer; 0: it was dropped.
  int unsent(const std::vector<std::string>& names = {"v1"}, const std::string& path = "v1") {
    const auto newer = std::make_shared<const std::vector<OldVersion::File>>(files_of({"v2"}));
    const auto dropped =
        drop({{.path = path, .files = files_of(names), .newer = newer, .is_unsent = true}});
    entries = dropped.entries;
    if (dropped.stayed.empty()) {
      CHECK(has(names, false));
      return 0;
    }
    CHECK(entries.empty());
    CHECK(has(names));
    return dropped.stayed.front().why.code;
  }

  std::vector<ReceiptEntry> entries;
};

TEST_CASE("a version that was never sent is dropped, and told", "[drain][keep]") {
  UnsentScene it;
  REQUIRE(it.unsent() == 0);
  REQUIRE(it.entries.size() == 1);
  CHECK((it.entries[0].path == "v1" && it.entries[0].action == Action::dropped));
  CHECK((it.entries[0].reason == dropped_unsent && it.entries[0].bytes == 13));
  const auto dropped = it.buffer.staging->dropped();
  REQUIRE(dropped.size() == 1);
  CHECK((dropped[0].path == "v1" && !dropped[0].was_sent && dropped[0].size == 13));
  CHECK(dropped[0].mtime == it.entries[0].mtime);
  CHECK(it.buffer.staging->gone(true).empty());  // it is no input that the job removed
  // a file of this name is a new one, and is sent as such
  it.buffer.write("v1", "again");
  CHECK(it.buffer.staging->dropped().empty());
  const std::vector<std::string> names{"v1"};
  CHECK_FALSE(it.buffer.staging->look(names)->at(0).pfs.replaced);
  CHECK(it.buffer.staging->is_only_here("v1", it.buffer.ino("v1")));
  CHECK(it.back({.names = names}).totals.staged_out == 1);
  CHECK_FALSE(it.buffer.staging->is_only_here("v1", it.buffer.ino("v1")));
  CHECK(it.unsent() == EMLINK);  // results-dir has it
  REQUIRE(it.buffer.filesystem->unlink({}, fs::root_ino, "v1"));
  CHECK(it.buffer.staging->dropped().empty());
}

TEST_CASE("the files of a version that was never sent go at once or not at all", "[drain][keep]") {
  UnsentScene it;
  it.make_version({"a", "b"});
  const auto b = it.buffer.ino("v/b");
  REQUIRE(it.buffer.filesystem->open({}, b, O_RDONLY));
  CHECK(it.unsent({"v/a", "v/b"}, "v") == EBUSY);
  efs::test::release(*it.buffer.filesystem, b, O_RDONLY);
  CHECK(it.unsent({"v/a"}, "v") == EBUSY);  // the other one is part of it
  CHECK(it.unsent({"v/a", "v/b"}, "v") == 0);
  CHECK(it.entries.size() == 2);
}

TEST_CASE("a version that was never sent stays unless the newer one is whole", "[drain][keep]") {
  UnsentScene it;
  auto& files = *it.buffer.filesystem;
  const auto newer = it.buffer.ino("v2");
  REQUIRE(files.open({}, newer, O_WRONLY));
  CHECK(it.unsent() == EBUSY);
  efs::test::release(files, newer, O_WRONLY);
  const auto inos = it.files_of({"v1", "v2"});
  auto& staging = *it.buffer.staging;
  const auto edits = staging.writers(newer)->edits;
  const fs::Staging::UnsentFile old{.path = "v1", .ino = inos[0].ino};
  const auto dropped = [&](const fs::Staging::UnchangedFile& one) {
    return staging.drop_unsent({&old, 1}, {&one, 1});
  };
  CHECK(dropped({.path = "v2", .ino = newer, .edits = edits - 1}).error().code == EBUSY);
  CHECK(dropped({.path = "v3", .ino = newer, .edits = edits}).error().code == EBUSY);
  REQUIRE(files.rename({}, {fs::root_ino, "v2"}, {fs::root_ino, "v3"}, 0));
  CHECK(dropped({.path = "v2", .ino = newer, .edits = edits}).error().code == EBUSY);
  CHECK(it.buffer.exists("v1"));
  CHECK(dropped({.path = "v3", .ino = newer, .edits = staging.writers(newer)->edits}));
}

TEST_CASE("a file that something else needs is not dropped unsent", "[drain][keep]") {
  UnsentScene it;
  auto& files = *it.buffer.filesystem;
  const auto ino = it.buffer.ino("v1");
  SECTION("it is exported") {
    REQUIRE(it.back({.names = {"v1"}}).totals.staged_out == 1);
  }
  SECTION("it has a class") {
    REQUIRE(it.buffer.staging->set_keep("v1", fs::Keep::persistent));
  }
  SECTION("all have a class") {
    REQUIRE(it.buffer.staging->set_keep("", fs::Keep::persistent));
  }
  SECTION("it has another name") {
    REQUIRE(files.link({}, ino, fs::root_ino, "other"));
  }
  CHECK(it.unsent() == EMLINK);
}

TEST_CASE("a receipt lists what was dropped", "[drain][keep]") {
  Receipt receipt;
  ReceiptEntry known;
  known.path = "home", known.action = Action::kept, known.reason = "x";
  receipt.entries = {known};
  known.path = "twice";
  receipt.entries.push_back(known);
  const std::vector<fs::DroppedResult> dropped{{.path = "home", .was_sent = true},
                                               {.path = "lost", .size = 3, .mtime = 4},
                                               {.path = "sent", .size = 5, .was_sent = true},
                                               {.path = "twice"}};
  Receipt without = receipt;
  add_dropped(receipt, dropped, true);
  add_dropped(without, dropped, false);
  REQUIRE((receipt.entries.size() == 4 && without.entries.size() == 3));
  CHECK((receipt.entries[0].reason == "x" && receipt.verdict == Verdict::complete));
  CHECK((receipt.entries[1].action == Action::dropped && receipt.entries[1].bytes == 3 &&
         receipt.entries[1].mtime == 4 && receipt.entries[1].reason == dropped_unsent));
  CHECK((receipt.entries[2].action == Action::kept &&
         receipt.entries[2].reason.contains(removed_from_buffer)));
  CHECK(receipt.entries[3].reason.ends_with(dropped_unsent));
  CHECK((receipt.totals.dropped == 1 && receipt.totals.kept == 3));
}

}  // namespace
}  // namespace efs::stage
