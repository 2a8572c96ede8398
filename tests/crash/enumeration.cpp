// SPDX-License-Identifier: BSD-3-Clause
#include "crash/enumeration.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "fs/ledger_log.hpp"
#include "fs/namespace.hpp"
#include "fs/record.hpp"
#include "support/journal_file.hpp"

namespace efs::test {
namespace {

using fs::Filesystem;
using fs::Namespace;

Filesystem::Options options_of(const Enumeration& how, SimWorld& world, bool after_power_loss) {
  return {.medium = std::make_shared<SimMedium>(world),
          .root_mode = 0750,
          .smallest_compaction = how.smallest_compaction,
          .after_power_loss = after_power_loss,
          .rules = how.rules,
          .place_of_new = place_by_name(how.places)};
}

SimWorld world_of(const Enumeration& how, std::uint64_t seed) {
  SimWorld world = make_world(how.durability, seed, how.places);
  world.maps = how.maps;
  return world;
}

bool is_unsettled(const Namespace& names, const fs::Inode& inode) {
  return inode.is_regular() && !inode.settled &&
         names.files().has_content({.id = inode.ino, .dirty = inode.dirty});
}

// Returns the times that a program set. Other times differ between runs, and those of a regular
// file are its container's.
std::string times_of(const fs::Inode& inode) {
  constexpr Nanoseconds long_ago = 1'000'000'000'000'000'000;
  if (inode.is_regular()) {
    return {};
  }
  const auto atime = to_ns(to_timespec(inode.atime)), mtime = to_ns(to_timespec(inode.mtime));
  return (atime < long_ago ? " atime " + std::to_string(atime) : "") +
         (mtime < long_ago ? " mtime " + std::to_string(mtime) : "");
}

// Returns the identity of a copy, and whether it is known to have its name.
std::string copy_of(const fs::Origin& copy) {
  return std::to_string(copy.inode) + (copy.ctime == fs::Origin::any_ctime ? " coming" : "");
}

// Everything that records hold of an inode, behind its path `name`.
std::string line_of(const Namespace& names, const fs::Inode& inode, const std::string& name) {
  std::ostringstream line;
  line << name << " ino " << inode.ino << " mode " << std::oct << inode.mode << std::dec
       << " owner " << inode.uid << ":" << inode.gid << " links " << inode.nlink
       << (inode.dirty ? " dirty" : "") << (inode.lost_writes > 0 ? " lacks writes" : "")
       << times_of(inode);
  if (inode.rdev != 0) {
    line << " device " << inode.rdev;
  }
  if (inode.extra && !inode.extra->target.empty()) {
    line << " -> " << inode.extra->target;
  }
  const auto& [imported, exported, parts] = names.files().of(inode.ino);
  if (exported) {
    line << " saved as " << exported->names.text() << " " << copy_of(exported->version);
  }
  if (imported) {
    line << " origin " << imported->version.inode << "+" << imported->version.size << " "
         << imported->names.text();
  }
  if (!parts.empty()) {
    line << " parts " << parts;
  }
  if (inode.keep() != fs::Keep::by_rule) {
    line << " keep " << static_cast<int>(inode.keep());
  }
  for (const auto& [key, value] :
       inode.extra ? inode.extra->xattrs : std::map<std::string, std::string>()) {
    line << " " << key << "=" << value;
  }
  return line.str();
}

// The bytes of the event's record, as numbers.
std::string text_of(const ledger::Event& event) {
  std::vector<std::byte> bytes;
  fs::encode(std::visit([](const auto& one) -> fs::Record { return one; }, event), bytes);
  std::string text;
  for (const auto byte : bytes) {
    text += std::to_string(std::to_integer<int>(byte)) + " ";
  }
  return text;
}

// Returns all state that records describe, except current times. Clean files that are not settled
// count as missing, because power loss removes them.
std::string state_of(const Namespace& names) {
  std::vector<std::string> lines;
  std::function<void(const fs::Inode&, const std::string&)> visit = [&](const fs::Inode& directory,
                                                                        const std::string& path) {
    directory.directory->for_each_after(
        0, [&](const std::string& name, const fs::Directory::Entry& entry) {
          const fs::Inode& inode = *names.find(entry.ino);
          if (is_unsettled(names, inode)) {
            return true;
          }
          lines.push_back(line_of(names, inode, path + name));
          if (inode.is_directory()) {
            visit(inode, path + name + "/");
          }
          return true;
        });
  };
  visit(names.root(), "");
  for (const auto& [path, input] : names.gone()) {
    lines.push_back("gone " + path + " origin " + std::to_string(input.origin.inode) +
                    (input.saved ? " saved " + copy_of(*input.saved) : "") + " keep " +
                    std::to_string(static_cast<int>(input.keep)));
  }
  names.ledger().snapshot([&](const ledger::Event& event) {
    // what power loss tore may have been an event
    if (!std::holds_alternative<ledger::Missed>(event)) {
      lines.push_back("ledger " + text_of(event));
    }
  });
  std::sort(lines.begin(), lines.end());
  std::string state = line_of(names, names.root(), "/") + "\n";
  for (const auto& line : lines) {
    state += line + "\n";
  }
  return state;
}

// Replays the visible journal record by record.
Status replay(SimWorld& world, Namespace& names, const std::function<void()>& after_each = [] {}) {
  SimMedium medium(world);
  auto end = store::Journal::scan(medium, "journal", [&](const store::Record& stored) -> Status {
    auto record = fs::decode(stored.payload, stored.version);
    if (!record) {
      return std::unexpected(record.error());
    }
    EFS_TRY(names.apply(record->value()));
    after_each();
    return {};
  });
  return end ? Status{} : std::unexpected(end.error());
}

Namespace empty_namespace() {
  return {0755, 0, 0, 0};
}

struct Reference {
  std::vector<std::string> states;  // [n]: after n records
  // [k]: after k steps; step 0 creates the file system
  std::vector<std::size_t> records{0};
  // [k]: records at each answer within step k, if a drain makes them durable
  std::vector<std::vector<std::size_t>> answers{{}};
};

Reference reference_of(const Scenario& scenario, Enumeration how) {
  how.smallest_compaction = 1u << 30;  // no compaction: every record stays in the journal
  how.lies = {};
  how.rules = {};
  SimWorld world = world_of(how, how.seed);
  const auto backend = open_store(world).value();
  auto filesystem = Filesystem::open(*backend, options_of(how, world, false));
  Life life{world, **filesystem, *backend, {}, 0};
  Reference reference;
  reference.records.clear();
  const auto count = [&] {
    std::size_t records = 0;
    Namespace names = empty_namespace();
    if (!replay(world, names, [&] { ++records; })) {
      std::abort();
    }
    return records;
  };
  reference.records.push_back(count());
  std::size_t records = reference.records.front();
  std::uint64_t counted = world.events();
  life.on_answer = [&] {
    if (counted != world.events()) {
      records = count();  // each record is drained
    }
    counted = world.events();
    reference.answers.back().push_back(records);
  };
  for (const auto& step : scenario) {
    reference.answers.emplace_back();
    step.run(life);
    reference.records.push_back(count());
  }
  Namespace names = empty_namespace();
  reference.states.push_back(state_of(names));
  if (!replay(world, names, [&] { reference.states.push_back(state_of(names)); })) {
    std::abort();
  }
  return reference;
}

// Checks the invariants of a namespace, and that files and containers match.
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
      if (inode->is_regular()) {
        regular.insert(inode->container());
      }
      if (inode->is_directory()) {
        ++subdirectories[at.ino];
        if (inode->parent == at.ino && reached.insert(entry.ino).second) {
          todo.push_back(inode);
        }
      } else {
        reached.insert(entry.ino);
      }
      return true;
    });
  }
  std::string wrong;
  names.for_each([&](fs::Inode& inode) {
    const auto expected = inode.is_directory() ? 2 + subdirectories[inode.ino] : links[inode.ino];
    if (inode.nlink == 0) {
      return;  // freed by the recovery, not by a record
    }
    if (!reached.contains(inode.ino)) {
      wrong += "inode " + std::to_string(inode.ino) + " cannot be reached\n";
    }
    if (inode.nlink != expected) {
      wrong += "inode " + std::to_string(inode.ino) + " has " + std::to_string(inode.nlink) +
               " links, not " + std::to_string(expected) + "\n";
    }
  });
  for (const auto id : regular) {
    if (world.find(id) == nullptr) {
      wrong += "a file has no container " + std::to_string(id) + "\n";
    }
  }
  std::set<std::uint64_t> seen;
  world.for_each_container([&](std::uint64_t id, const SimWorld::Data&) {
    if (!regular.contains(id)) {
      wrong += "container " + std::to_string(id) + " belongs to no file\n";
    }
    if (!seen.insert(id).second) {
      wrong += "container " + std::to_string(id) + " is in two places\n";
    }
  });
  return wrong;
}

