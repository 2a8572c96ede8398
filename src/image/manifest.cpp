// SPDX-License-Identifier: BSD-3-Clause
#include "image/manifest.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>  // renameat2
#include <new>
#include <string_view>

#include "base/json_text.hpp"
#include "base/memory.hpp"
#include "base/unique_fd.hpp"
#include "config/load.hpp"
#include "image/sealed_text.hpp"

namespace efs::image {
namespace {

constexpr const char* format = "efs-image-1";
constexpr const char* listed_name = "listed";
constexpr const char* spare_name = "instance.json.new";  // second file of the manifest: see
                                                         // write_in_turns()
constexpr std::size_t largest = 4u << 20;                // bytes of a job file or manifest
constexpr std::array left_names{"in-use", "kept", "unsaved", "salvaged", "over"};

// Covers all fields except the checksum.
std::string own_checksum(nlohmann::json manifest) {
  manifest.erase("checksum");
  return checksum_of(json_to_text(manifest));
}

struct Spare {
  UniqueFd fd;           // empty: there is none
  std::size_t size = 0;  // bytes
};

// Opens a spare file of this name.
Spare spare_file(int directory, const std::string& name) {
  UniqueFd fd(::openat(directory, name.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat st{};
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 ||
      static_cast<std::size_t>(st.st_size) > largest) {
    return {};
  }
  return {.fd = std::move(fd), .size = static_cast<std::size_t>(st.st_size)};
}

// Returns the spare file if `needed` bytes fit, else a new one of this name, which is empty.
Result<Spare> large_enough(Spare spare, int directory, const std::string& name,
                           std::size_t needed) {
  if (spare.fd && spare.size >= needed) {
    return spare;
  }
  auto made = make_anew(directory, name);
  if (!made) {
    return std::unexpected(made.error());
  }
  return Spare{.fd = std::move(*made), .size = 0};
}

// Pads with blanks to the size of the existing file. If that is too small, pads to whole pages,
// with slack for any later state of the same instance.
std::string padded(std::string text, std::size_t there) {
  constexpr std::size_t page = 4096, slack = 512;
  const std::size_t size =
      text.size() <= there ? there : (text.size() + slack + page - 1) / page * page;
  text.pop_back();
  text.resize(size - 1, ' ');
  return text += '\n';
}

// Failure is acceptable: then the next text needs free space.
void keep_spare(int directory, const std::string& name, const std::string& text) {
  if (const auto fd = make_anew(directory, name)) {
    (void)put(fd->get(), text);
  }
}

// Gives the file `partial` the name `name`. With `exchange`, the earlier file takes the name
// `partial`, if the file system can do that. Durable on return. Returns whether it took the name.
Result<bool> replace_file(int directory, const std::string& partial, const std::string& name,
                          bool exchange) {
  const bool exchanged = exchange && ::renameat2(directory, partial.c_str(), directory,
                                                 name.c_str(), RENAME_EXCHANGE) == 0;
  if (!exchanged && ::renameat(directory, partial.c_str(), directory, name.c_str()) != 0) {
    return fail_errno(name);
  }
  if (::fsync(directory) != 0) {
    return fail_errno(name);
  }
  return exchanged;
}

// The end of an instance must be recorded on a full store too. So there are always two files of the
// same size. A new text overwrites the spare file, which then replaces the current one; the old
// file becomes the spare.
Status write_in_turns(int directory, const std::string& name, const std::string& text) {
  const std::string partial = name + ".new";
  const auto there = read_text(directory, name.c_str(), largest);
  Spare found = spare_file(directory, partial);
  if (there && *there == padded(text, there->size())) {
    if (!found.fd || found.size != there->size()) {
      keep_spare(directory, partial, *there);
    }
    return {};
  }
  const auto spare = large_enough(std::move(found), directory, partial, text.size());
  if (!spare) {
    return std::unexpected(spare.error());
  }
  const std::string whole = padded(text, spare->size);
  EFS_TRY(name_error(put(spare->fd.get(), whole), partial));
  const bool has_same_size = there && there->size() == whole.size();
  const auto exchanged = replace_file(directory, partial, name, has_same_size);
  if (!exchanged) {
    return std::unexpected(exchanged.error());
  }
  if (!*exchanged) {
    keep_spare(directory, partial, whole);
  }
  return {};
}

// An unknown name counts as in use.
ShutdownState left_of(std::string_view name) {
  const auto found = std::ranges::find(left_names, name);
  return found == left_names.end() ? ShutdownState::in_use
                                   : static_cast<ShutdownState>(found - left_names.begin());
}

// Throws if a field is missing or has another type.
Manifest manifest_of(const nlohmann::json& json) {
  Manifest m;
  m.name = json.at("name");
  m.uid = json.at("uid");
  m.root_dir = json.at("root_dir");
  m.mount_dir = json.at("mount_dir");
  m.results_dir = json.at("results_dir");
  m.log_file = json.at("log_file");
  m.job_file = json.at("job_file");
  m.start_options = json.value("start_options", m.start_options);
  m.store = json.at("store");
  m.kind = json.at("kind");
  m.boot_id = json.at("boot_id");
  m.instance = store::instance_id_of(json.value("instance", ""));
  m.life = store::instance_id_of(json.value("life", ""));
  m.node = json.value("node_number", 0U);
  m.nodes = json.value("nodes", 1U);
  m.merge_since = json.value("merge_since", Nanoseconds{0});
  m.merges = json.value("merges", false);
  m.results_mount = json.value("results_mount", "");
  m.mounts_below = json.value("mounts_below", m.mounts_below);
  m.journal_to = json.value("journal_to", std::uint64_t{0});
  m.contents = json.value("contents", "");
  m.made_mount_dir = json.value("made_mount_dir", false);
  m.place = json.value("place", 0U);
  m.memory_capacity = json.value("memory_capacity", std::uint64_t{0});
  for (const auto& member : json.value("members", nlohmann::json::array())) {
    m.members.push_back(
        {.id = member.at("id"), .path = member.at("path"), .kind = member.at("kind")});
  }
  m.circumstances.variables = json.value("variables", m.circumstances.variables);
  m.circumstances.settings = json.value("settings", m.circumstances.settings);
  m.circumstances.user = json.value("user", "");
  m.circumstances.home = json.value("home", "");
  m.circumstances.node = json.value("node", "");
  m.left = left_of(json.at("left").get<std::string>());
  return m;
}

Result<Manifest> manifest_in(int directory, const char* name) {
  const ReservedMemory reserved_memory;
  if (!ReservedMemory::ready()) {
    return fail(ENOMEM, name);
  }
  auto text = read_text(directory, name, largest);
  if (!text) {
    return std::unexpected(text.error());
  }
  const auto json = json_from_text(*text);
  const auto damaged = [name] {
    return fail(EPROTO, std::string(name) + ": damaged");
  };
  if (!json.is_object() || (json.contains("checksum") && json["checksum"] != own_checksum(json))) {
    return damaged();
  }
  if (!json.contains("format") || json["format"] != format) {
    return fail(EPROTO, std::string(name) + ": not of this version of efs");
  }
  try {
    return manifest_of(json);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM, name);
  } catch (const std::exception&) {
    return damaged();
  }
}

}  // namespace

const char* name_of(ShutdownState left) {
  return left_names.at(static_cast<std::size_t>(left));
}

Result<Manifest> read_manifest(int directory) {
  return manifest_in(directory, manifest_name);
}

Result<Manifest> recover_manifest(int directory) {
  auto manifest = read_manifest(directory);
  if (manifest || (manifest.error().code != EPROTO && manifest.error().code != ENOENT)) {
    return manifest;
  }
  auto before = manifest_in(directory, spare_name);
  if (!before) {
    return manifest;
  }
  before->left = ShutdownState::in_use;
  before->contents.clear();
  before->merges = true;
  return before;
}

Status write_manifest(int directory, const Manifest& m) {
  const ReservedMemory reserved_memory;
  if (!ReservedMemory::ready()) {
    return fail(ENOMEM, manifest_name);
  }
  nlohmann::json json{{"format", format},
                      {"name", m.name},
                      {"uid", m.uid},
                      {"root_dir", m.root_dir},
                      {"mount_dir", m.mount_dir},
                      {"results_dir", m.results_dir},
                      {"log_file", m.log_file},
                      {"job_file", m.job_file},
                      {"start_options", m.start_options},
                      {"store", m.store},
                      {"kind", m.kind},
                      {"boot_id", m.boot_id},
                      {"left", name_of(m.left)},
                      {"made_mount_dir", m.made_mount_dir},
                      {"node_number", m.node},
                      {"nodes", m.nodes},
                      {"merge_since", m.merge_since},
                      {"merges", m.merges},
                      {"results_mount", m.results_mount},
                      {"mounts_below", m.mounts_below},
                      {"variables", m.circumstances.variables},
                      {"settings", m.circumstances.settings},
                      {"user", m.circumstances.user},
                      {"home", m.circumstances.home},
                      {"node", m.circumstances.node}};
  for (const auto& member : m.members) {
    json["members"].push_back({{"id", member.id}, {"path", member.path}, {"kind", member.kind}});
  }
  if (m.place != 0) {
    json["place"] = m.place;
  }
  if (m.memory_capacity != 0) {
    json["memory_capacity"] = m.memory_capacity;
  }
  if (m.journal_to != 0) {
    json["journal_to"] = m.journal_to;
  }
  if (!m.contents.empty()) {
    json["contents"] = m.contents;
  }
  if (m.instance.known()) {
    json["instance"] = store::to_string(m.instance);
  }
  if (m.life.known()) {
    json["life"] = store::to_string(m.life);
  }
  json["checksum"] = own_checksum(json);
  return write_in_turns(directory, manifest_name, json_to_text(json, 1) + "\n");
}

bool is_out_of_reach(const Manifest& manifest, const std::string& directory) {
  struct stat st{};
  return manifest.kind == "fsdax" && !manifest.store.starts_with(directory + "/") &&
         ::lstat(manifest.store.c_str(), &st) != 0;
}

bool is_gone(const Manifest& manifest) {
  struct stat st{};
  return manifest.kind == "dram" && ::lstat((manifest.store + "/meta").c_str(), &st) != 0 &&
         errno == ENOENT;
}

std::string out_of_reach_text(const Manifest& manifest) {
  return "its store " + manifest.store +
         " is not there. If its disk is not mounted, mount it; if it is gone for good: efs clean "
         "--force " +
         manifest.name;
}

Status write_left(int directory, ShutdownState left) {
  auto manifest = recover_manifest(directory);
  if (!manifest) {
    return std::unexpected(manifest.error());
  }
  manifest->left = left;
  return write_manifest(directory, *manifest);
}

bool was_over(const Manifest& instance, const Manifest& own) {
  return instance.left == ShutdownState::over && instance.store == own.store &&
         !instance.instance.contradicts(own.instance) && instance.life == own.life;
}

Status write_job_file(int directory, const std::string& text) {
  return write_text(directory, job_file_name, sealed(text));
}

Status write_listed(int directory, const std::map<std::string, std::string>& listed) {
  if (!listed.empty()) {
    return write_text(directory, listed_name, sealed(json_to_text(listed)));
  }
  return ::unlinkat(directory, listed_name, 0) == 0 || errno == ENOENT ? Status{}
                                                                       : fail_errno(listed_name);
}

namespace {

// Fields of the start, not of the job file.
void put_into(config::JobConfig& config, const Manifest& m) {
  config.node = m.node;
  config.nodes = m.nodes;
  config.merge_since = m.merge_since;
  config.merges = m.merges;
  config.results_mount = m.results_mount;
  config.mounts_below = m.mounts_below;
}

// Reads the destinations of the job's lists. They are absent unless the job has lists.
Status read_listed(int directory, config::JobConfig& config) {
  const auto listed = read_sealed(directory, listed_name, largest_text);
  if (!listed && listed.error().code == ENOENT) {
    return {};
  }
  const auto json = listed ? json_from_text(*listed) : nlohmann::json();
  if (!json.is_object()) {
    return fail(EPROTO,
                "the destinations of its lists (meta/" + std::string(listed_name) + "): damaged");
  }
  for (const auto& [place, source] : json.items()) {
    if (source.is_string()) {
      config.listed[place] = source.get<std::string>();
    }
  }
  return {};
}

}  // namespace

config::JobConfig job_without_rules(const Manifest& m) {
  config::JobConfig config;
  config.source = m.job_file;
  config.name = m.name;
  config.root_dir = m.root_dir;
  config.mount_dir = m.mount_dir;
  config.results_dir = m.results_dir;
  config.in_place = m.root_dir == m.results_dir;
  put_into(config, m);
  return config;
}

Result<config::JobConfig> job_of(int directory, const Manifest& m) {
  auto text = read_sealed(directory, job_file_name, largest);
  if (!text) {
    return std::unexpected(text.error());
  }
  const auto given = [](const std::string& value) {
    return value.empty() ? std::nullopt : std::optional(value);
  };
  auto config = config::reload(*text, m.job_file,
                               {.name = m.name,
                                .root_dir = given(m.root_dir),
                                .mount_dir = given(m.mount_dir),
                                .results_dir = given(m.results_dir),
                                .log_file = given(m.log_file)},
                               m.circumstances);
  if (!config) {
    return fail(EPROTO,
                "the image's job file: " +
                    (config.error().empty() ? "damaged"
                                            : to_string(config.error().front(), job_file_name)));
  }
  put_into(*config, m);
  EFS_TRY(read_listed(directory, *config));
  return *config;
}

}  // namespace efs::image
