#pragma once
// A store that can lose its power: every byte has a visible and a durable face. Stores change the visible one; flush,
// drain and sync move lines to the durable one. After a crash the durable face is what is left, with any part of what
// was on its way. Each event that makes something durable counts, and the world ends before the one that it is told.

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
#include "backends/virtual_device.hpp"
#include "base/unique_fd.hpp"
#include "store/medium.hpp"
#include "support/failing_new.hpp"

namespace efs::test {

/// The power is gone. Thrown through everything; nothing that it passes is used again. Where somebody takes it for a failure
/// (staging does), the world stays as it was: ended().
struct PowerLoss : std::exception {};

/// What a world may do wrong, to see that the checks notice.
struct Lies {
  std::string deaf;        // events of this name do nothing (and say that they did): "drain", "journal sync", ...
  std::uint64_t deaf_at = 0;  // instead: only the one with this number, of any name; 0: none
  unsigned deaf_life = 0;     // in this life: 0 is the first, 1 the recovery and what follows it
  bool keeps_old = false;     // stores of zeros are lost: what lies behind the tail stays
  bool switch_in_two = false; // a rename first takes the name away, then gives it
};

class SimWorld {
 public:
  SimWorld(Durability durability, std::uint64_t seed, std::size_t places_ = 1) : places(places_), durability_(durability), random_(seed) { names_.reserve(1U << 14); }

  Durability durability() const { return durability_; }
  std::mt19937_64& random() { return random_; }
  bool chance() { return (random_() & 1) != 0; }

  /// The world ends before event number n (1 is the first); 0: never.
  void end_before(std::uint64_t n) { end_ = n; }
  std::uint64_t events() const { return count_; }
  const std::vector<const char*>& names() const { return names_; }
  bool loses_zeros() const { return lies_.keeps_old; }
  bool switches_in_two() const { return lies_.switch_in_two; }
  void lie(Lies lies) { lies_ = std::move(lies); }

  /// True: the event takes place.
  bool event(const char* name) {
    if (dead_) throw PowerLoss{};
    look();
    ++count_;
    names_.push_back(name);
    if (count_ == end_) {
      dead_ = true;
      throw PowerLoss{};
    }
    return lies_.deaf_at == 0 ? lies_.deaf != name : lies_.deaf_at != count_ || lies_.deaf_life != lives_;
  }

  /// The call with number n (1 is the first) fails with `code`, and with `on` all that follow, too. 0: none does.
  void fail_call(std::uint64_t n, int code = EIO, bool on = false) { failing_ = n, code_ = code, fails_on_ = on, calls_ = 0; }
  std::uint64_t calls() const { return calls_; }
  /// The name of the call that failed first; "": none did.
  const std::string& failed_call() const { return failed_call_; }
  /// At the head of everything that a store may refuse.
  Status call(const char* name) {
    ++calls_;
    if (failing_ == 0 || calls_ < failing_ || (calls_ > failing_ && !fails_on_)) return {};
    if (calls_ == failing_) failed_call_ = name;
    return fail(code_, std::string("injected: ") + name);
  }

  /// Address space that costs what is touched of it, and stays where it is.
  class Region {
   public:
    Region() : bytes_(static_cast<std::byte*>(::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
      if (bytes_ == MAP_FAILED) throw std::bad_alloc();
    }
    ~Region() { ::munmap(bytes_, room); }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    std::byte* at(std::uint64_t offset) { return bytes_ + offset; }

   private:
    static constexpr std::size_t room = 32u << 20;
    std::byte* bytes_;
  };
  struct File {  // of the journal's directory
    Region visible, durable;
    std::uint64_t size = 0, durable_size = 0;
    std::set<std::uint64_t> dirty;    // lines of 64 bytes that may differ
    std::set<std::uint64_t> touched;  // lines that may not be zero
  };
  using FilePtr = std::shared_ptr<File>;
  std::map<std::string, FilePtr> files, durable_files;
  std::vector<std::function<void(std::map<std::string, FilePtr>&)>> names_on_the_way;

