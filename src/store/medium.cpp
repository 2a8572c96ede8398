// SPDX-License-Identifier: BSD-3-Clause
#include "store/medium.hpp"

#include <fcntl.h>
#include <libpmem.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/shared_mapping.hpp"
#include "base/unique_fd.hpp"

namespace efs::store {
namespace {

/// A mapped file. Each window is checked for persistent memory.
class DirectoryFile final : public MediumFile {
 public:
  DirectoryFile(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  ~DirectoryFile() override { unmap(); }

  Result<std::uint64_t> size() override {
    struct stat st{};
    if (::fstat(fd_.get(), &st) != 0) {
      return fail_errno(name_);
    }
    return static_cast<std::uint64_t>(st.st_size);
  }

  Status allocate(std::uint64_t wanted) override {
    auto now = size();
    if (!now) {
      return std::unexpected(now.error());
    }
    if (wanted <= *now) {
      return {};
    }
    // Allocate in parts smaller than a huge page: otherwise the kernel would clear 2 MiB for the
    // first record while all others wait.
    constexpr std::uint64_t most = 1U << 20U;
    for (std::uint64_t at = *now, length = 0; at < wanted; at += length) {
      length = std::min(most, wanted - at);
      if (::fallocate(fd_.get(), 0, static_cast<off_t>(at), static_cast<off_t>(length)) == 0) {
        continue;
      }
      const auto refused = fail_errno();
      // a partly allocated chunk has no use
      (void)!::ftruncate(fd_.get(), static_cast<off_t>(*now));
      return refused;
    }
    // The file's size must survive power loss too, or drained stores are lost. Happens once per
    // chunk, so the cost is small.
    if (pmem_ && ::fsync(fd_.get()) != 0) {
      return fail_errno(name_);
    }
    return {};
  }

  Status cut(std::uint64_t wanted) override {
    auto now = size();
    if (!now) {
      return std::unexpected(now.error());
    }
    return *now <= wanted || ::ftruncate(fd_.get(), static_cast<off_t>(wanted)) == 0
               ? Status{}
               : fail_errno(name_);
  }

  Result<std::byte*> map(std::uint64_t offset, std::size_t length) override {
    unmap();
    const SharedMapping mapping = map_shared(fd_.get(), length, static_cast<off_t>(offset));
    if (mapping.address == nullptr) {
      return fail_errno(name_);
    }
    window_ = static_cast<std::byte*>(mapping.address);
    length_ = length;
    pmem_ = is_persistent(mapping, length, ::pmem_is_pmem);
    return window_;
  }

  // Without persistent memory, the page cache has the data, which survives the death of this
  // process.
  void store(std::byte* to, std::span<const std::byte> from) override {
    pmem_memcpy(to, from.data(), from.size(), pmem_ ? PMEM_F_MEM_NODRAIN : PMEM_F_MEM_NOFLUSH);
  }

  void drain() override {
    if (pmem_) {
      pmem_drain();
    }
  }

  Status sync() override {
    return ::fsync(fd_.get()) == 0 ? Status{} : fail_errno("journal " + name_);
  }

 private:
  void unmap() {
    if (window_ != nullptr) {
      ::munmap(window_, length_);
    }
    window_ = nullptr;
  }

  const UniqueFd fd_;
  const std::string name_;
  std::byte* window_ = nullptr;
  std::size_t length_ = 0;
  bool pmem_ = false;
};

/// A file opened for reading only: read, not mapped, so that a concurrent truncation cannot raise
/// SIGBUS.
class ReadOnlyFile final : public MediumFile {
 public:
  ReadOnlyFile(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  Result<std::uint64_t> size() override {
    struct stat st{};
    if (::fstat(fd_.get(), &st) != 0) {
      return fail_errno(name_);
    }
    return static_cast<std::uint64_t>(st.st_size);
  }

  Status allocate(std::uint64_t) override { return fail(EROFS); }

  Status cut(std::uint64_t) override { return fail(EROFS); }

  Result<std::byte*> map(std::uint64_t offset, std::size_t length) override {
    window_.assign(length, std::byte{0});
    for (std::size_t done = 0; done < length;) {
      const ssize_t n = ::pread(fd_.get(), window_.data() + done, length - done,
                                static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n < 0) {
        return fail_errno(name_);
      }
      if (n == 0) {
        break;
      }
      done += static_cast<std::size_t>(n);
    }
    return window_.data();
  }

  void store(std::byte*, std::span<const std::byte>) override {}

  void drain() override {}

  Status sync() override { return {}; }

 private:
  const UniqueFd fd_;
  const std::string name_;
  std::vector<std::byte> window_;
};

class DirectoryMedium final : public Medium {
 public:
  explicit DirectoryMedium(int directory) : directory_(directory) {}

  Result<std::unique_ptr<MediumFile>> create(const std::string& name) override {
    UniqueFd fd(::openat(directory_, name.c_str(),
                         O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) {
      return fail_errno("journal " + name);
    }
    return std::make_unique<DirectoryFile>(std::move(fd), name);
  }

  Result<std::unique_ptr<MediumFile>> open(const std::string& name, bool read_only) override {
    UniqueFd fd(::openat(directory_, name.c_str(),
                         (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd) {
      return fail_errno("journal " + name);
    }
    struct stat st{};
    if (::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) {
      return fail(EPROTO, "journal " + name + ": not a regular file");
    }
    if (read_only) {
      return std::make_unique<ReadOnlyFile>(std::move(fd), name);
    }
    return std::make_unique<DirectoryFile>(std::move(fd), name);
  }

  Status rename(const std::string& from, const std::string& to) override {
    return ::renameat(directory_, from.c_str(), directory_, to.c_str()) == 0
               ? Status{}
               : fail_errno("journal " + to);
  }

  Status remove(const std::string& name) override {
    return ::unlinkat(directory_, name.c_str(), 0) == 0 || errno == ENOENT
               ? Status{}
               : fail_errno("journal " + name);
  }

  Status sync_names() override {
    if (::fsync(directory_) == 0) {
      return {};
    }
    if (errno != EBADF) {
      return fail_errno("directory of the journal");  // the directory was opened with O_PATH only
    }
    const UniqueFd fd(::openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return fd && ::fsync(fd.get()) == 0 ? Status{} : fail_errno("directory of the journal");
  }

 private:
  const int directory_;
};

}  // namespace

std::shared_ptr<Medium> directory_medium(int directory) {
  return std::make_shared<DirectoryMedium>(directory);
}

}  // namespace efs::store
