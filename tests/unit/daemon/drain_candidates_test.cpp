// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/drain_candidates.hpp"

#include <fcntl.h>

#include <catch2/catch_test_macros.hpp>

#include "stage/pfs/forwarding_pfs.hpp"
#include "unit/stage/live_scene.hpp"

namespace efs::daemon {
namespace {

using namespace std::chrono_literals;
using stage::test::LiveScene;

const DrainCandidates::Time since{1000h};

/// Acts once, just before the first call of a function.
class ActingPfs final : stage::PfsCallPolicy, public stage::ForwardingPfs {
 public:
  ActingPfs(std::string function, std::function<void()> act)
      : ForwardingPfs(stage::posix_pfs(), this),
        function_(std::move(function)),
        act_(std::move(act)) {}

  bool has_acted() const { return has_acted_; }

 private:
  Status before(const stage::PfsCall& call) override {
    if (call.function == function_ && !has_acted_.exchange(true)) {
      act_();
    }
    return {};
  }

  bool again(const stage::PfsCall&, const Error&, unsigned) override { return false; }

  void made_further_calls(std::uint64_t) override {}

  const std::string function_;
  const std::function<void()> act_;
  std::atomic<bool> has_acted_{false};
};

class WriteFails final : public stage::ForwardingPfs {
 public:
  explicit WriteFails(int code) : ForwardingPfs(stage::posix_pfs()), code_(code) {}

  Result<std::size_t> write(stage::PfsRef, std::span<const std::byte>, std::uint64_t) override {
    return fail(code_);
  }

 private:
  const int code_;
};

struct DrainScene : LiveScene {
  DrainScene() {
    config.outputs = {{.pattern = "tmp*", .file_class = config::FileClass::temporary},
                      {.pattern = "slow*", .drain = std::chrono::seconds(600)},
                      {.pattern = "stop*"},
                      {.pattern = "**", .drain = std::chrono::seconds(0)}};
    buffer.filesystem->watch(&inbox);
  }

  ~DrainScene() { buffer.filesystem->watch(nullptr); }

  /// The names that go so long after `since`, as text.
  std::string due(DrainCandidates::Time::duration after) {
    candidates.absorb(inbox.take(), since);
    batch = candidates.choose(since + after);
    std::string names;
    for (const auto& [path, ino] : batch.files) {
      names += path + " ";
    }
    return names;
  }

  DrainOutcome export_batch(DrainCandidates::Time::duration after,
                            stage::PfsIo& pfs = stage::posix_pfs()) {
    std::vector<std::string> names;
    for (const auto& [path, ino] : batch.files) {
      names.push_back(path);
    }
    const auto receipt =
        back({.names = names, .results_only = true, .are_paths = true, .sets = batch.sets}, pfs);
    return candidates.settle(batch, &receipt, false, since + after);
  }

