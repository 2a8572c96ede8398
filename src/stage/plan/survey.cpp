#include "stage/plan/survey.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <iterator>

#include "stage/pfs/directory_cursor.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

constexpr std::size_t names_in_a_row = 64;  // names that one thread asks for in a row

/// Where the mode bits say so nobody needs to be asked. Should an access control list say otherwise, opening the file
/// will tell.
bool surely_readable(const struct stat& attributes) {
  if (attributes.st_uid == ::geteuid()) return (attributes.st_mode & S_IRUSR) != 0;
  return (attributes.st_mode & 0444U) == 0444U;
}

struct Listing {
  std::vector<std::string> names;
  std::optional<Error> error;
};

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
  if (S_ISREG(attributes->st_mode) && !surely_readable(*attributes)) {
    if (auto readable = pfs_.access(directory, name, R_OK); !readable) problem(Found::Problem::unreadable, readable.error());
  } else if (S_ISLNK(attributes->st_mode)) {
    auto target = pfs_.readlink(directory, name);
    if (!target) return problem(Found::Problem::target, target.error());
    found.target = std::move(*target);
  }
}

std::vector<Found> Survey::look(const std::vector<std::string>& paths) {
  std::vector<Found> all(paths.size());
  crew_.run(paths.size(), names_in_a_row, [&](std::size_t begin, std::size_t end) {
    DirectoryCursor directory([this](const std::string& path) { return pfs_.open_beneath(root_, path, passage_flags); });
    for (std::size_t i = begin; i < end; ++i) {
      all[i].path = paths[i];
      auto at = directory.at(parent_of(paths[i]));
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

std::vector<Found> Survey::below(const std::string& path) {
  std::vector<Found> all;
  // Level by level, so that all directories of a level are listed side by side.
  for (std::vector<std::string> level{path}; !level.empty();) {
    std::vector<Listing> listings(level.size());
    crew_.run(level.size(), 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        auto directory = pfs_.open_beneath(root_, level[i], directory_flags);
        auto names = directory ? pfs_.list(directory->get()) : std::unexpected(directory.error());
        if (names) listings[i].names = std::move(*names);
        else listings[i].error = std::move(names.error());
      }
    });
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < level.size(); ++i) {
      if (auto& error = listings[i].error) all.push_back({.path = level[i], .target = {}, .problem = Found::Problem::listing, .error = std::move(*error)});
      for (const auto& name : listings[i].names) paths.push_back(join(level[i], name));
    }
    auto found = look(paths);
    level.clear();
    for (const auto& one : found) {
      if (one.problem == Found::Problem::none && S_ISDIR(one.attributes.st_mode) && !is_hidden_directory(one.path)) level.push_back(one.path);
    }
    if (all.empty()) all = std::move(found);
    else all.insert(all.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  }
  return all;
}

}  // namespace efs::stage