std::string check_state(const Reference& reference, const Life& life, std::size_t low,
                        std::size_t high, SimWorld& world) {
  Namespace names = empty_namespace();
  if (const Status done = replay(world, names); !done) {
    return "the journal of the recovered file system: " + describe(done.error()) + "\n";
  }
  if (std::string wrong = check_shape(names, world); !wrong.empty()) {
    return wrong;
  }
  const std::string state = state_of(names);
  std::size_t found = low;
  while (found <= high && reference.states[found] != state) {
    ++found;
  }
  if (found > high) {
    return "the recovered state is none of those after " + std::to_string(low) + " to " +
           std::to_string(high) + " records:\n" + state + "expected, at the least:\n" +
           reference.states[low] + "or, at the most:\n" + reference.states[high];
  }
  for (const auto& [ino, promise] : life.promises) {
    const fs::Inode* inode = names.find(ino);
    if (inode == nullptr || inode->nlink == 0 || inode->is_remote() ||
        found < promise.from_record) {
      continue;
    }
    const std::string& content = world.find(inode->container())->visible;
    if (content != promise.content) {
      return "file " + std::to_string(ino) + " has " + std::to_string(content.size()) +
             " bytes that are not the promised " + std::to_string(promise.content.size()) + "\n";
    }
  }
  return {};
}

