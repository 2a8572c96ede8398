#include "crash/scenarios.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

namespace efs::test {
namespace {

struct Place {
  std::uint64_t parent;
  std::string name;
};

Place place(Life& life, const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return {fs::root_ino, path};
  return {life.find(path.substr(0, slash)), path.substr(slash + 1)};
}

Step create(const std::string& path, mode_t mode = S_IFREG | 0644) {
  return {"create " + path, [=](Life& life) {
            const auto at = place(life, path);
            if (auto made = life.filesystem.make_node({}, at.parent, at.name, mode, 0)) (void)life.filesystem.forget(made->ino, 1);
          }};
}
Step mkdir(const std::string& path) { return create(path, S_IFDIR | 0755); }
Step symlink(const std::string& path, const std::string& target) {
  return {"symlink " + path, [=](Life& life) {
            const auto at = place(life, path);
            if (auto made = life.filesystem.make_symlink({}, at.parent, at.name, target)) (void)life.filesystem.forget(made->ino, 1);
          }};
}
Step link(const std::string& from, const std::string& to) {
  return {"link " + to, [=](Life& life) {
            const auto at = place(life, to);
            if (auto made = life.filesystem.link({}, life.find(from), at.parent, at.name)) (void)life.filesystem.forget(made->ino, 1);
          }};
}
Step unlink(const std::string& path) {
  return {"unlink " + path, [=](Life& life) {
            const auto at = place(life, path);
            (void)life.filesystem.unlink({}, at.parent, at.name);
          }};
}
Step rmdir(const std::string& path) {
  return {"rmdir " + path, [=](Life& life) {
            const auto at = place(life, path);
            (void)life.filesystem.rmdir({}, at.parent, at.name);
          }};
}
Step rename(const std::string& from, const std::string& to, unsigned flags = 0) {
  return {"rename " + from + " " + to, [=](Life& life) {
            const auto a = place(life, from), b = place(life, to);
            const auto source = life.find(from), target = life.find(to);
            // R6: where it replaces a file, what takes its place is there whole with the record.
            if (source != 0 && target != 0 && source != target && life.world.containers.contains(source) && life.world.containers.contains(target) && !life.promises.contains(source))
              life.promises[source] = {life.content(source), life.records_after};
            (void)life.filesystem.rename({}, a.parent, a.name, b.parent, b.name, flags);
          }};
}
Step write(const std::string& path, const std::string& text, std::uint64_t offset = 0) {
  return {"write " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino == 0 || !life.filesystem.open({}, ino, O_RDWR)) return;
            life.promises.erase(ino);
            (void)life.filesystem.write({}, ino, std::as_bytes(std::span(text)), offset);
          }};
}
// By passthrough: after the open the file system hears nothing.
Step kernel_write(const std::string& path, const std::string& text) {
  return {"kernel writes " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino == 0 || !life.filesystem.open({}, ino, O_WRONLY)) return;
            life.promises.erase(ino);
            auto& data = *life.world.containers.at(ino);
            data.visible = text;
            data.synced = false;
          }};
}
Step truncate(const std::string& path, std::uint64_t size) {
  return {"truncate " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino == 0) return;
            life.promises.erase(ino);
            (void)life.filesystem.setattr({}, ino, {.size = size});
          }};
}
Step fsync(const std::string& path) {
  return {"fsync " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino != 0 && life.world.containers.contains(ino) && life.filesystem.fsync(ino, false)) life.promises[ino] = {life.content(ino), 0};
          }};
}
// Where it cannot fail it syncs every record, whatever the file.
Step surely(Step step) {
  step.syncs = true;
  return step;
}
Step fsyncdir() {
  return surely({"fsyncdir", [](Life& life) { (void)life.filesystem.fsync_metadata(); }});
}
Step chmod(const std::string& path, mode_t mode) {
  return {"chmod " + path, [=](Life& life) {
            if (const auto ino = life.find(path); ino != 0) (void)life.filesystem.setattr({}, ino, {.mode = mode});
          }};
}
Step set_xattr(const std::string& path, const std::string& value) {
  return {"setxattr " + path, [=](Life& life) { (void)life.filesystem.setxattr({}, life.find(path), "user.k", value, 0); }};
}
Step remove_xattr(const std::string& path) {
  return {"removexattr " + path, [=](Life& life) { (void)life.filesystem.removexattr({}, life.find(path), "user.k"); }};
}
// O_TMPFILE, written, synced, and given a name.
Step nameless_then_linked(const std::string& path) {
  return surely({"O_TMPFILE, linked as " + path, [=](Life& life) {
                   const auto at = place(life, path);
                   auto made = life.filesystem.make_nameless({}, at.parent, 0600);
                   if (!made) return;
                   const std::string text = "from nowhere";
                   (void)life.filesystem.write({}, made->ino, std::as_bytes(std::span(text)), 0);
                   if (life.filesystem.fsync(made->ino, false)) life.promises[made->ino] = {text, 0};
                   (void)life.filesystem.link({}, made->ino, at.parent, at.name);
                   (void)life.filesystem.forget(made->ino, 2);
                   (void)life.filesystem.fsync_metadata();
                 }});
}
// Removed while somebody has it open, and closed later.
Step unlink_while_open(const std::string& path) {
  return {"unlink while open " + path, [=](Life& life) {
            const auto at = place(life, path);
            auto entry = life.filesystem.lookup(at.parent, at.name);
            if (!entry) return;
            (void)life.filesystem.unlink({}, at.parent, at.name);
            (void)life.filesystem.fsync_metadata();
            (void)life.filesystem.forget(entry->ino, 1);
          }};
}
Step stage_directory(const std::string& path) {
  return {"stage in directory " + path, [=](Life& life) { (void)fs::Staging(life.filesystem).make_directory(path, {.mode = 0750}); }};
}
Step stage_symlink(const std::string& path) {
  return {"stage in symlink " + path, [=](Life& life) { (void)fs::Staging(life.filesystem).make_symlink(path, "target", {}); }};
}
// A clean file is what the PFS has, or it is not there.
Step stage_file(const std::string& path, const std::string& content) {
  return {"stage in " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            auto ino = staging.begin_file();
            if (!ino) return;
            auto& data = *life.world.containers.at(*ino);
            data.visible = content;
            data.synced = false;
            life.promises[*ino] = {content, 0};
            if (!staging.publish_file(*ino, path, {.mode = 0644}, {.device = 1, .inode = *ino, .size = content.size()})) staging.abandon(*ino);
          }};
}
Step stage_link(const std::string& existing, const std::string& path) {
  return {"stage in link " + path, [=](Life& life) { (void)fs::Staging(life.filesystem).link_files(existing, std::span(&path, 1), fs::Over::nothing); }};
}
Step take_back(const std::string& path) {
  return {"remove clean " + path, [=](Life& life) { (void)fs::Staging(life.filesystem).remove_clean(path); }};
}
Step forget_gone(const std::string& path) {
  return {"forget " + path, [=](Life& life) { (void)fs::Staging(life.filesystem).forget_gone({path}); }};
}
Step settle() {
  return {"settle", [](Life& life) { (void)life.filesystem.settle(); }};
}
Step saved(const std::string& path, bool in_place) {
  return {"book as saved " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino == 0) return;
            // From here on it is clean: what is found after power loss is this content or no file.
            if (life.world.containers.contains(ino)) life.promises[ino] = {life.content(ino), life.records_after};
            (void)fs::Staging(life.filesystem).mark_saved(path, {.device = 2, .inode = 7}, in_place);
          }};
}
Step tend() {
  return {"tend", [](Life& life) { life.filesystem.tend(); }};
}

}  // namespace

