// SPDX-License-Identifier: BSD-3-Clause
#include "backends/virtual_device.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/mutex.hpp"

namespace efs {
namespace {

/// Maps each container to its place. Not thread-safe.
class PlaceIndex {
 public:
  std::optional<unsigned> find(std::uint64_t id) const {
    const auto page = pages_.find(id / per_page);
    const std::uint8_t known = page == pages_.end() ? 0 : page->second->places[id % per_page];
    return known == 0 ? std::nullopt : std::optional<unsigned>(known - 1U);
  }

  void set(std::uint64_t id, unsigned place) {
    auto page = pages_.find(id / per_page);
    if (page == pages_.end()) {
      page = pages_.emplace(id / per_page, std::make_unique<Page>()).first;
    }
    std::uint8_t& known = page->second->places[id % per_page];
    if (known == 0) {
      ++page->second->used;
    }
    known = static_cast<std::uint8_t>(place + 1);
  }

  void erase(std::uint64_t id) {
    const auto page = pages_.find(id / per_page);
    if (page == pages_.end() || page->second->places[id % per_page] == 0) {
      return;
    }
    page->second->places[id % per_page] = 0;
    if (--page->second->used == 0) {
      pages_.erase(page);
    }
  }

 private:
  // numbers are consecutive, so pages are full: one byte a container
  static constexpr std::uint64_t per_page = 4096;

  struct Page {
    std::array<std::uint8_t, per_page> places{};  // the place + 1; 0: no such container
    unsigned used = 0;
  };

  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
};

/// Which containers of the members the numbers of callers address, where the two differ. Not
/// thread-safe.
class Numbers {
 public:
  /// The number in the member; 0: none.
  std::uint64_t member_of(std::uint64_t id) const {
    if (const auto it = members_.find(id); it != members_.end()) {
      return it->second;
    }
    return callers_.contains(id) ? 0 : id;
  }

  std::uint64_t caller_of(std::uint64_t member) const {
    const auto it = callers_.find(member);
    return it == callers_.end() ? member : it->second;
  }

  void exchange(std::uint64_t id, std::uint64_t other) {
    const std::uint64_t one = member_of(id), two = member_of(other);
    members_.try_emplace(id, one);  // a lack of memory here changes nothing
    members_.try_emplace(other, two);
    callers_.try_emplace(one, id);
    callers_.try_emplace(two, other);
    set(id, two);
    set(other, one);
  }

  /// The container is gone.
  void forget(std::uint64_t id) {
    if (const auto it = members_.find(id); it != members_.end()) {
      callers_.erase(it->second);
      members_.erase(it);
    }
  }

 private:
  void set(std::uint64_t id, std::uint64_t member) {
    members_[id] = member;
    callers_[member] = id;
    if (id == member) {
      members_.erase(id);
      callers_.erase(id);
    }
  }

  // Each other's inverse. A number that is in neither of them is the same in the member.
  std::unordered_map<std::uint64_t, std::uint64_t> members_, callers_;
};

class VirtualDevice final : public Backend {
 public:
  explicit VirtualDevice(VirtualDeviceOptions options) : options_(std::move(options)) {}

  Status look_around() {
    WriteLock lock(mutex_);
    for (unsigned place = 0; place < places(); ++place) {
      std::optional<std::uint64_t> twice;
      const Status seen = member(place).for_each([&](std::uint64_t id) EFS_REQUIRES(mutex_) {
        const auto other = index_.find(id);
        // Power loss can leave an unfinished container if this place refused a creation and the
        // next place accepted it.
        if (!other || member(*other).ownership(id) == Ownership::unfinished) {
          index_.set(id, place);
        } else if (member(place).ownership(id) != Ownership::unfinished) {
          twice = id;
        }
      });
      if (!seen && listed_) {
        listed_ = fail(seen.error().code, id_of(place) + ": " + describe(seen.error()));
      }
      if (twice) {
        return fail(EUCLEAN, "container " + std::to_string(*twice) + " is in two backends, " +
                                 id_of(*index_.find(*twice)) + " and " + id_of(place) +
                                 "; efs cannot tell which is valid");
      }
    }
    return {};
  }

  Result<std::shared_ptr<Container>> create(std::uint64_t id, CachePolicy policy) override {
    const auto place = place_for({});
    if (!place) {
      return std::unexpected(place.error());
    }
    return create_at(id, *place, policy);
  }

  Result<std::shared_ptr<Container>> create_at(std::uint64_t id, unsigned first,
                                               CachePolicy policy) override {
    const std::uint64_t number = claim(id, first);
    if (number == 0) {
      return fail(EEXIST);
    }
    auto made = member(first).create(number, policy);
    for (unsigned step = 1;
         options_.spill && !made && made.error().code == ENOSPC && step < places(); ++step) {
      const unsigned next = (first + step) % places();
      move_claim(number, next);
      made = member(next).create(number, policy);
    }
    if (!made) {
      const WriteLock lock(mutex_);
      index_.erase(number);
    }
    return made;
  }

