// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The operations on a store, a draft and a version. Each function is one call of efs_objects.h.

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "objects/bundle.hpp"
#include "objects/efs_objects.h"
#include "objects/files.hpp"
#include "objects/joined.hpp"
#include "objects/leftovers.hpp"
#include "objects/npy.hpp"
#include "objects/object.hpp"
#include "objects/result.hpp"
#include "objects/written.hpp"

namespace efs::objects {

/// The place of a version that is not committed. Its directory is the store's.
struct Unpublished {
  Fd root;    // of the store that it belongs to
  Fd series;  // the directory of the series
  std::string series_name;
  std::string draft;  // the name in the series now
  std::string name;   // and after the commit
  std::mutex mutex;
  JoinFile joins;              // guarded by mutex; empty before eo_token
  pid_t process = ::getpid();  // that began it; a child of fork() must not end it
};

/// The place of a bundle that is not published.
struct UnpublishedBundle {
  Fd root;  // of the store that it belongs to
  std::string name;
  Entry entry;  // where it will be
  DraftFile file;
  pid_t process = ::getpid();  // as in Unpublished
};

class Checkpoints;
/// Returns checkpoints without arrays. Their destruction waits for the background work, and sets
/// the text of eo_error() if the work fails.
std::shared_ptr<Checkpoints> new_checkpoints();

}  // namespace efs::objects

/// A store. Its members are constant after it was opened; what they lead to has its own locks.
struct eo_storage {
  efs::objects::Fd directory;  // of an unpublished version: locked
  std::string path;            // for messages
  bool writable = true;
  std::unique_ptr<efs::objects::Unpublished> unpublished;  // of the process that began it
  efs::objects::JoinFile joined;                           // of a process that joined
  // The arrays of a bundle, or the small arrays of a version: of the process that began it, or of
  // a committed version that has such arrays.
  std::shared_ptr<efs::objects::Bundle> bundle;
  std::unique_ptr<efs::objects::UnpublishedBundle> unpublished_bundle;
  std::shared_ptr<efs::objects::WrittenFiles> written;  // of a version that is not committed
  // Of a store that is no version. Last: its background thread uses the members above.
  std::shared_ptr<efs::objects::Checkpoints> checkpoints;

  /// A bundle has no directory.
  bool is_bundle() const { return !directory; }
};

/// A draft of an object.
struct eo_draft {
  efs::objects::Fd root;  // of its store
  efs::objects::Entry entry;
  efs::objects::DraftFile file;
  efs::objects::Header header;
  efs::objects::Mapping mapping;
  std::string name;
  std::string path;               // of the object, for messages
  efs::objects::JoinFile joins;   // of the process that created it; empty before eo_draft_token
  efs::objects::JoinFile joined;  // of a process that joined
  pid_t process = ::getpid();     // as in Unpublished
  // Of the version that it belongs to.
  std::shared_ptr<efs::objects::Bundle> small;
  std::shared_ptr<efs::objects::WrittenFiles> written;
};

namespace efs::objects {

using Store = ::eo_storage;
using Draft = ::eo_draft;

/// Runs from this size are written and read by system calls, shorter ones by a mapping.
constexpr std::uint64_t shortest_call = 32768;

/// EINVAL for a flag other than EO_SYNC.
Status check_flags(unsigned flags);
/// EROFS for a version that is committed and for a bundle that is published.
Status check_writable(const Store& store);

/// ENOTSUP for a bundle.
Status check_directory(const Store& store);

/// Opens, and with `make` creates, the directory of a name, and returns the file of the name.
struct Place {
  std::string_view name;
  std::string_view suffix;
};

Result<Entry> open_place(const Store& store, const Place& place, bool make);

Result<std::unique_ptr<Store>> open_store(const char* directory);
Status store_array(const Store& store, std::string_view name, const eo_array& array,
                   unsigned flags);
/// Opens an object: a small one of a version and one of a bundle, too.
Result<Object> open_object(const Store& store, std::string_view name);
/// Reads and validates the header of an open file.
Result<Object> read_object(Fd fd);

/// A part of an object; NULL as in eo_load.
struct Part {
  const std::uint64_t* start = nullptr;
  const std::uint64_t* count = nullptr;
};

Status load(const Store& store, std::string_view name, const Part& part, const eo_array& into);
Result<eo_array> view(const Store& store, std::string_view name);
/// Ends a view: its mapping is not NULL.
void release(eo_array& view);
/// The names of all objects that are files, in byte order.
Result<std::vector<std::string>> file_names(const Store& store);
/// The names of all objects, in byte order.
Result<std::vector<std::string>> names(const Store& store);
Status remove(const Store& store, std::string_view name);
Status remove_file(const Store& store, const Place& place);

Result<std::unique_ptr<Draft>> create(const Store& store, std::string_view name,
                                      const eo_array& array);
Status put(Draft& draft, const Part& part, const char* from);
/// Renames a draft to its entry. Without success the draft's file is removed.
Status publish(const Fd& root, std::string_view name, const Entry& entry, const DraftFile& file,
               unsigned flags);
/// Says in a failure of a sync after the rename that the rename is done.
Status in_place(Status synced);
/// Publishes a draft of this process. EBUSY: a process that joined has not left; the draft stays.
Status publish(Draft& draft, unsigned flags);
/// Removes the file of a draft of this process; forgets one that was joined.
void discard(const Draft& draft);
Result<std::string> token(Draft& draft);
Result<std::unique_ptr<Draft>> join_draft(const Store& store, std::string_view name,
                                          std::string_view token);
Status leave_draft(const Draft& draft, unsigned flags);

Result<std::unique_ptr<Store>> begin(const Store& store, std::string_view series, std::uint64_t n);
/// EBUSY: drafts in it are alive, and nothing was changed.
Status commit(const Store& version, unsigned flags);
/// In a child of fork() no call ends what its parent has begun: it only frees memory.
void abort(const Store& version);
Result<std::string> token(Store& version);
Result<std::unique_ptr<Store>> join(const Store& store, std::string_view series, std::uint64_t n,
                                    std::string_view token);
Status leave(const Store& version, unsigned flags);
Result<std::unique_ptr<Store>> open_version(const Store& store, std::string_view series,
                                            std::uint64_t n);
Status keep(const Store& store, std::string_view series, unsigned k);
Result<std::uint64_t> newest(const Store& store, std::string_view series);
/// The committed versions, the oldest first; none where the series does not exist.
Result<std::vector<std::uint64_t>> versions(const Store& store, std::string_view series);
Status remove_version(const Store& store, std::string_view series, std::uint64_t n);
Result<std::unique_ptr<Store>> begin_bundle(const Store& store, std::string_view name);
Result<std::unique_ptr<Store>> open_bundle(const Store& store, std::string_view name);
Status remove_bundle(const Store& store, std::string_view name);
Status commit_bundle(const Store& bundle, unsigned flags);
void abort_bundle(const Store& bundle);

/// Renames a damaged version, so that its number is free. A failure leaves it.
void put_aside(const Store& store, std::string_view series, std::uint64_t n);

/// Returns true if the manifest of a committed version and its bundle can be read.
bool is_readable(const Store& version);
/// NULL: all objects.
Status check(const Store& version, const char* name);

}  // namespace efs::objects