Scenario every_operation() {
  return {
      stage_directory("in"), stage_file("in/a", std::string(300, 'a')), stage_file("in/b", std::string(5000, 'b')), stage_symlink("in/l"), stage_link("in/b", "in/b2"), stage_file("in/c", "comes and goes"), settle(),
      stage_file("in/late", "not settled before the end"), mkdir("d"), create("d/f"), write("d/f", std::string(200, 'f')), surely(fsync("d/f")), set_xattr("d/f", "value"),
      kernel_write("d/f", std::string(150, 'k')), surely(fsync("d/f")), write("d/f", "x", 20), create("d/g"), kernel_write("d/g", "second version"), rename("d/g", "d/f"),
      create("d/h"), write("d/h", "third"), link("d/h", "h2"), unlink("d/h"), rename("h2", "d/f"), fsyncdir(), create("fifo", S_IFIFO | 0600), symlink("s", "d/f"), chmod("d/f", 0600),
      truncate("d/f", 3), surely(fsync("d/f")), create("x"), kernel_write("x", "exchanged"), rename("x", "in/a", RENAME_EXCHANGE), remove_xattr("d/f"), nameless_then_linked("t"), unlink_while_open("t"),
      write("in/b", "changed", 100), surely(fsync("in/b")), saved("in/b", true), saved("d/f", false), settle(), write("d/f", "again"), mkdir("d/e"), rename("d/e", "e"), mkdir("full"), rename("e", "full"), rmdir("full"),
      create("y"), write("y", "gone soon"), surely(fsync("y")), unlink("y"), create("z"), tend(), unlink("z"), unlink("in/late"), tend(), tend(), tend(), tend(), tend(), tend(), rename("d/f", "final"), take_back("in/c"), unlink("in/b2"), rename("in/l", "moved"), unlink("moved"), forget_gone("in/late"), fsyncdir()};
}

