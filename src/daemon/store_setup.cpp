#include "daemon/store_setup.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <filesystem>

#include "backends/fsdax.hpp"
#include "base/log.hpp"
#include "base/memory.hpp"
#include "base/text.hpp"

namespace efs::daemon {
namespace {

Result<UniqueFd> make_private_directory(const std::string& path, bool there) {
  if (!there && ::mkdir(path.c_str(), 0700) != 0) return fail_errno("cannot make the store " + path);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return fail_errno("store " + path);
  return fd;
}

bool is_memory(const std::string& directory) {
  struct statfs fs {};
  return ::statfs(directory.c_str(), &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

// `root` holds the journal's directory and the containers'.
Result<Store> finish(UniqueFd root, FsdaxOptions options, std::string directory, bool there) {
  for (const char* part : {"meta", "data"})
    if (!there && ::mkdirat(root.get(), part, 0700) != 0) return fail_errno(std::string("store/") + part);
  Store store;
  store.metadata.reset(::openat(root.get(), "meta", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  options.directory.reset(::openat(root.get(), "data", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!store.metadata || !options.directory) return fail_errno("store");
  auto backend = make_fsdax(std::move(options));
  if (!backend) return std::unexpected(backend.error());
  store.backend = std::move(*backend);
  store.directory = std::move(directory);
  return store;
}

}  // namespace

Result<Store> set_up_store(const config::Backend& backend, const std::string& name, bool privileged, bool noatime, SupervisorClient& supervisor, bool there) {
  const bool dram = backend.type == config::BackendType::dram;
  const std::string parent = dram ? "/dev/shm" : backend.daxfs;
  FsdaxOptions options;
  options.kind = dram ? "dram" : "fsdax";
  options.capacity = config::capacity_of(backend, available_memory());
  if (options.capacity && *options.capacity < config::smallest_capacity)
    return fail(EINVAL, "backend " + backend.id + ": capacity " + format_bytes(*options.capacity) + " is too small; at least " + format_bytes(config::smallest_capacity) + " are needed");
  if (!dram && !std::filesystem::is_directory(parent)) return fail(ENOENT, "backend " + backend.id + ": daxfs " + parent + " is no directory");

  if (options.capacity && privileged && (dram || is_memory(parent))) {
    auto root = supervisor.memory_store(*options.capacity, noatime);
    if (!root) return std::unexpected(root.error());
    options.kernel_holds_capacity = true;
    return finish(std::move(*root), std::move(options), "", there);
  }
  const std::string directory = parent + "/efs-" + std::to_string(::geteuid()) + "-" + name;
  auto root = make_private_directory(directory, there);
  if (!root && root.error().code == EEXIST)
    return fail(EEXIST, "an earlier instance left its store in " + directory + "; its data may be the only copy: look at it, then remove the directory");
  if (!root) return std::unexpected(root.error());
  // Memory without a bound of its own takes the machine down with it: counted by the daemon, byte by byte.
  options.strict = options.capacity && (is_memory(parent) || backend.enforce == config::Enforce::strict);
  auto store = finish(std::move(*root), std::move(options), directory, there);
  if (!store && !there) remove_store(directory);
  return store;
}

void remove_store(const std::string& directory) {
  if (directory.empty()) return;
  std::error_code problem;
  std::filesystem::remove_all(directory, problem);
  if (problem) log::warn("event=store_not_removed directory={} reason=\"{}\"", directory, problem.message());
}

}  // namespace efs::daemon