// Activity after a recovery: the state after each answer, the index of the oldest state that a
// power loss may restore, and contents.
struct GoingOn {
  std::vector<std::string> states;
  std::size_t promised = 0;
  std::map<std::uint64_t, std::string> contents;  // of unchanged files
  std::map<std::uint64_t, std::string> made;      // of new files
  std::uint64_t synced = 0;                       // the new file with an fsync
};

constexpr char stranger = '\1';  // occurs in no file

void answered(SimWorld& world, GoingOn& going, bool durable) {
  Namespace names = empty_namespace();
  if (!replay(world, names)) {
    std::abort();
  }
  going.states.push_back(state_of(names));
  if (durable) {
    going.promised = going.states.size() - 1;
  }
}

// Abandons a staging: its container was durable, and its removal need not be.
void give_up(SimWorld& world, Backend& backend, Filesystem& filesystem) {
  fs::Staging staging(filesystem);
  const auto file = staging.begin_open_file();
  if (!file) {
    return;
  }
  auto& data = *world.find(file->ino);
  data.visible = std::string(64, stranger);
  data.synced = false;
  (void)backend.sync_all();
  staging.abandon(file->ino);
}

// Creates files, possibly with the numbers of lost ones. Syncs only some of them.
std::string make_files(SimWorld& world, const Enumeration& how, Filesystem& filesystem,
                       GoingOn& going) {
  for (const char* name : {"~a", "~b", "~c", "~"}) {
    auto file = filesystem.make_node({}, fs::root_ino, name, S_IFREG | 0640, 0);
    if (!file) {
      return "going on: create: " + describe(file.error()) + "\n";
    }
    going.made[file->ino] = std::string("kept ") + name;
    answered(world, going, how.durability == Durability::cache_line);
    if (!filesystem.write({}, file->ino, std::as_bytes(std::span(going.made[file->ino])), 0)) {
      return "going on: write\n";
    }
    (void)filesystem.forget(file->ino, 1);
    if (std::string(name) != "~") {
      continue;
    }
    if (const Status synced = filesystem.fsync(file->ino, false); !synced) {
      return "going on: fsync: " + describe(synced.error()) + "\n";
    }
    going.synced = file->ino;
    answered(world, going, true);
  }
  return {};
}

