#include "image/removal.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/unique_fd.hpp"

namespace efs::image {
namespace {

constexpr const char* journal_name = "journal";
constexpr const char* mark_name = "removed";

// By the descriptor: what has the path's name by now may be another directory.
std::filesystem::path path_of(int directory) { return "/proc/self/fd/" + std::to_string(directory); }

Status remove_entries(int directory, const std::string& path, const char* but) {
  std::error_code problem;
  // Step by step, for the loop over a range throws where the directory cannot be read on.
  for (std::filesystem::directory_iterator at(path_of(directory), problem), end; !problem && at != end;) {
    if (but == nullptr || at->path().filename() != but) std::filesystem::remove_all(at->path(), problem);
    if (!problem) at.increment(problem);
  }
  return problem ? fail(problem.value(), path + ": " + problem.message()) : Status{};
}

UniqueFd open_below(int root, const char* name) { return UniqueFd(::openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)); }

}  // namespace

Status begin_removal(int metadata) {
  if (::renameat(metadata, journal_name, metadata, mark_name) != 0) return errno == ENOENT ? Status{} : fail_errno("the journal");
  return ::fsync(metadata) == 0 ? Status{} : fail_errno("the journal's directory");
}

bool is_being_removed(int metadata) {
  struct stat st {};
  return ::fstatat(metadata, mark_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

Result<Directories> find_removable(const std::string& path) {
  if (auto store = find_store(path)) return store;
  Directories store{.path = path, .root = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)), .metadata = {}, .data = {}, .owner = 0};
  if (store.root) store.metadata = open_below(store.root.get(), "meta");
  struct stat st {};
  if (!store.metadata || !is_being_removed(store.metadata.get()) || ::fstat(store.root.get(), &st) != 0) return fail(ENOENT, path + ": no image of efs is there");
  store.owner = st.st_uid;
  return store;
}

Status remove_content(int root, const std::string& path) {
  const UniqueFd metadata = open_below(root, "meta");
  if (metadata) EFS_TRY(begin_removal(metadata.get()));
  EFS_TRY(remove_entries(root, path, "meta"));
  if (!metadata) return {};
  EFS_TRY(remove_entries(metadata.get(), path + "/meta", mark_name));
  return remove_entries(root, path, nullptr);
}

Status finish_removal(int root, int metadata, const std::string& path) {
  if (const UniqueFd data = open_below(root, "data")) EFS_TRY(remove_entries(data.get(), path + "/data", nullptr));
  return ::unlinkat(metadata, mark_name, 0) == 0 || errno == ENOENT ? Status{} : fail_errno(path + "/meta");
}

}  // namespace efs::image
