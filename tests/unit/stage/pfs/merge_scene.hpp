// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "support/temp.hpp"
#include "unit/stage/opened.hpp"

namespace efs::stage {

/// A directory that several nodes bring results to.
struct MergeScene {
  efs::test::TempDirectory directory;
  PfsHandle at = opened(directory.path());

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(directory.path() + "/" + name) << text;
  }

  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(directory.path() + "/" + name).rdbuf();
    return text.str();
  }

  bool exists(const std::string& name) const {
    return std::filesystem::exists(std::filesystem::symlink_status(directory.path() + "/" + name));
  }
};

}  // namespace efs::stage