std::string check_going_on(SimWorld& world, const GoingOn& going, unsigned life) {
  Namespace after = empty_namespace();
  if (!replay(world, after)) {
    return "after going on: replay\n";
  }
  const std::string state = state_of(after);
  if (std::find(going.states.begin() + static_cast<std::ptrdiff_t>(going.promised),
                going.states.end(), state) == going.states.end()) {
    return "after going on:\n" + state + "was, when it was promised:\n" +
           going.states[going.promised];
  }
  if (std::string wrong = check_shape(after, world); !wrong.empty()) {
    return "after going on: " + wrong;
  }
  // efs reads no container of a content that is at the PFS. Nothing syncs that such a one is empty.
  std::set<std::uint64_t> unread;
  after.for_each([&](fs::Inode& inode) {
    if (inode.is_remote()) {
      unread.insert(inode.container());
    }
  });
  for (const auto& [id, content] : going.contents) {
    const auto data = world.find(id);
    if (data != nullptr && !unread.contains(id) && data->visible != content) {
      return "after going on: container " + std::to_string(id) + " has another content\n";
    }
  }
  for (const auto& [ino, content] : going.made) {
    const auto data = world.find(ino);
    if (data != nullptr &&
        (data->life < life || data->visible.find(stranger) != std::string::npos)) {
      return "after going on: file " + std::to_string(ino) +
             " has the container of one that was lost\n";
    }
    if (ino == going.synced && data->visible != content) {
      return "after going on: the new file lost its content\n";
    }
  }
  return {};
}

struct Opened {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Filesystem> filesystem;

  void close() {
    filesystem.reset();
    backend.reset();
  }
};

Result<Opened> open_it(SimWorld& world, const Enumeration& how, bool after_power_loss,
                       bool takeover = false) {
  Opened opened;
  auto store = open_store(world);
  if (!store) {
    return std::unexpected(store.error());
  }
  opened.backend = std::move(*store);
  auto options = options_of(how, world, after_power_loss);
  options.takeover = takeover;
  auto filesystem = Filesystem::open(*opened.backend, std::move(options));
  if (!filesystem) {
    return std::unexpected(filesystem.error());
  }
  opened.filesystem = std::move(*filesystem);
  if (!takeover) {
    return opened;
  }
  // The kernel is asked about inodes without names, and knows none of them.
  for (const auto ino : opened.filesystem->inherited_orphans(false)) {
    (void)opened.filesystem->forget_all(ino);
  }
  (void)opened.filesystem->fsync_metadata();
  return opened;
}

// Power loss on a page cache takes the newest events of the ledger: the recovery must say so.
std::string check_doubt(const Enumeration& how, Filesystem& recovered) {
  std::string wrong;
  fs::LedgerLog(recovered).read([&](const ledger::Ledger& known) {
    const auto newest = known.newest_export();
    if (!how.killed && how.durability == Durability::page && newest &&
        (!known.unsure_since() || *known.unsure_since() > *newest)) {
      wrong = "events of the ledger are lost, and files that came later are not in doubt\n";
    }
  });
  return wrong;
}

