// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The copies of a file of the buffer that the PFS has, and by whose doing. Plain values. (Ledger
// has the opposite view: the owner of a file that has a name in results-dir.)

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ledger/names.hpp"
#include "ledger/version.hpp"

namespace efs::ledger {

/// The class that a user has set for a name during the job (efs set). A directory's class applies
/// to everything below without a class of its own.
enum class Keep : std::uint8_t { by_rule = 0, temporary = 1, persistent = 2 };

/// A version on the PFS, and the names that lead to it there.
struct PfsCopy {
  FileVersion version;
  Names names;
  bool operator==(const PfsCopy&) const = default;
};

/// A version that this store has exported to results-dir.
struct ExportedCopy : PfsCopy {
  // it has the imported content, so the file is unchanged under its other names
  bool as_imported = false;
  bool operator==(const ExportedCopy&) const = default;
};

/// All that the store knows of one file, link or directory on the PFS.
struct FileEntry {
  /// A value of `parts`: efs itself is about to remove the file, so no input counts as removed.
  static constexpr const char* leaves = "0+0";

  std::optional<PfsCopy> imported{};
  std::optional<ExportedCopy> exported{};
  std::string parts{};  // the loaded parts of a partial file; "": the file is whole

  bool empty() const { return !imported && !exported && parts.empty(); }

  /// A partly loaded file is not an input that could be missed.
  bool is_whole_import() const { return imported && parts.empty(); }

  bool operator==(const FileEntry&) const = default;
};

/// An imported name whose file was removed, or has lost the record of that name.
struct GoneInput {
  mode_t type = 0;                   // S_IFMT
  FileVersion origin;                // of a file
  std::optional<FileVersion> saved;  // the copy with that name in results-dir
  bool linked = false;               // the file had several names on the PFS: its ctime may differ
  Keep keep = Keep::by_rule;
  std::string target;  // of a symbolic link
  // an unload removed the name, not the job: the input does not count as removed
  bool unloaded = false;
  bool operator==(const GoneInput&) const = default;

  /// True if it is no input but a result that left the buffer although the PFS never had it:
  /// `origin` has its size and mtime only.
  bool was_never_sent() const {
    return unloaded && !saved && origin.inode == 0 && origin.ctime == FileVersion::any_ctime;
  }
};

/// The copies of a file as seen under one of its names.
struct NameEntry {
  // content, attributes or name may differ from the import (true for new files)
  bool dirty = false;
  // set if the file was imported under this name
  std::optional<FileVersion> origin{};
  bool linked = false;  // with an origin: the file had several names on the PFS
  // set if the file has not changed since the import, under any name: its required size and mtime
  std::optional<FileVersion> content{};
  // set if an unload or a stage-out has exported it under this name
  std::optional<FileVersion> saved{};
  bool saved_linked = false;  // that copy has or had several names: ignore its ctime
  // another name of the file under which an unload or stage-out has exported this version
  std::string copy_path{};
  std::optional<FileVersion> copy{};  // the version of that copy
  // the file or link that was imported under this name, if the job has replaced it
  std::shared_ptr<const GoneInput> replaced{};
  std::string parts{};  // as in FileEntry

  /// The newest version of the file that the PFS has under this name; nullopt: none.
  const std::optional<FileVersion>& on_pfs() const { return saved ? saved : origin; }

  /// True if the PFS does not have the file's present state under this name, so that a persistent
  /// file must be exported.
  bool due_for_export(mode_t mode) const { return dirty || (S_ISREG(mode) && !on_pfs()); }

  /// True if the file is as it was imported under this name, and was not exported.
  bool is_as_imported() const { return !dirty && !saved && origin; }

  /// True if the present state was exported under this name.
  bool is_exported() const { return !dirty && saved; }
};

}  // namespace efs::ledger
