#include "fs/seal.hpp"

namespace efs {
namespace {

constexpr mode_t plain_mode = 0600, sealed_mode = 0700;

}  // namespace

Status seal(int container) { return ::fchmod(container, sealed_mode) == 0 ? Status{} : fail_errno("sealing a container"); }

Status unseal(int container) { return ::fchmod(container, plain_mode) == 0 ? Status{} : fail_errno("unsealing a container"); }

bool is_sealed(const struct stat& container) { return S_ISREG(container.st_mode) && (container.st_mode & 07777) == sealed_mode; }

}  // namespace efs