  ChangeInbox inbox;
  DrainCandidates candidates{config, *buffer.filesystem};
  DrainBatch batch;
};

TEST_CASE("what the rules cover is due when it was closed", "[drain]") {
  DrainScene it;
  it.buffer.write("a", "1");
  it.buffer.write("tmp.b", "2");
  it.buffer.write("slow", "3");
  it.buffer.write("stop", "4");
  CHECK(it.due(500ms) == "");
  CHECK(it.due(1s) == "a ");
  CHECK(it.candidates.due() == 2);
  const auto outcome = it.export_batch(2s);
  CHECK((outcome.files == 1 && outcome.bytes == 1 && outcome.failed == 0));
  CHECK(it.out("a") == "1");
  CHECK(it.out("slow") == "(not there)");
  CHECK(it.due(10min) == "slow ");
  CHECK(it.export_batch(10min).files == 1);
  CHECK(it.candidates.due() == 0);
  CHECK_FALSE(it.candidates.next());
}

TEST_CASE("what is home goes again only when it changes", "[drain]") {
  DrainScene it;
  it.buffer.write("a", "1");
  REQUIRE(it.due(1s) == "a ");
  it.export_batch(1s);
  CHECK(it.due(1h) == "");
  it.buffer.write("a", "22");
  REQUIRE(it.due(1s) == "a ");
  CHECK(it.export_batch(1s).files == 1);
  CHECK(it.out("a") == "22");
  REQUIRE(it.buffer.filesystem->setattr({}, it.buffer.ino("a"), {.mode = 0600}));
  CHECK(it.due(1s) == "a ");
}

TEST_CASE("what is said to have changed and is home is not due", "[drain]") {
  DrainScene it;
  const Change change{
      .kind = Change::Kind::changed, .ino = it.buffer.write("slow", "1"), .name = {}};
  REQUIRE(it.due(10min) == "slow ");
  const auto receipt = it.back({.names = {"slow"}, .results_only = true, .are_paths = true});
  it.candidates.absorb({.changes = {change}}, since + 10min);
  CHECK(it.candidates.settle(it.batch, &receipt, false, since + 10min).files == 1);
  CHECK(it.candidates.due() == 0);
  it.candidates.absorb({.changes = {change}}, since + 10min);
  CHECK(it.candidates.due() == 0);
  CHECK_FALSE(it.candidates.next());
}

TEST_CASE("a file that changes while its export begins waits from then on", "[drain]") {
  DrainScene it;
  const Change change{
      .kind = Change::Kind::changed, .ino = it.buffer.write("slow", "1"), .name = {}};
  REQUIRE(it.due(10min) == "slow ");
  it.candidates.absorb({.changes = {change}}, since + 10min);
  CHECK(it.candidates.next() == since + 20min);
}

TEST_CASE("files that were removed before their time need no memory", "[drain]") {
  DrainScene it;
  auto& files = *it.buffer.filesystem;
  for (int i = 0; i < 3000; ++i) {
    const std::string name = "slow" + std::to_string(i);
    const auto made = files.make_node({}, fs::root_ino, name, S_IFREG | 0644, 0);
    it.candidates.absorb(it.inbox.take(), since);
    REQUIRE(files.unlink({}, fs::root_ino, name));
    (void)files.forget(made->ino, 1);
  }
  CHECK(it.candidates.due() <= 1024);
}

TEST_CASE("a change after an export that was noted before its end is not lost", "[drain]") {
  DrainScene it;
  it.buffer.write("slow", "1");
  REQUIRE(it.due(10min) == "slow ");
  const auto receipt = it.back({.names = {"slow"}, .results_only = true, .are_paths = true});
  it.buffer.write("slow", "22");
  it.candidates.absorb(it.inbox.take(), since + 10min);
  it.candidates.settle(it.batch, &receipt, false, since + 10min);
  CHECK(it.candidates.next() == since + 20min);
  it.batch = it.candidates.choose(since + 20min);
  CHECK(it.export_batch(20min).files == 1);
  CHECK(it.out("slow") == "22");
}

TEST_CASE("a renamed file goes under its last name only", "[drain]") {
  DrainScene it;
  it.buffer.write("a.part", "1");
  it.buffer.write("tmp.b", "2");
  auto& files = *it.buffer.filesystem;
  REQUIRE(files.rename({}, {fs::root_ino, "a.part"}, {fs::root_ino, "a"}, 0));
  REQUIRE(files.rename({}, {fs::root_ino, "tmp.b"}, {fs::root_ino, "b"}, 0));
  REQUIRE(it.due(1s) == "a b ");
  CHECK(it.export_batch(1s).files == 2);
  CHECK(it.out("a.part") == "(not there)");
  CHECK(it.out("b") == "2");
  CHECK(it.due(1h) == "");
}

TEST_CASE("files in a directory that gets another name are found", "[drain]") {
  DrainScene it;
  auto& files = *it.buffer.filesystem;
  const auto d = files.make_node({}, fs::root_ino, "tmp", S_IFDIR | 0755, 0)->ino;
  REQUIRE(files.make_node({}, d, "f", S_IFREG | 0644, 0));
  CHECK(it.due(1h) == "");
  REQUIRE(files.rename({}, {fs::root_ino, "tmp"}, {fs::root_ino, "set"}, 0));
  CHECK(it.due(1h) == "set/f ");
}

TEST_CASE("a file that a program may write to waits for its close", "[drain]") {
  DrainScene it;
  const auto ino = it.buffer.write("a", "1");
  const auto handle = it.buffer.filesystem->open({}, ino, O_WRONLY)->handle;
  CHECK(it.due(1s) == "");
  CHECK(it.candidates.due() == 1);
  CHECK(it.candidates.next() == since + 3s);
  REQUIRE(it.buffer.filesystem->release(handle));
  CHECK(it.due(1s) == "a ");
}

TEST_CASE("a file that is opened for writing during the copy goes after its close", "[drain]") {
  DrainScene it;
  const auto ino = it.buffer.write("a", "1");
  REQUIRE(it.due(1s) == "a ");
  const auto handle = it.buffer.filesystem->open({}, ino, O_WRONLY)->handle;
  const auto outcome = it.export_batch(1s);
  CHECK((outcome.files == 0 && outcome.failed == 0));
  CHECK(it.out("a") == "(not there)");
  REQUIRE(it.buffer.filesystem->release(handle));
  CHECK(it.due(1s) == "a ");
}

TEST_CASE("what fails goes again, one at a time until one succeeds", "[drain]") {
  DrainScene it;
  it.buffer.write("a", "1");
  it.buffer.write("b", "2");
  stage::test::stdfs::remove(it.config.results_dir);
  std::ofstream(it.config.results_dir) << "in its place";
  REQUIRE(it.due(1s) == "a b ");
  auto outcome = it.export_batch(1s);
  CHECK((outcome.files == 0 && outcome.failed == 2 && !outcome.error.empty()));
  CHECK(it.candidates.next() == since + 6s);
  CHECK(it.due(5s) == "");
  CHECK(it.due(6s) == "a ");
  stage::test::stdfs::remove(it.config.results_dir);
  CHECK(it.export_batch(6s).files == 1);
  CHECK(it.due(6s) == "b ");
  CHECK(it.export_batch(6s).files == 1);
  CHECK(it.candidates.due() == 0);
}

TEST_CASE("a conflict does not go again until the file changes", "[drain]") {
  DrainScene it;
  it.config.existing = config::Existing::fail;
  stage::test::stdfs::create_directories(it.config.results_dir);
  std::ofstream(it.config.results_dir + "/a") << "theirs";
  it.buffer.write("a", "1");
  it.buffer.write("b", "2");
  REQUIRE(it.due(1s) == "a b ");
  const auto outcome = it.export_batch(1s);
  CHECK((outcome.files == 1 && outcome.failed == 1 && outcome.error.starts_with("a: ")));
  CHECK(it.out("a") == "theirs");
  CHECK(it.due(1h) == "");
  CHECK(it.candidates.due() == 1);
  it.buffer.write("a", "11");
  REQUIRE(it.due(1s) == "a ");
  CHECK(it.candidates.due() == 1);
  stage::test::stdfs::remove(it.config.results_dir + "/a");
  CHECK(it.export_batch(1s).files == 1);
  CHECK(it.candidates.due() == 0);
}

TEST_CASE("what was kept beside another file is left to the stop", "[drain]") {
  DrainScene it;
  it.config.existing = config::Existing::keep_both;
  std::ofstream(it.config.results_dir + "/a") << "theirs";
  it.buffer.write("a", "1");
  REQUIRE(it.due(1s) == "a ");
  CHECK(it.export_batch(1s).files == 1);
  CHECK(it.out("a.efs-job") == "1");
  CHECK(it.due(1h) == "");
  // each further copy would have a name of its own
  it.buffer.write("a", "11");
  CHECK(it.due(1s) == "");
  it.buffer.write("b", "2");
  REQUIRE(it.buffer.filesystem->rename({}, {fs::root_ino, "b"}, {fs::root_ino, "a"}, 0));
  CHECK(it.due(1h) == "");
  CHECK(it.candidates.due() == 1);
}

TEST_CASE("what was not tried is due again soon", "[drain]") {
  DrainScene it;
  it.buffer.write("a", "1");
  REQUIRE(it.due(1s) == "a ");
  CHECK(it.candidates.settle(it.batch, nullptr, true, since + 1s).failed == 0);
  CHECK(it.due(1s) == "");
  CHECK(it.due(2s) == "a ");
}

TEST_CASE("what the export does not mention is tried again ever more rarely", "[drain]") {
  DrainScene it;
  it.buffer.write("a", "1");
  REQUIRE(it.due(1s) == "a ");
  const stage::Receipt without;
  CHECK(it.candidates.settle(it.batch, &without, false, since + 1s).failed == 0);
  CHECK(it.candidates.next() == since + 3s);
  REQUIRE(it.due(3s) == "a ");
  it.candidates.settle(it.batch, &without, false, since + 3s);
  CHECK(it.candidates.next() == since + 7s);
}

TEST_CASE("a PFS that finds nothing has failed if the buffer has the file", "[drain]") {
  DrainScene it;
  WriteFails pfs(ENOENT);
  it.buffer.write("a", "1");
  REQUIRE(it.due(1s) == "a ");
  const auto outcome = it.export_batch(1s, pfs);
  CHECK((outcome.files == 0 && outcome.failed == 1 && !outcome.error.empty()));
  CHECK(it.candidates.due() == 1);
}

TEST_CASE("a full PFS leaves no partial, and the result goes when there is room", "[drain]") {
  DrainScene it;

  WriteFails full(ENOSPC);

  it.buffer.write("a", "1");
  auto now = 1s;
  for (const auto pause : {2s, 4s, 8s}) {
    REQUIRE(it.due(now) == "a ");
    const auto outcome = it.export_batch(now, full);
    CHECK((outcome.files == 0 && outcome.failed == 1));
    CHECK(it.candidates.next() == since + now + pause);
    CHECK(it.partials() == 0);
    now += pause;
  }
  REQUIRE(it.due(now) == "a ");
  CHECK(it.export_batch(now).files == 1);
}

TEST_CASE("a file that can never go does not delay another one", "[drain]") {
  DrainScene it;
  WriteFails refuses(EACCES);
  it.buffer.write("a", "1");
  auto now = 1s;
  for (const auto wait : {2s, 4s, 8s}) {
    REQUIRE(it.due(now) == "a ");
    CHECK(it.export_batch(now, refuses).failed == 1);
    now += wait;
  }
  it.buffer.write("b", "2");
  CHECK(it.due(now - 1s) == "b ");
}

TEST_CASE("several files that cannot go delay all", "[drain]") {
  DrainScene it;
  WriteFails refuses(EACCES);
  it.buffer.write("a", "1");
  it.buffer.write("b", "2");
  REQUIRE(it.due(1s) == "a b ");
  CHECK(it.export_batch(1s, refuses).failed == 2);
  it.buffer.write("c", "3");
  CHECK(it.due(5s) == "");
  CHECK(it.candidates.next() == since + 6s);
}

TEST_CASE("a file that changes while it is copied keeps its former copy", "[drain]") {
  DrainScene it;
  it.buffer.write("a", "former");
  REQUIRE(it.due(1s) == "a ");
  it.export_batch(1s);
  it.buffer.write("a", "second");
  REQUIRE(it.due(1s) == "a ");
  ActingPfs pfs("write", [&] { it.buffer.write("a", "third!"); });
  const auto outcome = it.export_batch(1s, pfs);
  CHECK(pfs.has_acted());
  CHECK((outcome.files == 0 && outcome.failed == 0));
  CHECK(it.out("a") == "former");
  CHECK(it.partials() == 0);
  REQUIRE(it.due(1s) == "a ");
  CHECK(it.export_batch(1s).files == 1);
  CHECK(it.out("a") == "third!");
}

TEST_CASE("a file that changes while its copy gets its name goes again", "[drain]") {
  DrainScene it;
  it.buffer.write("a", "first");
  REQUIRE(it.due(1s) == "a ");
  ActingPfs pfs("rename", [&] { it.buffer.write("a", "second"); });
  it.export_batch(1s, pfs);
  CHECK(pfs.has_acted());
  CHECK(it.out("a") == "first");
  REQUIRE(it.due(1s) == "a ");
  CHECK(it.export_batch(1s).files == 1);
  CHECK(it.out("a") == "second");
}

TEST_CASE("a file that is renamed while it is copied goes under its last name", "[drain]") {
  for (const char* when : {"write", "rename"}) {
    DrainScene it;
    it.buffer.write("a", "1");
    REQUIRE(it.due(1s) == "a ");
    ActingPfs pfs(when, [&] {
      REQUIRE(it.buffer.filesystem->rename({}, {fs::root_ino, "a"}, {fs::root_ino, "b"}, 0));
    });
    CHECK(it.export_batch(1s, pfs).failed == 0);
    CHECK(pfs.has_acted());
    REQUIRE(it.due(1s) == "b ");
    CHECK(it.export_batch(1s).files == 1);
    CHECK(it.out("b") == "1");
    // another file gets the name that results-dir may have: it is not home
    it.buffer.write("a", "2");
    REQUIRE(it.due(1s) == "a ");
    CHECK(it.export_batch(1s).files == 1);
    CHECK((it.out("a") == "2" && it.out("b") == "1"));
    CHECK(it.candidates.due() == 0);
  }
}

TEST_CASE("a file that is removed while it is copied is not due", "[drain]") {
  for (const char* when : {"write", "rename"}) {
    DrainScene it;
    it.buffer.write("a", "1");
    REQUIRE(it.due(1s) == "a ");
    ActingPfs pfs(when, [&] { REQUIRE(it.buffer.filesystem->unlink({}, fs::root_ino, "a")); });
    CHECK(it.export_batch(1s, pfs).failed == 0);
    CHECK(pfs.has_acted());
    CHECK(it.due(1h) == "");
    CHECK((it.candidates.due() == 0 && it.partials() == 0));
  }
}

TEST_CASE("a name that a file gets when it is home goes as a name of the same file", "[drain]") {
  DrainScene it;
  const auto ino = it.buffer.write("a", "1");
  REQUIRE(it.due(1s) == "a ");
  it.export_batch(1s);
  REQUIRE(it.buffer.filesystem->link({}, ino, fs::root_ino, "b"));
  const std::string names = it.due(1s);
  CHECK(names.contains("b "));
  it.export_batch(1s);
  CHECK((it.out("a") == "1" && it.out("b") == "1"));
  CHECK(stage::test::stdfs::equivalent(it.config.results_dir + "/a", it.config.results_dir + "/b"));
  CHECK(it.due(1h) == "");
}

TEST_CASE("all names of a file go together", "[drain]") {
  DrainScene it;
  const auto ino = it.buffer.write("a", "1");
  REQUIRE(it.buffer.filesystem->link({}, ino, fs::root_ino, "b"));
  REQUIRE(it.due(1s) == "a b ");
  CHECK(it.export_batch(1s).files == 2);
  CHECK(it.due(1h) == "");
  CHECK(it.candidates.due() == 0);
}

TEST_CASE("a removed file is not due", "[drain]") {
  DrainScene it;
  it.buffer.write("a", "1");
  it.buffer.write("b", "1");
  REQUIRE(it.due(1s) == "a b ");
  REQUIRE(it.buffer.filesystem->unlink({}, fs::root_ino, "a"));
  const auto outcome = it.export_batch(1s);
  CHECK((outcome.files == 1 && outcome.failed == 0));
  it.buffer.write("c", "1");
  REQUIRE(it.buffer.filesystem->unlink({}, fs::root_ino, "c"));
  CHECK(it.due(1h) == "");
  CHECK(it.candidates.due() == 0);
}

TEST_CASE("a later process, and one that lost changes, finds what is not home", "[drain]") {
  DrainScene it;
  it.buffer.write("a", "1");
  REQUIRE(it.due(1s) == "a ");
  it.export_batch(1s);
  it.buffer.write("b", "2");
  (void)it.inbox.take();
  DrainCandidates later(it.config, *it.buffer.filesystem);
  later.look(since);
  CHECK(later.due() == 1);
  CHECK(later.choose(since + 1s).files.contains("b"));
  // it knows the file that is home, too
  it.buffer.write("a", "11");
  later.absorb(it.inbox.take(), since);
  CHECK(later.choose(since + 1s).files.contains("a"));
  it.candidates.absorb({.changes = {}, .lost = true}, since);
  CHECK(it.due(1s) == "a b ");
}

TEST_CASE("a name that looks like a pattern is a name", "[drain]") {
  DrainScene it;
  it.config.outputs.insert(it.config.outputs.begin(), {.pattern = "x[[]*"});
  it.config.outputs.insert(it.config.outputs.begin(),
                           {.pattern = "[*]", .drain = std::chrono::seconds(0)});
  it.buffer.write("*", "1");
  it.buffer.write("x[", "2");
  REQUIRE(it.due(1s) == "* ");
  REQUIRE(it.buffer.filesystem->unlink({}, fs::root_ino, "*"));
  CHECK(it.export_batch(1s).files == 0);
  CHECK(it.out("x[") == "(not there)");
}

TEST_CASE("an imported file goes if a rule with drain holds inputs", "[drain]") {
  DrainScene it;
  it.config.resources = {{.path = it.config.root_dir}};
  REQUIRE(it.in({.names = {"d"}}).ok());
  const auto change = [&](const std::string& path) {
    const auto ino = it.buffer.ino(path);
    REQUIRE(it.buffer.filesystem->open({}, ino, O_WRONLY));
    efs::test::release(*it.buffer.filesystem, ino, O_WRONLY);
  };
  change("d/a");
  CHECK(it.due(1s) == "");
  it.config.outputs.insert(
      it.config.outputs.begin(),
      {.pattern = "d", .holds_inputs = true, .drain = std::chrono::seconds(0)});
  it.candidates.look(since);
  CHECK(it.due(1s) == "d/a ");
  change("d/b");
  CHECK(it.due(1s) == "d/b ");
}

/// Directories that get their names by a rename.
struct DrainSetScene : DrainScene {
  DrainSetScene() { options.partial_tag = ".0123456789ab"; }