// Uses the recovered file system until the next power loss, at an event or at the end. The
// recovered file system must work.
std::string go_on(SimWorld& world, const Enumeration& how, Opened open,
                  const std::map<std::uint64_t, Promise>& promises) {
  GoingOn going;
  const unsigned life = world.lives();
  std::string wrong;
  const bool found = open.filesystem->recovery().found;
  if (!found) {
    going.states.push_back(state_of(empty_namespace()));
  }
  answered(world, going, found || how.durability == Durability::cache_line);
  world.for_each_container([&](std::uint64_t id, const SimWorld::Data& data) {
    if (!how.killed || (promises.contains(id) && promises.at(id).from_record == 0)) {
      going.contents[id] = data.visible;
    }
  });
  // a restart would sync data that the recovery did not
  const bool restarts = how.lies.deaf_at == 0 && world.chance();
  // If an event of the recovery is missing, end soon: later events would make up for it.
  if (how.lies.deaf_life == 1) {
    world.end_before(world.events() + 1 + world.random()() % 4);
  } else if (world.chance()) {
    world.end_before(world.events() + 1 + world.random()() % 16);
  }
  try {
    open.filesystem->compact_inherited();
    give_up(world, *open.backend, *open.filesystem);
    if (restarts) {
      open.close();
      auto again = open_it(world, how, false);
      if (again) {
        open = std::move(*again);
      } else {
        wrong = "going on: " + describe(again.error()) + "\n";
      }
    }
    if (wrong.empty()) {
      wrong = make_files(world, how, *open.filesystem, going);
    }
  } catch (const PowerLoss&) {
    answered(world, going, false);  // records in transit may be durable
  }
  world.end_before(0);  // the rest is cleanup of the test
  open.close();
  if (!wrong.empty()) {
    return wrong;
  }
  world.crash();
  const auto recovered = open_it(world, how, true);
  if (!recovered) {
    return "after going on: " + describe(recovered.error()) + "\n";
  }
  return check_going_on(world, going, life);
}

// A recovery has made the journal one of the present format.
std::string check_format(const SimWorld& world) {
  store::JournalHeader header{};
  std::memcpy(&header, world.files.at("journal")->visible.at(0), sizeof header);
  return header.version == store::journal_version
             ? ""
             : "the recovered journal has format " + std::to_string(header.version) + "\n";
}

// Ends the recovery at one of its events, as the life before has ended.
void end_recovery(SimWorld& world, const Enumeration& how) {
  world.end_before(1 + world.random()() % (how.format_3 ? 20 : 6));
  try {
    (void)open_it(world, how, !how.killed, how.takeover);
  } catch (const PowerLoss&) {
  }
  how.killed ? world.go_on() : world.crash();
}

// Follows each step with events: the step is answered, and the next has not begun.
constexpr const char* answer = "answer";

bool makes_durable(const std::string& event) {
  return event != "rename" && event != "remove" && event != answer;
}

