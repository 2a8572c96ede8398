#include "base/boot.hpp"

#include <fstream>

namespace efs {

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

}  // namespace efs
