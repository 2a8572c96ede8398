#include "stage/out/leftovers.hpp"

#include <atomic>
#include <span>
#include <string_view>
#include <unordered_set>

#include "stage/pfs/name_claim.hpp"
#include "stage/pfs/partial_name.hpp"
#include "stage/pfs/paths.hpp"

namespace efs::stage {

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
        if (is_left(*directory, name) && !results.contains(join(path, name)) && pfs.unlink(directory->get(), name)) ++removed;
    }
  });
  return removed;
}

}  // namespace efs::stage