// Runs one life that ends before event `n`. Sets `complete` if the scenario ended before that.
std::string one_end(const Scenario& scenario, const Enumeration& how, const Reference& reference,
                    std::uint64_t n, std::uint64_t seed, bool& complete,
                    std::vector<const char*>* events_of_recovery = nullptr) {
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
      if (!opened) {
        return "the file system cannot be made: " + describe(opened.error()) + "\n";
      }
      filesystem = std::move(*opened);
      if (how.durability == Durability::cache_line) {
        low = high;
      }
      alive.emplace(Life{world, *filesystem, *backend, {}, 0});
      life = &*alive;
      std::size_t answers = 0;
      life->on_answer = [&] {
        if (how.durability == Durability::cache_line && !world.ended()) {
          low = reference.answers[steps].at(answers++);
        }
      };
      for (const auto& step : scenario) {
        ++steps;
        answers = 0;
        high = life->records_after = reference.records[steps];
        const std::uint64_t before = world.events();
        step.run(*life);
        if (world.ended()) {
          throw PowerLoss{};  // the code took the power loss for a failure
        }
        if (!life->wrong.empty()) {
          world.end_before(0);
          return "step " + std::to_string(steps) + " (" + step.name + "): " + life->wrong + "\n";
        }
        if (how.durability == Durability::cache_line || how.killed || step.syncs) {
          low = high;
        }
        if (world.events() != before) {
          (void)world.event(answer);
        }
      }
      complete = true;
    } catch (const PowerLoss&) {
      complete = false;
    }
    world.end_before(0);  // the rest is cleanup of the test
    if (life != nullptr) {
      promises = life->promises;
    }
  }
  if (how.killed) {
    world.go_on();
  } else {
    world.crash();
  }
  if (how.format_3) {
    make_format_3(world);
  }
  if (how.format_3 || (!how.killed && how.lies.deaf_life == 0 && world.chance())) {
    end_recovery(world, how);
  }
  std::string wrong;
  {
    auto recovered = open_it(world, how, !how.killed, how.takeover);
    if (!recovered) {
      wrong = "recovery: " + describe(recovered.error()) + "\n";
    } else {
      if (events_of_recovery != nullptr) {
        *events_of_recovery = world.names();
      }
      const Life life{world, *recovered->filesystem, *recovered->backend, promises, 0};
      wrong = check_format(world) + check_state(reference, life, low, high, world) +
              check_doubt(how, *recovered->filesystem);
      fs::Staging staging(*recovered->filesystem);
      if (const auto walked = staging.walk(); wrong.empty() && !walked) {
        wrong = "walk: " + describe(walked.error()) + "\n";
      }
      if (wrong.empty()) {
        wrong = go_on(world, how, std::move(*recovered), promises);
      }
    }
  }
  if (wrong.empty()) {
    return {};
  }
  return "seed " + std::to_string(seed) + ", end before event " + std::to_string(n) +
         (steps == 0 ? " (making the file system)"
                     : " in or before step " + std::to_string(steps) + " (" +
                           scenario[steps - 1].name + ")") +
         ":\n" + wrong;
}

}  // namespace

std::uint64_t Life::find(const std::string& path) {
  std::uint64_t at = fs::root_ino;
  for (std::size_t begin = 0; begin < path.size();) {
    const auto slash = std::min(path.find('/', begin), path.size());
    auto entry = note(filesystem.lookup(at, path.substr(begin, slash - begin)));
    if (!entry) {
      return 0;
    }
    (void)filesystem.forget(entry->ino, 1);
    at = entry->ino;
    begin = slash + 1;
  }
  return at;
}

void make_format_3(SimWorld& world) {
  const auto found = world.files.find("journal");
  if (found == world.files.end()) {
    return;
  }
  SimWorld::File& file = *found->second;
  if (file.size > store::journal_chunk) {
    std::abort();
  }
  std::uint64_t end = 0;  // of what is not zero
  file.touched.each([&](std::uint64_t line) { end = std::max(end, (line + 1) * 64); });
  const std::string journal(reinterpret_cast<const char*>(file.visible.at(0)), end);
  if (journal.empty() || header_of(journal).version == 3) {
    return;
  }
  const std::string old = in_format_3(journal);
  for (auto* side : {&file.visible, &file.durable}) {
    std::memcpy(side->at(0), old.data(), old.size());
  }
}

std::string check_journal(SimWorld& world) {
  Namespace names = empty_namespace();
  if (const Status done = replay(world, names); !done) {
    return "replay: " + describe(done.error()) + "\n";
  }
  return check_shape(names, world);
}

std::optional<std::string> enumerate(const Scenario& scenario, const Enumeration& how,
                                     std::size_t* ends) {
  const Reference reference = reference_of(scenario, how);
  std::mt19937_64 random(how.seed);
  for (std::uint64_t n = 1 + how.first;; n += how.step) {
    bool complete = false;
    for (unsigned round = 0; round < how.rounds; ++round) {
      if (ends != nullptr) {
        ++*ends;
      }
      if (auto wrong = one_end(scenario, how, reference, n, random(), complete); !wrong.empty()) {
        return wrong;
      }
    }
    if (complete) {
      return std::nullopt;
    }
  }
}

