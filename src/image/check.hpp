// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Checks an offline store: journal, namespace, containers, space. Changes nothing.

#include <string>
#include <vector>

#include "image/image.hpp"

namespace efs::image {

/// note: harmless, for information. leftover: a recovery removes the object without loss; this is
/// provable, so --repair removes it. damage: data is lost or inconsistent.
enum class Severity : std::uint8_t { note, leftover, damage };
const char* name_of(Severity severity);

struct Finding {
  Severity severity = Severity::note;
  std::string object;  // journal, manifest, container number, or a path relative to the root
  std::string text;
};

struct CheckReport {
  std::string path;  // path of the store
  std::uint64_t records = 0, files = 0, directories = 0, others = 0, containers = 0;
  std::uint64_t bytes = 0;  // allocated bytes of containers
  std::uint64_t journal_bytes = 0;
  std::vector<Finding> findings;
  // files that lost all content by power loss; also listed in the findings
  std::vector<std::string> emptied;
  Severity worst() const;
};

/// Returns an error only if the store cannot be inspected (missing, in use, unreadable). Damage is
/// a finding.
Result<CheckReport> check_image(const std::string& path);

/// Removes the leftovers of check_image(), by the same recovery as a start. Returns EUCLEAN and
/// changes nothing if there is damage: efs cannot prove which data is right.
Status repair_image(const std::string& path);

}  // namespace efs::image
