#include <optional>

#include "config/job_config.hpp"
#include "config/paths.hpp"

namespace efs::config {
namespace {

// The length of the longest leading part of `path` (whole components, the whole path first) that satisfies
// `matches`: a rule that names a directory holds for all below it.
template <typename Predicate>
std::optional<std::size_t> deepest_match(std::string_view path, Predicate matches) {
  std::string_view part = path;
  while (true) {
    if (matches(part)) return part.size();
    if (part.empty()) return std::nullopt;
    const auto slash = part.rfind('/');
    part = slash == part.npos ? std::string_view{} : part.substr(0, slash);
  }
}

std::optional<FileClass> class_by_output_rule(const JobConfig& config, std::string_view path) {
  for (const auto& rule : config.outputs) {
    if (deepest_match(path, [&](auto part) { return glob_match(rule.pattern, part); })) return rule.file_class;
  }
  return std::nullopt;
}

// The resource that names `path` or holds it most deeply; at equal depth a plain path beats a glob, then the first wins.
const Resource* owning_resource(const JobConfig& config, std::string_view path) {
  const Resource* owner = nullptr;
  std::size_t owner_depth = 0;
  for (const auto& resource : config.resources) {
    const auto name = part_below(resource.path, config.root_dir);
    const auto depth = deepest_match(path, [&](auto part) { return resource.is_glob ? glob_match(name, part) : part == name; });
    if (!depth) continue;
    const bool deeper = !owner || *depth > owner_depth;
    const bool plainer = owner && *depth == owner_depth && owner->is_glob && !resource.is_glob;
    if (deeper || plainer) {
      owner = &resource;
      owner_depth = *depth;
    }
  }
  return owner;
}

}  // namespace

std::size_t rank(const JobConfig& config, std::string_view path) {
  if (path.starts_with('/')) path.remove_prefix(1);
  for (std::size_t i = 0; i < config.outputs.size(); ++i)
    if (deepest_match(path, [&](auto part) { return glob_match(config.outputs[i].pattern, part); })) return i;
  const auto* owner = owning_resource(config, path);
  return config.outputs.size() + (owner == nullptr ? config.resources.size() : static_cast<std::size_t>(owner - config.resources.data()));
}

FileClass classify(const JobConfig& config, std::string_view path, bool staged_in) {
  if (path.starts_with('/')) path.remove_prefix(1);
  if (!staged_in) {
    // Without output rules nothing that the job makes is dropped, not even below a temporary resource.
    if (config.outputs.empty()) return FileClass::persistent;
    if (const auto by_rule = class_by_output_rule(config, path)) return *by_rule;
  }
  if (const auto* owner = owning_resource(config, path)) return owner->file_class;
  return config.outputs.empty() ? FileClass::persistent : FileClass::temporary;
}

}  // namespace efs::config
