#include "config/surroundings.hpp"

#include <limits.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace efs::config {

Surroundings surroundings_of_process(const User& user) {
  Surroundings surroundings{.user = user.name, .home = user.home};
  surroundings.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  std::array<char, HOST_NAME_MAX + 1> node{};
  if (::gethostname(node.data(), node.size() - 1) == 0) surroundings.node = node.data();
  surroundings.node = surroundings.node.substr(0, surroundings.node.find('.'));
  return surroundings;
}

}  // namespace efs::config
