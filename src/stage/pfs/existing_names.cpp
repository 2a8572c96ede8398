// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/existing_names.hpp"

#include <dirent.h>
#include <fcntl.h>

#include <cerrno>
#include <memory>

#include "base/unique_fd.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {

void ExistingNames::expect(std::string_view path) {
  ++directories_[std::string(parent_view(path))].expected;
}

bool ExistingNames::may_be_there(std::string_view path) {
  const std::string_view parent = parent_view(path);
  Directory& directory = directories_[std::string(parent)];
  if (!std::exchange(directory.looked, true)) {
    directory.names = list(parent, directory.expected);
  }
  return !directory.names || directory.names->contains(std::string(
                                 parent.empty() ? path : path.substr(parent.size() + 1)));
}

std::optional<ExistingNames::Names> ExistingNames::list(std::string_view directory,
                                                        std::size_t expected) const {
  constexpr std::size_t few = 4;  // for so few names a listing costs more than it saves
  const std::size_t most = 2 * expected + 64;  // another user's directory may have millions
  UniqueFd fd(
      ::open(absolute(top_, std::string(directory)).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) {
    return errno == ENOENT || errno == ENOTDIR ? std::optional<Names>(Names()) : std::nullopt;
  }
  if (expected < few) {
    return std::nullopt;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd.get()), ::closedir);
  if (!stream) {
    return std::nullopt;
  }
  (void)fd.release();
  Names names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    names.emplace(entry->d_name);
    if (names.size() > most) {
      return std::nullopt;
    }
  }
  return errno == 0 ? std::optional(std::move(names)) : std::nullopt;
}

}  // namespace efs::stage
