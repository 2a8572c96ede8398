#include "stage/leftovers.hpp"

#include <atomic>
#include <set>
#include <span>
#include <string_view>
#include <unordered_set>

#include "stage/name_claim.hpp"
#include "stage/partial.hpp"
#include "stage/paths.hpp"
#include "stage/results_dir.hpp"

namespace efs::stage {
namespace {

std::set<Identity> partials_in(PfsIo& pfs, int directory, const std::vector<std::string>& names, const std::string& ending) {
  std::set<Identity> partials;
  for (const auto& name : names)
    if (const auto file = name.ends_with(ending) ? pfs.lstat(directory, name) : fail(ENOENT)) partials.insert(identity_of(*file));
  return partials;
}

/// A claim says whose it is, or is another name of a partial that does.
bool is_claim_of(PfsIo& pfs, int directory, const std::string& name, const std::string& ending, const std::set<Identity>& partials) {
  if (!name.starts_with(claim_prefix) || !name.ends_with(partial_suffix)) return false;
  if (const auto claimant = claimant_of(pfs, directory, name)) return claimant->ends_with(ending);
  const auto file = pfs.lstat(directory, name);
  return file && partials.contains(identity_of(*file));
}

}  // namespace

std::size_t remove_leftovers(const std::set<std::string, std::less<>>& directories, const std::vector<fs::WalkItem>& items, const std::string& tag, ResultsTree& tree, Crew& crew, PfsIo& pfs) {
  if (tag.empty()) return 0;
  const std::string ending = tag + partial_suffix;
  std::unordered_set<std::string_view> results;
  for (const auto& item : items)
    if (item.path.ends_with(partial_suffix)) results.insert(item.path);
  const std::vector<std::string> paths(directories.begin(), directories.end());
  std::atomic<std::size_t> removed = 0;
  crew.run(paths.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (const auto& path : std::span(paths).subspan(begin, end - begin)) {
      const auto directory = tree.directory(path);
      const auto names = directory ? pfs.list(directory->get()) : std::unexpected(directory.error());
      if (!names) continue;
      const auto partials = partials_in(pfs, directory->get(), *names, ending);
      for (const auto& name : *names)
        if ((name.ends_with(ending) || is_claim_of(pfs, directory->get(), name, ending, partials)) && !results.contains(join(path, name)) && pfs.unlink(directory->get(), name)) ++removed;
    }
  });
  return removed;
}

}  // namespace efs::stage