std::vector<Event> events_of(const Scenario& scenario, const Enumeration& how) {
  SimWorld world = world_of(how, how.seed);
  const auto backend = open_store(world).value();
  auto filesystem = Filesystem::open(*backend, options_of(how, world, false));
  Life life{world, **filesystem, *backend, {}, 0};
  std::vector<Event> events;
  std::map<std::string, unsigned> steps;
  std::set<std::uint64_t> answers;  // numbers of events before an answer
  life.on_answer = [&] {
    answers.insert(world.events());
  };
  const auto note = [&](const std::string& step) {
    std::map<std::string, unsigned> count;
    ++steps[step];
    const std::size_t first = events.size();
    for (std::size_t i = first; i < world.names().size(); ++i) {
      events.push_back({i + 1, world.names()[i], step, steps[step], ++count[world.names()[i]], ""});
    }
    for (std::size_t i = events.size(); i-- > first + 1;) {
      events[i - 1].after = (answers.contains(i) && events[i].name != answer ? " answer " : " ") +
                            events[i].name + events[i].after;
    }
  };
  note("");
  for (const auto& step : scenario) {
    const std::uint64_t before = world.events();
    step.run(life);
    if (world.events() != before) {
      (void)world.event(answer);
    }
    note(step.name);
  }
  return events;
}

std::vector<Event> unnoticed(const Scenario& scenario, Enumeration how,
                             const std::function<bool(const Event&)>& chosen,
                             std::string_view but_for) {
  const Reference reference = reference_of(scenario, how);
  const auto events = events_of(scenario, how);
  std::mt19937_64 random(how.seed);
  // number of ends to try: a missing event shows soon, or a later event of its kind makes up for it
  constexpr std::uint64_t behind = 12;
  const auto noticed = [&](const Event& event) {
    how.lies = {.deaf = {}, .deaf_at = event.number};
    bool complete = false;
    for (unsigned round = 0; round < how.rounds; ++round) {
      for (std::uint64_t n = event.number + 1;
           n <= std::min(event.number + behind, events.size() + 1); ++n) {
        if (const auto wrong = one_end(scenario, how, reference, n, random(), complete);
            !wrong.empty() && (but_for.empty() || !wrong.contains(but_for))) {
          return true;
        }
      }
    }
    return false;
  };
  std::vector<Event> found;
  for (const auto& event : events) {
    if (makes_durable(event.name) && chosen(event) && !noticed(event)) {
      found.push_back(event);
    }
  }
  return found;
}

std::map<std::string, std::size_t> noticed_in_recovery(const Scenario& scenario, Enumeration how) {
  const Reference reference = reference_of(scenario, how);
  std::mt19937_64 random(how.seed);
  std::map<std::string, std::size_t> found;
  bool complete = false;
  for (std::uint64_t n = 1; !complete; ++n) {
    for (unsigned round = 0; round < how.rounds; ++round) {
      std::vector<const char*> events;
      std::string before;
      for (std::uint64_t k = 1; k == 1 || k <= events.size(); ++k) {
        const auto seed = random();  // try seeds until a recovery has that many events
        how.lies = {.deaf = {}, .deaf_at = k, .deaf_life = 1};
        const bool noticed = !one_end(scenario, how, reference, n, seed, complete, &events).empty();
        if (events.size() < k) {
          break;
        }
        before.clear();
        for (std::uint64_t i = 0; i < k; ++i) {
          if (i == 0 || std::string(events[i]) != events[i - 1]) {
            before += (before.empty() ? "" : ", ") + std::string(events[i]);
          }
        }
        if (makes_durable(events[k - 1])) {
          found[before] += noticed ? 1 : 0;
        }
      }
    }
  }
  return found;
}

}  // namespace efs::test
