// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/kept_versions.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace efs::daemon {
namespace {

std::string path_in(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

}  // namespace

void KeptVersions::named(const std::string& path, std::uint64_t ino, Nanoseconds closed) {
  const auto name = config::version_name(config_, path);
  if (!name) {
    return;
  }
  Version& version = series_[Series{.rule = name->rule, .directory = name->directory}][name->name];
  File& file = version.files[path];
  if (file.ino != ino) {  // a version that is made anew need not stay for its former reason
    version.tries = 0;
    version.due = {};
  }
  file = {.ino = ino, .closed = closed};
  is_due_ = true;
}

// A version that has changed need not stay for its former reason.
void KeptVersions::closed(const std::string& path, Nanoseconds now) {
  Version* version = find(path);
  if (version == nullptr) {
    return;
  }
  if (const auto file = version->files.find(path); file != version->files.end()) {
    file->second.closed = now;
    version->tries = 0;
    version->due = {};
    is_due_ = true;
  }
}

std::optional<Nanoseconds> KeptVersions::closed_at(const std::string& path, std::uint64_t ino) {
  const Version* version = find(path);
  if (version == nullptr) {
    return std::nullopt;
  }
  const auto file = version->files.find(path);
  return file == version->files.end() || file->second.ino != ino
             ? std::nullopt
             : std::optional(file->second.closed);
}

KeptVersions::Version* KeptVersions::find(const std::string& path) {
  const auto name = series_.empty() ? std::nullopt : config::version_name(config_, path);
  if (!name) {
    return nullptr;
  }
  const auto series = series_.find({.rule = name->rule, .directory = name->directory});
  if (series == series_.end()) {
    return nullptr;
  }
  const auto version = series->second.find(name->name);
  return version == series->second.end() ? nullptr : &version->second;
}

std::vector<KeptVersions::Candidate> KeptVersions::examine(Versions& versions, const Look& look) {
  std::vector<Candidate> candidates;
  for (auto it = versions.begin(); it != versions.end();) {
    auto& [name, version] = *it;
    Candidate candidate{.name = &name, .version = &version};
    bool is_written = false;
    std::erase_if(version.files, [&](const auto& file) {
      const FileState state = look(file.first, file.second.ino);
      if (state == FileState::gone) {
        return true;
      }
      is_written = is_written || state == FileState::written;
      candidate.is_home = candidate.is_home && state == FileState::home;
      candidate.closed = std::max(candidate.closed, file.second.closed);
      return false;
    });
    if (version.files.empty()) {
      it = versions.erase(it);
      continue;
    }
    if (!is_written) {
      candidates.push_back(candidate);
    }
    ++it;
  }
  std::ranges::sort(candidates, [](const Candidate& one, const Candidate& other) {
    return std::tie(other.closed, *other.name) < std::tie(one.closed, *one.name);
  });
  return candidates;
}

std::vector<stage::OldVersion> KeptVersions::choose(const Look& look, Time now) {
  chosen_.clear();
  chosen_files_ = 0;
  if (!is_due_ && (!next_ || *next_ > now)) {
    return {};
  }
  is_due_ = false;
  next_.reset();
  for (auto& [series, versions] : series_) {
    const std::size_t keep = config_.outputs[series.rule].keep;
    if (versions.size() <= keep) {
      continue;
    }
    const auto candidates = examine(versions, look);
    if (candidates.size() <= keep) {
      continue;
    }
    const auto newer = std::make_shared<const Files>(newest(candidates, keep));
    for (std::size_t i = candidates.size(); i > keep; --i) {  // the oldest first
      if (candidates[i - 1].is_home) {
        add(series.directory, candidates[i - 1], newer, now);
      }
    }
  }
  return std::exchange(chosen_, {});
}

KeptVersions::Files KeptVersions::newest(const std::vector<Candidate>& candidates,
                                         std::size_t keep) {
  Files files;
  for (std::size_t i = 0; i < keep && files.size() < most_newer_files; ++i) {
    for (const auto& [path, file] : candidates[i].version->files) {
      files.push_back({.path = path, .ino = file.ino});
    }
  }
  return files;
}

void KeptVersions::add(const std::string& directory, const Candidate& candidate,
                       const std::shared_ptr<const Files>& newer, Time now) {
  if (candidate.version->due > now) {
    return wait_until(candidate.version->due);
  }
  if (chosen_files_ >= most_files) {
    is_due_ = true;
    return;
  }
  stage::OldVersion chosen{
      .path = path_in(directory, *candidate.name), .files = {}, .newer = newer};
  for (const auto& [path, file] : candidate.version->files) {
    chosen.files.push_back({.path = path, .ino = file.ino});
  }
  chosen_files_ += chosen.files.size();
  chosen_.push_back(std::move(chosen));
}

bool KeptVersions::stayed(const stage::OldVersion& old, Reason reason, Time now) {
  Version* version = find(old.files.front().path);
  if (version == nullptr) {
    return false;
  }
  const Duration longest = reason == Reason::lasting ? longest_wait_if_lasting : longest_wait;
  Duration wait = first_wait;
  for (unsigned i = 0; i < version->tries && wait < longest; ++i) {
    wait *= 2;
  }
  ++version->tries;
  version->due = now + std::min(wait, longest);
  wait_until(version->due);
  return reason != Reason::program && !std::exchange(version->is_told, true);
}

void KeptVersions::forget_gone(const Look& look) {
  for (auto& [series, versions] : series_) {
    (void)examine(versions, look);
  }
  std::erase_if(series_, [](const auto& series) { return series.second.empty(); });
}

}  // namespace efs::daemon
