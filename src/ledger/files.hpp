// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For every file of the buffer its copies on the PFS, and for every imported name without a file
// who removed it: the job or efs. Pure: only apply() changes it. Other members compute the change
// that an export, a removal or a load makes; the caller records the change as events.

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "ledger/file_entry.hpp"
#include "ledger/stale_names.hpp"

namespace efs::ledger {

/// A file of the buffer as its file system has it. Borrows its strings.
struct Node {
  std::uint64_t id = 0;
  mode_t type = 0;  // S_IFMT
  bool dirty = false;
  bool linked = false;  // has several names; of a directory: any value
  bool remote = false;  // the content is on the PFS only
  Keep keep = Keep::by_rule;
  std::string_view target{};  // of a symbolic link
};

/// All that is known of a file, with its new values.
struct FileGiven {
  std::uint64_t id = 0;
  FileEntry entry;
};

/// The file has a name: its imported names do not count as removed.
struct FileNamed {
  std::uint64_t id = 0;
};

/// The file is about to lose its last name: its imported names now count as removed by the job.
struct LastNameLost {
  Node node;
};

/// The state of an imported name without a file; nullopt: none.
struct GoneGiven {
  std::string path;
  std::optional<GoneInput> input;
};

/// The file is whole now.
struct FileCompleted {
  std::uint64_t id = 0;
};

/// The file no longer exists.
struct FileFreed {
  std::uint64_t id = 0;
};

using FileEvent =
    std::variant<FileGiven, FileNamed, LastNameLost, GoneGiven, FileCompleted, FileFreed>;

/// Returns true if the name leads to the file in question.
using LeadsTo = std::function<bool(const std::string& name)>;

/// A version of a file that the PFS has, or is about to have (any_ctime). Borrows its members.
struct SavedCopy {
  const FileVersion& version;
  bool in_place = false;                // it replaces the file's origin
  const GoneInput* replaced = nullptr;  // the input whose name it took; null: none
};

/// A change to record: first the names, in any order, then the file.
struct Change {
  std::map<std::string, std::optional<GoneInput>> gone{};  // nullopt: forget the name
  std::optional<FileEntry> entry{};                        // nullopt: the file's stays
  bool dirty = false;                                      // with an entry: of the file
};

/// Not thread-safe.
class Files {
 public:
  /// If it throws (std::bad_alloc), nothing has changed, or the event can be applied again.
  void apply(FileEvent event);
  /// After this call apply() needs no larger table. If it throws, nothing has changed.
  void make_room();

  /// Null: nothing is known of the file.
  const FileEntry* find(std::uint64_t id) const;
  /// Empty if nothing is known of the file.
  const FileEntry& of(std::uint64_t id) const;

  /// The imported names without a file. The names of existing files are not among them, also if the
  /// file has another name by now.
  const std::map<std::string, GoneInput>& gone() const { return gone_; }

  /// Calls visit(id, entry) for each file of which something is known.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [id, entry] : entries_) {
      visit(id, entry);
    }
  }

  /// True if the PFS has the present content of the file.
  bool has_content(const Node& node) const;
  /// True if the content is the imported one, and was not exported.
  bool has_imported_content(const Node& node) const;
  /// The state of the file under this name, without NameEntry::replaced.
  NameEntry entry_of(const Node& node, const std::string& path, const LeadsTo& leads_to) const;
  /// The state of `path`, an imported name of the file, if the file lost it now.
  GoneInput gone_input(const Node& node, std::string_view path) const;

  /// The file was exported as `path`, and is clean.
  Change exported(const Node& node, const std::string& path, const SavedCopy& copy,
                  const LeadsTo& leads_to) const;
  /// The name `path` of results-dir has or gets this version of the file, which may have changed
  /// since; null: the file no longer exists. A changed file stays so; of a clean one, only the name
  /// is recorded: the file would be clean under this name too.
  Change copied(const Node* node, const std::string& path, const SavedCopy& copy,
                const LeadsTo& leads_to) const;
  /// efs removes the name, of which the PFS has the file and keeps it. `last`: the only name.
  Change unloaded(const Node& node, const std::string& path, bool last) const;
  /// efs removes the name to import it again. `last`: the only name.
  Change outdated(const Node& node, const std::string& path, bool last) const;
  /// An imported file has got further names, which were imported too.
  Change linked(const Node& node, std::span<const std::string> names) const;
  /// Other files have these names on the PFS.
  Change revoked(const Node& node, const StaleNames& names) const;
  /// The entries of files that lose the record that these paths were imported.
  std::vector<std::pair<std::uint64_t, FileEntry>> forgotten(
      std::span<const std::string> paths) const;

 private:
  /// The input of this name that has no file; null: there is none.
  const GoneInput* find_input(const std::string& path) const;
  void on(FileGiven&& event);
  void on(FileNamed&& event);
  void on(LastNameLost&& event);
  void on(GoneGiven&& event);
  void on(FileCompleted&& event);
  void on(FileFreed&& event);

  void add_gone(const Node& node, std::string_view path, Change& change) const;
  void add_replaced(bool linked, const std::string& path, const SavedCopy& copy,
                    Change& change) const;
  void set_copy(const Node& node, const std::string& path, const SavedCopy& copy,
                const LeadsTo& leads_to, Change& change) const;
  GoneInput unloaded_input(const Node& node, const std::string& path) const;
  void replace_origin(const Node& node, const std::string& path, const LeadsTo& leads_to,
                      Change& change) const;

  std::unordered_map<std::uint64_t, FileEntry> entries_;
  std::map<std::string, GoneInput> gone_;
};

}  // namespace efs::ledger
