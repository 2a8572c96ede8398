// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Views of a DeadImage by a check, a salvage and a start.

#include <fstream>
#include <memory>
#include <string>

#include "fs/filesystem.hpp"
#include "image/check.hpp"
#include "image/salvage.hpp"
#include "support/dead_image.hpp"

namespace efs::test {

/// Returns "OBJECT: TEXT" for each finding of that severity.
inline std::string findings(const DeadImage& dead, image::Severity severity) {
  const auto report = image::check_image(dead.store());
  REQUIRE(report);
  std::string text;
  for (const auto& finding : report->findings) {
    if (finding.severity == severity) {
      text += finding.object + ": " + finding.text + "\n";
    }
  }
  return text;
}

inline std::string damage_in(const DeadImage& dead) {
  return findings(dead, image::Severity::damage);
}

inline stage::Receipt brought_out(const DeadImage& dead,
                                  const image::SalvageOptions& options = {}) {
  dead.fill_results();
  auto image = image::open_image(dead.store());
  REQUIRE(image);
  stage::Progress progress;
  return image::salvage(*image, options, progress);
}

/// Opens the store as a start does, on a machine that stayed up or was restarted.
struct Started {
  explicit Started(const DeadImage& dead, bool after_power_loss = false)
      : meta(dead.open_meta()),
        backend(open_containers(dead.store())),
        filesystem(fs::Filesystem::open(*backend, {.metadata_directory = meta.get(),
                                                   .after_power_loss = after_power_loss,
                                                   .instance = dead.instance()})) {}

  UniqueFd meta;
  std::unique_ptr<Backend> backend;
  Result<std::unique_ptr<fs::Filesystem>> filesystem;
};

inline void write_over(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

}  // namespace efs::test
