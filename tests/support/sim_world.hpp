// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A simulated machine that can lose power. Every byte has a visible and a durable version. Stores
// change the visible one; flush, drain and sync move lines to the durable one. After a crash the
// durable version remains, with any part of the data that was in transit. The world counts each
// event that makes data durable, and ends before the event with a given number.

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "base/unique_fd.hpp"
#include "support/lines.hpp"

namespace efs::test {

/// Power loss. The exception passes through all code, and no object on its way is used again. Some
/// code takes it for a failure and catches it (staging does); then the world stays as it was:
/// ended().
struct PowerLoss : std::exception {};

/// Faults of a world, to verify that the checks notice them.
struct Lies {
  // events of this name have no effect (but report success): "drain", "journal sync", ...
  std::string deaf;
  std::uint64_t deaf_at = 0;   // instead: only the event with this number, of any name; 0: none
  unsigned deaf_life = 0;      // life in which that applies: 0 is the first, 1 the recovery and
                               // later work
  bool keeps_old = false;      // stores of zeros are lost: old data behind the tail stays
  bool switch_in_two = false;  // a rename first removes the name, then creates it
};

class SimWorld {
 public:
  SimWorld(Durability durability, std::uint64_t seed, std::size_t places_ = 1)
      : places(places_), durability_(durability), random_(seed) {
    names_.reserve(1U << 14);
  }

  Durability durability() const { return durability_; }

  std::mt19937_64& random() { return random_; }

  bool chance() { return (random_() & 1) != 0; }

  /// Ends the world before event number n (1 is the first); 0: never.
  void end_before(std::uint64_t n) { end_ = n; }

  std::uint64_t events() const { return count_; }

  const std::vector<const char*>& names() const { return names_; }

  bool loses_zeros() const { return lies_.keeps_old; }

  bool switches_in_two() const { return lies_.switch_in_two; }

  void lie(Lies lies) { lies_ = std::move(lies); }

  /// Returns true if the event takes place.
  bool event(const char* name) {
    if (dead_) {
      throw PowerLoss{};
    }
    ++count_;
    names_.push_back(name);
    if (count_ == end_) {
      dead_ = true;
      throw PowerLoss{};
    }
    return lies_.deaf_at == 0 ? lies_.deaf != name
                              : lies_.deaf_at != count_ || lies_.deaf_life != lives_;
  }

  /// The call with number n (1 is the first) fails with `code`; with `on`, all later calls fail
  /// too. 0: none fails.
  void fail_call(std::uint64_t n, int code = EIO, bool on = false) {
    failing_ = n, code_ = code, fails_on_ = on, calls_ = 0;
  }

  std::uint64_t calls() const { return calls_; }

  /// Returns the name of the first call that failed; "" if none did.
  const std::string& failed_call() const { return failed_call_; }

  bool injects(int code) const { return failing_ != 0 && code_ == code; }

  /// Call this at the begin of every operation that a store may refuse.
  Status call(const char* name) {
    ++calls_;
    if (failing_ == 0 || calls_ < failing_ || (calls_ > failing_ && !fails_on_)) {
      return {};
    }
    if (calls_ == failing_) {
      failed_call_ = name;
    }
    return fail(code_, std::string("injected: ") + name);
  }

