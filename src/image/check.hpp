#pragma once
// Is an image whole? Journal, namespace, containers, space: looked at, not touched.

#include <string>
#include <vector>

#include "image/image.hpp"

namespace efs::image {

/// note: harmless, for the record. leftover: something that a recovery removes without loss;
/// provable, so --repair does. damage: something is lost or does not fit.
enum class Severity : std::uint8_t { note, leftover, damage };
const char* name_of(Severity severity);

struct Finding {
  Severity severity = Severity::note;
  std::string object;  // journal, manifest, container ID, or a path relative to the root
  std::string text;
};

struct CheckReport {
  std::string path;  // of the store
  std::uint64_t records = 0, files = 0, directories = 0, others = 0, containers = 0;
  std::uint64_t bytes = 0;  // in containers, allocated
  std::uint64_t journal_bytes = 0;
  std::vector<Finding> findings;
  // files of which power loss took all that there was: among the findings, too
  std::vector<std::string> emptied;
  Severity worst() const;
};

/// An error only where the image cannot be looked at (not there, in use, not readable); damage is a
/// finding.
Result<CheckReport> check_image(const std::string& path);

/// Removes what check_image() calls leftovers, by the recovery that a start would do; refuses
/// (EUCLEAN) where there is damage, since nothing can prove what is right there.
Status repair_image(const std::string& path);

}  // namespace efs::image
