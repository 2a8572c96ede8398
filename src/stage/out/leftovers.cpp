#include "stage/out/leftovers.hpp"

#include <atomic>
#include <cerrno>
#include <span>
#include <string_view>
#include <unordered_set>

#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {
namespace {

/// A file; or a directory that was hidden (ResultsTree::hide()), with what is in it. There are no directories in that.
Status remove(PfsIo& pfs, int at, const std::string& name) {
  const Status gone = pfs.unlink(at, name);
  if (gone || (gone.error().code != EISDIR && gone.error().code != EPERM)) return gone;
  const auto hidden = pfs.open_beneath(at, name, directory_flags);
  const auto names = hidden ? pfs.list(hidden->get()) : std::unexpected(hidden.error());
  if (!names) return gone;
  for (const auto& file : *names) (void)pfs.unlink(hidden->get(), file);
  return pfs.rmdir(at, name);
}

}  // namespace

std::size_t remove_leftovers(const std::set<std::string, std::less<>>& directories, const std::vector<fs::WalkItem>& items, const std::string& tag, ResultsTree& tree, Crew& crew, PfsIo& pfs) {
  if (tag.empty()) return 0;
  const std::string ending = tag + partial_suffix;
  std::unordered_set<std::string_view> results;
  for (const auto& item : items)
    if (item.path.ends_with(partial_suffix)) results.insert(item.path);
  // A claim says whose it is.
  const auto is_left = [&](const UniqueFd& directory, const std::string& name) {
    if (name.ends_with(ending)) return true;
    const auto claimant = name.starts_with(claim_prefix) && name.ends_with(partial_suffix) ? claimant_of(pfs, directory.get(), name) : fail(ENOENT);
    return claimant && claimant->ends_with(ending);
  };
  const std::vector<std::string> paths(directories.begin(), directories.end());
  std::atomic<std::size_t> removed = 0;
  crew.run(paths.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (const auto& path : std::span(paths).subspan(begin, end - begin)) {
      const auto directory = tree.directory(path);
      const auto names = directory ? pfs.list(directory->get()) : std::unexpected(directory.error());
      if (!names) continue;
      for (const auto& name : *names)
        if (is_left(*directory, name) && !results.contains(join(path, name)) && remove(pfs, directory->get(), name)) ++removed;
    }
  });
  return removed;
}

}  // namespace efs::stage
