#include "crash/enumeration.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "fs/namespace.hpp"
#include "fs/record.hpp"

namespace efs::test {
namespace {

using fs::Filesystem;
using fs::Namespace;

Filesystem::Options options_of(const Enumeration& how, SimWorld& world, bool after_power_loss) {
  Filesystem::Options options{.medium = std::make_shared<SimMedium>(world), .root_mode = 0750, .smallest_compaction = how.smallest_compaction, .after_power_loss = after_power_loss, .rules = how.rules};
  if (how.places > 1) options.place_of_new = [places = how.places](const std::string& path) { return static_cast<unsigned char>(path.back()) % places; };
  return options;
}

SimWorld world_of(const Enumeration& how, std::uint64_t seed) {
  SimWorld world(how.durability, seed, how.places);
  if (how.places > 1) world.places.front().room = 6;
  return world;
}

bool is_unsettled(const fs::Inode& inode) {
  return inode.is_regular() && !inode.dirty && inode.extra && (inode.extra->origin || !inode.extra->saved_path.empty()) && !inode.settled;
}

// Everything that a record can say, but for times. Clean files of which nothing says that they are whole count as not
// there: power loss takes them.
std::string state_of(const Namespace& names) {
  std::vector<std::string> lines;
  std::function<void(const fs::Inode&, const std::string&)> visit = [&](const fs::Inode& directory, const std::string& path) {
    directory.directory->for_each_after(0, [&](const std::string& name, const fs::Directory::Entry& entry) {
      const fs::Inode& inode = *names.find(entry.ino);
      if (is_unsettled(inode)) return true;
      std::ostringstream line;
      line << path << name << " ino " << inode.ino << " mode " << std::oct << inode.mode << std::dec << " owner " << inode.uid << ":" << inode.gid << " links " << inode.nlink << (inode.dirty ? " dirty" : "");
      if (inode.extra) {
        if (!inode.extra->target.empty()) line << " -> " << inode.extra->target;
        if (!inode.extra->saved_path.empty()) line << " saved as " << inode.extra->saved_path;
        if (inode.extra->origin) line << " origin " << inode.extra->origin->inode << " " << inode.extra->origin_path;
        for (const auto& [key, value] : inode.extra->xattrs) line << " " << key << "=" << value;
      }
      lines.push_back(line.str());
      if (inode.is_directory()) visit(inode, path + name + "/");
      return true;
    });
  };
  visit(names.root(), "");
  for (const auto& [path, input] : names.gone()) lines.push_back("gone " + path + " origin " + std::to_string(input.origin.inode) + (input.saved ? " saved" : ""));
  std::sort(lines.begin(), lines.end());
  std::string state = "root " + std::to_string(names.root().mode) + "\n";
  for (const auto& line : lines) state += line + "\n";
  return state;
}

// Replays the visible journal record by record.
Status replay(SimWorld& world, Namespace& names, const std::function<void()>& after_each = [] {}) {
  SimMedium medium(world);
  auto end = store::Journal::scan(medium, "journal", [&](const store::Record& stored) -> Status {
    auto record = fs::decode(stored.payload);
    if (!record) return std::unexpected(record.error());
    EFS_TRY(names.apply(*record));
    after_each();
    return {};
  });
  return end ? Status{} : std::unexpected(end.error());
}

Namespace empty_namespace() { return {0755, 0, 0, 0}; }

struct Reference {
  std::vector<std::string> states;          // [n]: after n records
  std::vector<std::size_t> records{0};      // [k]: after k steps; the making of the file system is step 0
};

Reference reference_of(const Scenario& scenario, Enumeration how) {
  how.smallest_compaction = 1u << 30;  // every record stays to be seen
  how.lies = {};
  how.rules = {};
  SimWorld world = world_of(how, how.seed);
  const auto backend = open_store(world).value();
  auto filesystem = Filesystem::open(*backend, options_of(how, world, false));
  Life life{world, **filesystem, {}, 0};
  Reference reference;
  reference.records.clear();
  const auto count = [&] {
    std::size_t records = 0;
    Namespace names = empty_namespace();
    if (!replay(world, names, [&] { ++records; })) std::abort();
    reference.records.push_back(records);
  };
  count();
  for (const auto& step : scenario) {
    step.run(life);
    count();
  }
  Namespace names = empty_namespace();
  reference.states.push_back(state_of(names));
  if (!replay(world, names, [&] { reference.states.push_back(state_of(names)); })) std::abort();
  return reference;
}

// The invariants of any namespace, and that files and containers belong together.
std::string check_shape(const Namespace& names, const SimWorld& world) {
  std::map<std::uint64_t, std::uint64_t> links, subdirectories;
  std::set<std::uint64_t> reached{fs::root_ino}, regular;
  std::vector<const fs::Inode*> todo{&names.root()};
  while (!todo.empty()) {
    const fs::Inode& at = *todo.back();
    todo.pop_back();
    at.directory->for_each_after(0, [&](const std::string&, const fs::Directory::Entry& entry) {
      const fs::Inode* inode = names.find(entry.ino);
      ++links[entry.ino];
      if (inode->is_regular()) regular.insert(entry.ino);
      if (inode->is_directory()) {
        ++subdirectories[at.ino];
        if (inode->parent == at.ino && reached.insert(entry.ino).second) todo.push_back(inode);
      } else {
        reached.insert(entry.ino);
      }
      return true;
    });
  }
  std::string wrong;
  names.for_each([&](fs::Inode& inode) {
    const auto expected = inode.is_directory() ? 2 + subdirectories[inode.ino] : links[inode.ino];
    if (inode.nlink == 0) return;  // freed by the recovery, not by a record
    if (!reached.contains(inode.ino)) wrong += "inode " + std::to_string(inode.ino) + " cannot be reached\n";
    if (inode.nlink != expected) wrong += "inode " + std::to_string(inode.ino) + " has " + std::to_string(inode.nlink) + " links, not " + std::to_string(expected) + "\n";
  });
  for (const auto ino : regular)
    if (world.find(ino) == nullptr) wrong += "file " + std::to_string(ino) + " has no container\n";
  std::set<std::uint64_t> seen;
  world.for_each_container([&](std::uint64_t id, const SimWorld::Data&) {
    if (!regular.contains(id)) wrong += "container " + std::to_string(id) + " belongs to no file\n";
    if (!seen.insert(id).second) wrong += "container " + std::to_string(id) + " is in two places\n";
  });
  return wrong;
}

std::string check_state(const Reference& reference, const Life& life, std::size_t low, std::size_t high, SimWorld& world) {
  Namespace names = empty_namespace();
  if (const Status done = replay(world, names); !done) return "the journal of the recovered file system: " + describe(done.error()) + "\n";
  if (std::string wrong = check_shape(names, world); !wrong.empty()) return wrong;
  const std::string state = state_of(names);
  std::size_t found = low;
  while (found <= high && reference.states[found] != state) ++found;
  if (found > high)
    return "the recovered state is none of those after " + std::to_string(low) + " to " + std::to_string(high) + " records:\n" + state + "expected, at the least:\n" + reference.states[low] + "or, at the most:\n" + reference.states[high];
  for (const auto& [ino, promise] : life.promises) {
    const fs::Inode* inode = names.find(ino);
    if (inode == nullptr || inode->nlink == 0 || found < promise.from_record) continue;
    const std::string& content = world.find(ino)->visible;
    if (content != promise.content) return "file " + std::to_string(ino) + " has " + std::to_string(content.size()) + " bytes that are not the promised " + std::to_string(promise.content.size()) + "\n";
  }
  return {};
}

// The file system must be one to go on with: new files, under numbers that may have been those of others that were lost,
// some synced and some not, and one more power loss.
std::string go_on(SimWorld& world, const Enumeration& how) {
  std::map<std::uint64_t, std::string> made;
  std::uint64_t kept = 0;
  const unsigned life = world.lives();
  {
    auto backend = open_store(world);
    if (!backend) return "going on: the store: " + describe(backend.error()) + "\n";
    auto filesystem = Filesystem::open(**backend, options_of(how, world, false));
    if (!filesystem) return "going on: " + describe(filesystem.error()) + "\n";
    for (const char* name : {"~a", "~b", "~c", "~"}) {
      auto file = (*filesystem)->make_node({}, fs::root_ino, name, S_IFREG | 0640, 0);
      if (!file) return "going on: create: " + describe(file.error()) + "\n";
      kept = file->ino;
      made[kept] = std::string("kept ") + name;
      if (!(*filesystem)->write({}, kept, std::as_bytes(std::span(made[kept])), 0)) return "going on: write\n";
      (void)(*filesystem)->forget(kept, 1);
    }
    if (const Status synced = (*filesystem)->fsync(kept, false); !synced) return "going on: fsync: " + describe(synced.error()) + "\n";
  }
  Namespace before = empty_namespace();
  if (!replay(world, before)) return "going on: replay\n";
  world.crash();
  auto backend = open_store(world);
  if (!backend) return "after going on: the store: " + describe(backend.error()) + "\n";
  auto filesystem = Filesystem::open(**backend, options_of(how, world, true));
  if (!filesystem) return "after going on: " + describe(filesystem.error()) + "\n";
  Namespace after = empty_namespace();
  if (!replay(world, after)) return "after going on: replay\n";
  if (state_of(before) != state_of(after)) return "after going on:\n" + state_of(after) + "was:\n" + state_of(before);
  for (const auto& [ino, content] : made)
    if (world.find(ino)->life < life) return "after going on: file " + std::to_string(ino) + " has the container of one that was lost\n";
  if (world.find(kept)->visible != made[kept]) return "after going on: the new file lost its content\n";
  return check_shape(after, world);
}

// One life that ends before event `n`. True in `complete` where the scenario was over before that.
std::string one_end(const Scenario& scenario, const Enumeration& how, const Reference& reference, std::uint64_t n, std::uint64_t seed, bool& complete) {
  SimWorld world = world_of(how, seed);
  world.lie(how.lies);
  world.end_before(n);
  std::size_t steps = 0, low = 0, high = reference.records[0];
  std::map<std::uint64_t, Promise> promises;
  {
    const auto backend = open_store(world).value();
    std::unique_ptr<Filesystem> filesystem;
    Life* life = nullptr;
    std::optional<Life> alive;
    try {
      auto opened = Filesystem::open(*backend, options_of(how, world, false));
      if (!opened) return "the file system cannot be made: " + describe(opened.error()) + "\n";
      filesystem = std::move(*opened);
      if (how.durability == Durability::cache_line) low = high;
      alive.emplace(Life{world, *filesystem, {}, 0});
      life = &*alive;
      for (const auto& step : scenario) {
        ++steps;
        high = life->records_after = reference.records[steps];
        step.run(*life);
        if (how.durability == Durability::cache_line || step.syncs) low = high;
      }
      complete = true;
    } catch (const PowerLoss&) {
      complete = false;
    }
    world.end_before(0);  // what follows is our own tidying
    if (life != nullptr) promises = life->promises;
  }
  world.crash();
  std::unique_ptr<Backend> backend;
  const auto fresh = [&]() -> Result<std::unique_ptr<Filesystem>> {
    auto store = open_store(world);
    if (!store) return std::unexpected(store.error());
    backend = std::move(*store);
    return Filesystem::open(*backend, options_of(how, world, true));
  };
  if (world.chance()) {  // the power goes once more, in the middle of the recovery
    world.end_before(1 + world.random()() % 6);
    try {
      (void)fresh();
    } catch (const PowerLoss&) {}
    world.crash();
  }
  std::string wrong;
  {
    auto recovered = fresh();
    if (!recovered) {
      wrong = "recovery: " + describe(recovered.error()) + "\n";
    } else {
      const Life life{world, **recovered, promises, 0};
      wrong = check_state(reference, life, low, high, world);
      fs::Staging staging(**recovered);
      if (const auto walked = staging.walk(); wrong.empty() && !walked) wrong = "walk: " + describe(walked.error()) + "\n";
    }
  }
  if (wrong.empty()) wrong = go_on(world, how);
  if (wrong.empty()) return {};
  return "seed " + std::to_string(seed) + ", end before event " + std::to_string(n) + (steps == 0 ? " (making the file system)" : " in or before step " + std::to_string(steps) + " (" + scenario[steps - 1].name + ")") + ":\n" + wrong;
}

}  // namespace

std::uint64_t Life::find(const std::string& path) {
  std::uint64_t at = fs::root_ino;
  for (std::size_t begin = 0; begin < path.size();) {
    const auto slash = std::min(path.find('/', begin), path.size());
    auto entry = note(filesystem.lookup(at, path.substr(begin, slash - begin)));
    if (!entry) return 0;
    (void)filesystem.forget(entry->ino, 1);
    at = entry->ino;
    begin = slash + 1;
  }
  return at;
}

std::string check_journal(SimWorld& world) {
  Namespace names = empty_namespace();
  if (const Status done = replay(world, names); !done) return "replay: " + describe(done.error()) + "\n";
  return check_shape(names, world);
}

std::optional<std::string> enumerate(const Scenario& scenario, const Enumeration& how, std::size_t* ends) {
  const Reference reference = reference_of(scenario, how);
  std::mt19937_64 random(how.seed);
  for (std::uint64_t n = 1;; ++n) {
    bool complete = false;
    for (unsigned round = 0; round < how.rounds; ++round) {
      if (ends != nullptr) ++*ends;
      if (auto wrong = one_end(scenario, how, reference, n, random(), complete); !wrong.empty()) return wrong;
    }
    if (complete) return std::nullopt;
  }
}

std::vector<Event> events_of(const Scenario& scenario, const Enumeration& how) {
  SimWorld world = world_of(how, how.seed);
  const auto backend = open_store(world).value();
  auto filesystem = Filesystem::open(*backend, options_of(how, world, false));
  Life life{world, **filesystem, {}, 0};
  std::vector<Event> events;
  const auto note = [&](std::size_t step) {
    for (std::size_t i = events.size(); i < world.names().size(); ++i) events.push_back({world.names()[i], step});
  };
  note(0);
  for (std::size_t step = 0; step < scenario.size(); ++step) {
    scenario[step].run(life);
    note(step + 1);
  }
  return events;
}

}  // namespace efs::test