  /// The plan chooses the place of a container, so cached inputs are copied, not linked.
  Result<std::shared_ptr<Container>> adopt(std::uint64_t, Container&) override {
    return fail(EXDEV);
  }

  // An exchange finds the container open, or this finds the exchange.
  Result<std::shared_ptr<Container>> open(std::uint64_t id, CachePolicy policy) override {
    for (;;) {
      const Held held = holder(id);
      if (held.member == nullptr) {
        return fail(ENOENT);
      }
      auto opened = held.member->open(held.number, policy);
      const ReadLock lock(mutex_);
      if (numbers_.member_of(id) == held.number) {
        return opened;
      }
    }
  }

  Status label(std::uint64_t id) override {
    const Held held = holder(id);
    return held.member != nullptr ? held.member->label(held.number) : fail(ENOENT);
  }

  Ownership ownership(std::uint64_t id) override {
    const Held held = holder(id);
    return held.member != nullptr ? held.member->ownership(held.number) : Ownership::own;
  }

  std::optional<std::uint64_t> remove(std::uint64_t id) override {
    const Held held = holder(id);
    if (held.member == nullptr) {
      return 0;
    }
    const auto freed = held.member->remove(held.number);
    if (freed) {
      disclaim(id, held.number);  // after the removal: until then the number stays reserved
    }
    return freed;
  }

  Result<struct stat> attributes(std::uint64_t id) override {
    const Held held = holder(id);
    if (held.member == nullptr) {
      return fail(ENOENT);
    }
    return held.member->attributes(held.number);
  }

  Status set_times(std::uint64_t id, std::optional<FileTime> atime,
                   std::optional<FileTime> mtime) override {
    const Held held = holder(id);
    return held.member != nullptr ? held.member->set_times(held.number, atime, mtime)
                                  : fail(ENOENT);
  }

  Status sync_name(std::uint64_t id) override {
    const Held held = holder(id);
    return held.member != nullptr ? held.member->sync_name(held.number) : fail(ENOENT);
  }

  Status sync_all() override {
    Status first;
    for (auto& one : options_.members) {
      if (const Status done = one.backend->sync_all(); !done && first) {
        first = fail(done.error().code, one.id + ": " + describe(done.error()));
      }
    }
    return first;
  }

  Status for_each(const std::function<void(std::uint64_t id)>& visit) override {
    // The index lacks the containers that could not be listed at set-up, even if they can be listed
    // now.
    Status first = listed_at_set_up();
    for (auto& one : options_.members) {
      const Status listed =
          one.backend->for_each([&](std::uint64_t number) { visit(caller_of(number)); });
      if (!listed && first) {
        first = fail(listed.error().code, one.id + ": " + describe(listed.error()));
      }
    }
    return first;
  }

  bool may_be_written(std::uint64_t id) override {
    const Held held = holder(id);
    return held.member == nullptr || held.member->may_be_written(held.number);
  }

  bool may_be_open(std::uint64_t id) override {
    const Held held = holder(id);
    return held.member == nullptr || held.member->may_be_open(held.number);
  }

  bool is_written(std::uint64_t id) override {
    const Held held = holder(id);
    return held.member != nullptr && held.member->is_written(held.number);
  }

  Space space() override {
    Space sum;
    for (unsigned place = 0; place < places(); ++place) {
      const Space one = member(place).space();
      sum.capacity += one.capacity;
      sum.used += one.used;
      if (options_.spill || place == options_.new_containers) {
        sum.available += one.available;
      }
    }
    return sum;
  }

  // Called without locks, before the place is chosen. place_for() asks the chosen place again,
  // which has the answer cached.
  Status admit_writer() override {
    Status last;
    bool any = false;
    for (auto& one : options_.members) {
      last = one.backend->admit_writer();
      any = any || last;
    }
    return any ? Status{} : last;
  }

  void look_again(bool only_if_full) override {
    for (auto& one : options_.members) {
      one.backend->look_again(only_if_full);
    }
  }

  void await_removed() override {
    for (auto& one : options_.members) {
      one.backend->await_removed();
    }
  }

  Durability durability() const override { return options_.members.front().backend->durability(); }

  bool offers_descriptor() const override {
    return std::ranges::any_of(options_.members,
                               [](const auto& one) { return one.backend->offers_descriptor(); });
  }

  bool zeros_take_space() const override {
    return std::ranges::any_of(options_.members,
                               [](const auto& one) { return one.backend->zeros_take_space(); });
  }

  std::string description() const override {
    std::string text = std::to_string(places()) + " backends:";
    for (const auto& one : options_.members) {
      text += (&one == &options_.members.front() ? " " : "; ") + one.id + " " +
              one.backend->description();
    }
    return text;
  }

  unsigned places() const override { return static_cast<unsigned>(options_.members.size()); }

  Backend& at(unsigned place) override { return member(place); }

