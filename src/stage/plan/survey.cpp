#include "stage/plan/survey.hpp"

#include <fcntl.h>

#include <utility>

#include "stage/pfs/directory_cursor.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

constexpr std::size_t names_in_a_row = 64;         // names that one thread asks for in a row
constexpr std::size_t names_at_once = 64U * 1024;  // enough for all threads to be busy to the end

/// Where the mode bits say so nobody needs to be asked. Should an access control list say otherwise, opening the file
/// will tell.
bool surely_readable(const struct stat& attributes, uid_t user) {
  if (attributes.st_uid == user) return (attributes.st_mode & S_IRUSR) != 0;
  return (attributes.st_mode & 0444U) == 0444U;
}

}  // namespace

void Survey::look_at(Found& found, int directory) {
  const std::string name = leaf_of(found.path);
  const auto problem = [&](Found::Problem what, Error& error) {
    found.problem = what;
    found.error = std::move(error);
  };
  auto attributes = pfs_.lstat(directory, name);
  if (!attributes) return problem(Found::Problem::attributes, attributes.error());
  found.attributes = *attributes;
  if (S_ISREG(attributes->st_mode) && !surely_readable(*attributes, user_)) {
    if (auto readable = pfs_.access(directory, name, R_OK); !readable) problem(Found::Problem::unreadable, readable.error());
  } else if (S_ISLNK(attributes->st_mode)) {
    auto target = pfs_.readlink(directory, name);
    if (!target) return problem(Found::Problem::target, target.error());
    found.target = std::move(*target);
  }
}

std::vector<Found> Survey::look(std::vector<std::string> paths) {
  std::vector<Found> all(paths.size());
  crew_.run(paths.size(), names_in_a_row, [&](std::size_t begin, std::size_t end) {
    DirectoryCursor directory([this](const std::string& path) { return pfs_.open_beneath(root_, path, passage_flags); });
    for (std::size_t i = begin; i < end; ++i) {
      all[i].path = std::move(paths[i]);
      auto at = directory.at(parent_of(all[i].path));
      if (at) {
        look_at(all[i], *at);
      } else {
        all[i].problem = Found::Problem::attributes;
        all[i].error = std::move(at.error());
      }
    }
  });
  return all;
}

void Survey::below(const std::string& path, const Tell& tell) {
  // Level by level, so that all directories of a level are listed side by side.
  for (std::vector<std::string> level{path}, next; !level.empty(); level = std::exchange(next, {})) {
    std::vector<std::string> paths;
    const auto look_and_tell = [&] {
      for (const auto& found : look(std::exchange(paths, {}))) {
        if (found.problem == Found::Problem::none && S_ISDIR(found.attributes.st_mode) && !is_hidden_directory(found.path)) next.push_back(found.path);
        tell(found);
      }
    };
    const auto listings = list(level);
    for (std::size_t i = 0; i < level.size(); ++i) {
      if (const auto& error = listings[i].error) tell({.path = level[i], .target = {}, .problem = Found::Problem::listing, .error = *error});
      for (const auto& name : listings[i].names) {
        paths.push_back(join(level[i], name));
        if (paths.size() == names_at_once) look_and_tell();
      }
    }
    look_and_tell();
  }
}

std::vector<Survey::Listing> Survey::list(const std::vector<std::string>& directories) {
  std::vector<Listing> listings(directories.size());
  crew_.run(directories.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      auto directory = pfs_.open_beneath(root_, directories[i], directory_flags);
      auto names = directory ? pfs_.list(directory->get()) : std::unexpected(directory.error());
      if (names) listings[i].names = std::move(*names);
      else listings[i].error = std::move(names.error());
    }
  });
  return listings;
}

}  // namespace efs::stage