  std::uint64_t make(const std::string& name, const std::vector<std::string>& names) {
    auto& files = *buffer.filesystem;
    const auto directory = files.make_node({}, fs::root_ino, name, S_IFDIR | 0755, 0)->ino;
    for (const auto& one : names) {
      buffer.write(one, one);
      REQUIRE(files.rename({}, {fs::root_ino, one}, {directory, one}, 0));
    }
    return directory;
  }

  void name(const std::string& from, const std::string& to) {
    REQUIRE(buffer.filesystem->rename({}, {fs::root_ino, from}, {fs::root_ino, to}, 0));
  }
};

TEST_CASE("a directory that gets its name by a rename goes as a whole", "[drain][sets]") {
  DrainSetScene it;
  it.make("tmp.1", {"x", "y"});
  it.buffer.write("a", "1");
  CHECK(it.due(1s) == "a ");
  it.export_batch(1s);
  it.name("tmp.1", "one");
  const auto y = it.buffer.ino("one/y");
  REQUIRE(it.buffer.filesystem->open({}, y, O_WRONLY));
  CHECK(it.due(1s) == "");
  CHECK(it.due(10s) == "");
  efs::test::release(*it.buffer.filesystem, y, O_WRONLY);
  REQUIRE(it.due(1h) == "one/x one/y ");
  CHECK(it.batch.sets == std::vector<std::string>{"one"});
  CHECK(it.export_batch(1h).files == 2);
  CHECK((it.out("one/x") == "x" && it.out("one/y") == "y"));
  CHECK(it.candidates.due() == 0);
  // from then on its files go one by one
  it.buffer.write("more", "1");
  REQUIRE(
      it.buffer.filesystem->rename({}, {fs::root_ino, "more"}, {it.buffer.ino("one"), "more"}, 0));
  REQUIRE(it.due(2h) == "one/more ");
  CHECK(it.batch.sets.empty());
  CHECK(it.export_batch(2h).files == 1);
}

TEST_CASE("a set that is home goes again file by file", "[drain][sets]") {
  DrainSetScene it;
  it.make("tmp.1", {"x"});
  it.name("tmp.1", "one");
  const auto changed = [&] {
    const auto ino = it.buffer.ino("one/x");
    REQUIRE(it.buffer.filesystem->open({}, ino, O_WRONLY));
    efs::test::release(*it.buffer.filesystem, ino, O_WRONLY);
  };
  REQUIRE(it.due(1s) == "one/x ");
  CHECK(it.batch.sets.size() == 1);
  CHECK(it.export_batch(1s).files == 1);
  changed();
  CHECK(it.due(1h) == "one/x ");
  CHECK(it.batch.sets.empty());
  it.candidates.look(since);
  it.export_batch(1h);  // results-dir has the same content already
  CHECK(it.candidates.due() == 0);
  changed();
  CHECK(it.due(2h) == "one/x ");
  CHECK(it.batch.sets.empty());
}

TEST_CASE("a directory that is filled under its name goes file by file", "[drain][sets]") {
  DrainSetScene it;
  it.make("made", {"x", "y"});
  CHECK(it.due(1s) == "made/x made/y ");
  CHECK(it.batch.sets.empty());
  it.export_batch(1s);
  // it has got a name since its rename
  const auto directory = it.make("tmp.2", {"z"});
  it.name("tmp.2", "two");
  CHECK(it.due(0s) == "");
  std::this_thread::sleep_for(20ms);  // the kernel's clock of files has ticks
  it.buffer.write("more", "1");
  REQUIRE(it.buffer.filesystem->rename({}, {fs::root_ino, "more"}, {directory, "more"}, 0));
  CHECK(it.due(1s) == "two/more two/z ");
  CHECK(it.batch.sets.empty());
}

TEST_CASE("a later process knows sets by their times", "[drain][sets]") {
  DrainSetScene it;
  it.make("tmp.1", {"x", "y"});
  std::this_thread::sleep_for(20ms);  // the kernel's clock of files has ticks
  it.name("tmp.1", "one");
  it.make("two", {"z"});
  (void)it.inbox.take();
  it.candidates.look(since);
  CHECK(it.due(1s) == "one/x one/y two/z ");
  CHECK(it.batch.sets == std::vector<std::string>{"one"});
}

TEST_CASE("a set that is in conflict waits for a change", "[drain][sets]") {
  DrainSetScene it;
  std::filesystem::create_directory(it.config.results_dir + "/one");
  it.make("tmp.1", {"x", "y"});
  it.name("tmp.1", "one");
  REQUIRE(it.due(1s) == "one/x one/y ");
  const auto outcome = it.export_batch(1s);
  CHECK((outcome.files == 0 && outcome.failed == 2));
  CHECK(it.due(1h) == "");
  CHECK(it.candidates.due() == 2);
}

/// The rule for versions comes first. Results go home by settle().
struct KeepScene : DrainScene {
  KeepScene() {
    config.outputs.insert(config.outputs.begin(),
                          {.pattern = "ckpt*", .drain = std::chrono::seconds(0), .keep = 1});
  }

