// SPDX-License-Identifier: BSD-3-Clause
#include "cli/pmem_devices.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/unique_fd.hpp"

namespace efs::cli {
namespace {

using Names = std::vector<std::string>;

// "PREFIX", digits and, with `two`, a dot and digits: region0, namespace0.1.
bool is_device(std::string_view name, std::string_view prefix, bool two) {
  if (!name.starts_with(prefix)) {
    return false;
  }
  name.remove_prefix(prefix.size());
  const auto dot = name.find('.');
  const auto is_number = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
  };
  return two ? dot != name.npos && is_number(name.substr(0, dot)) && is_number(name.substr(dot + 1))
             : is_number(name);
}

// Numbers in names by value: namespace0.2 before namespace0.10.
bool in_order(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

// A decimal number, or a hexadecimal one that begins with 0x.
std::optional<std::uint64_t> number_in(std::string_view text) {
  const bool is_hexadecimal = text.starts_with("0x");
  text.remove_prefix(is_hexadecimal ? 2 : 0);
  std::uint64_t number = 0;
  const auto [end, problem] =
      std::from_chars(text.data(), text.data() + text.size(), number, is_hexadecimal ? 16 : 10);
  return problem == std::errc{} && end == text.data() + text.size() ? std::optional(number)
                                                                    : std::nullopt;
}

// The last component of the target of a symbolic link; "" if there is none.
std::string link_target(const std::string& link) {
  std::error_code problem;
  return std::filesystem::read_symlink(link, problem).filename().string();
}

const char* mode_of(std::string_view word) {
  static constexpr std::array<std::pair<std::string_view, const char*>, 3> modes{
      {{"safe", "sector"}, {"memory", "fsdax"}, {"dax", "devdax"}}};
  const auto* const found = std::ranges::find(modes, word, &decltype(modes)::value_type::first);
  return found == modes.end() ? nullptr : found->second;
}

// The block devices that lie on one device, by their numbers "MAJOR:MINOR".
using BlockDevices = std::map<std::string, std::string>;

class Reader {
 public:
  Reader(const std::string& root, const PmemSysfs::Probe& probe, PmemDevices& devices)
      : root_(root), probe_(probe), devices_(devices), mounts_(mount_table(root)) {}

  void read() {
    if (!std::filesystem::is_directory(root_ + "/sys/bus")) {
      devices_.problems.emplace_back("/sys/bus is not there: sysfs is not mounted");
      return;
    }
    for (const auto& name : list(nd)) {
      if (is_device(name, "region", false)) {
        devices_.regions.push_back(read_region(name));
      }
    }
    read_others();
  }

 private:
  static constexpr const char* nd = "/sys/bus/nd/devices";

  void note(const std::string& path, const std::string& why) {
    devices_.problems.push_back(path + ": " + why);
  }

  // Returns the names in a directory. A directory that does not exist has none.
  Names list(const std::string& path) {
    Names entries;
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir((root_ + path).c_str()),
                                                        [](DIR* open) { return ::closedir(open); });
    if (!directory) {
      if (errno != ENOENT) {
        note(path, std::strerror(errno));
      }
      return entries;
    }
    while (const dirent* entry = ::readdir(directory.get())) {
      if (entry->d_name[0] != '.') {
        entries.emplace_back(entry->d_name);
      }
    }
    std::ranges::sort(entries, in_order);
    return entries;
  }

  // Returns the text of an attribute without the newline. Older kernels lack some: "".
  std::string text(const std::string& path) {
    const UniqueFd fd(::open((root_ + path).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    std::array<char, 256> bytes{};
    const ssize_t length = fd ? ::read(fd.get(), bytes.data(), bytes.size()) : -1;
    if (length < 0) {
      // ENXIO: of a device that is not active
      if (errno != ENOENT && errno != ENXIO) {
        note(path, std::strerror(errno));
      }
      return {};
    }
    const std::string_view read(bytes.data(), static_cast<std::size_t>(length));
    return std::string(read.substr(0, read.find('\n')));
  }

  std::optional<std::uint64_t> number(const std::string& path) {
    const std::string found = text(path);
    const auto value = number_in(found);
    if (!value && !found.empty()) {
      note(path, "\"" + found + "\" is no number");
    }
    return value;
  }

  PmemRegion read_region(const std::string& name) {
    const std::string path = std::string(nd) + "/" + name;
    PmemRegion region{.name = name,
                      .size = number(path + "/size"),
                      .available = number(path + "/available_size"),
                      .provider = text(path + "/../provider"),
                      .persistence_domain = text(path + "/persistence_domain"),
                      .is_volatile = text(path + "/devtype") == "nd_volatile",
                      .namespaces = {}};
    const std::string prefix = "namespace" + name.substr(std::strlen("region")) + ".";
    for (const auto& child : list(nd)) {
      if (!child.starts_with(prefix) || !is_device(child, "namespace", true)) {
        continue;
      }
      // a namespace without a size is the kernel's template for the next one
      PmemNamespace found = read_namespace(child);
      if (found.size != 0) {
        region.namespaces.push_back(std::move(found));
      }
    }
    bound_available(region);
    return region;
  }

  // Without labels one namespace takes the whole region, and the kernel calls all of it available.
  static void bound_available(PmemRegion& region) {
    if (!region.size || !region.available) {
      return;
    }
    std::uint64_t rest = *region.size;
    for (const auto& one : region.namespaces) {
      rest -= std::min(rest, one.size.value_or(0));
    }
    region.available = std::min(*region.available, rest);
  }

  PmemNamespace read_namespace(const std::string& name) {
    const std::string path = std::string(nd) + "/" + name;
    const std::string holder = text(path + "/holder"), word = text(path + "/mode");
    const std::string claim = std::string(nd) + "/" + holder;
    const char* const mode = mode_of(word);
    PmemNamespace found{.name = name,
                        .mode = mode != nullptr ? mode : word,
                        .size = number(path + "/size"),
                        .usable = holder.empty() ? std::nullopt : number(claim + "/size"),
                        .align = holder.empty() ? std::nullopt : number(claim + "/align"),
                        .block = {},
                        .characters = {},
                        .content = {},
                        .users = {},
                        .mounts = {}};
    // the driver of the claim has the device, or, without a claim, that of the namespace
    std::string owner = holder.empty() ? path : claim;
    Names blocks = list(owner + "/block");
    if (blocks.empty() && !holder.empty()) {
      blocks = list(path + "/block");
      owner = blocks.empty() ? owner : path;
    }
    if (!blocks.empty()) {
      read_block(owner + "/block/" + blocks.front(), blocks.front(), found);
    }
    if (!holder.empty()) {
      read_characters(claim, found);
    }
    return found;
  }

  void read_characters(const std::string& claim, PmemNamespace& found) {
    for (const std::string& directory : {claim, claim + "/dax"}) {  // the latter: before Linux 5.1
      for (const auto& name : list(directory)) {
        if (is_device(name, "dax", true)) {
          found.characters.push_back(read_character(directory + "/" + name, name));
        }
      }
    }
  }

  DaxDevice read_character(const std::string& path, const std::string& name) {
    return {.name = name,
            .size = number(path + "/size"),
            .align = number(path + "/align"),
            .driver = link_target(root_ + path + "/driver")};
  }

  void read_block(const std::string& path, const std::string& name, PmemNamespace& found) {
    found.block = name;
    BlockDevices devices;
    add_block(path, name, devices);
    found.content = content_of(text(path + "/dev"));
    for (const auto& [number, device] : devices) {
      if (device != name) {
        found.users.push_back(device);
      }
    }
    for (const auto& mount : mounts_) {
      add_mount(mount, devices, found);
    }
  }

  // Adds a block device, its partitions, and the devices above them.
  void add_block(const std::string& path, const std::string& name, BlockDevices& devices) {
    if (!devices.emplace(text(path + "/dev"), name).second) {
      return;
    }
    for (const auto& child : list(path)) {
      if (std::filesystem::exists(root_ + path + "/" + child + "/partition")) {
        add_block(path + "/" + child, child, devices);
      }
    }
    for (const auto& above : list(path + "/holders")) {
      add_block(path + "/holders/" + above, above, devices);
    }
  }

  void add_mount(const MountLine& mount, const BlockDevices& devices, PmemNamespace& found) {
    // Btrfs shows a device number of its own.
    const auto device = std::ranges::find_if(devices, [&](const auto& one) {
      return one.first == mount.device || mount.source == "/dev/" + one.second;
    });
    if (device == devices.end() || std::ranges::any_of(found.mounts, [&](const PmemMount& one) {
          return one.point == mount.point;
        })) {
      return;
    }
    found.mounts.push_back({.device = device->second,
                            .point = mount.point,
                            .type = mount.type,
                            .options = mount.options,
                            .probe = probe_(mount.point)});
  }

  // Reads udev's record, which every user can read. There is none in a container.
  std::string content_of(const std::string& number) {
    constexpr std::string_view key = "E:ID_FS_TYPE=";
    std::ifstream record(root_ + "/run/udev/data/b" + number);
    for (std::string line; std::getline(record, line);) {
      if (line.starts_with(key)) {
        return line.substr(key.size());
      }
    }
    return {};
  }

  bool is_of_namespace(const std::string& character) const {
    return std::ranges::any_of(devices_.regions, [&](const PmemRegion& region) {
      return std::ranges::any_of(region.namespaces, [&](const PmemNamespace& one) {
        return std::ranges::find(one.characters, character, &DaxDevice::name) !=
               one.characters.end();
      });
    });
  }

  void read_others() {
    std::string directory = "/sys/bus/dax/devices";
    if (!std::filesystem::exists(root_ + directory)) {
      directory = "/sys/class/dax";  // before Linux 5.1
    }
    for (const auto& name : list(directory)) {
      if (is_device(name, "dax", true) && !is_of_namespace(name)) {
        devices_.others.push_back(read_character(directory + "/" + name, name));
      }
    }
  }

  const std::string& root_;
  const PmemSysfs::Probe& probe_;
  PmemDevices& devices_;
  const std::vector<MountLine> mounts_;
};

}  // namespace

PmemSysfs::PmemSysfs(std::string root, Probe probe)
    : root_(std::move(root)), probe_(std::move(probe)) {}

PmemDevices PmemSysfs::read() const {
  PmemDevices devices;
  Reader(root_, probe_, devices).read();
  return devices;
}

}  // namespace efs::cli
