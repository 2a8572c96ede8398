#include "stage/pfs/partial_name.hpp"

#include <algorithm>
#include <span>

#include "base/checksum.hpp"

namespace efs::stage {
namespace {

constexpr std::size_t longest_name = 255;

}  // namespace

std::string partial_tag_of(const std::string& store) { return "." + store.substr(0, 12); }

std::string partial_name(const std::string& name, const std::string& tag, bool taken) {
  const std::string of = name + tag, partial = of + partial_suffix;
  if (!taken && partial.size() <= longest_name) return partial;
  return ".efs-" + to_hex(checksum(std::as_bytes(std::span(of)))) + partial_suffix;
}

std::string left_behind(const std::string& partial, const Error& error) { return "its partial " + partial + " stays behind: " + describe(error); }

std::string kept_name(const std::string& name, const std::string& job, unsigned n) {
  const std::string suffix = ".efs-" + job + (n > 1 ? "." + std::to_string(n) : "");
  return name.substr(0, longest_name - std::min(suffix.size(), longest_name - 1)) + suffix;
}

}  // namespace efs::stage
