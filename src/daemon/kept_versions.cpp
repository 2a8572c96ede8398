// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/kept_versions.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace efs::daemon {
namespace {

std::string path_in(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

}  // namespace

Nanoseconds KeptVersions::Version::closed() const {
  Nanoseconds last = 0;
  for (const auto& [path, file] : files) {
    last = std::max(last, file.closed);
  }
  return last;
}

void KeptVersions::Versions::undo(Version& version) {
  if (version.choice == Choice::goes && !version.was_sent && sent > 0) {
    --sent;  // the next version goes in its place
  }
  version.choice = Choice::none;
}

void KeptVersions::named(const std::string& path, std::uint64_t ino, Nanoseconds closed) {
  const auto name = config::version_name(config_, path);
  if (!name) {
    return;
  }
  Versions& versions = series_[Series{.rule = name->rule, .directory = name->directory}];
  Version& version = versions.by_name[name->name];
  File& file = version.files[path];
  if (file.ino != ino) {  // a version that is made anew need not stay for its former reason
    version.tries = 0;
    version.due = {};
    if (version.files.size() == 1) {
      versions.undo(version);
    }
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
    file->second.edits.reset();
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

KeptVersions::Place KeptVersions::place_of(const std::string& path) {
  const auto name = series_.empty() ? std::nullopt : config::version_name(config_, path);
  if (!name) {
    return {};
  }
  const auto series = series_.find({.rule = name->rule, .directory = name->directory});
  if (series == series_.end()) {
    return {};
  }
  const auto version = series->second.by_name.find(name->name);
  return {.series = &series->first,
          .versions = &series->second,
          .version = version == series->second.by_name.end() ? nullptr : &version->second};
}

bool KeptVersions::goes(const std::string& path, const Look& look) {
  const Place place = place_of(path);
  if (place.version == nullptr || config_.outputs[place.series->rule].send_one_in == 1) {
    return true;
  }
  if (place.version->choice == Choice::none) {
    const Nanoseconds closed = place.version->closed();
    std::vector<std::pair<Nanoseconds, Version*>> earlier;
    for (auto& [name, version] : place.versions->by_name) {
      if (version.choice == Choice::none && &version != place.version &&
          version.closed() <= closed) {
        earlier.emplace_back(version.closed(), &version);
      }
    }
    std::ranges::sort(earlier);
    for (const auto& [at, version] : earlier) {
      const bool is_written = std::ranges::any_of(version->files, [&](const auto& file) {
        const FileState state = look(file.first, file.second.ino);
        return state == FileState::written || state == FileState::gone;
      });
      if (!is_written) {
        choose(place, *version, look);
      }
    }
    choose(place, *place.version, look);
  }
  return place.version->choice != Choice::stays;
}

void KeptVersions::choose(const Place& place, Version& version, const Look& look) {
  const bool has_copy =
      version.was_sent || std::ranges::any_of(version.files, [&](const auto& file) {
        const FileState state = look(file.first, file.second.ino);
        version.was_sent = version.was_sent || state == FileState::home;
        return state == FileState::home || state == FileState::changed;
      });
  auto& [by_name, sent, unsent] = *place.versions;
  const std::uint64_t others = config_.outputs[place.series->rule].send_one_in - 1;
  const bool goes = has_copy || unsent >= sent * others;
  version.choice = goes ? Choice::goes : Choice::stays;
  ++(goes ? sent : unsent);
  is_due_ = true;
}

void KeptVersions::went_home(const std::string& path) {
  if (Version* version = find(path)) {
    version->was_sent = true;
  }
}

void KeptVersions::count_dropped(const std::vector<fs::DroppedResult>& dropped) {
  std::set<config::VersionName> counted;
  for (const auto& file : dropped) {
    auto name = config::version_name(config_, file.path);
    if (!name || config_.outputs[name->rule].send_one_in == 1 || counted.contains(*name)) {
      continue;
    }
    Versions& versions = series_[Series{.rule = name->rule, .directory = name->directory}];
    ++(file.was_sent ? versions.sent : versions.unsent);
    counted.insert(*std::move(name));
  }
}

std::vector<KeptVersions::Candidate> KeptVersions::examine(Versions& versions, const Look& look) {
  std::vector<Candidate> candidates;
  for (auto it = versions.by_name.begin(); it != versions.by_name.end();) {
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
      candidate.is_only_here = candidate.is_only_here && state == FileState::only_here;
      candidate.closed = std::max(candidate.closed, file.second.closed);
      return false;
    });
    if (version.files.empty()) {
      versions.undo(version);
      it = versions.by_name.erase(it);
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

std::vector<stage::OldVersion> KeptVersions::choose(const Look& look, const Edits& edits,
                                                    Time now) {
  chosen_.clear();
  chosen_files_ = 0;
  if (!is_due_ && (!next_ || *next_ > now)) {
    return {};
  }
  is_due_ = false;
  next_.reset();
  for (auto& [series, versions] : series_) {
    const std::size_t keep = config_.outputs[series.rule].keep;
    if (versions.by_name.size() <= keep) {
      continue;
    }
    const auto candidates = examine(versions, look);
    if (candidates.size() <= keep) {
      continue;
    }
    const Newest newer = newest(candidates, keep);
    for (std::size_t i = candidates.size(); i > keep; --i) {  // the oldest first
      const Candidate& old = candidates[i - 1];
      const bool may_go = old.is_home || (old.is_unsent() && newer.is_whole);
      if (may_go && old.version->due <= now && !old.is_home && !is_quiet(*old.version, edits)) {
        old.version->due = now + quiet_time;
      }
      if (may_go) {
        add(series.directory, old, newer.files, now);
      }
    }
  }
  return std::exchange(chosen_, {});
}

// A close that the caller has not yet told of may have come before the edits are read: then it is
// told before the next call, and they are read anew.
bool KeptVersions::is_quiet(Version& version, const Edits& edits) {
  bool is_quiet = true;
  for (auto& [path, file] : version.files) {
    const auto now = edits(file.ino);
    is_quiet = is_quiet && now && file.edits == now;
    file.edits = now;
  }
  return is_quiet;
}

KeptVersions::Newest KeptVersions::newest(const std::vector<Candidate>& candidates,
                                          std::size_t keep) {
  const auto files = std::make_shared<Files>();
  for (std::size_t i = 0; i < keep; ++i) {
    if (files->size() >= most_newer_files) {
      return {.files = files, .is_whole = false};
    }
    for (const auto& [path, file] : candidates[i].version->files) {
      files->push_back({.path = path, .ino = file.ino});
    }
  }
  return {.files = files};
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
  stage::OldVersion chosen{.path = path_in(directory, *candidate.name),
                           .files = {},
                           .newer = newer,
                           .is_unsent = !candidate.is_home};
  for (const auto& [path, file] : candidate.version->files) {
    chosen.files.push_back(
        {.path = path, .ino = file.ino, .edits = chosen.is_unsent ? file.edits : std::nullopt});
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
  std::erase_if(series_, [](const auto& series) {
    const Versions& versions = series.second;
    return versions.by_name.empty() && versions.sent == 0 && versions.unsent == 0;
  });
}

}  // namespace efs::daemon