  unsigned place_of(std::uint64_t id) override {
    ReadLock lock(mutex_);
    return index_.find(numbers_.member_of(id)).value_or(0);
  }

  Status exchange(std::uint64_t id, std::uint64_t other, Exchange when) override {
    const WriteLock lock(mutex_);
    if (when == Exchange::at_set_up && numbers_.member_of(id) == other) {
      return {};
    }
    const Held one = find(id), two = find(other);
    if (when == Exchange::if_unused) {
      if (one.member == nullptr || two.member == nullptr) {
        return fail(ENOENT);
      }
      if (one.member->may_be_open(one.number)) {
        return fail(EBUSY, "a program may have it open or mapped");
      }
    }
    numbers_.exchange(id, other);
    return {};
  }

  Result<unsigned> place_for(const Placement& wanted) override {
    const unsigned home = wanted.place.value_or(options_.new_containers);
    if (home >= places()) {
      return fail(EINVAL, "there is no backend " + std::to_string(home));
    }
    if (!options_.spill) {
      EFS_TRY(member(home).admit_writer());
      return home;
    }
    // Two passes: the last bytes of a place are used only when all places are nearly full.
    for (const bool ample : {true, false}) {
      for (unsigned step = 0; step < places(); ++step) {
        const unsigned place = (home + step) % places();
        if (takes(member(place), wanted.size, ample)) {
          return place;
        }
      }
    }
    return fail(ENOSPC);
  }

 private:
  static bool takes(Backend& place, std::uint64_t size, bool ample) {
    const Space space = place.space();
    const std::uint64_t least = size > 0 ? size : ample ? room_for_unknown(space) : 4096;
    return space.available >= least && place.admit_writer();
  }

  Backend& member(unsigned place) { return *options_.members[place].backend; }

  const std::string& id_of(unsigned place) const { return options_.members[place].id; }

  /// A container in its member; null: there is none.
  struct Held {
    Backend* member = nullptr;
    std::uint64_t number = 0;
  };

  Held holder(std::uint64_t id) {
    const ReadLock lock(mutex_);
    return find(id);
  }

  Held find(std::uint64_t id) EFS_REQUIRES_SHARED(mutex_) {
    const std::uint64_t number = numbers_.member_of(id);
    if (number == 0) {
      return {};
    }
    if (const auto place = index_.find(number)) {
      return {.member = &member(*place), .number = number};
    }
    for (unsigned place = 0; !listed_ && place < places(); ++place) {
      if (member(place).attributes(number)) {
        return {.member = &member(place), .number = number};
      }
    }
    return {};
  }

  std::uint64_t caller_of(std::uint64_t number) {
    const ReadLock lock(mutex_);
    return numbers_.caller_of(number);
  }

  Status listed_at_set_up() {
    ReadLock lock(mutex_);
    return listed_;
  }

  /// Returns the number in the member; 0: there is such a container.
  std::uint64_t claim(std::uint64_t id, unsigned place) {
    WriteLock lock(mutex_);
    const std::uint64_t number = numbers_.member_of(id);
    if (number == 0 || index_.find(number)) {
      return 0;
    }
    index_.set(number, place);
    return number;
  }

  void move_claim(std::uint64_t number, unsigned place) {
    WriteLock lock(mutex_);
    index_.set(number, place);
  }

  void disclaim(std::uint64_t id, std::uint64_t number) {
    WriteLock lock(mutex_);
    index_.erase(number);
    numbers_.forget(id);
  }

  const VirtualDeviceOptions options_;
  SharedMutex mutex_;                        // rank 48
  PlaceIndex index_ EFS_GUARDED_BY(mutex_);  // by the number in the member
  Numbers numbers_ EFS_GUARDED_BY(mutex_);
  Status listed_ EFS_GUARDED_BY(mutex_);  // the reason why the index may be incomplete; ok: it is
                                          // complete
};

}  // namespace

std::uint64_t room_for_unknown(const Space& space) {
  return std::clamp<std::uint64_t>(space.capacity / 64, 1u << 20, 1u << 30);
}

Result<std::unique_ptr<Backend>> make_virtual_device(VirtualDeviceOptions options) {
  const std::size_t count = options.members.size();
  if (count == 0 || count > VirtualDeviceOptions::most_places || options.new_containers >= count) {
    return fail(EINVAL, "a virtual device of " + std::to_string(count) + " backends");
  }
  auto device = std::make_unique<VirtualDevice>(std::move(options));
  EFS_TRY(device->look_around());
  return device;
}

Durability weakest_durability(Backend& store) {
  Durability weakest = store.at(0).durability();
  for (unsigned place = 1; place < store.places(); ++place) {
    weakest = std::min(weakest, store.at(place).durability());
  }
  return weakest;
}

bool is_volatile(Backend& store) {
  for (unsigned place = 0; place < store.places(); ++place) {
    if (store.at(place).durability() != Durability::volatile_memory) {
      return false;
    }
  }
  return true;
}

}  // namespace efs