Scenario visible_operations() {
  return {create("a"),      mkdir("d"),           fsyncdir(),       create("d/b"),     chmod("a", 0600),  set_xattr("a", "value"), write("d/b", "data"), surely(fsync("d/b")), link("a", "l"),
          rename("d/b", "c"), symlink("s", "target"), fsyncdir(),       unlink("l"),       rename("c", "a"),  rmdir("d"),              surely(fsync("a")),   create("e"),          fsyncdir()};
}

Scenario random_operations(std::uint64_t seed, std::size_t steps) {
  std::mt19937_64 random(seed);
  const auto path = [&] {
    static constexpr const char* names[] = {"a", "b", "c"};
    std::string result = names[random() % 3];
    if (random() % 2 == 0) result += std::string("/") + names[random() % 3];
    return result;
  };
  const auto text = [&] { return std::string(random() % 400 + 1, static_cast<char>('a' + random() % 26)); };
  Scenario scenario;
  while (scenario.size() < steps) {
    const std::string one = path(), two = path();
    switch (random() % 20) {
      case 0: case 1: scenario.push_back(create(one)); break;
      case 2: scenario.push_back(mkdir(one)); break;
      case 3: scenario.push_back(unlink(one)); break;
      case 4: scenario.push_back(rmdir(one)); break;
      case 5: case 6: scenario.push_back(rename(one, two)); break;
      case 7: scenario.push_back(rename(one, two, RENAME_EXCHANGE)); break;
      case 8: scenario.push_back(link(one, two)); break;
      case 9: case 10: scenario.push_back(write(one, text(), random() % 300)); break;
      case 11: scenario.push_back(kernel_write(one, text())); break;
      case 12: scenario.push_back(truncate(one, random() % 300)); break;
      case 13: case 14: scenario.push_back(fsync(one)); break;
      case 15: scenario.push_back(fsyncdir()); break;
      case 16: scenario.push_back(set_xattr(one, text())); break;
      case 17: scenario.push_back(stage_file(one, text())); break;
      case 18: scenario.push_back(random() % 2 == 0 ? settle() : saved(one, random() % 2 == 0)); break;
      default: scenario.push_back(random() % 2 == 0 ? tend() : unlink_while_open(one)); break;
    }
  }
  return scenario;
}

}  // namespace efs::test
