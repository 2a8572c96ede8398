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
  version.files.insert_or_assign(path, File{.ino = ino, .closed = closed});
  is_due_ = true;
}

void KeptVersions::closed(const std::string& path, Nanoseconds now) {
  if (File* file = find(path)) {
    file->closed = now;
    is_due_ = true;
  }
}

std::optional<Nanoseconds> KeptVersions::closed_at(const std::string& path, std::uint64_t ino) {
  const File* file = find(path);
  return file == nullptr || file->ino != ino ? std::nullopt : std::optional(file->closed);
}

KeptVersions::File* KeptVersions::find(const std::string& path) {
  const auto name = series_.empty() ? std::nullopt : config::version_name(config_, path);
  if (!name) {
    return nullptr;
  }
  const auto series = series_.find({.rule = name->rule, .directory = name->directory});
  if (series == series_.end()) {
    return nullptr;
  }
  const auto version = series->second.find(name->name);
  if (version == series->second.end()) {
    return nullptr;
  }
  const auto file = version->second.files.find(path);
  return file == version->second.files.end() ? nullptr : &file->second;
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
    for (std::size_t i = candidates.size(); i > keep; --i) {  // the oldest first
      if (candidates[i - 1].is_home) {
        add(series.directory, candidates[i - 1], now);
      }
    }
  }
  return std::exchange(chosen_, {});
}

void KeptVersions::add(const std::string& directory, const Candidate& candidate, Time now) {
  if (candidate.version->due > now) {
    return wait_until(candidate.version->due);
  }
  if (chosen_files_ >= most_files) {
    is_due_ = true;
    return;
  }
  stage::OldVersion chosen{.path = path_in(directory, *candidate.name), .files = {}};
  for (const auto& [path, file] : candidate.version->files) {
    chosen.files.push_back(path);
  }
  chosen_files_ += chosen.files.size();
  chosen_.push_back(std::move(chosen));
}

bool KeptVersions::stayed(const stage::OldVersion& old, Time now) {
  const auto name = config::version_name(config_, old.files.front());
  const auto series =
      name ? series_.find({.rule = name->rule, .directory = name->directory}) : series_.end();
  if (series == series_.end()) {
    return false;
  }
  const auto found = series->second.find(name->name);
  if (found == series->second.end()) {
    return false;
  }
  Version& version = found->second;
  Duration wait = first_wait;
  for (unsigned i = 0; i < version.tries && wait < longest_wait; ++i) {
    wait *= 2;
  }
  version.due = now + std::min(wait, longest_wait);
  wait_until(version.due);
  return version.tries++ == 0;
}

void KeptVersions::forget_gone(const Look& look) {
  for (auto& [series, versions] : series_) {
    (void)examine(versions, look);
  }
  std::erase_if(series_, [](const auto& series) { return series.second.empty(); });
}

}  // namespace efs::daemon