  struct Data {  // of a container
    std::string visible, durable;
    bool synced = true;  // equal
    unsigned life = 0;   // in which it was made: power losses so far
    UniqueFd file;       // once somebody has asked for a descriptor: has what is visible, and is written to behind our back

    int descriptor() {
      if (file) return file.get();
      file.reset(::memfd_create("container", MFD_CLOEXEC));
      if (!file || ::fchmod(file.get(), 0600) != 0) std::abort();
      show();
      return file.get();
    }
    /// Takes what was written to the descriptor.
    void look() {
      struct stat st {};
      if (!file || ::fstat(file.get(), &st) != 0) return;
      std::string now(static_cast<std::size_t>(st.st_size), '\0');
      if (::pread(file.get(), now.data(), now.size(), 0) != static_cast<ssize_t>(now.size()) || now == visible) return;
      visible = std::move(now);
      synced = false;
    }
    /// The reverse. Times stay.
    void show() {
      struct stat st {};
      if (!file || ::fstat(file.get(), &st) != 0) return;
      const timespec times[2] = {st.st_atim, st.st_mtim};
      if (::ftruncate(file.get(), static_cast<off_t>(visible.size())) != 0 || ::pwrite(file.get(), visible.data(), visible.size(), 0) != static_cast<ssize_t>(visible.size())) std::abort();
      ::futimens(file.get(), times);
    }
  };
  using DataPtr = std::shared_ptr<Data>;
  struct Place {  // of the store: a file system of its own
    std::map<std::uint64_t, DataPtr> containers, durable_containers;
    std::size_t room = SIZE_MAX;  // containers that it takes
  };
  std::vector<Place> places;
  unsigned lives() const { return lives_; }
  bool ended() const { return dead_; }
  bool gives_descriptors = false;  // of containers
  std::map<int, DataPtr> shared;  // files of others that can be adopted as containers, by descriptor

  /// The container; null: there is none.
  DataPtr find(std::uint64_t id) const {
    for (const auto& place : places)
      if (const auto found = place.containers.find(id); found != place.containers.end()) return found->second;
    return nullptr;
  }
  void for_each_container(const std::function<void(std::uint64_t id, Data& data)>& visit) const {
    for (const auto& place : places)
      for (const auto& [id, data] : place.containers) visit(id, *data);
  }

  void sync_file(File& file) {
    for (const auto line : file.dirty) copy_line(file, line, ~0U);
    file.dirty.clear();
    file.durable_size = file.size;
  }

  /// Only the processes ended: all that was visible is.
  void go_on() {
    ++lives_;
    begin();
  }
  /// What a machine finds when the power is back.
  void crash() {
    look();
    // Names of the journal's directory: an ordered log of which the file system had written any part.
    while (!names_on_the_way.empty() && chance()) {
      names_on_the_way.front()(durable_files);
      names_on_the_way.erase(names_on_the_way.begin());
    }
    names_on_the_way.clear();
    files = durable_files;
    for (auto& [name, file] : files) {
      // A line that was on its way is there or not, or in part: eight bytes are the unit of a store. Often all are.
      const bool all = random_() % 4 == 0;
      for (const auto line : file->dirty)
        if (const auto kind = all ? 1 : random_() % 3; kind != 0) copy_line(*file, line, kind == 1 ? ~0U : static_cast<unsigned>(random_()));
      file->dirty.clear();
      if (file->durable_size < file->size && chance()) file->durable_size = file->size;
      file->size = file->durable_size;
      for (const auto line : file->touched) {
        if (line * 64 >= file->size) std::memset(file->durable.at(line * 64), 0, 64);
        std::memcpy(file->visible.at(line * 64), file->durable.at(line * 64), 64);
      }
    }
    for (auto& place : places) crash_place(place);
    ++lives_;
    begin();
  }

