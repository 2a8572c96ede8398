// SPDX-License-Identifier: BSD-3-Clause
#include "ledger/version.hpp"

namespace efs::ledger {

FileVersion version_of(const struct stat& st) {
  return {.device = st.st_dev,
          .inode = st.st_ino,
          .size = static_cast<std::uint64_t>(st.st_size),
          .mtime = to_ns(st.st_mtim),
          .ctime = to_ns(st.st_ctim)};
}

bool is_same_file(const FileVersion& a, const FileVersion& b) {
  return a.inode == b.inode && a.size == b.size && a.mtime == b.mtime;
}

bool is_version(const FileVersion& known, const FileVersion& now, Ctime ctime) {
  if (known.ctime == 0 || !is_same_file(known, now)) {
    return false;
  }
  return ctime == Ctime::ignored || known.ctime == FileVersion::any_ctime ||
         known.ctime == now.ctime;
}

File file_of(const struct stat& st) {
  return {.version = version_of(st), .linked = st.st_nlink > 1};
}

bool is_version(const File& known, const File& now, Ctime ctime) {
  return is_version(known.version, now.version,
                    known.linked || now.linked ? Ctime::ignored : ctime);
}

DirectoryState begun(DirectoryState before, const std::optional<DirectoryShape>& has) {
  before.applied.reset();
  before.interrupted = true;
  if (has) {
    before.was = has;
  }
  return before;
}

DirectoryState applied(DirectoryState before, std::uint64_t version) {
  before.interrupted = false;
  before.applied = version;
  return before;
}

DirectoryState done(const DirectoryState& before, std::optional<std::uint64_t> version) {
  return {.version = version ? version : before.version};
}

}  // namespace efs::ledger
