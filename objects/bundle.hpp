// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Many arrays in one .npz file: while it is written, and when it is read.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "objects/files.hpp"
#include "objects/manifest.hpp"
#include "objects/npy.hpp"
#include "objects/object.hpp"
#include "objects/zip.hpp"

namespace efs::objects {

/// The largest array that a version puts into its small.npz, in bytes.
constexpr std::uint64_t max_small = 65536;

/// A bundle. Its functions are thread-safe. What is read from a bundle that is being written is in
/// its file before.
class Bundle {
 public:
  /// A bundle that is written to an empty file.
  explicit Bundle(Fd file) : file_(std::move(file)) {}

  /// A bundle that creates its file in the directory with the first array.
  Bundle(Fd directory, std::string name)
      : directory_(std::move(directory)), file_name_(std::move(name)) {}

  /// Opens a bundle to read it. One that is damaged gives its failure for each array.
  static Result<std::shared_ptr<Bundle>> open(Fd file);

  /// The failure of a bundle that is damaged. Constant after open().
  const std::optional<Failure>& failure() const { return failure_; }

  /// Adds or replaces an array. With `sync` the whole bundle is durable when finish() returns.
  /// EFBIG: it is too large for a member.
  Status store(std::string_view name, const Shape& shape, const void* data, bool sync);
  /// ENOENT: no such array.
  Result<Object> find(std::string_view name);
  Result<std::vector<std::string>> names();
  /// Forgets an array. Returns false if there was none.
  bool erase(std::string_view name);

  /// Writes the rest of the file and its directory; without arrays a file that the bundle created
  /// is removed. Nothing can be stored afterwards.
  Status finish(bool sync);
  /// The arrays for a manifest, in byte order.
  Result<std::vector<Recorded>> recorded();

 private:
  struct Hash {
    using is_transparent = void;

    std::size_t operator()(std::string_view name) const {
      return std::hash<std::string_view>()(name);
    }
  };

  Status make_file();
  Status append(std::string_view bytes);
  Status flush();
  Status map(std::uint64_t size);
  Result<Header> header_of(const Member& member);

  std::mutex mutex_;
  // All guarded by mutex_.
  Fd directory_;
  std::string file_name_;
  Fd file_;
  std::string buffer_;         // the end of the file, not yet written
  std::uint64_t written_ = 0;  // bytes of the file before the buffer
  bool sync_ = false;          // an array was stored with `sync`
  std::unordered_map<std::string, Member, Hash, std::equal_to<>> members_;
  std::shared_ptr<const Mapping> mapping_;
  std::string parsed_text_;  // the bytes of the header that was parsed last
  Header parsed_;

  std::optional<Failure> failure_;  // constant after open()
};

}  // namespace efs::objects