  /// Reserved address space at a fixed position. Only touched pages cost memory.
  class Region {
   public:
    Region()
        : bytes_(
              static_cast<std::byte*>(::mmap(nullptr, room, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
      if (bytes_ == MAP_FAILED) {
        throw std::bad_alloc();
      }
      // a recovery reads all of it: page faults took a third of the time
      ::madvise(bytes_, room, MADV_HUGEPAGE);
    }

    ~Region() { ::munmap(bytes_, room); }

    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    std::byte* at(std::uint64_t offset) { return bytes_ + offset; }

   private:
    static constexpr std::size_t room = 32u << 20;
    std::byte* bytes_;
  };

  struct File {  // in the journal's directory
    Region visible, durable;
    std::uint64_t size = 0, durable_size = 0;
    Lines dirty;    // lines (64 bytes) that may differ
    Lines touched;  // lines that may be nonzero
  };

  using FilePtr = std::shared_ptr<File>;
  std::map<std::string, FilePtr> files, durable_files;
  std::vector<std::function<void(std::map<std::string, FilePtr>&)>> names_on_the_way;

  struct Data {  // content of a container
    std::string visible, durable;
    bool synced = true;       // both versions are equal
    bool labelled = false;    // certainly: it was synced after its creation or its label
    bool unfinished = false;  // power loss left its name without its label
    unsigned life = 0;        // life of its creation: power losses so far
    FileTime atime, mtime;    // as the last caller set them

    // Data that was written after the label is missing too.
    void lose_label() {
      unfinished = true;
      visible.clear();
      durable.clear();
      synced = true;
    }
  };

  using DataPtr = std::shared_ptr<Data>;

  struct Place {  // of the store: a separate file system
    std::map<std::uint64_t, DataPtr> containers, durable_containers;
    std::size_t room = SIZE_MAX;  // maximum number of containers
  };

  std::vector<Place> places;

  unsigned lives() const { return lives_; }

  bool ended() const { return dead_; }

  bool maps = false;              // containers can be mapped
  std::set<std::uint64_t> stuck;  // containers whose removal has failed

  /// Returns the container; null if there is none.
  DataPtr find(std::uint64_t id) const {
    for (const auto& place : places) {
      if (const auto found = place.containers.find(id); found != place.containers.end()) {
        return found->second;
      }
    }
    return nullptr;
  }

  void for_each_container(const std::function<void(std::uint64_t id, Data& data)>& visit) const {
    for (const auto& place : places) {
      for (const auto& [id, data] : place.containers) {
        visit(id, *data);
      }
    }
  }

  void sync_file(File& file) {
    file.dirty.each([&](std::uint64_t line) { copy_line(file, line, ~0U); });
    file.dirty.clear();
    file.durable_size = file.size;
    drop_behind_end(file);
  }

  /// Continues after the death of the processes only: all visible data remains.
  void go_on() {
    ++lives_;
    begin();
  }

  /// Applies a power loss: leaves what a machine finds afterwards.
  void crash() {
    // Names of the journal's directory: an ordered log. The file system has written any prefix of
    // it.
    while (!names_on_the_way.empty() && chance()) {
      names_on_the_way.front()(durable_files);
      names_on_the_way.erase(names_on_the_way.begin());
    }
    names_on_the_way.clear();
    files = durable_files;
    for (auto& [name, file] : files) {
      // A line in transit is durable, missing, or partly durable, in units of eight bytes. Often
      // all lines are durable.
      const bool all = random_() % 4 == 0;
      file->dirty.each([&](std::uint64_t line) {
        if (const auto kind = all ? 1 : random_() % 3; kind != 0) {
          copy_line(*file, line, kind == 1 ? ~0U : static_cast<unsigned>(random_()));
        }
      });
      file->dirty.clear();
      if (file->durable_size != file->size && chance()) {
        file->durable_size = file->size;
      }
      file->size = file->durable_size;
      drop_behind_end(*file);
      file->touched.each([&](std::uint64_t line) {
        std::memcpy(file->visible.at(line * 64), file->durable.at(line * 64), 64);
      });
    }
    for (auto& place : places) {
      crash_place(place);
    }
    ++lives_;
    begin();
  }

 private:
  void begin() {
    dead_ = false;
    end_ = 0;
    count_ = 0;
    names_.clear();
    if (lies_.deaf_at != 0 && lives_ > lies_.deaf_life) {
      lies_ = {};
    }
  }

  // Containers: each creation and each removal may be durable or not, independently. A reused
  // number refers to its earlier container, to the new one, or to none.
  void crash_place(Place& place) {
    std::set<std::uint64_t> ids;
    for (const auto& [id, data] : place.containers) {
      ids.insert(id);
    }
    for (const auto& [id, data] : place.durable_containers) {
      ids.insert(id);
    }
    std::map<std::uint64_t, DataPtr> found;
    for (const auto id : ids) {
      const auto now = place.containers.find(id), before = place.durable_containers.find(id);
      const bool is = now != place.containers.end(), was = before != place.durable_containers.end();
      const bool sure = is && was && now->second == before->second;
      if (!sure && chance()) {
        continue;
      }
      found[id] = is && (!was || sure || chance()) ? now->second
                  : was                            ? before->second
                                                   : now->second;
      if (!sure && !found[id]->labelled && chance()) {
        found[id]->lose_label();
      }
    }
    for (auto& [id, data] : found) {
      if (!data->synced) {
        mix(*data);
      }
      data->visible = data->durable;
      data->synced = true;
    }
    place.containers = place.durable_containers = found;
  }

  static void drop_behind_end(File& file) {
    file.touched.each([&](std::uint64_t line) { std::memset(file.durable.at(line * 64), 0, 64); },
                      (file.durable_size + 63) / 64);
  }

  static void copy_line(File& file, std::uint64_t line, unsigned words) {
    if (words == ~0U) {
      std::memcpy(file.durable.at(line * 64), file.visible.at(line * 64), 64);
      return;
    }
    for (std::size_t word = 0; word < 8; ++word) {
      if ((words >> word & 1U) != 0) {
        std::memcpy(file.durable.at(line * 64 + word * 8), file.visible.at(line * 64 + word * 8),
                    8);
      }
    }
  }

  void mix(Data& data) {
    std::string result = chance()
                             ? data.durable
                             : std::string(data.durable)
                                   .substr(0, std::min(data.durable.size(), data.visible.size()));
    if (chance()) {
      result.resize(data.visible.size());
    }
    for (std::size_t i = 0; i < result.size() && i < data.visible.size(); i += 8) {
      if (chance()) {
        std::memcpy(result.data() + i, data.visible.data() + i,
                    std::min<std::size_t>(8, std::min(result.size(), data.visible.size()) - i));
      }
    }
    data.durable = result;
  }

  const Durability durability_;
  std::mt19937_64 random_;
  std::uint64_t end_ = 0, count_ = 0;
  unsigned lives_ = 0;
  bool dead_ = false;
  std::uint64_t failing_ = 0, calls_ = 0;
  int code_ = 0;
  bool fails_on_ = false;
  std::string failed_call_;
  std::vector<const char*> names_;
  Lies lies_;
};

}  // namespace efs::test