  std::string old(DrainCandidates::Time now) {
    candidates.absorb(inbox.take(), now);
    chosen = candidates.choose_old(now);
    if (config::sends_some_versions(config) &&
        candidates.next() == now + KeptVersions::quiet_time) {
      chosen = candidates.choose_old(now + KeptVersions::quiet_time);
    }
    std::string names;
    for (const auto& version : chosen) {
      names += version.path + " ";
    }
    return names;
  }

  stage::Dropped drop() {
    stage::Progress progress;
    return stage::drop({.config = config,
                        .staging = *buffer.staging,
                        .pfs = stage::posix_pfs(),
                        .options = options,
                        .progress = progress},
                       chosen);
  }

  std::vector<stage::OldVersion> chosen;
};

TEST_CASE("an old version is dropped when it is home, and the newest stays", "[drain][keep]") {
  KeepScene it;
  it.buffer.write("ckpt1", "1");
  it.buffer.write("ckpt2", "2");
  it.buffer.write("other1", "3");
  it.buffer.write("other2", "4");
  CHECK(it.old(since) == "");
  REQUIRE(it.due(1s) == "ckpt1 ckpt2 other1 other2 ");
  CHECK(it.export_batch(1s).files == 4);
  CHECK(it.candidates.next());
  REQUIRE(it.old(since + 1s) == "ckpt1 ");
  const auto dropped = it.drop();
  CHECK(it.candidates.settle_old(it.chosen, &dropped, since + 1s).empty());
  CHECK((!it.buffer.exists("ckpt1") && it.buffer.exists("ckpt2")));
  CHECK(it.old(since + 1h) == "");
  CHECK_FALSE(it.candidates.next());
  CHECK(it.due(1h) == "");
  CHECK(it.candidates.due() == 0);
}

TEST_CASE("the version that was closed last is the newest", "[drain][keep]") {
  KeepScene it;
  auto& files = *it.buffer.filesystem;
  const auto first = it.buffer.write("ckpt1", "1");
  REQUIRE(files.open({}, first, O_WRONLY));
  it.buffer.write("ckpt2", "2");
  CHECK(it.old(since) == "");
  efs::test::release(files, first, O_WRONLY);
  REQUIRE(it.due(1s) == "ckpt1 ckpt2 ");
  CHECK(it.export_batch(1s).files == 2);
  CHECK(it.old(since + 1s) == "ckpt2 ");
}

TEST_CASE("a version that gets its name last is the newest", "[drain][keep]") {
  KeepScene it;
  auto& files = *it.buffer.filesystem;
  it.buffer.write("tmp.new", "2");  // no rule with `keep` covers it
  it.buffer.write("ckpt1", "1");
  REQUIRE(files.rename({}, {fs::root_ino, "tmp.new"}, {fs::root_ino, "ckpt2"}, 0));
  REQUIRE(it.due(1s) == "ckpt1 ckpt2 ");
  CHECK(it.export_batch(1s).files == 2);
  CHECK(it.old(since + 1s) == "ckpt1 ");
}

TEST_CASE("a close that was lost does not make the version the oldest", "[drain][keep]") {
  KeepScene it;
  it.buffer.write("ckpt1", "1");
  it.buffer.write("ckpt2", "2");
  CHECK(it.old(since) == "");
  std::this_thread::sleep_for(20ms);  // the kernel's clock of files has ticks
  it.buffer.write("ckpt1", "again");
  (void)it.inbox.take();
  it.candidates.absorb({.changes = {}, .lost = true}, since);
  REQUIRE(it.due(1s) == "ckpt1 ckpt2 ");
  CHECK(it.export_batch(1s).files == 2);
  CHECK(it.old(since + 1s) == "ckpt2 ");
}

TEST_CASE("a version whose newer one goes after the choice stays", "[drain][keep]") {
  KeepScene it;
  it.buffer.write("ckpt1", "1");
  it.buffer.write("ckpt2", "2");
  REQUIRE(it.due(1s) == "ckpt1 ckpt2 ");
  CHECK(it.export_batch(1s).files == 2);
  REQUIRE(it.old(since + 1s) == "ckpt1 ");
  REQUIRE(it.buffer.filesystem->unlink({}, fs::root_ino, "ckpt2"));
  const auto dropped = it.drop();
  CHECK(dropped.entries.empty());
  CHECK(it.candidates.settle_old(it.chosen, &dropped, since + 1s).empty());
  CHECK(it.buffer.exists("ckpt1"));
  CHECK(it.old(since + 1h) == "");
}

TEST_CASE("a rename makes no version newer", "[drain][keep]") {
  KeepScene it;
  it.buffer.write("ckpt2", "old");
  it.buffer.write("ckpt1", "new");
  CHECK(it.old(since) == "");
  auto& files = *it.buffer.filesystem;
  REQUIRE(files.rename({}, {fs::root_ino, "ckpt2"}, {fs::root_ino, "ckpt3"}, 0));
  REQUIRE(it.due(1s) == "ckpt1 ckpt3 ");
  CHECK(it.export_batch(1s).files == 2);
  CHECK(it.old(since + 1s) == "ckpt3 ");
}

TEST_CASE("versions from before are in the order of their times", "[drain][keep]") {
  KeepScene it;
  it.buffer.write("ckpt2", "1");
  REQUIRE(it.due(1s) == "ckpt2 ");
  CHECK(it.export_batch(1s).files == 1);
  std::this_thread::sleep_for(20ms);  // the kernel's clock of files has ticks
  it.buffer.write("ckpt1", "2");
  DrainCandidates successor(it.config, *it.buffer.filesystem);
  successor.look(since);
  const auto old = successor.choose_old(since);
  REQUIRE(old.size() == 1);
  CHECK(old.front().path == "ckpt2");
}

TEST_CASE("a version that cannot be dropped is told once, and tried again", "[drain][keep]") {
  KeepScene it;
  it.buffer.write("ckpt1", "1");
  it.buffer.write("ckpt2", "2");
  REQUIRE(it.due(1s) == "ckpt1 ckpt2 ");
  CHECK(it.export_batch(1s).files == 2);
  REQUIRE(it.old(since + 1s) == "ckpt1 ");
  CHECK(it.candidates.settle_old(it.chosen, nullptr, since + 1s).empty());
  REQUIRE(it.old(since + 1s) == "ckpt1 ");
  std::filesystem::remove(it.config.results_dir + "/ckpt1");
  auto dropped = it.drop();
  const auto told = it.candidates.settle_old(it.chosen, &dropped, since + 1s);
  REQUIRE(told.size() == 1);
  CHECK((told.front().version == "ckpt1" && told.front().why.code == ENOENT));
  CHECK(it.old(since + 2s) == "");
  REQUIRE(it.old(since + 3s) == "ckpt1 ");
  dropped = it.drop();
  CHECK(it.candidates.settle_old(it.chosen, &dropped, since + 3s).empty());
  CHECK(it.buffer.exists("ckpt1"));
}

TEST_CASE("a result beside another file is not home", "[drain][keep]") {
  KeepScene it;
  it.config.existing = config::Existing::keep_both;
  std::ofstream(it.config.results_dir + "/ckpt1") << "theirs";
  it.buffer.write("ckpt1", "1");
  it.buffer.write("ckpt2", "2");
  REQUIRE(it.due(1s) == "ckpt1 ckpt2 ");
  CHECK(it.export_batch(1s).files == 2);
  CHECK(it.old(since + 1s) == "");
}

}  // namespace
}  // namespace efs::daemon
