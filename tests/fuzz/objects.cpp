// SPDX-License-Identifier: BSD-3-Clause
// A .npy header, a manifest or a bundle of arbitrary bytes: a value or an error with a reason. The
// first byte selects the reader.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "objects/manifest.hpp"
#include "objects/npy.hpp"
#include "objects/zip.hpp"

using namespace efs::objects;

namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

template <typename T>
bool valid(const Result<T>& result) {
  require(result || !result.error().reason.empty());
  return result.has_value();
}

void read_header(std::string_view bytes) {
  const auto header = parse_header(bytes);
  if (valid(header)) {
    const auto again = parse_header(header_of(header->shape));
    require(again && again->shape.bytes == header->shape.bytes);
  }
}

void read_manifest(std::string_view bytes) {
  const auto objects = parse_manifest(bytes);
  if (valid(objects)) {
    const auto again = parse_manifest(manifest_of(*objects));
    require(again && again->size() == objects->size());
  }
}

void read_bundle(std::string_view bytes) {
  const auto members = parse_zip(bytes);
  if (!valid(members)) {
    return;
  }
  for (const Member& member : *members) {
    if (member.stored) {
      require(member.start <= bytes.size() && member.size <= bytes.size() - member.start);
      (void)valid(parse_header(bytes.substr(member.start, member.size)));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.empty()) {
    return 0;
  }
  constexpr void (*readers[])(std::string_view) = {read_header, read_manifest, read_bundle};
  readers[data[0] % 3](bytes.substr(1));
  return 0;
}
