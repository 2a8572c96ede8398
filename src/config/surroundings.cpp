// SPDX-License-Identifier: BSD-3-Clause
#include "config/surroundings.hpp"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

namespace efs::config {
namespace {

// larger values are errors, and would not fit 64 bits in bytes
constexpr std::uint64_t most_mebibytes = 1ULL << 40U;

}  // namespace

Surroundings surroundings_of_process(const User& user) {
  Surroundings surroundings{.user = user.name, .home = user.home};
  surroundings.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  std::array<char, HOST_NAME_MAX + 1> node{};
  if (::gethostname(node.data(), node.size() - 1) == 0) {
    surroundings.node = node.data();
  }
  surroundings.node = surroundings.node.substr(0, surroundings.node.find('.'));
  return surroundings;
}

std::optional<std::uint64_t> memory_of_batch_job(const Surroundings& surroundings) {
  const auto number = [&](const char* name) -> std::uint64_t {
    const std::string text = surroundings.find(name).value_or("");
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [at, problem] = std::from_chars(text.data(), end, value);
    return problem == std::errc() && at == end ? std::min<std::uint64_t>(value, UINT32_MAX) : 0;
  };
  std::uint64_t mebibytes = number("SLURM_MEM_PER_NODE");
  if (mebibytes == 0) {
    mebibytes = number("SLURM_MEM_PER_CPU") * number("SLURM_CPUS_ON_NODE");
  }
  return mebibytes == 0 || mebibytes > most_mebibytes ? std::nullopt
                                                      : std::optional(mebibytes << 20U);
}

}  // namespace efs::config