 private:
  void begin() {
    dead_ = false;
    end_ = 0;
    count_ = 0;
    names_.clear();
    if (lies_.deaf_at != 0 && lives_ > lies_.deaf_life) lies_ = {};
  }
  // What was written to descriptors until the power went.
  void look() {
    if (gives_descriptors && !dead_) for_each_container([](std::uint64_t, Data& data) { data.look(); });
  }
  // Containers: each creation and removal by itself may have made it. A number that was used again leads to the container
  // that had it before, to the new one, or to none.
  void crash_place(Place& place) {
    std::set<std::uint64_t> ids;
    for (const auto& [id, data] : place.containers) ids.insert(id);
    for (const auto& [id, data] : place.durable_containers) ids.insert(id);
    std::map<std::uint64_t, DataPtr> found;
    for (const auto id : ids) {
      const auto now = place.containers.find(id), before = place.durable_containers.find(id);
      const bool is = now != place.containers.end(), was = before != place.durable_containers.end();
      const bool sure = is && was && now->second == before->second;
      if (!sure && chance()) continue;
      found[id] = is && (!was || sure || chance()) ? now->second : was ? before->second : now->second;
    }
    for (auto& [id, data] : found) {
      if (!data->synced) mix(*data);
      data->visible = data->durable;
      data->synced = true;
      data->show();
    }
    place.containers = place.durable_containers = found;
  }
  static void copy_line(File& file, std::uint64_t line, unsigned words) {
    for (std::size_t word = 0; word < 8; ++word)
      if ((words >> word & 1U) != 0) std::memcpy(file.durable.at(line * 64 + word * 8), file.visible.at(line * 64 + word * 8), 8);
  }
  void mix(Data& data) {
    std::string result = chance() ? data.durable : std::string(data.durable).substr(0, std::min(data.durable.size(), data.visible.size()));
    if (chance()) result.resize(data.visible.size());
    for (std::size_t i = 0; i < result.size() && i < data.visible.size(); i += 8)
      if (chance()) std::memcpy(result.data() + i, data.visible.data() + i, std::min<std::size_t>(8, std::min(result.size(), data.visible.size()) - i));
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

class SimFile final : public store::MediumFile {
 public:
  SimFile(SimWorld& world, SimWorld::FilePtr file) : world_(world), file_(std::move(file)) {}
  Result<std::uint64_t> size() override {
    EFS_TRY(world_.call("journal size"));
    return file_->size;
  }
  Status allocate(std::uint64_t size) override {
    EFS_TRY(world_.call("journal allocate"));
    file_->size = std::max(file_->size, size);
    if (world_.durability() == Durability::cache_line) file_->durable_size = file_->size;  // MAP_SYNC, and an fsync
    return {};
  }
  Status cut(std::uint64_t size) override {
    EFS_TRY(world_.call("journal cut"));
    if (size >= file_->size) return {};
    file_->size = size;
    file_->durable_size = std::min(file_->durable_size, size);
    for (const auto line : file_->touched) {
      if (line * 64 < size) continue;
      std::memset(file_->visible.at(line * 64), 0, 64);
      std::memset(file_->durable.at(line * 64), 0, 64);
    }
    file_->dirty.erase(file_->dirty.lower_bound(size / 64), file_->dirty.end());
    return {};
  }
  Result<std::byte*> map(std::uint64_t offset, std::size_t length) override {
    EFS_TRY(world_.call("journal map"));
    if (offset + length > file_->size) return fail(ENXIO, "a window beyond the file");
    return file_->visible.at(offset);
  }
  void store(std::byte* to, std::span<const std::byte> from) override {
    if (world_.ended()) return;
    if (world_.loses_zeros() && std::ranges::all_of(from, [](std::byte b) { return b == std::byte{0}; })) return;
    std::memcpy(to, from.data(), from.size());
    const auto at = static_cast<std::uint64_t>(to - file_->visible.at(0));
    for (auto line = at / 64; line <= (at + from.size() - 1) / 64; ++line) {
      file_->dirty.insert(line);
      file_->touched.insert(line);
    }
  }
  void drain() override {
    if (world_.durability() != Durability::cache_line || !world_.event("drain")) return;
    world_.sync_file(*file_);
  }
  Status sync() override {
    EFS_TRY(world_.call("journal sync"));
    if (world_.event("journal sync")) world_.sync_file(*file_);
    return {};
  }

 private:
  SimWorld& world_;
  const SimWorld::FilePtr file_;
};

class SimMedium final : public store::Medium {
 public:
  explicit SimMedium(SimWorld& world) : world_(world) {}
  Result<std::unique_ptr<store::MediumFile>> create(const std::string& name) override {
    EFS_TRY(world_.call("journal create"));
    if (world_.files.contains(name)) return fail(EEXIST);
    auto file = std::make_shared<SimWorld::File>();
    world_.files[name] = file;
    world_.names_on_the_way.emplace_back([=](auto& names) { names[name] = file; });
    return std::make_unique<SimFile>(world_, file);
  }
  Result<std::unique_ptr<store::MediumFile>> open(const std::string& name, bool) override {
    EFS_TRY(world_.call("journal open"));
    const auto found = world_.files.find(name);
    if (found == world_.files.end()) return fail(ENOENT);
    return std::make_unique<SimFile>(world_, found->second);
  }
  Status rename(const std::string& from, const std::string& to) override {
    EFS_TRY(world_.call("journal rename"));
    const SparedAllocations spared;
    const auto file = world_.files.at(from);
    world_.files.erase(from);
    world_.files[to] = file;
    if (world_.switches_in_two()) world_.names_on_the_way.emplace_back([=](auto& names) { names.erase(to); });
    world_.names_on_the_way.emplace_back([=](auto& names) {
      names.erase(from);
      names[to] = file;
    });
    (void)world_.event("rename");  // between the switch and what follows
    return {};
  }
  Status remove(const std::string& name) override {
    EFS_TRY(world_.call("journal remove"));
    if (world_.files.erase(name) != 0) world_.names_on_the_way.emplace_back([=](auto& names) { names.erase(name); });
    return {};
  }
  Status sync_names() override {
    EFS_TRY(world_.call("names sync"));
    if (!world_.event("names sync")) return {};
    const SparedAllocations spared;
    for (auto& step : world_.names_on_the_way) step(world_.durable_files);
    world_.names_on_the_way.clear();
    return {};
  }

 private:
  SimWorld& world_;
};

class SimBackend final : public Backend {
 public:
  explicit SimBackend(SimWorld& world, std::size_t place = 0) : world_(world), place_(world.places.at(place)) {}

  class SimContainer final : public Container {
   public:
    SimContainer(SimWorld& world, SimWorld::DataPtr data) : world_(world), data_(std::move(data)) {}
    Result<std::size_t> read(std::span<std::byte> into, std::uint64_t offset) override {
      EFS_TRY(world_.call("read"));
      data_->look();
      if (offset >= data_->visible.size()) return 0;
      const auto n = std::min<std::size_t>(into.size(), data_->visible.size() - offset);
      std::memcpy(into.data(), data_->visible.data() + offset, n);
      return n;
    }
    Result<std::size_t> write(std::span<const std::byte> from, std::uint64_t offset) override {
      EFS_TRY(world_.call("write"));
      data_->look();
      if (data_->visible.size() < offset + from.size()) data_->visible.resize(offset + from.size());
      std::memcpy(data_->visible.data() + offset, from.data(), from.size());
      data_->synced = false;
      data_->show();
      return from.size();
    }
    Status truncate(std::uint64_t size) override {
      EFS_TRY(world_.call("truncate"));
      data_->look();
      data_->visible.resize(size);
      data_->synced = false;
      data_->show();
      return {};
    }
    Status allocate(int, std::uint64_t, std::uint64_t) override { return world_.call("allocate"); }
    Result<std::uint64_t> seek(std::uint64_t offset, int) override {
      EFS_TRY(world_.call("seek"));
      return offset;
    }
    Result<struct stat> attributes() override {
      EFS_TRY(world_.call("attributes"));
      struct stat st {};
      if (world_.gives_descriptors && ::fstat(data_->descriptor(), &st) == 0) return st;
      st.st_size = static_cast<off_t>(data_->visible.size());
      return st;
    }
    Status set_times(std::optional<FileTime>, std::optional<FileTime>) override { return world_.call("set_times"); }
    void accessed() override {}
    Status sync(bool) override {
      EFS_TRY(world_.call("data sync"));
      if (world_.event("data sync")) settle(*data_);
      return {};
    }
    Result<std::unique_ptr<Segment>> map(std::uint64_t, std::size_t) override { return fail(ENOTSUP); }
    int descriptor() const override { return world_.gives_descriptors ? data_->descriptor() : -1; }
    static void settle(SimWorld::Data& data) {
      data.durable = data.visible;
      data.synced = true;
    }

   private:
    SimWorld& world_;
    const SimWorld::DataPtr data_;
  };

  Result<std::shared_ptr<Container>> create(std::uint64_t id) override {
    EFS_TRY(world_.call("create"));
    if (place_.containers.contains(id)) return fail(EEXIST);
    if (place_.containers.size() >= place_.room) return fail(ENOSPC);
    const auto data = std::make_shared<SimWorld::Data>();
    data->life = world_.lives();
    place_.containers[id] = data;
    auto made = open(id);
    if (!made) place_.containers.erase(id);
    return made;
  }
  Result<std::shared_ptr<Container>> open(std::uint64_t id) override {
    EFS_TRY(world_.call("open"));
    const auto found = place_.containers.find(id);
    if (found == place_.containers.end()) return fail(ENOENT);
    return std::make_shared<SimContainer>(world_, found->second);
  }
  Result<std::shared_ptr<Container>> adopt(std::uint64_t id, int fd) override {
    EFS_TRY(world_.call("adopt"));
    const auto found = world_.shared.find(fd);
    if (found == world_.shared.end()) return fail(EXDEV);
    if (!place_.containers.emplace(id, found->second).second) return fail(EEXIST);
    auto made = open(id);
    if (!made) place_.containers.erase(id);
    return made;
  }
  std::uint64_t remove(std::uint64_t id) override {
    if (world_.ended()) return 0;  // a destructor: its process is no more
    if (place_.containers.contains(id)) world_.event("remove");
    place_.containers.erase(id);
    return 0;
  }
  Result<struct stat> attributes(std::uint64_t id) override {
    auto container = open(id);
    if (!container) return std::unexpected(container.error());
    return (*container)->attributes();
  }
  Status set_times(std::uint64_t id, std::optional<FileTime>, std::optional<FileTime>) override {
    EFS_TRY(world_.call("set_times by id"));
    return place_.containers.contains(id) ? Status{} : fail(ENOENT);
  }
  Status sync_name(std::uint64_t id) override {
    EFS_TRY(world_.call("container name sync"));
    if (!world_.event("container name sync")) return {};
    if (const auto found = place_.containers.find(id); found != place_.containers.end()) place_.durable_containers[id] = found->second;
    else place_.durable_containers.erase(id);
    return {};
  }
  Status sync_all() override {
    EFS_TRY(world_.call("all data sync"));
    if (!world_.event("all data sync")) return {};
    for (auto& [id, data] : place_.containers) SimContainer::settle(*data);
    place_.durable_containers = place_.containers;
    return {};
  }
  Status for_each(const std::function<void(std::uint64_t)>& visit) override {
    EFS_TRY(world_.call("for_each"));
    const auto copy = place_.containers;
    for (const auto& [id, data] : copy) visit(id);
    return {};
  }
  Space space() override { return {.capacity = 1u << 30, .used = 0, .available = place_.containers.size() < place_.room ? 1u << 30 : 0}; }
  Status admit_writer() override { return {}; }
  Durability durability() const override { return world_.durability(); }
  bool offers_descriptor() const override { return false; }
  std::string description() const override { return "simulated"; }

 private:
  SimWorld& world_;
  SimWorld::Place& place_;
};

/// The backend of a world: of all its places, as one device looks at them now.
inline Result<std::unique_ptr<Backend>> open_store(SimWorld& world) {
  if (world.places.size() == 1) return std::make_unique<SimBackend>(world);
  VirtualDeviceOptions options{.members = {}, .new_containers = 0, .spill = true};
  for (std::size_t place = 0; place < world.places.size(); ++place) options.members.push_back({.id = std::to_string(place), .backend = std::make_unique<SimBackend>(world, place)});
  return make_virtual_device(std::move(options));
}

}  // namespace efs::test
